"""FakeCluster against Apache Kafka: every test here runs on both, and states what both must do."""

from __future__ import annotations

import random
import struct
import time

import lz4.frame
import pytest

from aioproducer.compression import codec
from aioproducer.errors import InvalidConfigError, error_class
from aioproducer.protocol.api_versions import ApiVersionsRequest
from aioproducer.protocol.header import encode_request
from aioproducer.protocol.init_producer_id import InitProducerIdRequest
from aioproducer.protocol.metadata import MetadataRequest, MetadataRequestTopic
from aioproducer.testing import FakeCluster, KafkaCluster
from aioproducer.testing.fake.topology import TOPIC_CONFIGS
from tests.broker.fake.kinds import AnyCluster
from tests.broker.fixtures import new_name
from tests.broker.raw import RawConnection
from tests.broker.readers import read_topic
from tests.reference import record_batch as reference
from tests.reference.record_batch import PlainRecord, crc32c

pytestmark = pytest.mark.broker

PATIENCE_S = 60.0


@pytest.fixture
def topic(cluster: AnyCluster) -> str:
    """A topic with one partition."""
    name = new_name()
    cluster.create_topic(name, 1)
    return name


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def batch(*values: bytes, producer: tuple[int, int, int] = (-1, -1, -1), at_ms: int | None = None) -> bytes:
    """A record batch; ``producer`` is its id, epoch and base sequence."""
    at_ms = now_ms() if at_ms is None else at_ms
    producer_id, epoch, sequence = producer
    return reference.encoded(
        [PlainRecord(at_ms, b"k", value) for value in values or (b"v",)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def sealed(data: bytes) -> bytes:
    """The batch with the right length and checksum."""
    out = bytearray(data)
    struct.pack_into(">i", out, 8, len(out) - 12)
    struct.pack_into(">I", out, 17, crc32c(bytes(out[21:])))
    return bytes(out)


def patched(data: bytes, at: int, layout: str, value: int, *, seal: bool = True) -> bytes:
    """The batch with one field changed."""
    out = bytearray(data)
    struct.pack_into(f">{layout}", out, at, value)
    return sealed(bytes(out)) if seal else bytes(out)


def with_section(data: bytes, section: bytes, attributes: int = 0) -> bytes:
    """The batch with other bytes in place of its records."""
    return patched(data[:61] + section, 21, "h", attributes)


def name(code: int) -> str:
    return error_class(code).name if code else ""


def values(cluster: AnyCluster, topic: str, partition: int = 0) -> list[bytes | None]:
    if isinstance(cluster, FakeCluster):
        return [record.value for record in cluster.records(topic, partition)]
    return [record.value for record in read_topic(cluster, topic)[partition]]


# --- sequences --------------------------------------------------------------------------------------------------------


class TestSequences:
    def test_in_order(self, cluster: AnyCluster, broker: RawConnection, topic: str) -> None:
        pid = broker.producer_id()
        ends = [broker.produce(topic, batch(b"a", b"b", producer=(pid, 0, at))) for at in (0, 2, 4)]
        assert [(name(end.error_code), end.base_offset) for end in ends] == [("", 0), ("", 2), ("", 4)]
        assert values(cluster, topic) == [b"a", b"b"] * 3

    def test_gap(self, cluster: AnyCluster, broker: RawConnection, topic: str) -> None:
        pid = broker.producer_id()
        broker.produce(topic, batch(b"a", producer=(pid, 0, 0)))
        end = broker.produce(topic, batch(b"c", producer=(pid, 0, 2)))
        assert (name(end.error_code), end.base_offset, end.log_start_offset) == (
            "OUT_OF_ORDER_SEQUENCE_NUMBER", -1, 0
        )  # fmt: skip
        assert values(cluster, topic) == [b"a"]

    def test_the_last_five_batches_are_known(self, cluster: AnyCluster, broker: RawConnection, topic: str) -> None:
        pid = broker.producer_id()
        for at in range(0, 14, 2):
            broker.produce(topic, batch(b"a", b"b", producer=(pid, 0, at)))
        ends = [broker.produce(topic, batch(b"a", b"b", producer=(pid, 0, at))) for at in range(0, 14, 2)]
        old = ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)
        assert [(name(end.error_code), end.base_offset) for end in ends] == [
            old, old, ("", 4), ("", 6), ("", 8), ("", 10), ("", 12)
        ]  # fmt: skip
        assert len(values(cluster, topic)) == 14

    def test_a_part_of_a_batch_is_no_duplicate(self, broker: RawConnection, topic: str) -> None:
        pid = broker.producer_id()
        broker.produce(topic, batch(b"a", b"b", producer=(pid, 0, 0)))
        ends = [
            broker.produce(topic, batch(b"a", producer=(pid, 0, 0))),
            broker.produce(topic, batch(b"b", producer=(pid, 0, 1))),
            broker.produce(topic, batch(b"a", b"b", b"c", producer=(pid, 0, 0))),
        ]
        assert [name(end.error_code) for end in ends] == ["OUT_OF_ORDER_SEQUENCE_NUMBER"] * 3

    def test_a_duplicate_may_hold_other_values(self, cluster: AnyCluster, broker: RawConnection, topic: str) -> None:
        """A duplicate is recognized by its sequences alone."""
        pid = broker.producer_id()
        broker.produce(topic, batch(b"a", producer=(pid, 0, 0)))
        assert broker.produce(topic, batch(b"other", producer=(pid, 0, 0))).base_offset == 0
        assert values(cluster, topic) == [b"a"]

    def test_an_older_epoch(self, broker: RawConnection, topic: str) -> None:
        pid = broker.producer_id()
        broker.produce(topic, batch(b"a", producer=(pid, 1, 0)))
        ends = [broker.produce(topic, batch(b"a", producer=(pid, 0, at))) for at in (0, 1)]
        assert [name(end.error_code) for end in ends] == ["INVALID_PRODUCER_EPOCH"] * 2

    def test_a_newer_epoch(self, broker: RawConnection, topic: str) -> None:
        pid = broker.producer_id()
        broker.produce(topic, batch(b"a", producer=(pid, 0, 0)))
        tried = [(1, 1), (5, 0), (5, 0), (5, 1), (0, 1), (6, 2)]
        ends = [broker.produce(topic, batch(b"a", producer=(pid, epoch, at))) for epoch, at in tried]
        assert [(name(end.error_code), end.base_offset) for end in ends] == [
            ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1), ("", 1), ("", 1), ("", 2), ("INVALID_PRODUCER_EPOCH", -1),
            ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1),
        ]  # fmt: skip

    def test_an_unknown_producer_may_begin_anywhere(self, broker: RawConnection, topic: str) -> None:
        """A broker may have forgotten it (KIP-360)."""
        pid = broker.producer_id()
        ends = [broker.produce(topic, batch(b"a", producer=(pid, 3, at))) for at in (7, 8, 10)]
        assert [name(end.error_code) for end in ends] == ["", "", "OUT_OF_ORDER_SEQUENCE_NUMBER"]

    def test_a_producer_id_that_was_never_given_out(self, broker: RawConnection, topic: str) -> None:
        assert broker.produce(topic, batch(b"a", producer=(2**40, 0, 0))).error_code == 0

    def test_they_wrap(self, cluster: AnyCluster, broker: RawConnection, topic: str) -> None:
        pid = broker.producer_id()
        last = 2**31 - 1
        tried = [(last - 1, (b"a",)), (last, (b"b", b"c")), (1, (b"d",)), (last, (b"b", b"c")), (3, (b"f",))]
        ends = [broker.produce(topic, batch(*what, producer=(pid, 0, at))) for at, what in tried]
        assert [(name(end.error_code), end.base_offset) for end in ends] == [
            ("", 0), ("", 1), ("", 3), ("", 1), ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)
        ]  # fmt: skip
        assert values(cluster, topic) == [b"a", b"b", b"c", b"d"]

    def test_without_a_producer_id_there_are_none(self, cluster: AnyCluster, broker: RawConnection, topic: str) -> None:
        for _ in range(2):
            assert broker.produce(topic, batch(b"a")).error_code == 0
        assert values(cluster, topic) == [b"a", b"a"]

    def test_a_refused_batch_leaves_nothing_behind(self, broker: RawConnection, topic: str) -> None:
        """Neither an epoch nor a sequence."""
        pid = broker.producer_id()
        broker.produce(topic, batch(b"a", producer=(pid, 0, 0)))
        bad = patched(batch(b"b", producer=(pid, 1, 0)), 17, "I", 1, seal=False)
        assert name(broker.produce(topic, bad).error_code) == "CORRUPT_MESSAGE"
        assert broker.produce(topic, batch(b"b", producer=(pid, 0, 1))).error_code == 0

    def test_deleted_topic_starts_anew(self, cluster: AnyCluster, broker: RawConnection, topic: str) -> None:
        pid = broker.producer_id()
        broker.produce(topic, batch(b"a", producer=(pid, 4, 0)))
        old = broker.topic(topic).topic_id
        cluster.delete_topic(topic)
        cluster.create_topic(topic, 1)
        assert name(broker.produce(topic, batch(b"a"), topic_id=old).error_code) == "UNKNOWN_TOPIC_ID"
        assert broker.topic(topic).topic_id != old
        assert broker.produce(topic, batch(b"b", producer=(pid, 0, 5))).base_offset == 0
        assert values(cluster, topic) == [b"b"]


def some_batches(cluster: AnyCluster, seed: int) -> list[tuple[str, int]]:
    """The results of batches whose producers, epochs and sequences are often right and often slightly wrong."""
    chance = random.Random(seed)
    topic = new_name()
    cluster.create_topic(topic, 1)
    found = []
    with RawConnection(cluster.address_of(1)) as broker:
        ids = [broker.producer_id() for _ in range(3)]
        state = dict.fromkeys(range(3), (0, 0))
        for _ in range(150):
            who = chance.randrange(3)
            epoch, sequence = state[who]
            epoch = max(0, epoch + chance.choice([0] * 12 + [1, 1, -1, 2]))
            if epoch != state[who][0] and chance.random() < 0.7:
                sequence = 0
            sequence = max(0, sequence + chance.choice([0] * 12 + [1, -1, -2, -3, -7]))
            content = [b"%d" % number for number in range(chance.choice([1, 1, 2, 3]))]
            end = broker.produce(topic, batch(*content, producer=(ids[who], epoch, sequence)))
            found.append((name(end.error_code), end.base_offset))
            if not end.error_code:
                state[who] = epoch, sequence + len(content)
    assert cluster.end_offsets(topic)[0] == len(values(cluster, topic))
    return found


@pytest.mark.parametrize("seed", range(4))
def test_they_agree_on_batches_by_chance(fake: FakeCluster, kafka: KafkaCluster, seed: int) -> None:
    ours, theirs = some_batches(fake, seed), some_batches(kafka, seed)
    assert ours == theirs
    assert {error for error, _ in ours} >= {"", "OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH"}


# --- batches ----------------------------------------------------------------------------------------------------------

V = batch(b"v", b"w", at_ms=1)


def _record(body: bytes) -> bytes:
    return reference.varint(len(body)) + body


def _body(offset_delta: int, tail: bytes = b"\x02k\x02v\x00", attributes: int = 0) -> bytes:
    return bytes([attributes]) + reference.varint(0) + reference.varint(offset_delta) + tail


ONE = batch(b"v", at_ms=1)
TWO_IN_ONE = batch(b"v", at_ms=1) + batch(b"w", at_ms=1)
BATCHES: dict[str, tuple[bytes | None, str]] = {
    "good": (V, ""),
    "empty": (b"", "INVALID_RECORD"),
    "eleven bytes": (V[:11], "INVALID_RECORD"),
    "cut in the header": (V[:16], "INVALID_RECORD"),
    "cut after the magic": (V[:20], "INVALID_RECORD"),
    "cut at the end": (V[:-1], "INVALID_RECORD"),
    "a byte too many": (V + b"\0", ""),
    "two batches": (TWO_IN_ONE, "INVALID_RECORD"),
    "length 0": (patched(V, 8, "i", 0, seal=False), "CORRUPT_MESSAGE"),
    "length 13": (patched(V, 8, "i", 13, seal=False), "CORRUPT_MESSAGE"),
    "negative length": (patched(V, 8, "i", -1, seal=False), "CORRUPT_MESSAGE"),
    "length of a header without its end": (patched(V[:40], 8, "i", 28, seal=False), "UNKNOWN_SERVER_ERROR"),
    "a header alone, no records": (sealed(V[:61]), "INVALID_RECORD"),
    "magic 0": (patched(V, 16, "b", 0, seal=False), "INVALID_RECORD"),
    "magic 1": (patched(V, 16, "b", 1, seal=False), "INVALID_RECORD"),
    "magic 3": (patched(V, 16, "b", 3, seal=False), "CORRUPT_MESSAGE"),
    "magic -1": (patched(V, 16, "b", -1, seal=False), "CORRUPT_MESSAGE"),
    "checksum": (patched(V, 17, "I", 1, seal=False), "CORRUPT_MESSAGE"),
    "a flipped bit in a value": (V[:-3] + bytes([V[-3] ^ 1]) + V[-2:], "CORRUPT_MESSAGE"),
    "leader epoch 9, outside the checksum": (patched(V, 12, "i", 9, seal=False), ""),
    "base offset 5": (patched(V, 0, "q", 5), "INVALID_RECORD"),
    "base offset 5 and a wrong checksum": (patched(patched(V, 0, "q", 5), 17, "I", 1, seal=False), "INVALID_RECORD"),
    "control batch": (patched(V, 21, "h", 0x20), "INVALID_RECORD"),
    "log append time": (patched(V, 21, "h", 0x08), ""),
    "unused attribute bits": (patched(V, 21, "h", 0x700), ""),
    "codec 5": (patched(V, 21, "h", 5), "UNKNOWN_SERVER_ERROR"),
    "codec 7": (patched(V, 21, "h", 7), "UNKNOWN_SERVER_ERROR"),
    "gzip that is none": (patched(V, 21, "h", 1), "UNKNOWN_SERVER_ERROR"),
    "snappy that is none": (patched(V, 21, "h", 2), "UNKNOWN_SERVER_ERROR"),
    "lz4 that is none": (patched(V, 21, "h", 3), "UNKNOWN_SERVER_ERROR"),
    "zstd that is none": (patched(V, 21, "h", 4), "UNKNOWN_SERVER_ERROR"),
    "last offset delta 0 of 2": (patched(V, 23, "i", 0), "INVALID_RECORD"),
    "last offset delta 5 of 2": (patched(V, 23, "i", 5), "INVALID_RECORD"),
    "last offset delta -1": (patched(V, 23, "i", -1), "INVALID_RECORD"),
    "count 1 of 2": (patched(patched(V, 57, "i", 1), 23, "i", 0), "INVALID_RECORD"),
    "count 3 of 2": (patched(patched(V, 57, "i", 3), 23, "i", 2), "INVALID_RECORD"),
    "count 0": (patched(patched(V, 57, "i", 0), 23, "i", -1), "INVALID_RECORD"),
    "count -1": (patched(V, 57, "i", -1), "INVALID_RECORD"),
    "producer id without a sequence": (patched(V, 43, "q", 7), "INVALID_RECORD"),
    "sequence without a producer id": (patched(V, 53, "i", 7), ""),
    "producer id with epoch -1": (patched(patched(V, 43, "q", 7), 53, "i", 0), ""),
    "max timestamp that is wrong": (patched(V, 35, "q", 5), ""),
    "negative base timestamp": (patched(V, 27, "q", -5), ""),
    "a record longer than the batch": (with_section(ONE, b"\x7e" + _body(0)), "INVALID_RECORD"),
    "a record of negative length": (with_section(ONE, b"\x01" + _body(0)), "INVALID_RECORD"),
    "a record of length 0": (with_section(ONE, b"\x00"), "INVALID_RECORD"),
    "a record longer than its fields": (with_section(ONE, _record(_body(0) + b"\0")), "INVALID_RECORD"),
    "a record shorter than its fields": (
        with_section(ONE, reference.varint(len(_body(0)) - 1) + _body(0)), "INVALID_RECORD",
    ),
    "a key longer than the record": (with_section(ONE, _record(_body(0, b"\x7ek\x02v\x00"))), "INVALID_RECORD"),
    "a key of length -2": (with_section(ONE, _record(_body(0, b"\x03\x02v\x00"))), ""),
    "null key and value": (with_section(ONE, _record(_body(0, b"\x01\x01\x00"))), ""),
    "record attributes": (with_section(ONE, _record(_body(0, attributes=1))), ""),
    "headers": (with_section(ONE, _record(_body(0, b"\x01\x01\x02\x02a\x01"))), ""),
    "a negative number of headers": (with_section(ONE, _record(_body(0, b"\x01\x01\x01"))), "INVALID_RECORD"),
    "more headers than there are": (with_section(ONE, _record(_body(0, b"\x01\x01\x04\x02a\x01"))), "INVALID_RECORD"),
    "a header without a name": (with_section(ONE, _record(_body(0, b"\x01\x01\x02\x01\x01"))), "INVALID_RECORD"),
    "varint of six bytes": (with_section(ONE, b"\xff\xff\xff\xff\xff\x01" + _body(0)), "UNKNOWN_SERVER_ERROR"),
    "bytes after the records": (with_section(ONE, _record(_body(0)) + b"\0\0"), "INVALID_RECORD"),
}  # fmt: skip


@pytest.mark.parametrize("what", BATCHES)
def test_valid_batches_are_accepted_and_the_others_refused(broker: RawConnection, topic: str, what: str) -> None:
    """Which batches a broker accepts, and how it refuses the others."""
    records, error = BATCHES[what]
    end = broker.produce(topic, records)
    assert name(end.error_code) == error
    assert end.base_offset == (-1 if error else 0)


def _compressed(codec_name: str, section: bytes, tail: bytes = b"") -> bytes:
    found = codec(codec_name)
    return with_section(V, found.compress(section) + tail, found.attribute)


SECTION = V[61:]
LARGE = batch(b"v" * 100_000, b"v" * 100_000, at_ms=1)
LINKED = lz4.frame.compress(LARGE[61:], block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=True)
ALL_CODECS = ("gzip", "snappy", "lz4", "zstd")
COMPRESSED: dict[str, tuple[bytes, str]] = {
    **{each: (_compressed(each, SECTION), "") for each in ALL_CODECS},
    **{f"{each} cut off": (_compressed(each, SECTION)[:-1], "UNKNOWN_SERVER_ERROR") for each in ALL_CODECS},
    **{
        f"{each} with one record too few": (_compressed(each, SECTION[: len(SECTION) // 2]), "INVALID_RECORD")
        for each in ALL_CODECS
    },
    **{
        f"{each} with bytes after the records": (_compressed(each, SECTION + b"\0"), "INVALID_RECORD")
        for each in ALL_CODECS
    },
    **{
        f"{each} with bytes after its end": (_compressed(each, SECTION, b"\0\0\0\0"), "UNKNOWN_SERVER_ERROR")
        for each in ("snappy", "zstd")
    },
    "lz4 with linked blocks": (with_section(LARGE, LINKED, 3), "UNKNOWN_SERVER_ERROR"),
    "gzip of nothing": (_compressed("gzip", b""), "INVALID_RECORD"),
}


@pytest.mark.parametrize("what", COMPRESSED)
def test_compressed_batches(broker: RawConnection, topic: str, what: str) -> None:
    records, error = COMPRESSED[what]
    assert name(broker.produce(topic, sealed(records)).error_code) == error


STRICTER: dict[str, tuple[bytes, str, str]] = {
    "offset delta 1 of the first": (with_section(ONE, _record(_body(1))), "", "INVALID_RECORD"),
    "equal offset deltas": (with_section(V, _record(_body(0)) * 2), "", "INVALID_RECORD"),
    "equal offset deltas in gzip": (
        _compressed("gzip", _record(_body(0)) * 2), "UNKNOWN_SERVER_ERROR", "INVALID_RECORD",
    ),
    "a header name that is not UTF-8": (
        with_section(ONE, _record(_body(0, b"\x01\x01\x02\x02\xff\x01"))), "", "INVALID_RECORD",
    ),
    "gzip with bytes after its end": (_compressed("gzip", SECTION, b"\0\0\0\0"), "", "UNKNOWN_SERVER_ERROR"),
    "lz4 with bytes after its end": (_compressed("lz4", SECTION, b"\0\0\0\0"), "", "UNKNOWN_SERVER_ERROR"),
}  # fmt: skip


@pytest.mark.parametrize("what", STRICTER)
def test_where_the_fake_is_stricter(cluster: AnyCluster, broker: RawConnection, topic: str, what: str) -> None:
    """Kafka writes most of these, and its consumers then fail to read them. No producer should ever send them."""
    records, kafkas, fakes = STRICTER[what]
    error = fakes if isinstance(cluster, FakeCluster) else kafkas
    assert name(broker.produce(topic, records).error_code) == error


# --- the answer -------------------------------------------------------------------------------------------------------


class TestProduce:
    @pytest.mark.parametrize("version", range(3, 14))
    def test_versions(self, broker: RawConnection, topic: str, version: int) -> None:
        end = broker.produce(topic, V, version=version)
        assert (end.error_code, end.base_offset, end.log_append_time_ms) == (0, 0, -1)
        assert end.log_start_offset == (0 if version >= 5 else -1)

    @pytest.mark.parametrize("version", [3, 6, 7])
    def test_zstd_needs_version_7(self, broker: RawConnection, topic: str, version: int) -> None:
        end = broker.produce(topic, _compressed("zstd", SECTION), version=version)
        assert name(end.error_code) == ("" if version == 7 else "UNSUPPORTED_COMPRESSION_TYPE")

    @pytest.mark.parametrize("version", [0, 1, 2, 14])
    def test_other_versions_end_the_connection(self, broker: RawConnection, version: int) -> None:
        broker.send_bytes(struct.pack(">ihhih", 10, 0, version, 1, -1))
        assert broker.is_closed()

    @pytest.mark.parametrize("version", [3, 12, 13])
    def test_unknown_topic(self, broker: RawConnection, version: int) -> None:
        end = broker.produce("there-is-none", V, version=version, topic_id=bytes(range(16)))
        expected = "UNKNOWN_TOPIC_ID" if version == 13 else "UNKNOWN_TOPIC_OR_PARTITION"
        assert (name(end.error_code), end.base_offset, end.log_start_offset) == (expected, -1, -1)

    def test_no_topic_id(self, broker: RawConnection) -> None:
        assert name(broker.produce("there-is-none", V, topic_id=bytes(16)).error_code) == "UNKNOWN_TOPIC_ID"

    @pytest.mark.parametrize("version", [9, 13])
    @pytest.mark.parametrize("partition", [1, 1000, -1])
    def test_unknown_partition(self, broker: RawConnection, topic: str, partition: int, version: int) -> None:
        end = broker.produce(topic, V, partition=partition, version=version)
        assert name(end.error_code) == "UNKNOWN_TOPIC_OR_PARTITION"

    @pytest.mark.parametrize("acks", [2, -2, 100])
    def test_acks(self, broker: RawConnection, topic: str, acks: int) -> None:
        end = broker.produce(topic, V, acks=acks)
        assert (name(end.error_code), end.base_offset) == ("INVALID_REQUIRED_ACKS", -1)

    def test_bad_acks_or_a_bad_batch_first(self, broker: RawConnection, topic: str) -> None:
        assert name(broker.produce(topic, b"", acks=5).error_code) == "INVALID_RECORD"
        checksum = patched(V, 17, "I", 1, seal=False)
        assert name(broker.produce(topic, checksum, acks=5).error_code) == "INVALID_REQUIRED_ACKS"

    def test_no_acks(self, cluster: AnyCluster, broker: RawConnection, topic: str) -> None:
        """No answer: the next one belongs to the next request."""
        broker.send(broker.produce_request(topic, {0: V}, 13, 0), 13)
        assert broker.produce(topic, V, acks=1).base_offset == 2
        assert values(cluster, topic) == [b"v", b"w"] * 2

    @pytest.mark.parametrize("records", [b"", patched(V, 17, "I", 1, seal=False)], ids=["empty", "checksum"])
    def test_no_acks_and_an_error(self, broker: RawConnection, topic: str, records: bytes) -> None:
        broker.send(broker.produce_request(topic, {0: records}, 13, 0), 13)
        assert broker.is_closed()

    def test_partitions_end_on_their_own(self, cluster: AnyCluster, broker: RawConnection) -> None:
        topic = new_name()
        cluster.create_topic(topic, 3)
        answer = broker.produce_whole(topic, {0: V, 1: b"", 2: V, 3: V})
        ends = {one.index: name(one.error_code) for each in answer.responses for one in each.partition_responses}
        assert ends == {0: "", 1: "INVALID_RECORD", 2: "", 3: "UNKNOWN_TOPIC_OR_PARTITION"}

    def test_too_large(self, cluster: AnyCluster, broker: RawConnection) -> None:
        topic = new_name()
        cluster.create_topic(topic, 1, configs={"max.message.bytes": 500})
        fits = batch(b"x" * (500 - len(batch(b"x" * 300)) + 300))
        assert len(fits) == 500
        large = batch(b"x" * 500)
        ends = [broker.produce(topic, each) for each in (large, patched(large, 17, "I", 1, seal=False), fits)]
        assert [name(end.error_code) for end in ends] == ["MESSAGE_TOO_LARGE", "MESSAGE_TOO_LARGE", ""]
        assert ends[0].log_start_offset == -1

    def test_larger_than_a_segment(self, cluster: AnyCluster, broker: RawConnection) -> None:
        """Whatever size the topic accepts: a batch must fit in one segment."""
        topic = new_name()
        segment = 1_048_576
        cluster.create_topic(topic, 1, configs={"max.message.bytes": 3_000_000, "segment.bytes": segment})
        overhead = len(batch(b"x" * 1_000_000)) - 1_000_000
        ends = [broker.produce(topic, batch(b"x" * (segment - overhead + more))) for more in (1, 0)]
        assert [name(end.error_code) for end in ends] == ["RECORD_LIST_TOO_LARGE", ""]
        assert ends[1].base_offset == 0

    def test_too_large_by_default(self, broker: RawConnection, topic: str) -> None:
        limit = 1_048_588
        overhead = len(batch(b"x" * 1_000_000)) - 1_000_000
        ends = [broker.produce(topic, batch(b"x" * (limit - overhead + more))) for more in (0, 1)]
        assert [name(end.error_code) for end in ends] == ["", "MESSAGE_TOO_LARGE"]

    def test_keys_in_compacted_topics(self, cluster: AnyCluster, broker: RawConnection) -> None:
        topic = new_name()
        cluster.create_topic(topic, 1, configs={"cleanup.policy": "compact"})
        records = [PlainRecord(now_ms(), key, b"v") for key in (b"k", None, b"k", None)]
        end = broker.produce(topic, reference.encoded(records))
        assert name(end.error_code) == "INVALID_RECORD"
        assert [one.batch_index for one in end.record_errors] == [1, 3]
        assert broker.produce(topic, V).error_code == 0

    def test_times_that_are_too_far_ahead(self, broker: RawConnection, topic: str) -> None:
        """Since Kafka 4.0, message.timestamp.after.max.ms is an hour."""
        now = now_ms()
        records = [PlainRecord(at, b"k", b"v") for at in (now, now + 3_700_000, now + 3_000_000)]
        end = broker.produce(topic, reference.encoded(records))
        assert name(end.error_code) == "INVALID_TIMESTAMP"
        assert [one.batch_index for one in end.record_errors] == [1]
        assert end.log_start_offset == 0

    def test_times_that_a_topic_allows(self, cluster: AnyCluster, broker: RawConnection) -> None:
        topic = new_name()
        cluster.create_topic(topic, 1, configs={"message.timestamp.before.max.ms": 10_000})
        ends = [broker.produce(topic, batch(b"v", at_ms=at)) for at in (now_ms() - 60_000, now_ms(), -1)]
        assert [name(end.error_code) for end in ends] == ["INVALID_TIMESTAMP", "", ""]

    def test_log_append_time(self, cluster: AnyCluster, broker: RawConnection) -> None:
        topic = new_name()
        cluster.create_topic(topic, 1, configs={"message.timestamp.type": "LogAppendTime"})
        pid = broker.producer_id()
        records = batch(b"v", at_ms=2**45, producer=(pid, 0, 0))
        before = now_ms()
        first, after = broker.produce(topic, records), now_ms()
        assert (first.error_code, before <= first.log_append_time_ms <= after) == (0, True)
        while now_ms() == after:
            pass
        again = broker.produce(topic, records)
        assert (again.error_code, again.log_append_time_ms) == (0, first.log_append_time_ms)

    def test_the_time_of_a_duplicate(self, broker: RawConnection, topic: str) -> None:
        """Its largest timestamp, although the records keep their own."""
        now, pid = now_ms(), broker.producer_id()
        records = [PlainRecord(at, b"k", b"v") for at in (now, now + 3_000, now + 1_000)]
        data = reference.encoded(records, producer_id=pid, producer_epoch=0, base_sequence=0)
        ends = [broker.produce(topic, data) for _ in range(2)]
        assert [(name(end.error_code), end.base_offset) for end in ends] == [("", 0), ("", 0)]
        assert [end.log_append_time_ms for end in ends] == [-1, now + 3_000]

    def test_min_insync_replicas_above_the_replicas(self, cluster: AnyCluster, broker: RawConnection) -> None:
        topic = new_name()
        cluster.create_topic(topic, 1, configs={"min.insync.replicas": 2})
        assert name(broker.produce(topic, V).error_code) == ""

    def test_the_same_topic_twice(self, cluster: AnyCluster, broker: RawConnection, topic: str) -> None:
        request = broker.produce_request(topic, {0: V})
        request.topic_data *= 2
        answer = broker.ask(request)
        ends = [name(one.error_code) for each in answer.responses for one in each.partition_responses]
        assert set(ends) <= {"", "INVALID_RECORD"}


class TestInitProducerId:
    @pytest.mark.parametrize("version", range(6))
    def test_versions(self, broker: RawConnection, version: int) -> None:
        broker.producer_id()
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
        first, second = broker.ask(request, version), broker.ask(request, version)
        assert (first.error_code, first.producer_epoch, second.producer_epoch) == (0, 0, 0)
        assert first.producer_id != second.producer_id

    @pytest.mark.parametrize(
        ("pid", "epoch", "error"), [(5, 2, ""), (-1, 2, "INVALID_REQUEST"), (5, -1, "INVALID_REQUEST")]
    )
    def test_an_id_that_the_client_has(self, broker: RawConnection, pid: int, epoch: int, error: str) -> None:
        """Without a transactional id the broker does not know that id and assigns another one."""
        broker.producer_id()
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=1, producer_id=pid, producer_epoch=epoch
        )
        answer = broker.ask(request)
        assert name(answer.error_code) == error
        assert (answer.producer_id, answer.producer_epoch) != (pid, epoch + 1)


class TestApiVersions:
    def test_ranges(self, broker: RawConnection, fake: FakeCluster) -> None:
        answer = broker.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
        theirs = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
        with RawConnection(fake.address_of(1)) as other:
            ours = {
                one.api_key: (one.min_version, one.max_version) for one in other.ask(ApiVersionsRequest(), 0).api_keys
            }
        assert {key: theirs[key] for key in ours} == ours

    def test_features(self, broker: RawConnection) -> None:
        hello = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        levels = []
        for version in (2, 3, 4):
            answer = broker.ask(hello, version)
            finalized = {one.name: one.max_version_level for one in answer.finalized_features}
            supported = {one.name for one in answer.supported_features}
            levels.append((finalized.get("transaction.version"), "transaction.version" in supported))
            assert (answer.finalized_features_epoch >= 0) == (version >= 3)
        assert levels == [(None, False), (2, False), (2, True)]

    def test_unknown_version(self, broker: RawConnection) -> None:
        broker.send_bytes(struct.pack(">ihhihb", 11, 18, 99, 5, -1, 0))
        frame = broker.frame()
        assert frame is not None
        answer = ApiVersionsRequest.RESPONSE.decode(frame[4:], 0)
        assert [(name(answer.error_code), one.api_key, one.max_version) for one in answer.api_keys] == [
            ("UNSUPPORTED_VERSION", 18, 4)
        ]

    @pytest.mark.parametrize(("software", "error"), [("", 42), ("-a", 42), ("a b", 42), ("a.b-c", 0), ("7", 0)])
    def test_names_of_software(self, broker: RawConnection, software: str, error: int) -> None:
        hello = ApiVersionsRequest(client_software_name=software, client_software_version="1")
        assert broker.ask(hello, 3).error_code == error


class TestMetadata:
    @pytest.mark.parametrize("version", range(4, 14))
    def test_versions(self, cluster: AnyCluster, broker: RawConnection, topic: str, version: int) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        answer = broker.ask(request, version)
        (shown,) = answer.topics
        (partition,) = shown.partitions
        assert (shown.name, shown.error_code, shown.is_internal) == (topic, 0, False)
        assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (1, [1], [1])
        assert partition.leader_epoch == (0 if version >= 7 else -1)
        assert (shown.topic_id == bytes(16)) == (version < 10)
        assert [(one.node_id, (one.host, one.port)) for one in answer.brokers] == [(1, cluster.address_of(1))]
        assert answer.controller_id == 1
        assert answer.cluster_id

    def test_no_topics_and_all(self, broker: RawConnection, topic: str) -> None:
        assert broker.ask(MetadataRequest(topics=[])).topics == []
        assert topic in {one.name for one in broker.ask(MetadataRequest(topics=None)).topics}

    def test_by_id(self, broker: RawConnection, topic: str) -> None:
        topic_id = broker.topic(topic).topic_id
        asked = [MetadataRequestTopic(name=None, topic_id=each) for each in (topic_id, bytes(range(16)))]
        answer = broker.ask(MetadataRequest(topics=asked))
        assert {(one.topic_id, one.name, name(one.error_code)) for one in answer.topics} == {
            (topic_id, topic, ""), (bytes(range(16)), None, "UNKNOWN_TOPIC_ID")
        }  # fmt: skip

    @pytest.mark.parametrize("bad", ["no/slash", "", ".", "..", "x" * 250, "späti"])
    @pytest.mark.parametrize("create", [False, True])
    def test_names(self, broker: RawConnection, bad: str, create: bool) -> None:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=bad)], allow_auto_topic_creation=create)
        (shown,) = broker.ask(asked).topics
        assert (name(shown.error_code), shown.name, shown.partitions) == ("INVALID_TOPIC_EXCEPTION", bad, [])

    def test_a_topic_makes_itself_only_if_asked_to(self, broker: RawConnection) -> None:
        topic = new_name()
        assert name(broker.topic(topic).error_code) == "UNKNOWN_TOPIC_OR_PARTITION"
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        assert name(broker.ask(asked).topics[0].error_code) == "UNKNOWN_TOPIC_OR_PARTITION"
        deadline = time.monotonic() + PATIENCE_S
        while broker.topic(topic).error_code:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert len(broker.topic(topic).partitions) == 1


HELLO = encode_request(ApiVersionsRequest(), 0, 1, None)


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 100 * 1024 * 1024 + 1),
        struct.pack(">ihhi", 8, 999, 0, 1),
        struct.pack(">ihhih", 10, 3, 99, 1, -1),
        struct.pack(">ihhih", 10, 3, 4, 1, -1),
        struct.pack(">ihhih", 10, 3, 4, 1, 100),
        struct.pack(">ihhih", 10, 0, 9, 1, -1),
    ],
)
def test_nonsense_ends_the_connection(broker: RawConnection, data: bytes) -> None:
    broker.send_bytes(HELLO + data)
    assert broker.frame() is not None
    assert broker.is_closed()


def test_requests_are_answered_in_order(broker: RawConnection) -> None:
    for number in range(5):
        broker.send_bytes(encode_request(ApiVersionsRequest(), 0, number, None))
    assert [broker.frame()[:4] for _ in range(5)] == [struct.pack(">i", number) for number in range(5)]  # type: ignore[index]


# --- three brokers ----------------------------------------------------------------------------------------------------


def dies(three: AnyCluster, node: int) -> None:
    """A broker ends at once; the fake one has no other way to."""
    three.stop_broker(node) if isinstance(three, FakeCluster) else three.kill(node)


class TestLeaders:
    @pytest.mark.parametrize("version", [9, 10, 12, 13])
    def test_another_broker_names_the_leader(self, three: AnyCluster, version: int) -> None:
        """A follower does so, and a broker that has no replica of the partition."""
        topic = new_name()
        three.create_topic(topic, assignments={0: [1, 2]})
        for node in (2, 3):
            with RawConnection(three.address_of(node)) as broker:
                answer = broker.produce_whole(topic, {0: V}, version=version)
            (end,) = answer.responses[0].partition_responses
            assert (name(end.error_code), end.base_offset, end.log_start_offset) == ("NOT_LEADER_OR_FOLLOWER", -1, -1)
            leader = end.current_leader
            assert (leader.leader_id, leader.leader_epoch) == ((1, 0) if version >= 10 else (-1, -1))
            endpoints = [(one.node_id, (one.host, one.port)) for one in answer.node_endpoints]
            assert endpoints == ([(1, three.address_of(1))] if version >= 10 else [])

    def test_replicas_in_sync(self, three: AnyCluster) -> None:
        """Below min.insync.replicas only acks=all is refused, and nothing is written."""
        topic = new_name()
        three.create_topic(topic, assignments={0: [1, 2, 3]}, configs={"min.insync.replicas": 3})
        with RawConnection(three.address_of(1)) as broker:
            pid = broker.producer_id()
            assert broker.produce(topic, batch(b"a", producer=(pid, 0, 0))).error_code == 0
            dies(three, 3)
            deadline = time.monotonic() + PATIENCE_S
            while len(broker.topic(topic).partitions[0].isr_nodes) > 2:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            # A broker reports the change slightly before it acts on it; a batch that it has is not written again.
            while name(broker.produce(topic, batch(b"a", producer=(pid, 0, 0))).error_code) != "NOT_ENOUGH_REPLICAS":
                assert time.monotonic() < deadline
            shown = broker.topic(topic).partitions[0]
            assert (shown.error_code, shown.leader_id, shown.offline_replicas) == (0, 1, [3])
            tried = [(batch(b"b", producer=(pid, 0, 1)), -1), (batch(b"b", producer=(pid, 0, 1)), 1)]
            ends = [broker.produce(topic, records, acks=acks) for records, acks in tried]
            assert [(name(end.error_code), end.base_offset, end.log_start_offset) for end in ends] == [
                ("NOT_ENOUGH_REPLICAS", -1, 0), ("", 1, 0)
            ]  # fmt: skip
            again = broker.produce(topic, batch(b"a", producer=(pid, 0, 0)))
            assert name(again.error_code) == "NOT_ENOUGH_REPLICAS"
            three.start_broker(3)
            while len(broker.topic(topic).partitions[0].isr_nodes) < 3:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert broker.produce(topic, batch(b"c", producer=(pid, 0, 2))).base_offset == 2

    @pytest.mark.parametrize("killed", [False, True])
    def test_a_restarted_broker_remembers_one_batch(self, three: AnyCluster, killed: bool) -> None:
        """The last one of each producer, as that is what the snapshots of its producers hold; and those that follow."""
        topic = new_name()
        three.create_topic(topic, assignments={0: [1]})
        with RawConnection(three.address_of(1)) as broker:
            pid = broker.producer_id()
            batches = [batch(b"v", producer=(pid, 0, number)) for number in range(6)]
            for records in batches[:4]:
                assert broker.produce(topic, records).error_code == 0
        three.kill(1) if killed and isinstance(three, KafkaCluster) else three.stop_broker(1)
        three.start_broker(1)
        with RawConnection(three.address_of(1)) as broker:
            old = ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)
            for written, known in (4, [("", 3)]), (6, [("", 3), ("", 4), ("", 5)]):
                for records in batches[:written]:
                    broker.produce(topic, records)
                ends = [broker.produce(topic, records) for records in batches[:written]]
                assert [(name(end.error_code), end.base_offset) for end in ends] == [old] * 3 + known


def replication_stops(three: AnyCluster, node: int) -> None:
    """A follower hangs, and stays in sync for some seconds."""
    three.pause_replication(node) if isinstance(three, FakeCluster) else three.pause(node)


def replication_goes_on(three: AnyCluster, node: int) -> None:
    three.resume_replication(node) if isinstance(three, FakeCluster) else three.resume(node)


def led_by(three: AnyCluster, node: int, topic: str, in_sync: int) -> None:
    """Wait until a broker leads a topic's only partition with so many replicas in sync.

    It reports that slightly before it acts on it; then it reads batches, and finds that this one is damaged.
    """
    deadline = time.monotonic() + PATIENCE_S
    damaged = patched(batch(b"?"), 17, "I", 1, seal=False)
    with RawConnection(three.address_of(node)) as broker:
        while True:
            shown = broker.topic(topic).partitions[0]
            leads = (shown.leader_id, len(shown.isr_nodes)) == (node, in_sync)
            if leads and name(broker.produce(topic, damaged, acks=1).error_code) == "CORRUPT_MESSAGE":
                return
            assert time.monotonic() < deadline, shown
            time.sleep(0.05)


class TestReplicas:
    """Each replica has a log of its own, and the leader's is ahead of the others'."""

    SHORT_MS = 500
    """Much less than it takes the controller to give up a broker that hangs."""

    def test_acks_all_waits_for_the_replicas_in_sync(self, three: AnyCluster) -> None:
        """For a batch that the leader has already, too, though it is not written again."""
        topic = new_name()
        three.create_topic(topic, assignments={0: [1, 2]})
        with RawConnection(three.address_of(1)) as broker:
            pid = broker.producer_id()
            batches = [batch(b"%d" % number, producer=(pid, 0, number)) for number in range(3)]
            assert broker.produce(topic, batches[0]).error_code == 0
            replication_stops(three, 2)
            ends = [broker.produce(topic, batches[1], timeout_ms=self.SHORT_MS) for _ in range(2)]
            ends += [broker.produce(topic, records, acks=1) for records in (batches[1], batches[2])]
            assert [(name(end.error_code), end.base_offset) for end in ends] == [
                ("REQUEST_TIMED_OUT", 1), ("REQUEST_TIMED_OUT", 1), ("", 1), ("", 2)
            ]  # fmt: skip
            # What all replicas have needs no other answer.
            assert name(broker.produce(topic, batches[0], timeout_ms=self.SHORT_MS).error_code) == ""
            replication_goes_on(three, 2)
            ends = [broker.produce(topic, records) for records in batches]
            assert [(name(end.error_code), end.base_offset) for end in ends] == [("", 0), ("", 1), ("", 2)]
        assert values(three, topic) == [b"0", b"1", b"2"]

    def test_nothing_is_committed_with_too_few_replicas_in_sync(self, three: AnyCluster) -> None:
        """A replica leaves while a batch waits for it: the batch goes on waiting, as the leader alone is too few."""
        topic = new_name()
        three.create_topic(topic, assignments={0: [1, 2]}, configs={"min.insync.replicas": 2})
        with RawConnection(three.address_of(1)) as broker:
            pid = broker.producer_id()
            assert broker.produce(topic, batch(b"0", producer=(pid, 0, 0))).error_code == 0
            replication_stops(three, 2)
            request = broker.produce_request(topic, {0: batch(b"1", producer=(pid, 0, 1))})
            request.timeout_ms = self.SHORT_MS if isinstance(three, FakeCluster) else 8_000
            if isinstance(three, FakeCluster):
                arrived = three.faults.delay("Produce", 1)
                broker.send(request, 13)
                deadline = time.monotonic() + PATIENCE_S
                while not arrived.struck:
                    assert time.monotonic() < deadline
                three.shrink_isr(topic, 0, [1])
            else:
                broker.send(request, 13)
            led_by(three, 1, topic, 1)
            (end,) = broker.answer_to(request, 13).responses[0].partition_responses
            assert (name(end.error_code), end.base_offset) == ("REQUEST_TIMED_OUT", 1)
            again = broker.produce(topic, batch(b"1", producer=(pid, 0, 1)))
            assert name(again.error_code) == "NOT_ENOUGH_REPLICAS"
            replication_goes_on(three, 2)
            led_by(three, 1, topic, 2)
            deadline = time.monotonic() + PATIENCE_S
            while (end := broker.produce(topic, batch(b"1", producer=(pid, 0, 1)))).error_code:
                assert name(end.error_code) == "NOT_ENOUGH_REPLICAS"
                assert time.monotonic() < deadline
            assert end.base_offset == 1
        assert values(three, topic) == [b"0", b"1"]

    def test_a_new_leader_has_what_was_replicated(self, three: AnyCluster) -> None:
        """It also knows that much of the producer; the former leader drops the rest when it comes back."""
        topic = new_name()
        three.create_topic(topic, assignments={0: [1, 2]})
        with RawConnection(three.address_of(1)) as broker:
            pid = broker.producer_id()
            batches = [batch(b"%d" % number, producer=(pid, 0, number)) for number in range(4)]
            for records in batches[:2]:
                assert broker.produce(topic, records).error_code == 0
            replication_stops(three, 2)
            broker.produce(topic, batch(b"?"), acks=1)  # the answer to the Fetch that the follower has sent may hold it
            broker.topic(topic)
            assert [broker.produce(topic, records, acks=1).error_code for records in batches[2:]] == [0, 0]
        dies(three, 1)
        replication_goes_on(three, 2)
        led_by(three, 2, topic, 1)
        with RawConnection(three.address_of(2)) as broker:
            tried = [batches[number] for number in (1, 3, 0, 2)]
            ends = [name(broker.produce(topic, records).error_code) for records in tried]
            assert ends == ["", "OUT_OF_ORDER_SEQUENCE_NUMBER", "", ""]
            three.start_broker(1)
            led_by(three, 2, topic, 2)
            assert broker.produce(topic, batch(b"other", producer=(pid, 0, 3))).error_code == 0
        assert [value for value in values(three, topic) if value != b"?"] == [b"0", b"1", b"2", b"other"]

    def test_an_unclean_leader_lacks_what_was_acknowledged(self, three: AnyCluster) -> None:
        """And what it knew of the producer; the former leader drops that when it comes back."""
        topic = new_name()
        configs = {"unclean.leader.election.enable": "true"}
        three.create_topic(topic, assignments={0: [1, 2]}, configs=configs)
        with RawConnection(three.address_of(1)) as broker:
            pid = broker.producer_id()
            batches = [batch(b"%d" % number, producer=(pid, 0, number)) for number in range(3)]
            assert broker.produce(topic, batches[0]).error_code == 0
            dies(three, 2)
            led_by(three, 1, topic, 1)
            assert [broker.produce(topic, records).error_code for records in batches[1:]] == [0, 0]
        dies(three, 1)
        three.start_broker(2)
        if isinstance(three, FakeCluster):
            three.elect_leaders(unclean=True)
        led_by(three, 2, topic, 1)
        with RawConnection(three.address_of(2)) as broker:
            tried = [batches[number] for number in (2, 0)]
            assert [name(broker.produce(topic, records).error_code) for records in tried] == [
                "OUT_OF_ORDER_SEQUENCE_NUMBER", ""
            ]  # fmt: skip
            three.start_broker(1)
            led_by(three, 2, topic, 2)
            assert broker.produce(topic, batch(b"other", producer=(pid, 0, 1))).base_offset == 1
        assert values(three, topic) == [b"0", b"other"]

    def test_a_leader_that_does_not_know_its_successor(self, three: AnyCluster) -> None:
        """It never says that a batch is committed, and drops it when it finds out; another leader has its own copy."""
        topic = new_name()
        three.create_topic(topic, assignments={0: [1, 2]})
        with RawConnection(three.address_of(1)) as broker:
            pid = broker.producer_id()
            batches = [batch(b"%d" % number, producer=(pid, 0, number)) for number in range(3)]
            assert broker.produce(topic, batches[0]).error_code == 0
            request = broker.produce_request(topic, {0: batches[1]})
            request.timeout_ms = 60_000
            if isinstance(three, FakeCluster):
                three.cut_off(1)
            else:
                three.pause(1)
            broker.send(request, 13)
            led_by(three, 2, topic, 1)
            with RawConnection(three.address_of(2)) as successor:
                ends = [successor.produce(topic, records) for records in (batches[2], batches[1], batches[2])]
            assert [(name(end.error_code), end.base_offset) for end in ends] == [
                ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1), ("", 1), ("", 2)
            ]  # fmt: skip
            three.reconnect(1) if isinstance(three, FakeCluster) else three.resume(1)
            (end,) = broker.answer_to(request, 13).responses[0].partition_responses
            assert name(end.error_code) == "NOT_LEADER_OR_FOLLOWER"
        assert values(three, topic) == [b"0", b"1", b"2"]


class TestTopicConfigs:
    @pytest.mark.parametrize(
        ("config", "value"),
        [
            ("max.mesage.bytes", 500),
            ("max.message.bytes", "many"),
            ("min.insync.replicas", ""),
            ("message.timestamp.type", "logappendtime"),
            ("cleanup.policy", "compact,shred"),
        ],
    )
    def test_refused(self, cluster: AnyCluster, topic: str, config: str, value: object) -> None:
        """An unknown name or an impossible value: nothing changes."""
        refused = new_name()
        with pytest.raises(InvalidConfigError, match=config):
            cluster.create_topic(refused, 1, configs={"retention.ms": 1_000, config: value})
        cluster.create_topic(refused, 1)
        with pytest.raises(InvalidConfigError, match=config):
            cluster.alter_configs(topic, {config: value})

    def test_back_to_the_default(self, cluster: AnyCluster, broker: RawConnection) -> None:
        topic = new_name()
        cluster.create_topic(topic, 1, configs={"max.message.bytes": 50, "cleanup.policy": "compact,delete"})
        assert name(broker.produce(topic, V).error_code) == "MESSAGE_TOO_LARGE"
        cluster.alter_configs(topic, {"max.message.bytes": None})
        assert name(broker.produce(topic, V).error_code) == ""
        no_key = reference.encoded([PlainRecord(1, None, b"v")])
        assert name(broker.produce(topic, no_key).error_code) == "INVALID_RECORD", "the policy stays"

    def test_names(self, kafka: KafkaCluster) -> None:
        """The fake cluster accepts all of Kafka's config names, whether or not they have an effect."""
        topic = new_name()
        kafka.create_topic(topic, 1)
        assert frozenset(kafka.configs(topic)) == TOPIC_CONFIGS
