"""PKCS12 stores, as Java's keytool and openssl write them: their contents as PEM text. Blocking.

Needs the package cryptography. The private key is never unencrypted outside its store: in the text it is encrypted with
a generated password, with which OpenSSL reads it.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from aioproducer.errors import TlsError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates
    from cryptography.x509 import Certificate

_JKS = b"\xfe\xed\xfe\xed"


def trusted(path: str, password: str | None, where: str) -> str:
    """All certificates in a trust store.

    Args:
        where: the config it comes from, for messages.
    Raises:
        TlsError: it can't be read, or contains none.
    """
    store = _load(path, password, where, "ssl_truststore_password")
    found = [one.certificate for one in store.additional_certs]
    if store.cert is not None:
        found.append(store.cert.certificate)
    if not found:
        raise TlsError(f"{where} holds no certificate")
    return _pem(found)


def own(path: str, password: str | None, where: str) -> tuple[str, str]:
    """The private key in a key store with its certificate chain, and the password that decrypts the key in this text.

    Raises:
        TlsError: it can't be read, or has no private key with a certificate.
    """
    from cryptography.hazmat.primitives import serialization

    store = _load(path, password, where, "ssl_keystore_password")
    if store.key is None or store.cert is None:
        raise TlsError(f"{where} holds no private key with its certificate")
    secret = secrets.token_hex(16)
    key = store.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(secret.encode()),
    )
    others = [one.certificate for one in store.additional_certs]
    return key.decode() + _pem(_chain(store.cert.certificate, others)), secret


def _chain(first: Certificate, others: list[Certificate]) -> list[Certificate]:
    """Each certificate is followed by its issuer's, as TLS 1.2 requires; those outside the chain are left out."""
    chain = [first]
    rest = list(others)
    while issuers := [one for one in rest if one.subject == chain[-1].issuer]:
        chain.append(issuers[0])
        rest.remove(issuers[0])
    return chain


def _load(path: str, password: str | None, where: str, config: str) -> PKCS12KeyAndCertificates:
    from cryptography.hazmat.primitives.serialization import pkcs12

    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise TlsError(f"{where} can't be read: {error.strerror or error}") from error
    if data.startswith(_JKS):
        command = f"keytool -importkeystore -srckeystore {path} -destkeystore STORE.p12 -deststoretype PKCS12"
        raise TlsError(f"{where} is a JKS store, which only the JVM can read: {command}")
    if data.startswith(b"-----BEGIN"):
        raise TlsError(f"{where} is PEM text: set {config.replace('_password', '_type')}=PEM")
    try:
        return pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except Exception:  # of many classes, as the package parses foreign bytes; their texts are no help
        told = f"{config} does not open it, or it is damaged" if password else f"set {config}, or it is damaged"
        raise TlsError(f"{where} can't be read as a PKCS12 store: {told}") from None


def _pem(certificates: list[Certificate]) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return "".join(one.public_bytes(Encoding.PEM).decode() for one in certificates)
