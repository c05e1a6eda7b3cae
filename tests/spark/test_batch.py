"""DataFrames into topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException

from aioproducer.records import TopicPartition
from aioproducer.spark import WriteTotals
from aioproducer.testing import KafkaCluster
from tests.spark.readers import read_all, values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

MakeTopic = Callable[..., str]


@pytest.fixture(params=["arrow", "rows"])
def way(request: pytest.FixtureRequest) -> str:
    """How rows are written: by columns, or row by row."""
    return request.param


def writer(rows: DataFrame, kafka: KafkaCluster, way: str = "arrow", **options: str) -> DataFrameWriter:
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    return rows.write.format("aioproducer").mode("append").options(writer=way, **servers, **options)


def test_every_column_arrives(spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, way: str) -> None:
    """Strings and binary, nulls, headers in order, the given partition, timestamps of any kind."""
    name = topic(3)
    rows: list[tuple[Any, ...]] = [
        ("k", b"\x00v", name, 2, [("h", b"1"), ("h", None)], datetime(2013, 1, 1, 5, 15, 0, 999_999, tzinfo=UTC)),
        ("ä", None, name, 0, None, datetime(1970, 1, 1, tzinfo=UTC)),
        (None, b"", name, 1, [], datetime(2024, 2, 29, tzinfo=UTC)),
    ]
    ddl = (
        "key string, value binary, topic string, partition int, "
        "headers array<struct<key: string, value: binary>>, timestamp timestamp"
    )
    writer(spark.createDataFrame(rows, ddl), kafka, way).save()
    found = {record.partition: record for record in read_all(kafka, name)}
    assert [found[number].key for number in range(3)] == ["ä".encode(), None, b"k"]
    assert [found[number].value for number in range(3)] == [None, b"", b"\x00v"]
    assert [found[number].headers for number in range(3)] == [(), (), (("h", b"1"), ("h", None))]
    assert [found[number].timestamp_ms for number in range(3)] == [0, 1_709_164_800_000, 1_357_017_300_999]


def test_a_string_is_its_utf8_form(spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, way: str) -> None:
    name = topic()
    writer(spark.createDataFrame([("☃",), ("",)], "value string").coalesce(1), kafka, way, topic=name).save()
    assert values(kafka, name) == ["☃".encode(), b""]


def test_rows_of_a_task_keep_their_order(spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, way: str) -> None:
    name = topic()
    rows = spark.range(0, 50_000, 1, 1).selectExpr("CAST(id AS STRING) AS value")
    totals = WriteTotals(spark)
    writer(rows, kafka, way, topic=name, **totals.options).save()
    assert [int(value or b"") for value in values(kafka, name)] == list(range(50_000))
    assert totals.value.records == 50_000
    assert totals.value.bytes == sum(len(str(number)) for number in range(50_000))
    assert totals.value.offsets == {TopicPartition(name, 0): [(0, 49_999)]}


def test_many_tasks_and_topics_add_up(spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, way: str) -> None:
    names = [topic(2), topic(2)]
    rows = spark.range(0, 10_000, 1, 4).selectExpr(
        "CAST(id AS STRING) AS value", f"IF(id % 3 = 0, '{names[0]}', '{names[1]}') AS topic"
    )
    totals = WriteTotals(spark)
    writer(rows, kafka, way, **totals.options).save()
    for number, name in enumerate(names):
        expected = Counter(str(one).encode() for one in range(10_000) if (one % 3 != 0) == bool(number))
        assert Counter(values(kafka, name)) == expected
    written = sum(last - first + 1 for ranges in totals.value.offsets.values() for first, last in ranges)
    assert written == totals.value.records == 10_000


def test_the_option_topic_wins_over_the_column(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, way: str
) -> None:
    name, unused = topic(), topic()
    rows = spark.createDataFrame([("v", unused)], "value string, topic string")
    writer(rows, kafka, way, topic=name).save()
    assert values(kafka, name) == [b"v"]
    assert values(kafka, unused) == []


def test_what_was_read_from_a_topic_can_be_written_to_another(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, way: str
) -> None:
    source, target = topic(2), topic(2)
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    rows = spark.range(100).selectExpr("CAST(id AS STRING) AS key", "CAST(id * id AS STRING) AS value")
    rows.write.format("kafka").options(**servers).option("topic", source).save()
    read = spark.read.format("kafka").options(**servers).option("subscribe", source).option("includeHeaders", True)
    writer(read.load(), kafka, way, topic=target).save()
    facts = [
        Counter((one.partition, one.key, one.value, one.timestamp_ms) for one in read_all(kafka, name))
        for name in (source, target)
    ]
    assert facts[0] == facts[1]
    assert sum(facts[0].values()) == 100


@pytest.mark.parametrize(
    ("ddl", "options", "message"),
    [
        ("value bigint", {"topic": "t"}, "column value must be string or binary, not bigint"),
        ("key string", {"topic": "t"}, "column value is missing"),
        ("value string", {}, "neither an option topic nor a column topic"),
        (
            "value string, headers array<string>",
            {"topic": "t"},
            "column headers must be array<struct<key: string, value: binary>>, not array<string>",
        ),
        ("value string", {"topic": "t", "toppic": "x"}, "unknown option 'toppic'; did you mean topic?"),
        ("value string", {"topic": ""}, "option topic is empty"),
        ("value string", {"topic": "t", "kafka.linger.ms": "soon"}, "linger_ms"),
    ],
    ids=["type", "missing", "topic", "headers", "option", "empty", "config"],
)
def test_what_is_wrong_is_said_while_spark_plans(
    spark: SparkSession, kafka: KafkaCluster, ddl: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(AnalysisException) as caught:
        writer(spark.createDataFrame([], ddl), kafka, **options).save()
    assert message in str(caught.value)


def test_topics_are_not_overwritten(spark: SparkSession, kafka: KafkaCluster) -> None:
    with pytest.raises(AnalysisException, match="use mode\\('append'\\)"):
        writer(spark.createDataFrame([("v",)], "value string"), kafka, topic="t").mode("overwrite").save()


def test_a_row_that_is_too_large_fails_the_write(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, way: str
) -> None:
    rows = spark.range(0, 10, 1, 1).selectExpr("repeat('x', IF(id = 7, 2000000, 1)) AS value")
    with pytest.raises(PySparkException, match=r"row 7 of partition 0: RecordTooLargeError.*option deadLetterTopic"):
        writer(rows, kafka, way, topic=topic()).save()


def test_bad_rows_become_dead_letters(spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, way: str) -> None:
    """Rows refused by the producer and rows refused by the broker; all others are written."""
    compacted, dead = topic(cleanup_policy="compact"), topic()
    rows = spark.range(0, 2_500, 1, 1).selectExpr(
        "IF(id = 3, NULL, CAST(id AS STRING)) AS key", "repeat('x', IF(id = 2007, 2000000, 1)) AS value"
    )
    totals = WriteTotals(spark)
    writer(rows, kafka, way, topic=compacted, deadLetterTopic=dead, **totals.options).save()
    assert {one.key for one in read_all(kafka, compacted)} == {str(n).encode() for n in range(2_500)} - {b"3", b"2007"}
    letters = {dict(one.headers)["aioproducer.row"]: one for one in read_all(kafka, dead)}
    assert set(letters) == {b"0:3", b"0:2007"}
    assert dict(letters[b"0:3"].headers)["aioproducer.error"] == b"InvalidRecordError"
    assert dict(letters[b"0:2007"].headers)["aioproducer.error"] == b"RecordTooLargeError"
    assert (totals.value.records, totals.value.dead_letters) == (2_498, 2)


def test_a_row_that_no_topic_would_take_becomes_a_dead_letter(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, way: str
) -> None:
    """Nor would the dead-letter topic: headers say what is wrong."""
    name, dead = topic(), topic()
    rows = spark.createDataFrame(
        [
            ("good", None, None),
            ("future", datetime(9000, 1, 1, tzinfo=UTC), None),
            ("1969", datetime(1969, 12, 31, tzinfo=UTC), None),
            ("no header", None, [None]),
            ("no name", None, [("h", b"1"), (None, b"2")]),
        ],
        "value string, timestamp timestamp, headers array<struct<key: string, value: binary>>",
    )
    writer(rows.coalesce(1), kafka, way, topic=name, deadLetterTopic=dead).save()
    assert values(kafka, name) == [b"good"]
    letters = {one.value: dict(one.headers) for one in read_all(kafka, dead)}
    assert letters[b"future"]["aioproducer.timestamp"] == b"221845392000000"
    assert letters[b"1969"]["aioproducer.timestamp"] == b"-86400000"
    assert letters[b"no header"]["aioproducer.header"] is None
    assert (letters[b"no name"]["h"], letters[b"no name"]["aioproducer.header"]) == (b"1", b"2")


def test_a_header_that_is_null_is_told_by_its_row(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, way: str
) -> None:
    rows = spark.createDataFrame(
        [("v", []), ("w", [None])], "value string, headers array<struct<key: string, value: binary>>"
    )
    with pytest.raises(PySparkException, match=r"row 1 of partition 0: SerializationError: .*header"):
        writer(rows.coalesce(1), kafka, way, topic=topic()).save()


def test_rows_of_a_refused_batch_are_written_as_they_are(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic
) -> None:
    """Even values that Python can't represent: a string that is not UTF-8, milliseconds that were taken for seconds."""
    compacted, dead = topic(cleanup_policy="compact"), topic()
    rows = spark.range(0, 4, 1, 1).selectExpr(
        "IF(id = 1, NULL, CAST(id AS STRING)) AS key",
        "IF(id = 2, CAST(X'FFFE' AS STRING), 'v') AS value",
        "timestamp_seconds(IF(id = 3, 1767225600000, 1)) AS timestamp",
    )
    writer(rows, kafka, topic=compacted, deadLetterTopic=dead).save()
    assert [(one.key, one.value) for one in read_all(kafka, compacted)] == [(b"0", b"v"), (b"2", b"\xff\xfe")]
    letters = {dict(one.headers)["aioproducer.row"]: dict(one.headers) for one in read_all(kafka, dead)}
    assert letters[b"0:1"]["aioproducer.error"] == b"InvalidRecordError"
    assert letters[b"0:3"]["aioproducer.timestamp"] == b"1767225600000000"


def test_a_string_that_is_not_utf_8_is_told_by_the_row_writer(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic
) -> None:
    """By columns it is written unchanged: see test_rows_of_a_refused_batch_are_written_as_they_are."""
    rows = spark.range(0, 1, 1, 1).selectExpr("CAST(X'FFFE' AS STRING) AS value")
    with pytest.raises(PySparkException, match=r"SparkWriteError: partition 0, from row 0 on: .*writer=arrow"):
        writer(rows, kafka, "rows", topic=topic()).save()
