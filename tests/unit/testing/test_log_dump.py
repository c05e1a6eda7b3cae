"""Reading the output of DumpLogSegments."""

from __future__ import annotations

from aioproducer.testing.log_dump import parse_dump

# As Kafka 4.3.1, 3.0.2 and 2.8.2 print it.
NEW = (
    "baseOffset: 0 lastOffset: 41 count: 42 baseSequence: 0 lastSequence: 41 producerId: 7 producerEpoch: 1 "
    "partitionLeaderEpoch: 0 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty position: 0 "
    "CreateTime: 1795255201880 size: 4721 magic: 2 compresscodec: lz4 crc: 2611124841 isvalid: true"
)
OLD = (
    "baseOffset: 42 lastOffset: 42 count: 1 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 "
    "partitionLeaderEpoch: 0 isTransactional: true isControl: true position: 4721 "
    "LogAppendTime: 12 size: 78 magic: 2 compresscodec: NONE crc: 5 isvalid: true"
)
RECORD = "| offset: 0 CreateTime: 1795255201880 keySize: 1 valueSize: 100 sequence: 0 headerKeys: [isvalid: false]"


def dump(*lines: str) -> str:
    return "\n".join(["Dumping /data/t-0/00000000000000000000.log", "Log starting offset: 0", *lines, ""])


def test_a_batch_is_read() -> None:
    (batch,) = parse_dump(dump(NEW)).batches
    assert (batch.base_offset, batch.last_offset, batch.count) == (0, 41, 42)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (7, 1, 0, 41)
    assert (batch.timestamp_type, batch.timestamp_ms) == ("CreateTime", 1_795_255_201_880)
    assert (batch.size, batch.magic, batch.codec, batch.crc) == (4721, 2, "lz4", 2_611_124_841)
    assert batch.is_valid
    assert not batch.is_transactional


def test_older_versions_write_it_a_little_differently() -> None:
    (batch,) = parse_dump(dump(OLD)).batches
    assert (batch.timestamp_type, batch.timestamp_ms) == ("LogAppendTime", 12)
    assert (batch.producer_id, batch.codec) == (-1, "none")
    assert batch.is_control


def test_control_batches_hold_no_records() -> None:
    found = parse_dump(dump(NEW, OLD))
    assert len(found.batches) == 2
    assert found.record_count == 42


def test_a_sound_log_has_no_problems() -> None:
    found = parse_dump(dump(NEW, RECORD.replace("isvalid: false", ""), OLD))
    assert found.problems == []


def test_a_batch_that_is_not_valid_is_a_problem() -> None:
    broken = NEW.replace("isvalid: true", "isvalid: false")
    found = parse_dump(dump(NEW, broken))
    assert not found.batches[1].is_valid
    assert found.problems == [broken]


def test_complaints_of_the_tool_are_problems() -> None:
    complaint = "Found 13 invalid bytes at the end of 00000000000000000000.log"
    assert parse_dump(dump(NEW, complaint)).problems == [complaint]
    crash = "org.apache.kafka.common.errors.CorruptRecordException: Record is corrupt"
    assert parse_dump(dump(crash)).problems == [crash]


def test_an_empty_log_is_no_batches() -> None:
    found = parse_dump(dump())
    assert found.batches == ()
    assert found.record_count == 0
    assert found.problems == []
