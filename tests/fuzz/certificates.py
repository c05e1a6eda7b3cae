"""Certificates that are the same in each run, with the smallest possible keys and signatures."""

from __future__ import annotations

import datetime
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID

BEGIN = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
END = datetime.datetime(2200, 1, 1, tzinfo=datetime.UTC)


def _key(name: str) -> Ed25519PrivateKey:
    digest = hashes.Hash(hashes.SHA256())
    digest.update(name.encode())
    return Ed25519PrivateKey.from_private_bytes(digest.finalize())


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _certificate(name: str, issuer: str, end: datetime.datetime, *, is_authority: bool) -> str:
    made = (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(issuer))
        .public_key(_key(name).public_key())
        .serial_number(1 + is_authority)
        .not_valid_before(BEGIN)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(_key(issuer), None)
    )
    return made.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(name: str, encryption: serialization.KeySerializationEncryption) -> str:
    form = serialization.PrivateFormat.PKCS8
    return _key(name).private_bytes(serialization.Encoding.PEM, form, encryption).decode()


@cache
def authority_pem() -> str:
    """The certificate of the authority."""
    return _certificate("authority", "authority", END, is_authority=True)


@cache
def issued(name: str, *, expired: bool = False) -> str:
    """Key and certificate for a host name."""
    end = BEGIN + datetime.timedelta(days=1) if expired else END
    return _key_pem(name, serialization.NoEncryption()) + _certificate(name, "authority", end, is_authority=False)


@cache
def self_signed(name: str) -> str:
    """Key and self-signed certificate."""
    return _key_pem(name, serialization.NoEncryption()) + _certificate(name, name, END, is_authority=False)


@cache
def with_encrypted_key(name: str, password: str) -> str:
    """The same as ``issued``, with a password on the key."""
    encryption = serialization.BestAvailableEncryption(password.encode())
    return _key_pem(name, encryption) + _certificate(name, "authority", END, is_authority=False)
