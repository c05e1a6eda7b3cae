"""The readers of bytes from a broker, a token endpoint or a file while a connection is being secured."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import random
import re
import ssl
import struct
from collections.abc import Callable, Coroutine, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from aioproducer.config.jaas import parse_jaas
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import AuthenticationError, ConfigError, KafkaError, TlsError
from aioproducer.metrics import ProducerMetrics
from aioproducer.net import pem
from aioproducer.net.connection import Connection
from aioproducer.net.sasl.authenticator import SaslAuthenticator
from aioproducer.net.sasl.oauthbearer import OAuthBearerExchange
from aioproducer.net.sasl.oidc import TokenEndpoint
from aioproducer.net.sasl.scram import ScramExchange
from aioproducer.net.sasl.token_cache import TokenCache
from aioproducer.net.tls import make_context
from aioproducer.net.tls_errors import handshake_error
from aioproducer.oauth_token import OAuthToken
from aioproducer.protocol.api_versions import ApiVersion, ApiVersionsResponse
from aioproducer.protocol.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from aioproducer.protocol.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.fuzz import certificates
from tests.fuzz.target import Target
from tests.fuzz.transport import AnsweringTransport

T = TypeVar("T")

VECTORS = json.loads((Path(__file__).parents[1] / "golden" / "vectors.json").read_text())["scram"]
NONCE = "rOprNGfwEbeRWgbNEkqO"
SECRET = "s3cret-of-the-fuzzer"
NOW_S = 1_700_000_000
LONGEST_MESSAGE = 1_000
"""The limit for an error's characters: a broker's text is shown in part."""
BASE = {"bootstrap_servers": "host:9092", "security_protocol": "SASL_PLAINTEXT"}


class InlineLoop:
    """Runs at once what an event loop would run in a thread."""

    def run_in_executor(self, _: None, function: Callable[..., T], *args: Any) -> Coroutine[Any, Any, T]:
        async def run() -> T:
            return function(*args)

        return run()


LOOP: Any = InlineLoop()


def finished(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never suspends."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("it waits for something")


def check_message(error: BaseException, secret: str = SECRET) -> None:
    """Check an error's message: one line, not too long, and without secrets."""
    message = str(error)
    assert len(message) <= LONGEST_MESSAGE
    assert message.isprintable()
    assert secret not in f"{message} {error!r}"


# --- SCRAM ------------------------------------------------------------------------------------------------------------


def read_scram(data: bytes) -> None:
    """Both messages of a server, separated by a newline; if accepted, the server has proved that it knows the key."""
    if not data:
        return
    vector = VECTORS[data[0] % len(VECTORS)]
    server_first, _, server_final = data[1:].partition(b"\n")
    login = ScramExchange(vector["mechanism"], vector["user"], vector["password"], LOOP, nonce=NONCE)
    client_first = finished(login.respond(None))
    assert client_first is not None
    try:
        client_final = finished(login.respond(server_first))
        assert client_final is not None
        end = finished(login.respond(server_final))
    except AuthenticationError as error:
        check_message(error, vector["password"])
        raise
    assert end is None
    signed = b",".join((client_first[3:], server_first, client_final.rpartition(b",p=")[0]))
    told = re.match(rb"v=([^,]*)", server_final)
    assert told is not None
    assert base64.b64decode(told[1]) == server_signature(vector, server_first, signed)


def server_signature(vector: dict[str, str], server_first: bytes, signed: bytes) -> bytes:
    """RFC 5802, section 3."""
    fields = dict(part.split(b"=", 1) for part in server_first.split(b",") if b"=" in part)
    digest = vector["mechanism"].removeprefix("SCRAM-").replace("-", "").lower()
    salt = base64.b64decode(fields[b"s"])
    salted = hashlib.pbkdf2_hmac(digest, vector["password"].encode(), salt, int(fields[b"i"]))
    return hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)


def scram_seeds() -> Iterator[bytes]:
    for number, vector in enumerate(VECTORS):
        yield bytes([number]) + f"{vector['server_first']}\n{vector['server_final']}".encode()
    yield b"\0" + f"{VECTORS[0]['server_first']}\ne=invalid-proof".encode()


# --- OAUTHBEARER ------------------------------------------------------------------------------------------------------


def read_objection(data: bytes) -> None:
    """A broker's answer to a token: an objection is acknowledged, and then shown in part."""
    exchange = OAuthBearerExchange(OAuthToken(SECRET))
    finished(exchange.respond(None))
    answer = finished(exchange.respond(data))
    assert answer == (b"\x01" if data else None)
    if not data:
        return
    try:
        finished(exchange.respond(data))
    except AuthenticationError as error:
        check_message(error)
    else:
        raise AssertionError("an objection is no login")


def objection_seeds() -> Iterator[bytes]:
    yield b""
    yield b'{"status":"invalid_token"}'
    yield b'{"status":"insufficient_scope","scope":"produce","openid-configuration":"https://host/"}'
    yield b"[" * 5_000


def read_token_answer(data: bytes) -> None:
    """A token endpoint's answer, and its use by a login: a token that can be sent, and its expiry."""
    if not data:
        return
    rng = random.Random(1)
    endpoint = TokenEndpoint(OIDC, LOOP, rng)
    status = (200, 200, 200, 400, 401, 429, 500, 999)[data[0] % 8]

    async def fetch() -> OAuthToken:
        return endpoint._token(status, data[1:])

    try:
        token = finished(TokenCache(OIDC, fetch, rng, wall_s=lambda: NOW_S).get())
    except KafkaError as error:
        check_message(error)
        raise
    first = finished(OAuthBearerExchange(token).respond(None))
    assert first is not None
    assert first.count(b"\x01") == 3, "nothing in a token ends it early"
    assert repr(token) == f"OAuthToken(expires_at_ms={token.expires_at_ms!r})"


def token_answer_seeds() -> Iterator[bytes]:
    claims = base64.urlsafe_b64encode(json.dumps({"iat": NOW_S - 5, "exp": NOW_S + 300}).encode()).decode().rstrip("=")
    for token in "opaque", f"e30.{claims}.c2ln":
        yield b"\0" + json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": 300}).encode()
        yield b"\0" + json.dumps({"access_token": token}).encode()
    yield b"\x04" + b'{"error":"invalid_client","error_description":"no"}'
    yield b"\x06" + b"<html>"


# --- a whole login ----------------------------------------------------------------------------------------------------

OIDC = ProducerConfig.parse(
    {
        **BASE,
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": "https://host/token",
        "sasl_oauthbearer_client_credentials_client_id": "alice",
        "sasl_oauthbearer_client_credentials_client_secret": SECRET,
    }
)


async def provider() -> str:
    return SECRET


@cache
def login_configs() -> tuple[ProducerConfig, ...]:
    """One per mechanism; an input chooses one by its index."""
    user = {"sasl_username": "alice", "sasl_password": SECRET}
    return tuple(
        ProducerConfig.parse({**BASE, **each})
        for each in (
            {"sasl_mechanism": "PLAIN", **user},
            {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": provider},
            {"sasl_mechanism": "SCRAM-SHA-256", **user},
        )
    )


def read_login(data: bytes) -> None:
    """All answers of a broker until the end of a login: the result is a login, or a KafkaError."""
    if data:
        asyncio.run(log_in(login_configs()[data[0] % len(login_configs())], data[1:]))


async def log_in(config: ProducerConfig, answers: bytes) -> None:
    loop = asyncio.get_running_loop()
    errors: list[object] = []
    loop.set_exception_handler(lambda _, context: errors.append(context))
    reader = asyncio.StreamReader()
    transport = AnsweringTransport(reader, answers)
    writer = asyncio.StreamWriter(transport, asyncio.StreamReaderProtocol(reader), reader, loop)
    connection = Connection(
        reader, writer, transport=transport, node_id=1, host="host", address="127.0.0.1", port=9092, config=config,
        loop=loop, on_internal_error=errors.append, metrics=ProducerMetrics(),
    )  # fmt: skip
    login = SaslAuthenticator(config, loop=loop, rng=random.Random(1), on_internal_error=errors.append)
    try:
        async with asyncio.timeout(10):
            await login.authenticate(connection)
    except KafkaError as error:
        check_message(error)
        raise
    finally:
        connection.abort()
        await connection.wait_closed()
        assert not errors, errors


def login_seeds() -> Iterator[bytes]:
    for mechanism in range(2):
        for framed in True, False:
            apis = [
                ApiVersion(api_key=17, min_version=0, max_version=1),
                ApiVersion(api_key=18, min_version=0, max_version=4),
            ]
            apis += [ApiVersion(api_key=36, min_version=0, max_version=2)] * framed
            names = ["PLAIN", "OAUTHBEARER"]
            handshake_version = SaslHandshakeRequest.MAX_VERSION if framed else 0
            told = SaslAuthenticateResponse(auth_bytes=b"", session_lifetime_ms=60_000)
            no = SaslAuthenticateResponse(error_code=58, error_message="no such user", auth_bytes=b"")
            versions = struct.pack(">i", 1) + ApiVersionsResponse(api_keys=apis).encode(0)
            for shake, login in (0, told), (0, told), (0, told), (33, told), (0, no):
                answer = SaslHandshakeResponse(error_code=shake, mechanisms=names)
                frames = [
                    versions,
                    struct.pack(">i", 2) + answer.encode(handshake_version),
                    struct.pack(">ib", 3, 0) + login.encode(SaslAuthenticateRequest.MAX_VERSION) if framed else b"",
                ]
                yield bytes([mechanism]) + b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


# --- configs ----------------------------------------------------------------------------------------------------------


def read_jaas(data: bytes) -> None:
    """A Java login module: parsed, or refused without quoting it."""
    text = data.decode("latin-1")
    try:
        jaas = parse_jaas(text)
        assert all(isinstance(each, str) for each in (jaas.module, *jaas.options, *jaas.options.values()))
        config = ProducerConfig.parse({**BASE, "sasl_mechanism": "PLAIN", "sasl_jaas_config": text})
        assert SECRET not in repr(config)
    except ConfigError as error:
        check_message(error)
        raise


def jaas_seeds() -> Iterator[bytes]:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    yield f'{module} required username="alice" password="{SECRET}";'.encode()
    yield f"{module} required\n username='a b'\n password={SECRET} ;".encode()
    yield f'{module} optional username="a\\"b\\\\c;=" password="{SECRET}" tokenauth=true;'.encode()
    yield f'org.apache.kafka.common.security.scram.ScramLoginModule required username=a password="{SECRET}";'.encode()


# --- TLS --------------------------------------------------------------------------------------------------------------


def read_pem(data: bytes) -> None:
    """The text of a key store and of a trust store: used, or refused with one kind of error."""
    text = data.decode("latin-1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        pem.load_own(context, text, SECRET, "it")
        pem.load_trusted(context, text, "it")
    except TlsError as error:
        check_message(error)
        raise
    assert context.cert_store_stats()["x509"] > 0


def pem_seeds() -> Iterator[bytes]:
    own = certificates.issued("alice")
    yield own.encode()
    yield " ".join(own.split("\n")).encode()
    yield certificates.with_encrypted_key("alice", SECRET).encode()


def read_handshake(data: bytes) -> None:
    """The peer's bytes in a TLS handshake: an accepted peer has a valid certificate, all else is one TlsError.

    An input's first byte chooses the server's certificate. If it is even, the rest are the server's bytes; if it is
    odd, a real server answers, and each three bytes of the rest are an offset in its bytes and a change.
    """
    if not data:
        return
    server = None
    if data[0] % 2:
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        pem.load_own(server, SERVERS[data[0] // 2 % len(SERVERS)](), None, "it")
    damage = dict(struct.iter_unpack(">HB", data[1 : len(data) - (len(data) - 1) % 3]))
    try:
        shake_hands(client_context(), server, damage, b"" if server else data[1:])
    except ssl.SSLError as error:
        explained = handshake_error(error, "host:9093", "host", TLS_CONFIG)
        if explained is None:
            return  # the connection broke
        check_message(explained)
        assert str(explained).startswith("host:9093: ")
        raise explained from error
    assert data[0] // 2 % len(SERVERS) == 0, "it believed a wrong certificate"
    assert server is not None


def shake_hands(
    client_side: ssl.SSLContext, server_side: ssl.SSLContext | None, damage: dict[int, int], said: bytes
) -> None:
    """Return when the client considers the handshake done, and raise its error otherwise."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_side.wrap_bio(to_client, to_server, server_hostname="host")
    of_server = ssl.MemoryBIO()
    server = server_side.wrap_bio(to_server, of_server, server_side=True) if server_side else None
    to_client.write(said)
    place = 0
    while True:
        try:
            client.do_handshake()
        except ssl.SSLWantReadError:
            pass
        else:
            return
        if server is not None:
            try:
                server.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                server = None  # it may have sent an alert
        words = bytearray(of_server.read())
        for at in range(len(words)):
            words[at] ^= damage.get(place + at, 0)
        place += len(words)
        if words:
            to_client.write(words)
        else:
            to_client.write_eof()


TLS_CONFIG = ProducerConfig.parse(
    {
        "bootstrap_servers": "host:9093",
        "security_protocol": "SSL",
        "ssl_truststore_certificates": certificates.authority_pem(),
    }
)
SERVERS: tuple[Callable[[], str], ...] = (
    lambda: certificates.issued("host"),
    lambda: certificates.issued("another"),
    lambda: certificates.issued("host", expired=True),
    lambda: certificates.self_signed("host"),
)


@cache
def client_context() -> ssl.SSLContext:
    return make_context(TLS_CONFIG)


def handshake_seeds() -> Iterator[bytes]:
    for place in range(0, 700, 100):
        yield b"\x01" + struct.pack(">HB", place + 0x4000, 1)  # beyond the server's bytes: nothing changes
    for number in range(1, len(SERVERS)):
        yield bytes([number * 2 + 1])
    yield b"\0HTTP/1.1 400 Bad Request\r\n\r\n"
    yield b"\0" + struct.pack(">ii", 10, 1) + bytes(6)  # Kafka without TLS
    yield b"\0\x15\x03\x03\x00\x02\x02\x28"  # an alert


TARGETS = (
    Target("scram", read_scram, (AuthenticationError,), scram_seeds, share=0.1),
    Target("oauthbearer", read_objection, (), objection_seeds),
    Target("token-endpoint", read_token_answer, (KafkaError,), token_answer_seeds),
    Target("login", read_login, (KafkaError,), login_seeds, share=0.05),
    Target("jaas", read_jaas, (ConfigError,), jaas_seeds, share=0.2),
    Target("pem", read_pem, (TlsError,), pem_seeds, share=0.2),
    Target("tls-handshake", read_handshake, (TlsError,), handshake_seeds, share=0.1),
)
