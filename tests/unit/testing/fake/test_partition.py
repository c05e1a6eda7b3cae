"""The replicas of a partition of the cluster model: what each has, what is committed, and what a new leader loses."""

from __future__ import annotations

import pytest

from aioproducer.errors import error_class
from aioproducer.protocol.header import decode_response
from aioproducer.protocol.produce import PartitionProduceResponse, ProduceRequest
from aioproducer.testing.fake import ClusterModel, Session
from tests.unit.testing.fake.talk import NOW_MS, ask, batch, model, produce, produce_request, send

PRODUCER = 7
TIMEOUT_MS = 1000


def cluster_of(brokers: int = 3, **options: object) -> ClusterModel:
    """A cluster with a topic of one partition, led by the first broker."""
    cluster = model(brokers, **options)
    cluster.create_topic("one", assignments={0: list(range(1, brokers + 1))})
    return cluster


def numbered(sequence: int, epoch: int = 0) -> bytes:
    return batch(b"%d" % sequence, producer=(PRODUCER, epoch, sequence))


def write(cluster: ClusterModel, sequence: int, node_id: int = 1, *, acks: int = -1) -> str:
    """What a broker says to a batch at once; "waits" if that depends on its replicas."""
    answer = send(Session(cluster, node_id), produce_request(cluster, numbered(sequence), "one", acks=acks))
    return "waits" if answer.waits else _name(_result(answer.frame))


def waiting(cluster: ClusterModel, sequence: int, node_id: int = 1) -> Session:
    """A connection whose request waits for replicas."""
    session = Session(cluster, node_id)
    assert send(session, produce_request(cluster, numbered(sequence), "one")).waits
    return session


def decided(session: Session, after_ms: int = 0) -> str:
    """What became of a request that waited; "waits" if it still does."""
    answer = session.decided(NOW_MS + after_ms)
    return "waits" if answer.waits else "closed" if answer.close else _name(_result(answer.frame))


def _result(frame: bytes | None) -> PartitionProduceResponse:
    assert frame is not None
    (result,) = decode_response(ProduceRequest, ProduceRequest.MAX_VERSION, frame[4:]).responses[0].partition_responses
    return result


def _name(result: PartitionProduceResponse) -> str:
    return error_class(result.error_code).name if result.error_code else ""


def values(cluster: ClusterModel, node_id: int) -> list[bytes | None]:
    """What a replica has."""
    return [record.value for record in cluster.partition("one", 0).logs[node_id].read()]


def seen(cluster: ClusterModel) -> list[bytes | None]:
    """What consumers see."""
    return [record.value for record in cluster.records("one")]


def test_followers_copy_at_once() -> None:
    cluster = cluster_of()
    assert write(cluster, 0) == ""
    assert [values(cluster, node_id) for node_id in (1, 2, 3)] == [[b"0"]] * 3
    assert seen(cluster) == [b"0"]


class TestWaiting:
    def test_a_batch_waits_until_all_replicas_in_sync_have_it(self) -> None:
        cluster = cluster_of()
        cluster.pause_replication(2)
        cluster.pause_replication(3)
        session = waiting(cluster, 0)
        assert (values(cluster, 1), values(cluster, 2), seen(cluster)) == ([b"0"], [], [])
        assert cluster.end_offsets("one") == {0: 0}
        cluster.resume_replication(2)
        assert (decided(session, TIMEOUT_MS - 1), seen(cluster)) == ("waits", [])
        cluster.resume_replication(3)
        assert (decided(session, TIMEOUT_MS - 1), seen(cluster)) == ("", [b"0"])

    def test_no_longer_than_the_request_says(self) -> None:
        cluster = cluster_of()
        cluster.pause_replication(2)
        session = waiting(cluster, 0)
        assert decided(session, TIMEOUT_MS - 1) == "waits"
        assert decided(session, TIMEOUT_MS) == "REQUEST_TIMED_OUT"

    def test_a_repeated_batch_waits_too(self) -> None:
        cluster = cluster_of()
        cluster.pause_replication(2)
        assert [write(cluster, 0), write(cluster, 0)] == ["waits", "waits"]
        assert write(cluster, 0, acks=1) == ""
        assert values(cluster, 1) == [b"0"]

    def test_replicas_that_are_not_in_sync_are_not_waited_for(self) -> None:
        cluster = cluster_of()
        cluster.pause_replication(2)
        session = waiting(cluster, 0)
        cluster.shrink_isr("one", 0, [1, 3])
        assert decided(session) == ""
        cluster.resume_replication(2)
        assert sorted(cluster.partition("one", 0).isr) == [1, 2, 3]
        assert values(cluster, 2) == [b"0"]

    def test_nor_those_that_are_down(self) -> None:
        cluster = cluster_of()
        cluster.pause_replication(2)
        session = waiting(cluster, 0)
        cluster.stop_broker(2)
        assert decided(session) == ""

    @pytest.mark.parametrize(
        ("version", "ends"), [("4.3", ("waits", "REQUEST_TIMED_OUT")), ("2.8", ("NOT_ENOUGH_REPLICAS_AFTER_APPEND",))]
    )
    def test_too_few_are_left_in_sync(self, version: str, ends: tuple[str, ...]) -> None:
        cluster = cluster_of(2, version=version, min_insync_replicas=2)
        cluster.pause_replication(2)
        session = Session(cluster, 1)
        assert send(session, produce_request(cluster, numbered(0), "one"), 7).waits
        cluster.shrink_isr("one", 0, [1])
        found = []
        for after_ms in (0, TIMEOUT_MS)[: len(ends)]:
            answer = session.decided(NOW_MS + after_ms)
            if answer.frame is None:
                found.append("waits")
                continue
            (topic,) = decode_response(ProduceRequest, 7, answer.frame[4:]).responses
            found.append(_name(topic.partition_responses[0]))
        assert tuple(found) == ends

    def test_its_leader_is_another_one_meanwhile(self) -> None:
        cluster = cluster_of()
        cluster.pause_replication(2)
        session = waiting(cluster, 0)
        cluster.move_leader("one", 0, 3)
        assert decided(session) == "NOT_LEADER_OR_FOLLOWER"

    def test_its_leader_leads_again(self) -> None:
        """It may have dropped the batch, so it says nothing of it."""
        cluster = cluster_of()
        cluster.pause_replication(2)
        session = waiting(cluster, 0)
        cluster.move_leader("one", 0, 2)
        cluster.move_leader("one", 0, 1)
        assert decided(session) == "NOT_LEADER_OR_FOLLOWER"
        assert values(cluster, 1) == []

    def test_its_topic_is_deleted_meanwhile(self) -> None:
        cluster = cluster_of()
        cluster.pause_replication(2)
        session = waiting(cluster, 0)
        cluster.delete_topic("one")
        assert decided(session) == "UNKNOWN_TOPIC_OR_PARTITION"

    def test_its_broker_stops_meanwhile(self) -> None:
        cluster = cluster_of()
        cluster.pause_replication(2)
        session = waiting(cluster, 0)
        cluster.stop_broker(1)
        assert decided(session) == "closed"

    def test_an_answer_that_a_fault_replaces_waits_for_nothing(self) -> None:
        cluster = cluster_of()
        cluster.pause_replication(2)
        cluster.faults.fail("Produce", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", apply=True)
        assert write(cluster, 0) == "NOT_ENOUGH_REPLICAS_AFTER_APPEND"
        assert values(cluster, 1) == [b"0"]


class TestNewLeader:
    def test_it_has_what_was_replicated(self) -> None:
        """It knows that much of the producer, too; whoever has more drops it."""
        cluster = cluster_of()
        write(cluster, 0)
        cluster.pause_replication(2)
        write(cluster, 1)
        write(cluster, 2)
        assert values(cluster, 3) == [b"0", b"1", b"2"]
        cluster.stop_broker(1)
        assert cluster.leader_of("one") == 2
        assert values(cluster, 3) == [b"0"]
        assert [write(cluster, number, 2) for number in (2, 0, 1)] == ["OUT_OF_ORDER_SEQUENCE_NUMBER", "", ""]
        assert values(cluster, 1) == [b"0", b"1", b"2"]
        cluster.start_broker(1)
        assert values(cluster, 1) == [b"0", b"1"]

    def test_one_that_lacks_something_gets_it_before_it_may_lead(self) -> None:
        cluster = cluster_of(2)
        cluster.stop_broker(2)
        write(cluster, 0)
        cluster.stop_broker(1)
        cluster.start_broker(2)
        assert cluster.leader_of("one") is None
        cluster.start_broker(1)
        assert (cluster.leader_of("one"), sorted(cluster.partition("one", 0).isr)) == (1, [1, 2])
        assert values(cluster, 2) == [b"0"]

    def test_an_unclean_one_loses_what_was_committed(self) -> None:
        cluster = cluster_of(2)
        write(cluster, 0)
        cluster.stop_broker(2)
        assert write(cluster, 1) == ""
        cluster.stop_broker(1)
        cluster.start_broker(2)
        cluster.elect_leaders()
        assert cluster.leader_of("one") is None
        cluster.elect_leaders(unclean=True)
        assert (cluster.leader_of("one"), seen(cluster)) == (2, [b"0"])
        assert write(cluster, 2, 2) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
        cluster.start_broker(1)
        assert values(cluster, 1) == [b"0"]

    def test_records_that_were_deleted_meanwhile_are_missing_from_no_replica(self) -> None:
        cluster = cluster_of()
        write(cluster, 0)
        cluster.pause_replication(2)
        cluster.shrink_isr("one", 0, [1, 3])
        write(cluster, 1)
        write(cluster, 2)
        cluster.delete_records("one", 0, 2)
        assert [values(cluster, node_id) for node_id in (1, 2, 3)] == [[b"2"], [], [b"2"]]
        cluster.resume_replication(2)
        cluster.move_leader("one", 0, 2)
        assert (values(cluster, 2), write(cluster, 3, 2)) == ([b"2"], "")


def test_what_a_log_remembers_that_was_cut_back() -> None:
    """A snapshot from a restart is used as long as it covers nothing that was cut."""
    known = {}
    for restarts_at in (2, 5):
        cluster = cluster_of(2)
        for number in range(6):
            if number == restarts_at:
                cluster.stop_broker(1)
                cluster.start_broker(1)
                cluster.move_leader("one", 0, 1)
            if number == 4:
                cluster.pause_replication(2)
            write(cluster, number)
        cluster.move_leader("one", 0, 2)
        cluster.move_leader("one", 0, 1)
        assert values(cluster, 1) == [b"0", b"1", b"2", b"3"]
        known[restarts_at] = [number for number in range(4) if write(cluster, number) != "OUT_OF_ORDER_SEQUENCE_NUMBER"]
    assert known == {2: [1, 2, 3], 5: [0, 1, 2, 3]}


class TestCutOff:
    def test_it_goes_on_and_commits_nothing(self) -> None:
        cluster = cluster_of()
        write(cluster, 0)
        cluster.cut_off(1)
        assert cluster.leader_of("one") == 2
        session = waiting(cluster, 1)
        assert [write(cluster, 0), write(cluster, 2, acks=1)] == ["", ""]
        assert [write(cluster, 1, 2), write(cluster, 2, 2)] == ["", ""]
        assert decided(session) == "waits"
        cluster.reconnect(1)
        assert decided(session) == "NOT_LEADER_OR_FOLLOWER"
        assert [values(cluster, node_id) for node_id in (1, 2, 3)] == [[b"0", b"1", b"2"]] * 3
        assert sorted(cluster.partition("one", 0).isr) == [1, 2, 3]

    def test_its_batch_times_out(self) -> None:
        cluster = cluster_of()
        cluster.cut_off(1)
        assert decided(waiting(cluster, 0), TIMEOUT_MS) == "REQUEST_TIMED_OUT"

    def test_the_only_one_in_sync_commits(self) -> None:
        """Nobody else may lead, so nothing is lost."""
        cluster = cluster_of(2)
        cluster.stop_broker(2)
        cluster.cut_off(1)
        assert cluster.leader_of("one") is None
        assert write(cluster, 0) == ""
        cluster.start_broker(2)
        assert cluster.leader_of("one") is None
        cluster.reconnect(1)
        assert (cluster.leader_of("one"), seen(cluster), values(cluster, 2)) == (1, [b"0"], [b"0"])

    def test_a_follower_copies_nothing(self) -> None:
        cluster = cluster_of()
        cluster.cut_off(3)
        assert (write(cluster, 0), write(cluster, 0, 3)) == ("", "NOT_LEADER_OR_FOLLOWER")
        assert (values(cluster, 3), cluster.partition("one", 0).isr) == ([], [1, 2])
        cluster.reconnect(3)
        assert values(cluster, 3) == [b"0"]

    def test_it_stops(self) -> None:
        cluster = cluster_of()
        cluster.cut_off(1)
        write(cluster, 0, acks=1)
        cluster.stop_broker(1)
        cluster.cut_off(1)
        cluster.start_broker(1)
        assert (write(cluster, 1), values(cluster, 1)) == ("NOT_LEADER_OR_FOLLOWER", [])


def test_a_marker_that_is_lost_with_its_leader_is_written_again() -> None:
    cluster = cluster_of()
    transactions = cluster.coordinators.transactions
    producer_id, epoch = transactions.init_producer_id("mine", 60_000, -1, -1, NOW_MS)
    records = batch(b"a", producer=(producer_id, epoch, 0), transactional=True)
    request = produce_request(cluster, records, "one")
    request.transactional_id = "mine"
    (topic,) = ask(Session(cluster, 1), request).responses
    assert topic.partition_responses[0].error_code == 0
    cluster.pause_replication(2)
    transactions.end("mine", producer_id, epoch, committed=True, bump=True, now_ms=NOW_MS)
    cluster.advance(NOW_MS)
    found = transactions.get("mine")
    assert found is not None
    assert (found.state.value, cluster.records("one", read_committed=True)) == ("PrepareCommit", [])
    cluster.stop_broker(1)
    assert cluster.leader_of("one") == 2
    assert cluster.partition("one", 0).log.open_transaction(producer_id) == 0
    cluster.advance(NOW_MS + 1)
    assert found.state.value == "CompleteCommit"
    assert [record.value for record in cluster.records("one", read_committed=True)] == [b"a"]


def test_produce_still_answers_for_every_partition_at_once() -> None:
    """One batch that waits holds up the answer for the others."""
    cluster = model(2)
    cluster.create_topic("two", assignments={0: [1, 2], 1: [1]})
    cluster.pause_replication(2)
    request = produce_request(cluster, batch(b"a"), "two")
    other = produce_request(cluster, batch(b"b"), "two", 1)
    request.topic_data[0].partition_data += other.topic_data[0].partition_data
    session = Session(cluster, 1)
    assert send(session, request).waits
    answer = session.decided(NOW_MS + TIMEOUT_MS)
    assert answer.frame is not None
    (topic,) = decode_response(ProduceRequest, ProduceRequest.MAX_VERSION, answer.frame[4:]).responses
    assert [_name(one) for one in topic.partition_responses] == ["REQUEST_TIMED_OUT", ""]
    assert produce(cluster, batch(b"c"), "two", 1, session=Session(cluster, 1)).error_code == 0
