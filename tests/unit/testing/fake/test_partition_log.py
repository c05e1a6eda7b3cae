"""The log of a partition of the cluster model: what readers see of it, and what it remembers of producers."""

from __future__ import annotations

import pytest

from aioproducer.testing.fake.batches import TRANSACTIONAL, Batch, BatchRecord
from aioproducer.testing.fake.partition_log import PartitionLog

PRODUCER = 7


def batch(*values: bytes, producer_id: int = PRODUCER, transactional: bool = True) -> Batch:
    epoch, sequence = (-1, -1) if producer_id < 0 else (0, 0)
    records = [BatchRecord(0, None, value, ()) for value in values]
    return Batch(100, TRANSACTIONAL if transactional else 0, 0, 0, producer_id, epoch, sequence, records)


def values(log: PartitionLog, *, read_committed: bool) -> list[bytes | None]:
    return [record.value for record in log.read(read_committed=read_committed)]


def test_an_open_transaction_ends_what_is_committed() -> None:
    log = PartitionLog()
    log.append(batch(b"before", producer_id=-1, transactional=False), None)
    log.append(batch(b"open"), None)
    log.append(batch(b"after", producer_id=-1, transactional=False), None)
    assert [record.value for record in log.read()] == [b"before", b"open", b"after"]
    assert values(log, read_committed=True) == [b"before"]
    log.end_transaction(PRODUCER, 0, committed=False)
    assert values(log, read_committed=True) == [b"before", b"after"]
    assert values(log, read_committed=False) == [b"before", b"open", b"after"]


def test_the_oldest_open_transaction_ends_what_is_committed() -> None:
    log = PartitionLog()
    for producer_id, value in ((PRODUCER, b"a"), (PRODUCER + 1, b"b"), (PRODUCER + 2, b"c")):
        log.append(batch(value, producer_id=producer_id), None)
    log.end_transaction(PRODUCER + 1, 0, committed=True)
    assert values(log, read_committed=True) == []
    log.end_transaction(PRODUCER, 0, committed=True)
    assert values(log, read_committed=True) == [b"a", b"b"]


def test_the_abort_of_a_transaction_that_wrote_nothing_here() -> None:
    log = PartitionLog()
    log.append(batch(b"a"), None)
    log.end_transaction(PRODUCER, 0, committed=True)
    assert log.end_transaction(PRODUCER, 0, committed=False).first_offset is None
    assert values(log, read_committed=True) == [b"a"]
    assert log.end_offset == 3


def test_records_without_a_producer_id_have_no_sequence() -> None:
    log = PartitionLog()
    log.append(batch(b"a", b"b", producer_id=-1, transactional=False), None)
    assert [(record.producer_id, record.sequence) for record in log.read()] == [(-1, -1)] * 2
    log.append(batch(b"c", b"d"), None)
    assert [record.sequence for record in log.read()][2:] == [0, 1]


def test_a_marker_has_its_producer_begin_anew() -> None:
    log = PartitionLog()
    log.append(batch(b"a"), None)
    log.producers.verify(PRODUCER, 1, 0, adds=False)
    log.end_transaction(PRODUCER, 1, committed=False)
    entry = log.producers.entry(PRODUCER)
    assert entry is not None
    assert (entry.epoch, list(entry.batches)) == (1, [])
    assert not log.producers._verifying  # what the coordinator was asked is settled


@pytest.mark.parametrize("offset", [0, 4])
def test_only_records_that_are_there_can_be_deleted(offset: int) -> None:
    log = PartitionLog()
    log.append(batch(b"a", b"b", b"c", producer_id=-1, transactional=False), None)
    log.delete_before(1)
    with pytest.raises(ValueError, match=f"offset {offset} is outside 1 to 3"):
        log.delete_before(offset)
    for left, begin in ((2, 1), (0, 3)):
        log.delete_before(begin)
        assert len(log.read()) == left
