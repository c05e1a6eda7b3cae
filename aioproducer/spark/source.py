"""KafkaDataSource: the data source behind ``format("aioproducer")``."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from aioproducer.errors import ConfigError
from aioproducer.spark import driver
from aioproducer.spark.columns import check_columns
from aioproducer.spark.options import SinkOptions
from aioproducer.spark.task import Sink
from aioproducer.spark.writer import batch_writer, stream_writer


class KafkaDataSource(DataSource):
    """Writes DataFrames and streams to Kafka topics, with the columns and options of Spark's own Kafka sink.

    Register it once per session: ``spark.dataSource.register(KafkaDataSource)``. Options are in docs/spark.md.
    """

    _ends_a_batch = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Spark creates a new data source to plan each batch, and unpickles a copy of the first one to end it. By then
        # the batch's transactions are open, and nothing may be settled.
        self.__dict__.update(state)
        self._ends_a_batch = True

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "aioproducer"

    def schema(self) -> NoReturn:
        """Called by Spark for a read, and for a table that is created without columns."""
        raise _writes_only()

    def reader(self, schema: StructType) -> NoReturn:
        """Called by Spark for a query of a table."""
        raise _writes_only()

    def streamReader(self, schema: StructType) -> NoReturn:
        """Called by Spark for a stream from a table."""
        raise _writes_only()

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Called by Spark while it plans a batch write."""
        if overwrite:
            raise ConfigError("a topic can't be overwritten: use mode('append')")
        return batch_writer(driver.prepare(replace(self._sink(schema), write=uuid.uuid4().hex)))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Called by Spark before the tasks of each micro-batch, and again to commit or abort it."""
        sink = replace(self._sink(schema), is_stream=True)
        if sink.options.transactional is not None and sink.options.transactional.job is not None:
            raise ConfigError(
                "option jobId is for batch writes: a stream's micro-batches have names of their own, by its checkpoint"
            )
        return stream_writer(sink if self._ends_a_batch else driver.prepare(sink))

    def _sink(self, schema: StructType) -> Sink:
        options = SinkOptions.parse(self.options)
        return Sink(options, check_columns(schema, options.topic))


def _writes_only() -> ConfigError:
    return ConfigError(
        "aioproducer only writes to topics; Spark's own format('kafka') reads them. A table to write to is created "
        "with its columns"
    )
