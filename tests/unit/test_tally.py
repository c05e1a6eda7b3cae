"""Counts, offsets and errors of one call, from the batches that hold its records."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer import BatchResult, Delivery, KafkaError, TopicPartition
from aioproducer._accumulator import RecordAccumulator
from aioproducer._delivery import count_in
from aioproducer._producer_batch import ProducerBatch
from aioproducer._tally import Tally
from tests.unit.core import add_topic, allocated_blocks, drain_all, end, make_accumulator, put, split


def counted(tally: Tally, accumulator: RecordAccumulator, count: int = 1, *, topic: str = "orders") -> None:
    """Append records that belong to the tally."""
    books = accumulator.topic(topic) or add_topic(accumulator, topic)
    for _ in range(count):
        count_in(put(accumulator, books), tally)


def other(accumulator: RecordAccumulator) -> Delivery:
    """Append a record of another call to the same batch."""
    books = accumulator.topic("orders") or add_topic(accumulator)
    return put(accumulator, books)


def the_batch(accumulator: RecordAccumulator) -> ProducerBatch:
    (batch,) = drain_all(accumulator)
    return batch


def test_a_batch_of_its_own() -> None:
    accumulator, tally = make_accumulator(), Tally("orders")
    counted(tally, accumulator, 5)
    assert (tally.rows, tally.admitted, tally.pending, tally.acked) == (5, 5, 5, 0)
    end(accumulator, the_batch(accumulator), offset=70)
    assert tally.pending == 0
    assert tally.result() == BatchResult(5, 0, {0: [(70, 74)]}, [])


def test_records_of_others_in_between() -> None:
    """Two calls and a single record share a batch; each gets its own offsets."""
    accumulator, one, two = make_accumulator(), Tally("orders"), Tally("orders")
    counted(one, accumulator, 2)
    counted(two, accumulator, 1)
    delivery = other(accumulator)
    counted(one, accumulator, 3)
    counted(two, accumulator, 1)
    end(accumulator, the_batch(accumulator), offset=10)
    assert one.result() == BatchResult(5, 0, {0: [(10, 11), (14, 16)]}, [])
    assert two.result() == BatchResult(2, 0, {0: [(12, 12), (17, 17)]}, [])
    assert delivery.result().offset == 13


def test_errors_are_the_calls_own() -> None:
    """A batch's error is raised elsewhere too, and gets a traceback there; each knows its topic."""
    accumulator, tally = make_accumulator(), Tally("orders")
    counted(tally, accumulator, 1)
    batch = the_batch(accumulator)
    error = KafkaError("no")
    batch.fail(error)
    accumulator.release(batch)
    tally.refuse(KafkaError("too large"), "orders")
    first, second = (error for _, error in tally.result().errors)
    assert (str(first), first.topic, str(second), second.topic) == ("no", "orders", "too large", "orders")
    assert first is not error


def test_errors_take_bounded_memory() -> None:
    """A call may have millions of rows that are refused."""
    tally = Tally("orders", most_errors=10)

    def refuse(count: int) -> None:
        for _ in range(count):
            tally.refuse(KafkaError("no"), "orders")

    refuse(2_000)
    before = allocated_blocks()
    refuse(5_000)
    assert allocated_blocks() - before < 500
    assert [row for row, _ in tally.result().errors] == list(range(10))


class Name(str):
    """A topic's name whose end can be observed."""


@pytest.mark.parametrize("is_split", [False, True])
def test_a_delivery_keeps_no_call(is_split: bool) -> None:
    """A program may keep the Delivery of a record whose batch was shared with millions of records of such calls."""
    accumulator = make_accumulator()
    name = Name("orders")
    kept = weakref.ref(name)
    tally = Tally(name)
    del name
    delivery = other(accumulator)
    counted(tally, accumulator, 5)
    batch = the_batch(accumulator)
    if is_split:
        split(accumulator, batch)
        for piece in drain_all(accumulator):
            end(accumulator, piece)
    else:
        end(accumulator, batch)
    assert tally.acked == 5
    del tally, batch
    assert kept() is None
    assert delivery.done()


@pytest.mark.parametrize("ends", [True, False])
def test_a_batch_of_very_many_calls(ends: bool) -> None:
    """Each gets its own record; and a batch that never ends can still be freed."""
    accumulator = make_accumulator(batch_size=16 << 20, buffer_memory=64 << 20, max_request_size=16 << 20)
    tallies = [Tally("orders") for _ in range(100_000)]
    for tally in tallies:
        counted(tally, accumulator)
    if ends:
        end(accumulator, the_batch(accumulator), offset=7)
        assert [tally.result().offsets for tally in tallies] == [{0: [(7 + at, 7 + at)]} for at in range(100_000)]
    else:
        del accumulator
        gc.collect()
        assert all(tally.pending == 1 for tally in tallies)


def test_batches_that_follow_each_other_are_one_range() -> None:
    accumulator, tally = make_accumulator(), Tally("orders")
    for offset in 0, 3, 7:
        counted(tally, accumulator, 3)
        end(accumulator, the_batch(accumulator), offset=offset)
    assert tally.result().offsets == {0: [(0, 5), (7, 9)]}


def test_ranges_are_ascending_whatever_ended_first() -> None:
    accumulator, tally = make_accumulator(batch_size=1), Tally("orders")
    counted(tally, accumulator, 3)
    batches = drain_all(accumulator)
    for batch, offset in zip(batches, (9, 3, 4), strict=True):
        end(accumulator, batch, offset=offset)
    assert tally.result().offsets == {0: [(3, 4), (9, 9)]}


def test_offsets_that_the_broker_did_not_tell_are_left_out() -> None:
    accumulator, tally = make_accumulator(), Tally("orders")
    counted(tally, accumulator, 2)
    end(accumulator, the_batch(accumulator), offset=-1)
    assert tally.result() == BatchResult(2, 0, {}, [])


def test_other_topics_are_told_by_name() -> None:
    accumulator, tally = make_accumulator(), Tally("orders")
    counted(tally, accumulator, 1, topic="paid")
    counted(tally, accumulator, 2)
    for batch in drain_all(accumulator):
        end(accumulator, batch, offset=5)
    assert list(tally.result().offsets.items()) == [(0, [(5, 6)]), (TopicPartition("paid", 0), [(5, 5)])]


def test_a_failed_batch_names_rows() -> None:
    """Refused rows count too, and are listed at their index."""
    accumulator, tally = make_accumulator(), Tally("orders")
    counted(tally, accumulator)
    refused = KafkaError("bad")
    tally.refuse(refused)
    delivery = other(accumulator)
    counted(tally, accumulator, 2)
    the_batch(accumulator).fail(KafkaError("no", maybe_written=True), {3: KafkaError("this one")}, True)
    result = tally.result()
    assert (result.acked, result.failed, tally.rows, tally.pending) == (0, 4, 4, 0)
    assert [(row, str(error)) for row, error in result.errors] == [(0, "no"), (1, "bad"), (2, "no"), (3, "this one")]
    assert result.errors[1][1] is refused
    assert [(str(error), records) for error, records in tally.failed_batches()] == [("bad", 1), ("no", 3)]
    assert accumulator.ledger.unobserved_count == 0
    assert delivery.done()


def test_rows_that_follow_each_other_in_a_batch_but_not_in_the_call() -> None:
    """Those between them went to another partition, or were refused."""
    accumulator, tally = make_accumulator(), Tally("orders")
    books = add_topic(accumulator, leaders=[1, 1])
    for partition in 0, 1, 0, None, 0, 0, 1:
        if partition is None:
            tally.refuse(KafkaError("bad"))
        else:
            count_in(put(accumulator, books, partition=partition), tally)
    for batch in drain_all(accumulator):
        if batch.partition == 0:
            batch.fail(KafkaError("no"), None, True)
            accumulator.release(batch)
        else:
            end(accumulator, batch, offset=7)
    result = tally.result()
    assert [(row, str(error)) for row, error in result.errors] == [
        (0, "no"), (2, "no"), (3, "bad"), (4, "no"), (5, "no"),
    ]  # fmt: skip
    assert result.offsets == {1: [(7, 8)]}


def test_what_the_program_brought_about_is_not_reported_after_the_call_was_given_up() -> None:
    """Whether the batch fails before or after: an abort is no news for who asked for it."""
    accumulator, before, after = make_accumulator(), Tally("orders"), Tally("orders")
    counted(before, accumulator, 2)
    counted(after, accumulator, 2)
    after.abandon(accumulator.ledger)
    the_batch(accumulator).fail(KafkaError("aborted"), None, False)
    before.abandon(accumulator.ledger)
    assert (before.failed, accumulator.ledger.unobserved_count) == (2, 0)


def test_a_call_that_wants_no_errors_gets_the_first() -> None:
    tally = Tally("orders", 0)
    errors = [KafkaError("1"), KafkaError("2")]
    for error in errors:
        tally.refuse(error)
    assert tally.result().errors == [(0, errors[0])]


def test_only_the_first_thousand_errors_are_kept() -> None:
    """The errors kept are the first ones."""
    accumulator, tally = make_accumulator(batch_size=1 << 20), Tally("orders")
    late = []
    for number in range(5):
        counted(tally, accumulator, 900)
        (batch,) = drain_all(accumulator)
        if number == 0:
            late.append(batch)
        else:
            batch.fail(KafkaError(f"{number}"), None, True)
    late[0].fail(KafkaError("0"), None, True)
    result = tally.result()
    assert result.failed == 4_500
    assert [(row, str(error)) for row, error in result.errors] == [(row, f"{row // 900}") for row in range(1_000)]


def invalid(text: str) -> KafkaError:
    """The error of a record that the broker named as it refused its batch."""
    error = KafkaError(text)
    error.record_refused = True
    return error


def test_the_records_that_a_broker_refused_are_told_however_many_failed_with_them() -> None:
    """Without their rows nobody could find them: the others of the batch are listed only as far as there is room."""
    accumulator, tally = make_accumulator(batch_size=1 << 20), Tally("orders", 10)
    for first in range(0, 400, 100):
        counted(tally, accumulator, 100)
        (batch,) = drain_all(accumulator)
        refused = {place: invalid(f"row {first + place}") for place in (2, 50, 99)}
        batch.fail(KafkaError("no"), {place: refused.get(place, KafkaError("shared")) for place in range(100)}, True)
        result = tally.result()
        wanted = [row + place for row in range(0, first + 100, 100) for place in (2, 50, 99)][:10]
        told = [row for row, error in result.errors if str(error) == f"row {row}"]
        assert told == wanted
        shared = [row for row, error in result.errors if str(error) == "shared"]
        assert shared == [row for row in range(11) if row != 2][: 10 - len(wanted)]
        assert [row for row, _ in result.errors] == sorted([*wanted, *shared])
    assert result.failed == 400


def test_very_many_records_that_a_broker_refused() -> None:
    """The first ones are told, whatever batch ended first."""
    accumulator, tally = make_accumulator(batch_size=1 << 20), Tally("orders", 10)
    batches = []
    for _ in range(4):
        counted(tally, accumulator, 100)
        batches += drain_all(accumulator)
    for batch in reversed(batches):
        batch.fail(KafkaError("no"), {place: invalid("bad") for place in range(100)}, True)
    assert [row for row, _ in tally.result().errors] == list(range(10))


def test_who_wants_more_errors_gets_them() -> None:
    accumulator, tally = make_accumulator(batch_size=1 << 20), Tally("orders", 1_500)
    counted(tally, accumulator, 1_600)
    for batch in drain_all(accumulator):
        batch.fail(KafkaError("no"), None, True)
    assert [row for row, _ in tally.result().errors] == list(range(1_500))


def test_pieces_of_a_split_batch() -> None:
    """Each piece reports its own records."""
    accumulator, one, two = make_accumulator(), Tally("orders"), Tally("orders")
    for _ in range(20):
        counted(one, accumulator, 3)
        counted(two, accumulator, 2)
    batch = the_batch(accumulator)
    pieces = split(accumulator, batch)
    assert len(pieces) > 1
    assert (one.pending, two.pending) == (60, 40)
    drained = drain_all(accumulator)
    offset = 100
    for piece in drained:
        count = piece.record_count
        end(accumulator, piece, offset=offset)
        offset += count
    assert one.result() == BatchResult(60, 0, {0: [(100 + 5 * n, 102 + 5 * n) for n in range(20)]}, [])
    assert two.result() == BatchResult(40, 0, {0: [(103 + 5 * n, 104 + 5 * n) for n in range(20)]}, [])


@given(st.lists(st.integers(0, 2), min_size=1, max_size=60), st.data())
def test_any_mixture_against_a_plain_count(owners: list[int], data: st.DataObject) -> None:
    """Every row of every call is reported once, with the offset or error of its place in the batches."""
    accumulator = make_accumulator(batch_size=data.draw(st.sampled_from([1, 150, 1000])))
    tallies = [Tally("orders") for _ in range(3)]
    for owner in owners:
        counted(tallies[owner], accumulator)
    places: list[int | None] = []
    for batch in drain_all(accumulator):
        count = batch.record_count
        kind = data.draw(st.sampled_from(["acknowledge", "fail", "split"]))
        if kind == "split" and count > 1:
            split(accumulator, batch)
            for piece in drain_all(accumulator):
                count = piece.record_count
                end(accumulator, piece, offset=len(places))
                places += range(len(places), len(places) + count)
        elif kind == "fail":
            batch.fail(KafkaError("no"), None, True)
            accumulator.release(batch)
            places += [None] * count
        else:
            end(accumulator, batch, offset=len(places))
            places += range(len(places), len(places) + count)
    for number, tally in enumerate(tallies):
        mine = [place for place, owner in zip(places, owners, strict=True) if owner == number]
        acked = [place for place in mine if place is not None]
        result = tally.result()
        told = [offset for first, last in result.offsets.get(0, []) for offset in range(first, last + 1)]
        assert told == acked
        assert [row for row, _ in result.errors] == [row for row, place in enumerate(mine) if place is None]
        assert (result.acked, result.failed, tally.pending) == (len(acked), len(mine) - len(acked), 0)


async def test_the_end_can_be_awaited() -> None:
    """The future is done once nothing is pending, at once if nothing is."""
    loop = asyncio.get_running_loop()
    accumulator, tally = make_accumulator(loop=loop), Tally("orders")
    assert tally.ended(loop).done()
    counted(tally, accumulator, 2)
    ended = tally.ended(loop)
    assert not ended.done()
    end(accumulator, the_batch(accumulator))
    assert ended.done()


async def test_an_abandoned_tally_reports_its_failures() -> None:
    """They will not be seen in a result, so past and future ones are unobserved."""
    accumulator, tally = make_accumulator(loop=asyncio.get_running_loop()), Tally("orders")
    for _ in range(2):
        counted(tally, accumulator, 3)
        the_batch(accumulator).fail(KafkaError("past"), None, True)
    tally.refuse(KafkaError("never admitted"))
    counted(tally, accumulator, 4)
    tally.abandon(accumulator.ledger)
    tally.abandon(accumulator.ledger)
    the_batch(accumulator).fail(KafkaError("to come"), None, True)
    counted(tally, accumulator, 2)
    the_batch(accumulator).fail(KafkaError("brought about"), None, False)
    fresh = [(str(error), records) for error, records in accumulator.ledger.take_fresh()]
    assert fresh == [("past", 3), ("past", 3), ("to come", 4)]


def test_many_failed_batches_take_little_room() -> None:
    """The records of further ones are added to the last separate entry."""
    tally = Tally("orders")
    for number in range(3_000):
        tally.refuse(KafkaError(f"{number}"))
    told = tally.failed_batches()
    assert len(told) == 1_000
    assert sum(records for _, records in told) == 3_000
    assert [str(error) for _, error in tally.result().errors] == [f"{number}" for number in range(1_000)]


def test_a_doubt_beyond_the_failures_that_are_told_apart() -> None:
    """maybe_written is then set in the last entry."""
    tally = Tally("orders")
    for number in range(1_002):
        tally.refuse(KafkaError(f"{number}", maybe_written=number == 1_000))
    error, records = tally.failed_batches()[-1]
    assert (str(error), error.maybe_written, records) == ("1000", True, 3)


@pytest.mark.parametrize("refused_first", [True, False])
async def test_an_abandoned_tally_reports_only_what_was_admitted(refused_first: bool) -> None:
    """Also if refused records and failed batches share the last entry, which a flush raises if it covers all of it."""
    loop = asyncio.get_running_loop()
    accumulator, tally = make_accumulator(loop=loop), Tally("orders")

    def refuse() -> None:
        for _ in range(2_000):
            tally.refuse(KafkaError("never admitted"))

    if refused_first:
        refuse()
    for _ in range(2):
        counted(tally, accumulator, 3)
        the_batch(accumulator).fail(KafkaError("no"), None, True)
    last_serial = accumulator.last_serial
    if not refused_first:
        refuse()
    tally.abandon(accumulator.ledger)
    assert accumulator.ledger.unobserved_count == 6
    early, covering = (
        accumulator.ledger.end_flush(accumulator.ledger.start_flush(), last_serial - less) for less in (1, 0)
    )
    assert [sum(records for _, records in told) for told in (early, covering)] == ([0, 6] if refused_first else [3, 3])


async def test_records_that_have_ended_already() -> None:
    """They are counted at once."""
    accumulator, tally = make_accumulator(loop=asyncio.get_running_loop(), batch_size=1), Tally("orders")
    deliveries = [other(accumulator) for _ in range(3)]
    first, second, third = drain_all(accumulator)
    end(accumulator, first, offset=4)
    second.fail(KafkaError("no"), None, True)
    for delivery in deliveries:
        count_in(delivery, tally)
    assert (tally.acked, tally.failed, tally.pending) == (1, 1, 1)
    end(accumulator, third, offset=5)
    result = tally.result()
    assert (result.offsets, [row for row, _ in result.errors]) == ({0: [(4, 5)]}, [1])
    del deliveries, delivery
    assert accumulator.ledger.unobserved_count == 0
