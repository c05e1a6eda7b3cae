"""Produce in the cluster model: what is accepted, what is refused, and what is then in the log."""

from __future__ import annotations

import random
import struct

import pytest

from aioproducer.errors import error_class
from aioproducer.protocol.produce import ProduceResponse
from aioproducer.testing.fake import LogRecord
from aioproducer.testing.fake.session import Session
from tests.reference.record_batch import PlainRecord, crc32c, encoded
from tests.unit.testing.fake.talk import NOW_MS, ask, batch, leader_session, model, produce, produce_request, send


def name(code: int) -> str:
    return error_class(code).name if code else ""


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_is_taken(version: int) -> None:
    """Offsets increase, and the log has what was sent."""
    cluster = model()
    first = produce(cluster, batch(b"a", b"b"), version=version)
    second = produce(cluster, batch(b"c"), version=version)
    assert (first.error_code, first.base_offset, second.base_offset) == (0, 0, 2)
    assert [record.value for record in cluster.records("orders")] == [b"a", b"b", b"c"]
    assert [record.offset for record in cluster.records("orders")] == [0, 1, 2]
    assert cluster.end_offsets("orders") == {0: 3, 1: 0}


def test_the_reader_sees_all_of_a_record() -> None:
    cluster = model()
    produce(cluster, batch(b"a", b"b", producer=(4, 2, 0)))
    assert cluster.records("orders")[1] == LogRecord(
        1, NOW_MS + 1, b"k", b"b", (), producer_id=4, producer_epoch=2, sequence=1
    )


def test_deleted_records_may_end_in_a_batch() -> None:
    cluster = model()
    produce(cluster, batch(b"a", b"b", b"c"))
    cluster.delete_records("orders", 0, 1)
    assert [(record.offset, record.value) for record in cluster.records("orders")] == [(1, b"b"), (2, b"c")]
    assert produce(cluster, batch(b"d")).log_start_offset == 1


def test_log_append_time_replaces_the_producers() -> None:
    cluster = model()
    cluster.create_topic("logs", 1, configs={"message.timestamp.type": "LogAppendTime"})
    answer = produce(cluster, batch(b"a", b"b"), "logs", now_ms=NOW_MS + 500)
    assert answer.log_append_time_ms == NOW_MS + 500
    assert [(one.timestamp_ms, one.log_append_time) for one in cluster.records("logs")] == [(NOW_MS + 500, True)] * 2


@pytest.mark.parametrize(("kind", "told_ms"), [("CreateTime", (-1, NOW_MS + 1)), ("LogAppendTime", (NOW_MS + 7,) * 2)])
def test_a_duplicate_is_answered_with_the_largest_timestamp_in_the_log(kind: str, told_ms: tuple[int, int]) -> None:
    """Even if the records of the topic keep their own."""
    cluster = model()
    cluster.create_topic("logs", 1, configs={"message.timestamp.type": kind})
    records = batch(b"a", b"b", producer=(1, 0, 0))
    ends = [produce(cluster, records, "logs", now_ms=NOW_MS + after_ms) for after_ms in (7, 500)]
    assert tuple(end.log_append_time_ms for end in ends) == told_ms


class TestSequences:
    def test_a_gap_is_refused_and_nothing_is_written(self) -> None:
        cluster = model()
        produce(cluster, batch(b"a", producer=(1, 0, 0)))
        assert name(produce(cluster, batch(b"c", producer=(1, 0, 2))).error_code) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
        assert len(cluster.records("orders")) == 1

    @pytest.mark.parametrize("back", range(1, 6))
    def test_each_of_the_last_five_batches_is_answered_with_its_offset(self, back: int) -> None:
        cluster = model()
        for sequence in range(0, 14, 2):
            produce(cluster, batch(b"a", b"b", producer=(1, 0, sequence)))
        again = produce(cluster, batch(b"a", b"b", producer=(1, 0, 14 - 2 * back)))
        assert (again.error_code, again.base_offset) == (0, 14 - 2 * back)
        assert len(cluster.records("orders")) == 14

    def test_an_older_duplicate_is_out_of_order(self) -> None:
        cluster = model()
        for sequence in range(6):
            produce(cluster, batch(b"a", producer=(1, 0, sequence)))
        assert name(produce(cluster, batch(b"a", producer=(1, 0, 0))).error_code) == "OUT_OF_ORDER_SEQUENCE_NUMBER"

    def test_the_same_start_with_another_length_is_no_duplicate(self) -> None:
        cluster = model()
        produce(cluster, batch(b"a", b"b", producer=(1, 0, 0)))
        assert name(produce(cluster, batch(b"a", producer=(1, 0, 0))).error_code) == "OUT_OF_ORDER_SEQUENCE_NUMBER"

    def test_an_old_epoch_is_fenced(self) -> None:
        cluster = model()
        produce(cluster, batch(b"a", producer=(1, 3, 0)))
        assert name(produce(cluster, batch(b"b", producer=(1, 2, 1))).error_code) == "INVALID_PRODUCER_EPOCH"

    def test_a_new_epoch_begins_at_zero(self) -> None:
        cluster = model()
        produce(cluster, batch(b"a", producer=(1, 0, 0)))
        assert name(produce(cluster, batch(b"b", producer=(1, 1, 1))).error_code) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
        assert produce(cluster, batch(b"b", producer=(1, 1, 0))).base_offset == 1
        assert name(produce(cluster, batch(b"c", producer=(1, 0, 1))).error_code) == "INVALID_PRODUCER_EPOCH"

    def test_they_wrap_around(self) -> None:
        cluster = model()
        produce(cluster, batch(b"a", producer=(1, 0, 2**31 - 2)))
        assert produce(cluster, batch(b"b", b"c", producer=(1, 0, 2**31 - 1))).error_code == 0
        assert produce(cluster, batch(b"d", producer=(1, 0, 1))).error_code == 0
        assert [one.sequence for one in cluster.records("orders")] == [2**31 - 2, 2**31 - 1, 0, 1]

    @pytest.mark.parametrize(
        ("version", "produce_version", "error"),
        [
            ("4.3", 13, ""),
            ("3.9", 11, ""),
            ("2.1", 7, "UNKNOWN_PRODUCER_ID"),
            ("0.11", 3, "OUT_OF_ORDER_SEQUENCE_NUMBER"),
        ],
    )
    def test_a_producer_that_was_forgotten(self, version: str, produce_version: int, error: str) -> None:
        """Newer brokers accept its next batch, older ones do not."""
        cluster = model(version=version)
        produce(cluster, batch(b"a", producer=(1, 0, 0)), version=produce_version)
        cluster.forget_producers("orders", 0)
        answer = produce(cluster, batch(b"b", producer=(1, 0, 1)), version=produce_version)
        assert name(answer.error_code) == error

    def test_partitions_count_on_their_own(self) -> None:
        cluster = model()
        assert produce(cluster, batch(b"a", producer=(1, 0, 0)), partition=0).error_code == 0
        assert produce(cluster, batch(b"b", producer=(1, 0, 0)), partition=1).error_code == 0


def spoiled(at: int, value: bytes) -> bytes:
    """A batch with some bytes replaced, its checksum as it was."""
    data = bytearray(batch(b"a", b"b", producer=(1, 0, 0)))
    data[at : at + len(value)] = value
    return bytes(data)


def resealed(at: int, value: bytes) -> bytes:
    """A batch with some bytes replaced and a checksum that fits."""
    data = bytearray(spoiled(at, value))
    data[17:21] = struct.pack(">I", crc32c(bytes(data[21:])))
    return bytes(data)


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (None, "INVALID_RECORD"),
        (b"", "INVALID_RECORD"),
        (b"\0" * 11, "INVALID_RECORD"),
        (batch(b"a")[:-1], "INVALID_RECORD"),
        (batch(b"a") + batch(b"b"), "INVALID_RECORD"),
        (spoiled(8, struct.pack(">i", 13)), "CORRUPT_MESSAGE"),
        (spoiled(16, b"\1"), "INVALID_RECORD"),
        (spoiled(16, b"\3"), "CORRUPT_MESSAGE"),
        (spoiled(16, b"\3")[:17], "CORRUPT_MESSAGE"),
        (spoiled(17, b"\0\0\0\0"), "CORRUPT_MESSAGE"),
        (spoiled(0, struct.pack(">q", 5)), "INVALID_RECORD"),
        (resealed(21, struct.pack(">h", 0x20)), "INVALID_RECORD"),
        (resealed(21, struct.pack(">h", 1)), "UNKNOWN_SERVER_ERROR"),
        (resealed(21, struct.pack(">h", 7)), "UNKNOWN_SERVER_ERROR"),
        (resealed(23, struct.pack(">i", 5)), "INVALID_RECORD"),
        (resealed(53, struct.pack(">i", -1)), "INVALID_RECORD"),
        (resealed(57, struct.pack(">i", 0)), "INVALID_RECORD"),
        (resealed(57, struct.pack(">i", 3)), "INVALID_RECORD"),
        (resealed(61, b"\x7f"), "INVALID_RECORD"),
    ],
)
def test_bad_batches_are_refused(records: bytes | None, error: str) -> None:
    cluster = model()
    answer = produce(cluster, records)
    assert name(answer.error_code) == error
    assert answer.base_offset == -1
    assert cluster.records("orders") == []


def test_a_record_without_a_key_in_a_compacted_topic_is_named() -> None:
    cluster = model()
    cluster.create_topic("state", 1, configs={"cleanup.policy": "compact"})
    keyless = encoded([PlainRecord(NOW_MS, b"k", b"1"), PlainRecord(NOW_MS, None, b"2")])
    answer = produce(cluster, keyless, "state")
    assert name(answer.error_code) == "INVALID_RECORD"
    (one,) = answer.record_errors
    assert (one.batch_index, one.batch_index_error_message) == (1, "a compacted topic takes no record without a key")


@pytest.mark.parametrize("version", [12, 13])
def test_an_answer_names_its_topic_as_the_request_does(version: int) -> None:
    cluster = model()
    request = produce_request(cluster, batch(b"a"))
    (topic,) = ask(leader_session(cluster), request, version).responses
    if version < 13:
        assert topic.name == "orders"
    else:
        assert topic.topic_id == cluster.topic("orders").topic_id


def test_a_refusal_says_where_the_log_begins_unless_the_leader_has_not_looked_at_it() -> None:
    cluster = model()
    produce(cluster, batch(b"a", b"b", producer=(4, 0, 0)))
    cluster.delete_records("orders", 0, 1)
    gap = produce(cluster, batch(b"c", producer=(4, 0, 9)))
    assert (name(gap.error_code), gap.log_start_offset) == ("OUT_OF_ORDER_SEQUENCE_NUMBER", 1)
    follower = next(node_id for node_id in cluster.brokers if node_id != cluster.leader_of("orders"))
    moved = produce(cluster, batch(b"c"), session=Session(cluster, follower))
    assert (name(moved.error_code), moved.log_start_offset) == ("NOT_LEADER_OR_FOLLOWER", -1)
    cluster.alter_configs("orders", {"max.message.bytes": 10})
    large = produce(cluster, batch(b"c"))
    assert (name(large.error_code), large.log_start_offset) == ("MESSAGE_TOO_LARGE", -1)


@pytest.mark.parametrize(("kafka", "error"), [("4.3", "INVALID_TIMESTAMP"), ("3.9", "")])
def test_newer_brokers_take_no_record_from_the_future(kafka: str, error: str) -> None:
    answer = produce(model(version=kafka), batch(b"a"), version=11, now_ms=NOW_MS - 3_600_001)
    assert name(answer.error_code) == error


def test_transactional_records_need_a_transactional_id() -> None:
    records = batch(b"a", producer=(4, 0, 0), transactional=True)
    assert name(produce(model(), records).error_code) == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


def test_only_transactional_records_have_to_be_in_a_transaction() -> None:
    cluster = model()
    request = produce_request(cluster, batch(b"a", producer=(4, 0, 0)))
    request.transactional_id = "txn"
    (topic,) = ask(leader_session(cluster), request).responses
    assert topic.partition_responses[0].error_code == 0


def test_a_batch_above_the_topics_limit_is_too_large() -> None:
    cluster = model()
    cluster.alter_configs("orders", {"max.message.bytes": 100})
    assert name(produce(cluster, batch(b"x" * 100)).error_code) == "MESSAGE_TOO_LARGE"
    assert produce(cluster, batch(b"x")).error_code == 0


def test_too_few_replicas_in_sync_stop_acks_all_alone() -> None:
    cluster = model(min_insync_replicas=2)
    leader = cluster.leader_of("orders")
    assert leader is not None
    cluster.shrink_isr("orders", 0, [leader])
    assert name(produce(cluster, batch(b"a")).error_code) == "NOT_ENOUGH_REPLICAS"
    assert produce(cluster, batch(b"a"), acks=1).error_code == 0


def test_a_topic_with_fewer_replicas_than_have_to_be_in_sync_needs_them_all() -> None:
    """Source: Partition.effectiveMinIsr."""
    cluster = model(min_insync_replicas=2)
    cluster.create_topic("single", 1, 1)
    assert produce(cluster, batch(b"a"), "single").error_code == 0


def test_acks_must_be_known() -> None:
    assert name(produce(model(), batch(b"a"), acks=2).error_code) == "INVALID_REQUIRED_ACKS"


class TestWithoutAcks:
    def test_there_is_no_answer(self) -> None:
        cluster = model()
        answer = send(leader_session(cluster), produce_request(cluster, batch(b"a"), acks=0))
        assert (answer.frame, answer.close) == (None, False)
        assert len(cluster.records("orders")) == 1

    def test_an_error_closes_the_connection(self) -> None:
        cluster = model()
        session = leader_session(cluster)
        assert send(session, produce_request(cluster, b"", acks=0)).close
        assert session.closed


class TestWhere:
    def test_another_broker_names_the_leader(self) -> None:
        """KIP-951: with its epoch and address."""
        cluster = model()
        leader = cluster.leader_of("orders")
        other = Session(cluster, next(node for node in cluster.brokers if node != leader))
        answer: ProduceResponse = ask(other, produce_request(cluster, batch(b"a")))
        (result,) = answer.responses[0].partition_responses
        assert name(result.error_code) == "NOT_LEADER_OR_FOLLOWER"
        assert (result.current_leader.leader_id, result.current_leader.leader_epoch) == (leader, 0)
        assert [one.node_id for one in answer.node_endpoints] == [leader]

    def test_a_moved_leader_has_a_newer_epoch(self) -> None:
        cluster = model()
        old = leader_session(cluster)
        moved_to = cluster.move_leader("orders", 0)
        result = produce(cluster, batch(b"a"), session=old)
        assert (result.current_leader.leader_id, result.current_leader.leader_epoch) == (moved_to, 1)
        assert produce(cluster, batch(b"a")).error_code == 0

    @pytest.mark.parametrize(("version", "error"), [(13, "UNKNOWN_TOPIC_ID"), (12, "UNKNOWN_TOPIC_OR_PARTITION")])
    def test_an_unknown_topic(self, version: int, error: str) -> None:
        cluster = model()
        result = produce(cluster, batch(b"a"), "nothing", session=Session(cluster, 1), version=version)
        assert name(result.error_code) == error

    def test_an_unknown_partition(self) -> None:
        cluster = model()
        result = produce(cluster, batch(b"a"), partition=2, session=Session(cluster, 1))
        assert name(result.error_code) == "UNKNOWN_TOPIC_OR_PARTITION"

    def test_a_topic_that_was_made_again_has_another_id(self) -> None:
        cluster = model()
        request = produce_request(cluster, batch(b"a"))
        cluster.delete_topic("orders")
        cluster.create_topic("orders", 2)
        (topic,) = ask(leader_session(cluster), request).responses
        assert name(topic.partition_responses[0].error_code) == "UNKNOWN_TOPIC_ID"


def test_no_bytes_do_worse_than_be_refused() -> None:
    """Damaged batches with a valid checksum: the reader checks every field itself."""
    rng = random.Random(5)
    cluster = model()
    good = batch(b"a", b"bc", producer=(1, 0, 0))
    ends = set()
    for _ in range(2_000):
        data = bytearray(good)
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(12, len(data))] = rng.randrange(256)
        data[17:21] = struct.pack(">I", crc32c(bytes(data[21:])))
        ends.add(name(produce(cluster, bytes(data)).error_code))
    assert ends >= {"", "INVALID_RECORD", "UNKNOWN_SERVER_ERROR"}
