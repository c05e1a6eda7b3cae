"""Possible answers of a token endpoint, over a socket, and their results."""

from __future__ import annotations

import asyncio
import gzip
import logging
import random
import re
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
from cryptography.hazmat.primitives.serialization import pkcs12 as writer
from cryptography.x509 import load_pem_x509_certificate

from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import AuthenticationError, ConnectionLostError, TlsError
from aioproducer.net import pem
from aioproducer.net.sasl.oidc import TokenEndpoint, _body
from aioproducer.oauth_token import OAuthToken
from aioproducer.testing import CertificateAuthority
from tests.unit.shown import shown_by_tools

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Endpoint:
    """Gives every request the same answer, and counts them."""

    def __init__(self, answer: bytes | Answer) -> None:
        self._answer = answer
        self.requests: list[bytes] = []
        self.port = 0
        self.tasks: list[asyncio.Task[None] | None] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.append(asyncio.current_task())
        head = await reader.readuntil(b"\r\n\r\n")
        size = re.search(rb"content-length: (\d+)", head.lower())
        assert size is not None
        self.requests.append(head + await reader.readexactly(int(size[1])))
        try:
            if isinstance(self._answer, bytes):
                writer.write(self._answer)
            else:
                await self._answer(writer)
            writer.close()
            await writer.wait_closed()
        except ConnectionError:
            writer.transport.abort()  # the client has disconnected

    async def fetch(self, **configs: Any) -> OAuthToken:
        config = ProducerConfig.parse(
            {
                "bootstrap_servers": "a:1",
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauthbearer_token_endpoint_url": f"http://127.0.0.1:{self.port}/token",
                "sasl_oauthbearer_client_credentials_client_id": "orders",
                "sasl_oauthbearer_client_credentials_client_secret": "s3cret",
                "sasl_login_retry_backoff_max_ms": 0,
                **configs,
            }
        )
        return await TokenEndpoint(config, asyncio.get_running_loop(), random.Random(1)).fetch()


@asynccontextmanager
async def answering(answer: bytes | Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[Endpoint]:
    endpoint = Endpoint(answer)
    server = await asyncio.start_server(endpoint.serve, "127.0.0.1", 0, ssl=tls)
    endpoint.port = server.sockets[0].getsockname()[1]
    try:
        yield endpoint
    finally:
        server.close()
        await asyncio.gather(*filter(None, endpoint.tasks))


def http(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


@pytest.mark.parametrize("status", ["200 OK", "201 Created"])
@pytest.mark.parametrize(
    "body",
    [
        b'{"access_token": "t"}',
        b'{"access_token": " t\\n"}',
        b'{"id_token": "t"}',
        b'{"access_token": null, "id_token": "t"}',
        b'{"access_token": " ", "id_token": "t"}',
    ],
)
async def test_tokens_are_where_kafkas_own_client_finds_them(status: str, body: bytes) -> None:
    async with answering(http(body, status)) as endpoint:
        assert (await endpoint.fetch()).value == "t"


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"access_token": ""}', b'{"access_token": 5}'])
async def test_answers_without_a_token(body: bytes) -> None:
    async with answering(http(body)) as endpoint:
        with pytest.raises(AuthenticationError, match="answered without an access_token"):
            await endpoint.fetch()


@pytest.mark.parametrize("answer", [b"\x1b[31m" + b"x" * 50_000, b"HTTP/1.1 200 OK\r\nno-header " + b"y" * 50_000])
async def test_what_is_no_http_is_told_in_part(answer: bytes) -> None:
    async with answering(answer + b"\r\n\r\n") as endpoint:
        with pytest.raises(ConnectionLostError, match="can't be asked: RemoteProtocolError") as caught:
            await endpoint.fetch()
    assert len(str(caught.value)) < 500
    assert str(caught.value).isprintable()


async def test_a_compressed_answer_is_not_unpacked() -> None:
    """A few hundred KB could expand to many GB, and compression was not requested."""
    body = gzip.compress(b'{"access_token": "t"}')
    async with answering(http(body, "200 OK", "Content-Encoding: gzip")) as endpoint:
        with pytest.raises(AuthenticationError, match="answered without an access_token"):
            await endpoint.fetch()
    assert b"accept-encoding: identity\r\n" in endpoint.requests[0].lower()


class Endless:
    """An endless httpx response."""

    def aiter_raw(self) -> Endless:
        return self

    def __aiter__(self) -> Endless:
        return self

    async def __anext__(self) -> bytes:
        return b" " * 65_536


async def test_an_endless_answer() -> None:
    answer: Any = Endless()
    with pytest.raises(AuthenticationError, match="larger than a megabyte"):
        await _body(answer)


async def test_an_answer_that_comes_byte_by_byte_is_given_up() -> None:
    """Each byte comes in time, and the whole answer does not."""
    complete = False

    async def drip(writer: asyncio.StreamWriter) -> None:
        nonlocal complete
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(200):
            if writer.is_closing():  # the client has given up, and uvloop raises RuntimeError for later writes
                return
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.05)
        complete = True

    async with answering(drip) as endpoint:
        with pytest.raises(ConnectionLostError, match=r"has not answered within 2000 ms \(sasl_login_read_timeout_ms"):
            await endpoint.fetch(sasl_login_connect_timeout_ms=500, sasl_login_read_timeout_ms=1_500)
    assert not complete


async def test_an_endpoint_that_does_not_answer() -> None:
    given_up = asyncio.Event()

    async def silence(_: asyncio.StreamWriter) -> None:
        await given_up.wait()

    async with answering(silence) as endpoint:
        told = r"can't be asked: ReadTimeout after 100 ms \(sasl_login_read_timeout_ms\)"
        with pytest.raises(ConnectionLostError, match=told):
            await endpoint.fetch(sasl_login_read_timeout_ms=100)
        given_up.set()


@pytest.mark.parametrize(
    ("proxy", "expected"),
    [
        ("socks5://alice:s3cret@127.0.0.1:1", "the 'socksio' package is not installed"),
        ("gopher://alice:s3cret@127.0.0.1:1", "it is not a proxy's URL"),
        ("http://127.0.0.1:s3cret", "it is not a proxy's URL"),
    ],
)
async def test_a_proxy_of_the_environment_that_can_not_be_used(
    monkeypatch: pytest.MonkeyPatch, proxy: str, expected: str
) -> None:
    monkeypatch.setitem(sys.modules, "socksio", None)
    monkeypatch.setenv("ALL_PROXY", proxy)
    monkeypatch.setenv("NO_PROXY", "")
    async with answering(b"") as endpoint:
        with pytest.raises(AuthenticationError, match=r"HTTPS_PROXY, ALL_PROXY") as caught:
            await endpoint.fetch()
    assert expected in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert endpoint.requests == []


async def test_a_proxy_of_the_environment_resolves_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async with answering(http(b'{"access_token": "t"}')) as endpoint:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{endpoint.port}")
        monkeypatch.setenv("no_proxy", "")
        token = await endpoint.fetch(sasl_oauthbearer_token_endpoint_url="http://id.invalid/token")
    assert token.value == "t"
    assert endpoint.requests[0].startswith(b"POST http://id.invalid/token HTTP/1.1\r\n")


async def test_a_name_that_there_is_not() -> None:
    with pytest.raises(ConnectionLostError, match=r"the token endpoint http://id\.invalid/token can't be asked: "):
        await Endpoint(b"").fetch(sasl_oauthbearer_token_endpoint_url="http://id.invalid/token")


@pytest.mark.parametrize("backoff_ms", [0, 1])
async def test_without_a_back_off_it_is_asked_once(backoff_ms: int) -> None:
    """As in Java, where a back-off of 0 means no retries."""
    async with answering(http(b"", "503 Service Unavailable")) as endpoint:
        with pytest.raises(ConnectionLostError, match="answered HTTP 503"):
            await endpoint.fetch(sasl_login_retry_backoff_ms=backoff_ms, sasl_login_retry_backoff_max_ms=2_000)
    assert (len(endpoint.requests) == 1) == (backoff_ms == 0)


JAVA_FINAL = (400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415, 501, 505)


@pytest.mark.parametrize("status", [*JAVA_FINAL, 302, 308])
async def test_answers_that_are_final_are_not_asked_for_again(status: int) -> None:
    async with answering(http(b"", f"{status} No")) as endpoint:
        with pytest.raises(AuthenticationError, match=f"answered HTTP {status} for client 'orders': look at"):
            await endpoint.fetch(sasl_login_retry_backoff_ms=1, sasl_login_retry_backoff_max_ms=5_000)
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize("place", ["http://xn--zzzz99/", "http://[::1", "http://a:b:c/"])
async def test_a_redirect_to_where_nothing_can_be(place: str) -> None:
    """httpx looks at it, although redirects are not followed."""
    async with answering(http(b"", "302 Found", f"Location: {place}")) as endpoint:
        with pytest.raises(ConnectionLostError, match=r"can't be asked: (IDNA|RemoteProtocol)Error: Invalid"):
            await endpoint.fetch()


@pytest.mark.parametrize("status", [204, 408, 416, 421, 425, 429, 451, 499, 500, 502, 503, 504, 506, 599])
async def test_other_answers_may_pass(status: int) -> None:
    """As in Java, which treats unknown answers as temporary."""
    answers = [http(b"", f"{status} No"), http(b'{"access_token": "t"}')]

    async def next_one(writer: asyncio.StreamWriter) -> None:
        writer.write(answers.pop(0))

    async with answering(next_one) as endpoint:
        token = await endpoint.fetch(sasl_login_retry_backoff_ms=1, sasl_login_retry_backoff_max_ms=5_000)
    assert token.value == "t"
    assert len(endpoint.requests) == 2


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/to%20k%2Fen?a=b%2Fc+d&e", b"/to%20k%2Fen?a=b%2Fc+d&e"),
        ("/t k?\u00e4=\u00fc", b"/t%20k?%C3%A4=%C3%BC"),
        ("?tenant=a", b"/?tenant=a"),
        ("/token#part", b"/token"),
    ],
)
async def test_path_and_query_are_asked_for_as_they_stand_in_the_url(path: str, asked: bytes) -> None:
    async with answering(http(b'{"access_token": "t"}')) as endpoint:
        await endpoint.fetch(sasl_oauthbearer_token_endpoint_url=f"http://127.0.0.1:{endpoint.port}{path}")
    assert endpoint.requests[0].startswith(b"POST " + asked + b" HTTP/1.1\r\n")


async def test_an_address_of_ipv6_is_shown_as_it_stands_in_the_url() -> None:
    with pytest.raises(ConnectionLostError, match=r"the token endpoint http://\[::1\]:1/token can't be asked"):
        await Endpoint(b"").fetch(sasl_oauthbearer_token_endpoint_url="http://[::1]:1/token?a=b")


@pytest.mark.parametrize("answer", [http(b"{}", "401 Unauthorized"), http(b"{}", "503 Unavailable"), b""])
async def test_no_frame_of_an_error_shows_an_assertion(answer: bytes, tmp_path: Path) -> None:
    """It is good for a login until it expires, whoever has it."""
    path = tmp_path / "assertion"
    path.write_text("e30.e30.s3cret")
    configs = {
        "sasl_oauthbearer_client_credentials_client_secret": None,
        "sasl_oauthbearer_assertion_file": str(path),
    }
    async with answering(answer) as endpoint:
        with pytest.raises((AuthenticationError, ConnectionLostError)) as caught:
            await endpoint.fetch(**configs)
    assert b"e30.e30.s3cret" in endpoint.requests[0]
    assert not [text for text in shown_by_tools(caught.value) if "s3cret" in text]


@pytest.mark.parametrize("end", ["/token?key=s3cret", "?key=s3cret#s3cret", "/token#s3cret"])
async def test_the_query_of_the_url_is_in_no_log(end: str, caplog: pytest.LogCaptureFixture) -> None:
    """Some endpoints have a secret there, and httpx logs request URLs."""
    caplog.set_level(logging.DEBUG)
    async with answering(http(b'{"access_token": "t"}')) as endpoint:
        await endpoint.fetch(sasl_oauthbearer_token_endpoint_url=f"http://127.0.0.1:{endpoint.port}{end}")
    assert (b"?key=s3cret HTTP/1.1" in endpoint.requests[0]) == ("?" in end)
    assert f"HTTP Request: POST http://127.0.0.1:{endpoint.port}" in caplog.text
    assert "s3cret" not in caplog.text


def module(options: str) -> str:
    return f"OAuthBearerLoginModule required {options};"


async def test_the_login_module_says_whom_to_trust_and_which_certificate_to_show(tmp_path: Path) -> None:
    """As in Java, where its options ``ssl.*`` are for the token endpoint."""
    authority = CertificateAuthority()
    (tmp_path / "trust me.pem").write_text(authority.pem)
    (tmp_path / "me.pem").write_text(authority.issue("me.test").pem)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authority.pem)
    server.verify_mode = ssl.CERT_REQUIRED
    server.maximum_version = ssl.TLSVersion.TLSv1_2  # with 1.3 a missing certificate is noticed later
    pem.load_own(server, authority.issue("127.0.0.1").pem, None, "it")
    trust = f'ssl.truststore.location="{tmp_path}/trust me.pem"'
    async with answering(http(b'{"access_token": "t"}'), server) as endpoint:
        configs = {"sasl_oauthbearer_token_endpoint_url": f"https://127.0.0.1:{endpoint.port}/token"}
        own = f"ssl.keystore.location={tmp_path}/me.pem"
        token = await endpoint.fetch(sasl_jaas_config=module(f"{trust} {own}"), **configs)
        assert token.value == "t"
        for options in (own, trust):
            with pytest.raises(ConnectionLostError, match="can't be asked"):
                await endpoint.fetch(sasl_jaas_config=module(options), **configs)
    assert len(endpoint.requests) == 1


def pkcs12(authority: CertificateAuthority) -> bytes:
    certificate = writer.PKCS12Certificate(load_pem_x509_certificate(authority.pem.encode()), b"authority")
    return writer.serialize_java_truststore([certificate], BestAvailableEncryption(b"s3cret"))


async def test_the_trust_store_of_the_brokers_is_for_the_token_endpoint_too(tmp_path: Path) -> None:
    """In each of its forms."""
    authority = CertificateAuthority()
    file, store = tmp_path / "trust.pem", tmp_path / "trust.p12"
    file.write_text(authority.pem)
    store.write_bytes(pkcs12(authority))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pem.load_own(server, authority.issue("127.0.0.1").pem, None, "it")
    async with answering(http(b'{"access_token": "t"}'), server) as endpoint:
        configs = {
            "security_protocol": "SASL_SSL",
            "sasl_oauthbearer_token_endpoint_url": f"https://127.0.0.1:{endpoint.port}/token",
        }
        for trust in (
            {"ssl_truststore_certificates": authority.pem},
            {"ssl_truststore_location": file},
            {"ssl_truststore_location": store, "ssl_truststore_type": "PKCS12", "ssl_truststore_password": "s3cret"},
        ):
            assert (await endpoint.fetch(**configs, **trust)).value == "t"
        with pytest.raises(ConnectionLostError, match="can't be asked"):
            await endpoint.fetch(**configs)


async def test_an_intermediate_authority_is_trusted_by_the_token_endpoints_client_too() -> None:
    """As for brokers: every certificate in the trust store is trusted, even if another one has signed it."""
    authority = trustme.CA().create_child_ca()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    async with answering(http(b'{"access_token": "t"}'), server) as endpoint:
        token = await endpoint.fetch(
            security_protocol="SASL_SSL",
            sasl_oauthbearer_token_endpoint_url=f"https://127.0.0.1:{endpoint.port}/token",
            ssl_truststore_certificates=authority.cert_pem.bytes().decode(),
        )
    assert token.value == "t"


async def test_a_file_of_the_login_module_that_is_not_there() -> None:
    jaas = module("ssl.truststore.location=/nowhere/ca.pem")
    message = "sasl_jaas_config, of TLS to the token endpoint: ssl_truststore_location=/nowhere/ca.pem can't be read"
    with pytest.raises(TlsError, match=message):
        await Endpoint(b"").fetch(sasl_oauthbearer_token_endpoint_url="https://[::1]:1/", sasl_jaas_config=jaas)
