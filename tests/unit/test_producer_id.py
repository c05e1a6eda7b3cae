"""InitProducerId of an idempotent producer: retried until there is an id, or given up for good."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any

import pytest

from aioproducer.backoff import ExponentialBackoff
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import (
    AuthenticationError,
    ClusterAuthorizationFailedError,
    ConnectionLostError,
    CoordinatorLoadInProgressError,
    KafkaError,
    ProducerClosedError,
    ProducerFailedError,
    ProtocolError,
    SaslAuthenticationFailedError,
    TlsError,
    UnsupportedVersionError,
)
from aioproducer.producer_id import NO_TRANSACTION_TIMEOUT_MS, ProducerIdRequest
from aioproducer.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aioproducer.transaction.manager import TransactionManager
from tests.unit.core import messages_of
from tests.unit.waiting import in_virtual_time

Answer = InitProducerIdResponse | BaseException


class FakeConnection:
    """Answers in the given order; without an answer left it hangs."""

    def __init__(self, answers: list[Answer]) -> None:
        self.answers = answers
        self.requests: list[InitProducerIdRequest] = []
        self.nonsenses: list[str] = []

    def __str__(self) -> str:
        return "node 1"

    def version(self, message: type[InitProducerIdRequest]) -> int:
        return message.MAX_VERSION

    def exchange(self, message: InitProducerIdRequest, version: int) -> asyncio.Future[InitProducerIdResponse]:
        self.requests.append(message)
        return asyncio.ensure_future(self._answer())

    def decoded(
        self, message: InitProducerIdRequest, version: int, answer: InitProducerIdResponse
    ) -> InitProducerIdResponse:
        return answer

    def nonsense(self, what: str) -> ProtocolError:
        self.nonsenses.append(what)
        return ProtocolError(what)

    async def _answer(self) -> InitProducerIdResponse:
        await asyncio.sleep(0)
        if not self.answers:
            await asyncio.get_running_loop().create_future()
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


class FakeClient:
    """Has one connection, or an error instead."""

    def __init__(self, connection: FakeConnection, failures: list[KafkaError]) -> None:
        self.connection = connection
        self.failures = failures
        self.refused = False
        """Whether logins have been refused for some seconds."""

    async def any_ready_connection(self, deadline_ms: int) -> FakeConnection:
        if self.failures:
            raise self.failures.pop(0)
        return self.connection

    def least_loaded(self, now_ms: int, *, but_not: object) -> None:
        """There is no other connection."""

    def connect_somewhere(self, now_ms: int) -> None:
        """There is no other broker."""


class Bench:
    """A request with its dependencies; back-off takes no time."""

    def __init__(self, *answers: Answer, failures: tuple[KafkaError, ...] = ()) -> None:
        self.sequences = TransactionManager(idempotent=True)
        self.connection = FakeConnection(list(answers))
        self.client = FakeClient(self.connection, list(failures))
        self.done = asyncio.Event()
        self.refused: list[KafkaError] = []
        self.fatal: list[KafkaError] = []
        self.request = ProducerIdRequest(
            ProducerConfig.parse({"bootstrap_servers": "unused:1", "retry_backoff_ms": 0, "retry_backoff_max_ms": 0}),
            loop=asyncio.get_running_loop(),
            client=self.client,  # type: ignore[arg-type]
            sequences=self.sequences,
            rng=random.Random(1),
            on_refused=self.refused.append,
            on_done=self.done.set,
            on_fatal=self.fatal.append,
        )

    async def run(self) -> None:
        self.request.start()
        assert self.request.task is not None
        await asyncio.wait_for(asyncio.wait([self.request.task]), 10)


def given(producer_id: int = 4000, epoch: int = 0, *, error_code: int = 0) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error_code, producer_id=producer_id, producer_epoch=epoch)


async def test_id_is_taken() -> None:
    """The answer goes to the transaction manager, and the sender is notified."""
    bench = Bench(given(4000, 7))
    await bench.run()
    assert (bench.sequences.producer_id, bench.sequences.epoch) == (4000, 7)
    await asyncio.wait_for(bench.done.wait(), 10)
    (request,) = bench.connection.requests
    assert request.transactional_id is None
    assert request.transaction_timeout_ms == NO_TRANSACTION_TIMEOUT_MS == 2**31 - 1


async def test_the_back_off_begins_anew_once_there_was_an_id(monkeypatch: pytest.MonkeyPatch) -> None:
    loading = given(error_code=14)
    bench = Bench(loading, loading, given(), loading, given())
    failures: list[int] = []

    def no_time(_: ExponentialBackoff, attempts: int, rng: random.Random) -> int:
        failures.append(attempts)
        return 0

    monkeypatch.setattr(ExponentialBackoff, "delay_ms", no_time)
    for _ in range(2):
        await bench.run()
    assert failures == [0, 1, 0]


async def test_one_request_at_a_time() -> None:
    """Asking again while a request is in flight changes nothing; afterwards there is a new request."""
    bench = Bench()
    for _ in range(3):
        bench.request.start()
        await asyncio.sleep(0)
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(bench.connection.requests) == 1
    first = bench.request.task
    assert first is not None
    first.cancel()
    await asyncio.wait([first])
    bench.connection.answers.append(given())
    await bench.run()
    assert bench.sequences.producer_id == 4000


@pytest.mark.parametrize(
    "trouble",
    [
        lambda: given(error_code=-1),
        lambda: given(error_code=14),
        lambda: given(error_code=15),
        lambda: given(error_code=51),
        lambda: given(error_code=12345),
        lambda: ConnectionLostError("gone"),
        lambda: CoordinatorLoadInProgressError("loading"),
        lambda: ProtocolError("bytes that make no sense"),
    ],
    ids=["-1", "14", "15", "51", "12345", "lost", "loading", "nonsense"],
)
async def test_temporary_errors_are_retried_until_there_is_an_id(trouble: Callable[[], Answer]) -> None:
    """Errors that may pass; an id that is not used costs nothing."""
    bench = Bench(trouble(), trouble(), given())
    await bench.run()
    assert bench.sequences.producer_id == 4000
    assert bench.request.last_error is None
    assert len(bench.connection.requests) == 3
    assert not bench.fatal


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (-1, -1), (-5, 3), (4000, -1), (4000, -32768)])
async def test_an_id_that_is_none(producer_id: int, epoch: int) -> None:
    """If accepted, -1 would be requested again at once, and with the others no broker would detect duplicates."""
    bench = Bench(given(producer_id, epoch), given())
    await bench.run()
    assert (bench.sequences.producer_id, bench.sequences.epoch) == (4000, 0)
    assert bench.connection.nonsenses == [f"InitProducerId gave producer id {producer_id} with epoch {epoch}"]
    assert not bench.fatal


async def test_repeated_without_a_connection() -> None:
    """The search for a broker to ask is repeated too."""
    bench = Bench(given(), failures=(ConnectionLostError("no broker"), ConnectionLostError("no broker")))
    await bench.run()
    assert bench.sequences.producer_id == 4000


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        (given(error_code=42), KafkaError),
        (UnsupportedVersionError("too old"), UnsupportedVersionError),
        (ZeroDivisionError("a bug"), ProducerFailedError),
    ],
    ids=["42", "version", "bug"],
)
async def test_given_up(trouble: Answer, kind: type[KafkaError]) -> None:
    """An error that retries can't cure ends the producer."""
    bench = Bench(trouble)
    await bench.run()
    (error,) = bench.fatal
    assert isinstance(error, kind)
    assert bench.sequences.needs_producer_id


async def refused_once_more_and_then_given(bench: Bench) -> None:
    for _ in range(2):
        await bench.run()
    assert len(bench.refused) == 2
    assert bench.sequences.producer_id == 4000
    assert bench.request.last_error is None
    assert not bench.fatal


async def test_a_user_who_may_not_have_one() -> None:
    """What waits is told at once, with the remedy; whoever wants an id later asks again, and may get one."""
    bench = Bench(given(error_code=31), given(error_code=31), given())
    await bench.run()
    (error,) = bench.refused
    assert isinstance(error, ClusterAuthorizationFailedError)
    assert not error.fatal
    assert all(part in str(error) for part in ("IDEMPOTENT_WRITE", "enable_idempotence"))
    assert bench.request.last_error is error
    assert bench.done.is_set()
    assert len(bench.connection.requests) == 1, "nobody has asked again"
    await refused_once_more_and_then_given(bench)


async def test_a_login_that_is_refused_for_long(caplog: pytest.LogCaptureFixture) -> None:
    """What waits is told; the next login may succeed, so the producer goes on."""
    wrong = AuthenticationError("node 1 (h:1): wrong password")
    bench = Bench(given(), failures=(wrong, wrong))
    bench.client.refused = True
    await bench.run()
    assert bench.refused == [wrong]
    assert bench.request.last_error is wrong
    await refused_once_more_and_then_given(bench)
    assert [record.levelname for record in caplog.records if "wrong password" in record.message] == ["WARNING"]


@pytest.mark.parametrize("kind", [AuthenticationError, SaslAuthenticationFailedError, TlsError])
async def test_a_login_that_is_refused_for_a_moment(kind: type[KafkaError]) -> None:
    """As by a broker that has just started: nobody is told, and the id is asked for again."""
    bench = Bench(given(), failures=(kind("node 1 (h:1): too many connects"), kind("still too many")))
    await bench.run()
    assert not bench.refused
    assert not bench.fatal
    assert bench.sequences.producer_id == 4000


async def test_an_old_broker_gets_a_remedy() -> None:
    """For a broker without producer ids the error says which config avoids them."""
    bench = Bench(UnsupportedVersionError("node 1 speaks no version of InitProducerId"))
    await bench.run()
    assert "enable_idempotence" in str(bench.fatal[0])


async def test_closed_meanwhile() -> None:
    """A closed producer needs no id, and that is no failure."""
    bench = Bench(failures=(ProducerClosedError("closed"),))
    await bench.run()
    assert not bench.fatal
    assert bench.sequences.needs_producer_id


async def test_the_request_ends_when_it_is_cancelled() -> None:
    bench = Bench()
    bench.request.start()
    await asyncio.sleep(0)
    task: Any = bench.request.task
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert not bench.fatal


async def test_an_answer_that_has_just_come_is_of_no_use_when_it_starts_over() -> None:
    """The broker belongs to a former cluster: its id may be another producer's in the present one."""
    bench = Bench()
    answer: asyncio.Future[InitProducerIdResponse] = asyncio.get_running_loop().create_future()
    bench.connection.exchange = lambda *_, **__: answer  # type: ignore[method-assign]
    bench.request.start()
    await asyncio.sleep(0)
    answer.set_result(given())
    await asyncio.sleep(0)
    bench.request.start_over()
    await bench.done.wait()
    assert bench.sequences.needs_producer_id
    assert not bench.fatal


# --- in virtual time --------------------------------------------------------------------------------------------------


class Broker:
    """A broker that answers when the test says so."""

    def __init__(self) -> None:
        self.asked_s: list[float] = []
        self.answer: asyncio.Future[InitProducerIdResponse] = asyncio.get_running_loop().create_future()

    def __str__(self) -> str:
        return "node 1"

    version = FakeConnection.version
    decoded = FakeConnection.decoded

    def exchange(self, message: InitProducerIdRequest, version: int) -> asyncio.Future[InitProducerIdResponse]:
        self.asked_s.append(asyncio.get_running_loop().time())
        self.answer = asyncio.get_running_loop().create_future()
        return self.answer


class OneBroker:
    """A client with a connection to one broker."""

    def __init__(self) -> None:
        self.broker = Broker()
        self.patience_ms: list[float] = []

    async def any_ready_connection(self, deadline_ms: int) -> Broker:
        self.patience_ms.append(deadline_ms - asyncio.get_running_loop().time() * 1000)
        return self.broker

    least_loaded = FakeClient.least_loaded
    connect_somewhere = FakeClient.connect_somewhere

    def ask(self, **configs: int) -> tuple[asyncio.Task[None], TransactionManager]:
        sequences = TransactionManager(idempotent=True)
        self.request = request = ProducerIdRequest(
            ProducerConfig.parse({"bootstrap_servers": "unused:1", **configs}),
            loop=asyncio.get_running_loop(),
            client=self,  # type: ignore[arg-type]
            sequences=sequences,
            rng=random.Random(1),
            on_refused=lambda error: None,
            on_done=lambda: None,
            on_fatal=lambda error: None,
        )
        request.start()
        assert request.task is not None
        return request.task, sequences


def test_repeated_with_back_off() -> None:
    """Each wait is twice as long as the previous one, up to retry_backoff_max_ms, with a jitter of a fifth."""

    async def run() -> None:
        client = OneBroker()
        broker = client.broker
        asking, sequences = client.ask(retry_backoff_ms=100, retry_backoff_max_ms=1000, request_timeout_ms=7_000)
        await asyncio.sleep(0.01)
        for wait_s in 0.1, 0.2, 0.4, 0.8, 1, 1:
            attempts = len(broker.asked_s)
            broker.answer.set_result(given(error_code=14))
            await asyncio.sleep(0.75 * wait_s)
            assert len(broker.asked_s) == attempts
            await asyncio.sleep(0.5 * wait_s)
            assert len(broker.asked_s) == attempts + 1
        broker.answer.set_result(given(4000))
        await asking
        assert sequences.producer_id == 4000
        assert [round(patience_ms, -1) for patience_ms in client.patience_ms] == [7_000] * 7

    in_virtual_time(run())


def test_a_refused_user_is_not_asked_for_again_before_the_back_off_is_over() -> None:
    """Even if there are records all the time: the task goes on until then, and the records wait."""

    async def run() -> None:
        client = OneBroker()
        broker = client.broker
        asking, _ = client.ask(retry_backoff_ms=100, retry_backoff_max_ms=1000)
        for wait_s in 0.1, 0.2, 0.4, 0.8, 1, 1:
            await asyncio.sleep(0.01)
            attempts = len(broker.asked_s)
            broker.answer.set_result(given(error_code=31))
            await asyncio.sleep(0.75 * wait_s)
            client.request.start()
            assert not asking.done()
            await asking
            client.request.start()
            asking = client.request.task
            await asyncio.sleep(0.01)
            assert len(broker.asked_s) == attempts + 1
        asking.cancel()

    in_virtual_time(run())


@pytest.mark.parametrize(("code", "level"), [(14, logging.INFO), (31, logging.WARNING)])
def test_what_lasts_is_logged_once_a_minute(code: int, level: int, caplog: pytest.LogCaptureFixture) -> None:
    """Not each time, which is once a second; but a permission that is missing for days is not told only once."""
    caplog.set_level(logging.INFO, "aioproducer.producer_id")

    async def run() -> None:
        client = OneBroker()
        asking, _ = client.ask(retry_backoff_ms=1000, retry_backoff_max_ms=1000)
        for _ in range(100):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            client.broker.answer.set_result(given(error_code=code))
            await asyncio.sleep(1.001)
            client.request.start()
            asking = client.request.task
        asking.cancel()

    in_virtual_time(run())
    assert len(messages_of(caplog, "aioproducer.producer_id", logging.INFO)) == 2
    assert {each.levelno for each in caplog.records} == {level}
