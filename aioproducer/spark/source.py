"""KafkaDataSource: what ``format("aioproducer")`` is."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from aioproducer.errors import ConfigError
from aioproducer.spark.columns import check_columns
from aioproducer.spark.options import SinkOptions
from aioproducer.spark.writer import Sink, batch_writer, stream_writer


class KafkaDataSource(DataSource):
    """Writes DataFrames and streams to Kafka topics, with the columns and options of Spark's own Kafka sink.

    Register it once a session: ``spark.dataSource.register(KafkaDataSource)``. Options are in docs/spark.md.
    """

    @classmethod
    def name(cls) -> str:
        """For ``format``."""
        return "aioproducer"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Called by Spark while it plans a batch write."""
        if overwrite:
            raise ConfigError("a topic can't be overwritten: mode('append') is needed")
        return batch_writer(self._sink(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Called by Spark for each micro-batch, and again to commit it."""
        return stream_writer(self._sink(schema))

    def _sink(self, schema: StructType) -> Sink:
        options = SinkOptions.parse(self.options)
        return Sink(options, check_columns(schema, options.topic))
