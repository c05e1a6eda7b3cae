"""Transactions of FakeCluster against those of Apache Kafka: every test runs on both, in V1 and V2 (KIP-890)."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import pytest
from confluent_kafka import Consumer, TopicPartition

from aioproducer.errors import error_class
from aioproducer.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest
from aioproducer.protocol.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from aioproducer.protocol.api_versions import ApiVersionsRequest
from aioproducer.protocol.describe_transactions import DescribeTransactionsRequest, TransactionState
from aioproducer.protocol.end_txn import EndTxnRequest, EndTxnResponse
from aioproducer.protocol.find_coordinator import GROUP, TRANSACTION, FindCoordinatorRequest
from aioproducer.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aioproducer.protocol.list_transactions import ListTransactionsRequest
from aioproducer.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from aioproducer.testing import FakeCluster, KafkaCluster
from aioproducer.testing.fake.versions import kafka_version
from tests.broker.fake.kinds import AnyCluster
from tests.broker.fixtures import new_name
from tests.broker.raw import RawConnection
from tests.reference import record_batch as reference
from tests.reference.record_batch import PlainRecord

pytestmark = pytest.mark.broker

PATIENCE_S = 30.0
TIMEOUT_MS = 2_000
"""Long enough for what a test does in that time, even on a busy machine."""
ISOLATION = ("read_committed", "read_uncommitted")
AGAIN = {"CONCURRENT_TRANSACTIONS", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"}
T = TypeVar("T")
_numbers = itertools.count(1)


@pytest.fixture
def topic(cluster: AnyCluster) -> str:
    """A topic with two partitions."""
    name = new_name()
    cluster.create_topic(name, 2)
    return name


def name(code: int) -> str:
    return error_class(code).name if code else ""


def patiently(ask: Callable[[], T], error: Callable[[T], int]) -> T:
    """Repeat a request until the coordinator is available and has finished what it was doing."""
    deadline = time.monotonic() + PATIENCE_S
    while name(error(answer := ask())) in AGAIN:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return answer


@dataclass
class Client:
    """A transactional producer that decides nothing by itself."""

    broker: RawConnection
    v2: bool = True
    transactional_id: str = field(default_factory=lambda: f"txn-{next(_numbers)}")
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[int, int] = field(default_factory=dict)

    def init(self, *, patient: bool = True, version: int = 5, **fields: int) -> InitProducerIdResponse:
        """InitProducerId; the id and epoch of the answer are used from then on."""
        fields.setdefault("transaction_timeout_ms", 60_000)
        if patient:  # the request makes a real broker set up its coordinators
            find = FindCoordinatorRequest(coordinator_keys=[self.transactional_id], key_type=TRANSACTION)
            patiently(lambda: self.broker.ask(find).coordinators[0], lambda one: one.error_code)
        request = InitProducerIdRequest(transactional_id=self.transactional_id, **fields)
        ask = lambda: self.broker.ask(request, version)  # noqa: E731
        answer = patiently(ask, lambda one: one.error_code) if patient else ask()
        if not answer.error_code:
            self.producer_id, self.epoch, self.sequences = answer.producer_id, answer.producer_epoch, {}
        return answer

    def begin(self, topic: str, partition: int = 0) -> None:
        """V1: add a partition."""
        if not self.v2:
            answer = patiently(lambda: self.add_partitions({topic: [partition]}), lambda one: max(one.values()))
            assert set(answer.values()) == {0}

    def add_partitions(self, topics: dict[str, list[int]], version: int = 3) -> dict[tuple[str, int], int]:
        request = AddPartitionsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[AddPartitionsToTxnTopic(name=each, partitions=indexes) for each, indexes in topics.items()],
        )
        answer = self.broker.ask(request, version)
        return {
            (one.name, each.partition_index): each.partition_error_code
            for one in answer.results_by_topic
            for each in one.results_by_partition
        }

    def batch(
        self, value: bytes, partition: int = 0, *, transactional: bool = True, sequence: int | None = None
    ) -> bytes:
        return reference.encoded(
            [PlainRecord(time.time_ns() // 1_000_000, b"k", value)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequences.get(partition, 0) if sequence is None else sequence,
            transactional=transactional,
        )

    def try_to_produce(self, topic: str, value: bytes = b"v", partition: int = 0, *, version: int | None = None) -> str:
        """Produce one record, without retries; return the error's name."""
        version = version or (13 if self.v2 else 11)
        end = self.broker.produce(
            topic, self.batch(value, partition), partition=partition, version=version,
            transactional_id=self.transactional_id,
        )  # fmt: skip
        return name(end.error_code)

    def produce(self, topic: str, value: bytes = b"v", partition: int = 0) -> int:
        """Produce one record and return its offset."""
        self.begin(topic, partition)
        version = 13 if self.v2 else 11
        records = self.batch(value, partition)
        end = patiently(
            lambda: self.broker.produce(
                topic, records, partition=partition, version=version, transactional_id=self.transactional_id
            ),
            lambda one: one.error_code,
        )
        assert name(end.error_code) == ""
        self.sequences[partition] = self.sequences.get(partition, 0) + 1
        return end.base_offset

    def try_to_end(self, committed: bool, *, epoch: int | None = None, version: int | None = None) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            committed=committed,
        )
        return self.broker.ask(request, (5 if self.v2 else 4) if version is None else version)

    def end(self, *, committed: bool) -> None:
        """EndTxn, and wait for the markers."""
        answer = patiently(lambda: self.try_to_end(committed), lambda one: one.error_code)
        assert name(answer.error_code) == ""
        if self.v2:
            self.producer_id, self.epoch, self.sequences = answer.producer_id, answer.producer_epoch, {}
        self.settle()

    def state(self) -> TransactionState:
        request = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        (state,) = self.broker.ask(request).transaction_states
        return state

    def settle(self) -> None:
        """Wait until all markers are written."""
        deadline = time.monotonic() + PATIENCE_S
        while self.state().transaction_state.startswith("Prepare"):
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.fixture(params=[True, False], ids=["v2", "v1"])
def client(broker: RawConnection, request: pytest.FixtureRequest) -> Client:
    """A client that has its producer id."""
    found = Client(broker, request.param)
    assert name(found.init().error_code) == ""
    return found


@pytest.fixture
def v2(broker: RawConnection) -> Client:
    found = Client(broker)
    found.init()
    return found


@pytest.fixture
def v1(broker: RawConnection) -> Client:
    found = Client(broker, v2=False)
    found.init()
    return found


def committed(cluster: AnyCluster, topic: str, partition: int = 0, *, isolation: str = "read_committed") -> list[bytes]:
    """The values that a reader sees."""
    if isinstance(cluster, FakeCluster):
        records = cluster.records(topic, partition, read_committed=isolation == "read_committed")
        return [record.value or b"" for record in records]
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "readers",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found = []
    while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
        found.append(message.value())
    consumer.close()
    return found


# --- ends -------------------------------------------------------------------------------------------------------------


class TestEnds:
    def test_commit(self, cluster: AnyCluster, client: Client, topic: str) -> None:
        assert [client.produce(topic, value) for value in (b"a", b"b")] == [0, 1]
        assert committed(cluster, topic) == []
        assert committed(cluster, topic, isolation="read_uncommitted") == [b"a", b"b"]
        client.end(committed=True)
        assert committed(cluster, topic) == [b"a", b"b"]
        assert client.produce(topic, b"c") == 3  # the marker took an offset

    def test_abort(self, cluster: AnyCluster, client: Client, topic: str) -> None:
        client.produce(topic, b"a")
        client.produce(topic, b"b", 1)
        client.end(committed=False)
        client.produce(topic, b"c")
        client.end(committed=True)
        assert committed(cluster, topic) == [b"c"]
        assert committed(cluster, topic, 1) == []
        assert committed(cluster, topic, 1, isolation="read_uncommitted") == [b"b"]

    def test_the_oldest_open_transaction_hides_what_follows(
        self, cluster: AnyCluster, broker: RawConnection, client: Client, topic: str
    ) -> None:
        other = Client(broker, client.v2)
        other.init()
        client.produce(topic, b"a")
        other.produce(topic, b"b")
        other.end(committed=True)
        broker.produce(topic, reference.encoded([PlainRecord(1, b"k", b"plain")]))
        assert committed(cluster, topic) == []
        client.end(committed=False)
        assert committed(cluster, topic) == [b"b", b"plain"]

    def test_the_epoch_is_raised_in_v2_alone(self, client: Client, topic: str) -> None:
        before = client.producer_id, client.epoch
        for result in (True, False, True):
            client.produce(topic)
            client.end(committed=result)
        assert (client.producer_id, client.epoch) == (before[0], before[1] + (3 if client.v2 else 0))

    def test_a_repeated_end_is_answered_again(self, client: Client, topic: str) -> None:
        client.produce(topic)
        answers = [client.try_to_end(True)]
        client.settle()
        answers += [client.try_to_end(True), client.try_to_end(False)]
        epoch = client.epoch + 1 if client.v2 else -1
        assert [(name(one.error_code), one.producer_epoch) for one in answers] == [
            ("", epoch), ("", epoch), ("INVALID_TXN_STATE", -1)
        ]  # fmt: skip

    def test_v2_commit_of_nothing(self, v2: Client, topic: str) -> None:
        assert name(v2.try_to_end(True).error_code) == "INVALID_TXN_STATE"
        v2.produce(topic)
        v2.end(committed=True)
        assert name(v2.try_to_end(True).error_code) == "INVALID_TXN_STATE"

    def test_v2_abort_of_nothing_raises_the_epoch(self, v2: Client, topic: str) -> None:
        epoch = v2.epoch
        v2.end(committed=False)
        v2.end(committed=False)
        assert v2.epoch == epoch + 2
        v2.produce(topic)
        v2.end(committed=True)
        v2.end(committed=False)
        assert v2.epoch == epoch + 4

    def test_v1_end_of_nothing(self, v1: Client) -> None:
        assert [name(v1.try_to_end(each).error_code) for each in (True, False)] == ["INVALID_TXN_STATE"] * 2

    @pytest.mark.parametrize("off", [-1, 1])
    def test_wrong_epochs(self, client: Client, topic: str, off: int) -> None:
        client.init()
        client.produce(topic)
        assert name(client.try_to_end(True, epoch=client.epoch + off).error_code) == "PRODUCER_FENCED"

    @pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
    def test_versions_and_fencing(self, v1: Client, topic: str, version: int) -> None:
        v1.init()
        v1.produce(topic)
        expected = "PRODUCER_FENCED" if version >= 2 else "INVALID_PRODUCER_EPOCH"
        assert name(v1.try_to_end(True, epoch=0, version=version).error_code) == expected
        assert name(v1.try_to_end(True, version=version).error_code) == ""

    def test_unknown_ids(self, broker: RawConnection, client: Client) -> None:
        stranger = Client(broker, client.v2, producer_id=client.producer_id, epoch=0)
        assert name(stranger.try_to_end(True).error_code) == "INVALID_PRODUCER_ID_MAPPING"
        stranger.transactional_id = ""
        assert name(stranger.try_to_end(True).error_code) == "INVALID_REQUEST"
        client.producer_id += 1_000_000
        assert name(client.try_to_end(True).error_code) == "INVALID_PRODUCER_ID_MAPPING"


# --- InitProducerId ---------------------------------------------------------------------------------------------------


class TestInit:
    def test_every_call_fences_the_one_before(self, broker: RawConnection, client: Client, topic: str) -> None:
        older = Client(broker, client.v2, client.transactional_id, client.producer_id, client.epoch)
        client.init()
        assert (client.producer_id, client.epoch) == (older.producer_id, older.epoch + 1)
        client.produce(topic)
        assert name(older.try_to_end(True).error_code) == "PRODUCER_FENCED"
        if client.v2:
            assert older.try_to_produce(topic) == "INVALID_PRODUCER_EPOCH"
        else:
            assert set(older.add_partitions({topic: [0]}).values()) == {90}

    def test_in_the_middle_of_a_transaction(self, cluster: AnyCluster, client: Client, topic: str) -> None:
        """The transaction is aborted first, and the answer until then has no id."""
        client.produce(topic, b"lost")
        epoch = client.epoch
        assert name(client.init(patient=False).error_code) == "CONCURRENT_TRANSACTIONS"
        client.init()
        assert client.epoch == epoch + 2
        assert committed(cluster, topic) == []
        client.produce(topic, b"kept")
        client.end(committed=True)
        assert committed(cluster, topic) == [b"kept"]

    def test_with_the_current_epoch(self, client: Client) -> None:
        """KIP-360: the same producer continues, and a repeated call gets the same answer."""
        has = {"producer_id": client.producer_id, "producer_epoch": client.epoch}
        answers = [client.init(**has), client.init(**has)]
        assert [(one.producer_id, one.producer_epoch) for one in answers] == [
            (has["producer_id"], has["producer_epoch"] + 1)
        ] * 2
        again = client.init(producer_id=client.producer_id, producer_epoch=client.epoch)
        assert again.producer_epoch == has["producer_epoch"] + 2
        assert name(client.init(**has).error_code) == "PRODUCER_FENCED"

    @pytest.mark.parametrize(("version", "error"), [(3, "INVALID_PRODUCER_EPOCH"), (4, "PRODUCER_FENCED")])
    def test_with_an_id_that_is_gone(self, v1: Client, version: int, error: str) -> None:
        has = {"producer_id": v1.producer_id, "producer_epoch": v1.epoch}
        v1.init()
        assert name(v1.init(version=version, **has).error_code) == error
        other = {"producer_id": v1.producer_id + 1_000_000, "producer_epoch": v1.epoch}
        assert name(v1.init(version=version, **other).error_code) == error

    def test_a_new_name_takes_any_id(self, broker: RawConnection) -> None:
        client = Client(broker)
        answer = client.init(producer_id=10**9, producer_epoch=7)
        assert (name(answer.error_code), answer.producer_epoch) == ("", 0)
        assert answer.producer_id != 10**9

    @pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
    def test_timeouts(self, broker: RawConnection, timeout_ms: int) -> None:
        answer = Client(broker).init(transaction_timeout_ms=timeout_ms)
        assert name(answer.error_code) == "INVALID_TRANSACTION_TIMEOUT"

    def test_an_empty_name(self, broker: RawConnection) -> None:
        assert name(Client(broker, transactional_id="").init().error_code) == "INVALID_REQUEST"

    def test_after_an_end_in_v2(self, v2: Client, topic: str) -> None:
        v2.produce(topic)
        v2.end(committed=True)
        epoch = v2.epoch
        v2.init(producer_id=v2.producer_id, producer_epoch=epoch)
        assert v2.epoch == epoch + 1


class TestTimeout:
    """A transaction that takes too long is aborted by the coordinator, which checks periodically."""

    def expired(self, broker: RawConnection, topic: str, *, v2: bool) -> Client:
        client = Client(broker, v2)
        client.init(transaction_timeout_ms=TIMEOUT_MS)
        client.produce(topic, b"late")
        deadline = time.monotonic() + PATIENCE_S
        while client.state().transaction_state != "CompleteAbort":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert client.state().producer_epoch == client.epoch + 1
        return client

    def test_v2(self, cluster: AnyCluster, broker: RawConnection, topic: str) -> None:
        """The client learns of it by the epoch, aborts, and continues."""
        client = self.expired(broker, topic, v2=True)
        assert client.try_to_produce(topic) == "INVALID_PRODUCER_EPOCH"
        assert name(client.try_to_end(True).error_code) == "INVALID_TXN_STATE"
        epoch = client.epoch
        client.end(committed=False)
        assert client.epoch == epoch + 1
        client.produce(topic, b"next")
        client.end(committed=True)
        assert committed(cluster, topic) == [b"next"]

    def test_v1(self, cluster: AnyCluster, broker: RawConnection, topic: str) -> None:
        """The client is fenced, and may only ask for another epoch."""
        client = self.expired(broker, topic, v2=False)
        assert client.try_to_produce(topic) == "INVALID_PRODUCER_EPOCH"
        assert [name(client.try_to_end(each).error_code) for each in (True, False)] == ["PRODUCER_FENCED"] * 2
        answer = client.init(producer_id=client.producer_id, producer_epoch=client.epoch)
        assert (name(answer.error_code), answer.producer_epoch) == ("", 1)
        client.produce(topic, b"next")
        client.end(committed=True)
        assert committed(cluster, topic) == [b"next"]


# --- Produce ----------------------------------------------------------------------------------------------------------


class TestProduce:
    def test_sequences_begin_anew_with_the_epoch(self, v2: Client, topic: str) -> None:
        v2.produce(topic)
        v2.end(committed=True)
        v2.sequences[0] = 1
        assert v2.try_to_produce(topic) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
        v2.sequences[0] = 0
        assert v2.try_to_produce(topic) == ""

    def test_sequences_go_on_in_v1(self, v1: Client, topic: str) -> None:
        v1.produce(topic)
        v1.end(committed=True)
        v1.begin(topic)
        assert v1.sequences[0] == 1
        v1.sequences[0] = 5
        assert v1.try_to_produce(topic) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
        v1.sequences[0] = 1
        assert v1.try_to_produce(topic) == ""

    def test_a_sequence_that_does_not_begin_at_zero(self, client: Client, topic: str) -> None:
        client.sequences[0] = 3
        client.begin(topic)
        assert client.try_to_produce(topic) == ("OUT_OF_ORDER_SEQUENCE_NUMBER" if client.v2 else "")

    def test_a_duplicate(self, cluster: AnyCluster, client: Client, topic: str) -> None:
        assert client.produce(topic) == 0
        client.sequences[0] = 0
        assert client.produce(topic) == 0
        client.end(committed=True)
        assert committed(cluster, topic) == [b"v"]

    def test_without_the_partition(self, v1: Client, topic: str) -> None:
        """V1 clients must have added the partition; older clients do not know the error."""
        v1.begin(topic, 1)
        errors = [v1.try_to_produce(topic, version=version) for version in (9, 10, 11)]
        assert errors == ["INVALID_TXN_STATE", "INVALID_TXN_STATE", "TRANSACTION_ABORTABLE"]

    def test_without_a_transaction(self, v1: Client, topic: str) -> None:
        assert v1.try_to_produce(topic) == "TRANSACTION_ABORTABLE"
        assert v1.try_to_produce(topic, version=10) == "INVALID_TXN_STATE"

    @pytest.mark.parametrize("version", [10, 11, 12, 13])
    def test_an_unknown_name(self, broker: RawConnection, v2: Client, topic: str, version: int) -> None:
        stranger = Client(broker, producer_id=v2.producer_id, epoch=v2.epoch)
        assert stranger.try_to_produce(topic, version=version) == "INVALID_PRODUCER_ID_MAPPING"

    @pytest.mark.parametrize("version", [11, 12])
    def test_an_epoch_that_is_old(self, v2: Client, topic: str, version: int) -> None:
        v2.init()
        v2.epoch -= 1
        assert v2.try_to_produce(topic, version=version) == "INVALID_PRODUCER_EPOCH"

    @pytest.mark.parametrize("version", [11, 12])
    def test_an_epoch_that_is_to_come(self, v2: Client, topic: str, version: int) -> None:
        v2.epoch += 1
        assert v2.try_to_produce(topic, version=version) == "INVALID_PRODUCER_EPOCH"

    def test_a_transactional_batch_without_a_name(self, broker: RawConnection, client: Client, topic: str) -> None:
        """A request without a transactional id may not contain transactional batches; it fails as a whole."""
        client.begin(topic)
        plain = client.batch(b"v", transactional=False)
        for version in (10, 13):
            answer = broker.produce_whole(topic, {0: client.batch(b"v"), 1: plain}, version=version)
            ends = {name(one.error_code) for each in answer.responses for one in each.partition_responses}
            assert ends == {"TRANSACTIONAL_ID_AUTHORIZATION_FAILED"}

    def test_a_plain_batch_with_the_id_of_a_transaction(
        self, broker: RawConnection, client: Client, topic: str
    ) -> None:
        client.produce(topic)
        plain = client.batch(b"v", transactional=False)
        assert name(broker.produce(topic, plain, version=11).error_code) == "INVALID_TXN_STATE"

    def test_a_plain_batch_between_transactions(self, cluster: AnyCluster, client: Client, topic: str) -> None:
        plain = client.batch(b"v", transactional=False)
        assert name(client.broker.produce(topic, plain, transactional_id=client.transactional_id).error_code) == ""
        assert committed(cluster, topic) == [b"v"]


# --- partitions, offsets, and what can be seen ------------------------------------------------------------------------


class TestPartitions:
    @pytest.mark.parametrize("version", [0, 1, 2, 3])
    def test_all_or_none(self, v1: Client, topic: str, version: int) -> None:
        found = v1.add_partitions({topic: [0, 7], "there-is-none": [0]}, version)
        assert {key: name(code) for key, code in found.items()} == {
            (topic, 0): "OPERATION_NOT_ATTEMPTED",
            (topic, 7): "UNKNOWN_TOPIC_OR_PARTITION",
            ("there-is-none", 0): "UNKNOWN_TOPIC_OR_PARTITION",
        }
        assert v1.state().transaction_state == "Empty"
        assert set(v1.add_partitions({topic: [0, 1]}, version).values()) == {0}
        assert v1.state().transaction_state == "Ongoing"

    @pytest.mark.parametrize(("version", "error"), [(1, "INVALID_PRODUCER_EPOCH"), (2, "PRODUCER_FENCED")])
    def test_a_wrong_epoch(self, v1: Client, topic: str, version: int, error: str) -> None:
        v1.epoch += 1
        assert [name(code) for code in v1.add_partitions({topic: [0]}, version).values()] == [error]

    def test_a_transaction_without_records(self, cluster: AnyCluster, v1: Client, topic: str) -> None:
        v1.begin(topic)
        v1.end(committed=True)
        assert cluster.end_offsets(topic) == {0: 1, 1: 0}


class TestSeen:
    def test_states(self, client: Client, topic: str) -> None:
        before = time.time_ns() // 1_000_000
        seen = [client.state()]
        client.produce(topic)
        client.produce(topic, partition=1)
        seen.append(client.state())
        client.end(committed=True)
        seen.append(client.state())
        client.produce(topic)
        client.end(committed=False)
        seen.append(client.state())
        assert [one.transaction_state for one in seen] == ["Empty", "Ongoing", "CompleteCommit", "CompleteAbort"]
        assert [(one.topic, sorted(one.partitions)) for one in seen[1].topics] == [(topic, [0, 1])]
        assert seen[0].transaction_start_time_ms == -1
        assert before <= seen[1].transaction_start_time_ms <= time.time_ns() // 1_000_000
        assert {one.producer_id for one in seen} == {client.producer_id}
        assert [one.producer_epoch for one in seen] == ([0, 0, 1, 2] if client.v2 else [0, 0, 0, 0])
        assert seen[0].transaction_timeout_ms == 60_000

    def test_unknown(self, broker: RawConnection) -> None:
        answer = broker.ask(DescribeTransactionsRequest(transactional_ids=["there-is-none", ""]))
        found = {one.transactional_id: name(one.error_code) for one in answer.transaction_states}
        assert found == {"there-is-none": "TRANSACTIONAL_ID_NOT_FOUND", "": "INVALID_REQUEST"}

    def test_lists(self, broker: RawConnection, client: Client, topic: str) -> None:
        client.produce(topic)
        filters = [
            ListTransactionsRequest(),
            ListTransactionsRequest(state_filters=["Ongoing", "Nonsense"]),
            ListTransactionsRequest(state_filters=["Empty"]),
            ListTransactionsRequest(producer_id_filters=[client.producer_id]),
            ListTransactionsRequest(producer_id_filters=[10**12]),
            ListTransactionsRequest(duration_filter=3_600_000),
            ListTransactionsRequest(transactional_id_pattern=client.transactional_id),
            ListTransactionsRequest(transactional_id_pattern="t"),
        ]
        answers = [broker.ask(each) for each in filters]
        ids = [client.transactional_id in {one.transactional_id for one in each.transaction_states} for each in answers]
        assert ids == [True, True, False, True, False, False, True, False]
        assert answers[1].unknown_state_filters == ["Nonsense"]

    def test_lists_those_that_have_not_begun(self, broker: RawConnection, client: Client) -> None:
        found = [
            broker.ask(ListTransactionsRequest(producer_id_filters=[client.producer_id], duration_filter=duration_ms))
            for duration_ms in (0, 3_600_000)
        ]
        assert [len(each.transaction_states) for each in found] == [1, 1]

    @pytest.mark.parametrize("version", [0, 1, 3, 4, 6])
    def test_coordinators(self, cluster: AnyCluster, broker: RawConnection, version: int) -> None:
        Client(broker).init()
        if version >= 4:
            answer = broker.ask(FindCoordinatorRequest(coordinator_keys=["a", "b"], key_type=TRANSACTION), version)
            found = [(one.key, one.node_id, (one.host, one.port), one.error_code) for one in answer.coordinators]
            assert found == [(each, 1, cluster.address_of(1), 0) for each in ("a", "b")]
        elif version >= 1:
            one = broker.ask(FindCoordinatorRequest(key="a", key_type=TRANSACTION), version)
            assert (one.node_id, (one.host, one.port), one.error_code) == (1, cluster.address_of(1), 0)
        else:
            one = patiently(lambda: broker.ask(FindCoordinatorRequest(key="a"), version), lambda one: one.error_code)
            assert (one.node_id, (one.host, one.port), one.error_code) == (1, cluster.address_of(1), 0)


class TestOffsets:
    def commit(self, client: Client, group: str, topic: str, version: int, **member: object) -> str:
        (found,) = self.commit_all(client, group, {topic: [0]}, version, **member)[topic]
        return found

    def commit_all(
        self, client: Client, group: str, partitions: dict[str, list[int]], version: int, **member: object
    ) -> dict[str, list[str]]:
        """The error of each partition, in the order of the request, by topic."""
        request = TxnOffsetCommitRequest(
            transactional_id=client.transactional_id,
            group_id=group,
            producer_id=client.producer_id,
            producer_epoch=client.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(partition_index=one, committed_offset=42) for one in indexes
                    ],
                )
                for topic, indexes in partitions.items()
            ],
            **member,  # type: ignore[arg-type]
        )

        def ask() -> dict[str, dict[int, int]]:
            answer = client.broker.ask(request, version)
            return {
                topic.name: {one.partition_index: one.error_code for one in topic.partitions} for topic in answer.topics
            }

        codes = patiently(
            ask, lambda found: next((code for one in found.values() for code in one.values() if name(code) in AGAIN), 0)
        )
        return {topic: [name(codes[topic][one]) for one in indexes] for topic, indexes in partitions.items()}

    def add(self, client: Client, group: str, version: int = 4) -> str:
        find = FindCoordinatorRequest(coordinator_keys=[group], key_type=GROUP)
        patiently(lambda: client.broker.ask(find).coordinators[0], lambda one: one.error_code)
        request = AddOffsetsToTxnRequest(
            transactional_id=client.transactional_id,
            producer_id=client.producer_id,
            producer_epoch=client.epoch,
            group_id=group,
        )
        return name(patiently(lambda: client.broker.ask(request, version), lambda one: one.error_code).error_code)

    def committed(self, cluster: AnyCluster, group: str, topic: str) -> int | None:
        if isinstance(cluster, FakeCluster):
            found = cluster.committed_offsets(group).get((topic, 0))
            return found.offset if found else None
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=PATIENCE_S)
        consumer.close()
        return found.offset if found.offset >= 0 else None

    @pytest.mark.parametrize("result", [True, False])
    def test_they_share_the_transactions_end(
        self, cluster: AnyCluster, client: Client, topic: str, result: bool
    ) -> None:
        group = new_name()
        if not client.v2:
            assert self.add(client, group) == ""
        else:
            self.add(Client(client.broker), group)  # only makes the group's coordinator available
        assert self.commit(client, group, topic, 5 if client.v2 else 4) == ""
        assert client.state().transaction_state == "Ongoing"
        assert [one.topic for one in client.state().topics] == ["__consumer_offsets"]
        client.end(committed=result)
        assert self.committed(cluster, group, topic) == (42 if result else None)

    def test_without_adding_the_group(self, v1: Client, topic: str) -> None:
        group = new_name()
        self.add(Client(v1.broker), group)
        assert [self.commit(v1, group, topic, version) for version in (3, 4)] == [
            "INVALID_TXN_STATE", "TRANSACTION_ABORTABLE"
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("member", "error"),
        [
            ({"generation_id": 3, "member_id": "me"}, "ILLEGAL_GENERATION"),
            ({"generation_id": 3}, "ILLEGAL_GENERATION"),
            ({"member_id": "me"}, ""),
            ({"group_instance_id": "i"}, ""),
        ],
    )
    def test_members_of_a_group_that_is_not_there(
        self, v2: Client, topic: str, member: dict[str, object], error: str
    ) -> None:
        group = new_name()
        self.add(Client(v2.broker), group)
        assert self.commit(v2, group, topic, 5, **member) == error

    def test_partitions_that_are_not_there(self, cluster: AnyCluster, client: Client, topic: str) -> None:
        """Each is refused separately, before the group or the transaction is checked."""
        group, version = new_name(), 5 if client.v2 else 4
        self.add(client if not client.v2 else Client(client.broker), group)
        missing, wanted = new_name(), {topic: [2, 0, -1], new_name(): [0, 1]}
        codes = self.commit_all(client, group, wanted, version)
        assert codes == {
            topic: ["UNKNOWN_TOPIC_OR_PARTITION", "", "UNKNOWN_TOPIC_OR_PARTITION"],
            list(wanted)[1]: ["UNKNOWN_TOPIC_OR_PARTITION"] * 2,
        }
        client.end(committed=True)
        assert self.committed(cluster, group, topic) == 42
        client.epoch += 1
        none_there = self.commit_all(client, group, {missing: [0]}, version, generation_id=7, member_id="me")
        assert none_there == {missing: ["UNKNOWN_TOPIC_OR_PARTITION"]}

    def test_a_wrong_epoch(self, client: Client, topic: str) -> None:
        group = new_name()
        self.add(Client(client.broker), group)
        client.epoch += 1
        assert self.commit(client, group, topic, 5 if client.v2 else 4) == "INVALID_PRODUCER_EPOCH"
        assert self.add(client, group, 1) == "INVALID_PRODUCER_EPOCH"
        assert self.add(client, group, 4) == "PRODUCER_FENCED"


def test_only_the_coordinator_answers(three: AnyCluster) -> None:
    topic = new_name()
    three.create_topic(topic, assignments={0: [1]})
    with RawConnection(three.address_of(1)) as broker:
        client = Client(broker)
        find = FindCoordinatorRequest(coordinator_keys=[client.transactional_id], key_type=TRANSACTION)
        node = patiently(lambda: broker.ask(find).coordinators[0], lambda one: one.error_code).node_id
    other = node % 3 + 1
    with RawConnection(three.address_of(node)) as right, RawConnection(three.address_of(other)) as wrong:
        client.broker = right
        assert client.init().error_code == 0
        client.broker = wrong
        assert name(client.init(patient=False).error_code) == "NOT_COORDINATOR"
        assert [name(code) for code in client.add_partitions({topic: [0]}).values()] == ["NOT_COORDINATOR"]
        assert name(client.try_to_end(False).error_code) == "NOT_COORDINATOR"
        assert name(client.state().error_code) == "NOT_COORDINATOR"
        assert wrong.ask(ListTransactionsRequest(producer_id_filters=[client.producer_id])).transaction_states == []


# --- by chance --------------------------------------------------------------------------------------------------------


class Chance:
    """A client that makes correct and incorrect calls in a seeded random order, and records the answers."""

    def __init__(self, broker: RawConnection, topic: str, seed: int, v2: bool) -> None:
        self.chance = random.Random(seed)
        self.topic = topic
        self.client = Client(broker, v2)
        self.client.init()
        self.ids = [self.client.producer_id]
        self.notes: list[object] = []

    def run(self, steps: int) -> list[object]:
        for _ in range(steps):
            self.chance.choices([self.init, self.produce, self.end, self.add], [1, 8, 4, 1 if self.client.v2 else 5])[
                0
            ]()
            self.client.settle()
            state = self.client.state()
            partitions = sorted((one.topic == self.topic, sorted(one.partitions)) for one in state.topics)
            self.notes.append((state.transaction_state, state.producer_epoch, partitions))
        return self.notes

    def init(self) -> None:
        fields = self.chance.choice([{}, {"producer_id": self.client.producer_id, "producer_epoch": self.epoch()}])
        answer = self.client.init(patient=False, **fields)
        self.notes.append(("init", bool(fields), name(answer.error_code), answer.producer_epoch))
        self.same_id(answer.producer_id)

    def produce(self) -> None:
        client, partition = self.client, self.chance.randrange(2)
        right = client.sequences.get(partition, 0)
        sequence = max(0, right + self.chance.choice([0] * 8 + [-1, 1]))
        epoch, transactional = self.epoch(), self.chance.random() < 0.95
        kept, client.epoch = client.epoch, epoch
        records = client.batch(b"v", partition, sequence=sequence, transactional=transactional)
        client.epoch = kept
        version = self.chance.choice([13, 12] if client.v2 else [9, 11])
        end = patiently(
            lambda: client.broker.produce(
                self.topic, records, partition=partition, version=version, transactional_id=client.transactional_id
            ),
            lambda one: one.error_code,
        )
        what = (version, partition, epoch, sequence, transactional)
        self.notes.append(("produce", what, name(end.error_code), end.base_offset))
        if not end.error_code:
            client.sequences[partition] = sequence + 1

    def end(self) -> None:
        client, epoch, result = self.client, self.epoch(), self.chance.random() < 0.6
        answer = patiently(lambda: client.try_to_end(result, epoch=epoch), lambda one: one.error_code)
        self.notes.append(("end", result, epoch, name(answer.error_code), answer.producer_epoch))
        if client.v2 and not answer.error_code:
            self.same_id(answer.producer_id)
            client.epoch, client.sequences = answer.producer_epoch, {}

    def add(self) -> None:
        partitions = self.chance.choice([[0], [1], [0, 1], [2]])
        kept, self.client.epoch = self.client.epoch, self.epoch()
        found = patiently(lambda: self.client.add_partitions({self.topic: partitions}), lambda one: max(one.values()))
        self.client.epoch = kept
        self.notes.append(("add", partitions, [name(code) for code in found.values()]))

    def epoch(self) -> int:
        return max(0, self.client.epoch + self.chance.choice([0] * 10 + [-1, 1]))

    def same_id(self, producer_id: int) -> None:
        if producer_id >= 0:
            assert producer_id == self.ids[0]


@pytest.mark.parametrize("v2", [True, False], ids=["v2", "v1"])
@pytest.mark.parametrize("seed", range(3))
def test_they_agree_on_steps_by_chance(fake: FakeCluster, kafka: KafkaCluster, seed: int, v2: bool) -> None:
    notes = []
    for cluster in (fake, kafka):
        topic = new_name()
        cluster.create_topic(topic, 2)
        with RawConnection(cluster.address_of(1)) as broker:
            notes.append(Chance(broker, topic, seed, v2).run(60))
        visible = [[committed(cluster, topic, each, isolation=how) for each in (0, 1)] for how in ISOLATION]
        notes[-1].append(([[len(one) for one in each] for each in visible], cluster.end_offsets(topic)))
    assert notes[0] == notes[1]


# --- an older Kafka ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["fake", "real"])
def older(request: pytest.FixtureRequest) -> Iterator[AnyCluster]:
    """One broker of Kafka 3.9, first a real and then a fake one."""
    made: AnyCluster = FakeCluster(version="3.9") if request.param == "fake" else KafkaCluster(version="3.9.1")
    with made as cluster:
        yield cluster


class TestOlderKafka:
    @pytest.fixture
    def broker(self, older: AnyCluster) -> Iterator[RawConnection]:
        with RawConnection(older.address_of(1)) as connection:
            yield connection

    @pytest.fixture
    def topic(self, older: AnyCluster) -> str:
        name = new_name()
        older.create_topic(name, 2)
        return name

    def test_what_it_speaks(self, broker: RawConnection) -> None:
        answer = broker.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
        ranges = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
        assert ranges.items() >= dict(kafka_version("3.9").ranges).items()
        assert "transaction.version" not in {one.name for one in answer.finalized_features}

    def test_transactions(self, older: AnyCluster, broker: RawConnection, topic: str) -> None:
        client = Client(broker, v2=False)
        client.init()
        for value, result in ((b"a", True), (b"b", False), (b"c", True)):
            client.begin(topic)
            end = broker.produce(
                topic, client.batch(value), version=11, topic_id=bytes(16), transactional_id=client.transactional_id
            )
            assert name(end.error_code) == ""
            client.sequences[0] = client.sequences.get(0, 0) + 1
            client.end(committed=result)
        assert client.epoch == 0
        assert committed(older, topic) == [b"a", b"c"]

    def test_a_second_producer(self, broker: RawConnection, topic: str) -> None:
        client = Client(broker, v2=False)
        client.init()
        client.begin(topic)
        assert name(client.init(patient=False).error_code) == "CONCURRENT_TRANSACTIONS"
        client.init()
        assert client.epoch == 2

    def test_without_the_partition(self, broker: RawConnection, topic: str) -> None:
        client = Client(broker, v2=False)
        client.init()
        errors = [client.try_to_produce(topic, version=version) for version in (9, 10, 11)]
        assert errors == ["INVALID_TXN_STATE", "INVALID_TXN_STATE", "TRANSACTION_ABORTABLE"]

    def test_a_timeout(self, broker: RawConnection, topic: str) -> None:
        """The producer is fenced for good."""
        client = Client(broker, v2=False)
        client.init(transaction_timeout_ms=TIMEOUT_MS)
        client.begin(topic)
        deadline = time.monotonic() + PATIENCE_S
        while client.state().transaction_state != "CompleteAbort":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert client.state().producer_epoch == client.epoch + 1
        assert name(client.try_to_end(False).error_code) == "PRODUCER_FENCED"
        answer = client.init(producer_id=client.producer_id, producer_epoch=client.epoch)
        assert name(answer.error_code) == "PRODUCER_FENCED"

    def test_a_time_far_ahead(self, broker: RawConnection, topic: str) -> None:
        far = reference.encoded([PlainRecord(2**45, b"k", b"v")])
        assert broker.produce(topic, far, version=11).error_code == 0

    def test_an_unknown_producer_may_begin_anywhere(self, broker: RawConnection, topic: str) -> None:
        batch = reference.encoded([PlainRecord(1, b"k", b"v")], producer_id=10**6, producer_epoch=0, base_sequence=7)
        assert broker.produce(topic, batch, version=11).error_code == 0
