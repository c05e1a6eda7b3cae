"""The producer as a whole, against a scripted broker on the loopback."""

from __future__ import annotations

import asyncio
import copy
import gc
import inspect
import logging
import pickle
import sys
import typing
import warnings
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock, create_autospec

import pytest

from aioproducer import Delivery, PartitionInfo, Producer, ProducerConfigs, ProducerState, Record, RecordMetadata
from aioproducer.cluster import ClusterChanges
from aioproducer.compression import _cramjam
from aioproducer.engine import Engine
from aioproducer.errors import (
    AlreadyStartedError,
    BootstrapError,
    BufferExhaustedError,
    ClusterAuthorizationFailedError,
    ConfigError,
    ConnectionLostError,
    CoordinatorLoadInProgressError,
    DeliveryErrors,
    DeliveryTimeoutError,
    FlushTimeoutError,
    KafkaError,
    LeaderNotAvailableError,
    MetadataTimeoutError,
    MetadataUnavailableError,
    NotStartedError,
    ProducerClosedError,
    ProducerFailedError,
    SerializationError,
    ThrottlingQuotaExceededError,
    TopicAuthorizationFailedError,
    TransactionStateError,
    WrongLoopError,
)
from aioproducer.protocol.api_versions import ApiVersionsRequest
from aioproducer.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aioproducer.protocol.metadata import MetadataRequest, MetadataResponseBroker
from aioproducer.protocol.produce import ProduceRequest, ProduceResponse
from aioproducer.protocol.schema import Request
from aioproducer.records import ConsumerGroupMetadata, Key_contra, TopicPartition, Value_contra
from aioproducer.start_count import MANY, StartCount
from aioproducer.testing import FakeCluster
from tests.unit.core import messages_of
from tests.unit.net.fake_broker import EVERYTHING, ReceivedRequest, closed_port
from tests.unit.producing_broker import PID, ProducingBroker
from tests.unit.waiting import turns, until

PATIENCE_S = 20


def test_a_codec_that_is_not_installed_is_told_when_the_producer_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)
    monkeypatch.setattr("aioproducer.compression._cramjam", _cramjam.__wrapped__)
    with pytest.raises(ConfigError, match=r"needs the package cramjam: pip install 'aioproducer\[snappy\]'"):
        Producer(bootstrap_servers="localhost:9092", compression_type="snappy")


@pytest.fixture
async def broker() -> AsyncIterator[ProducingBroker]:
    async with ProducingBroker() as broker:
        yield broker


def producer_of(broker: ProducingBroker, **configs: Any) -> Producer:
    return Producer(bootstrap_servers=broker.bootstrap_servers, **configs)


CALLS: dict[str, Callable[[Producer], Any]] = {  # calls that may be awaited
    "send": lambda producer: producer.send("orders", b"v"),
    "submit": lambda producer: producer.submit("orders", b"v"),
    "flush": lambda producer: producer.flush(),
    "ready": lambda producer: producer.ready(),
    "partitions_for": lambda producer: producer.partitions_for("orders"),
}

each_call = pytest.mark.parametrize("call", CALLS)

ASKS: list[Callable[[object], bool]] = [inspect.iscoroutinefunction]
"""How programs check whether a call has to be awaited. From Python 3.14 on, asyncio warns when its function is used."""
if sys.version_info < (3, 14):
    ASKS.append(asyncio.iscoroutinefunction)


# --- its life ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["send", "submit", "send_many", "send_arrow", "flush", "close"])
def test_what_is_awaited_is_known_for_a_coroutine_function(call: str) -> None:
    """By frameworks, by mocks, and by tools that show signatures."""
    method = getattr(Producer, call)
    assert all(ask(method) for ask in ASKS)
    assert isinstance(getattr(AsyncMock(spec=Producer), call), AsyncMock)
    assert isinstance(getattr(create_autospec(Producer, instance=True), call), AsyncMock)


@pytest.mark.parametrize("call", ["send", "submit"])
def test_the_signature_of_a_compiled_call_can_be_read(call: str) -> None:
    names = list(inspect.signature(getattr(Producer, call)).parameters)
    assert names == ["self", "topic", "value", "key", "partition", "headers", "timestamp_ms"]
    assert not any(ask(Producer.submit_nowait) for ask in ASKS)


def test_a_start_without_asyncio_says_what_is_missing() -> None:
    """As under trio, whose loop is not asyncio's."""
    producer = Producer(bootstrap_servers="localhost:9092")
    with pytest.raises(WrongLoopError, match="asyncio's event loop, which does not run here"):
        producer.start().send(None)


def test_made_without_a_loop() -> None:
    """Creating a producer does no I/O and needs no loop; bad configs are found then."""
    producer = Producer(bootstrap_servers="nowhere.invalid:9092,[::1]:9093", client_id="me")
    assert repr(producer) == "<Producer me of nowhere.invalid:9092,[::1]:9093>"
    assert producer.metrics() == {}
    with pytest.raises(ConfigError, match="bootstrap_server"):
        Producer(bootstrap_server="localhost:9092")


@pytest.mark.parametrize("way", ["from_config", "from_properties", "from_librdkafka_config"])
def test_a_subclass_is_made_by_its_constructor(tmp_path: Path, way: str) -> None:
    """However the configs are given, its constructor gets them by their keyword names."""

    class Shop(Producer):
        def __init__(self, **configs: Any) -> None:
            super().__init__(**{**configs, "client_id": "shop"})
            self.given = configs

    configs: Any = {"bootstrap.servers": "a:1"}
    if way == "from_properties":
        configs = tmp_path / "producer.properties"
        configs.write_text("bootstrap.servers=a:1\nmetric.reporters=org.x\n")
    shop = getattr(Shop, way)(configs)
    assert type(shop) is Shop
    assert shop.given["bootstrap_servers"] == "a:1"
    assert shop.client_id == "shop"


async def test_a_test_may_replace_a_method_of_one_producer(broker: ProducingBroker) -> None:
    """The producer itself keeps nothing where its methods are looked up first, which would make each call slower."""

    async def instead(*_: object, **__: object) -> str:
        return "instead"

    async with producer_of(broker) as producer:
        await producer.send("orders", b"v")
        assert not vars(producer)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(producer, "send", instead)
            assert await producer.send("orders", b"v") == "instead"
        assert (await producer.send("orders", b"v", partition=0)).partition == 0


def test_types_of_keys_and_values_may_stand_in_annotations_that_are_evaluated() -> None:
    """They are for type checkers; at run time it is the same class."""

    class Shop(Producer[str, int]):
        pass

    assert type(Producer[str, int](bootstrap_servers="a:1")) is Producer
    assert type(Shop.from_config({"bootstrap.servers": "a:1"})) is Shop
    assert Shop.__mro__[1:] == Producer.__mro__
    assert typing.get_args(Producer[str, int]) == (str, int)
    assert (
        typing.get_type_hints(Producer.__init__)["configs"] == typing.Unpack[ProducerConfigs[Key_contra, Value_contra]]
    )


def test_config_names_that_no_call_can_take() -> None:
    """They are reported like any other unknown name."""
    with pytest.raises(ConfigError, match="config names are strings, not 1"):
        Producer.from_config({1: 2})  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match="config self is unknown"):
        Producer.from_config({"self": 2})


@pytest.mark.parametrize("make", [Producer.from_config, Producer.from_librdkafka_config])
@pytest.mark.parametrize(("given", "kind"), [(None, "NoneType"), ("secret", "str"), ([("acks", "all")], "list")])
def test_configs_that_are_no_mapping(make: Callable[[Any], object], given: object, kind: str) -> None:
    """The error names the type, and shows no values, which may be passwords."""
    with pytest.raises(ConfigError, match=f"^configs are a mapping of names to values, not {kind}$"):
        make(given)


@each_call
async def test_before_start(call: str) -> None:
    """Every call before start raises NotStartedError."""
    producer = Producer(bootstrap_servers="unused:1")
    with pytest.raises(NotStartedError, match=r"async with.*start\(\)"):
        await CALLS[call](producer)
    with pytest.raises(NotStartedError):
        producer.submit_nowait("orders", b"v")


@pytest.mark.parametrize("call", [*CALLS, "send_many"])
async def test_while_it_starts(broker: ProducingBroker, call: str) -> None:
    """The error does not say that nobody started it."""
    broker.silent(MetadataRequest)
    producer = producer_of(broker)
    starting = asyncio.create_task(producer.start())
    await turns(1)
    calls = CALLS | {"send_many": lambda producer: producer.send_many("orders", [b"v"])}
    with pytest.raises(NotStartedError, match="still starting"):
        await calls[call](producer)
    with pytest.raises(NotStartedError, match="still starting"):
        producer.submit_nowait("orders", b"v")
    await producer.close()
    with pytest.raises(ProducerClosedError):
        await starting


@each_call
async def test_after_close(broker: ProducingBroker, call: str) -> None:
    """Every call after close raises ProducerClosedError, even without a start."""
    producer = producer_of(broker)
    await producer.start()
    await producer.close()
    never_started = producer_of(broker)
    await never_started.close()
    for each in producer, never_started:
        with pytest.raises(ProducerClosedError, match="make a new one"):
            await CALLS[call](each)
        with pytest.raises(ProducerClosedError, match="make a new one"):
            each.submit_nowait("orders", b"v")
        with pytest.raises(ProducerClosedError, match="make a new one"):
            await each.start()


async def test_a_broker_with_the_number_zero() -> None:
    """As in many clusters, whose first broker has the id 0."""
    async with ProducingBroker({"orders": 3}) as broker:
        broker.node_id = 0
        async with producer_of(broker) as producer:
            for number in range(3):
                assert (await producer.send("orders", b"%d" % number, partition=number)).partition == number
            assert [info.leader for info in await producer.partitions_for("orders")] == [0, 0, 0]
            assert "node-0" in str(producer.metrics()["producer-node-metrics"])
            await producer.send_many("orders", [b"a", b"b"])
            for peer in broker.peers:
                peer.writer.close()  # it is found again by its id
            await producer.send("orders", b"again")


async def test_start_waits_for_two_answers(broker: ProducingBroker) -> None:
    """ApiVersions and Metadata, three round trips with TCP's; a producer id is requested, but not awaited."""
    broker.silent(InitProducerIdRequest)
    producer = producer_of(broker)
    async with asyncio.timeout(PATIENCE_S):
        await producer.start()
    answered = [each.api_key for each in broker.requests if each.api_key != InitProducerIdRequest.API_KEY]
    assert answered == [ApiVersionsRequest.API_KEY, MetadataRequest.API_KEY]
    assert len(broker.peers) == 1
    await producer.close(timeout=0)


async def test_started_twice(broker: ProducingBroker) -> None:
    """A second start is an error and changes nothing, even while the first is running."""
    producer = producer_of(broker)
    first = asyncio.create_task(producer.start())
    await turns(1)
    with pytest.raises(AlreadyStartedError):
        await producer.start()
    await first
    with pytest.raises(AlreadyStartedError):
        await producer.start()
    assert await producer.send("orders", b"v")
    await producer.close()


async def test_failed_start(broker: ProducingBroker) -> None:
    """After a failed start it may be started again, or closed."""
    await broker.stop()
    producer = producer_of(broker, max_block_ms=2000)
    with pytest.raises(BootstrapError, match=broker.bootstrap_servers) as caught:
        await producer.start()
    assert isinstance(caught.value, TimeoutError)
    with pytest.raises(NotStartedError):
        producer.submit_nowait("orders", b"v")
    await broker.start()
    await producer.start()
    assert await producer.send("orders", b"v")
    await producer.close()
    other = Producer(bootstrap_servers=f"127.0.0.1:{closed_port()}")
    with pytest.raises(BootstrapError):
        await other.start()
    await other.close()


async def test_cancelled_start(broker: ProducingBroker) -> None:
    """A cancelled start leaves nothing, and may be repeated."""
    producer = producer_of(broker)
    for steps in range(6):
        starting = asyncio.create_task(producer.start())
        await turns(steps)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    async with producer:
        assert await producer.send("orders", b"v")


async def test_start_whose_task_is_cancelled(broker: ProducingBroker) -> None:
    """If all tasks but the caller's are cancelled, the start fails, and the caller is not cancelled."""
    broker.silent(MetadataRequest)
    producer = producer_of(broker)
    starting = asyncio.create_task(producer.start())
    await broker.next_request(MetadataRequest)
    for task in asyncio.all_tasks():
        if task.get_name() == "aioproducer start":
            task.cancel()
    with pytest.raises(ProducerFailedError, match="was cancelled"):
        await starting
    await producer.close()


async def test_started_again_after_its_tasks_were_cancelled() -> None:
    """A producer that failed in its start stays failed, because it would not notice another failure."""
    with FakeCluster() as cluster:
        cluster.faults.swallow("InitProducerId")
        producer = Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="name")
        starting = asyncio.create_task(producer.start())
        async with asyncio.timeout(PATIENCE_S):
            while not (sender := [task for task in asyncio.all_tasks() if task.get_name() == "aioproducer sender"]):
                await turns()
        sender[0].cancel()
        with pytest.raises(ProducerFailedError, match="sender"):
            await starting
        assert producer.health().state is ProducerState.FAILED
        with pytest.raises(ProducerFailedError, match="sender"):
            await producer.start()
        await producer.close()


async def test_closed_during_start(broker: ProducingBroker) -> None:
    """Closing during start ends both, and nothing is admitted afterwards."""
    for steps in range(0, 12, 3):
        producer = producer_of(broker)
        starting = asyncio.create_task(producer.start())
        await turns(steps)
        await asyncio.wait_for(producer.close(), PATIENCE_S)
        (result,) = await asyncio.gather(starting, return_exceptions=True)
        assert isinstance(result, (KafkaError, type(None)))
        with pytest.raises(ProducerClosedError):
            producer.submit_nowait("orders", b"v")


@pytest.mark.parametrize("unanswered", [ApiVersionsRequest, MetadataRequest])
async def test_closed_while_the_start_waits(broker: ProducingBroker, unanswered: type[Request[Any]]) -> None:
    """close() ends a start that no broker answers, and its connection."""
    broker.silent(unanswered)
    producer = producer_of(broker)
    starting = asyncio.create_task(producer.start())
    await broker.next_request(unanswered)
    await asyncio.wait_for(producer.close(), PATIENCE_S)
    with pytest.raises(ProducerClosedError):
        await asyncio.wait_for(starting, PATIENCE_S)
    for peer in broker.peers:
        await asyncio.wait_for(peer.gone.wait(), PATIENCE_S)


async def test_closed_as_the_start_succeeds(broker: ProducingBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """close() is called between the engine's start and the producer's: the producer stays closed."""
    producer = producer_of(broker)
    closing: list[asyncio.Task[None]] = []
    start = Engine.start

    async def start_then_close(engine: Engine) -> None:
        await start(engine)
        closing.append(asyncio.create_task(producer.close()))
        await turns(1)

    monkeypatch.setattr(Engine, "start", start_then_close)
    with pytest.raises(ProducerClosedError):
        await producer.start()
    await asyncio.wait_for(closing[0], PATIENCE_S)
    with pytest.raises(ProducerClosedError):
        producer.submit_nowait("orders", b"v")


async def test_failed_as_the_start_succeeds() -> None:
    """A broker without producer ids: start raises the reason, instead of starting a failed producer."""
    ranges = {key: versions for key, versions in EVERYTHING.items() if key != InitProducerIdRequest.API_KEY}
    async with ProducingBroker(ranges=ranges) as broker:
        producer = producer_of(broker)
        for _ in range(2):
            with pytest.raises(ProducerFailedError, match=r"InitProducerId.*enable_idempotence=False"):
                await producer.start()
        assert producer.health().state is ProducerState.FAILED
        with pytest.raises(ProducerFailedError, match="enable_idempotence=False"):
            await producer.flush()
        await producer.close()


async def test_closed_by_many(broker: ProducingBroker) -> None:
    """close() may be called repeatedly and concurrently; each call returns when everything has ended."""
    broker.holding = True
    producer = producer_of(broker)
    await producer.start()
    delivery = await producer.submit("orders", b"v")
    closing = [asyncio.create_task(producer.close()) for _ in range(3)]
    await broker.holds()
    assert not any(task.done() for task in closing)
    broker.release()
    await asyncio.gather(*closing)
    assert delivery.result().offset == 0
    await producer.close()


async def test_close_cuts_linger(broker: ProducingBroker) -> None:
    """close() sends lingering batches."""
    producer = producer_of(broker, linger_ms=60_000, delivery_timeout_ms=200_000)
    await producer.start()
    delivery = await producer.submit("orders", b"v")
    await producer.close()
    assert delivery.result().offset == 0
    assert broker.values() == [b"v"]


async def test_close_reports_once(broker: ProducingBroker) -> None:
    """Unobserved failures are raised by the close that ends the producer and concurrent ones, not by later ones."""
    broker.error_code = 29
    producer = producer_of(broker)
    await producer.start()
    await producer.submit("orders", b"v")
    results = await asyncio.gather(producer.close(), producer.close(), return_exceptions=True)
    assert [type(result) for result in results] == [DeliveryErrors] * 2
    await producer.close()


async def test_a_broker_that_can_not_be_reached_where_it_says_it_is(
    broker: ProducingBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bootstrap address works, the advertised one does not: the records' errors name it."""
    elsewhere = MetadataResponseBroker(node_id=1, host=broker.host, port=closed_port())
    monkeypatch.setattr(broker, "address", lambda: elsewhere)
    async with producer_of(broker, linger_ms=0, request_timeout_ms=1000, delivery_timeout_ms=1000) as producer:
        with pytest.raises(DeliveryTimeoutError, match=r"0 attempts.* no connection to") as caught:
            await producer.send("orders", b"v")
    assert f"{elsewhere.host}:{elsewhere.port}" in str(caught.value)
    assert isinstance(caught.value.__cause__, ConnectionLostError)
    assert not caught.value.maybe_written


async def test_a_leader_that_is_no_broker(broker: ProducingBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    known = broker.address()
    monkeypatch.setattr(broker, "address", lambda: known)
    monkeypatch.setattr(broker, "node_id", 99)  # of the partitions' leader
    async with producer_of(broker, linger_ms=0, request_timeout_ms=1000, delivery_timeout_ms=1000) as producer:
        with pytest.raises(
            DeliveryTimeoutError, match=r"0 attempts.*orders-0: node 99 leads it, which is not"
        ) as caught:
            await producer.send("orders", b"v")
    assert isinstance(caught.value.__cause__, LeaderNotAvailableError)


async def test_a_cluster_that_gives_no_producer_id(broker: ProducingBroker) -> None:
    """Waiting records fail, and say which broker refused; with a later id the next ones are sent."""
    id_given = InitProducerIdResponse(producer_id=PID, producer_epoch=0)
    broker.on(InitProducerIdRequest, lambda _: InitProducerIdResponse(error_code=CoordinatorLoadInProgressError.code))
    async with producer_of(broker, linger_ms=0, request_timeout_ms=1000, delivery_timeout_ms=1000) as producer:
        with pytest.raises(DeliveryTimeoutError, match=r"0 attempts.*node 1 .* refused a producer id with") as caught:
            await producer.send("orders", b"v")
        assert isinstance(caught.value.__cause__, CoordinatorLoadInProgressError)
        assert not caught.value.maybe_written
        broker.on(InitProducerIdRequest, lambda _: id_given)
        while not broker.values():
            with suppress(DeliveryTimeoutError):
                await producer.send("orders", b"w")


async def test_a_broker_that_throttles_for_longer_than_a_record_may_wait(
    broker: ProducingBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The errors of waiting records say so, and how much longer it takes."""
    taken = broker._taken

    def throttling(request: ReceivedRequest) -> ProduceResponse:
        answer = taken(request)
        answer.throttle_time_ms = 60_000
        return answer

    monkeypatch.setattr(broker, "_taken", throttling)
    async with producer_of(broker, linger_ms=0, request_timeout_ms=1000, delivery_timeout_ms=1000) as producer:
        await producer.send("orders", b"v")
        with pytest.raises(
            DeliveryTimeoutError, match=r"0 attempts.* throttles this client for another 5\d s"
        ) as caught:
            await producer.send("orders", b"w")
        assert f"node 1 ({broker.bootstrap_servers})" in str(caught.value)
        assert isinstance(caught.value.__cause__, ThrottlingQuotaExceededError)
        assert not caught.value.maybe_written


async def test_close_with_a_timeout(broker: ProducingBroker) -> None:
    """Records that have not ended in time fail; those in flight may be written, others are certainly not."""
    broker.holding = True
    broker.topics = {"orders": 1, "audit": 1}
    producer = producer_of(broker, max_in_flight_requests_per_connection=1)
    await producer.start()
    await producer.partitions_for("audit")
    first = await producer.submit("orders", b"1")
    await broker.holds()
    second = await producer.submit("audit", b"2")
    await producer.close(timeout=0.01)
    errors = [first.exception(), second.exception()]
    assert [type(error) for error in errors] == [ProducerClosedError] * 2
    assert [error.maybe_written for error in errors if error is not None] == [True, False]
    assert producer.metrics()["producer-metrics"]["buffer-available-bytes"] == 33554432


async def test_close_turns_away_calls_that_wait_for_memory(broker: ProducingBroker) -> None:
    """At once, though the records before them take as long as they need."""
    broker.holding = True
    producer = producer_of(broker, buffer_memory=40_000, batch_size=16_384)
    await producer.start()
    delivery = await producer.submit("orders", b"v")
    await broker.holds()
    waiting = asyncio.create_task(producer.submit("orders", bytes(39_000)))
    await turns()
    closing = asyncio.create_task(producer.close())
    with pytest.raises(ProducerClosedError):
        await asyncio.wait_for(waiting, PATIENCE_S)
    assert not delivery.done()
    broker.release()
    await closing
    assert delivery.exception() is None


async def cancel_close(producer: Producer) -> None:
    """Call close() and cancel the call once it waits."""
    closing = asyncio.create_task(producer.close())
    await turns()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing


async def test_close_with_a_timeout_and_nothing_left_to_fail(
    broker: ProducingBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the memory of a record that expired in flight is still in use: no warning about failed records."""
    broker.error_code = 19
    producer = producer_of(
        broker,
        linger_ms=0,
        request_timeout_ms=500,
        delivery_timeout_ms=500,
        retry_backoff_ms=200,
        retry_backoff_max_ms=200,
    )
    await producer.start()
    delivery = await producer.submit("orders", b"v")
    await broker.next_request(ProduceRequest)
    broker.holding = True
    await broker.holds()
    with pytest.raises(DeliveryTimeoutError):
        await delivery
    await producer.close(timeout=0.01)
    assert "as they had not ended" not in caplog.text


async def test_a_close_that_takes_long_is_told(
    broker: ProducingBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The orchestrator may kill the process before it is over, and then nothing else tells of these records."""
    monkeypatch.setattr("aioproducer.closing.TOLD_AFTER_S", 0.01)
    broker.holding = True
    producer = producer_of(broker)
    await producer.start()
    delivery = await producer.submit("orders", b"v")
    closing = asyncio.create_task(producer.close())
    await until(lambda: caplog.records)
    assert messages_of(caplog) == ["close(timeout=None) waits for 1 records that have not ended"]
    await broker.holds()
    broker.release()
    await closing
    assert delivery.exception() is None


async def test_cancelled_close(broker: ProducingBroker, caplog: pytest.LogCaptureFixture) -> None:
    """A cancelled close ends like close(0): no pending records, tasks or sockets are left; the log has their number."""
    broker.holding = True
    producer = producer_of(broker)
    await producer.start()
    delivery = await producer.submit("orders", b"v")
    await broker.holds()
    await cancel_close(producer)
    assert isinstance(delivery.exception(), ProducerClosedError)
    await asyncio.wait_for(producer.close(), PATIENCE_S)
    assert caplog.text.count("close() was cancelled: 1 records failed, as they had not ended") == 1


async def test_close_whose_task_is_cancelled_before_it_runs(broker: ProducingBroker) -> None:
    """By whoever cancels all tasks there are: it ends as close(0) would, though not one of its steps has run."""
    tasks = asyncio.all_tasks()
    interceptor = Mock(spec=["on_acknowledgement", "close"])
    producer = producer_of(broker, interceptor_classes=[interceptor])
    await producer.start()
    broker.holding = True
    delivery = await producer.submit("orders", b"v")
    waiting = asyncio.create_task(producer.send("unknown", b"v"))
    await broker.holds()
    closing = asyncio.create_task(producer.close())
    (task,) = await task_once_it_runs("aioproducer close")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert isinstance(delivery.exception(), ProducerClosedError)
    with pytest.raises(ProducerClosedError):
        await waiting
    interceptor.close.assert_called_once()
    async with asyncio.timeout(PATIENCE_S):
        while asyncio.all_tasks() - tasks:
            await asyncio.sleep(0)


async def test_close_whose_task_is_cancelled_before_it_runs_during_start(broker: ProducingBroker) -> None:
    broker.silent(MetadataRequest)
    producer = producer_of(broker)
    starting = asyncio.create_task(producer.start())
    await broker.next_request(MetadataRequest)
    closing = asyncio.create_task(producer.close())
    (task,) = await task_once_it_runs("aioproducer close")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    with pytest.raises(ProducerClosedError):
        await asyncio.wait_for(starting, PATIENCE_S)


async def test_cancelled_close_with_failures(broker: ProducingBroker) -> None:
    """The errors of a cancelled close are not raised, and not reported to the loop either."""
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    broker.error_code = 29
    producer = producer_of(broker)
    await producer.start()
    await producer.submit("orders", b"refused")
    while producer.metrics()["producer-metrics"]["record-error-total"] == 0:
        await turns()
    broker.error_code, broker.holding = 0, True
    await producer.submit("orders", b"held")
    await broker.holds()
    await cancel_close(producer)
    while producer.health().state is not ProducerState.CLOSED:
        await turns()
    del producer
    gc.collect()  # an unretrieved error is reported to the loop when its task is freed
    assert not told


@pytest.mark.parametrize("end", ["out of time", "cancelled"])
async def test_a_flush_of_what_close_gives_up(broker: ProducingBroker, end: str) -> None:
    """The flush does not return as if the records had ended."""
    producer = producer_of(broker)
    await producer.start()
    broker.holding = True
    for _ in range(3):
        await producer.submit("orders", b"v")
    flushing = asyncio.create_task(producer.flush())
    await broker.holds()
    closing = [asyncio.create_task(producer.close(timeout)) for timeout in (None, 0 if end == "out of time" else None)]
    if end == "cancelled":
        await turns(3)
        closing[1].cancel()
    first, _ = await asyncio.gather(*closing, return_exceptions=True)
    assert first is None
    with pytest.raises(ProducerClosedError, match="3 records"):
        await asyncio.wait_for(flushing, PATIENCE_S)
    await producer.close()
    assert producer.health().given_up == 3


async def test_exception_of_the_body_wins(broker: ProducingBroker) -> None:
    """async with never replaces an exception of its body; the errors of close become a note."""
    broker.error_code = 29

    async def body() -> None:
        async with producer_of(broker) as producer:
            await producer.submit("orders", b"v")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        await body()
    (note,) = caught.value.__notes__
    assert note.startswith("closing the producer failed too: 1 records were not delivered")
    assert "; the first is TopicAuthorizationFailedError: orders-0: " in note


async def test_async_with_raises_what_nobody_looked_at(broker: ProducingBroker) -> None:
    """If the body did not raise, unobserved failures are raised at its end."""
    broker.error_code = 29

    async def body() -> None:
        async with producer_of(broker) as producer:
            for _ in range(3):
                await producer.submit("orders", b"v")

    with pytest.raises(DeliveryErrors) as caught:
        await body()
    assert caught.value.record_count == 3
    assert isinstance(caught.value.exceptions[0], TopicAuthorizationFailedError)


async def test_dropped_unclosed(broker: ProducingBroker) -> None:
    """A producer that is dropped unclosed warns; pending records fail, and its tasks and sockets end."""
    producers = [producer_of(broker)]
    await producers[0].start()
    broker.holding = True
    delivery = await producers[0].submit("orders", b"v")
    await broker.holds()
    before = len(asyncio.all_tasks())
    with pytest.warns(ResourceWarning, match="never closed"):
        producers.clear()
    with pytest.raises(ProducerClosedError, match="dropped without close") as caught:
        await delivery
    assert caught.value.maybe_written
    for peer in broker.peers:
        await asyncio.wait_for(peer.gone.wait(), PATIENCE_S)
    while len(asyncio.all_tasks()) >= before:
        await asyncio.sleep(0)


async def failed_producer(broker: ProducingBroker, **configs: Any) -> Producer:
    """A producer that has sent a record, and whose sender was then cancelled."""
    producer = producer_of(broker, **configs)
    await producer.start()
    await producer.send("orders", b"v")
    for task in asyncio.all_tasks():
        if task.get_name() == "aioproducer sender":
            task.cancel()
    while producer.health().state is not ProducerState.FAILED:
        await asyncio.sleep(0)
    return producer


async def test_failed_producers_leave_nothing(broker: ProducingBroker) -> None:
    """A failed producer ends its tasks and connections, closed or not; it can still be closed."""
    before = asyncio.all_tasks()
    async with asyncio.timeout(PATIENCE_S):
        producer = await failed_producer(broker)
        while any(task.get_name().startswith("aioproducer") for task in asyncio.all_tasks() - before):
            await asyncio.sleep(0)
        for peer in broker.peers:
            await peer.gone.wait()
        await producer.close()


async def test_failed_and_dropped_unclosed(broker: ProducingBroker) -> None:
    """A failed producer warns too."""
    producers = [await failed_producer(broker)]
    with pytest.warns(ResourceWarning, match="never closed"):
        producers.clear()


@pytest.mark.parametrize("why", ["closed", "failed and closed", "forked", "not started"])
async def test_dropped_without_a_word(broker: ProducingBroker, recwarn: pytest.WarningsRecorder, why: str) -> None:
    """There is no warning for one that was closed, for a fork's copy, or for one that was never started."""
    producer = producer_of(broker)
    engine = None
    if why == "failed and closed":
        producer = await failed_producer(broker)
    elif why != "not started":
        await producer.start()
    if "closed" in why:
        await producer.close()
    if why == "forked":
        engine = producer._engine
        producer._forked()
    del producer
    gc.collect()
    assert [warning for warning in recwarn if warning.category is ResourceWarning] == []
    if engine is not None:
        await engine.stop()


@pytest.mark.parametrize("end", ["run", "close"])
def test_closed_when_its_loop_is(end: str) -> None:
    """In another loop, close() releases what is left; pending records have failed then, and nothing is raised."""

    async def begin(servers: str) -> tuple[Producer, Delivery]:
        producer = Producer(bootstrap_servers=servers, linger_ms=60_000, delivery_timeout_ms=200_000)
        await producer.start()
        return producer, await producer.submit("orders", b"v")

    async def close(producer: Producer) -> None:
        await producer.close()
        await producer.close(timeout=1)

    with FakeCluster() as cluster:
        if end == "run":
            producer, delivery = asyncio.run(begin(cluster.bootstrap_servers))
        else:
            loop = asyncio.new_event_loop()
            producer, delivery = loop.run_until_complete(begin(cluster.bootstrap_servers))
            waiting = loop.create_task(awaited(delivery))
            loop.run_until_complete(turns())
            for task in asyncio.all_tasks(loop):
                task._log_destroy_pending = False  # type: ignore[attr-defined]
            loop.close()
            assert not waiting.done()
            del loop, waiting, task
        asyncio.run(close(producer))
        assert producer.health().state is ProducerState.CLOSED
        asyncio.run(close(producer))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # asyncio's, of sockets over which a loop was closed
            del producer
            gc.collect()
        error = delivery.exception()
        assert isinstance(error, ProducerClosedError)
        assert not error.maybe_written


def test_closed_when_its_loop_is_and_many_are_sent() -> None:
    """No loop will continue a waiting send_many; its records fail, and so do all others."""

    async def begin(producer: Producer) -> Delivery:
        await producer.start()
        for topic in ("orders", "later"):  # now, because nothing is answered behind an unanswered Produce
            await producer.partitions_for(topic)
        calls = [asyncio.create_task(producer.send_many("orders", [b"v"] * 3)) for _ in range(2)]
        delivery = await producer.submit("later", b"v")
        async with asyncio.timeout(PATIENCE_S):
            while producer.health().pending < 7:
                assert not [call for call in calls if call.done()]
                await turns()
        return delivery

    with FakeCluster() as cluster, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # asyncio's, of sockets over which a loop was closed
        cluster.faults.swallow("Produce", times=None)
        producer = Producer(bootstrap_servers=cluster.bootstrap_servers)
        loop = asyncio.new_event_loop()
        delivery = loop.run_until_complete(begin(producer))
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()
        asyncio.run(producer.close())
        assert producer.health().state is ProducerState.CLOSED
        assert isinstance(delivery.exception(), ProducerClosedError)
        del loop, producer, task
        gc.collect()


@pytest.mark.parametrize("timeout", [None, 1])
def test_closed_again_when_the_loop_of_a_close_is(timeout: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program closes its loop during close(), which can never finish then: the next close() starts again."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)  # about coroutines that end without their loop
    loops: list[asyncio.AbstractEventLoop] = []

    def until_it_is_closed(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Run it, and close the loop with everything unfinished."""
        loops.append(asyncio.new_event_loop())
        result = loops[-1].run_until_complete(work())
        for task in asyncio.all_tasks(loops[-1]):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        loops[-1].close()
        return result

    async def begin() -> Delivery:
        await producers[0].start()
        return await producers[0].submit("orders", b"v")

    async def close_halfway() -> None:
        closings.append(asyncio.create_task(producers[0].close()))
        await turns(2)
        assert producers[0].health().state is ProducerState.CLOSING

    async def begin_and_close_halfway() -> Delivery:
        delivery = await begin()
        await close_halfway()
        return delivery

    closings: list[asyncio.Task[None]] = []
    serializer = SlowToClose()
    with FakeCluster() as cluster, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # asyncio's, of sockets over which a loop was closed
        cluster.faults.swallow("Produce", times=None)
        producers = [Producer(bootstrap_servers=cluster.bootstrap_servers, value_serializer=serializer)]
        delivery = until_it_is_closed(begin_and_close_halfway)
        until_it_is_closed(close_halfway)  # now only serializers have to be closed
        assert isinstance(delivery.exception(), ProducerClosedError)
        serializer.is_slow = False
        asyncio.run(asyncio.wait_for(producers[0].close(timeout), PATIENCE_S))
        assert producers[0].health().state is ProducerState.CLOSED
        asyncio.run(producers[0].close())
        assert (serializer.begun, serializer.closed) == (2, 1)
        closings.clear()
        loops.clear()
        producers.clear()
        for _ in range(3):
            gc.collect()


class SlowToClose:
    """A serializer whose close ends when the test says so."""

    adds_headers = False
    is_slow = True
    begun = closed = 0

    def bind(self, *, is_key: bool, max_block_ms: int) -> SlowToClose:
        return self

    def serialize_nowait(self, topic: str, headers: Any, value: Any) -> Any:
        return value

    serialize = serialize_nowait

    async def close(self) -> None:
        self.begun += 1
        while self.is_slow:
            await asyncio.sleep(0)
        self.closed += 1


@pytest.mark.parametrize("call", ["close", "flush"])
@pytest.mark.parametrize("timeout", ["5", float("nan"), b"", []])
async def test_a_timeout_that_is_none(broker: ProducingBroker, call: str, timeout: Any) -> None:
    """That call fails, and the producer is unchanged."""
    async with producer_of(broker) as producer:
        with pytest.raises((TypeError, ValueError), match="timeout"):
            await getattr(producer, call)(timeout)
        assert producer.health().state is ProducerState.RUNNING
        assert await producer.send("orders", b"v")
        broker.holding = True
        await producer.submit("orders", b"v")
        closing = asyncio.create_task(producer.close())
        await turns()
        if call == "close":
            with pytest.raises((TypeError, ValueError), match="timeout"):
                await producer.close(timeout)
        broker.release()
        await closing


@pytest.mark.parametrize("timeout", [1e308, float("inf"), 10**400, sys.maxsize])
async def test_a_timeout_that_is_never_over(broker: ProducingBroker, timeout: float) -> None:
    producer = producer_of(broker)
    await producer.start()
    await producer.submit("orders", b"v")
    await producer.flush(timeout)
    await producer.close(timeout)
    assert broker.values() == [b"v"]


async def awaited(delivery: Delivery) -> RecordMetadata:
    return await delivery


async def test_closed_producers_are_free(broker: ProducingBroker) -> None:
    """Nothing references a closed producer or its engine."""
    producer = producer_of(broker)
    async with producer:
        await producer.send("orders", b"v")
    engine: Any = producer._engine
    gone = [weakref.ref(producer), weakref.ref(engine)]
    del producer, engine
    gc.collect()
    assert [each() for each in gone] == [None, None]


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize("started", [False, True])
async def test_neither_copied_nor_pickled(
    broker: ProducingBroker, duplicate: Callable[[Producer], object], started: bool
) -> None:
    """A copy would share the engine, and close it for the original."""
    producer = producer_of(broker)
    if started:
        await producer.start()
    with pytest.raises(TypeError, match="can't be copied or pickled; make one"):
        duplicate(producer)
    await producer.close()


# --- sending ----------------------------------------------------------------------------------------------------------


async def test_send_submit_and_nowait(broker: ProducingBroker) -> None:
    """The three ways put records into the log, in call order."""
    async with producer_of(broker) as producer:
        metadata = await producer.send("orders", b"1", key=b"k", headers=[("h", b"x")], timestamp_ms=5)
        assert metadata == RecordMetadata("orders", 0, 0, 5, 1, 1)
        delivery = await producer.submit("orders", b"2")
        last = producer.submit_nowait("orders", b"3")
        assert (await last).offset == 2
        assert (await delivery).offset == 1
    assert broker.values() == [b"1", b"2", b"3"]
    assert broker.log["orders", 0][0].headers == (("h", b"x"),)


OLD = {0: (0, 3), 3: (0, 4), 18: (0, 0), 22: (0, 0)}
"""The API versions of a broker of Kafka 0.11."""


@pytest.mark.parametrize("produce", range(3, 14))
async def test_every_version_of_produce(produce: int) -> None:
    """Brokers from 0.11 on get the newest Produce version that they support."""
    ranges = {**OLD, 0: (0, produce)}
    async with ProducingBroker(ranges=ranges) as broker, producer_of(broker) as producer:
        assert (await producer.send("orders", b"v", headers={"h": None})).offset == 0
        assert {request.version for request in broker.requests if request.api_key == 0} == {min(produce, 12)}
    assert broker.values() == [b"v"]


async def test_records_go_through_no_thread(broker: ProducingBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the call to the acknowledgement only the event loop handles a record, without a worker thread."""
    jobs: list[Any] = []
    submit = ThreadPoolExecutor.submit

    def noted(*arguments: Any, **named: Any) -> Any:
        jobs.append(arguments)
        return submit(*arguments, **named)

    async with producer_of(broker) as producer:
        await producer.partitions_for("orders")
        monkeypatch.setattr(ThreadPoolExecutor, "submit", noted)
        await producer.send("orders", b"v")
        for _ in range(500):
            producer.submit_nowait("orders", b"v")
        await producer.send_many("orders", [b"v"] * 500)
        await producer.flush()
    assert len(broker.values()) == 1_001
    assert not jobs


async def test_a_producer_for_each_request(broker: ProducingBroker, caplog: pytest.LogCaptureFixture) -> None:
    """A warning, once, says that one producer is enough."""
    for _ in range(MANY + 5):
        async with producer_of(broker):
            pass
    assert len([message for message in caplog.messages if "producers were started within" in message]) == 1


async def test_a_closed_producer_is_not_counted_as_open(
    broker: ProducingBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the program keeps it: the warning would name producers that are no longer there."""
    counted: list[int] = []

    class Count(StartCount):
        def started(self, now_ms: int, open_now: int) -> None:
            counted.append(open_now)

    monkeypatch.setattr("aioproducer.producer._starts", Count())
    kept = [producer_of(broker) for _ in range(3)]
    gc.collect()  # those of earlier tests that were not closed
    for producer in kept:
        async with producer:
            pass
    assert len(set(counted)) == 1


async def test_no_two_producers_draw_the_same() -> None:
    """Else all clients of a cluster that comes back would retry at the same moments, despite the jitter."""
    loop = asyncio.get_running_loop()
    engines = [Producer(bootstrap_servers="unused:1")._make_engine(loop) for _ in range(2)]
    first, second = ([engine.telemetry._rng.random() for _ in range(3)] for engine in engines)
    assert first != second


async def test_partitions_for(broker: ProducingBroker) -> None:
    """partitions_for() waits for metadata and returns the partitions."""
    broker.topics["wide"] = 3
    async with producer_of(broker) as producer:
        assert await producer.partitions_for("wide") == tuple(
            PartitionInfo("wide", number, 1, (1,), (1,), ()) for number in range(3)
        )


@pytest.mark.parametrize("topic", [5, None, b"orders"])
async def test_partitions_for_what_is_no_topic(broker: ProducingBroker, topic: Any) -> None:
    """The error names the argument, like those of send."""
    async with producer_of(broker) as producer:
        with pytest.raises(SerializationError, match=f"the topic is a {type(topic).__name__}; str is needed"):
            await producer.partitions_for(topic)


async def test_partitions_that_are_no_ints(broker: ProducingBroker) -> None:
    """Such as numpy's integers, also for topics whose metadata is not known yet."""

    class Number:
        def __index__(self) -> int:
            return 1

    broker.topics = {"a": 2, "b": 2, "c": 2}
    number: Any = Number()
    async with producer_of(broker, max_block_ms=500) as producer:
        with pytest.raises(MetadataUnavailableError, match="'a', partition 1 is not known"):
            producer.submit_nowait("a", b"v", partition=number)
        assert (await producer.send("a", b"v", partition=number, timestamp_ms=number)).partition == 1
        assert (await producer.send_many("b", [Record(b"v", partition=number)])).offsets == {1: [(0, 0)]}
    async with producer_of(broker, partitioner=lambda *_: number) as producer:
        assert (await producer.send("c", b"v")).partition == 1


async def test_unknown_topic(broker: ProducingBroker) -> None:
    """submit waits max_block_ms for a topic; submit_nowait does not wait, but triggers a metadata request."""
    async with producer_of(broker, max_block_ms=500) as producer:
        for call in (
            producer.submit("nothing", b"v"),
            producer.send("nothing", b"v"),
            producer.partitions_for("nothing"),
        ):
            with pytest.raises(MetadataTimeoutError, match="nothing"):
                await call
        with pytest.raises(MetadataUnavailableError, match=r"'later' is not known yet; await submit\(\)"):
            producer.submit_nowait("later", b"v")
        with pytest.raises(MetadataUnavailableError, match="'orders', partition 7 is not known"):
            producer.submit_nowait("orders", b"v", partition=7)
        await producer.partitions_for("orders")
        with pytest.raises(MetadataUnavailableError, match=r"'orders' has \d+ partitions and no partition 7, .*submit"):
            producer.submit_nowait("orders", b"v", partition=7)


async def test_topic_that_vanishes_while_serializing(broker: ProducingBroker) -> None:
    """If the topic is gone when the serializer is done, the call waits for its metadata, not for memory."""

    async def serializer(value: bytes) -> bytes:
        engine: Any = producer._engine
        engine._metadata._take(ClusterChanges(engine._metadata.cluster.brokers, {"orders": None}))
        assert engine.accumulator.topic("orders") is None
        return value

    async with producer_of(broker, value_serializer=serializer) as producer:
        metadata = await asyncio.wait_for(producer.send("orders", b"v"), PATIENCE_S)
        assert metadata.offset == 0


async def test_topic_that_vanishes_while_its_record_waits_for_memory(broker: ProducingBroker) -> None:
    """The call waits for the topic then, and no longer for memory, before others."""
    broker.topics = {"orders": 1, "audit": 1}
    broker.holding = True
    async with producer_of(broker, buffer_memory=20_000, batch_size=16_384, linger_ms=0) as producer:
        await producer.partitions_for("audit")
        await producer.submit("orders", bytes(19_000))
        first = asyncio.create_task(producer.send("audit", bytes(5_000)))
        second = asyncio.create_task(producer.send("orders", bytes(5_000)))
        await turns()
        engine: Any = producer._engine
        assert len(engine.memory_queue) == 2
        engine._metadata._take(ClusterChanges(engine._metadata.cluster.brokers, {"audit": None}))
        broker.release()
        assert (await asyncio.wait_for(second, PATIENCE_S)).offset == 1
        assert (await asyncio.wait_for(first, PATIENCE_S)).topic == "audit"


async def test_full_buffer(broker: ProducingBroker) -> None:
    """With the buffer full, submit and ready wait in order, and nobody behind them overtakes."""
    broker.holding = True
    async with producer_of(broker, buffer_memory=50_000, batch_size=16_384, linger_ms=0) as producer:
        held = [await producer.submit("orders", bytes(15_000)) for _ in range(3)]
        waiting = [asyncio.create_task(producer.submit("orders", b"%d" % i + bytes(14_000))) for i in range(3)]
        small = asyncio.create_task(producer.submit("orders", b"small"))
        await turns()
        with pytest.raises(BufferExhaustedError, match="buffer_memory=50,000 bytes are in use, 4 callers wait"):
            producer.submit_nowait("orders", b"")
        assert producer.metrics()["producer-metrics"]["buffer-exhausted-total"] == 1
        room = asyncio.create_task(producer.ready())
        await turns()
        assert not any(task.done() for task in [*waiting, small, room])
        waiting[1].cancel()
        broker.release()
        deliveries = [await waiting[0], await waiting[2], await small]
        await room
        assert producer.submit_nowait("orders", b"nowait")
        assert [delivery.done() for delivery in held] == [True] * 3
        await producer.flush()
        assert all(delivery.done() for delivery in deliveries)
    assert [(value or b"")[:1] for value in broker.values()[3:]] == [b"0", b"2", b"s", b"n"]


async def test_buffer_stays_full(broker: ProducingBroker) -> None:
    """After max_block_ms a wait for memory fails; the error has the memory in use and the relevant configs."""
    broker.holding = True
    async with producer_of(broker, buffer_memory=20_000, batch_size=16_384, max_block_ms=500) as producer:
        await producer.submit("orders", bytes(19_000))
        message = r"within max_block_ms=500: 19,0\d\d of buffer_memory=20,000 bytes"
        for call in producer.submit("orders", bytes(5000)), producer.send("orders", bytes(5000)), producer.ready():
            with pytest.raises(BufferExhaustedError, match=message) as caught:
                await call
            assert isinstance(caught.value, BufferError)
            assert not caught.value.maybe_written
        broker.release()
        await producer.submit("orders", bytes(5000))


async def test_users_code_sees_the_record(broker: ProducingBroker) -> None:
    """Interceptors, serializers and partitioner work together, in every call."""
    broker.topics = {"orders": 3}
    ends: list[tuple[Any, Any, Any]] = []

    class Interceptor:
        def on_send(self, record: Record) -> Record:
            return Record(record.value + 1, record.key, topic=record.topic, headers=[("seen", b"1")])

        def on_acknowledgement(self, metadata: Any, error: Any, headers: Any) -> None:
            ends.append((metadata, error, headers))

        def close(self) -> None:
            ends.append((None, None, "closed"))

    configs: dict[str, Any] = {
        "interceptor_classes": [Interceptor()],
        "value_serializer": lambda value: b"%d" % value,
        "partitioner": lambda topic, key, value, partitions: int(value) % len(partitions),
    }
    async with producer_of(broker, **configs) as producer:
        metadata = await producer.send("orders", 4)
        delivery = await producer.submit("orders", 5)
        last = producer.submit_nowait("orders", 6)
        await producer.flush()
        assert [metadata.partition, delivery.result().partition, last.result().partition] == [2, 0, 1]
    assert [broker.values(partition=partition) for partition in range(3)] == [[b"6"], [b"7"], [b"5"]]
    assert broker.log["orders", 2][0].headers == (("seen", b"1"),)
    assert ends[:3] == [(each, None, [("seen", b"1")]) for each in (metadata, delivery.result(), last.result())]
    assert ends[3:] == [(None, None, "closed")]


async def test_headers_that_can_be_read_once(broker: ProducingBroker) -> None:
    """Even if user code has read them, in every call: they are still written."""
    seen: list[Any] = []

    class Looking:
        def on_send(self, record: Record) -> Record:
            return replace(record, headers=(header for header in record.headers or ()))  # type: ignore[union-attr]

        def on_acknowledgement(self, metadata: Any, error: Any, headers: Any) -> None:
            seen.append([*headers])

        def serialize(self, topic: str, headers: Any, value: Any) -> bytes:
            seen.append([*headers])
            return b"v"

    looking = Looking()
    async with producer_of(broker, interceptor_classes=[looking], value_serializer=looking) as producer:
        await producer.send("orders", 1, headers=iter([("h", b"1")]))
        await producer.submit("orders", 2, headers=iter([("h", b"1")]))
        producer.submit_nowait("orders", 3, headers=iter([("h", b"1")]))
        await producer.send_many("orders", [Record(4, headers=iter([("h", b"1")]))])
    assert [record.headers for record in broker.log["orders", 0]] == [(("h", b"1"),)] * 4
    assert seen == [[("h", b"1")]] * 8


async def test_interceptors_get_their_headers_back(broker: ProducingBroker) -> None:
    """The very object that on_send left, in every call, even if a serializer adds headers to the record."""
    left: list[Any] = []
    told: list[Any] = []

    class Interceptor:
        def on_send(self, record: Record) -> Record:
            left.append([("seen", b"1")])
            return replace(record, headers=left[-1])

        def on_acknowledgement(self, metadata: Any, error: Any, headers: Any) -> None:
            told.append(headers)

    class Adding:
        adds_headers = True

        def bind(self, *, is_key: bool, max_block_ms: int) -> Adding:
            return self

        def serialize(self, topic: str, headers: Any, value: Any) -> bytes:
            headers.append(("added", b"2"))
            return b"v"

        serialize_nowait = serialize

        async def close(self) -> None:
            pass

    async with producer_of(broker, interceptor_classes=[Interceptor()], value_serializer=Adding()) as producer:
        await producer.send("orders", 1)
        await producer.submit("orders", 2)
        producer.submit_nowait("orders", 3)
        await producer.send_many("orders", [4])
    assert [record.headers for record in broker.log["orders", 0]] == [(("seen", b"1"), ("added", b"2"))] * 4
    assert len(told) == 4
    assert all(headers is own for headers, own in zip(told, left, strict=True))


async def test_interceptors_hear_of_failures(broker: ProducingBroker) -> None:
    """Also of failures of records that were never admitted; that does not count as observing."""
    ends: list[tuple[Any, Any]] = []

    class Interceptor:
        def on_send(self, record: Record) -> Record:
            return record

        def on_acknowledgement(self, metadata: Any, error: Any, headers: Any) -> None:
            ends.append((metadata, type(error)))

        def close(self) -> None:
            pass

    broker.error_code = 29
    producer = producer_of(broker, interceptor_classes=[Interceptor()])
    await producer.start()
    with pytest.raises(SerializationError):
        await producer.submit("orders", 5)
    await producer.submit("orders", b"v")
    with pytest.raises(DeliveryErrors):
        await producer.flush()
    await turns()
    assert ends == [(None, SerializationError), (None, TopicAuthorizationFailedError)]
    await producer.close()


# --- flush ------------------------------------------------------------------------------------------------------------


async def test_flush_waits_for_earlier_records_and_not_for_later_ones(broker: ProducingBroker) -> None:
    """flush sends lingering batches and waits for their end; later records can't delay it."""
    async with producer_of(broker, linger_ms=60_000, delivery_timeout_ms=200_000) as producer:
        called: list[Delivery] = []
        delivery = await producer.submit("orders", b"1")
        delivery.add_done_callback(called.append)
        broker.holding = True
        flushing = asyncio.create_task(producer.flush())
        await broker.holds()
        later = await producer.submit("orders", b"2")
        broker.release()
        await flushing
        assert called == [delivery]
        assert not later.done()
    assert later.done()


@pytest.mark.parametrize("end", ["flush", "close", "close in no time"])
async def test_all_callbacks_were_called(broker: ProducingBroker, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may close its loop after flush and close, so no callback may still be pending then."""
    monkeypatch.setattr("aioproducer.closing.LAST_CALLBACKS_S", PATIENCE_S)  # a machine may be slow
    broker.holding = end == "close in no time"
    async with producer_of(broker, linger_ms=60_000, delivery_timeout_ms=200_000) as producer:
        await producer.partitions_for("orders")
        called: list[Delivery] = []
        deliveries = [producer.submit_nowait("orders", b"v") for _ in range(5_000)]
        for delivery in deliveries:
            delivery.add_done_callback(called.append)
        if end == "flush":
            await producer.flush()
        else:
            await producer.close(timeout=0 if broker.holding else None)
        assert called == deliveries


async def test_flush_timeout(broker: ProducingBroker) -> None:
    """If the time is not enough, the error counts the pending records; nothing is dropped."""
    broker.holding = True
    async with producer_of(broker) as producer:
        deliveries = [await producer.submit("orders", b"v") for _ in range(3)]
        with pytest.raises(FlushTimeoutError, match=r"3 records had not ended after 0.01 s") as caught:
            await producer.flush(timeout=0.01)
        assert caught.value.pending == 3
        assert caught.value.maybe_written
        assert isinstance(caught.value, TimeoutError)
        broker.release()
        await producer.flush(timeout=PATIENCE_S)
        assert [delivery.result().offset for delivery in deliveries] == [0, 1, 2]


async def test_flush_of_nothing(broker: ProducingBroker) -> None:
    """With nothing to wait for, it returns, with and without a timeout."""
    async with producer_of(broker) as producer:
        await producer.flush()
        await producer.flush(timeout=0)


async def test_cancelled_flush(broker: ProducingBroker) -> None:
    """A cancelled flush changes nothing; the next one reports its failures."""
    broker.holding = True
    broker.error_code = 29
    producer = producer_of(broker)
    await producer.start()
    await producer.submit("orders", b"v")
    flushing = asyncio.create_task(producer.flush())
    await broker.holds()
    flushing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flushing
    broker.release()
    with pytest.raises(DeliveryErrors):
        await producer.flush()
    await producer.flush()
    await producer.close()


@pytest.mark.parametrize("end", ["timeout", "cancelled"])
async def test_a_flush_that_does_not_end_leaves_the_failures_to_the_next(broker: ProducingBroker, end: str) -> None:
    """Also those that it covers and that had occurred when it gave up: it has not raised them."""
    broker.error_code = 29
    async with producer_of(broker) as producer:
        await producer.submit("orders", b"v")
        while not producer.metrics()["producer-metrics"]["record-error-total"]:
            await asyncio.sleep(0)
        broker.holding = True
        await producer.submit("orders", b"v")
        if end == "timeout":
            with pytest.raises(FlushTimeoutError, match="1 records had not ended"):
                await producer.flush(timeout=0.01)
        else:
            flushing = asyncio.create_task(producer.flush())
            await broker.holds()
            flushing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await flushing
        broker.release()
        with pytest.raises(DeliveryErrors) as caught:
            await producer.flush()
        assert caught.value.record_count == 2


async def test_on_error(broker: ProducingBroker, caplog: pytest.LogCaptureFixture) -> None:
    """An unobserved failure is given to on_error once, with its records, and logged, whatever on_error does."""
    told: list[tuple[KafkaError, int]] = []

    def on_error(error: KafkaError, records: int) -> None:
        told.append((error, records))
        raise ZeroDivisionError

    broker.error_code = 29
    producer = producer_of(broker, on_error=on_error, linger_ms=60_000)
    await producer.start()
    for _ in range(4):
        await producer.submit("orders", b"v")
    with pytest.raises(DeliveryErrors):
        await producer.flush()
    await turns()
    ((error, records),) = told
    assert isinstance(error, TopicAuthorizationFailedError)
    assert records == 4
    messages = [entry.getMessage() for entry in caplog.records if entry.levelno == logging.ERROR]
    assert any("4 records failed and nobody looked" in message for message in messages)
    assert any("on_error raised" in message for message in messages)
    await producer.close()
    assert len(told) == 1


async def test_on_error_has_been_told_when_flush_raises(broker: ProducingBroker) -> None:
    """Failures that flush raises were given to on_error before, as with close."""
    told: list[int] = []
    broker.error_code = 29
    async with producer_of(broker, on_error=lambda _, records: told.append(records)) as producer:
        delivery = await producer.submit("orders", b"v")
        with pytest.raises(DeliveryErrors):
            await producer.flush()
        assert told == [1]
        await turns()
        assert told == [1]
        del delivery


# --- wrong places -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slow", [False, True], ids=["fast path", "slow path"])
def test_another_loop(slow: bool) -> None:
    """Calls from another loop of the thread raise at once, even if they would have to wait."""
    configs: dict[str, Any] = {"value_serializer": lambda value: value} if slow else {}
    home, elsewhere = asyncio.new_event_loop(), asyncio.new_event_loop()

    async def start() -> tuple[ProducingBroker, Producer]:
        broker = ProducingBroker()
        await broker.start()
        producer = producer_of(broker, **configs)
        await producer.start()
        await producer.partitions_for("orders")
        producer._look_again()
        return broker, producer

    async def call(producer: Producer, what: str, topic: str) -> None:
        arguments: dict[str, list[Any]] = {"send": [topic, b"v"], "submit": [topic, b"v"], "partitions_for": [topic]}
        with pytest.raises(WrongLoopError, match="another event loop"):
            await getattr(producer, what)(*arguments.get(what, []))
        with pytest.raises(WrongLoopError, match="another event loop"):
            producer.submit_nowait(topic, b"v")

    broker, producer = home.run_until_complete(start())
    try:
        for topic in "orders", "unknown":
            for what in (*CALLS, "close"):
                producer._look_again()
                elsewhere.run_until_complete(call(producer, what, topic))
        home.run_until_complete(producer.close())
        home.run_until_complete(broker.stop())
    finally:
        home.close()
        elsewhere.close()


async def test_another_thread(broker: ProducingBroker) -> None:
    """Calls from another thread raise, with a remedy."""
    async with producer_of(broker) as producer:

        def elsewhere() -> None:
            producer.submit_nowait("orders", b"v")

        with pytest.raises(
            WrongLoopError, match=r"in another thread; hand the record over with .*call_soon_threadsafe"
        ):
            await asyncio.to_thread(elsewhere)


async def test_a_call_that_waits_for_memory_ends_the_linger_of_open_batches() -> None:
    """Else it would wait as long: no batch is full, and none is in flight."""
    configs = {"linger_ms": 60_000, "buffer_memory": 40_000, "batch_size": 100_000}
    async with ProducingBroker({"orders": 2}) as broker, producer_of(broker, **configs) as producer:
        lingering = await producer.submit("orders", bytes(30_000), partition=0)
        await turns()  # the sender has seen that there is nothing to send yet
        assert not lingering.done()
        await asyncio.wait_for(producer.submit("orders", bytes(30_000), partition=1), PATIENCE_S)
        assert lingering.done()


async def test_ready_waits_for_room_for_the_record_that_was_refused(broker: ProducingBroker) -> None:
    """If a record needs more than what usually counts as room, the full-speed pattern waits without spinning."""
    broker.holding = True
    async with producer_of(broker, buffer_memory=4_000_000, max_request_size=4_000_000, batch_size=1) as producer:
        await producer.partitions_for("orders")
        deliveries = [producer.submit_nowait("orders", bytes(1_000_000)) for _ in range(2)]
        with pytest.raises(BufferExhaustedError):
            producer.submit_nowait("orders", bytes(3_500_000))
        waiting = asyncio.create_task(producer.ready())
        await broker.holds()
        await turns()
        assert not waiting.done()
        broker.release()
        await waiting
        deliveries.append(producer.submit_nowait("orders", bytes(3_500_000)))
        await asyncio.gather(*deliveries)


async def test_ready_waits_for_room_for_a_record_that_was_refused_because_others_wait(broker: ProducingBroker) -> None:
    broker.holding = True
    configs = {"buffer_memory": 4_000_000, "max_request_size": 4_000_000, "batch_size": 1, "max_block_ms": 500}
    async with producer_of(broker, **configs) as producer:
        await producer.submit("orders", bytes(3_000_000))
        waiting = asyncio.create_task(producer.submit("orders", bytes(2_000_000)))
        await turns()
        with pytest.raises(BufferExhaustedError, match="1 callers wait"):
            producer.submit_nowait("orders", bytes(3_500_000))
        with pytest.raises(BufferExhaustedError, match=r"no room for a record of up to 3,500,\d+ bytes"):
            await producer.ready()
        with pytest.raises(BufferExhaustedError):
            await waiting
        await producer.close(0)


async def test_ready_that_has_waited_for_a_large_record_waits_for_no_other(broker: ProducingBroker) -> None:
    """A refused record that is given up has no later effect."""
    broker.holding = True
    configs = {"buffer_memory": 4_000_000, "max_request_size": 4_000_000, "batch_size": 1, "max_block_ms": 500}
    async with producer_of(broker, **configs) as producer:
        await producer.submit("orders", bytes(1_000_000))
        with pytest.raises(BufferExhaustedError):
            producer.submit_nowait("orders", bytes(3_500_000))
        with pytest.raises(
            BufferExhaustedError, match=r"no room for a record of up to 3,500,\d+ bytes within max_block"
        ):
            await producer.ready()
        await producer.ready()
        await producer.close(0)


# --- the end of everything --------------------------------------------------------------------------------------------


async def test_fatal_answer(broker: ProducingBroker) -> None:
    """A fatal answer ends the producer: pending records fail, later calls say why, and it can be closed."""
    broker.topics = {"orders": 1, "audit": 1}
    broker.holding = True
    producer = producer_of(broker, buffer_memory=40_000, batch_size=16_384, max_in_flight_requests_per_connection=1)
    await producer.start()
    await producer.partitions_for("audit")
    first = await producer.submit("orders", b"v")
    await broker.holds()
    second = await producer.submit("audit", b"v")
    waiting = asyncio.create_task(producer.submit("orders", bytes(39_000)))
    topic = asyncio.create_task(producer.submit("unknown", b"v"))
    flushing = asyncio.create_task(producer.flush())
    await turns()
    broker.error_code = 31
    broker.release()
    with pytest.raises(ClusterAuthorizationFailedError):
        await first
    with pytest.raises(ProducerFailedError, match=r"^audit-0: .*CLUSTER_AUTHORIZATION_FAILED") as caught:
        await second
    assert isinstance(caught.value.__cause__, ClusterAuthorizationFailedError)
    assert not caught.value.maybe_written
    for task in waiting, topic:
        with pytest.raises(ProducerFailedError, match="CLUSTER_AUTHORIZATION_FAILED") as told:
            await task
        assert isinstance(told.value.__cause__, ClusterAuthorizationFailedError)
    await flushing
    for call in CALLS.values():
        with pytest.raises(ProducerFailedError, match="CLUSTER_AUTHORIZATION_FAILED"):
            await call(producer)
    await producer.close()
    with pytest.raises(ProducerClosedError):
        producer.submit_nowait("orders", b"v")


async def test_no_producer_id_until_it_is_allowed() -> None:
    """Records fail at once, in their order, and the producer lives on: later ones go out once the user may write."""
    with FakeCluster(1) as cluster:
        cluster.create_topic("orders", 2)
        forbidden = cluster.faults.fail("InitProducerId", 31, times=None)
        ended: list[int] = []
        async with Producer(
            bootstrap_servers=cluster.bootstrap_servers, linger_ms=100, retry_backoff_ms=20
        ) as producer:
            deliveries = [await producer.submit("orders", b"%d" % each, partition=each % 2) for each in range(4)]
            for each, delivery in enumerate(deliveries):
                delivery.add_done_callback(lambda _, each=each: ended.append(each))
            for delivery in deliveries:
                with pytest.raises(ClusterAuthorizationFailedError, match=r"orders-.*IDEMPOTENT_WRITE") as caught:
                    await delivery
                assert not caught.value.fatal
                assert not caught.value.maybe_written
            unobserved = await producer.submit("orders", b"nobody asks", partition=0)
            with pytest.raises(DeliveryErrors) as told:
                await producer.flush()
            assert told.value.record_count == 1
            assert unobserved.done()
            assert [each for each in ended if each % 2 == 0] == [0, 2]
            forbidden.cancel()
            await producer.send("orders", b"allowed", partition=0)
        assert [record.value for record in cluster.records("orders")] == [b"allowed"]


async def test_task_that_ends(broker: ProducingBroker) -> None:
    """If the producer's tasks are cancelled, nothing hangs: pending and later records fail."""
    producer = producer_of(broker)
    await producer.start()
    broker.holding = True
    delivery = await producer.submit("orders", b"v")
    await broker.holds()
    for task in asyncio.all_tasks():
        if task.get_name() == "aioproducer sender":
            task.cancel()
    with pytest.raises(ProducerFailedError, match="was cancelled"):
        await delivery
    with pytest.raises(ProducerFailedError):
        producer.submit_nowait("orders", b"v")
    await producer.close()


TRANSACTION_CALLS: dict[str, Callable[[Producer], Awaitable[object]]] = {
    "begin_transaction": Producer.begin_transaction,
    "commit_transaction": Producer.commit_transaction,
    "abort_transaction": Producer.abort_transaction,
    "prepare_transaction": Producer.prepare_transaction,
    "send_offsets_to_transaction": lambda producer: producer.send_offsets_to_transaction(
        {TopicPartition("orders", 0): 1}, ConsumerGroupMetadata("group")
    ),
    "transaction": lambda producer: producer.transaction().__aenter__(),
}


@pytest.mark.parametrize("name", TRANSACTION_CALLS)
async def test_transaction_calls_at_the_wrong_time_or_place(name: str) -> None:
    """Their docstrings name the errors."""
    call = TRANSACTION_CALLS[name]
    with FakeCluster(1) as cluster:
        producer = Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="name")
        with pytest.raises(NotStartedError):
            await call(producer)
        await producer.start()

        async def elsewhere() -> None:
            await call(producer)

        with pytest.raises(WrongLoopError):
            await asyncio.to_thread(asyncio.run, elsewhere())
        await producer.close()
        with pytest.raises(ProducerClosedError):
            await call(producer)
        without = Producer(bootstrap_servers=cluster.bootstrap_servers)
        with pytest.raises(TransactionStateError, match="transactional_id"):
            await call(without)
    for told in NotStartedError, WrongLoopError, ProducerClosedError, TransactionStateError:
        assert told.__name__ in str(getattr(Producer, name).__doc__)


async def test_task_of_a_transaction_that_ends() -> None:
    """The state in which it leaves the transaction would otherwise stay, and no call would lead out of it."""
    with FakeCluster(1) as cluster:
        producer = Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="name")
        await producer.start()
        await producer.begin_transaction()
        await producer.send("orders", b"v")
        cluster.faults.swallow("EndTxn")
        commit = asyncio.create_task(producer.commit_transaction())
        (task,) = await task_once_it_runs("aioproducer commit_transaction")
        task.cancel()
        with pytest.raises(ProducerFailedError, match="'aioproducer commit_transaction' was cancelled"):
            await commit
        for call in producer.commit_transaction, producer.abort_transaction, producer.begin_transaction:
            with pytest.raises(ProducerFailedError):
                await call()
        with pytest.raises(ProducerFailedError):
            await producer.send("orders", b"v")
        await producer.close()


async def test_failed_while_a_commit_waits_for_its_answer() -> None:
    """The commit may have been carried out, as its error says; then everything ends, as in any failed producer."""
    before = asyncio.all_tasks()
    with FakeCluster(1) as cluster:
        producer = Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="name")
        await producer.start()
        await producer.begin_transaction()
        await producer.send("orders", b"v")
        cluster.faults.swallow("EndTxn", when="after")
        commit = asyncio.create_task(producer.commit_transaction())
        async with asyncio.timeout(PATIENCE_S):
            while cluster.transaction_state("name") != "CompleteCommit":
                await asyncio.sleep(0)
            assert producer._engine is not None
            producer._engine._internal_error(ZeroDivisionError())
            with pytest.raises(ProducerFailedError, match="ZeroDivisionError") as caught:
                await commit
            assert caught.value.maybe_written
            while any(task.get_name().startswith("aioproducer") for task in asyncio.all_tasks() - before):
                await asyncio.sleep(0)
        await producer.close()


async def task_once_it_runs(name: str) -> list[asyncio.Task[Any]]:
    async with asyncio.timeout(PATIENCE_S):
        while not (found := [task for task in asyncio.all_tasks() if task.get_name() == name]):
            await asyncio.sleep(0)
    return found


async def test_all_is_released(broker: ProducingBroker) -> None:
    """After close there are no tasks, sockets, threads, and no memory in use or kept for reuse."""
    tasks = len(asyncio.all_tasks())
    async with producer_of(broker, compression_type="gzip", batch_size=1 << 20) as producer:
        await producer.submit("orders", bytes(500_000))
        await producer.send("orders", b"v")
    for peer in broker.peers:
        await asyncio.wait_for(peer.gone.wait(), PATIENCE_S)
    while len(asyncio.all_tasks()) > tasks:
        await asyncio.sleep(0)
    metrics = producer.metrics()["producer-metrics"]
    assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"]
    assert producer._engine is not None
    assert producer._engine.accumulator.pool.idle_bytes == 0


async def test_interceptors_hear_of_a_record_whose_arguments_raise(broker: ProducingBroker) -> None:
    """An interceptor that has seen a record is told its outcome, whatever that is."""
    seen: list[Any] = []
    told: list[Any] = []

    class Number:
        def __index__(self) -> int:
            raise ZeroDivisionError

    class Interceptor:
        def on_send(self, record: Record) -> Record:
            seen.append(record)
            return record

        def on_acknowledgement(self, metadata: Any, error: Any, headers: Any) -> None:
            told.append(error)

    producer = producer_of(broker, interceptors=[Interceptor()])
    async with producer:
        await producer.partitions_for("orders")
        with pytest.raises(SerializationError):
            producer.submit_nowait("orders", b"v", partition=Number())  # type: ignore[arg-type]
        with pytest.raises(SerializationError):
            await producer.submit("orders", b"v", partition=Number())  # type: ignore[arg-type]
    assert [type(error) for error in told] == [SerializationError, SerializationError]
    assert len(seen) == 2


async def test_interceptors_hear_of_a_record_whose_caller_was_cancelled_too_late(broker: ProducingBroker) -> None:
    """Memory was freed and the record admitted at the moment when its caller was cancelled: delivery goes on."""
    ends: list[RecordMetadata | None] = []

    class Interceptor:
        def on_acknowledgement(self, metadata: Any, error: Any, headers: Any) -> None:
            ends.append(metadata)

    broker.holding = True
    async with producer_of(
        broker, buffer_memory=20_000, batch_size=16_384, linger_ms=0, interceptor_classes=[Interceptor()]
    ) as producer:
        await producer.submit("orders", bytes(19_000))
        waiting = asyncio.create_task(producer.submit("orders", b"late" + bytes(5_000)))
        await turns()
        engine = producer._engine
        assert engine is not None
        serve = engine.memory_queue._serve

        def serve_and_cancel() -> None:
            serve()
            if not len(engine.memory_queue):
                waiting.cancel()

        engine.memory_queue._serve = serve_and_cancel  # type: ignore[method-assign]
        broker.release()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        await producer.flush()
    assert [(value or b"")[:4] for value in broker.values()] == [bytes(4), b"late"]
    assert [end is not None for end in ends] == [True, True]
