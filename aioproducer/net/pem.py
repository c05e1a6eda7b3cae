"""PEM text: its parts, and how to load it into an SSLContext without storing it in a file. Blocking."""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from aioproducer.errors import TlsError

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)


def blocks(text: str) -> list[tuple[str, str]]:
    """The parts of a PEM text: the kind of each, and its text with the line breaks that OpenSSL needs.

    Config files may contain PEM on one line, with spaces instead of newlines, as Java accepts it.
    """
    return [(kind, _lines(kind, body)) for kind, body in _BLOCK.findall(text)]


def _lines(kind: str, body: str) -> str:
    if ":" not in body:  # else it has its own headers, as old encrypted keys do
        plain = "".join(body.split())
        body = "\n" + "".join(f"{plain[at : at + 64]}\n" for at in range(0, len(plain), 64))
    return f"-----BEGIN {kind}-----{body}-----END {kind}-----\n"


def read(path: str, where: str) -> str:
    """The text of a file.

    Raises:
        TlsError: it can't be read.
    """
    try:
        with open(path, encoding="latin-1") as file:
            return file.read()
    except OSError as error:
        raise TlsError(f"{where} can't be read: {error.strerror or error}") from error


def load_trusted(context: ssl.SSLContext, text: str, where: str) -> None:
    """Trust the certificates in a text.

    Args:
        where: the config it comes from, for messages.
    Raises:
        TlsError: there is none, or one can't be read.
    """
    certificates = "".join(pem for kind, pem in blocks(text) if kind.endswith("CERTIFICATE"))
    if not certificates:
        instead = _instead(text, "ssl_truststore_type", "keytool -list -rfc -keystore STORE > truststore.pem")
        raise TlsError(f"{where} holds no certificate in PEM form (-----BEGIN CERTIFICATE-----){instead}")
    try:
        context.load_verify_locations(cadata=certificates)
    except (ssl.SSLError, ValueError, TypeError) as error:  # TypeError: not ASCII
        raise TlsError(f"{where} holds a certificate that can't be read: {_reason(error)}") from error


def load_own(context: ssl.SSLContext, text: str, password: str | None, where: str) -> None:
    """Use the private key and certificate chain in a text as the client's own.

    Raises:
        TlsError: one of them is missing or unreadable, they do not match, or the password is wrong.
    """
    found = blocks(text)
    kinds = [kind for kind, _ in found]
    for wanted in ("PRIVATE KEY", "CERTIFICATE"):
        if not any(kind.endswith(wanted) for kind in kinds):
            command = "keytool -importkeystore -srckeystore STORE -destkeystore keystore.p12 -deststoretype PKCS12"
            instead = _instead(text, "ssl_keystore_type", command)
            raise TlsError(f"{where} holds no {wanted.lower()} in PEM form (-----BEGIN {wanted}-----){instead}")
    encrypted = any("ENCRYPTED" in pem[:200] for kind, pem in found if kind.endswith("PRIVATE KEY"))
    if encrypted and not password:
        raise TlsError(f"the private key in {where} is encrypted: set ssl_key_password")
    try:
        with _as_file("".join(pem for _, pem in found)) as path:
            # Without a password OpenSSL would prompt for one on the terminal.
            context.load_cert_chain(path, password=password or "")
    except (ssl.SSLError, ValueError) as error:
        raise TlsError(f"{where} can't be used: {_key_reason(error, encrypted)}") from None


def _instead(text: str, config: str, command: str) -> str:
    """What to do about a store of another type, recognised by its first bytes."""
    if text.startswith("\xfe\xed\xfe\xed"):
        return f", but is a JKS store, which only the JVM can read: {command}"
    return f", but may be a PKCS12 store: set {config}=PKCS12" if text.startswith("0\x82") else ""


def _key_reason(error: Exception, encrypted: bool) -> str:
    reason = _reason(error)
    if "KEY_VALUES_MISMATCH" in reason:
        return "its first certificate is not that of its private key"
    if encrypted:
        return "ssl_key_password does not open its private key, or the key is damaged"
    return reason


def _reason(error: Exception) -> str:
    return (isinstance(error, ssl.SSLError) and error.reason) or "it is damaged"


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """A path at which OpenSSL finds a text: an in-memory file if the system has them, else one for its owner alone."""
    data = text.encode()
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        descriptor = os.memfd_create("pem")
        try:
            _write(descriptor, data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    descriptor, path = tempfile.mkstemp(suffix=".pem")
    try:
        _write(descriptor, data)
        yield path
    finally:
        os.close(descriptor)
        os.unlink(path)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
