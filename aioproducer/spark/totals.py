"""WriteTotals: what the tasks have written, available in the program that runs the query."""

from __future__ import annotations

import base64
import pickle
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.accumulators import AccumulatorParam

from aioproducer.errors import ConfigError
from aioproducer.spark.outcome import Outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class _OutcomeParam(AccumulatorParam[Outcome]):
    def zero(self, value: Outcome) -> Outcome:
        return Outcome()

    def addInPlace(self, value1: Outcome, value2: Outcome) -> Outcome:
        # A new one: the program may keep the former, or be reading it in another thread.
        both = replace(value1, offsets=dict(value1.offsets))
        both.add(value2)
        return both


class WriteTotals:
    """Adds up what the tasks of one or more writes have written to Kafka.

        totals = WriteTotals(spark)
        df.write.format("aioproducer").options(**totals.options, **others).mode("append").save()
        totals.value.records

    It is a Spark accumulator: each task counts once, when it succeeds, even while a stream runs. Not for Spark Connect,
    which has no accumulators; there, the driver's log has the same summary.
    """

    def __init__(self, spark: SparkSession) -> None:
        if not hasattr(spark, "sparkContext"):
            raise ConfigError(
                "WriteTotals needs an accumulator, which Spark Connect does not have; the driver's log has a line for "
                "each batch"
            )
        self._accumulator = spark.sparkContext.accumulator(Outcome(), _OutcomeParam())

    @property
    def options(self) -> dict[str, str]:
        """The options to pass to ``.options(...)`` of the writer."""
        return {"totals": base64.b64encode(pickle.dumps(self._accumulator)).decode("ascii")}

    @property
    def value(self) -> Outcome:
        """The totals so far."""
        return self._accumulator.value


def count_in(totals: str | None, outcome: Outcome) -> None:
    """Add a task's outcome to the accumulator that ``WriteTotals.options`` refers to; called in the task."""
    if totals is not None:
        # Unpickled in a worker it is a new accumulator with the same id; Spark sends its sum back with the task.
        pickle.loads(base64.b64decode(totals)).add(outcome)
