"""Stores made by keytool of Java 17, and others, as passed to OpenSSL."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12 as writer

from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import TlsError
from aioproducer.net import pem, pkcs12
from aioproducer.net.tls import make_context
from aioproducer.testing import CertificateAuthority

STORES = Path(__file__).parents[2] / "golden" / "stores"
KEYS, TRUST, JKS = (str(STORES / name) for name in ("keys.p12", "trust.p12", "trust.jks"))
PASSWORD = "changeit"


def context(**values: Any) -> ssl.SSLContext:
    return make_context(ProducerConfig.parse({"bootstrap_servers": "a:1", "security_protocol": "SSL", **values}))


def trust(path: str, password: str | None = PASSWORD) -> ssl.SSLContext:
    return context(ssl_truststore_type="PKCS12", ssl_truststore_location=path, ssl_truststore_password=password)


def keys(path: str, password: str | None = PASSWORD, **values: Any) -> ssl.SSLContext:
    where = {"ssl_keystore_type": "pkcs12", "ssl_keystore_location": path}
    return context(**where, ssl_keystore_password=password, **values)


def names(text: str) -> list[str]:
    found = x509.load_pem_x509_certificates(text.encode())
    return [one.subject.rfc4514_string() for one in found]


def test_a_trust_store_of_keytool() -> None:
    subjects = [dict(field[0] for field in one["subject"]) for one in trust(TRUST).get_ca_certs()]  # type: ignore[union-attr, misc]
    assert sorted(subject["commonName"] for subject in subjects) == ["middle", "root"]


def test_a_key_store_of_keytool() -> None:
    """The key matches its certificate, as OpenSSL checks, and each certificate is followed by its issuer's."""
    keys(KEYS)
    keys(KEYS, ssl_key_password=PASSWORD)
    keys(KEYS, None, ssl_key_password=PASSWORD)
    text, _ = pkcs12.own(KEYS, PASSWORD, "here")
    certificates = "".join(block for kind, block in pem.blocks(text) if kind == "CERTIFICATE")
    assert names(certificates) == ["CN=client", "CN=middle", "CN=root"]


def test_the_key_is_encrypted_on_its_way() -> None:
    text, secret = pkcs12.own(KEYS, PASSWORD, "here")
    assert "-----BEGIN ENCRYPTED PRIVATE KEY-----" in text
    assert secret != pkcs12.own(KEYS, PASSWORD, "here")[1]


@pytest.mark.parametrize(
    ("password", "told"),
    [("wr0ng", "ssl_keystore_password does not open it, or it is damaged"), (None, "set ssl_keystore_password, or")],
)
def test_a_password_that_does_not_open_it(password: str | None, told: str) -> None:
    with pytest.raises(TlsError) as caught:
        keys(KEYS, password)
    assert str(caught.value).startswith(f"ssl_keystore_location={KEYS} can't be read as a PKCS12 store: {told}")
    assert "wr0ng" not in str(caught.value)


def test_stores_of_another_type(tmp_path: Path) -> None:
    """The content counts, not the name: a trust.jks made by keytool is PKCS12 since Java 9."""
    with pytest.raises(TlsError, match="is a JKS store, which only the JVM can read: keytool -importkeystore"):
        trust(JKS)
    text = tmp_path / "ca.pem"
    text.write_text(CertificateAuthority().pem)
    with pytest.raises(TlsError, match="is PEM text: set ssl_truststore_type=PEM"):
        trust(str(text))
    with pytest.raises(TlsError, match="/nowhere can't be read: No such file"):
        trust("/nowhere")
    renamed = tmp_path / "trust.jks"
    renamed.write_bytes(Path(TRUST).read_bytes())
    assert len(trust(str(renamed)).get_ca_certs()) == 2


def test_stores_without_what_is_needed() -> None:
    with pytest.raises(TlsError, match="holds no private key with its certificate"):
        keys(TRUST)


def test_a_key_store_as_trust_store() -> None:
    """The certificate of a key is trusted as well, as in Java."""
    assert sorted(names(pkcs12.trusted(KEYS, PASSWORD, "here"))) == ["CN=client", "CN=middle", "CN=root"]


def store_of(path: Path, key: str, certificate: str | None, others: str) -> str:
    """A store without a password, as openssl can make them."""
    first = None if certificate is None else x509.load_pem_x509_certificate(certificate.encode())
    path.write_bytes(
        writer.serialize_key_and_certificates(
            b"client",
            serialization.load_pem_private_key(key.encode(), None),  # type: ignore[arg-type]
            first,
            x509.load_pem_x509_certificates(others.encode()) if others else None,
            serialization.NoEncryption(),
        )
    )
    return str(path)


def test_a_store_without_a_password(tmp_path: Path) -> None:
    issued = CertificateAuthority().issue("client.test")
    keys(store_of(tmp_path / "client.p12", issued.key, issued.chain, ""), None)


def test_a_store_with_a_key_alone(tmp_path: Path) -> None:
    store = store_of(tmp_path / "client.p12", CertificateAuthority().issue("client.test").key, None, "")
    with pytest.raises(TlsError, match="holds no private key with its certificate"):
        keys(store, None)
    with pytest.raises(TlsError, match=r"ssl_truststore_location=.* holds no certificate$"):
        trust(store, None)


def test_a_certificate_outside_the_chain_is_left_out(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    issued = authority.issue("client.test")
    others = CertificateAuthority().pem + authority.pem
    text, _ = pkcs12.own(store_of(tmp_path / "client.p12", issued.key, issued.chain, others), None, "here")
    chain = "".join(block for kind, block in pem.blocks(text) if kind == "CERTIFICATE")
    assert x509.load_pem_x509_certificates(chain.encode()) == x509.load_pem_x509_certificates(
        (issued.chain + authority.pem).encode()
    )


@pytest.mark.parametrize("at", range(0, 1_800, 37))
def test_damaged_stores_are_used_or_refused(at: int, tmp_path: Path) -> None:
    data = bytearray(Path(KEYS).read_bytes())
    data[at] ^= 0x41
    store = tmp_path / "keys.p12"
    store.write_bytes(data)
    with contextlib.suppress(TlsError):  # and no other error
        keys(str(store))
