"""DataFrames and streams to Kafka from PySpark: ``format("aioproducer")``.

    spark.dataSource.register(KafkaDataSource)
    df.write.format("aioproducer").option("kafka.bootstrap.servers", ...).option("topic", ...).mode("append").save()

Needs the extra ``spark``. See docs/spark.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.extras import ModuleGetattr, on_demand

if TYPE_CHECKING:
    from aioproducer.spark.environment import connector_jars as connector_jars
    from aioproducer.spark.environment import java_home as java_home
    from aioproducer.spark.environment import local_session as local_session
    from aioproducer.spark.errors import SchemaError as SchemaError
    from aioproducer.spark.errors import SparkWriteError as SparkWriteError
    from aioproducer.spark.outcome import Outcome as Outcome
    from aioproducer.spark.source import KafkaDataSource as KafkaDataSource
    from aioproducer.spark.totals import WriteTotals as WriteTotals

_HOMES = {
    "KafkaDataSource": "source",
    "Outcome": "outcome",
    "SchemaError": "errors",
    "SparkWriteError": "errors",
    "WriteTotals": "totals",
    "connector_jars": "environment",
    "java_home": "environment",
    "local_session": "environment",
}

__all__ = sorted(_HOMES)


# Each part is imported on first use: the environment must be usable before PySpark starts Java.
__getattr__: ModuleGetattr = on_demand(__name__, _HOMES, "spark")
