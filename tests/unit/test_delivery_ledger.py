"""DeliveryLedger: which failures count as unobserved, and which flush raises them."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable

import pytest

from aioproducer._delivery import Delivery, watch
from aioproducer._delivery_ledger import DeliveryLedger
from aioproducer._producer_batch import ProducerBatch
from aioproducer.errors import KafkaError
from tests.unit.core import drain_all, end, filled, make_accumulator, split
from tests.unit.waiting import turns


class Books:
    """A ledger with an accumulator, and failures by their text."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.accumulator = make_accumulator(loop=loop)
        self.ledger: DeliveryLedger = self.accumulator.ledger
        self.calls = 0
        self.ledger.on_failure = self._count

    def _count(self) -> None:
        self.calls += 1

    def batch(self, count: int) -> tuple[ProducerBatch, list[Delivery]]:
        return filled(self.accumulator, count, size=1)

    def fail(self, batch: ProducerBatch, text: str = "no", *, unobserved: bool = True) -> None:
        batch.fail(KafkaError(text), None, unobserved)
        self.accumulator.release(batch)

    def fresh(self) -> list[tuple[str, int]]:
        return [(str(error), records) for error, records in self.ledger.take_fresh()]

    def flush(self) -> list[tuple[str, int]]:
        """A flush of all records."""
        return self.end_flush(self.ledger.start_flush())

    def end_flush(self, token: int, last_serial: int | None = None, *, report: bool = True) -> list[tuple[str, int]]:
        covered = self.accumulator.last_serial if last_serial is None else last_serial
        return [(str(error), records) for error, records in self.ledger.end_flush(token, covered, report)]


@pytest.fixture
async def books() -> Books:
    return Books(asyncio.get_running_loop())


async def test_dropped_before_the_failure(books: Books) -> None:
    """Records whose Deliveries were dropped before their batch failed are unobserved at once, in one entry."""
    batch, deliveries = books.batch(5)
    del deliveries[1:4]
    books.fail(batch)
    assert books.ledger.unobserved_count == 3
    assert books.fresh() == [("no", 3)]
    assert books.fresh() == []
    for delivery in deliveries:
        delivery.exception()
    assert books.flush() == [("no", 3)]
    assert books.flush() == []


async def test_dropped_after_the_failure(books: Books) -> None:
    """A Delivery that is dropped unobserved after the failure is counted when dropped."""
    batch, deliveries = books.batch(3)
    books.fail(batch)
    assert books.ledger.unobserved_count == 0
    assert books.fresh() == []
    deliveries.pop()
    assert books.fresh() == [("no", 1)]
    deliveries.pop()
    deliveries.pop()
    assert books.fresh() == [("no", 1), ("no", 1)]
    assert books.flush() == [("no", 3)], "one failed batch is one failure"


async def test_alive_at_a_flush(books: Books) -> None:
    """A failure not observed by the end of a covering flush is unobserved, although its Delivery still exists."""
    batch, deliveries = books.batch(3)
    error = KafkaError("no")
    kept = weakref.ref(error)
    batch.fail(error)
    books.accumulator.release(batch)
    del batch, error
    assert books.flush() == [("no", 3)]
    assert books.fresh() == [("no", 3)]
    deliveries.clear()
    assert kept() is None
    assert books.ledger.unobserved_count == 3, "told once"
    assert books.flush() == []


def awaited(delivery: Delivery) -> None:
    with pytest.raises(KafkaError):
        delivery.result()


def asked(delivery: Delivery) -> None:
    assert delivery.exception() is not None


def called_back(delivery: Delivery) -> None:
    delivery.add_done_callback(lambda _: None)


@pytest.mark.parametrize("look", [awaited, asked, called_back])
async def test_looking_after_the_failure(books: Books, look: Callable[[Delivery], None]) -> None:
    """A failure is observed by await, result(), exception() or a callback."""
    batch, deliveries = books.batch(2)
    books.fail(batch)
    for delivery in deliveries:
        look(delivery)
        look(delivery)
    await turns(1)
    del delivery
    deliveries.clear()
    assert books.flush() == []
    assert books.ledger.unobserved_count == 0


@pytest.mark.parametrize("look", [awaited, asked, called_back])
async def test_a_failure_that_was_looked_at_is_let_go(books: Books, look: Callable[[Delivery], None]) -> None:
    """A program that looks at all its records never has to flush: nothing is kept of what it has seen."""
    batch, deliveries = books.batch(3)
    error = KafkaError("no")
    kept = weakref.ref(error)
    batch.fail(error)
    books.accumulator.release(batch)
    del batch, error
    for delivery in deliveries:
        assert kept() is not None
        look(delivery)
    await turns(1)
    del delivery
    deliveries.clear()
    assert kept() is None


async def test_some_are_looked_at(books: Books) -> None:
    """A flush reports the others, whether their Deliveries still exist or not."""
    batch, deliveries = books.batch(6)
    books.fail(batch)
    asked(deliveries[1])
    asked(deliveries[4])
    del deliveries[0]
    del deliveries[-1]
    assert books.fresh() == [("no", 1), ("no", 1)]
    assert books.flush() == [("no", 4)]
    assert books.flush() == []
    batch, deliveries = books.batch(2)
    books.fail(batch, "again")
    asked(deliveries[0])
    assert books.flush() == [("again", 1)]


async def test_looking_before_the_failure(books: Books) -> None:
    """So is the failure of a record that had an await or a callback before it failed."""
    batch, deliveries = books.batch(2)

    async def wait(delivery: Delivery) -> None:
        with pytest.raises(KafkaError):
            await delivery

    task = asyncio.create_task(wait(deliveries[0]))
    deliveries[1].add_done_callback(lambda _: None)
    await turns()
    deliveries.clear()
    books.fail(batch)
    await task
    del task
    await turns(1)
    assert books.flush() == []
    assert books.ledger.unobserved_count == 0


async def test_cancelled_await_has_looked(books: Books) -> None:
    """A cancelled await counts as observing."""
    batch, deliveries = books.batch(1)

    async def wait(delivery: Delivery) -> None:
        await delivery

    task = asyncio.create_task(wait(deliveries[0]))
    await turns()
    task.cancel()
    await turns()
    books.fail(batch)
    assert books.flush() == []


@pytest.mark.parametrize("look", [Delivery.done, Delivery.cancelled, Delivery.cancel, repr, Delivery.peek_exception])
async def test_not_looking(books: Books, look: Callable[[Delivery], object]) -> None:
    """done() and the like do not count as observing."""
    batch, deliveries = books.batch(1)
    look(deliveries[0])
    books.fail(batch)
    look(deliveries[0])
    deliveries.clear()
    assert books.flush() == [("no", 1)]


async def test_result_of_a_pending_record_is_not_looking(books: Books) -> None:
    """Asking for the result too early does not count as observing."""
    batch, deliveries = books.batch(1)
    with pytest.raises(asyncio.InvalidStateError):
        deliveries[0].result()
    books.fail(batch)
    assert books.flush() == [("no", 1)]


async def test_watching_is_not_looking(books: Books) -> None:
    """The producer's own callbacks do not count as observing."""
    batch, deliveries = books.batch(1)
    called: list[Delivery] = []
    watch(deliveries[0], called.append)
    books.fail(batch)
    await turns(1)
    assert len(called) == 1
    called.clear()
    deliveries.clear()
    assert books.flush() == [("no", 1)]


async def test_acknowledged_records_are_no_failures(books: Books) -> None:
    """Dropping the Delivery of an acknowledged record, before or after, has no effect."""
    batch, deliveries = books.batch(3)
    deliveries.pop()
    end(books.accumulator, batch)
    deliveries.clear()
    assert books.flush() == []
    assert books.ledger.unobserved_count == 0


async def test_failures_by_the_program_itself(books: Books) -> None:
    """Records failed by close(timeout) don't count as unobserved, dropped or not."""
    batch, deliveries = books.batch(3)
    deliveries.pop()
    books.fail(batch, unobserved=False)
    deliveries.pop()
    assert books.flush() == []
    assert books.ledger.unobserved_count == 0
    assert str(deliveries[0].exception()) == "no"


async def test_error_of_the_record(books: Books) -> None:
    """A dropped record is reported with its own error if it has one."""
    batch, deliveries = books.batch(2)
    batch.fail(KafkaError("batch"), {1: KafkaError("record")})
    books.accumulator.release(batch)
    deliveries.pop()
    assert books.fresh() == [("record", 1)]
    deliveries.pop()
    assert books.fresh() == [("batch", 1)]


async def test_flush_covers_what_was_before_it(books: Books) -> None:
    """A flush reports the failures of records admitted before it, not of later ones."""
    first, before = books.batch(1)
    token, covered = books.ledger.start_flush(), books.accumulator.last_serial
    second, after = books.batch(1)
    books.fail(first, "before")
    books.fail(second, "after")
    assert books.end_flush(token, covered) == [("before", 1)]
    assert books.ledger.unobserved_count == 1
    assert books.flush() == [("after", 1)]
    assert before
    assert after


async def test_flushes_side_by_side_all_report(books: Books) -> None:
    """All flushes that run while a failure is reported report it; later ones do not."""
    batch, deliveries = books.batch(2)
    first, second = books.ledger.start_flush(), books.ledger.start_flush()
    books.fail(batch)
    assert books.end_flush(first) == [("no", 2)]
    third = books.ledger.start_flush()
    assert books.end_flush(second) == [("no", 2)]
    assert books.end_flush(third) == []
    assert books.ledger.unobserved_count == 2
    assert deliveries


async def test_a_flush_that_starts_and_ends_during_another(books: Books) -> None:
    """It reports nothing that was reported before it started, although the other one has yet to."""
    batch, deliveries = books.batch(2)
    first, longest = books.ledger.start_flush(), books.ledger.start_flush()
    books.fail(batch)
    assert books.end_flush(first) == [("no", 2)]
    assert books.flush() == []
    assert books.end_flush(longest) == [("no", 2)]
    assert deliveries


async def test_batches_that_fail_for_one_reason_at_different_times(books: Books) -> None:
    """A reason that a flush has reported is reported again for batches that failed since."""
    error = KafkaError("no")
    (first, before), (second, after) = books.batch(1), books.batch(2)
    one, longest = books.ledger.start_flush(), books.ledger.start_flush()
    del before[:], after[:]
    first.fail(error)
    assert books.end_flush(one) == [("no", 1)]
    later = books.ledger.start_flush()
    second.fail(error)
    assert books.end_flush(later) == [("no", 2)]
    assert books.end_flush(longest) == [("no", 3)]


async def test_flush_that_started_before_an_unrelated_one_ended(books: Books) -> None:
    """Each of a chain of overlapping flushes reports what the previous one reported while it ran, and no more."""
    batch, deliveries = books.batch(1)
    books.fail(batch, "first")
    one_flush = books.ledger.start_flush()
    two = books.ledger.start_flush()
    assert books.end_flush(one_flush) == [("first", 1)]
    three = books.ledger.start_flush()
    batch, more = books.batch(1)
    books.fail(batch, "second")
    assert books.end_flush(two) == [("first", 1), ("second", 1)]
    assert books.end_flush(three) == [("second", 1)]
    assert books.flush() == []
    assert deliveries
    assert more


async def test_flush_that_did_not_finish_reports_nothing(books: Books) -> None:
    """A timed-out or cancelled flush leaves its failures to the next."""
    batch, deliveries = books.batch(2)
    deliveries.pop()
    token = books.ledger.start_flush()
    books.fail(batch)
    assert books.end_flush(token, report=False) == []
    assert str(deliveries[0].exception()) == "no"
    assert books.flush() == [("no", 1)]


async def test_one_error_a_batch(books: Books) -> None:
    """A flush raises one error per failed batch, however its Deliveries were dropped."""
    first, some = books.batch(4)
    second, others = books.batch(4)
    some.pop()
    others.pop()
    books.fail(first, "first")
    books.fail(second, "second")
    some.pop()
    others.pop()
    assert books.flush() == [("first", 4), ("second", 4)]
    assert books.ledger.unobserved_count == 8


async def test_failures_before_any_flush(books: Books) -> None:
    """Old failures are reported by the first flush that covers them."""
    for number in range(3):
        batch, _ = books.batch(2)
        del _
        books.fail(batch, f"batch {number}")
    assert books.flush() == [("batch 0", 2), ("batch 1", 2), ("batch 2", 2)]


async def test_entries_are_bounded(books: Books) -> None:
    """Without flushes, the failures of a long-lived producer take bounded memory; all of them are counted."""
    kept: list[weakref.ref[KafkaError]] = []
    for number in range(1500):
        batch, deliveries = books.batch(2)
        error = KafkaError(str(number))
        kept.append(weakref.ref(error))
        deliveries.pop()
        batch.fail(error)
        books.accumulator.release(batch)
        deliveries.pop()
        books.ledger.take_fresh()
    del batch, error
    assert sum(error() is not None for error in kept) == 1000
    raised = books.end_flush(books.ledger.start_flush(), 1_400)
    assert len(raised) == 999
    assert raised[0] == ("0", 2)
    ((_, records),) = books.flush()
    assert records == 2 * 501, "an entry of several batches waits for a flush that covers all of them"


async def test_on_failure_is_called_once_until_taken(books: Books) -> None:
    """on_failure is called once, then not again until the list has been taken."""
    batch, deliveries = books.batch(5)
    books.fail(batch)
    deliveries.pop()
    deliveries.pop()
    assert books.calls == 1
    assert len(books.fresh()) == 2
    deliveries.pop()
    assert books.calls == 2


async def test_dropped_in_another_thread(books: Books) -> None:
    """A Delivery may be dropped by any thread."""
    batch, deliveries = books.batch(2)
    books.fail(batch)
    await asyncio.to_thread(deliveries.clear)
    assert books.fresh() == [("no", 1), ("no", 1)]


async def test_split_failures_are_counted_once(books: Books) -> None:
    """Pieces fail one by one, each with its records."""
    batch, deliveries = books.batch(8)
    pieces = split(books.accumulator, batch)
    drain_all(books.accumulator)
    del deliveries[::2]
    for number, piece in enumerate(pieces):
        books.fail(piece, str(number))
    assert books.flush() == [(str(number), piece.record_count) for number, piece in enumerate(pieces)]
    assert books.ledger.unobserved_count == 8


async def test_flush_covers_pieces_as_it_covers_their_batch(books: Books) -> None:
    """A flush from before a batch reports no failures of its pieces; one from after it does."""
    early, covered = books.ledger.start_flush(), books.accumulator.last_serial
    batch, deliveries = books.batch(8)
    late = books.ledger.start_flush()
    pieces = split(books.accumulator, batch)
    drain_all(books.accumulator)
    del deliveries[::2]
    for piece in pieces:
        books.fail(piece)
    assert books.end_flush(early, covered) == []
    assert books.end_flush(late) == [("no", piece.record_count) for piece in pieces]
