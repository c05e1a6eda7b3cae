"""Contexts from PEM: what is read, when it is read again, and the errors for files that can't be used."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import socket
import ssl
import struct
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.x509 import Name, NameAttribute, load_pem_x509_certificate

from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import TlsError
from aioproducer.net import opening, pem
from aioproducer.net.connection import Connection
from aioproducer.net.opening import open_connection
from aioproducer.net.route import Streams, open_stream
from aioproducer.net.tls import Tls, make_context, proved_name
from aioproducer.net.tls_errors import alert_error, handshake_error, is_tls
from aioproducer.protocol.api_versions import ApiVersionsResponse
from aioproducer.testing import Certificate, CertificateAuthority
from tests.unit.net.fake_broker import framed
from tests.unit.shown import shown_by_tools


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority()


@pytest.fixture(scope="module")
def certificate(authority: CertificateAuthority) -> Certificate:
    return authority.issue("127.0.0.1")


def config(**values: Any) -> ProducerConfig:
    return ProducerConfig.parse({"bootstrap_servers": "a:1", "security_protocol": "SSL", **values})


def refusal(**values: Any) -> str:
    with pytest.raises(TlsError) as caught:
        make_context(config(**values))
    shown = "".join(shown_by_tools(caught.value))
    assert "PRIVATE KEY" not in shown
    assert "wr0ng" not in shown
    return str(caught.value)


def server_context(authority: CertificateAuthority, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pem.load_own(context, authority.issue(name).pem, None, "it")
    return context


async def handshake(config: ProducerConfig, theirs: ssl.SSLContext, host: str) -> None:
    """Connect to a broker that is said to be ``host``."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=theirs)
    tls = Tls(config, asyncio.get_running_loop())
    async with server:
        context = await tls.context()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
        try:
            await tls.start(context, reader, writer, host)
        finally:
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)


async def dial(
    port: int, settings: ProducerConfig, tls: Tls, on_internal_error: Callable[[BaseException], None] = lambda _: None
) -> Connection:
    """Open a connection of the producer to a server of the test."""
    loop = asyncio.get_running_loop()
    return await open_connection(
        "127.0.0.1", port, node_id=1, config=settings, loop=loop, on_internal_error=on_internal_error, tls=tls
    )


def test_everything_is_checked_by_default(authority: CertificateAuthority) -> None:
    context = make_context(config(ssl_truststore_certificates=authority.pem))
    assert context.check_hostname
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    assert len(context.get_ca_certs()) == 1


def test_an_empty_algorithm_turns_off_the_host_name_alone(authority: CertificateAuthority) -> None:
    context = make_context(config(ssl_truststore_certificates=authority.pem, ssl_endpoint_identification_algorithm=""))
    assert not context.check_hostname
    assert context.verify_mode == ssl.CERT_REQUIRED


async def test_the_system_is_trusted_where_nobody_else_is_named(
    authority: CertificateAuthority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "system.pem").write_text(authority.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "system.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    await handshake(config(), server_context(authority, "kafka.test"), "kafka.test")
    other = CertificateAuthority()
    with pytest.raises(TlsError, match="is not trusted"):
        await handshake(config(), server_context(other, "kafka.test"), "kafka.test")
    named = config(ssl_truststore_certificates=other.pem)
    with pytest.raises(TlsError, match="is not trusted"):
        await handshake(named, server_context(authority, "kafka.test"), "kafka.test")


async def test_a_certificate_that_is_named_itself_is_trusted(authority: CertificateAuthority) -> None:
    """Without the one that signed it, as in Java."""
    certificate = authority.issue("kafka.test")
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pem.load_own(theirs, certificate.pem, None, "it")
    _, leaf = pem.blocks(certificate.chain)[0]
    await handshake(config(ssl_truststore_certificates=leaf), theirs, "kafka.test")


@pytest.mark.parametrize("joint", ["\n", " ", "\r\n", "\n   "])
def test_pem_in_one_line(authority: CertificateAuthority, certificate: Certificate, joint: str) -> None:
    """As in config files."""
    make_context(
        config(
            ssl_truststore_certificates=joint.join(authority.pem.splitlines()),
            ssl_keystore_key=joint.join(certificate.key.splitlines()),
            ssl_keystore_certificate_chain=joint.join(certificate.chain.splitlines()),
        )
    )


def test_an_encrypted_key(certificate: Certificate, authority: CertificateAuthority) -> None:
    own = {
        "ssl_truststore_certificates": authority.pem,
        "ssl_keystore_key": certificate.encrypted_key("s3cret"),
        "ssl_keystore_certificate_chain": certificate.chain,
    }
    make_context(config(**own, ssl_key_password="s3cret"))
    assert refusal(**own).endswith("is encrypted: set ssl_key_password")
    wrong = refusal(**own, ssl_key_password="wr0ng")
    assert "ssl_key_password does not open its private key" in wrong
    assert "wr0ng" not in wrong


def test_a_key_that_is_encrypted_as_openssl_once_did(certificate: Certificate, authority: CertificateAuthority) -> None:
    """Its headers need the lines that they have."""
    key = serialization.load_pem_private_key(certificate.key.encode(), None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.BestAvailableEncryption(b"s3cret"),
    )
    own = {"ssl_keystore_key": encrypted.decode(), "ssl_keystore_certificate_chain": certificate.chain}
    make_context(config(**own, ssl_key_password="s3cret"))
    assert refusal(**own).endswith("is encrypted: set ssl_key_password")


@pytest.mark.parametrize("in_memory", [True, False])
def test_nothing_is_left_of_a_key_that_was_loaded(
    certificate: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: bool
) -> None:
    """Neither a file nor a descriptor, also where the system has no files in memory."""
    if not in_memory:
        monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    descriptors = os.listdir("/proc/self/fd")
    own = {"ssl_keystore_key": certificate.key, "ssl_keystore_certificate_chain": certificate.chain}
    make_context(config(**own))
    assert refusal(**{**own, "ssl_keystore_key": CertificateAuthority().issue("other.test").key})
    assert list(tmp_path.iterdir()) == []
    assert os.listdir("/proc/self/fd") == descriptors


def test_a_damaged_key_has_nothing_to_do_with_a_password(certificate: Certificate) -> None:
    damaged = certificate.key.replace("\nMIG", "\nAAA", 1)
    text = refusal(ssl_keystore_key=damaged, ssl_keystore_certificate_chain=certificate.chain)
    assert text.startswith("ssl_keystore_key with ssl_keystore_certificate_chain can't be used: ")
    assert "password" not in text
    assert not text.endswith("None")


def test_a_key_of_another_certificate(certificate: Certificate, authority: CertificateAuthority) -> None:
    other = authority.issue("127.0.0.1")
    text = refusal(ssl_keystore_key=other.key, ssl_keystore_certificate_chain=certificate.chain)
    assert "its first certificate is not that of its private key" in text


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"ssl_truststore_certificates": "nothing"}, "ssl_truststore_certificates holds no certificate in PEM form"),
        (
            {"ssl_truststore_certificates": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"},
            "ssl_truststore_certificates holds a certificate that can't be read",
        ),
        (
            {"ssl_truststore_location": "/nowhere/ca.pem"},
            "ssl_truststore_location=/nowhere/ca.pem can't be read: No such",
        ),
        ({"ssl_keystore_location": "/nowhere/me.pem"}, "ssl_keystore_location=/nowhere/me.pem can't be read: No such"),
        (
            {"ssl_truststore_certificates": "-----BEGIN CERTIFICATE-----\nM\u00e4\n-----END CERTIFICATE-----"},
            "ssl_truststore_certificates holds a certificate that can't be read",
        ),
        ({"ssl_keystore_key": "k", "ssl_keystore_certificate_chain": "c"}, "holds no private key in PEM form"),
        (
            {"ssl_cipher_suites": "TLS_MAGIC_WITH_LUCK"},
            "ssl_cipher_suites=TLS_MAGIC_WITH_LUCK: this OpenSSL knows none",
        ),
        ({"ssl_cipher_suites": "A\0B"}, "ssl_cipher_suites=A\0B: this OpenSSL knows none"),
    ],
)
def test_what_can_not_be_used_is_named(values: dict[str, str], expected: str) -> None:
    assert expected in refusal(**values)


def test_a_trust_store_with_keys_alone_trusts_nobody(certificate: Certificate) -> None:
    text = refusal(ssl_truststore_certificates=certificate.key)
    assert text.endswith("holds no certificate in PEM form (-----BEGIN CERTIFICATE-----)")


def test_a_store_of_another_type_is_known(tmp_path: Path) -> None:
    """Even if its type is not given."""
    store = tmp_path / "store"
    store.write_bytes(b"\xfe\xed\xfe\xed\x00\x00")
    assert "keytool -list -rfc" in refusal(ssl_truststore_location=str(store))
    assert "keytool -importkeystore" in refusal(ssl_keystore_location=str(store))
    store.write_bytes(b"\x30\x82\x0a\x01")
    assert "set ssl_truststore_type=PKCS12" in refusal(ssl_truststore_location=str(store))
    assert "set ssl_keystore_type=PKCS12" in refusal(ssl_keystore_location=str(store))


@pytest.mark.parametrize("seed", range(20))
def test_mutated_pem_is_used_or_refused(authority: CertificateAuthority, certificate: Certificate, seed: int) -> None:
    """Other errors than TlsError never occur, and no password is asked for on the terminal."""
    import random

    rng = random.Random(seed)
    for _ in range(10):
        text = list(certificate.pem)
        for _ in range(rng.randint(1, 5)):
            text[rng.randrange(len(text))] = chr(rng.randrange(1, 0x17F))
        with contextlib.suppress(TlsError):
            pem.load_own(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), "".join(text), None, "it")
        with contextlib.suppress(TlsError):
            pem.load_trusted(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), "".join(text), "it")


@pytest.mark.parametrize(
    ("suites", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_RSA_WITH_AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
    ],
)
def test_ciphers_by_java_s_names(suites: str, openssl: str) -> None:
    context = make_context(config(ssl_cipher_suites=suites))
    assert context.maximum_version == ssl.TLSVersion.TLSv1_2  # no cipher was named for 1.3
    assert [each["name"] for each in context.get_ciphers() if each["protocol"] != "TLSv1.3"] == [openssl]


def test_suites_of_1_3_alone_leave_1_3_alone() -> None:
    context = make_context(config(ssl_cipher_suites="TLS_AES_256_GCM_SHA384"))
    assert context.minimum_version == ssl.TLSVersion.TLSv1_3


async def test_a_suite_of_1_3_that_is_not_named_is_refused(authority: CertificateAuthority) -> None:
    """The handshake can't be told which of them to offer."""
    named = {"ssl_truststore_certificates": authority.pem, "ssl_cipher_suites": "TLS_AES_128_CCM_8_SHA256"}
    with pytest.raises(TlsError, match=r"^kafka\.test:\d+ chose TLS_\w+, which ssl_cipher_suites does not name$"):
        await handshake(config(**named), server_context(authority, "kafka.test"), "kafka.test")


@pytest.mark.parametrize(
    ("newest", "suites"),
    [
        (ssl.TLSVersion.TLSv1_3, "TLS_AES_256_GCM_SHA384"),
        (ssl.TLSVersion.TLSv1_2, "TLS_AES_128_CCM_8_SHA256,TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    ],
)
async def test_a_suite_that_is_named_is_accepted(
    authority: CertificateAuthority, newest: ssl.TLSVersion, suites: str
) -> None:
    """By whichever of its names."""
    theirs = server_context(authority, "kafka.test")
    theirs.maximum_version = newest
    theirs.set_ciphers("ECDHE+AESGCM")
    await handshake(config(ssl_truststore_certificates=authority.pem, ssl_cipher_suites=suites), theirs, "kafka.test")


def hash_of(certificate: str) -> str:
    """What ``openssl x509 -hash`` prints: from the subject's names in lower case, without their outer frame."""
    subject = load_pem_x509_certificate(certificate.encode()).subject
    names = Name(NameAttribute(each.oid, " ".join(str(each.value).lower().split())) for each in subject)
    content = names.public_bytes()[2:]
    return f"{int.from_bytes(hashlib.sha1(content).digest()[:4], 'little'):08x}"


async def test_a_directory_of_trusted_certificates(authority: CertificateAuthority, tmp_path: Path) -> None:
    """OpenSSL finds those in files named by their hash; there is an error if there is no such file."""
    settings = config(ssl_truststore_location=str(tmp_path))
    (tmp_path / "ca.pem").write_text(authority.pem)
    assert refusal(ssl_truststore_location=str(tmp_path)) == (
        f"ssl_truststore_location={tmp_path} is a directory without files named by their certificates' hash: "
        f"openssl rehash {tmp_path}"
    )
    (tmp_path / f"{hash_of(authority.pem)}.0").write_text(authority.pem)
    await handshake(settings, server_context(authority, "kafka.test"), "kafka.test")
    other = CertificateAuthority()
    with pytest.raises(TlsError, match="is not trusted"):
        await handshake(settings, server_context(other, "kafka.test"), "kafka.test")
    (tmp_path / f"{hash_of(other.pem)}.0").write_text(other.pem)
    await handshake(settings, server_context(other, "kafka.test"), "kafka.test")


# --- files that change ------------------------------------------------------------------------------------------------


async def test_a_context_is_made_again_when_a_file_has_changed(
    tmp_path: Path, authority: CertificateAuthority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aioproducer.tls")
    trust, keys = tmp_path / "trust.pem", tmp_path / "keys.pem"
    trust.write_text(authority.pem)
    keys.write_text(authority.issue("a.test").pem)
    tls = Tls(config(ssl_truststore_location=str(trust), ssl_keystore_location=str(keys)), asyncio.get_running_loop())
    first = await tls.context()
    assert await tls.context() is first
    keys.write_text(authority.issue("b.test").pem)
    second = await tls.context()
    assert second is not first
    assert await tls.context() is second
    assert caplog.text.count("new connections use their new contents") == 1
    keys.write_text("half a fi")
    assert await tls.context() is second
    assert "can't be used; still using the last: ssl_keystore_location=" in caplog.text
    keys.unlink()
    assert await tls.context() is second
    keys.write_text(authority.issue("c.test").pem)
    assert await tls.context() is not second


async def test_a_context_is_made_again_when_a_file_of_a_directory_has_changed(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    """Also one that is written in place, which the directory does not show."""
    tls = Tls(config(ssl_truststore_location=str(tmp_path)), asyncio.get_running_loop())
    file = tmp_path / f"{hash_of(authority.pem)}.0"
    file.write_text(authority.pem)
    first = await tls.context()
    assert await tls.context() is first
    file.write_text(authority.pem + "\n")
    assert await tls.context() is not first


async def test_a_file_that_can_be_read_later_is_used_then(
    tmp_path: Path,
    authority: CertificateAuthority,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was unreadable at first, by its permissions or for lack of descriptors: the file itself does not change."""
    path = tmp_path / "trust.pem"
    path.write_text(authority.pem)
    tls = Tls(config(ssl_truststore_location=str(path)), asyncio.get_running_loop())
    first = await tls.context()
    path.write_text(CertificateAuthority().pem + "\n")
    with monkeypatch.context() as patch:
        patch.setattr(pem, "read", unreadable)
        for _ in range(2):
            assert await tls.context() is first
    assert caplog.text.count("can't be used; still using the last") == 1
    assert await tls.context() is not first


def unreadable(_: str, where: str) -> str:
    raise TlsError(f"{where} can't be read: Permission denied")


async def test_a_file_that_was_never_good_is_an_error_each_time(tmp_path: Path) -> None:
    tls = Tls(config(ssl_truststore_location=str(tmp_path / "trust.pem")), asyncio.get_running_loop())
    for _ in range(2):
        with pytest.raises(TlsError, match="can't be read"):
            await tls.context()


async def test_a_ready_context_is_used_as_it_is() -> None:
    context = ssl.create_default_context()
    assert await Tls(config(ssl_context=context), asyncio.get_running_loop()).context() is context


# --- names ------------------------------------------------------------------------------------------------------------


async def test_the_dot_at_the_end_of_a_full_name_is_no_part_of_what_the_broker_proves(
    authority: CertificateAuthority,
) -> None:
    """It makes a resolver skip its search list (``kafka.ns.svc.cluster.local.``); certificates never have it."""
    theirs = server_context(authority, "kafka.test")
    named: list[str | None] = []
    theirs.sni_callback = lambda _, name, __: named.append(name)
    await handshake(config(ssl_truststore_certificates=authority.pem), theirs, "kafka.test.")
    assert named == ["kafka.test"]


@pytest.mark.parametrize(
    ("host", "proved"), [("kafka.test.", "kafka.test"), ("fe80::1%eth0", "fe80::1"), ("10.0.0.1", "10.0.0.1")]
)
def test_what_a_certificate_has_of_a_host(host: str, proved: str) -> None:
    assert proved_name(host) == proved


# --- a broker that refuses the client ---------------------------------------------------------------------------------


async def test_a_broker_that_refuses_the_client_is_asked_once(authority: CertificateAuthority) -> None:
    """With TLS 1.3 the refusal is the answer to the first request; an older ApiVersions would not change it."""
    theirs = server_context(authority, "127.0.0.1")
    theirs.load_verify_locations(cadata=authority.pem)
    theirs.verify_mode = ssl.CERT_REQUIRED
    loop = asyncio.get_running_loop()
    settings = config(ssl_truststore_certificates=authority.pem)
    attempts = 0

    def serve(listening: socket.socket) -> None:  # not by asyncio, whose servers end without an alert
        nonlocal attempts
        while True:
            connection, _ = listening.accept()
            with connection:
                if not connection.recv(1, socket.MSG_PEEK):
                    return
                attempts += 1
                with suppress(ssl.SSLError):
                    theirs.wrap_socket(connection.dup(), server_side=True)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(4096):  # else the alert would be lost with the connection
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(10)
        port = listening.getsockname()[1]
        serving = asyncio.create_task(asyncio.to_thread(serve, listening))
        with pytest.raises(TlsError, match="it asks clients for a certificate"):
            await dial(port, settings, Tls(settings, loop))
        socket.create_connection(("127.0.0.1", port)).close()
        await serving
    assert attempts == 1


# --- bytes before the handshake ---------------------------------------------------------------------------------------

FORGED = framed(struct.pack(">i", 1) + ApiVersionsResponse(api_keys=[], finalized_features_epoch=2**63 - 1).encode(4))
"""What the first request will get as its answer, if it is read after the handshake; the features would be believed for
good, as none are newer."""


@asynccontextmanager
async def forger(authority: CertificateAuthority, begin: bytes) -> AsyncIterator[int]:
    """The port of a broker with a good certificate, and of somebody on the way who writes first."""
    theirs = server_context(authority, "127.0.0.1")
    tasks = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.current_task())
        try:
            if begin:
                await reader.readuntil(b"\r\n\r\n")
            writer.write(begin + FORGED)
            await writer.start_tls(theirs)
            await reader.read()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await asyncio.gather(*(task for task in tasks if task is not None))


@pytest.mark.parametrize("way", ["direct", "proxy"])
async def test_what_comes_before_the_handshake_did_not_come_over_tls(
    authority: CertificateAuthority, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody on the way can send it, and the genuine broker's handshake would seem to vouch for it."""

    async def received(*args: Any, **options: Any) -> Streams:
        streams = await open_stream(*args, **options)
        async with asyncio.timeout(5):
            while not streams[0]._buffer:  # type: ignore[attr-defined]
                await asyncio.sleep(0)
        return streams

    monkeypatch.setattr(opening, "open_stream", received)
    loop = asyncio.get_running_loop()
    internal: list[BaseException] = []
    async with forger(authority, b"HTTP/1.1 200 OK\r\n\r\n" if way == "proxy" else b"") as port:
        proxy = {"proxy_url": f"http://127.0.0.1:{port}"} if way == "proxy" else {}
        settings = config(ssl_truststore_certificates=authority.pem, **proxy)
        with pytest.raises(TlsError, match=rf"127\.0\.0\.1:{port}: bytes came before the TLS handshake"):
            await dial(port, settings, Tls(settings, loop), internal.append)
    assert internal == []


async def test_what_the_handshake_needs_is_there_before_the_connection(
    authority: CertificateAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are read in a worker thread; meanwhile anybody could send something."""
    steps: list[str] = []
    settings, loop = config(ssl_truststore_certificates=authority.pem), asyncio.get_running_loop()
    tls = Tls(settings, loop)
    load = tls.context

    async def context() -> ssl.SSLContext:
        steps.append("context")
        return await load()

    async def no_stream(*_: Any, **__: Any) -> Streams:
        steps.append("connection")
        raise ConnectionRefusedError

    monkeypatch.setattr(tls, "context", context)
    monkeypatch.setattr(opening, "open_stream", no_stream)
    with pytest.raises(ConnectionRefusedError):
        await dial(1, settings, tls)
    assert steps == ["context", "connection"]


# --- messages ---------------------------------------------------------------------------------------------------------


def with_reason(reason: str | None) -> ssl.SSLError:
    error = ssl.SSLError(1, "the handshake failed")
    error.reason = reason  # type: ignore[assignment]
    return error


@pytest.mark.parametrize(
    "error",
    [
        ssl.SSLEOFError(8, "EOF"),
        ssl.SSLZeroReturnError(6, "closed"),
        ssl.SSLSyscallError(5, "x"),
        with_reason("UNEXPECTED_EOF_WHILE_READING"),
    ],
)
def test_a_connection_that_just_ends_is_no_refusal(error: ssl.SSLError) -> None:
    """A broker that restarts also breaks handshakes."""
    assert handshake_error(error, "h:1", "h", config()) is None


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x10" + bytes(16)])
def test_who_does_not_speak_tls_is_told(answer: bytes) -> None:
    there = ssl.MemoryBIO()
    there.write(answer)
    client = ssl.create_default_context().wrap_bio(there, ssl.MemoryBIO(), server_hostname="kafka.test")
    with pytest.raises(ssl.SSLError) as caught:
        client.do_handshake()
    assert str(handshake_error(caught.value, "h:1", "h", config())).startswith("h:1: it does not speak TLS: set")


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("NO_CIPHERS_AVAILABLE", "no cipher is left: look at ssl_cipher_suites and ssl_enabled_protocols"),
        ("DH_KEY_TOO_SMALL", "its keys are too weak for this system's OpenSSL: renew the broker's"),
        ("SOMETHING_NEW", "the TLS handshake failed (SOMETHING_NEW)"),
        (None, "the TLS handshake failed (no reason given)"),
    ],
)
def test_a_failure_of_this_side_has_its_reason(reason: str | None, told: str) -> None:
    error = with_reason(reason)
    assert str(handshake_error(error, "h:1", "h", config())) == f"h:1: {told}"
    assert alert_error(error, "h:1") is None


async def test_a_ready_context_that_trusts_nobody_is_named(authority: CertificateAuthority) -> None:
    """The configs for a trust store would have no effect."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with pytest.raises(TlsError, match=r"the broker's certificate is not accepted by ssl_context \(unable to get"):
        await handshake(config(ssl_context=context), server_context(authority, "kafka.test"), "kafka.test")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (9, "is not valid yet (why): look at the clocks of both sides"),
        (10, "or one that signed it, has expired (why): renew it at the broker"),
        (20, "is not trusted (why): name the authority that signed it in ssl_truststore_location"),
        (62, "is not for h (why): use a host name that it has in bootstrap_servers"),
        (64, "is not for h (why): use a host name that it has in bootstrap_servers"),
    ],
)
def test_a_certificate_that_is_refused_is_explained(code: int, told: str) -> None:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, "why"
    assert told in str(handshake_error(error, "h:1", "h", config()))


async def test_a_handshake_that_breaks_is_no_tls_error(
    authority: CertificateAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else ``start()`` would give up for a broker that restarts."""

    async def broken(*_: Any, **__: Any) -> None:
        raise ssl.SSLEOFError(8, "EOF occurred in violation of protocol")

    monkeypatch.setattr(asyncio.StreamWriter, "start_tls", broken)
    with pytest.raises(ssl.SSLEOFError):
        await handshake(config(), server_context(authority, "kafka.test"), "kafka.test")


def alerted(theirs: ssl.SSLContext, alert: int) -> ssl.SSLError:
    """What OpenSSL raises when the peer ends the handshake with an alert."""
    theirs.sni_callback = lambda *_: alert
    there, here = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(here, there, server_hostname="kafka.test")
    server = theirs.wrap_bio(there, here, server_side=True)
    for side in (client, server):
        with pytest.raises(ssl.SSLError):
            side.do_handshake()
    with pytest.raises(ssl.SSLError) as caught:
        client.do_handshake()
    return caught.value


@pytest.mark.parametrize(
    ("alert", "told"),
    [
        (ssl.ALERT_DESCRIPTION_UNEXPECTED_MESSAGE, "UNEXPECTED_MESSAGE)"),
        (ssl.ALERT_DESCRIPTION_HANDSHAKE_FAILURE, "HANDSHAKE_FAILURE): the two sides have no cipher in common"),
        (ssl.ALERT_DESCRIPTION_BAD_CERTIFICATE, "BAD_CERTIFICATE): it does not accept this client's certificate"),
        (ssl.ALERT_DESCRIPTION_UNSUPPORTED_CERTIFICATE, "UNSUPPORTED_CERTIFICATE): it can't use this kind of client"),
        (ssl.ALERT_DESCRIPTION_CERTIFICATE_REVOKED, "CERTIFICATE_REVOKED): this client's certificate was revoked"),
        (ssl.ALERT_DESCRIPTION_CERTIFICATE_EXPIRED, "CERTIFICATE_EXPIRED): this client's certificate has expired"),
        (ssl.ALERT_DESCRIPTION_CERTIFICATE_UNKNOWN, "CERTIFICATE_UNKNOWN): it does not accept this client's"),
        (ssl.ALERT_DESCRIPTION_UNKNOWN_CA, "UNKNOWN_CA): it does not trust who signed this client's certificate"),
        (ssl.ALERT_DESCRIPTION_ACCESS_DENIED, "ACCESS_DENIED): it does not accept this client's certificate"),
        (
            ssl.ALERT_DESCRIPTION_DECRYPT_ERROR,
            "DECRYPT_ERROR): it found this client's certificate or signature invalid",
        ),
        (ssl.ALERT_DESCRIPTION_PROTOCOL_VERSION, "PROTOCOL_VERSION): the two sides have no version of TLS in common"),
        (ssl.ALERT_DESCRIPTION_INSUFFICIENT_SECURITY, "INSUFFICIENT_SECURITY): it wants stronger ciphers"),
        (ssl.ALERT_DESCRIPTION_INTERNAL_ERROR, "INTERNAL_ERROR): it had an internal error"),
        (ssl.ALERT_DESCRIPTION_UNSUPPORTED_EXTENSION, "UNSUPPORTED_EXTENSION)"),
        (ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME, "UNRECOGNIZED_NAME): it does not recognize this host name"),
        (116, "CERTIFICATE_REQUIRED): it asks clients for a certificate"),  # has no name in the module
    ],
)
def test_the_alert_of_a_broker_is_explained(authority: CertificateAuthority, alert: int, told: str) -> None:
    error = alerted(server_context(authority, "kafka.test"), alert)
    expected = f"h:1: the broker ended the TLS handshake ({told}"
    assert str(alert_error(error, "h:1")).startswith(expected)
    assert str(handshake_error(error, "h:1", "h", config())).startswith(expected)


@pytest.mark.parametrize(
    ("head", "expected"), [(b"\x15\x03\x03\x00", True), (b"\x16\x03\x01\x02", True), (b"\0\0\0\x20", False)]
)
def test_tls_is_known_by_its_first_bytes(head: bytes, expected: bool) -> None:
    assert is_tls(head) == expected
