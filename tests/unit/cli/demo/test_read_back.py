"""The comparison finds every kind of damage; a demo that can't fail would prove nothing."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

import pytest

from aioproducer.cli.demo.flights import Flight
from aioproducer.cli.demo.publish import Published
from aioproducer.cli.demo.read_back import Comparison, Log, Verdict

FLIGHTS: list[Flight] = [
    (b"A", b"a1", 1),
    (b"B", b"b1", 2),
    (b"A", b"a2", 3),
    (None, b"n1", 4),
    (b"B", b"b2", 5),
    (None, b"n2", 6),
]
PLACES = [(0, 0), (1, 0), (0, 1), (1, 1), (1, 2), (0, 2)]
"""Partition and offset of each record."""


class Stored(NamedTuple):
    """A record in the log."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


LOG = sorted(Stored(*place, *flight) for place, flight in zip(PLACES, FLIGHTS, strict=True))


def acked(places: Iterable[tuple[int, int]]) -> Published:
    """The acknowledged partitions and offsets."""
    partitions, offsets = zip(*places, strict=True)
    zeros = array("d", bytes(8 * len(partitions)))
    return Published(zeros, zeros, array("i", partitions), array("q", offsets))


def compare(log: list[Stored], places: Iterable[tuple[int, int]] = PLACES) -> Verdict:
    """The verdict on a log of two partitions."""
    ends = [1 + max((one.offset for one in log if one.partition == partition), default=-1) for partition in (0, 1)]
    comparison = Comparison(FLIGHTS, Log(acked(places), ends))
    for record in log:
        comparison.add(*record)
    return comparison.verdict


def changed(partition: int, offset: int, change: Callable[[Stored], Stored]) -> list[Stored]:
    """The log with one record changed."""
    return [change(one) if (one.partition, one.offset) == (partition, offset) else one for one in LOG]


def wrong(verdict: Verdict) -> dict[str, int]:
    """The names of the checks that failed."""
    return {check: count for check, count in verdict.broken.items() if count}


def test_a_log_as_sent_passes() -> None:
    verdict = compare(LOG)
    assert verdict.good
    assert verdict.records == len(FLIGHTS)


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ({"value": b"other"}, "values"),
        ({"value": None}, "values"),
        ({"key": b"other"}, "keys"),
        ({"key": None}, "keys"),
        ({"timestamp_ms": 7}, "timestamps"),
    ],
)
def test_each_part_of_a_record_is_compared(change: dict[str, object], check: str) -> None:
    damaged = changed(1, 2, lambda one: one._replace(**change))
    verdict = compare(damaged)
    assert not verdict.good
    assert wrong(verdict)[check] == 1


def test_a_duplicate_is_a_record_that_no_ack_names() -> None:
    twice = [*LOG, Stored(1, 3, b"B", b"b2", 5)]
    verdict = compare(sorted(twice))
    assert wrong(verdict) == {"acks": 1}
    assert verdict.records == len(FLIGHTS) + 1


def test_a_lost_record_is_an_ack_that_names_no_place() -> None:
    verdict = compare([one for one in LOG if (one.partition, one.offset) != (1, 2)])
    assert wrong(verdict) == {"acks": 1}


def test_an_ack_without_a_place_is_wrong() -> None:
    assert wrong(compare(LOG, [*PLACES[:-1], (0, -1)])) == {"acks": 2}
    assert wrong(compare(LOG, [*PLACES[:-1], (7, 0)])) == {"acks": 2}


def test_two_acks_of_one_place_are_wrong() -> None:
    assert wrong(compare(LOG, [*PLACES[:-1], PLACES[0]])) == {"acks": 2}


def test_the_order_of_a_key_is_checked() -> None:
    swapped = [(0, 1), PLACES[1], (0, 0), *PLACES[3:]]
    log = sorted(Stored(*place, *flight) for place, flight in zip(swapped, FLIGHTS, strict=True))
    assert wrong(compare(log, swapped)) == {"order per key": 1}


def test_a_key_in_two_partitions_has_no_order() -> None:
    scattered = [(0, 0), (1, 0), (1, 1), (1, 2), (1, 3), (0, 1)]
    log = sorted(Stored(*place, *flight) for place, flight in zip(scattered, FLIGHTS, strict=True))
    assert wrong(compare(log, scattered)) == {"order per key": 1}


def test_the_keyless_may_be_anywhere_but_keep_the_order_of_a_partition() -> None:
    together = [*PLACES[:3], (0, 3), PLACES[4], (0, 2)]
    together[4] = (1, 1)
    log = sorted(Stored(*place, *flight) for place, flight in zip(together, FLIGHTS, strict=True))
    assert wrong(compare(log, together)) == {"order per key": 1}


def test_the_verdict_of_nothing_wrong_is_good() -> None:
    assert replace(Verdict(), records=3).good
