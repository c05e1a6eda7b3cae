"""SchemaRegistry: retries, permanent refusals, and which producer closes the client."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import Any

import pytest
from confluent_kafka.schema_registry import AsyncSchemaRegistryClient, SchemaRegistryClient

from aioproducer import Producer
from aioproducer.errors import ConfigError, SchemaRegistryError, SchemaRegistryUnavailableError
from aioproducer.integrations.schema_registry import AvroSerializer, SchemaRegistry
from aioproducer.integrations.schema_registry.http_limits import MAX_ANSWER_BYTES
from aioproducer.integrations.schema_registry.lookups import Lookups
from aioproducer.testing import FakeCluster, FakeSchemaRegistry
from tests.unit.shown import shown_by_tools

SCHEMA = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}'
BYTES = b"\0\0\0\0\1\x0e"


@asynccontextmanager
async def serving(*answers: tuple[int, bytes], headers: bytes = b"") -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that gives these answers, the last one again and again: its URL, and the requests it has got.

    Args:
        headers: further ones of each answer, each with its line end.
    """
    requests: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        sizes = [int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        status, body = answers[min(len(requests), len(answers) - 1)]
        requests.append(head + await reader.readexactly(sum(sizes)))
        size = b"content-length: %d\r\n" % len(body)
        writer.write(b"HTTP/1.1 %d -\r\nconnection: close\r\n" % status + size + headers + b"\r\n" + body)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):  # a client that has given up
            await answer(reader, writer)
            await writer.drain()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", requests


@asynccontextmanager
async def answering(body: bytes) -> AsyncIterator[SchemaRegistry]:
    """A registry that answers each request with 200 and these bytes."""
    async with serving((200, body)) as (url, _), SchemaRegistry({"url": url, "ssl.ca.location": False}) as registry:
        yield registry


def with_tokens(fake: FakeSchemaRegistry, endpoint: str) -> SchemaRegistry:
    """A client that gets a token from an endpoint before it asks the registry."""
    return SchemaRegistry(
        {
            "url": fake.url,
            "ssl.ca.location": False,
            "bearer.auth.credentials.source": "OAUTHBEARER",
            "bearer.auth.logical.cluster": "registry-1",
            "bearer.auth.client.id": "orders",
            "bearer.auth.client.secret": "secret",
            "bearer.auth.scope": "all",
            "bearer.auth.issuer.endpoint.url": endpoint,
        }
    )


TOKEN = 200, b'{"access_token": "t1", "token_type": "bearer", "expires_in": 3600}'


def posts(fake: FakeSchemaRegistry) -> list[str]:
    return [path.partition("?")[0] for method, path in fake.requests if method == "POST"]


async def test_passing_faults(registry: SchemaRegistry, fake_schema_registry: FakeSchemaRegistry) -> None:
    """Temporary errors and missing answers are retried until there is a good answer."""
    fake_schema_registry.fail(503)
    fake_schema_registry.drop()
    assert await AvroSerializer(registry, SCHEMA).to_bytes("orders", {"id": 7}) == BYTES
    assert posts(fake_schema_registry) == ["/subjects/orders-value/versions"] * 3


@pytest.mark.parametrize("fault", ["failing", "dropping", "silent", "gone"])
async def test_no_answer_in_time(
    registry: SchemaRegistry, fake_schema_registry: FakeSchemaRegistry, fault: str
) -> None:
    """The last failure is in the error, with the registry, the subject, the topic and the limit."""
    if fault == "failing":
        fake_schema_registry.fail(503, error_code=50003, message="busy", times=None)
    elif fault == "dropping":
        fake_schema_registry.drop(times=None)
    elif fault == "gone":
        fake_schema_registry.stop()
    serializer = AvroSerializer(registry, SCHEMA)
    with (
        fake_schema_registry.held() if fault == "silent" else nullcontext(),
        pytest.raises(SchemaRegistryUnavailableError) as raised,
    ):
        await serializer.prepare("orders", timeout_ms=300)
    text = str(raised.value)
    assert fake_schema_registry.url in text
    assert "subject 'orders-value' for topic 'orders'" in text
    assert "max_block_ms=300" in text
    assert raised.value.retriable
    assert (raised.value.status, raised.value.error_code) == ((503, 50003) if fault == "failing" else (None, None))
    if fault == "failing":
        assert "HTTP 503, error 50003: busy" in text
    # Nothing of it is kept: with the registry back, the serializer works again once the failure is old.
    fake_schema_registry.recover()
    fake_schema_registry.start()
    await registry.lookups.cancel()
    registry.lookups._failures.clear()
    assert await serializer.to_bytes("orders", {"id": 7}) == BYTES


@pytest.mark.parametrize(("status", "error_code"), [(401, 401), (403, 40301), (404, 40401), (409, 409), (422, 42201)])
async def test_a_refusal_is_not_retried_and_keeps_its_message_and_codes(
    registry: SchemaRegistry, fake_schema_registry: FakeSchemaRegistry, status: int, error_code: int
) -> None:
    """The registry is asked once; the error has its message and codes."""
    fake_schema_registry.fail(status, error_code=error_code, message="it says\nwhy")
    serializer = AvroSerializer(registry, SCHEMA)
    with pytest.raises(SchemaRegistryError, match=f"HTTP {status}, error {error_code}: it says why") as raised:
        await serializer.prepare("orders")
    error = raised.value
    assert not isinstance(error, SchemaRegistryUnavailableError)
    assert (error.topic, error.subject, error.status, error.error_code) == (
        "orders", "orders-value", status, error_code,
    )  # fmt: skip
    assert len(fake_schema_registry.requests) == 1


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"<html>log in</html>", r"its answer is not JSON: is it a schema registry, or a proxy\?"),
        (b'{"id": "\xff"}', r"its answer is not JSON: is it"),
        (b"[" * 100_000, r"the client can't make sense of its answer, or of a config: RecursionError"),
        (b"null", r"the client can't make sense of its answer, or of a config: AttributeError"),
        (b"[]", r"the client can't make sense of its answer, or of a config: TypeError"),
        (b'{"id": true}', "its answer has no id of a schema"),
        (b'{"id": 1, "guid": "none"}', "its answer has no GUID of a schema, but 'none'"),
        (b'{"id": 1, "guid": 5}', "its answer has no GUID of a schema, but 5"),
    ],
)
async def test_an_answer_of_something_else(body: bytes, told: str) -> None:
    """An answer of a proxy or a login page; it is asked once, and the error says so."""
    async with answering(body) as registry:
        with pytest.raises(SchemaRegistryError, match=told) as raised:
            await AvroSerializer(registry, SCHEMA, framing="header").prepare("orders")
        assert not isinstance(raised.value, SchemaRegistryUnavailableError)


@pytest.mark.parametrize(("text", "told"), [("no json", "is not JSON"), ('{"type": "nothing"}', "can't be parsed")])
async def test_a_schema_of_the_registry_that_is_none(text: str, told: str) -> None:
    body = json.dumps({"id": 1, "version": 1, "subject": "orders-value", "schema": text}).encode()
    async with answering(body) as registry:
        with pytest.raises(SchemaRegistryError, match=rf"topic 'orders': the (Avro )?schema {told}"):
            await AvroSerializer(registry, use_latest_version=True).prepare("orders")


async def test_records_that_are_refused_together_ask_once(
    registry: SchemaRegistry, fake_schema_registry: FakeSchemaRegistry
) -> None:
    """Each has its own error; for a second, later records fail without another request."""
    fake_schema_registry.fail(409, error_code=409, times=None)
    registry.lookups = Lookups(clock=lambda: 0.0)  # the clock stands still, so that second does not end
    serializer = AvroSerializer(registry, SCHEMA)
    errors = await asyncio.gather(
        *(serializer.to_bytes("orders", {"id": 7}) for _ in range(100)), return_exceptions=True
    )
    assert len(set(map(id, errors))) == 100
    with pytest.raises(SchemaRegistryError):
        await serializer.to_bytes("orders", {"id": 7})
    assert len(fake_schema_registry.requests) == 1


async def test_credentials_come_from_the_config_and_stay_out_of_messages() -> None:
    with FakeSchemaRegistry(credentials=("ann", "secret-word")) as fake:
        config = {"url": fake.url, "basic.auth.user.info": "ann:secret-word"}
        async with SchemaRegistry(config) as registry:
            assert await AvroSerializer(registry, SCHEMA).to_bytes("orders", {"id": 7}) == BYTES
        url = fake.url.replace("://", "://ann:wrong-secret@")
        async with SchemaRegistry(url) as registry:
            assert "secret" not in repr(registry)
            with pytest.raises(SchemaRegistryError, match="HTTP 401") as raised:
                await AvroSerializer(registry, SCHEMA).prepare("orders")
            assert "secret" not in str(raised.value)


@pytest.mark.parametrize("other", ["", "http://127.0.0.1:1,"])
async def test_a_login_in_a_url_is_in_no_log(other: str, caplog: pytest.LogCaptureFixture) -> None:
    """httpx logs request URLs at level INFO.

    Args:
        other: an address that does not answer, and has no login.
    """
    caplog.set_level(logging.DEBUG)
    with FakeSchemaRegistry(credentials=("ann", "s3cret")) as fake:
        async with SchemaRegistry(other + fake.url.replace("://", "://ann:s3cret@")) as registry:
            assert await AvroSerializer(registry, SCHEMA).to_bytes("orders", {"id": 7}) == BYTES
        assert f"HTTP Request: POST {fake.url}/subjects/orders-value/versions" in caplog.text
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize(
    "config",
    [
        {"url": "http://ann:s3cret@{}"},
        {"url": "http://ann:s3cret@127.0.0.1:1"},
        {"url": "http://{}", "basic.auth.user.info": "ann:s3cret"},
        {"url": "http://{}", "basic.auth.user.info": "s3cret"},
        {"url": "http://{}", "basic.auth.user.info": "ann:s3cret", "nonsense": 1},
        {
            "url": "http://{}",
            "bearer.auth.credentials.source": "STATIC_TOKEN",
            "bearer.auth.token": "s3cret",
            "bearer.auth.logical.cluster": "lsrc-1",
            "bearer.auth.identity.pool.id": "pool-1",
        },
    ],
    ids=["URL, refused", "URL, unreachable", "login, refused", "login, invalid", "config, unknown", "token, refused"],
)
async def test_no_frame_of_an_error_shows_a_secret(config: dict[str, Any]) -> None:
    """Not even those of confluent-kafka and httpx, which tools that report errors show like ours."""
    with FakeSchemaRegistry(credentials=("ann", "right")) as fake:
        registry = SchemaRegistry({**config, "url": config["url"].format(fake.url.removeprefix("http://"))})
        async with registry:
            with pytest.raises(SchemaRegistryError) as raised:
                await AvroSerializer(registry, SCHEMA).prepare("orders", timeout_ms=500)
    assert not [text for text in shown_by_tools(raised.value) if "s3cret" in text]


async def test_no_frame_of_an_error_shows_a_secret_if_there_is_no_answer(
    fake_schema_registry: FakeSchemaRegistry,
) -> None:
    fake_schema_registry.delay(10)
    async with SchemaRegistry(fake_schema_registry.url.replace("://", "://ann:s3cret@")) as registry:
        with pytest.raises(SchemaRegistryUnavailableError) as raised:
            await AvroSerializer(registry, SCHEMA).prepare("orders", timeout_ms=500)
    assert not [text for text in shown_by_tools(raised.value) if "s3cret" in text]


@pytest.mark.parametrize(
    ("headers", "size", "told"),
    [
        (b"", MAX_ANSWER_BYTES + 1, "its answer is larger than 10,485,760 bytes"),
        (b"content-encoding: gzip\r\n", 1, "its answer is compressed, although that was not allowed"),
    ],
)
async def test_an_answer_of_any_size(
    fake_schema_registry: FakeSchemaRegistry, headers: bytes, size: int, told: str
) -> None:
    """It is not read to its end, nor decompressed, whether from the registry or from a token endpoint."""
    answer = (200, gzip.compress(b'{"id": 1}') if headers else b" " * size)
    async with serving(answer, headers=headers) as (url, asked):
        async with SchemaRegistry(url) as registry:
            with pytest.raises(SchemaRegistryError, match=f"topic 'orders': {told}$") as raised:
                await AvroSerializer(registry, SCHEMA).prepare("orders")
            assert not isinstance(raised.value, SchemaRegistryUnavailableError)
        assert len(asked) == 1
        assert b"accept-encoding: identity\r\n" in asked[0].lower()
        async with with_tokens(fake_schema_registry, url) as registry:
            with pytest.raises(SchemaRegistryError, match=f"endpoint.url: {told}$") as raised:
                await AvroSerializer(registry, SCHEMA).prepare("orders")
            assert not isinstance(raised.value, SchemaRegistryUnavailableError)


async def test_the_largest_answer() -> None:
    body = b'{"id": 1}'
    async with answering(body + b" " * (MAX_ANSWER_BYTES - len(body))) as registry:
        assert await AvroSerializer(registry, SCHEMA).to_bytes("orders", {"id": 7}) == BYTES


async def test_a_code_that_is_no_number() -> None:
    """The message is one line, and not long, whatever stands in the place of the code."""
    body = json.dumps({"error_code": "\n\x1b[31m" * 10_000, "message": "no"}).encode()
    async with serving((422, body)) as (url, _), SchemaRegistry(url) as registry:
        with pytest.raises(SchemaRegistryError, match=r"topic 'orders': HTTP 422: no$") as raised:
            await AvroSerializer(registry, SCHEMA).prepare("orders")
    assert (raised.value.status, raised.value.error_code) == (422, None)


@pytest.mark.parametrize("stumble", [(503, b"{}"), (429, b"slow down"), (200, b"<html>starting</html>")])
async def test_a_token_endpoint_that_stumbles(
    fake_schema_registry: FakeSchemaRegistry, stumble: tuple[int, bytes]
) -> None:
    """It is asked again, as the registry would be; afterwards the connections to it are closed, too."""
    async with serving(stumble, TOKEN) as (url, asked), with_tokens(fake_schema_registry, url) as registry:
        assert await AvroSerializer(registry, SCHEMA).to_bytes("orders", {"id": 7}) == BYTES
        assert len(asked) == 2
        client = await registry.client()
    assert client._rest_client.session.is_closed
    assert client._rest_client.bearer_field_provider.client.is_closed


async def test_no_token_in_time(fake_schema_registry: FakeSchemaRegistry) -> None:
    async with serving((503, b"")) as (url, _), with_tokens(fake_schema_registry, url) as registry:
        refusal = r"no token from bearer\.auth\.issuer\.endpoint\.url: HTTP 503; given up"
        with pytest.raises(SchemaRegistryUnavailableError, match=refusal):
            await AvroSerializer(registry, SCHEMA).prepare("orders", timeout_ms=3_000)
    assert fake_schema_registry.requests == []


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((401, b'{"error": "invalid_client", "error_description": "who?"}'), "OAuthError: invalid_client: who?"),
        ((400, b'{"error": "invalid_scope"}'), "OAuthError: invalid_scope"),
        ((404, b"<html>not here</html>"), "HTTP 404"),
    ],
)
async def test_a_token_that_is_refused(
    fake_schema_registry: FakeSchemaRegistry, answer: tuple[int, bytes], told: str
) -> None:
    """The endpoint is asked once."""
    async with serving(answer) as (url, asked), with_tokens(fake_schema_registry, url) as registry:
        with pytest.raises(SchemaRegistryError, match=f"endpoint.url: {re.escape(told)}") as raised:
            await AvroSerializer(registry, SCHEMA).prepare("orders")
    assert not isinstance(raised.value, SchemaRegistryUnavailableError)
    assert "secret" not in str(raised.value)
    assert len(asked) == 1


async def test_a_client_that_was_given_stays_open(fake_schema_registry: FakeSchemaRegistry) -> None:
    async with AsyncSchemaRegistryClient({"url": fake_schema_registry.url}) as client:
        async with SchemaRegistry(client) as registry:
            assert await AvroSerializer(registry, SCHEMA).to_bytes("orders", {"id": 7}) == BYTES
        assert await client.get_subjects() == ["orders-value"]


async def test_confluents_mock_will_do() -> None:
    """confluent-kafka's own mock registry, by its URL."""
    async with SchemaRegistry("mock://") as registry:
        assert await AvroSerializer(registry, SCHEMA).to_bytes("orders", {"id": 7}) == BYTES


async def test_the_last_producer_closes_the_client(
    registry: SchemaRegistry, fake_schema_registry: FakeSchemaRegistry, fake_kafka_cluster: FakeCluster
) -> None:
    """Two producers share a registry; the first to close leaves it open for the other, and a third one reopens it."""

    def producer() -> Producer:
        serializer = AvroSerializer(registry, SCHEMA)
        return Producer(bootstrap_servers=fake_kafka_cluster.bootstrap_servers, value_serializer=serializer)

    async with producer() as first, producer() as second:
        for each in (first, second):
            await each.send("orders", {"id": 7})
        client = await registry.client()
        await first.close()
        assert await registry.client() is client
        await second.send("payments", {"id": 7})
    assert client._rest_client.session.is_closed
    async with producer() as third:
        await third.send("orders", {"id": 7})
        assert await registry.client() is not client
    assert [record.value for record in fake_kafka_cluster.records("orders")] == [BYTES] * 3


async def test_a_close_ends_the_wait_of_a_send(
    registry: SchemaRegistry, fake_schema_registry: FakeSchemaRegistry, fake_kafka_cluster: FakeCluster
) -> None:
    """A send that waits for the registry ends with the close at once, not after max_block_ms."""
    producer = Producer(
        bootstrap_servers=fake_kafka_cluster.bootstrap_servers, value_serializer=AvroSerializer(registry, SCHEMA)
    )
    async with producer:
        with fake_schema_registry.held():
            sending = asyncio.create_task(producer.send("orders", {"id": 7}))
            while not fake_schema_registry.requests:
                await asyncio.sleep(0.001)
            await producer.close()
            with pytest.raises(SchemaRegistryUnavailableError, match="closed"):
                await sending


def test_each_loop_has_its_own_client(fake_schema_registry: FakeSchemaRegistry) -> None:
    """A registry and its serializers may outlive the loop of their first use, and keep what they have looked up."""
    registry = SchemaRegistry(fake_schema_registry.url)
    serializer = AvroSerializer(registry, SCHEMA)

    async def use(topic: str) -> Any:
        async with registry:
            return await serializer.to_bytes(topic, {"id": 7})

    assert [asyncio.run(use(topic)) for topic in ("orders", "orders", "payments")] == [BYTES] * 3
    assert posts(fake_schema_registry) == ["/subjects/orders-value/versions", "/subjects/payments-value/versions"]


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (None, "not a NoneType"),
        (5, "not a int"),
        ({}, "url is missing"),
        ({"url": ""}, "url is missing"),
        ("", "url is missing"),
        ("localhost:8081", "'localhost:8081' is not an http or https address"),
        ("ann:secret@localhost:8081", "'localhost:8081' is not an http or https address"),
        ("http://", "'http://' is not an http or https address"),
        ("http://ann:secret@", "'http://' is not an http or https address"),
        ("ftp://registry", "'ftp://registry' is not an http or https address"),
        ("http://registry:port", "'http://registry:port' is not an http or https address"),
        ("http://registry:99999", "'http://registry:99999' is not an http or https address"),
        ("http://ann:secret@[::1", r"'http://\[::1' is not an http or https address"),
        ("HTTP://registry", "'HTTP://registry' is not an http or https address"),
        ("http://ann:secret/word@registry", "'http://registry' is not an http or https address"),
        ("http://ann:secret,word@registry", "url address 1 is not an http or https address"),
        ("https://registry-1:8081,", "'' is not an http or https address"),
        (SchemaRegistryClient({"url": "http://localhost:8081"}), "AsyncSchemaRegistryClient is needed"),
    ],
)
def test_what_is_no_registry(bad: Any, told: str) -> None:
    """Refused at once, not with the first record, and without showing the credentials."""
    with pytest.raises(ConfigError, match=told) as raised:
        SchemaRegistry(bad)
    assert "secret" not in "".join([str(raised.value), *shown_by_tools(raised.value)])
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None


def test_several_addresses() -> None:
    registry = SchemaRegistry(" https://ann:secret@registry-1:8081/ , http://[::1]:8081/sub?token=secret#secret")
    assert registry.url == "https://registry-1:8081/,http://[::1]:8081/sub"


async def test_configs_that_the_client_refuses() -> None:
    async with SchemaRegistry({"url": "http://127.0.0.1:1", "nonsense": 1}) as registry:
        with pytest.raises(SchemaRegistryError, match=r"can't be made.*nonsense"):
            await AvroSerializer(registry, SCHEMA).prepare("orders")
