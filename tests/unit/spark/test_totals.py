"""The totals of a write, without a Spark."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.accumulators import Accumulator

from aioproducer.errors import ConfigError
from aioproducer.records import TopicPartition
from aioproducer.spark import Outcome, WriteTotals


def test_spark_connect_has_no_totals() -> None:
    """Its session has no sparkContext: Spark's own error says nothing of what to do."""
    session: Any = SimpleNamespace()
    with pytest.raises(ConfigError, match="Spark Connect does not have; the driver's log has"):
        WriteTotals(session)


def test_what_was_read_stays_as_it_was() -> None:
    """A program compares totals, or iterates over them while tasks end."""
    session: Any = SimpleNamespace(
        sparkContext=SimpleNamespace(accumulator=lambda value, param: Accumulator(1, value, param))
    )
    totals = WriteTotals(session)
    place = TopicPartition("t", 0)
    for first in (0, 10):
        before = totals.value
        kept = copy.deepcopy(before)
        totals._accumulator.add(Outcome(records=10, offsets={place: [(first, first + 9)]}))
        assert before == kept
    assert totals.value == Outcome(records=20, offsets={place: [(0, 19)]})
