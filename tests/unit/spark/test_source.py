"""What Spark may ask of the data source."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql.types import StringType, StructType

from aioproducer.errors import ConfigError
from aioproducer.spark import KafkaDataSource

SCHEMA = StructType().add("value", StringType())


@pytest.mark.parametrize(
    "ask",
    [
        lambda source: source.schema(),
        lambda source: source.reader(SCHEMA),
        lambda source: source.streamReader(SCHEMA),
    ],
    ids=["read, or a table without columns", "SELECT", "readStream"],
)
def test_topics_are_not_read(ask: Callable[[KafkaDataSource], object]) -> None:
    """PySpark's own error would be that ``schema`` or ``reader`` is not implemented."""
    with pytest.raises(ConfigError, match=r"only writes .* format\('kafka'\) .* with its columns"):
        ask(KafkaDataSource({}))


def test_a_stream_takes_no_name_of_a_batch_write() -> None:
    """It would be without effect: what is committed is told apart by the checkpoint."""
    options = {"kafka.bootstrap.servers": "localhost:1", "topic": "t", "checkpointLocation": "/checkpoint"}
    given = KafkaDataSource({**options, "transactional.id.prefix": "p", "jobId": "j"})
    with pytest.raises(ConfigError, match="jobId is for batch writes: a stream's micro-batches have names"):
        given.streamWriter(SCHEMA, overwrite=False)
