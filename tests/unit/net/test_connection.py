"""One connection against a scripted peer on a real socket."""

from __future__ import annotations

import asyncio
import errno
import re
import socket
import struct
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import (
    ConnectionLostError,
    InvalidRequestError,
    KafkaError,
    ProtocolError,
    RequestTimedOutError,
    SaslAuthenticationFailedError,
    TlsError,
    UnsupportedVersionError,
)
from aioproducer.net import opening, write_buffer
from aioproducer.net.connection import (
    ATTEMPTS_BELIEVED,
    MAX_CORRELATION_ID,
    MAX_FRAME_BYTES,
    MAX_OPENING_BYTES,
    Connection,
    ignore,
)
from aioproducer.net.opening import open_connection
from aioproducer.protocol.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from aioproducer.protocol.end_txn import EndTxnRequest, EndTxnResponse
from aioproducer.protocol.header import encode_request
from aioproducer.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aioproducer.protocol.metadata import MetadataRequest, MetadataResponse
from aioproducer.version import VERSION
from tests.unit.lifetimes import goes_by_itself
from tests.unit.net.fake_broker import (
    EVERYTHING,
    FakeBroker,
    Peer,
    ReceivedRequest,
    closed_port,
    end_with_answer,
    framed,
)

INIT = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
METADATA = MetadataRequest(topics=[])


def config(**values: object) -> ProducerConfig:
    return ProducerConfig.parse({"bootstrap_servers": "unused:1", "client_id": "tester", **values})


class Owner:
    """Records the connection's calls to its owner."""

    def __init__(self) -> None:
        self.closed: list[KafkaError | None] = []
        self.internal: list[BaseException] = []
        self.capacity = 0
        self.changed = asyncio.Event()

    def on_close(self, _: Connection, error: KafkaError | None) -> None:
        self.closed.append(error)
        self.changed.set()

    def on_capacity(self, _: Connection) -> None:
        self.capacity += 1
        self.changed.set()

    async def open(self, broker: FakeBroker, *, authenticate: Any = None, **values: object) -> Connection:
        return await open_connection(
            broker.host,
            broker.port,
            node_id=broker.node_id,
            config=config(**values),
            loop=asyncio.get_running_loop(),
            on_internal_error=self.internal.append,
            on_close=self.on_close,
            on_capacity=self.on_capacity,
            authenticate=authenticate,
        )

    async def change(self) -> None:
        await self.changed.wait()
        self.changed.clear()


class Sent:
    """A request by ``send_frame`` and how it ended."""

    def __init__(self, connection: Connection, *, timeout_ms: int = 10_000, answered: bool = True) -> None:
        self.frames: list[bytes] = []
        self.errors: list[KafkaError] = []
        self.ended = asyncio.Event()
        self.correlation_id = connection.next_correlation_id()
        frame = encode_request(METADATA, connection.version(MetadataRequest), self.correlation_id, "tester")
        self.size_bytes = connection.send_frame(
            [frame[:5], memoryview(frame)[5:]],
            self.correlation_id,
            MetadataRequest.API_KEY,
            timeout_ms,
            self.on_response if answered else None,
            self.on_error,
        )

    def on_response(self, frame: bytes) -> None:
        self.frames.append(frame)
        self.ended.set()

    def on_error(self, error: KafkaError) -> None:
        self.errors.append(error)
        self.ended.set()


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker() as running:
        yield running


@pytest.fixture
async def owner() -> Owner:
    return Owner()


async def end(connection: Connection) -> None:
    connection.abort()
    await connection.wait_closed()


# --- opening ----------------------------------------------------------------------------------------------------------


async def test_the_first_request_is_api_versions_with_the_name_of_the_software(
    broker: FakeBroker, owner: Owner
) -> None:
    connection = await owner.open(broker)
    (request,) = broker.requests
    assert (request.api_key, request.version, request.client_id) == (18, 4, "tester")
    assert request.decode() == ApiVersionsRequest(client_software_name="aioproducer", client_software_version=VERSION)
    assert connection.version(MetadataRequest) == MetadataRequest.MAX_VERSION
    assert connection.api_range(MetadataRequest.API_KEY) == (4, 13)
    assert connection.api_range(99) is None
    await end(connection)
    assert owner.closed == [None]


@pytest.mark.parametrize(("listed", "second"), [((0, 2), 2), ((0, 9), 5), (None, 0)])
async def test_a_broker_that_does_not_know_our_api_versions_is_asked_in_its_own(
    broker: FakeBroker, owner: Owner, listed: tuple[int, int] | None, second: int
) -> None:
    def answer(request: Any) -> bytes | ApiVersionsResponse:
        if len(broker.requests) > 1:
            return broker.api_versions()
        keys = [] if listed is None else [ApiVersion(api_key=18, min_version=listed[0], max_version=listed[1])]
        refusal: bytes = request.answer(ApiVersionsResponse(error_code=35, api_keys=keys), version=0)
        return refusal

    broker.on(ApiVersionsRequest, answer)
    connection = await owner.open(broker)
    assert [request.version for request in broker.requests] == [4, second]
    assert connection.version(MetadataRequest) == MetadataRequest.MAX_VERSION
    await end(connection)


async def test_a_refusal_of_api_versions_that_mixes_versions_up(broker: FakeBroker, owner: Owner) -> None:
    """As librdkafka's mock cluster sends it: the count of version 3, entries of version 0, the throttle time of 1."""

    def answer(request: ReceivedRequest) -> bytes | ApiVersionsResponse:
        if len(broker.requests) > 1:
            return broker.api_versions()
        return framed(struct.pack(">ihBhhhi", request.correlation_id, 35, 1, 18, 0, 2, 0))

    broker.on(ApiVersionsRequest, answer)
    connection = await owner.open(broker)
    assert [request.version for request in broker.requests] == [4, 0]
    assert connection.version(MetadataRequest) == MetadataRequest.MAX_VERSION
    await end(connection)


@pytest.mark.parametrize(("known", "asked"), [(3, [4, 3]), (2, [4, 3, 0])])
async def test_a_broker_that_hangs_up_at_our_api_versions_is_asked_in_older_ones(
    broker: FakeBroker, owner: Owner, known: int, asked: list[int]
) -> None:
    broker.on(ApiVersionsRequest, lambda request: _answer_or_hang_up(request, known))
    connection = await owner.open(broker)
    assert [request.version for request in broker.requests] == asked
    assert len(broker.peers) == len(asked)  # each on its own connection
    assert connection.version(MetadataRequest) == MetadataRequest.MAX_VERSION
    await end(connection)
    assert owner.closed == [None]  # of the others nobody heard


def _answer_or_hang_up(request: ReceivedRequest, newest: int) -> ApiVersionsResponse | None:
    if request.version <= newest:
        return request.broker.api_versions()
    request.peer.drop()
    return None


async def test_a_broker_that_always_hangs_up_is_given_up(broker: FakeBroker, owner: Owner) -> None:
    broker.on(ApiVersionsRequest, lambda request: _answer_or_hang_up(request, -1))
    with pytest.raises(ConnectionLostError, match="node 1"):
        await owner.open(broker)
    assert [request.version for request in broker.requests] == [4, 3, 0]


async def test_a_broker_that_does_not_answer_api_versions_is_not_asked_again(broker: FakeBroker, owner: Owner) -> None:
    broker.silent(ApiVersionsRequest)
    with pytest.raises(RequestTimedOutError):
        await owner.open(broker, request_timeout_ms=50)
    assert [request.version for request in broker.requests] == [4]


async def test_a_second_refusal_of_api_versions_ends_the_attempt(broker: FakeBroker, owner: Owner) -> None:
    refusal = ApiVersionsResponse(error_code=35, api_keys=[])
    broker.on(ApiVersionsRequest, lambda request: request.answer(refusal, version=0))
    with pytest.raises(UnsupportedVersionError, match="refused ApiVersions") as caught:
        await owner.open(broker)
    assert not caught.value.maybe_written
    assert [request.version for request in broker.requests] == [4, 0]
    assert owner.closed == []


async def test_an_error_in_api_versions_ends_the_attempt(broker: FakeBroker, owner: Owner) -> None:
    broker.on(ApiVersionsRequest, lambda _: ApiVersionsResponse(error_code=42, api_keys=[]))
    with pytest.raises(InvalidRequestError):
        await owner.open(broker)
    await broker.peers[0].gone.wait()


async def test_authentication_comes_before_api_versions_and_its_failure_ends_the_attempt(
    broker: FakeBroker, owner: Owner
) -> None:
    async def refuse(connection: Connection) -> None:
        assert broker.requests == []
        raise SaslAuthenticationFailedError("wrong password")

    with pytest.raises(SaslAuthenticationFailedError):
        await owner.open(broker, authenticate=refuse)
    await (await broker.connected.get()).gone.wait()
    assert broker.requests == []


async def test_authentication_can_send_requests(broker: FakeBroker, owner: Owner) -> None:
    async def authenticate(connection: Connection) -> None:
        await connection.request(ApiVersionsRequest(), version=0)

    connection = await owner.open(broker, authenticate=authenticate)
    assert [request.version for request in broker.requests] == [0, 4]
    await end(connection)


async def test_a_connection_that_ends_with_the_answer_that_makes_it_ready(
    broker: FakeBroker, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner could not be notified of the end, and would consider it open: with TLS both can arrive together."""
    end_with_answer(monkeypatch, ApiVersionsRequest)
    with pytest.raises(ConnectionLostError, match=r"node 1 .* closed the connection") as raised:
        await owner.open(broker)
    assert not raised.value.maybe_written
    assert owner.closed == []
    await broker.peers[0].gone.wait()


async def test_a_session_that_ends_before_the_connection_is_ready(broker: FakeBroker, owner: Owner) -> None:
    async def authenticate(connection: Connection) -> None:
        asyncio.get_running_loop().call_soon(connection.close_when_idle)  # after the ApiVersions request

    with pytest.raises(ConnectionLostError, match="closed on this side"):
        await owner.open(broker, authenticate=authenticate)
    assert owner.closed == []


async def test_a_port_that_nobody_listens_at_is_an_os_error(owner: Owner) -> None:
    broker = FakeBroker()
    broker.port = closed_port()
    with pytest.raises(ConnectionRefusedError):
        await owner.open(broker)


async def test_a_cancelled_attempt_leaves_nothing_behind(broker: FakeBroker, owner: Owner) -> None:
    broker.silent(ApiVersionsRequest)
    attempt = asyncio.ensure_future(owner.open(broker))
    request = await broker.next_request(ApiVersionsRequest)
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    await request.peer.gone.wait()
    assert owner.closed == []


async def test_socket_options_are_set(broker: FakeBroker, owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    original = opening._set_socket_options

    def spy(sock: Any, settings: ProducerConfig) -> None:
        original(sock, settings)
        tcp_nodelay = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        keep_alive = sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        sizes = [sock.getsockopt(socket.SOL_SOCKET, option) for option in (socket.SO_SNDBUF, socket.SO_RCVBUF)]
        seen.append((tcp_nodelay, keep_alive, *sizes))

    monkeypatch.setattr(opening, "_set_socket_options", spy)
    connection = await owner.open(broker, send_buffer_bytes=70_000, receive_buffer_bytes=50_000)
    ((no_delay, keep_alive, send_bytes, receive_bytes),) = seen
    assert no_delay
    assert keep_alive
    assert send_bytes >= 70_000  # Linux doubles them
    assert receive_bytes >= 50_000
    await end(connection)


class Refusing:
    """A socket that refuses options, as macOS does."""

    family = socket.AF_INET

    def __init__(self, *refused: int) -> None:
        self.refused = refused
        self.accepted: dict[int, int] = {}

    def setsockopt(self, _: int, option: int, value: int) -> None:
        if option in self.refused:
            raise OSError(errno.ENOBUFS, "No buffer space available")
        self.accepted[option] = value


def test_a_buffer_that_the_system_does_not_have_is_done_without() -> None:
    sock: Any = Refusing(socket.SO_SNDBUF)
    opening._set_socket_options(sock, config(send_buffer_bytes=70_000, receive_buffer_bytes=50_000))
    assert sock.accepted == {socket.TCP_NODELAY: 1, socket.SO_KEEPALIVE: 1, socket.SO_RCVBUF: 50_000}


async def test_a_socket_that_takes_no_options_is_closed(
    broker: FakeBroker, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one whose peer has already reset the connection, on macOS."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(opening, "_set_socket_options", refuse)
    with pytest.raises(OSError, match="Invalid argument"):
        await owner.open(broker)
    await (await broker.connected.get()).gone.wait()


# --- versions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("theirs", "common"), [((0, 8), 8), ((5, 99), 13), ((13, 20), 13), ((4, 4), 4)])
async def test_the_newest_common_version_is_used(owner: Owner, theirs: tuple[int, int], common: int) -> None:
    async with FakeBroker(ranges={**EVERYTHING, MetadataRequest.API_KEY: theirs}) as broker:
        connection = await owner.open(broker)
        assert connection.version(MetadataRequest) == common
        await connection.request(METADATA)
        assert broker.requests[-1].version == common
        await end(connection)


@pytest.mark.parametrize("theirs", [(0, 3), (14, 20), None])
async def test_no_common_version_fails_that_request_alone(owner: Owner, theirs: tuple[int, int] | None) -> None:
    ranges = {**EVERYTHING, MetadataRequest.API_KEY: theirs} if theirs else {18: (0, 4), 22: (0, 5)}
    async with FakeBroker(ranges=ranges) as broker:
        broker.on(InitProducerIdRequest, lambda _: InitProducerIdResponse(producer_id=5, producer_epoch=0))
        connection = await owner.open(broker)
        with pytest.raises(UnsupportedVersionError, match=r"speaks .* of Metadata, this client 4 to 13"):
            await connection.request(METADATA)
        assert (await connection.request(INIT)).producer_id == 5
        await end(connection)


# --- requests and answers ---------------------------------------------------------------------------------------------


async def test_requests_are_pipelined_and_answered_in_order(broker: FakeBroker, owner: Owner) -> None:
    broker.silent(MetadataRequest)
    connection = await owner.open(broker)
    sent = [Sent(connection) for _ in range(3)]
    requests = [await broker.next_request(MetadataRequest) for _ in sent]
    assert connection.in_flight_count == 3
    for request in requests:
        request.reply(broker.metadata())
    for each in sent:
        await each.ended.wait()
    assert [struct.unpack_from(">i", each.frames[0])[0] for each in sent] == [each.correlation_id for each in sent]
    assert connection.in_flight_count == 0
    assert owner.closed == []
    await end(connection)


async def test_answers_in_one_byte_pieces_are_put_together(broker: FakeBroker, owner: Owner) -> None:
    broker.silent(MetadataRequest)
    connection = await owner.open(broker)
    sent = [Sent(connection) for _ in range(2)]
    requests = [await broker.next_request(MetadataRequest) for _ in sent]
    for byte in b"".join(request.answer(broker.metadata()) for request in requests):
        requests[0].peer.send(bytes([byte]))
        await asyncio.sleep(0)
    for each in sent:
        await each.ended.wait()
        assert len(each.frames) == 1
    await end(connection)


async def test_an_answer_larger_than_the_read_buffer_arrives_whole(broker: FakeBroker, owner: Owner) -> None:
    connection = await owner.open(broker)
    brokers = [broker.address() for _ in range(60_000)]
    broker.on(MetadataRequest, lambda _: MetadataResponse(brokers=brokers, topics=[]))
    assert len((await connection.request(METADATA)).brokers) == 60_000
    await end(connection)


async def test_a_cancelled_wait_leaves_the_request_in_flight_and_drops_its_answer(
    broker: FakeBroker, owner: Owner
) -> None:
    broker.silent(MetadataRequest)
    connection = await owner.open(broker)
    waiting = asyncio.ensure_future(connection.request(METADATA))
    request = await broker.next_request(MetadataRequest)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert connection.in_flight_count == 1
    owner.changed.clear()
    request.reply(broker.metadata())
    await owner.change()
    assert connection.in_flight_count == 0
    broker.on(MetadataRequest, lambda _: broker.metadata())
    assert (await connection.request(METADATA)).cluster_id == "fake"
    await end(connection)


async def test_the_owner_hears_when_an_answer_makes_room(broker: FakeBroker, owner: Owner) -> None:
    connection = await owner.open(broker)
    before = owner.capacity
    await connection.request(METADATA)
    assert owner.capacity == before + 1
    await end(connection)


async def test_can_send_counts_what_is_in_flight(broker: FakeBroker, owner: Owner) -> None:
    broker.silent(MetadataRequest)
    connection = await owner.open(broker, max_in_flight_requests_per_connection=2)
    Sent(connection)
    assert connection.can_send(0)
    Sent(connection)
    assert not connection.can_send(0)
    await end(connection)
    assert connection.in_flight_count == 0
    assert not connection.can_send(0)


async def test_correlation_ids_stay_below_those_kept_for_sasl(broker: FakeBroker, owner: Owner) -> None:
    connection = await owner.open(broker)
    connection._correlation_id = MAX_CORRELATION_ID - 1
    assert [connection.next_correlation_id() for _ in range(3)] == [MAX_CORRELATION_ID, 0, 1]
    await end(connection)


# --- broken peers -----------------------------------------------------------------------------------------------------


TLS_ALERT = b"\x15\x03\x03\x00\x02\x02\x50"

GARBAGE: dict[str, Callable[[ReceivedRequest], bytes]] = {
    "wrong correlation id": lambda request: request.answer(request.broker.metadata(), correlation_id=77),
    "size of zero": lambda _: struct.pack(">i", 0),
    "size below the header": lambda _: struct.pack(">i", 3) + b"abc",
    "negative size": lambda _: struct.pack(">i", -1),
    "size above the limit": lambda _: struct.pack(">i", MAX_FRAME_BYTES + 1),
    "another protocol": lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "what begins like TLS": lambda _: TLS_ALERT,
}


@pytest.mark.parametrize("name", GARBAGE)
async def test_a_broken_answer_ends_the_connection_and_what_is_in_flight_may_be_retried(
    broker: FakeBroker, owner: Owner, name: str
) -> None:
    broker.silent(MetadataRequest)
    connection = await owner.open(broker)
    sent = [Sent(connection), Sent(connection)]
    request = await broker.next_request(MetadataRequest)
    request.peer.send(GARBAGE[name](request))
    for each in sent:
        await each.ended.wait()
        (error,) = each.errors
        assert isinstance(error, ConnectionLostError)
        assert error.retriable
        assert error.maybe_written
        assert isinstance(error.__cause__, ProtocolError)
    assert sent[0].errors[0] is not sent[1].errors[0]
    assert connection.closed
    (told,) = owner.closed
    assert isinstance(told, ConnectionLostError)
    await connection.wait_closed()
    await request.peer.gone.wait()
    assert owner.internal == []


async def test_an_answer_before_the_connection_is_ready_is_small(broker: FakeBroker, owner: Owner) -> None:
    """Decoding millions of versions would block the loop for seconds, from a peer that is not yet authenticated."""
    broker.on(ApiVersionsRequest, lambda _: struct.pack(">i", MAX_OPENING_BYTES + 1))
    told = f"an answer of {MAX_OPENING_BYTES + 1} bytes (allowed: 4 to {MAX_OPENING_BYTES})"
    with pytest.raises(ConnectionLostError, match=re.escape(told)) as raised:
        await owner.open(broker)
    assert not raised.value.maybe_written


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (TLS_ALERT, TlsError, "it speaks TLS, and this client does not: set security_protocol=SSL"),
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            ConnectionLostError,
            "it speaks HTTP, so this is not a Kafka broker's port",
        ),
        (
            b"SSH-2.0-OpenSSH_9.2\r\n",
            ConnectionLostError,
            r"an answer of \d+ bytes .*, so this may not be a Kafka broker's port: look at bootstrap_servers",
        ),
    ],
)
async def test_a_port_of_somebody_else(
    broker: FakeBroker, owner: Owner, answer: bytes, kind: type[KafkaError], text: str
) -> None:
    """Another protocol is recognized in the answer to the first request; later such bytes are just invalid."""
    broker.on(ApiVersionsRequest, lambda _: answer)
    with pytest.raises(kind, match=text) as caught:
        await owner.open(broker)
    assert type(caught.value) is kind
    assert not caught.value.maybe_written
    assert owner.internal == []


async def test_an_answer_to_no_request_ends_the_connection(broker: FakeBroker, owner: Owner) -> None:
    connection = await owner.open(broker)
    broker.peers[0].send(framed(struct.pack(">i", 1) + b"nobody asked"))
    await owner.change()
    assert "no request waits" in str(owner.closed[0])
    await connection.wait_closed()


async def test_a_body_that_makes_no_sense_fails_the_request_and_ends_the_connection(
    broker: FakeBroker, owner: Owner
) -> None:
    broker.on(MetadataRequest, lambda request: framed(struct.pack(">i", request.correlation_id) + b"\0garbage"))
    connection = await owner.open(broker)
    with pytest.raises(
        ProtocolError, match=rf"^node 1 \(127.0.0.1:{broker.port}\): MetadataResponse can't be read"
    ) as raised:
        await connection.request(METADATA)
    assert raised.value.maybe_written
    assert isinstance(owner.closed[0], ConnectionLostError)
    await connection.wait_closed()


async def test_a_callback_that_refuses_its_answer_is_told_that_it_has_none(broker: FakeBroker, owner: Owner) -> None:
    broker.silent(MetadataRequest)
    connection = await owner.open(broker)
    sent, later = Sent(connection), Sent(connection)

    def refuse(_: bytes) -> None:
        raise ProtocolError("not what was asked for")

    connection._in_flight._queue[0].on_response = refuse
    (await broker.next_request(MetadataRequest)).reply(broker.metadata())
    await sent.ended.wait()
    assert sent.frames == []
    assert "not what was asked for" in str(sent.errors[0])
    assert sent.errors[0].maybe_written
    await later.ended.wait()
    assert owner.internal == []
    await connection.wait_closed()


async def test_what_a_callback_raises_reaches_the_owner_and_ends_the_connection(
    broker: FakeBroker, owner: Owner
) -> None:
    connection = await owner.open(broker)

    def bug(_: bytes) -> None:
        raise ZeroDivisionError

    broker.silent(MetadataRequest)
    first, second = Sent(connection), Sent(connection)
    connection._in_flight._queue[0].on_response = bug
    (await broker.next_request(MetadataRequest)).reply(broker.metadata())
    await second.ended.wait()
    assert [type(error) for error in owner.internal] == [ZeroDivisionError]
    assert isinstance(second.errors[0].__cause__, ZeroDivisionError)
    assert first.errors == []  # before its own callback has run
    await connection.wait_closed()


async def test_what_an_error_callback_raises_does_not_keep_the_others_from_being_told(
    broker: FakeBroker, owner: Owner
) -> None:
    broker.silent(MetadataRequest)
    connection = await owner.open(broker)
    first, second = Sent(connection), Sent(connection)

    def bug(_: KafkaError) -> None:
        raise ZeroDivisionError

    connection._in_flight._queue[0].on_error = bug
    connection.abort(ConnectionLostError("end"))
    assert [type(error) for error in owner.internal] == [ZeroDivisionError]
    assert [str(error) for error in second.errors] == ["end"]
    assert first.errors == []
    await connection.wait_closed()


# --- lost connections -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["drop", "half_close"])
async def test_a_peer_that_goes_fails_what_is_in_flight(broker: FakeBroker, owner: Owner, how: str) -> None:
    broker.silent(MetadataRequest)
    connection = await owner.open(broker)
    sent = [Sent(connection), Sent(connection)]
    request = await broker.next_request(MetadataRequest)
    getattr(request.peer, how)()
    for each in sent:
        await each.ended.wait()
        assert isinstance(each.errors[0], ConnectionLostError)
        assert each.errors[0].maybe_written
    assert "node 1 (127.0.0.1:" in str(owner.closed[0])
    assert connection.closed
    await connection.wait_closed()
    await request.peer.gone.wait()


async def test_a_peer_that_goes_in_the_middle_of_an_answer(broker: FakeBroker, owner: Owner) -> None:
    broker.silent(MetadataRequest)
    connection = await owner.open(broker)
    sent = Sent(connection)
    request = await broker.next_request(MetadataRequest)
    request.peer.send(request.answer(broker.metadata())[:-1])
    request.peer.half_close()
    await sent.ended.wait()
    assert sent.frames == []
    assert isinstance(sent.errors[0], ConnectionLostError)
    await connection.wait_closed()


async def test_abort_tells_each_request_once_and_the_owner_first(broker: FakeBroker, owner: Owner) -> None:
    broker.silent(MetadataRequest)
    connection = await owner.open(broker)
    sent = Sent(connection)
    told_before = []
    connection._in_flight._queue[0].on_error = lambda error: told_before.append(list(owner.closed))
    reason = ConnectionLostError("enough")
    connection.abort(reason)
    connection.abort(ConnectionLostError("again"))
    assert told_before == [[reason]]
    assert owner.closed == [reason]
    assert sent.errors == []
    await connection.wait_closed()


async def test_a_request_on_a_closed_connection_is_surely_not_written(broker: FakeBroker, owner: Owner) -> None:
    connection = await owner.open(broker)
    connection.abort()
    sent = Sent(connection)
    assert sent.errors == []  # never called within send_frame
    assert sent.size_bytes == 0
    await sent.ended.wait()
    assert isinstance(sent.errors[0], ConnectionLostError)
    assert not sent.errors[0].maybe_written
    with pytest.raises(ConnectionLostError):
        await connection.request(METADATA)
    await connection.wait_closed()


async def test_a_token_without_a_header_when_this_side_closes(
    broker: FakeBroker, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers before 1.0 get such tokens; the login may be given up while one is unanswered."""
    connection = await owner.open(broker)
    arrived = asyncio.Event()

    async def take(peer: Any, frame: bytes) -> None:
        arrived.set()

    monkeypatch.setattr(broker, "_handle", take)
    login = asyncio.create_task(connection.exchange_bare(b"token"))
    await arrived.wait()
    connection.abort()
    with pytest.raises(ConnectionLostError, match="closed on this side") as caught:
        await login
    assert caught.value.maybe_written
    assert owner.closed == [None]
    await connection.wait_closed()


async def test_nothing_is_flushed_after_abort(broker: FakeBroker, owner: Owner) -> None:
    """A request that was reported as failed never reaches the broker."""
    connection = await owner.open(broker)
    peer = await broker.connected.get()
    peer.stop_reading()
    large = bytes(20_000_000)
    errors: list[KafkaError] = []
    connection.send_frame([large], connection.next_correlation_id(), 0, 10_000, lambda _: None, errors.append)
    assert connection._writer.transport.get_write_buffer_size() > 0
    connection.abort()
    await connection.wait_closed()
    assert connection._writer.transport.get_write_buffer_size() == 0
    assert len(errors) == 1
    peer.drop()


async def test_a_cancelled_reader_fails_what_is_in_flight(broker: FakeBroker, owner: Owner) -> None:
    """As asyncio.run does with all tasks when the program ends early."""
    broker.silent(MetadataRequest)
    connection = await owner.open(broker)
    sent = Sent(connection)
    connection._reader_task.cancel()
    await sent.ended.wait()
    assert isinstance(sent.errors[0], ConnectionLostError)
    await connection.wait_closed()


async def test_a_reader_that_is_cancelled_before_it_runs_ends_the_connection(broker: FakeBroker, owner: Owner) -> None:
    """Nobody would read its answers."""

    def cancelling(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(work, loop=loop, **options)
        if work.__qualname__ == "Connection._read":
            task.cancel()
        return task

    asyncio.get_running_loop().set_task_factory(cancelling)
    async with asyncio.timeout(5):
        with pytest.raises(ConnectionLostError, match="the reader of the connection was cancelled"):
            await owner.open(broker)


@pytest.mark.parametrize("answered", [True, False])
async def test_bytes_that_the_transport_refuses_fail_the_request(
    broker: FakeBroker, owner: Owner, answered: bool
) -> None:
    connection = await owner.open(broker)
    errors: list[KafkaError] = []
    wrong: Any = ["text"]
    connection.send_frame(wrong, 1, 0, 10_000, (lambda _: None) if answered else None, errors.append)
    assert len(errors) == 1
    assert isinstance(owner.internal[0], TypeError)
    assert isinstance(errors[0], ConnectionLostError)
    assert connection.closed
    await connection.wait_closed()


async def test_the_error_of_a_write_does_not_hold_what_was_written(broker: FakeBroker, owner: Owner) -> None:
    """The error is kept while a node is unreachable; the memory of the batches must be freed earlier."""

    class Reset:
        """A socket whose peer is gone, which a write notices first."""

        def __init__(self, sock: Any) -> None:
            self._sock = sock

        def __getattr__(self, name: str) -> Any:
            return getattr(self._sock, name)

        def send(self, _: object) -> int:
            raise ConnectionResetError("planted")

        sendmsg = send
        """How asyncio writes several buffers from Python 3.12 on."""

    connection = await owner.open(broker)
    transport: Any = connection._writer.transport
    if not hasattr(transport, "_sock"):
        pytest.skip("this loop writes in C, where no frames are")
    transport._sock = Reset(transport._sock)
    errors: list[KafkaError] = []

    buffers: list[bytes | memoryview] = [memoryview(bytearray(1_000))]
    written = weakref.ref(buffers[0])
    connection.send_frame(buffers, 1, 0, 10_000, lambda _: None, errors.append)
    await owner.change()
    await connection.wait_closed()
    assert "planted" in str(errors[0])
    assert isinstance(errors[0].__cause__, ConnectionResetError)
    assert written() is None


async def test_a_frame_that_was_read_before_the_end_is_dropped_after_it(broker: FakeBroker, owner: Owner) -> None:
    broker.silent(MetadataRequest)
    connection = await owner.open(broker)
    sent = Sent(connection)
    connection._reader.feed_data(framed(struct.pack(">i", sent.correlation_id)))
    connection.abort()
    await connection.wait_closed()
    assert sent.frames == []
    assert len(sent.errors) == 1


# --- deadlines --------------------------------------------------------------------------------------------------------


async def test_an_unanswered_request_ends_the_connection(broker: FakeBroker, owner: Owner) -> None:
    broker.silent(MetadataRequest)
    connection = await owner.open(broker)
    patient, late = Sent(connection, timeout_ms=60_000), Sent(connection, timeout_ms=30)
    await late.ended.wait()
    assert isinstance(late.errors[0], RequestTimedOutError)
    assert "Metadata was unanswered for" in str(late.errors[0])
    assert late.errors[0].maybe_written
    assert isinstance(patient.errors[0], ConnectionLostError)
    assert patient.errors[0].maybe_written
    assert isinstance(owner.closed[0], RequestTimedOutError)
    await connection.wait_closed()


@pytest.mark.parametrize(("acks", "arrives"), [(1, False), (0, True)])
async def test_what_the_system_has_not_sent_when_a_request_times_out(
    broker: FakeBroker, owner: Owner, monkeypatch: pytest.MonkeyPatch, acks: int, arrives: bool
) -> None:
    """It is dropped: a broker that wakes up would read what has been sent again meanwhile.

    With acks=0 nothing is sent again, and those bytes may be of records that count as delivered.
    """
    arrived: list[int] = []

    async def take(_: Peer, frame: bytes) -> None:
        arrived.append(len(frame))

    connection = await owner.open(broker, acks=acks, enable_idempotence=False)
    peer = await broker.connected.get()
    monkeypatch.setattr(broker, "_handle", take)
    peer.stop_reading()
    frame = framed(bytes(400_000))
    errors: list[KafkaError] = []
    connection.send_frame([frame], connection.next_correlation_id(), 0, 300, ignore, errors.append)
    while connection._writer.transport.get_write_buffer_size():
        await asyncio.sleep(0)
    await owner.change()
    await connection.wait_closed()
    assert isinstance(errors[0], RequestTimedOutError)
    peer.go_on_reading()
    await peer.gone.wait()
    assert arrived == ([400_000] if arrives else [])


async def test_request_timeout_ms_is_the_default_deadline(broker: FakeBroker, owner: Owner) -> None:
    broker.silent(MetadataRequest)
    connection = await owner.open(broker, request_timeout_ms=300)
    with pytest.raises(RequestTimedOutError):
        await connection.request(METADATA)
    await connection.wait_closed()


async def test_answers_in_time_leave_the_timer_quiet(broker: FakeBroker, owner: Owner) -> None:
    connection = await owner.open(broker)
    quick = Sent(connection, timeout_ms=300)
    await quick.ended.wait()
    broker.silent(MetadataRequest)
    second = Sent(connection, timeout_ms=400)
    await second.ended.wait()  # the first one's timer fired meanwhile and had nothing to do
    assert quick.errors == []
    assert isinstance(second.errors[0], RequestTimedOutError)
    await connection.wait_closed()


# --- throttling -------------------------------------------------------------------------------------------------------


async def test_a_throttled_connection_sends_nothing_until_then(broker: FakeBroker, owner: Owner) -> None:
    connection = await owner.open(broker)
    broker.on(MetadataRequest, lambda _: MetadataResponse(throttle_time_ms=5_000, brokers=[], topics=[]))
    await connection.request(METADATA)
    until_ms = connection.throttled_until_ms
    assert until_ms > 4_000
    assert not connection.can_send(until_ms - 1)
    assert connection.can_send(until_ms)
    await end(connection)


async def test_old_brokers_have_throttled_already_when_they_answer(owner: Owner) -> None:
    async with FakeBroker(ranges={**EVERYTHING, MetadataRequest.API_KEY: (4, 5)}) as broker:
        connection = await owner.open(broker)
        broker.on(MetadataRequest, lambda _: MetadataResponse(throttle_time_ms=5_000, brokers=[], topics=[]))
        await connection.request(METADATA)
        assert connection.throttled_until_ms == 0
        broker.on(EndTxnRequest, lambda _: EndTxnResponse(throttle_time_ms=5_000))
        await connection.request(EndTxnRequest(transactional_id="t", producer_id=1, producer_epoch=0, committed=True))
        assert connection.throttled_until_ms > 0
        await end(connection)


async def test_an_answer_that_nobody_waits_for_throttles_too(broker: FakeBroker, owner: Owner) -> None:
    """As when another broker was asked too and answered first."""
    connection = await owner.open(broker)
    broker.on(MetadataRequest, lambda _: MetadataResponse(throttle_time_ms=5_000, brokers=[], topics=[]))
    connection.exchange(METADATA, connection.version(MetadataRequest)).cancel()
    broker.on(EndTxnRequest, lambda _: EndTxnResponse())
    await connection.request(EndTxnRequest(transactional_id="t", producer_id=1, producer_epoch=0, committed=True))
    assert connection.throttled_until_ms > 4_000
    await end(connection)


async def test_requests_in_flight_get_the_throttle_time_on_top(broker: FakeBroker, owner: Owner) -> None:
    broker.silent(MetadataRequest)
    connection = await owner.open(broker)
    Sent(connection)
    before_ms = connection._in_flight.next_deadline_ms()
    now_ms = connection._now_ms()
    connection.throttle(now_ms + 60_000)
    connection.throttle(now_ms + 40_000)  # a shorter throttle time changes nothing
    assert connection.throttled_until_ms == now_ms + 60_000
    after_ms = connection._in_flight.next_deadline_ms()
    assert before_ms is not None
    assert after_ms is not None
    assert 55_000 <= after_ms - before_ms <= 60_000
    connection.throttle(now_ms + 10**9)
    assert 115_000 <= connection._in_flight.next_deadline_ms() - before_ms + 10_000 <= 120_000  # delivery_timeout_ms
    await end(connection)


async def test_a_connection_that_has_ended_goes_without_the_garbage_collector(broker: FakeBroker, owner: Owner) -> None:
    """Its parts have callbacks to it; if they kept these after the end, it and its buffers would be in a cycle."""
    connection = await owner.open(broker)
    Sent(connection)
    await end(connection)
    owner.closed.clear()
    gone = weakref.ref(connection)
    del connection
    assert await goes_by_itself(gone)


# --- without an answer ------------------------------------------------------------------------------------------------


async def test_a_frame_without_an_answer_that_left_at_once_is_not_in_flight(broker: FakeBroker, owner: Owner) -> None:
    broker.silent(MetadataRequest)
    connection = await owner.open(broker)
    sent = Sent(connection, answered=False)
    assert connection.in_flight_count == 0
    assert (await broker.next_request(MetadataRequest)).correlation_id == sent.correlation_id
    assert connection._write_buffer.task is None
    await end(connection)
    assert sent.errors == []


async def test_an_answer_that_was_not_expected_changes_nothing(broker: FakeBroker, owner: Owner) -> None:
    """Some brokers answer with acks=0 too."""
    connection = await owner.open(broker)
    unexpected = Sent(connection, answered=False)
    expected = Sent(connection)
    await expected.ended.wait()
    assert (len(unexpected.frames), len(expected.frames)) == (0, 1)
    assert owner.closed == []
    await end(connection)
    assert unexpected.errors == expected.errors == []


async def test_a_frame_without_an_answer_is_in_flight_until_the_transport_is_empty(
    broker: FakeBroker, owner: Owner
) -> None:
    connection = await owner.open(broker, send_buffer_bytes=65_536)
    peer = await broker.connected.get()
    peer.stop_reading()
    frame = encode_request(METADATA, 13, 5, "x" * 30_000)
    errors: list[KafkaError] = []
    sent = 0
    while connection.in_flight_count < 2:
        connection.send_frame([frame], connection.next_correlation_id(), 3, 10_000, None, errors.append)
        sent += 1
    broker.silent(MetadataRequest)
    owner.changed.clear()
    peer.go_on_reading()
    await owner.change()
    assert connection.in_flight_count == 0
    for _ in range(sent):
        await broker.next_request(MetadataRequest)
    await end(connection)
    assert errors == []


async def test_a_transport_that_does_not_count_as_full_is_looked_at_now_and_then(
    broker: FakeBroker, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some Pythons forget that after ``writelines``. The loop must not do nothing but look whether it is empty."""
    connection = await owner.open(broker)
    peer = await broker.connected.get()
    peer.stop_reading()
    looked = 0

    async def drain() -> None:
        nonlocal looked
        looked += 1

    monkeypatch.setattr(connection._writer, "drain", drain)
    monkeypatch.setattr(write_buffer, "LOOK_AGAIN_S", 1_000)
    connection.send_frame([bytes(20_000_000)], connection.next_correlation_id(), 0, 10_000, None, lambda _: None)
    for _ in range(100):
        await asyncio.sleep(0)
    assert looked == 1
    assert connection._write_buffer.task is not None
    connection._write_buffer.task.cancel()
    await connection.wait_closed()
    peer.drop()


async def test_a_peer_that_takes_no_bytes_is_given_up(broker: FakeBroker, owner: Owner) -> None:
    connection = await owner.open(broker)
    peer = await broker.connected.get()
    peer.stop_reading()
    errors: list[KafkaError] = []
    connection.send_frame([bytes(20_000_000)], connection.next_correlation_id(), 0, 30, None, errors.append)
    connection.send_frame([b"more"], connection.next_correlation_id(), 0, 10_000, None, errors.append)
    await owner.change()
    assert isinstance(owner.closed[0], RequestTimedOutError)
    assert "took no bytes" in str(owner.closed[0])
    await connection.wait_closed()
    peer.drop()


@pytest.mark.parametrize("has_run", [True, False])
async def test_a_cancelled_watch_of_the_write_buffer_ends_the_connection(
    broker: FakeBroker, owner: Owner, has_run: bool
) -> None:
    """Cancelling all tasks must not leave a connection that looks full forever."""
    connection = await owner.open(broker)
    peer = await broker.connected.get()
    peer.stop_reading()
    connection.send_frame([bytes(20_000_000)], connection.next_correlation_id(), 0, 10_000, None, lambda _: None)
    if has_run:
        await asyncio.sleep(0)
    assert connection._write_buffer.task is not None
    connection._write_buffer.task.cancel()
    await owner.change()
    assert connection.closed
    assert "the task that watches the write buffer was cancelled" in str(owner.closed[0])
    await connection.wait_closed()
    peer.drop()


async def test_deadlines_of_answers_and_of_writing_are_both_kept(broker: FakeBroker, owner: Owner) -> None:
    broker.silent(MetadataRequest)
    connection = await owner.open(broker)
    peer = await broker.connected.get()
    peer.stop_reading()
    answered = Sent(connection, timeout_ms=100)
    connection.send_frame([bytes(20_000_000)], connection.next_correlation_id(), 0, 10_000, None, lambda _: None)
    connection._deadlines.watch(connection._now_ms())  # a check before either is due
    await answered.ended.wait()
    assert isinstance(answered.errors[0], RequestTimedOutError)
    await connection.wait_closed()
    peer.drop()


async def test_a_lost_connection_forgets_the_frames_that_get_no_answer(broker: FakeBroker, owner: Owner) -> None:
    connection = await owner.open(broker)
    peer = await broker.connected.get()
    peer.stop_reading()
    errors: list[KafkaError] = []
    connection.send_frame([bytes(20_000_000)], connection.next_correlation_id(), 0, 10_000, None, errors.append)
    assert connection.in_flight_count == 1
    peer.drop()
    await owner.change()
    await connection.wait_closed()
    assert connection.in_flight_count == 0
    assert errors == []


# --- retiring ---------------------------------------------------------------------------------------------------------


async def test_a_retired_connection_ends_with_its_last_answer(broker: FakeBroker, owner: Owner) -> None:
    broker.silent(MetadataRequest)
    connection = await owner.open(broker)
    sent = Sent(connection)
    connection.close_when_idle()
    assert not connection.closed
    assert not connection.can_send(0)
    (await broker.next_request(MetadataRequest)).reply(broker.metadata())
    await sent.ended.wait()
    await owner.change()
    assert owner.closed == [None]
    assert len(sent.frames) == 1
    await connection.wait_closed()


async def test_a_connection_on_which_the_broker_is_in_charge_of_nothing_is_given_up(
    broker: FakeBroker, owner: Owner
) -> None:
    """It may lead to another broker than the one that the cluster names."""
    connection = await owner.open(broker)
    for attempts in range(1, ATTEMPTS_BELIEVED):
        connection.doubt(attempts)
    connection.in_charge = True
    connection.doubt(ATTEMPTS_BELIEVED)
    for attempts in range(ATTEMPTS_BELIEVED + 1, 2 * ATTEMPTS_BELIEVED):
        connection.doubt(attempts)
    assert not connection.closed
    connection.doubt(2 * ATTEMPTS_BELIEVED)
    assert connection.closed
    assert owner.closed == [None]
    await connection.wait_closed()


async def test_a_retired_connection_ends_when_what_gets_no_answer_has_left(broker: FakeBroker, owner: Owner) -> None:
    """All of it: with ``acks=0`` the records already count as sent."""
    broker.silent(MetadataRequest)
    connection = await owner.open(broker, send_buffer_bytes=65_536)
    peer = await broker.connected.get()
    peer.stop_reading()
    frame = encode_request(METADATA, 13, 5, "x" * 30_000)
    sent = 0
    while connection.in_flight_count < 2:
        connection.send_frame([frame], connection.next_correlation_id(), 3, 10_000, None, lambda _: None)
        sent += 1
    connection.close_when_idle()
    assert not connection.closed
    owner.changed.clear()
    peer.go_on_reading()
    await owner.change()
    for _ in range(sent):
        await broker.next_request(MetadataRequest)
    assert owner.closed == [None]
    await connection.wait_closed()


async def test_an_idle_connection_retires_at_once(broker: FakeBroker, owner: Owner) -> None:
    connection = await owner.open(broker)
    connection.close_when_idle()
    assert owner.closed == [None]
    await connection.wait_closed()


# --- names ------------------------------------------------------------------------------------------------------------


async def test_texts_name_the_broker_and_no_content(broker: FakeBroker, owner: Owner) -> None:
    broker.silent(EndTxnRequest)
    connection = await owner.open(broker)
    assert str(connection) == f"node 1 (127.0.0.1:{broker.port})"
    assert repr(connection) == f"<Connection to node 1 (127.0.0.1:{broker.port}), 0 in flight>"
    await end(connection)
    assert "closed" in repr(connection)
