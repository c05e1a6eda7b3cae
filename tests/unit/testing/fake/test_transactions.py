"""Transactions in the cluster model: their states, their ends in the log, and their coordinators."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from aioproducer.errors import error_class
from aioproducer.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest
from aioproducer.protocol.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from aioproducer.protocol.describe_transactions import DescribeTransactionsRequest
from aioproducer.protocol.end_txn import EndTxnRequest, EndTxnResponse
from aioproducer.protocol.find_coordinator import TRANSACTION, FindCoordinatorRequest
from aioproducer.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aioproducer.protocol.list_transactions import ListTransactionsRequest
from aioproducer.protocol.schema import R, Request
from aioproducer.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from aioproducer.testing.fake import ClusterModel
from aioproducer.testing.fake.groups import offsets_partition
from aioproducer.testing.fake.session import Session
from aioproducer.testing.fake.transactions import LAST_EPOCH
from tests.unit.testing.fake.talk import NOW_MS, ask, batch, leader_session, model, produce, produce_request


def name(code: int) -> str:
    return error_class(code).name if code else ""


@dataclass
class Client:
    """A transactional producer that decides nothing by itself."""

    cluster: ClusterModel
    transactional_id: str = "txn"
    producer_id: int = -1
    epoch: int = -1
    now_ms: int = NOW_MS

    def ask(self, request: Request[R], version: int | None = None, *, key: str | None = None) -> R:
        node = self.cluster.coordinators.node_of(key or self.transactional_id)
        assert node is not None
        return ask(Session(self.cluster, node), request, version, now_ms=self.now_ms)

    def init(self, timeout_ms: int = 60_000, **fields: int) -> InitProducerIdResponse:
        answer = self.ask(
            InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms, **fields)
        )
        if not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return answer

    def produce(self, value: bytes = b"v", partition: int = 0, *, sequence: int = 0, version: int = 13) -> str:
        records = batch(value, producer=(self.producer_id, self.epoch, sequence), transactional=True)
        request = produce_request(self.cluster, records, partition=partition)
        request.transactional_id = self.transactional_id
        session = leader_session(self.cluster, partition=partition)
        (answered,) = ask(session, request, version, now_ms=self.now_ms).responses
        return name(answered.partition_responses[0].error_code)

    def add(self, *partitions: int, version: int = 3) -> set[str]:
        request = AddPartitionsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[AddPartitionsToTxnTopic(name="orders", partitions=list(partitions))],
        )
        (topic,) = self.ask(request, version).results_by_topic
        return {name(one.partition_error_code) for one in topic.results_by_partition}

    def end(self, *, committed: bool = True, version: int = 5) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        return self.ask(request, version)

    def state(self) -> str:
        (one,) = self.ask(DescribeTransactionsRequest(transactional_ids=[self.transactional_id])).transaction_states
        return one.transaction_state


def client(**options: object) -> Client:
    found = Client(model(**options))  # type: ignore[arg-type]
    found.init()
    return found


def seen(cluster: ClusterModel, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in cluster.records("orders", partition, read_committed=True)]


@pytest.mark.parametrize("committed", [True, False])
def test_the_end_of_a_v2_transaction_raises_the_epoch(committed: bool) -> None:
    one = client()
    assert [one.produce(b"a"), one.produce(b"b", sequence=1), one.produce(b"c", 1)] == ["", "", ""]
    assert seen(one.cluster) == []
    answer = one.end(committed=committed)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, one.producer_id, one.epoch + 1)
    assert seen(one.cluster) == ([b"a", b"b"] if committed else [])
    assert seen(one.cluster, 1) == ([b"c"] if committed else [])
    assert one.cluster.end_offsets("orders") == {0: 3, 1: 2}
    assert one.produce(b"late", sequence=2) == "INVALID_PRODUCER_EPOCH"


def test_transactions_of_two_producers_in_one_partition_end_as_each_of_them_says() -> None:
    """And nothing that follows the first record of an open one is read."""
    first = client()
    second = Client(first.cluster, "other")
    second.init()
    for sequence in range(2):
        assert first.produce(b"first", sequence=sequence) == ""
        assert second.produce(b"second", sequence=sequence) == ""
    second.end()
    assert seen(first.cluster) == []
    first.end(committed=False)
    assert seen(first.cluster) == [b"second"] * 2


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize(("kafka", "version"), [("4.3", 11), ("3.9", 11), ("2.8", 9)])
def test_the_end_of_a_v1_transaction_keeps_the_epoch(committed: bool, kafka: str, version: int) -> None:
    one = Client(model(version=kafka))
    answer = one.ask(InitProducerIdRequest(transactional_id="txn", transaction_timeout_ms=60_000), 2)
    one.producer_id, one.epoch = answer.producer_id, answer.producer_epoch
    assert one.add(0) == {""}
    assert one.produce(b"a", version=version) == ""
    ended = one.end(committed=committed, version=3)
    assert (ended.error_code, ended.producer_epoch) == (0, -1)
    assert one.add(0) == {""}
    assert one.produce(b"b", sequence=1, version=version) == ""
    one.end(version=3)
    assert seen(one.cluster) == ([b"a", b"b"] if committed else [b"b"])


def test_an_older_producer_can_not_write_in_its_transaction() -> None:
    """A leader asks about the first batch, and the coordinator knows the newer producer."""
    older = client(version="3.9")
    newer = Client(older.cluster)
    newer.init()
    assert (newer.producer_id, newer.epoch) == (older.producer_id, older.epoch + 1)
    assert older.produce(version=11) == "INVALID_PRODUCER_EPOCH"
    assert newer.add(0) == {""}
    assert newer.produce(version=11) == ""


@pytest.mark.parametrize("version", [3, 5])
def test_the_end_of_a_transaction_of_which_no_coordinator_knows(version: int) -> None:
    one = client()
    one.transactional_id = "other"
    assert name(one.end(version=version).error_code) == "INVALID_PRODUCER_ID_MAPPING"


def test_old_brokers_do_not_ask_whether_a_partition_was_added() -> None:
    one = Client(model(version="2.8"))
    one.producer_id, one.epoch = 5, 0
    assert one.produce(version=9) == ""


class TestVerification:
    """A batch that a leader has to verify delays later ones, even if the verification fails."""

    def test_a_later_sequence_does_not_overtake(self) -> None:
        one = client()
        assert one.produce(sequence=0, version=11) == "TRANSACTION_ABORTABLE"
        one.add(0)
        assert one.produce(sequence=1, version=11) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
        assert [one.produce(sequence=each, version=11) for each in (0, 1)] == ["", ""]

    def test_an_old_epoch_is_refused_before_anybody_is_asked(self) -> None:
        one = client()
        old = Client(one.cluster, "txn", one.producer_id, one.epoch)
        one.init()
        one.produce(sequence=0)
        assert old.produce(sequence=0) == "INVALID_PRODUCER_EPOCH"
        assert one.produce(sequence=1) == ""

    def test_a_sequence_that_is_wrong_is_told_before_a_missing_transaction(self) -> None:
        one = client()
        one.produce(sequence=0)
        plain = batch(b"v", producer=(one.producer_id, one.epoch, 5))
        assert name(produce(one.cluster, plain).error_code) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
        plain = batch(b"v", producer=(one.producer_id, one.epoch, 1))
        assert name(produce(one.cluster, plain).error_code) == "INVALID_TXN_STATE"


class TestMarkers:
    @pytest.mark.parametrize("committed", [True, False])
    def test_while_they_are_late_the_other_end_is_refused(self, committed: bool) -> None:
        one = client()
        one.cluster.coordinators.transactions.marker_delay_ms = 100
        one.produce(b"a")
        assert one.end(committed=committed).error_code == 0
        assert name(one.end(committed=committed).error_code) == "CONCURRENT_TRANSACTIONS"
        assert name(one.end(committed=not committed).error_code) == "INVALID_TXN_STATE"

    def test_they_can_be_late(self) -> None:
        """The next transaction has to wait until the markers are written."""
        one = client()
        one.cluster.coordinators.transactions.marker_delay_ms = 100
        one.produce(b"a")
        one.epoch = one.end().producer_epoch
        assert one.produce(b"b") == "CONCURRENT_TRANSACTIONS"
        assert name(one.init().error_code) == "CONCURRENT_TRANSACTIONS"
        assert seen(one.cluster) == []
        one.now_ms += 100
        assert one.produce(b"b") == ""
        assert seen(one.cluster) == [b"a"]

    def test_old_clients_are_told_what_makes_them_wait(self) -> None:
        one = client()
        one.cluster.coordinators.transactions.marker_delay_ms = 100
        one.add(0)
        one.end(version=4)
        assert one.add(0) == {"CONCURRENT_TRANSACTIONS"}
        assert one.produce(version=11) == "NOT_ENOUGH_REPLICAS"

    def test_they_wait_for_a_leader(self) -> None:
        one = client()
        one.produce(b"a")
        one.cluster.remove_leader("orders", 0)
        assert one.end().error_code == 0
        assert one.state() == "PrepareCommit"
        one.cluster.elect_leaders()
        assert one.state() == "CompleteCommit"
        assert seen(one.cluster) == [b"a"]

    def test_a_partition_without_a_leader_holds_no_other_up(self) -> None:
        one = client()
        one.produce(b"a")
        one.produce(b"b", 1)
        one.cluster.remove_leader("orders", 0)
        one.end()
        assert (seen(one.cluster, 0), seen(one.cluster, 1)) == ([], [b"b"])
        assert one.state() == "PrepareCommit"

    def test_a_partition_that_knows_a_newer_epoch_takes_none(self) -> None:
        """The epoch was made up; in a real Kafka the transaction hangs as well."""
        one = client()
        one.add(0)
        assert produce(one.cluster, batch(b"v", producer=(one.producer_id, one.epoch + 1, 0))).error_code == 0
        assert one.end(version=4).error_code == 0
        assert one.state() == "PrepareCommit"

    def test_deleted_topics_need_none(self) -> None:
        one = client()
        one.produce(b"a")
        one.cluster.delete_topic("orders")
        one.end()
        assert one.state() == "CompleteCommit"


class TestEpochs:
    def test_used_up_by_v2_ends(self) -> None:
        """The answer has the next producer id, and a repeated request gets it again."""
        one = client()
        known = one.cluster.coordinators.transactions.get("txn")
        assert known is not None
        known.epoch = one.epoch = LAST_EPOCH
        one.produce(b"a")
        answers = [one.end(), one.end()]
        assert [(each.error_code, each.producer_epoch) for each in answers] == [(0, 0), (0, 0)]
        assert answers[0].producer_id == answers[1].producer_id != one.producer_id
        one.producer_id, one.epoch = answers[0].producer_id, 0
        assert one.produce(b"b") == ""
        one.end()
        assert seen(one.cluster) == [b"a", b"b"]

    def test_used_up_by_new_producers(self) -> None:
        one = client()
        known = one.cluster.coordinators.transactions.get("txn")
        assert known is not None
        old = one.producer_id
        known.epoch = LAST_EPOCH
        assert (one.init().error_code, one.epoch) == (0, 0)
        assert one.producer_id != old

    def test_used_up_by_a_producer_that_goes_on(self) -> None:
        """It gets the next producer id once, however often it asks; nobody else gets it."""
        one = client()
        known = one.cluster.coordinators.transactions.get("txn")
        assert known is not None
        old = one.producer_id
        known.epoch = LAST_EPOCH
        answers = [one.init(producer_id=old, producer_epoch=LAST_EPOCH) for _ in range(2)]
        assert [(each.error_code, each.producer_epoch) for each in answers] == [(0, 0), (0, 0)]
        assert answers[0].producer_id == answers[1].producer_id != old
        for producer_id, epoch in ((old + 77, LAST_EPOCH), (old, LAST_EPOCH - 1)):
            refused = one.init(producer_id=producer_id, producer_epoch=epoch)
            assert name(refused.error_code) == "PRODUCER_FENCED"

    def test_a_timeout_takes_it_away(self) -> None:
        one = client()
        one.init(timeout_ms=1_000)
        one.produce(b"a")
        one.now_ms += 1_001
        assert one.produce(b"b", sequence=1) == "INVALID_PRODUCER_EPOCH"
        assert one.state() == "CompleteAbort"
        ended = one.end(committed=False)
        assert (ended.error_code, ended.producer_epoch) == (0, one.epoch + 1)
        assert seen(one.cluster) == []

    def test_a_timeout_takes_the_last_one_away(self) -> None:
        """With V2 the producer goes on under the next producer id, as after an end of its own."""
        one = client()
        known = one.cluster.coordinators.transactions.get("txn")
        assert known is not None
        old = one.producer_id
        known.epoch = one.epoch = LAST_EPOCH
        one.produce(b"a")
        one.now_ms += known.timeout_ms + 1
        one.cluster.advance(one.now_ms)
        assert one.state() == "CompleteAbort"
        assert (known.previous_producer_id, known.epoch) == (old, 0)
        assert (one.init(producer_id=old, producer_epoch=LAST_EPOCH).error_code, one.producer_id, one.epoch) == (
            0,
            known.producer_id,
            0,
        )
        assert one.produce(b"b") == ""
        one.end()
        assert seen(one.cluster) == [b"b"]


def test_a_description_has_the_partitions_of_the_transaction() -> None:
    one = client()
    one.produce(b"a")
    one.produce(b"b", 1)
    (told,) = one.ask(DescribeTransactionsRequest(transactional_ids=["txn"])).transaction_states
    assert (told.transaction_state, told.producer_id, told.producer_epoch) == ("Ongoing", one.producer_id, one.epoch)
    assert (told.transaction_timeout_ms, told.transaction_start_time_ms) == (60_000, NOW_MS)
    assert [(topic.topic, topic.partitions) for topic in told.topics] == [("orders", [0, 1])]


class TestCoordinators:
    @pytest.mark.parametrize("version", range(7))
    def test_they_are_found_in_every_version(self, version: int) -> None:
        one = client()
        find = FindCoordinatorRequest(key="txn") if version < 4 else FindCoordinatorRequest(coordinator_keys=["txn"])
        if version > 0:
            find.key_type = TRANSACTION
        answer = ask(Session(one.cluster, 1), find, version)
        found = answer if version < 4 else answer.coordinators[0]
        node = one.cluster.coordinators.node_of("txn")
        assert node is not None
        broker = one.cluster.brokers[node]
        assert (found.error_code, found.node_id, found.host, found.port) == (0, node, broker.host, broker.port)

    def test_they_move_with_their_state(self) -> None:
        one = client()
        one.produce(b"a")
        node = one.cluster.coordinators.node_of("txn")
        assert node is not None
        other = node % 3 + 1
        one.cluster.coordinators.move("txn", other)
        request = EndTxnRequest(
            transactional_id="txn", producer_id=one.producer_id, producer_epoch=one.epoch, committed=True
        )
        assert name(ask(Session(one.cluster, node), request).error_code) == "NOT_COORDINATOR"
        find = FindCoordinatorRequest(coordinator_keys=["txn"], key_type=TRANSACTION)
        assert ask(Session(one.cluster, node), find).coordinators[0].node_id == other
        assert one.end().error_code == 0
        assert seen(one.cluster) == [b"a"]

    def test_they_move_when_their_broker_goes(self) -> None:
        one = client()
        node = one.cluster.coordinators.node_of("txn")
        assert node is not None
        others = {f"id-{number}": one.cluster.coordinators.node_of(f"id-{number}") for number in range(50)}
        one.cluster.stop_broker(node)
        assert one.cluster.coordinators.node_of("txn") not in (None, node)
        stayed = {key for key, at in others.items() if at != node}
        assert stayed
        assert all(one.cluster.coordinators.node_of(key) == others[key] for key in stayed)
        one.cluster.start_broker(node)
        assert one.cluster.coordinators.node_of("txn") == node

    def test_they_load(self) -> None:
        one = client()
        node = one.cluster.coordinators.node_of("txn")
        assert node is not None
        one.cluster.coordinators.load(node, NOW_MS + 50)
        assert name(one.init().error_code) == "COORDINATOR_LOAD_IN_PROGRESS"
        one.now_ms += 50
        assert name(one.init().error_code) == ""

    @pytest.mark.parametrize("version", [11, 13])
    def test_leaders_ask_them_about_the_first_batch_of_a_transaction(self, version: int) -> None:
        """As long as they load, the answer is one that every client retries."""
        one = client()
        node = one.cluster.coordinators.node_of("txn")
        assert node is not None
        if version == 11:
            one.add(0)
        one.cluster.coordinators.load(node, NOW_MS + 50)
        assert one.produce(version=version) == "NOT_ENOUGH_REPLICAS"
        one.now_ms += 50
        assert one.produce(version=version) == ""
        one.cluster.coordinators.load(node, one.now_ms + 50)
        assert one.produce(sequence=1, version=version) == ""

    @pytest.mark.parametrize("version", [0, 3, 4, 6])
    def test_faults(self, version: int) -> None:
        one = client()
        one.cluster.faults.fail("FindCoordinator", "COORDINATOR_NOT_AVAILABLE")
        request = FindCoordinatorRequest(key="txn") if version < 4 else FindCoordinatorRequest(coordinator_keys=["txn"])
        codes = []
        for _ in range(2):
            answer = ask(Session(one.cluster, 1), request, version)
            codes.append(answer.error_code if version < 4 else answer.coordinators[0].error_code)
        assert codes == [15, 0]

    def test_faults_of_the_others(self) -> None:
        one = client()
        for api in ("AddPartitionsToTxn", "EndTxn", "InitProducerId"):
            one.cluster.faults.fail(api, "NOT_COORDINATOR")
        assert one.add(0, 1) == {"NOT_COORDINATOR"}
        assert name(one.end().error_code) == "NOT_COORDINATOR"
        assert name(one.init().error_code) == "NOT_COORDINATOR"
        one.cluster.faults.fail("EndTxn", "REQUEST_TIMED_OUT", apply=True)
        one.produce(b"a")
        assert name(one.end().error_code) == "REQUEST_TIMED_OUT"
        assert one.end().error_code == 0
        assert seen(one.cluster) == [b"a"]


class TestOffsets:
    def commit(self, one: Client, version: int, **member: object) -> str:
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7)
        request = TxnOffsetCommitRequest(
            transactional_id="txn",
            group_id="group",
            producer_id=one.producer_id,
            producer_epoch=one.epoch,
            topics=[TxnOffsetCommitRequestTopic(name="orders", partitions=[partition])],
            **member,  # type: ignore[arg-type]
        )
        (topic,) = one.ask(request, version, key="group").topics
        return name(topic.partitions[0].error_code)

    @pytest.mark.parametrize("committed", [True, False])
    @pytest.mark.parametrize("v2", [True, False])
    def test_they_end_with_the_transaction(self, committed: bool, v2: bool) -> None:
        one = client()
        if not v2:
            add = AddOffsetsToTxnRequest(
                transactional_id="txn", producer_id=one.producer_id, producer_epoch=one.epoch, group_id="group"
            )
            assert one.ask(add).error_code == 0
        assert self.commit(one, 5 if v2 else 4) == ""
        group = one.cluster.coordinators.group("group")
        assert group.offsets == {}
        one.end(committed=committed, version=5 if v2 else 4)
        assert [each.offset for each in group.offsets.values()] == ([7] if committed else [])
        assert group.pending == {}

    def test_the_groups_coordinator_alone_takes_them(self) -> None:
        one = client()
        group = TxnOffsetCommitRequestTopic(
            name="orders", partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7)]
        )
        request = TxnOffsetCommitRequest(
            transactional_id="txn",
            group_id="group",
            producer_id=one.producer_id,
            producer_epoch=one.epoch,
            topics=[group],
        )
        told = {}
        for node in one.cluster.brokers:
            (topic,) = ask(Session(one.cluster, node), request, 5).topics
            told[node] = name(topic.partitions[0].error_code)
        coordinator = one.cluster.coordinators.node_of("group")
        assert told == {node: "" if node == coordinator else "NOT_COORDINATOR" for node in one.cluster.brokers}

    @pytest.mark.parametrize("version", [4, 5])
    def test_the_groups_coordinator_asks_that_of_the_transaction(self, version: int) -> None:
        one = client()
        node = one.cluster.coordinators.node_of("txn")
        assert node is not None
        one.cluster.coordinators.move("group", node % 3 + 1)
        add = AddOffsetsToTxnRequest(
            transactional_id="txn", producer_id=one.producer_id, producer_epoch=one.epoch, group_id="group"
        )
        assert one.ask(add).error_code == 0
        one.cluster.coordinators.load(node, NOW_MS + 50)
        assert self.commit(one, version) == "COORDINATOR_LOAD_IN_PROGRESS"
        one.now_ms += 50
        assert self.commit(one, version) == ""

    def test_their_log_knows_a_fenced_producer(self) -> None:
        """Even without asking the coordinator: the log has the transaction's end with a newer epoch."""
        one = Client(model(version="2.8"))
        init = InitProducerIdRequest(transactional_id="txn", transaction_timeout_ms=60_000)
        first = one.ask(init, 2)
        one.producer_id, one.epoch = first.producer_id, first.producer_epoch
        add = AddOffsetsToTxnRequest(
            transactional_id="txn", producer_id=one.producer_id, producer_epoch=one.epoch, group_id="group"
        )
        assert one.ask(add, 2).error_code == 0
        answers = [one.ask(init, 2) for _ in range(2)]
        assert [name(each.error_code) for each in answers] == ["CONCURRENT_TRANSACTIONS", ""]
        assert answers[1].producer_id == one.producer_id
        assert self.commit(one, 2) == "INVALID_PRODUCER_EPOCH"
        assert one.cluster.coordinators.group("group").pending == {}

    def test_their_log_knows_the_newest_epoch_that_wrote_there(self) -> None:
        """Brokers that do not ask the transaction's coordinator have only that."""
        one = Client(model(version="2.8"), producer_id=5, epoch=1)
        assert self.commit(one, 2) == ""
        one.epoch = 0
        assert self.commit(one, 2) == "INVALID_PRODUCER_EPOCH"
        one.epoch = 1
        assert self.commit(one, 2) == ""

    @pytest.mark.parametrize(
        ("member", "error"),
        [
            ({"generation_id": 4, "member_id": "me"}, ""),
            ({"generation_id": 4, "member_id": "me", "group_instance_id": "i"}, ""),
            ({}, ""),
            ({"generation_id": 3, "member_id": "me"}, "ILLEGAL_GENERATION"),
            ({"generation_id": 4, "member_id": "you"}, "UNKNOWN_MEMBER_ID"),
            ({"generation_id": 4, "member_id": "you", "group_instance_id": "i"}, "FENCED_INSTANCE_ID"),
            ({"generation_id": 4, "member_id": "me", "group_instance_id": "j"}, "UNKNOWN_MEMBER_ID"),
        ],
    )
    def test_members_alone_may_commit(self, member: dict[str, object], error: str) -> None:
        one = client()
        group = one.cluster.coordinators.group("group")
        group.generation_id, group.members = 4, {"me": "i"}
        assert self.commit(one, 5, **member) == error

    def test_groups_live_where_java_puts_them(self) -> None:
        """Its hash of "group" is 98629247."""
        assert offsets_partition("group") == 98629247 % 50
        assert 0 <= offsets_partition("order-service-é-😀") < 50


@pytest.mark.parametrize(
    ("timeout_ms", "taken"), [(-1, False), (0, False), (1, True), (900_000, True), (900_001, False)]
)
def test_a_timeout_is_within_what_brokers_allow(timeout_ms: int, taken: bool) -> None:
    code = Client(model()).init(timeout_ms).error_code
    assert name(code) == ("" if taken else "INVALID_TRANSACTION_TIMEOUT")


@pytest.mark.parametrize(("kafka", "version"), [("3.9", 4), ("4.3", 5)])
@pytest.mark.parametrize(
    ("other_id", "other_epoch", "error"),
    [(1, 0, "INVALID_PRODUCER_ID_MAPPING"), (0, 1, "PRODUCER_FENCED"), (0, -1, "PRODUCER_FENCED")],
)
def test_only_the_current_producer_may_go_on(
    kafka: str, version: int, other_id: int, other_epoch: int, error: str
) -> None:
    one = client(version=kafka)
    one.init()
    one.add(0)
    one.producer_id += other_id
    one.epoch += other_epoch
    assert one.add(1) == {error}
    for committed in True, False:
        assert name(one.end(committed=committed, version=version).error_code) == error
    assert one.state() == "Ongoing"


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize(("kafka", "version"), [("3.9", 4), ("4.3", 5)])
def test_an_end_may_be_repeated_but_not_changed(kafka: str, version: int, committed: bool) -> None:
    one = client(version=kafka)
    one.add(0)
    one.cluster.coordinators.transactions.marker_delay_ms = 1_000
    assert one.end(committed=committed, version=version).error_code == 0
    for waited_ms, again in ((999, "CONCURRENT_TRANSACTIONS"), (1, "")):
        one.now_ms += waited_ms
        assert name(one.end(committed=committed, version=version).error_code) == again
        assert name(one.end(committed=not committed, version=version).error_code) == "INVALID_TXN_STATE"
    assert one.state() == ("CompleteCommit" if committed else "CompleteAbort")


def test_the_next_epoch_is_that_of_the_current_producer() -> None:
    """Which may ask again if the answer was lost (KIP-360)."""
    one = client()
    own = one.producer_id
    for before, after in ((0, 1), (0, 1), (1, 2)):
        assert one.init(producer_id=own, producer_epoch=before).error_code == 0
        assert (one.producer_id, one.epoch) == (own, after)
    for producer_id, epoch in ((own, 0), (own, 3), (own + 1, 2)):
        assert name(one.init(producer_id=producer_id, producer_epoch=epoch).error_code) == "PRODUCER_FENCED"


def test_an_abort_of_nothing_raises_the_epoch_each_time() -> None:
    """Unless it is the same one again; and nothing can't be committed."""
    one = client()
    assert name(one.end().error_code) == "INVALID_TXN_STATE"
    for before, after in ((0, 1), (0, 1), (1, 2)):
        one.epoch = before
        answer = one.end(committed=False)
        assert (answer.error_code, answer.producer_epoch) == (0, after)
    one.epoch = 2
    assert name(one.end().error_code) == "INVALID_TXN_STATE"


def test_a_v2_transaction_begins_at_sequence_0_where_its_producer_is_unknown() -> None:
    one = client()
    assert one.produce(sequence=5) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert one.produce() == ""


def test_nobody_coordinates_where_no_broker_runs() -> None:
    cluster = model(brokers=1)
    assert cluster.coordinators.node_of("txn") == 1
    cluster.stop_broker(1)
    assert cluster.coordinators.node_of("txn") is None


def test_an_empty_transactional_id_is_refused() -> None:
    one = Client(model(), "")
    assert name(one.init().error_code) == "INVALID_REQUEST"
    assert one.add(0) == {"INVALID_REQUEST"}
    assert name(one.end().error_code) == "INVALID_REQUEST"


@pytest.mark.parametrize(("kafka", "error"), [("4.3", ""), ("3.9", "PRODUCER_FENCED")])
def test_who_takes_too_long_goes_on_in_v2_alone(kafka: str, error: str) -> None:
    one = client(version=kafka)
    one.add(0)
    one.now_ms += 60_001
    assert one.state() == "CompleteAbort"
    assert name(one.init(producer_id=one.producer_id, producer_epoch=0).error_code) == error
    assert one.epoch == (0 if error else 1)


def test_a_transaction_has_all_of_its_time() -> None:
    one = client()
    one.produce()
    one.now_ms += 60_000
    assert one.state() == "Ongoing"
    one.now_ms += 1
    assert one.state() == "CompleteAbort"


def test_a_transactional_id_with_an_open_transaction_is_not_forgotten() -> None:
    """Once it is, its producer gets a new producer id, as if it had a new transactional id."""
    one = client()
    one.produce()
    one.cluster.coordinators.transactions.forget("txn")
    assert one.state() == "Ongoing"
    one.end()
    one.epoch += 1
    one.cluster.coordinators.transactions.forget("txn")
    assert one.produce() == "INVALID_PRODUCER_ID_MAPPING"
    former = one.producer_id
    assert one.init(producer_id=one.producer_id, producer_epoch=one.epoch).error_code == 0
    assert (one.producer_id, one.epoch) == (former + 1, 0)


def test_a_producer_with_an_open_transaction_is_not_forgotten() -> None:
    """Any sequence would be accepted of an unknown one."""
    one = client(version="3.9")
    one.add(0)
    assert one.produce(version=11) == ""
    one.cluster.forget_producers("orders", 0)
    assert one.produce(sequence=5, version=11) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    one.end(version=4)
    one.cluster.forget_producers("orders", 0)
    one.add(0)
    assert one.produce(sequence=5, version=11) == ""


@pytest.mark.parametrize(("took_ms", "listed"), [(0, []), (1, ["txn"])])
def test_a_list_of_those_that_take_longer_than_a_time(took_ms: int, listed: list[str]) -> None:
    one = client()
    one.produce()
    one.now_ms += 5_000 + took_ms
    found = one.ask(ListTransactionsRequest(duration_filter=5_000)).transaction_states
    assert [each.transactional_id for each in found] == listed
