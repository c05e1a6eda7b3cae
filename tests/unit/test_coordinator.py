"""The coordinator of a key is found, asked until it answers, and looked up again when it has moved."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import Callable
from typing import Any, cast

import pytest

from aioproducer.config.producer_config import ProducerConfig
from aioproducer.coordinator import Coordinators
from aioproducer.errors import (
    AuthenticationError,
    ConnectionLostError,
    GroupAuthorizationFailedError,
    InvalidTxnStateError,
    KafkaError,
    NotCoordinatorError,
    ProducerClosedError,
    ProducerFencedError,
    ProtocolError,
    SaslAuthenticationFailedError,
    TransactionalIdAuthorizationFailedError,
    UnknownServerError,
    UnsupportedVersionError,
)
from aioproducer.net.client import NetworkClient
from aioproducer.protocol.end_txn import EndTxnRequest, EndTxnResponse
from aioproducer.protocol.find_coordinator import (
    GROUP,
    TRANSACTION,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from aioproducer.protocol.schema import Message, Request
from aioproducer.protocol.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from tests.unit.core import messages_of
from tests.unit.waiting import in_virtual_time

LOADING, NOT_AVAILABLE, NOT_COORDINATOR, TXN_STATE, NOT_ALLOWED, FENCED, CONCURRENT = 14, 15, 16, 48, 53, 90, 51
GROUP_NOT_ALLOWED, UNKNOWN_SERVER, TIMED_OUT = 30, -1, 7


class ScriptedBroker:
    """A fake connection: gives the answers that a test has set for each API, in order."""

    def __init__(self, node_id: int, said: list[tuple[int, str, int]]) -> None:
        self.node_id = node_id
        self.answers: dict[str, list[Message | BaseException]] = {}
        self.versions: dict[type[Request[Any]], int] = {}
        self.asked: list[Any] = []
        self.nonsenses: list[str] = []
        self.in_charge = False
        self.doubts: list[int] = []
        self.asked_s: list[float] = []
        self._said = said

    def __str__(self) -> str:
        return f"node {self.node_id}"

    def version(self, request: type[Request[Any]]) -> int:
        return self.versions.get(request, request.MAX_VERSION)

    async def request(self, request: Request[Any], *, version: int) -> Message:
        self.asked_s.append(asyncio.get_running_loop().time())
        name = type(request).__name__.removesuffix("Request")
        self._said.append((self.node_id, name, version))
        request.encode(version)
        self.asked.append(request)
        await asyncio.sleep(0)
        answer = self.answers[name].pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def doubt(self, attempts: int) -> None:
        self.doubts.append(attempts)

    def nonsense(self, what: str) -> ProtocolError:
        self.nonsenses.append(what)
        return ProtocolError(what, maybe_written=True)


class ScriptedCluster:
    """A fake network client: brokers by node id; the first one stands for any broker."""

    def __init__(self, *node_ids: int) -> None:
        self.said: list[tuple[int, str, int]] = []
        """(node id, API, version) of each request, in their order."""
        self.brokers = {node_id: ScriptedBroker(node_id, self.said) for node_id in node_ids}
        self.patience_ms: list[int] = []
        """How long each call waited for a connection."""

    def knows_at(self, node_id: int, host: str, port: int) -> bool:
        return node_id in self.brokers and (host, port) == ("", 9092)

    async def any_ready_connection(self, deadline_ms: int) -> ScriptedBroker:
        self._note(deadline_ms)
        return next(iter(self.brokers.values()))

    async def ready_connection(self, node_id: int, deadline_ms: int) -> ScriptedBroker:
        self._note(deadline_ms)
        if node_id not in self.brokers:
            raise ConnectionLostError(f"node {node_id} is not known")
        return self.brokers[node_id]

    def _note(self, deadline_ms: int) -> None:
        self.patience_ms.append(deadline_ms - int(asyncio.get_running_loop().time() * 1000))

    def apis(self) -> list[tuple[int, str]]:
        return [(node_id, name) for node_id, name, _ in self.said]


def found(*node_ids: int) -> list[Message | BaseException]:
    """Successive answers to FindCoordinator."""
    return [
        FindCoordinatorResponse(coordinators=[Coordinator(key="id", node_id=node_id, host="", port=9092)])
        for node_id in node_ids
    ]


def not_found(code: int) -> Message:
    return FindCoordinatorResponse(coordinators=[Coordinator(key="id", node_id=-1, host="", port=-1, error_code=code)])


def ended(*codes: int) -> list[Message | BaseException]:
    """An answer to EndTxn."""
    return [EndTxnResponse(error_code=code) for code in codes]


def lost(written: bool) -> KafkaError:
    error = ConnectionLostError("the connection is gone")
    error.maybe_written = written
    return error


@pytest.fixture
def cluster() -> ScriptedCluster:
    cluster = ScriptedCluster(1, 2)
    cluster.brokers[1].answers["FindCoordinator"] = found(1, 2, 1)
    return cluster


END = EndTxnRequest(transactional_id="id", producer_id=4000, producer_epoch=0, committed=True)


def code_of(response: EndTxnResponse) -> int:
    return response.error_code


class Asking:
    """Coordinators of a scripted cluster."""

    def __init__(self, cluster: ScriptedCluster, **configs: int) -> None:
        self.metadata_wanted = 0
        self.lost = 0
        """How many requests were written but not answered."""
        config = ProducerConfig.parse(
            {"bootstrap_servers": "scripted:9092", "retry_backoff_ms": 1, "retry_backoff_max_ms": 2, **configs}
        )
        self.coordinators = Coordinators(
            config,
            loop=asyncio.get_running_loop(),
            client=cast(NetworkClient, cluster),
            rng=random.Random(7),
            request_metadata=self._request_metadata,
        )

    def _request_metadata(self) -> None:
        self.metadata_wanted += 1

    async def end(self, error_of: Callable[[EndTxnResponse], int] = code_of, **options: Any) -> EndTxnResponse:
        answer = await self.coordinators.ask(TRANSACTION, "id", END, error_of=error_of, lost=self._lost, **options)
        return answer.response

    def _lost(self) -> None:
        self.lost += 1


async def test_it_is_found_once(cluster: ScriptedCluster) -> None:
    asking = Asking(cluster)
    cluster.brokers[1].answers["EndTxn"] = ended(0, 0)
    await asking.end()
    await asking.end(max_version=4)
    assert not asking.lost
    assert cluster.said == [(1, "FindCoordinator", 6), (1, "EndTxn", 5), (1, "EndTxn", 4)]
    assert cluster.brokers[1].asked[0].coordinator_keys == ["id"]
    assert asking.metadata_wanted == 0, "the cluster's picture has it"


async def test_the_broker_with_the_number_zero() -> None:
    """Node 0 may be the coordinator, and is asked again without another lookup."""
    cluster = ScriptedCluster(1, 0)
    cluster.brokers[1].answers["FindCoordinator"] = found(0)
    cluster.brokers[0].answers["EndTxn"] = ended(0, 0)
    asking = Asking(cluster)
    for _ in range(2):
        await asking.end()
    assert cluster.apis() == [(1, "FindCoordinator"), *[(0, "EndTxn")] * 2]


async def test_a_list_of_keys_from_version_4_on(cluster: ScriptedCluster) -> None:
    asking = Asking(cluster)
    cluster.brokers[1].versions[FindCoordinatorRequest] = 4
    cluster.brokers[1].answers["EndTxn"] = ended(0)
    await asking.end()
    (asked, _) = cluster.brokers[1].asked
    assert (asked.key, asked.coordinator_keys) == ("", ["id"])


@pytest.mark.parametrize("version", [1, 3])
async def test_one_key_in_old_versions(cluster: ScriptedCluster, version: int) -> None:
    asking = Asking(cluster)
    broker = cluster.brokers[1]
    broker.versions[FindCoordinatorRequest] = version
    broker.answers = {"FindCoordinator": [FindCoordinatorResponse(node_id=2)]}
    cluster.brokers[2].answers["EndTxn"] = ended(0)
    await asking.end()
    assert (broker.asked[0].key, broker.asked[0].key_type) == ("id", TRANSACTION)
    assert cluster.apis() == [(1, "FindCoordinator"), (2, "EndTxn")]


@pytest.mark.parametrize("code", [LOADING, CONCURRENT, TIMED_OUT])
async def test_what_passes_is_asked_again(cluster: ScriptedCluster, code: int) -> None:
    asking = Asking(cluster)
    cluster.brokers[1].answers["EndTxn"] = ended(code, code, 0)
    await asking.end()
    assert not asking.lost
    assert cluster.apis() == [(1, "FindCoordinator"), *[(1, "EndTxn")] * 3]
    assert asking.coordinators.last_error is None


@pytest.mark.parametrize(("request_timeout_ms", "patience_ms"), [(30_000, [30_000, 1_000]), (300, [300, 300])])
def test_a_coordinator_that_is_away_is_not_waited_for_long(request_timeout_ms: int, patience_ms: list[int]) -> None:
    """Another broker has taken over, or will; any broker can tell which."""

    async def run() -> None:
        cluster = ScriptedCluster(1)
        cluster.brokers[1].answers = {"FindCoordinator": found(1), "EndTxn": ended(0)}
        await Asking(cluster, request_timeout_ms=request_timeout_ms).end()
        assert cluster.patience_ms == patience_ms

    in_virtual_time(run())


@pytest.mark.parametrize(
    ("code", "waits_s"),
    [
        (LOADING, [0.1, 0.2, 0.4, 0.8, 1, 1]),
        (CONCURRENT, [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.1]),
    ],
)
def test_asked_again_with_back_off(code: int, waits_s: list[float]) -> None:
    """Back-off grows, with a jitter of a fifth; it is short if only the previous transaction has to end."""

    async def run() -> None:
        cluster = ScriptedCluster(1)
        cluster.brokers[1].answers = {"FindCoordinator": found(1), "EndTxn": ended(*[code] * len(waits_s), 0)}
        await Asking(cluster, retry_backoff_ms=100, retry_backoff_max_ms=1000).end()
        asked_s = cluster.brokers[1].asked_s[1:]
        waited_s = [after - before for before, after in itertools.pairwise(asked_s)]
        assert waited_s == [pytest.approx(wait_s, rel=0.25, abs=0.001) for wait_s in waits_s]  # in whole milliseconds

    in_virtual_time(run())


def test_repetitions_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """By error; and not at all if only the previous transaction has to end, which before V2 is so for most."""
    caplog.set_level(logging.INFO, "aioproducer.coordinator")

    async def run() -> None:
        cluster = ScriptedCluster(1)
        answers = cluster.brokers[1].answers
        answers["FindCoordinator"] = found(1)
        asking = Asking(cluster, retry_backoff_ms=100, retry_backoff_max_ms=1000)
        for _ in range(100):
            answers["EndTxn"] = ended(CONCURRENT, CONCURRENT, CONCURRENT, 0)
            await asking.end()
        assert not caplog.records
        answers["EndTxn"] = ended(*[LOADING] * 90, *[CONCURRENT] * 20, 0)
        await asking.end()

    in_virtual_time(run())
    told = [text.partition(" will be retried: node 1 answered ") for text in messages_of(caplog, level=logging.INFO)]
    assert {before for before, _, _ in told} == {"EndTxnRequest for transactional id 'id'"}
    codes = [after.partition(" ")[0] for _, _, after in told]
    assert codes == ["COORDINATOR_LOAD_IN_PROGRESS"] * 2 + ["CONCURRENT_TRANSACTIONS"]


@pytest.mark.parametrize("code", [NOT_COORDINATOR, NOT_AVAILABLE])
async def test_one_that_has_moved_is_looked_up(cluster: ScriptedCluster, code: int) -> None:
    asking = Asking(cluster)
    cluster.brokers[1].answers["EndTxn"] = ended(code)
    cluster.brokers[2].answers["EndTxn"] = ended(0)
    await asking.end()
    assert not asking.lost
    assert cluster.apis() == [(1, "FindCoordinator"), (1, "EndTxn"), (1, "FindCoordinator"), (2, "EndTxn")]


async def test_one_that_has_not_moved_and_denies_it(cluster: ScriptedCluster) -> None:
    """Its connection may lead to another broker."""
    asking = Asking(cluster)
    cluster.brokers[1].answers["FindCoordinator"] = found(2, 2, 2)
    cluster.brokers[2].answers["EndTxn"] = ended(NOT_COORDINATOR, NOT_COORDINATOR, 0)
    await asking.end()
    assert cluster.brokers[2].doubts == [1, 2]
    assert cluster.brokers[2].in_charge


@pytest.mark.parametrize("written", [True, False])
async def test_a_lost_answer(cluster: ScriptedCluster, written: bool) -> None:
    """The next answer is good, but the lost request may still arrive, which the caller learns."""
    asking = Asking(cluster)
    cluster.brokers[1].answers["EndTxn"] = [lost(written)]
    cluster.brokers[2].answers["EndTxn"] = ended(0)
    await asking.end()
    assert asking.lost == written
    assert [name for _, name in cluster.apis()].count("FindCoordinator") == 2


@pytest.mark.parametrize(
    ("before", "maybe"),
    [
        ([], False),
        ([lost(False)], False),
        ([lost(True)], True),
        (ended(LOADING), False),
        (ended(CONCURRENT), False),
        (ended(NOT_AVAILABLE), True),
        (ended(NOT_COORDINATOR), True),
        (ended(TIMED_OUT), True),
        ([lost(True), *ended(LOADING)], True),
    ],
)
async def test_whether_it_may_have_been_done(
    cluster: ScriptedCluster, before: list[Message | BaseException], maybe: bool
) -> None:
    """A coordinator whose log write timed out says so, but the write may still succeed."""
    asking = Asking(cluster)
    answers = [*before, *ended(FENCED)]
    cluster.brokers[1].answers["FindCoordinator"] = found(*[1] * len(answers))
    cluster.brokers[1].answers["EndTxn"] = answers
    with pytest.raises(ProducerFencedError) as raised:
        await asking.end()
    assert raised.value.maybe_written is maybe


async def test_a_login_refused_at_first(cluster: ScriptedCluster) -> None:
    """It is a wrong password, even if the broker that was asked for the coordinator has accepted it."""
    asking = Asking(cluster)
    cluster.brokers[1].answers["EndTxn"] = [SaslAuthenticationFailedError("wrong password")]
    with pytest.raises(SaslAuthenticationFailedError) as caught:
        await asking.end()
    assert caught.value.fatal
    assert not asking.lost


async def test_a_login_refused_later(cluster: ScriptedCluster) -> None:
    """Its password is being changed; meanwhile another broker may have become the coordinator."""
    asking = Asking(cluster)
    cluster.brokers[1].answers["EndTxn"] = [*ended(0), SaslAuthenticationFailedError("wrong password")]
    cluster.brokers[2].answers["EndTxn"] = [AuthenticationError("no password just now"), *ended(0)]
    await asking.end()
    cluster.brokers[1].answers["FindCoordinator"] = found(2, 2)
    await asking.end()
    assert cluster.apis()[2:] == [(1, "EndTxn"), *[(1, "FindCoordinator"), (2, "EndTxn")] * 2]
    assert not asking.lost


async def test_a_login_refused_later_in_another_call(cluster: ScriptedCluster) -> None:
    """Calls of their own share what is known of the login."""
    asking = Asking(cluster)
    cluster.brokers[1].answers["EndTxn"] = [*ended(0), SaslAuthenticationFailedError("wrong password")]
    cluster.brokers[2].answers["EndTxn"] = ended(0)
    await asking.coordinators.for_one_call().ask(TRANSACTION, "id", END, error_of=code_of)
    cluster.brokers[1].answers["FindCoordinator"] = found(2)
    await asking.coordinators.for_one_call().ask(TRANSACTION, "id", END, error_of=code_of)
    assert cluster.apis()[2:] == [(1, "EndTxn"), (1, "FindCoordinator"), (2, "EndTxn")]


async def test_an_answer_in_doubt_does_not_come_late(cluster: ScriptedCluster) -> None:
    asking = Asking(cluster)
    cluster.brokers[1].answers["EndTxn"] = ended(NOT_AVAILABLE)
    cluster.brokers[2].answers["EndTxn"] = ended(0)
    await asking.end()
    assert not asking.lost


@pytest.mark.parametrize(
    ("code", "kind", "flag"),
    [
        (TXN_STATE, InvalidTxnStateError, "fatal"),
        (NOT_ALLOWED, TransactionalIdAuthorizationFailedError, "fatal"),
        (FENCED, ProducerFencedError, "fatal"),
        (120, KafkaError, "abortable"),
    ],
)
async def test_what_stays_is_raised(cluster: ScriptedCluster, code: int, kind: type[KafkaError], flag: str) -> None:
    asking = Asking(cluster)
    cluster.brokers[1].answers["EndTxn"] = ended(code)
    with pytest.raises(kind, match="'id'") as raised:
        await asking.end()
    assert getattr(raised.value, flag)
    assert cluster.apis() == [(1, "FindCoordinator"), (1, "EndTxn")]


async def test_a_request_that_cannot_be_written(cluster: ScriptedCluster) -> None:
    """A retry would not help: the call fails, nothing was sent, and the transaction can be aborted."""
    asking = Asking(cluster)
    request = EndTxnRequest(transactional_id="id", producer_id=2**70, producer_epoch=0, committed=False)
    with pytest.raises(ProtocolError, match="can't be written") as raised:
        await asking.coordinators.ask(TRANSACTION, "id", request, error_of=lambda response: response.error_code)
    assert (raised.value.abortable, raised.value.fatal, raised.value.maybe_written) == (True, False, False)
    assert cluster.apis() == [(1, "FindCoordinator"), (1, "EndTxn")]


async def test_a_key_that_cannot_be_written(cluster: ScriptedCluster) -> None:
    asking = Asking(cluster)
    request = EndTxnRequest(transactional_id="id", producer_id=4000, producer_epoch=0, committed=False)
    with pytest.raises(ProtocolError, match="can't be written") as raised:
        await asking.coordinators.ask(GROUP, "\ud800", request, error_of=lambda response: response.error_code)
    assert (raised.value.abortable, raised.value.maybe_written) == (True, False)
    assert cluster.apis() == [(1, "FindCoordinator")]


async def test_an_answer_that_makes_no_sense(cluster: ScriptedCluster) -> None:
    """An invalid answer counts as lost: the request may have been executed, and is repeated."""
    asking = Asking(cluster)
    cluster.brokers[1].answers["EndTxn"] = ended(0)
    cluster.brokers[2].answers["EndTxn"] = ended(0)
    said = iter([ProtocolError("EndTxn was answered with half of it"), None])

    def judge(response: EndTxnResponse) -> int:
        if (error := next(said)) is not None:
            raise error
        return response.error_code

    await asking.end(judge)
    assert asking.lost == 1
    assert cluster.apis() == [(1, "FindCoordinator"), (1, "EndTxn"), (1, "FindCoordinator"), (2, "EndTxn")]
    assert cluster.brokers[1].nonsenses == ["EndTxn was answered with half of it"]


async def test_not_wanted_any_more(cluster: ScriptedCluster) -> None:
    asking = Asking(cluster)
    cluster.brokers[1].answers["EndTxn"] = [lost(True), *ended(0)]
    with pytest.raises(ConnectionLostError) as raised:
        await asking.end(wanted=lambda: False)
    assert raised.value.maybe_written
    assert cluster.apis().count((1, "EndTxn")) == 1


async def test_what_was_not_asked_was_not_done(cluster: ScriptedCluster) -> None:
    """The answer to FindCoordinator was lost, so no coordinator has been asked anything."""
    asking = Asking(cluster)
    cluster.brokers[1].answers["FindCoordinator"] = [lost(True)]
    with pytest.raises(ConnectionLostError) as raised:
        await asking.end(wanted=lambda: False)
    assert not raised.value.maybe_written
    assert not asking.lost


async def test_nothing_is_retried_once_the_producer_is_closed(cluster: ScriptedCluster) -> None:
    """There are no more retries once the producer is closed."""
    asking = Asking(cluster)
    cluster.brokers[1].answers["EndTxn"] = [ProducerClosedError("closed")]
    with pytest.raises(ProducerClosedError):
        await asking.end()


async def test_finding_it_may_fail_for_a_while(cluster: ScriptedCluster) -> None:
    """Its topic is being created, the connection is lost, the answer is empty."""
    asking = Asking(cluster)
    cluster.brokers[1].answers["FindCoordinator"] = [
        not_found(NOT_AVAILABLE), lost(True), not_found(LOADING), *found(2)
    ]  # fmt: skip
    cluster.brokers[2].answers["EndTxn"] = ended(0)
    answer = await asking.end()
    assert cluster.apis() == [*[(1, "FindCoordinator")] * 4, (2, "EndTxn")]
    assert answer.error_code == 0
    assert not asking.lost  # only the lookup was


@pytest.mark.parametrize("nodes", [(), (2, 2), (1, 2, 3)])
async def test_an_answer_with_more_or_less_than_one_coordinator(
    cluster: ScriptedCluster, nodes: tuple[int, ...]
) -> None:
    """It is invalid, because one was asked for; another answer may be right."""
    asking = Asking(cluster)
    several = [Coordinator(key="id", node_id=node_id, host="", port=9092) for node_id in nodes]
    broker = cluster.brokers[1]
    broker.answers["FindCoordinator"] = [FindCoordinatorResponse(coordinators=several), *found(2)]
    cluster.brokers[2].answers["EndTxn"] = ended(0)
    await asking.end()
    assert cluster.apis() == [*[(1, "FindCoordinator")] * 2, (2, "EndTxn")]
    assert broker.nonsenses == [
        f"FindCoordinator for transactional id 'id' was answered with {len(nodes)} coordinators"
    ]


async def test_a_broker_in_trouble_is_asked_again(cluster: ScriptedCluster) -> None:
    """UNKNOWN_SERVER_ERROR to EndTxn may be a newer producer that is just taking over; whether it was is said next."""
    asking = Asking(cluster)
    cluster.brokers[1].answers["EndTxn"] = ended(UNKNOWN_SERVER, UNKNOWN_SERVER, FENCED)
    with pytest.raises(ProducerFencedError) as raised:
        await asking.end()
    assert raised.value.maybe_written


async def test_a_broker_that_stays_in_trouble(cluster: ScriptedCluster) -> None:
    """It is not asked for ever, whatever else it answers between."""
    asking = Asking(cluster)
    cluster.brokers[1].answers["EndTxn"] = ended(*[UNKNOWN_SERVER] * 3, *[LOADING] * 3, *[UNKNOWN_SERVER] * 3)
    with pytest.raises(UnknownServerError, match="'id'") as raised:
        await asking.end()
    assert raised.value.fatal
    assert raised.value.maybe_written
    assert len(cluster.brokers[1].asked) == 1 + 9


@pytest.mark.parametrize(("code", "flag"), [(NOT_ALLOWED, "fatal"), (GROUP_NOT_ALLOWED, "abortable")])
async def test_finding_it_is_not_allowed(cluster: ScriptedCluster, code: int, flag: str) -> None:
    asking = Asking(cluster)
    cluster.brokers[1].answers["FindCoordinator"] = [not_found(code)]
    with pytest.raises(KafkaError) as raised:
        await asking.end()
    assert getattr(raised.value, flag)
    assert not raised.value.maybe_written


async def test_versions_that_are_missing(cluster: ScriptedCluster) -> None:
    asking = Asking(cluster)
    cluster.brokers[1].versions[EndTxnRequest] = 4
    with pytest.raises(UnsupportedVersionError, match="speaks EndTxn up to version 4, 5 is needed"):
        await asking.end(min_version=5)
    cluster.brokers[1].versions[FindCoordinatorRequest] = 0
    cluster.brokers[1].answers["EndTxn"] = ended(NOT_COORDINATOR)
    with pytest.raises(UnsupportedVersionError, match=r"0\.11"):
        await asking.end()


async def test_a_broker_that_nobody_knows(cluster: ScriptedCluster) -> None:
    """A broker that has just joined: metadata has to be refreshed."""
    asking = Asking(cluster)
    cluster.brokers[1].answers["FindCoordinator"] = found(3, 2)
    cluster.brokers[2].answers["EndTxn"] = ended(0)
    await asking.end()
    assert asking.metadata_wanted == 1
    assert asking.coordinators.last_error is None


async def test_a_broker_at_another_address(cluster: ScriptedCluster) -> None:
    """It has moved, and another broker may have its former address: that one would never be the coordinator."""
    asking = Asking(cluster)
    moved = Coordinator(key="id", node_id=2, host="", port=9093)
    cluster.brokers[1].answers["FindCoordinator"] = [FindCoordinatorResponse(coordinators=[moved])]
    cluster.brokers[2].answers["EndTxn"] = ended(0)
    await asking.end()
    assert asking.metadata_wanted == 1


async def test_a_group_names_the_transactional_id_that_was_fenced(cluster: ScriptedCluster) -> None:
    asking = Asking(cluster)
    cluster.brokers[1].answers["TxnOffsetCommit"] = [TxnOffsetCommitResponse(topics=[])]
    request = TxnOffsetCommitRequest(
        transactional_id="mine", group_id="group", producer_id=4000, producer_epoch=0, topics=[]
    )
    with pytest.raises(ProducerFencedError, match="the transactional id 'mine' is now used"):
        await asking.coordinators.ask(GROUP, "group", request, error_of=lambda _: FENCED)
    assert not isinstance(asking.coordinators.last_error, NotCoordinatorError | GroupAuthorizationFailedError)
