"""TLS: the SSLContext that the configs describe, kept fresh, and the handshake of one connection.

Files are read in a worker thread. Each new connection checks whether they have changed, so certificates can be renewed
while a producer runs; existing connections keep the ones they were made with. If a changed file can't be used (perhaps
it is still being written), the last good context stays in place, a line is logged, and the file is tried again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import ssl
from contextlib import suppress

from aioproducer.bare_errors import raises_bare
from aioproducer.client_logger import ClientLogger
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.config.tls import allowed_suites, cipher_string, is_pkcs12, version_limits
from aioproducer.errors import TlsError
from aioproducer.message_text import host_port
from aioproducer.net import pem, pkcs12
from aioproducer.net.tls_errors import TOO_EARLY, handshake_error
from aioproducer.net.workers import SharedCall

logger: logging.Logger = logging.getLogger("aioproducer.tls")

_HASHED = re.compile(r"[0-9a-f]{8}\.\d+")
"""Names of files in a directory of trusted certificates, as ``openssl rehash`` makes them."""

Stamp = tuple[int, int, int] | None
"""Modification time, inode and size of a file; None if it is missing."""


class Tls:
    """TLS for all connections of a producer.

    Args:
        config: that of a producer whose ``security_protocol`` is SSL or SASL_SSL.
    """

    def __init__(self, config: ProducerConfig, loop: asyncio.AbstractEventLoop) -> None:
        self._logger = ClientLogger(logger, config.client_id)
        self._config = config
        self._reading = SharedCall(loop, self._current)
        self._context: ssl.SSLContext | None = None
        self._stamps: tuple[Stamp, ...] = ()
        self._refused: tuple[Stamp, ...] = ()
        self._suites = allowed_suites(config.ssl_cipher_suites)

    async def context(self) -> ssl.SSLContext:
        """The context for a new connection.

        Raises:
            TlsError: a file or a PEM text can't be used, and never could.
            KafkaError: there is no thread to read them in.
        """
        if self._config.ssl_context is not None:
            return self._config.ssl_context
        return await self._reading.result()

    async def start(
        self, context: ssl.SSLContext, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str
    ) -> None:
        """Turn a new connection into a TLS connection.

        Args:
            context: from ``context``, awaited before the connection was made.
            host: the name that the broker's certificate has to match.
        Raises:
            TlsError: client and broker do not accept each other, or bytes have come before the handshake.
            OSError: the connection broke.
        """
        port = writer.get_extra_info("peername", ("", 0))[1]
        where = host_port(host, port)
        # They would stay in the stream's buffer and be read as the first that came over TLS, though anybody on the way
        # can have sent them. From here to the point where TLS gets what comes in, the loop has no turn.
        if _has_unread(reader):
            raise TlsError(f"{where}: {TOO_EARLY}")
        try:
            await writer.start_tls(context, server_hostname=proved_name(host))
        except ssl.SSLError as error:
            explained = handshake_error(error, where, host, self._config)
            if explained is None:
                raise
            raise explained from error
        self._check_suite(writer, where)

    def _check_suite(self, writer: asyncio.StreamWriter, where: str) -> None:
        """Check the negotiated suite, as the ssl module can't limit the suites of TLS 1.3."""
        cipher = writer.get_extra_info("cipher")
        if self._suites and cipher and cipher[1] == "TLSv1.3" and cipher[0] not in self._suites:
            raise TlsError(f"{where} chose {cipher[0]}, which ssl_cipher_suites does not name")

    # --- in a worker thread -------------------------------------------------------------------------------------------

    def _current(self) -> ssl.SSLContext:
        """The context, loaded again if files changed. Never runs twice at the same time."""
        stamps = tuple(_stamp(path) for path in self._files())
        if self._context is None:
            self._context = make_context(self._config)
            self._stamps = stamps
        elif stamps != self._stamps:
            try:
                self._context = make_context(self._config)
                self._stamps = stamps
                self._logger.info("the certificate files have changed; new connections use their new contents")
            except TlsError as error:
                self._complain(stamps, error)
        return self._context

    def _complain(self, stamps: tuple[Stamp, ...], error: TlsError) -> None:
        """Log once for the same files: each connection retries them, as a stamp does not show who may read a file."""
        if stamps != self._refused:
            self._refused = stamps
            self._logger.warning(
                "the certificate files have changed but can't be used; still using the last: %s", str(error)
            )

    def _files(self) -> list[str]:
        trust, own = self._config.ssl_truststore_location, self._config.ssl_keystore_location
        files = [path for path in (trust, own) if path]
        if trust and os.path.isdir(trust):
            with suppress(TlsError):  # loading it says so
                files += _trusted_files(trust, "")
        return files


def _has_unread(reader: asyncio.StreamReader) -> bool:
    """Whether bytes have come in that nobody has read; only a read can tell, so this begins one that must not wait."""
    reading = reader.read(1)
    try:
        reading.send(None)
    except StopIteration as read:
        return bool(read.value)
    reading.close()
    return False


def proved_name(host: str) -> str:
    """A host as in certificates: without an address's scope ("fe80::1%eth0") or a name's trailing dot."""
    return host.partition("%")[0].removesuffix(".")


def new_context() -> ssl.SSLContext:
    """A context that checks everything and trusts nobody yet."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # As in Java: every certificate in the trust store is trusted, even if it is signed by another one.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def make_context(config: ProducerConfig) -> ssl.SSLContext:
    """The context that the configs describe. Blocking.

    Raises:
        TlsError: a file or a PEM text can't be used.
    """
    context = new_context()
    if not config.ssl_endpoint_identification_algorithm:
        context.check_hostname = False
    context.minimum_version, context.maximum_version = version_limits(
        config.ssl_enabled_protocols, config.ssl_protocol, config.ssl_cipher_suites
    )
    ciphers = cipher_string(config.ssl_cipher_suites)
    if ciphers:
        try:
            context.set_ciphers(ciphers)
        except (ssl.SSLError, ValueError) as error:  # ValueError: a NUL
            names = ", ".join(config.ssl_cipher_suites)
            raise TlsError(f"ssl_cipher_suites={names}: this OpenSSL knows none of them for TLS 1.2") from error
    if not load_trust_store(context, config):
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    _load_own(context, config)
    return context


@raises_bare(TlsError)
def load_trust_store(context: ssl.SSLContext, config: ProducerConfig) -> bool:
    """Trust the certificates that the configs name; False if they name none. Blocking.

    Raises:
        TlsError: a file, a directory or a PEM text can't be used.
    """
    path, where = config.ssl_truststore_location, f"ssl_truststore_location={config.ssl_truststore_location}"
    if config.ssl_truststore_certificates is not None:
        pem.load_trusted(context, config.ssl_truststore_certificates, "ssl_truststore_certificates")
    elif not path:
        return False
    elif is_pkcs12(config.ssl_truststore_type):
        pem.load_trusted(context, pkcs12.trusted(path, config.ssl_truststore_password, where), where)
    else:
        pem.load_trusted(context, "\n".join(pem.read(file, where) for file in _trusted_files(path, where)), where)
    return True


def _trusted_files(path: str, where: str) -> list[str]:
    """The file itself, or those in a directory that OpenSSL would look at: a certificate's hash is its file's name.

    They are read at once, while OpenSSL would read each in the first handshake that needs it, on the event loop.

    Raises:
        TlsError: there is none.
    """
    if not os.path.isdir(path):
        return [path]
    try:
        names = [name for name in sorted(os.listdir(path)) if _HASHED.fullmatch(name)]
    except OSError as error:
        raise TlsError(f"{where} can't be read: {error.strerror or error}") from error
    if not names:
        raise TlsError(f"{where} is a directory without files named by their certificates' hash: openssl rehash {path}")
    return [os.path.join(path, name) for name in names]


@raises_bare(TlsError)
def _load_own(context: ssl.SSLContext, config: ProducerConfig) -> None:
    if (own := own_text(config)) is not None:
        pem.load_own(context, *own)


def own_text(config: ProducerConfig) -> tuple[str, str | None, str] | None:
    """Key and certificate chain as PEM text, the key's password, and where they come from; None without. Blocking.

    Raises:
        TlsError: a file can't be used.
    """
    if config.ssl_keystore_key is not None:
        text = f"{config.ssl_keystore_key}\n{config.ssl_keystore_certificate_chain}"
        return text, config.ssl_key_password, "ssl_keystore_key with ssl_keystore_certificate_chain"
    if not config.ssl_keystore_location:
        return None
    path, where = config.ssl_keystore_location, f"ssl_keystore_location={config.ssl_keystore_location}"
    if is_pkcs12(config.ssl_keystore_type):
        return *pkcs12.own(path, config.ssl_keystore_password or config.ssl_key_password, where), where
    return pem.read(path, where), config.ssl_key_password, where


def _stamp(path: str) -> Stamp:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
