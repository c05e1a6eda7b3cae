"""Connections by node id, against scripted peers on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import random
import socket
import sys
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from aioproducer.cluster import Broker
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import (
    BootstrapError,
    ConnectionLostError,
    KafkaError,
    ProducerClosedError,
    ProtocolError,
    RebootstrapRequiredError,
    RequestTimedOutError,
    SaslAuthenticationFailedError,
    UnsupportedVersionError,
)
from aioproducer.log_limit import WARN_EVERY_MS, LogLimit
from aioproducer.metrics import ProducerMetrics
from aioproducer.net import client as client_module
from aioproducer.net import dialer, opening
from aioproducer.net import node as node_module
from aioproducer.net import nodes as nodes_module
from aioproducer.net.client import NetworkClient
from aioproducer.net.connection import Connection
from aioproducer.net.route import Streams, open_stream
from aioproducer.protocol.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from aioproducer.protocol.end_txn import EndTxnRequest, EndTxnResponse
from aioproducer.protocol.header import encode_request
from aioproducer.protocol.metadata import MetadataRequest, MetadataResponse
from tests.eager import make_tasks_eager
from tests.unit.core import messages_of
from tests.unit.lifetimes import goes_by_itself
from tests.unit.net.fake_broker import EVERYTHING, FakeBroker, ReceivedRequest, closed_port, end_with_answer
from tests.unit.net.stand_in import StandIn

METADATA = MetadataRequest(topics=[])


class Client(NetworkClient):
    """A client that records the calls to its owner."""

    def __init__(
        self,
        *servers: FakeBroker | str,
        authenticate: Callable[[Connection], Awaitable[None]] | None = None,
        metrics: ProducerMetrics | None = None,
        **values: object,
    ) -> None:
        names = [each if isinstance(each, str) else f"{each.host}:{each.port}" for each in servers]
        self.internal: list[BaseException] = []
        self.disconnects: list[tuple[int, KafkaError]] = []
        self.changed = asyncio.Event()
        super().__init__(
            ProducerConfig.parse({"bootstrap_servers": names or ["unused:1"], **values}),
            loop=asyncio.get_running_loop(),
            rng=random.Random(1),
            on_internal_error=self.internal.append,
            authenticate=authenticate,
            metrics=metrics,
        )
        self.on_change = self.changed.set
        self.on_disconnect = self._note
        self.failed_ms = 0

    def _note(self, node_id: int, error: KafkaError) -> None:
        self.disconnects.append((node_id, error))
        self.failed_ms = self.now_ms

    def connection(self, node_id: int) -> Connection | None:
        """The open connection to a node, busy or not."""
        node = self._nodes.by_id.get(node_id)
        return None if node is None or node.connection is None or node.connection.closed else node.connection

    @property
    def now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def soon(self, ms: int = 10_000) -> int:
        return self.now_ms + ms

    def know(self, *brokers: FakeBroker) -> None:
        self.set_brokers({each.node_id: Broker(each.node_id, each.host, each.port) for each in brokers})

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until a change makes a condition true."""
        while not condition():
            self.changed.clear()
            await self.changed.wait()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
        assert self.internal == []
        assert self.connection_count == 0


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker() as running:
        yield running


@pytest.fixture
async def other() -> AsyncIterator[FakeBroker]:
    async with FakeBroker(node_id=2) as running:
        yield running


@pytest.fixture
async def hanging() -> AsyncIterator[FakeBroker]:
    """A server that accepts connections and never sends anything."""
    async with FakeBroker(node_id=3) as running:
        running.silent(ApiVersionsRequest)
        yield running


# --- bootstrap --------------------------------------------------------------------------------------------------------


async def test_bootstrap_asks_for_the_brokers_alone(broker: FakeBroker) -> None:
    async with Client(broker) as client:
        response = await client.bootstrap(client.soon())
        assert [each.node_id for each in response.brokers] == [1]
        assert broker.requests[-1].decode().topics == []


async def test_bootstrap_takes_the_first_address_that_answers_in_the_given_order(
    broker: FakeBroker, other: FakeBroker
) -> None:
    async with Client(f"127.0.0.1:{closed_port()}", other, broker) as client:
        response = await client.bootstrap(client.soon())
        assert [each.node_id for each in response.brokers] == [2]
        assert broker.requests == []


async def test_bootstrap_error_holds_every_address_with_its_cause(broker: FakeBroker) -> None:
    broker.on(MetadataRequest, lambda _: MetadataResponse(brokers=[], topics=[]))
    async with FakeBroker(ranges={18: (0, 4)}) as ancient, FakeBroker() as http:
        http.on(ApiVersionsRequest, lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n")
        async with Client(f"127.0.0.1:{closed_port()}", broker, ancient, http, "no-such-host.invalid:9092") as client:
            with pytest.raises(BootstrapError) as caught:
                await client.bootstrap(client.soon())
            assert [address for address, _ in caught.value.failures] == [
                f"{host}:{port}" for host, port in client._config.bootstrap_servers
            ]
            refused, empty, too_old, nonsense, unknown = [cause for _, cause in caught.value.failures]
            assert isinstance(refused.__cause__, ConnectionRefusedError)
            assert str(refused).endswith(os.strerror(errno.ECONNREFUSED))
            assert isinstance(empty, ProtocolError)
            assert "knows of no broker" in str(empty)
            assert isinstance(too_old, UnsupportedVersionError)
            assert "broke the protocol" in str(nonsense)
            assert "can't be resolved" in str(unknown)
            assert isinstance(unknown.__cause__, socket.gaierror)
            assert isinstance(caught.value, TimeoutError)
            assert not caught.value.maybe_written


async def test_errors_show_an_ipv6_address_as_it_is_configured() -> None:
    async with Client(server := f"[::1]:{closed_port()}") as client:
        with pytest.raises(BootstrapError) as caught:
            await client.bootstrap(client.soon())
    ((address, cause),) = caught.value.failures
    assert address == server
    assert f"no connection to {server}: [Errno " in str(cause)


@pytest.mark.parametrize("config", ["socket_connection_setup_timeout_ms", "socket_connection_setup_timeout_max_ms"])
async def test_an_address_that_hangs_is_left_after_its_setup_timeout(hanging: FakeBroker, config: str) -> None:
    async with Client(hanging, **{config: 300}) as client:
        with pytest.raises(BootstrapError, match=r"not ready within 300 ms \(socket_connection_setup_timeout_ms\)"):
            await client.bootstrap(client.soon())
        await hanging.peers[0].gone.wait()


async def test_an_address_whose_login_hangs_is_left_after_request_timeout_ms(broker: FakeBroker) -> None:
    """If that is shorter: setting up a connection takes no longer than a request may."""

    async def hang(_: Connection) -> None:
        await asyncio.Event().wait()

    async with Client(broker, authenticate=hang, request_timeout_ms=30) as client:
        with pytest.raises(BootstrapError, match=r"not ready within 30 ms \(request_timeout_ms\)"):
            await client.bootstrap(client.soon())


async def test_bootstrap_tries_each_address_once(hanging: FakeBroker) -> None:
    """However much of max_block_ms is left: a program that wants to wait for a cluster calls start() again."""
    async with Client(hanging, f"127.0.0.1:{closed_port()}", socket_connection_setup_timeout_ms=30) as client:
        with pytest.raises(BootstrapError):
            await client.bootstrap(client.soon(60_000))
        assert len(hanging.peers) == 1


async def test_bootstrap_ends_at_its_deadline(hanging: FakeBroker, broker: FakeBroker) -> None:
    async with Client(hanging, broker) as client:
        with pytest.raises(BootstrapError) as caught:
            await client.bootstrap(client.soon(50))
        assert "left of max_block_ms" in str(caught.value.failures[0][1])
        assert "no time was left" in str(caught.value.failures[1][1])
        assert broker.requests == []


@pytest.mark.parametrize("throttle_ms", [0, 60_000])
async def test_a_metadata_request_of_bootstrap_ends_at_the_deadline_too(broker: FakeBroker, throttle_ms: int) -> None:
    """Also if the broker throttles, and may take longer for its answer than a request has otherwise."""
    versions = broker.api_versions()
    versions.throttle_time_ms = throttle_ms
    broker.on(ApiVersionsRequest, lambda _: versions)
    broker.silent(MetadataRequest)
    async with Client(broker) as client:
        async with asyncio.timeout(10.0):
            with pytest.raises(BootstrapError) as caught:
                await client.bootstrap(client.soon(300))
        assert "did not answer within what was left of max_block_ms" in str(caught.value.failures[0][1])


async def test_bootstrap_can_be_tried_again(broker: FakeBroker) -> None:
    async with Client(broker) as client:
        await broker.stop()
        with pytest.raises(BootstrapError):
            await client.bootstrap(client.soon())
        await broker.start()
        assert (await client.bootstrap(client.soon())).brokers


@pytest.mark.parametrize("unknown_lookups", [0, 1, 3])
async def test_bootstrap_waits_until_a_name_is_known(broker: FakeBroker, unknown_lookups: int) -> None:
    """KIP-909. Only one of the names has to be known."""
    lookups: list[str] = []

    async def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        lookups.append(host)
        if host == "never.example" or lookups.count(host) <= unknown_lookups:
            raise socket.gaierror(socket.EAI_AGAIN, "not yet")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    servers = [f"never.example:{broker.port}", f"late.example:{broker.port}"]
    async with Client(*servers, bootstrap_resolve_timeout_ms=60_000) as client:
        client._loop = client._dialer._loop = Resolving(client._loop, getaddrinfo)  # type: ignore[assignment]
        assert (await client.bootstrap(client.soon())).brokers
    assert lookups.count("late.example") == unknown_lookups + 2  # the last to connect


@pytest.mark.parametrize(("limit_ms", "left_ms"), [(1, 60_000), (60_000, 50), (0, 60_000)])
async def test_bootstrap_does_not_wait_longer_for_a_name(limit_ms: int, left_ms: int) -> None:
    async def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_AGAIN, "not yet")

    async with Client("never.example:9092", bootstrap_resolve_timeout_ms=limit_ms) as client:
        client._loop = client._dialer._loop = Resolving(client._loop, getaddrinfo)  # type: ignore[assignment]
        with pytest.raises(BootstrapError, match=r"never\.example can't be resolved"):
            await client.bootstrap(client.soon(left_ms))


async def test_wrong_credentials_end_bootstrap_at_once(broker: FakeBroker, other: FakeBroker) -> None:
    async def refuse(_: Connection) -> None:
        raise SaslAuthenticationFailedError("wrong password")

    async with Client(broker, other, authenticate=refuse) as client:
        with pytest.raises(SaslAuthenticationFailedError):
            await client.bootstrap(client.soon())
        assert other.peers == []


async def test_all_addresses_of_a_name_are_tried(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    asked = []

    async def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in ("127.9.9.9", "127.0.0.1")]

    proxy = Resolving(loop, getaddrinfo)
    async with Client(f"kafka.example:{broker.port}") as client:
        client._dialer._loop = proxy  # type: ignore[assignment]
        await client.bootstrap(client.soon())
        assert client._nodes.bootstrap is not None
        assert (client._nodes.bootstrap.host, client._nodes.bootstrap.address) == ("kafka.example", "127.0.0.1")
        await client.rebootstrap()
        assert asked == ["kafka.example", "kafka.example"]


async def test_a_name_of_several_brokers_of_which_one_refuses(broker: FakeBroker) -> None:
    """It ends the first attempt, which shows a wrong password at once; later, the name's next address is tried."""
    refusals = 0

    async def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in ("127.9.9.1", "127.9.9.2")]

    async def refuse(_: Connection) -> None:
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise SaslAuthenticationFailedError("too many connects")

    async with Client(f"kafka.example:{broker.port}", authenticate=refuse) as client:
        open_connection = client._dialer._open
        client._dialer._loop = Resolving(client._loop, getaddrinfo)  # type: ignore[assignment]
        client._dialer._open = lambda _, *rest: open_connection("127.0.0.1", *rest)  # type: ignore[method-assign]
        refusals = 1
        with pytest.raises(SaslAuthenticationFailedError):
            await client.bootstrap(client.soon())
        refusals = 1
        await client.rebootstrap()
        assert not refusals
        refusals = 2
        with pytest.raises(SaslAuthenticationFailedError):
            await client.rebootstrap()


async def test_canonical_names_replace_the_configured_ones(broker: FakeBroker) -> None:
    async def getnameinfo(address: tuple[str, int]) -> tuple[str, str]:
        return "localhost", str(address[1])

    async with Client(broker, client_dns_lookup="resolve_canonical_bootstrap_servers_only") as client:
        client._loop = Resolving(client._loop, getnameinfo=getnameinfo)  # type: ignore[assignment]
        await client.bootstrap(client.soon())
        assert client._nodes.bootstrap is not None
        assert client._nodes.bootstrap.host == "localhost"


async def test_a_name_that_can_not_be_made_canonical_is_passed_over(broker: FakeBroker) -> None:
    lookup = "resolve_canonical_bootstrap_servers_only"
    async with Client("no-such-host.invalid:9092", client_dns_lookup=lookup) as client:
        with pytest.raises(BootstrapError) as caught:
            await client.bootstrap(client.soon())
        ((address, cause),) = caught.value.failures
        assert address == "no-such-host.invalid:9092"
        assert isinstance(cause, socket.gaierror)


class Resolving:
    """The running loop with the test's resolver, because uvloop's can't be patched."""

    def __init__(self, loop: asyncio.AbstractEventLoop, getaddrinfo: Any = None, getnameinfo: Any = None) -> None:
        self._loop = loop
        self.getaddrinfo = getaddrinfo or loop.getaddrinfo
        self.getnameinfo = getnameinfo or loop.getnameinfo

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


async def test_brokers_are_told_who_they_are_taken_for(broker: FakeBroker, other: FakeBroker) -> None:
    """KIP-1242, once a broker of the cluster has said that it knows this version of ApiVersions."""
    async with Client(broker) as client:
        client.name_cluster("fake")
        await client.bootstrap(client.soon())
        client.know(broker, other)
        await client.ready_connection(2, client.soon())
    first, second = (each.requests[0] for each in (broker, other))
    assert (first.version, first.decode().cluster_id, first.decode().node_id) == (4, None, -1)
    assert (second.version, second.decode().cluster_id, second.decode().node_id) == (5, "fake", 2)


@pytest.mark.parametrize(
    ("values", "newest"),
    [({"metadata_cluster_check_enable": False}, 5), ({"metadata_recovery_strategy": "none"}, 5), ({}, 4)],
)
async def test_no_broker_is_told_who_it_is(
    broker: FakeBroker, other: FakeBroker, values: dict[str, object], newest: int
) -> None:
    """If a config turns it off, or the latest broker does not know this version of ApiVersions."""
    for each in (broker, other):
        each.ranges = {**each.ranges, ApiVersionsRequest.API_KEY: (0, newest)}
    async with Client(broker, **values) as client:
        await client.bootstrap(client.soon())
        client.name_cluster("fake")
        client.know(broker, other)
        await client.ready_connection(2, client.soon())
    assert [(each.version, each.decode().cluster_id) for each in other.requests] == [(4, None)]


async def test_a_broker_that_is_another_one_is_not_connected(broker: FakeBroker, other: FakeBroker) -> None:
    """The attempt fails and is repeated, as the name may lead to the right one later."""
    refusal: ApiVersionsResponse | None = ApiVersionsResponse(error_code=129, api_keys=[])
    other.on(ApiVersionsRequest, lambda _: refusal or other.api_versions())
    async with Client(broker, reconnect_backoff_ms=1) as client:
        await client.bootstrap(client.soon())
        client.name_cluster("fake")
        client.know(broker, other)
        client.connect_soon(2)
        await client.until(lambda: client.disconnects)
        ((node_id, error),) = client.disconnects
        assert (node_id, isinstance(error.__cause__, RebootstrapRequiredError), error.maybe_written) == (2, True, False)
        assert str(error).endswith("is another broker, or not one of the cluster fake")
        assert client.connection(1) is not None
        refusal = None
        assert (await client.ready_connection(2, client.soon())).node_id == 2


async def test_the_bootstrap_connection_becomes_that_of_the_node_at_its_address(broker: FakeBroker) -> None:
    async with Client(broker) as client:
        await client.bootstrap(client.soon())
        assert not client.free_connection(1, client.now_ms)
        client.know(broker)
        assert client.free_connection(1, client.now_ms)
        connection = client.connection(1)
        assert connection is not None
        assert connection.node_id == 1
        client.connect_soon(1)
        assert len(broker.peers) == 1


async def test_a_bootstrap_connection_that_ends_with_its_answer(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is used, and the node at that address gets a new connection."""
    end_with_answer(monkeypatch, MetadataRequest)
    async with Client(broker) as client:
        assert [each.node_id for each in (await client.bootstrap(client.soon())).brokers] == [1]
        assert not client.bootstrapped
        assert client.connection_count == 0
        client.know(broker)
        client.connect_soon(1)
        await client.until(lambda: client.free_connection(1, client.now_ms))
        assert len(broker.peers) == 2


async def test_a_connection_that_ends_as_soon_as_it_is_made_is_made_again(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_with_answer(monkeypatch, ApiVersionsRequest)
    async with Client(broker, reconnect_backoff_ms=1) as client:
        client.know(broker)
        connection = await client.ready_connection(1, client.soon())
        assert len(broker.peers) == 2
        assert connection is client.connection(1)
        ((node_id, error),) = client.disconnects
        assert node_id == 1
        assert "closed the connection" in str(error)


async def test_a_bootstrap_connection_to_another_address_serves_until_a_node_is_connected(
    broker: FakeBroker, other: FakeBroker
) -> None:
    async with Client(broker) as client:
        await client.bootstrap(client.soon())
        client.know(other)
        bootstrap = client.least_loaded(client.now_ms)
        assert bootstrap is not None
        assert bootstrap.node_id == -1
        client._nodes.by_id[2].retry_at_ms = client.soon()
        assert not client._nodes.exhausted(client.now_ms)
        client._nodes.by_id[2].retry_at_ms = 0
        client.connect_soon(2)
        await client.until(lambda: client.free_connection(2, client.now_ms))
        assert bootstrap.closed
        assert client.least_loaded(client.now_ms) is client.connection(2)
        assert client.disconnects == []


async def test_a_second_bootstrap_replaces_the_connection_of_the_first(broker: FakeBroker) -> None:
    async with Client(broker) as client:
        await client.bootstrap(client.soon())
        first = client.least_loaded(client.now_ms)
        await client.bootstrap(client.soon())
        assert first is not None
        assert first.closed
        assert client.least_loaded(client.now_ms) is not None


async def test_a_broker_that_refuses_metadata_is_passed_over(broker: FakeBroker, other: FakeBroker) -> None:
    broker.on(MetadataRequest, lambda _: MetadataResponse(brokers=[], topics=[], error_code=129))
    async with Client(broker, other) as client:
        assert [each.node_id for each in (await client.bootstrap(client.soon())).brokers] == [2]
        await broker.peers[0].gone.wait()


# --- connecting -------------------------------------------------------------------------------------------------------


async def test_connect_soon_makes_one_connection_and_says_when_it_is_ready(broker: FakeBroker) -> None:
    async with Client() as client:
        client.know(broker)
        now_ms = client.now_ms
        assert client.retry_at_ms(1, now_ms) == now_ms
        client.connect_soon(1)
        client.connect_soon(1)
        assert client.connection(1) is None
        assert client.retry_at_ms(1, client.now_ms) is None
        await client.until(lambda: client.free_connection(1, client.now_ms))
        client.connect_soon(1)
        connection = client.connection(1)
        assert connection is not None
        assert (await connection.request(METADATA)).cluster_id == "fake"
        assert len(broker.peers) == 1


async def test_unknown_nodes_are_never_ready() -> None:
    async with Client() as client:
        client.connect_soon(7)
        assert not client.free_connection(7, client.now_ms)
        assert client.connection(7) is None
        assert client.retry_at_ms(7, client.now_ms) is None
        assert client.authentication_error(7) is None
        with pytest.raises(ConnectionLostError, match="no node 7"):
            await client.ready_connection(7, client.soon())


async def test_failed_attempts_back_off_and_ready_resets_it(broker: FakeBroker) -> None:
    async with Client(reconnect_backoff_ms=1000, reconnect_backoff_max_ms=100_000) as client:
        await broker.stop()
        client.know(broker)
        delays: list[int] = []
        for _ in range(3):
            connected = asyncio.ensure_future(client.ready_connection(1, client.soon()))
            await client.until(lambda: len(client.disconnects) > len(delays))
            delays.append(client._nodes.by_id[1].retry_at_ms - client.failed_ms)
            client.connect_soon(1)
            assert not client._nodes.by_id[1].connecting
            connected.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await connected
            client._nodes.by_id[1].retry_at_ms = client.now_ms  # skip the back-off
        assert 700 <= delays[0] <= 1200
        assert 1500 <= delays[1] <= 2400
        assert 3100 <= delays[2] <= 4800
        assert all(
            isinstance(error, ConnectionLostError) and not error.maybe_written for _, error in client.disconnects
        )
        await broker.start()
        await client.ready_connection(1, client.soon())
        (await broker.connected.get()).drop()
        await client.until(lambda: client.connection(1) is None)
        assert 700 <= client._nodes.by_id[1].retry_at_ms - client.failed_ms <= 1200


async def test_an_attempt_that_is_cancelled_before_it_runs_is_repeated(broker: FakeBroker) -> None:
    """Whoever cancels all tasks there are must not lock the producer out of a broker."""
    async with Client(reconnect_backoff_ms=1) as client:
        client.know(broker)
        client.connect_soon(1)
        (attempt,) = client._tasks
        attempt.cancel()
        async with asyncio.timeout(5):
            await client.ready_connection(1, client.soon())


async def test_a_node_that_stays_away_is_warned_of_once_a_minute(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Client(reconnect_backoff_ms=0, reconnect_backoff_max_ms=0) as client:
        client.know(broker)
        await broker.stop()

        async def fail() -> None:
            before = len(client.disconnects)
            client.connect_soon(1)
            await client.until(lambda: len(client.disconnects) > before)

        def told() -> list[str]:
            return messages_of(caplog, "aioproducer.client")

        for _ in range(3):
            await fail()
        (warning,) = told()
        assert warning.startswith(f"node 1: no connection to {broker.host}:{broker.port}: ")
        monkeypatch.setattr(client, "_now_ms", lambda: client.now_ms + WARN_EVERY_MS)
        await fail()
        assert told() == [warning, warning]


async def test_a_node_that_was_warned_of_is_told_of_when_it_is_back(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, also if the bootstrap connection becomes its own; not after a connection that has just ended."""
    caplog.set_level(logging.INFO, "aioproducer.client")

    async def found_by_bootstrap() -> None:
        await client.bootstrap()
        client.know(broker)

    async def connected() -> None:
        await client.ready_connection(1, client.soon())

    async with Client(broker, reconnect_backoff_ms=0, reconnect_backoff_max_ms=0) as client:
        client.know(broker)
        for connect in (connected, found_by_bootstrap):
            await connected()
            broker.peers[-1].drop()
            await client.until(lambda: client.connection(1) is None)
            await connected()
            assert not caplog.records
            await broker.stop()
            await client.until(lambda: client.connection(1) is None)
            client.connect_soon(1)
            await client.until(lambda: caplog.records)
            await broker.start()
            await connect()
            warned, back = messages_of(caplog, level=logging.INFO)
            assert warned.startswith("node 1: no connection to ")
            assert back == "node 1: connected again, after 0 s"
            caplog.clear()
            client._warnings = LogLimit(WARN_EVERY_MS)


async def test_a_silent_node_is_warned_of_and_one_that_ends_a_connection_is_not(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with Client(broker, request_timeout_ms=50) as client:
        client.know(broker)
        connection = await client.ready_connection(1, client.soon())
        broker.peers[0].drop()
        await client.until(lambda: connection.closed)
        assert caplog.records == []
        connection = await client.ready_connection(1, client.soon())
        broker.silent(MetadataRequest)
        with pytest.raises(RequestTimedOutError):
            await connection.request(METADATA)
        (told,) = messages_of(caplog)
        assert told == (
            f"node 1: node 1 ({broker.host}:{broker.port}) left a request unanswered for too long (request_timeout_ms)"
        )


@pytest.mark.parametrize(
    "host", ["kafka..local", ".local", "a" * 64 + ".local", "\u00fc" * 70, "::1%" + "a" * 61, "::1%a..b"]
)
async def test_a_host_that_no_name_service_can_be_asked_for(host: str) -> None:
    """It counts as an unreachable broker, whether the name comes from the configs or from the cluster."""
    async with Client(f"[{host}]:9092" if ":" in host else f"{host}:9092") as client:
        with pytest.raises(BootstrapError, match="can't be resolved"):
            await client.bootstrap()
        client.set_brokers({1: Broker(1, host, 9092)})
        client.connect_soon(1)
        async with asyncio.timeout(5):
            await client.until(lambda: client.disconnects)
        assert isinstance(client.disconnects[0][1], ConnectionLostError)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("port", [-1, 65536])
async def test_a_port_that_there_is_not(host: str, port: int) -> None:
    """Brokers advertise whatever is configured."""
    async with Client() as client:
        client.set_brokers({1: Broker(1, host, port)})
        client.connect_soon(1)
        await client.until(lambda: client.disconnects)
        assert isinstance(client.disconnects[0][1], ConnectionLostError)


async def test_an_attempt_that_takes_too_long_is_given_up_and_the_next_may_take_longer(hanging: FakeBroker) -> None:
    async with Client(socket_connection_setup_timeout_ms=300, socket_connection_setup_timeout_max_ms=10_000) as client:
        client.know(hanging)
        client.connect_soon(3)
        await client.until(lambda: client.disconnects)
        assert "not ready within" in str(client.disconnects[0][1])
        assert client.retry_at_ms(3, client.now_ms) is not None
        assert 480 <= client._nodes.by_id[3].limit_ms() <= 720
        await hanging.peers[0].gone.wait()


def addresses_tried(client: Client) -> list[str]:
    """The addresses to which it tries to connect from now on."""
    tried: list[str] = []
    open_connection = client._dialer._open

    async def note(address: str, *rest: Any) -> Connection:
        tried.append(address)
        return await open_connection(address, *rest)

    client._dialer._open = note  # type: ignore[assignment, method-assign]
    return tried


OFF = "127.9.9.9"


class Ignoring:
    """A network that drops the packets of so many attempts to connect to an address; all lead to this machine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, ignored: dict[str, int]) -> None:
        self.ignored = ignored
        self.tried: list[str] = []
        monkeypatch.setattr(opening, "open_stream", self._open_stream)
        monkeypatch.setattr(dialer, "ACCEPT_MS", 20)

    async def _open_stream(self, config: ProducerConfig, address: str, port: int, *, limit: int) -> Streams:
        self.tried.append(address)
        if self.ignored.get(address, 0):
            self.ignored[address] -= 1
            await asyncio.Event().wait()
        return await open_stream(config, "127.0.0.1", port, limit=limit)


async def test_bootstrap_tries_the_others_while_a_machine_is_off(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If there is no other that will do, it is tried again: perhaps only a packet was lost."""
    for other_port, tried in (broker.port, [OFF, "127.0.0.1"]), (closed_port(), [OFF, "127.0.0.1", OFF]):
        network = Ignoring(monkeypatch, {OFF: 1})
        async with Client(f"{OFF}:{broker.port}", f"127.0.0.1:{other_port}") as client:
            assert (await client.bootstrap(client.soon())).brokers
        assert network.tried == tried


@pytest.mark.parametrize(("limit_ms", "attempts"), [(60, 2), (10, 1)])
async def test_machines_that_are_off_have_their_whole_time(
    monkeypatch: pytest.MonkeyPatch, limit_ms: int, attempts: int
) -> None:
    network = Ignoring(monkeypatch, {OFF: 9, "127.8.8.8": 9})
    servers = [f"{OFF}:1", "127.8.8.8:1"]
    async with Client(*servers, socket_connection_setup_timeout_ms=limit_ms) as client:
        with pytest.raises(BootstrapError) as caught:
            await client.bootstrap(client.soon())
    assert network.tried == [OFF, "127.8.8.8"] * attempts
    assert str(caught.value).count(f"not ready within {limit_ms} ms (socket_connection_setup_timeout_ms)") == 2


@pytest.mark.parametrize(("ignored", "tried"), [(1, [OFF, "127.0.0.1"]), (0, [OFF])])
async def test_the_next_address_of_a_name_is_tried_while_a_machine_is_off(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, ignored: int, tried: list[str]
) -> None:
    async def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in (OFF, "127.0.0.1")]

    network = Ignoring(monkeypatch, {OFF: ignored})
    async with Client() as client:
        client._dialer._loop = Resolving(client._loop, getaddrinfo)  # type: ignore[assignment]
        client.set_brokers({1: Broker(1, "kafka.example", broker.port)})
        await client.ready_connection(1, client.soon())
    assert network.tried == tried


async def test_the_next_attempt_begins_with_the_next_address(broker: FakeBroker) -> None:
    asked = []

    async def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in ("127.0.0.1", "127.9.9.9")]

    async with Client(reconnect_backoff_ms=0) as client:
        client._dialer._loop = Resolving(client._loop, getaddrinfo)  # type: ignore[assignment]
        client.set_brokers({1: Broker(1, "kafka.example", broker.port)})
        await client.ready_connection(1, client.soon())
        (await broker.connected.get()).drop()
        await client.until(lambda: client.connection(1) is None)
        tried = addresses_tried(client)
        await client.ready_connection(1, client.soon())
        assert tried == ["127.9.9.9", "127.0.0.1"]
        assert len(asked) == 2


async def test_an_address_that_failed_where_another_accepted_comes_last(broker: FakeBroker) -> None:
    """As one of IPv6 to which no packets get: it would cost each new connection its ten seconds."""
    dead, good = "127.9.9.9", "127.0.0.1"

    async def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in (dead, good)]

    async with Client(reconnect_backoff_ms=0, reconnect_backoff_max_ms=0) as client:
        client._dialer._loop = Resolving(client._loop, getaddrinfo)  # type: ignore[assignment]
        client.set_brokers({1: Broker(1, "kafka.example", broker.port)})
        tried = addresses_tried(client)
        for expected in ([dead, good], [good], [good]):
            tried.clear()
            await client.ready_connection(1, client.soon())
            assert tried == expected
            (await broker.connected.get()).drop()
            await client.until(lambda: client.connection(1) is None)
        await broker.stop()
        for expected in ([good, dead], [dead, good]):  # once none accepts, nothing is known of them any more
            tried.clear()
            failures = len(client.disconnects)
            client.connect_soon(1)
            await client.until(lambda: len(client.disconnects) > failures)  # noqa: B023
            assert tried == expected


async def test_a_lost_connection_is_told_and_fails_nothing_else(broker: FakeBroker, other: FakeBroker) -> None:
    async with Client() as client:
        client.know(broker, other)
        for node_id in 1, 2:
            await client.ready_connection(node_id, client.soon())
        broker.peers[0].drop()
        await client.until(lambda: client.connection(1) is None)
        assert [node_id for node_id, _ in client.disconnects] == [1]
        assert client.free_connection(2, client.now_ms)
        assert not client.free_connection(1, client.now_ms)


async def test_connections_that_open_while_another_thread_counts() -> None:
    async with Client() as client:

        class Counted(StandIn):
            """Between any two steps of the thread, the loop may open another connection."""

            @property
            def in_flight_count(self) -> int:
                client._open[StandIn(2)] = None  # type: ignore[index]
                return 3

            @in_flight_count.setter
            def in_flight_count(self, count: int) -> None:
                pass

        client._open[Counted(1)] = None  # type: ignore[index]
        assert client.in_flight_count == 3
        client._open.clear()


async def test_a_node_is_ready_while_fewer_than_allowed_are_in_flight(broker: FakeBroker) -> None:
    broker.silent(MetadataRequest)
    async with Client(max_in_flight_requests_per_connection=1) as client:
        client.know(broker)
        connection = await client.ready_connection(1, client.soon())
        waiting = asyncio.ensure_future(connection.request(METADATA))
        request = await broker.next_request(MetadataRequest)
        assert client.in_flight_count == 1
        assert not client.free_connection(1, client.now_ms)
        assert client.retry_at_ms(1, client.now_ms) is None
        request.reply(broker.metadata())
        await client.until(lambda: client.free_connection(1, client.now_ms))
        await waiting


async def test_a_throttled_node_is_ready_again_when_it_ends(broker: FakeBroker) -> None:
    async with Client() as client:
        client.know(broker)
        connection = await client.ready_connection(1, client.soon())
        until_ms = client.soon(50)
        connection.throttle(until_ms)
        assert not client.free_connection(1, until_ms - 1)
        assert client.retry_at_ms(1, until_ms - 1) == until_ms
        assert client.free_connection(1, until_ms)
        assert await client.ready_connection(1, client.soon()) is connection
        assert client.now_ms >= until_ms


async def _failed_once(client: Client, broker: FakeBroker) -> None:
    """Stop the broker, and wait for the error of a connection: a slow machine may have none before a short deadline."""
    await broker.stop()
    client.know(broker)
    client.connect_soon(1)
    await client.until(lambda: client._nodes.by_id[1].error)


async def test_ready_connection_ends_at_its_deadline_with_the_last_error_as_cause(broker: FakeBroker) -> None:
    async with Client(reconnect_backoff_ms=5) as client:
        await _failed_once(client, broker)
        with pytest.raises(ConnectionLostError, match="not ready in time") as caught:
            await client.ready_connection(1, client.soon(50))
        assert isinstance(caught.value.__cause__, ConnectionLostError)
        assert not caught.value.maybe_written


@pytest.mark.parametrize(
    "wait",
    [
        lambda client: client.ready_connection(1, client.soon()),
        lambda client: client.any_ready_connection(client.soon()),
    ],
    ids=["node", "any"],
)
async def test_a_crowd_is_served_in_order_of_arrival(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, wait: Callable[[Client], Awaitable[Connection]]
) -> None:
    """Each answer makes room for one, and only the first in line looks for it."""
    looks = 0
    can_send = Connection.can_send

    def look(self: Connection, now_ms: int) -> bool:
        nonlocal looks
        looks += 1
        return can_send(self, now_ms)

    monkeypatch.setattr(Connection, "can_send", look)
    served: list[int] = []
    async with Client(max_in_flight_requests_per_connection=1) as client:
        client.know(broker)

        async def ask(number: int) -> None:
            connection = await wait(client)
            served.append(number)
            await connection.request(METADATA)

        await asyncio.gather(*map(ask, range(100)))
    assert served == list(range(100))
    assert looks < 1000


async def test_a_crowd_at_a_node_that_is_away_ends_at_its_deadline(broker: FakeBroker) -> None:
    async with Client(reconnect_backoff_ms=5) as client:
        await _failed_once(client, broker)
        ends = await asyncio.gather(
            *(client.ready_connection(1, client.soon(50)) for _ in range(3)), return_exceptions=True
        )
        for end in ends:
            assert isinstance(end, ConnectionLostError)
            assert "not ready in time" in str(end)
            assert isinstance(end.__cause__, ConnectionLostError)


async def test_authentication_failures_are_kept_until_an_attempt_succeeds(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_module, "REFUSAL_LASTS_MS", 0)
    wrong = True

    async def check(_: Connection) -> None:
        if wrong:
            raise SaslAuthenticationFailedError("wrong password")

    async with Client(authenticate=check, reconnect_backoff_ms=1) as client:
        client.know(broker)
        client.connect_soon(1)
        await client.until(lambda: client.disconnects)
        assert isinstance(client.authentication_error(1), SaslAuthenticationFailedError)
        with pytest.raises(SaslAuthenticationFailedError):
            await client.ready_connection(1, client.soon())
        wrong = False
        client._nodes.by_id[1].retry_at_ms = 0
        client.connect_soon(1)
        await client.until(lambda: client.free_connection(1, client.now_ms))
        assert client.authentication_error(1) is None


async def test_a_node_that_refused_long_ago_is_tried_again(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else may need it: a coordinator that leads no partition in use gets no records."""
    monkeypatch.setattr(node_module, "REFUSAL_LASTS_MS", 0)
    wrong, attempts = True, 0

    async def check(_: Connection) -> None:
        nonlocal attempts
        attempts += 1
        if wrong:
            raise SaslAuthenticationFailedError("wrong password")

    async with Client(authenticate=check, reconnect_backoff_ms=10_000, reconnect_backoff_max_ms=10_000) as client:
        client.know(broker)
        for _ in range(3):  # without another attempt before the back-off is over
            with pytest.raises(SaslAuthenticationFailedError):
                await client.ready_connection(1, client.soon())
        assert attempts == 1
        client._nodes.by_id[1].retry_at_ms = 0
        with pytest.raises(SaslAuthenticationFailedError):
            await client.ready_connection(1, client.soon())
        assert attempts == 2
        wrong = False
        client._nodes.by_id[1].retry_at_ms = 0
        assert (await client.ready_connection(1, client.soon())).node_id == 1


async def test_with_wrong_credentials_everywhere_no_connection_is_waited_for(broker: FakeBroker) -> None:
    async def refuse(_: Connection) -> None:
        raise SaslAuthenticationFailedError("wrong password")

    async with Client(authenticate=refuse, reconnect_backoff_ms=5_000, reconnect_backoff_max_ms=5_000) as client:
        client.know(broker)
        with pytest.raises(SaslAuthenticationFailedError):
            await client.any_ready_connection(client.soon())


async def test_a_bug_while_connecting_reaches_the_owner(broker: FakeBroker) -> None:
    async def bug(_: Connection) -> None:
        raise ZeroDivisionError

    client = Client(authenticate=bug)
    client.know(broker)
    client.connect_soon(1)
    await client.until(lambda: client.internal)
    assert isinstance(client.internal[0], ZeroDivisionError)
    await client.close()


# --- a second connection to a broker that is held up ------------------------------------------------------------------


class Held:
    """A request that a broker does not answer until the test says so, nor any later one."""

    def __init__(self, broker: FakeBroker) -> None:
        self.go_on = asyncio.Event()
        broker.on(EndTxnRequest, self._hold)

    async def _hold(self, _: ReceivedRequest) -> EndTxnResponse:
        await self.go_on.wait()
        return EndTxnResponse()

    def send(self, connection: Connection) -> asyncio.Future[bytes]:
        return connection.exchange(
            EndTxnRequest(transactional_id="t", producer_id=1, producer_epoch=0, committed=True), 3
        )


async def test_a_broker_that_is_held_up_is_asked_by_a_second_connection(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes_module, "SLOW_MS", 20)
    held = Held(broker)
    async with Client(max_in_flight_requests_per_connection=1) as client:
        client.know(broker)
        first = await client.ready_connection(1, client.soon())
        answer = held.send(first)
        second = await client.any_ready_connection(client.soon())
        assert second is not first
        assert client.connection_count == 2
        assert (await second.request(METADATA)).brokers[0].node_id == 1
        assert client.connection(1) is first
        assert client.free_connection(1, client.now_ms) is None  # records never use the second connection
        assert client.least_loaded(client.now_ms) is second
        held.go_on.set()
        await answer
        await client.until(lambda: client.connection_count == 1)
        assert client.connection(1) is first
        assert client.disconnects == []


async def test_what_a_second_connection_was_asked_is_still_answered(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes_module, "SLOW_MS", 20)
    held, late = Held(broker), asyncio.Event()

    async def answer_late(_: ReceivedRequest) -> MetadataResponse:
        await late.wait()
        return broker.metadata()

    broker.on(MetadataRequest, answer_late)
    async with Client(max_in_flight_requests_per_connection=1) as client:
        client.know(broker)
        answer = held.send(await client.ready_connection(1, client.soon()))
        second = await client.any_ready_connection(client.soon())
        metadata = second.exchange(METADATA, 13)
        held.go_on.set()
        await answer
        assert not second.can_send(client.now_ms)
        late.set()
        await metadata
        assert client.connection_count == 1


async def test_no_second_connection_before_it_is_needed(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor if the first is throttled, because the broker asked for the pause. Nor a third one."""
    held = Held(broker)
    async with Client() as client:
        client.know(broker)
        first = await client.ready_connection(1, client.soon())
        now_ms = client.now_ms
        answer = held.send(first)
        assert not nodes_module.held_up(first, now_ms)
        assert client.connect_somewhere(now_ms) is None
        monkeypatch.setattr(nodes_module, "SLOW_MS", 0)
        first.throttle(client.soon())
        assert client.connect_somewhere(client.now_ms) is None
        first.throttled_until_ms = 0
        attempt = client.connect_somewhere(client.now_ms)
        assert attempt is not None
        await attempt
        assert client.connect_somewhere(client.now_ms) is None
        assert client.connection_count == len(broker.peers) == 2
        held.go_on.set()
        await answer


@pytest.mark.parametrize("end", ["lost", "gone", "moved", "aborted"])
async def test_a_second_connection_goes_with_the_first(
    end: str, broker: FakeBroker, other: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes_module, "SLOW_MS", 0)
    held = Held(broker)
    async with Client() as client:
        client.know(broker)
        first = await client.ready_connection(1, client.soon())
        answer = held.send(first)
        attempt = client.connect_somewhere(client.now_ms)
        assert attempt is not None
        await attempt
        if end == "lost":
            first.abort(ConnectionLostError("lost"))
        elif end == "gone":
            client.know(other)
        elif end == "moved":
            client.set_brokers({1: Broker(1, other.host, other.port)})
        else:
            client.abort_all()
        assert client.connection_count == (1 if first in client._open else 0)  # which still waits for an answer
        held.go_on.set()
        await asyncio.wait([answer])
        answer.exception()
        assert client.connection_count == 0


async def test_a_second_connection_that_fails_says_nothing_of_the_node(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(nodes_module, "SLOW_MS", 0)
    held = Held(broker)
    async with Client(reconnect_backoff_ms=5_000, reconnect_backoff_max_ms=5_000) as client:
        client.know(broker)
        first = await client.ready_connection(1, client.soon())
        answer = held.send(first)
        broker.on(ApiVersionsRequest, lambda request: request.peer.drop())
        attempt = client.connect_somewhere(client.now_ms)
        assert attempt is not None
        await attempt
        assert client.connect_somewhere(client.now_ms) is None  # it backs off
        assert client.error_of(1) is None
        assert client.disconnects == []
        assert client.free_connection(1, client.now_ms) is first
        assert caplog.records == []
        held.go_on.set()
        await answer


# --- any node ---------------------------------------------------------------------------------------------------------


async def test_least_loaded_is_the_one_with_the_fewest_in_flight(broker: FakeBroker, other: FakeBroker) -> None:
    broker.silent(MetadataRequest)
    other.silent(MetadataRequest)
    async with Client() as client:
        client.know(broker, other)
        assert client.least_loaded(client.now_ms) is None
        first = await client.ready_connection(1, client.soon())
        second = await client.ready_connection(2, client.soon())
        answers = [first.exchange(METADATA, 13) for _ in range(2)]
        assert client.least_loaded(client.now_ms) is second
        answers += [second.exchange(METADATA, 13) for _ in range(3)]
        assert client.least_loaded(client.now_ms) is first
        assert client.least_loaded(client.now_ms, but_not=[first]) is second
        first.throttle(client.soon())
        assert client.least_loaded(client.now_ms) is second
        for answer in answers:
            answer.cancel()


async def test_who_serves_an_api(broker: FakeBroker, other: FakeBroker) -> None:
    """The preferred node, if it supports the API; otherwise the least loaded that does. No connection is made."""
    broker.silent(MetadataRequest)
    keys = [ApiVersion(api_key=key, min_version=0, max_version=13) for key in (MetadataRequest.API_KEY, 18)]
    broker.on(ApiVersionsRequest, lambda _: ApiVersionsResponse(api_keys=keys))
    async with Client() as client:
        client.know(broker, other)
        assert client.serving(MetadataRequest.API_KEY) is None
        assert not broker.peers
        first = await client.ready_connection(1, client.soon())
        assert client.serving(EndTxnRequest.API_KEY) is None
        second = await client.ready_connection(2, client.soon())
        answer = first.exchange(METADATA, 13)
        assert client.serving(MetadataRequest.API_KEY) is second
        assert client.serving(MetadataRequest.API_KEY, rather=1) is first
        assert client.serving(EndTxnRequest.API_KEY, rather=1) is second
        assert client.serving(MetadataRequest.API_KEY, rather=7) is second
        second.close_when_idle()
        assert client.serving(MetadataRequest.API_KEY) is first
        answer.cancel()


async def test_waiting_until_a_connection_is_free(broker: FakeBroker) -> None:
    broker.silent(MetadataRequest)
    async with Client(max_in_flight_requests_per_connection=1) as client:
        client.know(broker)
        connection = await client.ready_connection(1, client.soon())
        assert await client.when_free(connection, client.soon()) is connection
        answer = connection.exchange(METADATA, 13)
        request = await broker.next_request(MetadataRequest)
        waiting = asyncio.ensure_future(client.when_free(connection, client.soon()))
        await asyncio.sleep(0)
        assert not client.free_connection(1, client.now_ms)  # a waiting task takes precedence over polling callers
        request.reply(broker.metadata())
        assert await waiting is connection
        await answer


async def test_waiting_for_the_connection_of_the_bootstrap(broker: FakeBroker) -> None:
    """It belongs to no node; nothing replaces it."""
    async with Client(broker, max_in_flight_requests_per_connection=1) as client:
        await client.bootstrap(client.soon())
        bootstrap = client.least_loaded(client.now_ms)
        assert bootstrap is not None
        await broker.next_request(MetadataRequest)
        broker.silent(MetadataRequest)
        answer = bootstrap.exchange(METADATA, 13)
        request = await broker.next_request(MetadataRequest)
        waiting = asyncio.ensure_future(client.when_free(bootstrap, client.soon()))
        await asyncio.sleep(0)
        request.reply(broker.metadata())
        assert await waiting is bootstrap
        await answer
        bootstrap.throttle(client.soon())
        with pytest.raises(ConnectionLostError, match="in time"):
            await client.when_free(bootstrap, client.now_ms)
        waiting = asyncio.ensure_future(client.when_free(bootstrap, client.soon(20_000)))
        await asyncio.sleep(0)
        bootstrap.abort()
        with pytest.raises(ConnectionLostError):
            await waiting


async def test_what_is_counted(broker: FakeBroker) -> None:
    metrics = ProducerMetrics()
    async with Client(broker, metrics=metrics) as client:
        await client.bootstrap(client.soon())
        client.know(broker)
        now_ms = client.now_ms
        found = metrics.snapshot(now_ms)["producer-metrics"]
        assert (found["request-total"], found["response-total"]) == (2, 2)  # ApiVersions and Metadata
        bodies = sum(len(request.body) for request in broker.requests)
        assert bodies < found["outgoing-byte-total"] < bodies + 100
        assert found["incoming-byte-total"] > 100
        assert (found["connection-creation-total"], found["connection-close-total"]) == (1, 0)
        connection = client.connection(1)
        assert connection is not None
        await connection.request(METADATA)
        nodes = metrics.snapshot(now_ms)["producer-node-metrics"]
        assert {name: node["request-total"] for name, node in nodes.items()} == {"node--1": 2, "node-1": 1}
        assert found["successful-authentication-total"] == 0
    assert metrics.snapshot(now_ms)["producer-metrics"]["connection-close-total"] == 1


async def test_logins_are_counted(broker: FakeBroker) -> None:
    """Only with TLS or SASL."""
    refusals = [SaslAuthenticationFailedError("no"), None]

    async def authenticate(_: Connection) -> None:
        if refusals and (refusal := refusals.pop(0)) is not None:
            raise refusal

    metrics = ProducerMetrics()
    async with Client(authenticate=authenticate, metrics=metrics, reconnect_backoff_ms=1) as client:
        client.know(broker)
        await client.ready_connection(1, client.soon())
        found = metrics.snapshot(client.now_ms)["producer-metrics"]
        assert (found["failed-authentication-total"], found["successful-authentication-total"]) == (1, 1)


async def test_nodes_with_equal_load_are_chosen_at_random(broker: FakeBroker, other: FakeBroker) -> None:
    async with Client() as client:
        client.know(broker, other)
        for node_id in 1, 2:
            await client.ready_connection(node_id, client.soon())
        chosen = [client.least_loaded(client.now_ms) for _ in range(50)]
        assert 10 < chosen.count(client.connection(1)) < 40


async def test_any_ready_connection_connects_if_need_be(broker: FakeBroker, other: FakeBroker) -> None:
    async with Client() as client:
        client.know(broker, other)
        connection = await client.any_ready_connection(client.soon())
        assert connection.node_id in (1, 2)
        assert client.connection_count == 1


async def test_brokers_are_known_at_their_addresses(broker: FakeBroker, other: FakeBroker) -> None:
    async with Client() as client:
        assert not client.knows_at(broker.node_id, broker.host, broker.port)
        client.know(broker, other)
        assert client.knows_at(broker.node_id, broker.host, broker.port)
        assert not client.knows_at(broker.node_id, broker.host, other.port)
        assert not client.knows_at(broker.node_id, "elsewhere.example", broker.port)
        client.set_brokers({broker.node_id: Broker(broker.node_id, broker.host, other.port)})
        assert not client.knows_at(broker.node_id, broker.host, broker.port)
        client.know(other)
        assert not client.knows_at(broker.node_id, broker.host, other.port), "no broker has that number any more"


async def test_any_ready_connection_tries_the_others_when_one_fails(broker: FakeBroker) -> None:
    async with Client() as client:
        dead = FakeBroker(node_id=2)
        dead.port = closed_port()
        for _ in range(5):  # whichever node it starts with
            client.set_brokers({})
            client.know(dead, broker)
            assert (await client.any_ready_connection(client.soon())).node_id == 1


async def test_a_broker_that_hangs_does_not_hold_up_the_others(
    broker: FakeBroker, hanging: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes_module, "SLOW_MS", 20)
    async with Client() as client:
        client.know(hanging)
        client.connect_soon(3)
        client.know(hanging, broker)
        assert (await client.any_ready_connection(client.soon(4_000))).node_id == 1


async def test_with_no_broker_to_be_reached_it_says_so_at_once(broker: FakeBroker) -> None:
    async with Client(reconnect_backoff_ms=5_000, reconnect_backoff_max_ms=5_000) as client:
        with pytest.raises(ConnectionLostError, match="no broker is known"):
            await client.any_ready_connection(client.soon())
        await broker.stop()
        client.know(broker)
        assert not client._nodes.exhausted(client.now_ms)
        with pytest.raises(ConnectionLostError, match="no broker can be reached") as caught:
            await client.any_ready_connection(client.soon())
        assert isinstance(caught.value.__cause__, ConnectionLostError)
        assert client._nodes.exhausted(client.now_ms)
        retry_ms = client.retry_at_ms(1, client.now_ms)
        assert retry_ms is not None
        assert not client._nodes.exhausted(retry_ms)


async def test_any_ready_connection_ends_at_its_deadline(hanging: FakeBroker) -> None:
    async with Client() as client:
        client.know(hanging)
        with pytest.raises(ConnectionLostError, match="no broker was ready in time"):
            await client.any_ready_connection(client.soon(30))


async def test_who_waits_for_any_connection_gets_the_next_free_place(broker: FakeBroker) -> None:
    """Even when all places are taken by other requests, such as Produce."""
    broker.silent(MetadataRequest)
    async with Client(max_in_flight_requests_per_connection=1) as client:
        client.know(broker)
        connection = await client.ready_connection(1, client.soon())
        seen: list[tuple[Connection | None, int | None]] = []

        def look(*_: object) -> None:
            seen.append((client.free_connection(1, client.now_ms), client.retry_at_ms(1, client.now_ms)))

        number = connection.next_correlation_id()
        frame = encode_request(METADATA, 13, number, None)
        connection.send_frame([frame], number, MetadataRequest.API_KEY, 10_000, look, look)
        request = await broker.next_request(MetadataRequest)

        async def first_out() -> asyncio.Future[bytes]:
            return (await client.any_ready_connection(client.soon())).exchange(METADATA, 13)

        client.on_change = look
        waiting = asyncio.ensure_future(first_out())
        await asyncio.sleep(0)
        request.reply(broker.metadata())
        mine = await waiting
        assert len(seen) >= 2
        assert set(seen) == {(None, None)}
        assert connection.in_flight_count == 1
        mine.cancel()


async def test_the_others_are_told_when_nobody_waits_ahead_of_them_any_more(broker: FakeBroker) -> None:
    async with Client() as client:
        client.know(broker)
        connection = await client.ready_connection(1, client.soon())
        connection.throttle(client.soon(20))
        assert await client.any_ready_connection(client.soon()) is connection
        client.changed.clear()
        await client.changed.wait()
        assert client.free_connection(1, client.now_ms)


# --- brokers come, move and go ----------------------------------------------------------------------------------------


async def test_a_node_that_moved_is_connected_at_its_new_address(broker: FakeBroker, other: FakeBroker) -> None:
    async with Client() as client:
        client.know(broker)
        old = await client.ready_connection(1, client.soon())
        other.node_id = 1
        client.know(other)
        assert old.closed
        assert client.disconnects == []
        new = await client.ready_connection(1, client.soon())
        assert new.port == other.port


async def test_a_moved_node_first_finishes_what_is_in_flight(broker: FakeBroker, other: FakeBroker) -> None:
    broker.silent(MetadataRequest)
    async with Client() as client:
        client.know(broker)
        old = await client.ready_connection(1, client.soon())
        waiting = asyncio.ensure_future(old.request(METADATA))
        request = await broker.next_request(MetadataRequest)
        other.node_id = 1
        client.know(other)
        assert not old.closed
        assert not client.free_connection(1, client.now_ms)
        client.connect_soon(1)
        assert other.peers == []
        request.reply(broker.metadata())
        assert (await waiting).cluster_id == "fake"
        assert (await client.ready_connection(1, client.soon())).port == other.port


async def test_a_node_that_moved_while_connecting_is_tried_at_its_new_address(
    hanging: FakeBroker, broker: FakeBroker
) -> None:
    async with Client() as client:
        client.know(hanging)
        client.connect_soon(3)
        await hanging.next_request(ApiVersionsRequest)
        broker.node_id = 3
        client.know(broker)
        async with asyncio.timeout(4):  # waiting for the attempt would take longer
            assert (await client.ready_connection(3, client.soon())).port == broker.port
            await hanging.peers[0].gone.wait()
        assert client.disconnects == []


async def test_a_node_that_is_gone_ends_and_may_come_back(broker: FakeBroker, other: FakeBroker) -> None:
    broker.silent(MetadataRequest)
    async with Client() as client:
        client.know(broker, other)
        connection = await client.ready_connection(1, client.soon())
        waiting = asyncio.ensure_future(connection.request(METADATA))
        request = await broker.next_request(MetadataRequest)
        client.know(other)
        assert not client.free_connection(1, client.now_ms)
        client.connect_soon(1)
        with pytest.raises(ConnectionLostError, match="no node 1"):
            await client.ready_connection(1, client.soon())
        request.reply(broker.metadata())
        await waiting
        await client.until(lambda: connection.closed)
        assert 1 not in client._nodes.by_id
        client.know(broker, other)
        assert await client.ready_connection(1, client.soon()) is not connection


async def test_a_node_that_comes_back_while_its_old_connection_ends(broker: FakeBroker, other: FakeBroker) -> None:
    broker.silent(MetadataRequest)
    async with Client() as client:
        client.know(broker, other)
        connection = await client.ready_connection(1, client.soon())
        waiting = asyncio.ensure_future(connection.request(METADATA))
        request = await broker.next_request(MetadataRequest)
        client.know(other)
        client.know(broker, other)
        assert not client.free_connection(1, client.now_ms)
        request.reply(broker.metadata())
        await waiting
        assert await client.ready_connection(1, client.soon()) is not connection


async def test_rebootstrap_closes_everything_and_starts_from_the_list(broker: FakeBroker, other: FakeBroker) -> None:
    async with Client(broker) as client:
        client.know(other)
        connection = await client.ready_connection(2, client.soon())
        other.silent(MetadataRequest)
        waiting = asyncio.ensure_future(connection.request(METADATA))
        await other.next_request(MetadataRequest)
        response = await client.rebootstrap()
        assert [each.node_id for each in response.brokers] == [1]
        assert connection.closed
        with pytest.raises(ConnectionLostError, match="bootstrap_servers"):
            await waiting


async def test_another_cluster_is_known_by_the_bootstrap_connection_alone(
    broker: FakeBroker, other: FakeBroker
) -> None:
    """A level of the former one must not outlive it because its epoch was higher."""

    def leveled(level: int, epoch: int) -> Callable[[ReceivedRequest], ApiVersionsResponse]:
        def answer(request: ReceivedRequest) -> ApiVersionsResponse:
            told = request.broker.api_versions()
            feature = FinalizedFeatureKey(name="transaction.version", max_version_level=level, min_version_level=0)
            return replace(told, finalized_features=[feature], finalized_features_epoch=epoch)

        return answer

    broker.on(ApiVersionsRequest, leveled(1, 5))
    other.on(ApiVersionsRequest, leveled(2, 9))
    async with Client(broker) as client:
        client.know(other)
        connection = await client.ready_connection(2, client.soon())
        await client.bootstrap()
        assert client.feature("transaction.version") == 2
        client.leave_brokers(ConnectionLostError("another cluster"))
        assert connection.ended
        assert client.connection_count == 1
        assert client.feature("transaction.version") == 1
        client.know(broker)
        assert client.free_connection(1, client.now_ms) is not None


# --- idle connections -------------------------------------------------------------------------------------------------


async def test_a_closed_client_has_no_timer(broker: FakeBroker) -> None:
    """In a loop that goes on, it would keep the client for nine minutes."""
    async with Client() as client:
        client.know(broker)
        await client.ready_connection(1, client.soon())
        timer = client._idle_timer._timer
        assert timer is not None
        assert not timer.cancelled()
    assert timer.cancelled()


async def test_idle_connections_are_closed_without_noise(broker: FakeBroker) -> None:
    async with Client(connections_max_idle_ms=30) as client:
        client.know(broker)
        connection = await client.ready_connection(1, client.soon())
        await client.until(lambda: connection.closed)
        assert client.disconnects == []
        now_ms = client.now_ms
        assert client.retry_at_ms(1, now_ms) == now_ms
        assert await client.ready_connection(1, client.soon()) is not connection


async def test_a_connection_that_waits_for_an_answer_is_not_idle(broker: FakeBroker) -> None:
    broker.silent(MetadataRequest)
    async with Client(connections_max_idle_ms=100) as client:
        client.know(broker)
        connection = await client.ready_connection(1, client.soon())
        waiting = asyncio.ensure_future(connection.request(METADATA))
        request = await broker.next_request(MetadataRequest)
        used_ms = connection.last_used_ms
        while connection.last_used_ms == used_ms:  # until the idle timer has checked it
            await asyncio.wait([waiting], timeout=0.01)
        assert not connection.closed
        request.reply(broker.metadata())
        await waiting
        await client.until(lambda: connection.closed)


async def test_idle_connections_stay_when_the_limit_is_off(broker: FakeBroker) -> None:
    async with Client(connections_max_idle_ms=-1) as client:
        client.know(broker)
        await client.ready_connection(1, client.soon())
        assert client._idle_timer._timer is None


# --- the end ----------------------------------------------------------------------------------------------------------


async def _connected_to_one_that_answers_all(client: Client, broker: FakeBroker) -> tuple[Connection, ReceivedRequest]:
    """A connection with two requests that expect no answer; the first was answered, the second is returned."""
    broker.silent(MetadataRequest)
    client.know(broker)
    connection = await client.ready_connection(1, client.soon())
    for _ in range(2):
        number = connection.next_correlation_id()
        frame = encode_request(METADATA, MetadataRequest.MAX_VERSION, number, None)
        connection.send_frame([frame], number, MetadataRequest.API_KEY, 10_000, None, lambda _: None)
    (await broker.next_request(MetadataRequest)).reply(broker.metadata())
    await client.until(lambda: connection.unexpected_is_due)
    return connection, await broker.next_request(MetadataRequest)


async def test_the_end_waits_for_answers_that_were_not_expected(broker: FakeBroker) -> None:
    """With acks=0, of a broker that answers all the same: unread answers would reset the connection."""
    async with Client() as client:
        connection, unanswered = await _connected_to_one_that_answers_all(client, broker)
        written = asyncio.ensure_future(client.written(client.soon()))
        await asyncio.wait([written], timeout=0.02)
        assert not written.done()
        unanswered.reply(broker.metadata())
        await written
        assert not connection.unexpected_is_due


async def test_the_end_does_not_wait_for_long_for_answers_that_were_not_expected(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "LAST_ANSWERS_MS", 20)
    async with Client() as client:
        connection, _ = await _connected_to_one_that_answers_all(client, broker)
        async with asyncio.timeout(5):
            await client.written(client.soon(60_000))
        assert connection.unexpected_is_due


async def test_nothing_keeps_a_connection_that_has_ended(broker: FakeBroker) -> None:
    """Not even until the garbage collector runs."""
    async with Client() as client:
        client.know(broker)
        connection = await client.ready_connection(1, client.soon())
        connection.abort()
        await connection.wait_closed()
        gone = weakref.ref(connection)
        del connection
        assert await goes_by_itself(gone)


async def test_close_ends_connections_attempts_and_waits(broker: FakeBroker, hanging: FakeBroker) -> None:
    client = Client(hanging)
    client.know(broker, hanging)
    connection = await client.ready_connection(1, client.soon())
    connection.throttle(client.soon())
    waiting = [
        asyncio.ensure_future(client.ready_connection(3, client.soon())),
        asyncio.ensure_future(client.any_ready_connection(client.soon())),
    ]
    await hanging.next_request(ApiVersionsRequest)
    await client.close()
    for each in waiting:
        with pytest.raises(ProducerClosedError):
            await each
    assert connection.closed
    await hanging.peers[0].gone.wait()
    client.connect_soon(1)
    assert client.connection_count == 0
    await client.close()


async def test_a_bootstrap_that_outlives_close_leaves_nothing(broker: FakeBroker) -> None:
    client = Client(broker)
    broker.silent(MetadataRequest)
    attempt = asyncio.ensure_future(client.bootstrap(client.soon()))
    request = await broker.next_request(MetadataRequest)
    await client.close()
    request.reply(broker.metadata())
    with pytest.raises(ProducerClosedError):
        await attempt
    await request.peer.gone.wait()


async def test_a_cancelled_bootstrap_leaves_nothing(broker: FakeBroker) -> None:
    broker.silent(MetadataRequest)
    async with Client(broker) as client:
        attempt = asyncio.ensure_future(client.bootstrap(client.soon()))
        request = await broker.next_request(MetadataRequest)
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt
        await request.peer.gone.wait()


async def test_abort_all_fails_what_is_in_flight(broker: FakeBroker) -> None:
    broker.silent(MetadataRequest)
    async with Client() as client:
        client.know(broker)
        connection = await client.ready_connection(1, client.soon())
        waiting = asyncio.ensure_future(connection.request(METADATA))
        await broker.next_request(MetadataRequest)
        client.abort_all(ProducerClosedError("enough"))
        with pytest.raises(ProducerClosedError, match="enough") as caught:
            await waiting
        assert caught.value.maybe_written
        assert client.connection_count == 0


async def test_old_brokers_are_connected_with_what_they_speak() -> None:
    ranges = {**EVERYTHING, 18: (0, 0), 3: (0, 4)}
    async with FakeBroker(ranges=ranges) as broker, Client(broker) as client:

        def answer(request: Any) -> Any:
            if request.version == 0:
                return broker.api_versions()
            refusal = broker.api_versions()
            refusal.error_code = 35
            return request.answer(refusal, version=0)

        broker.on(ApiVersionsRequest, answer)
        assert (await client.bootstrap(client.soon())).brokers[0].node_id == 1
        assert [request.version for request in broker.requests] == [4, 0, 4]


async def nothing() -> None:
    pass


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are new in Python 3.12")
async def test_an_attempt_by_an_eager_task_may_fail_at_once() -> None:
    """The task is done before its creator gets it; the node must not count as connecting forever."""
    loop = asyncio.get_running_loop()
    make_tasks_eager(loop)
    try:
        probe = loop.create_task(nothing())
        if not probe.done():
            await probe
            pytest.skip("this loop begins no task at once (uvloop with Python 3.15)")
        async with Client() as client:
            client.set_brokers({1: Broker(1, "127.0.0.1", 65_536)})
            client.connect_soon(1)
            assert "there is no port 65536" in str(client.error_of(1))
            retry_at_ms = client.retry_at_ms(1, client.now_ms)
            assert retry_at_ms is not None
            assert retry_at_ms > client.now_ms
    finally:
        loop.set_task_factory(None)
