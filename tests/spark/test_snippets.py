"""Every Python block about Spark in the documentation runs, with the session, tables and streams that it names."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer.testing import KafkaCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "docs" / "spark.md", ROOT / "docs" / "audit.md"]
ROWS = 20
PATIENCE_S = 120


def spark_blocks() -> list[Any]:
    found = []
    for page in PAGES:
        blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
        for number, block in enumerate(blocks, 1):
            if re.search(r"\b(spark|df|stream)\.|\(spark\b|\bspark,", block):
                marks = [pytest.mark.slow] if "audit_topics" in block else []  # takes as long as all others together
                found.append(pytest.param(block, id=f"{page.relative_to(ROOT)}-{number}", marks=marks))
    return found


@pytest.mark.parametrize("code", spark_blocks())
def test_it_runs(
    code: str, spark: SparkSession, kafka: KafkaCluster, topic: Callable[..., str], tmp_path: Path
) -> None:
    """Blocks write all rows of the table, of the stream, or of both; the audit reads records written for it."""
    orders = topic()
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    source = tmp_path / "source"
    numbers = spark.range(ROWS, numPartitions=2)
    rows = numbers.selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
    rows.write.parquet(str(source))
    code = code.replace("localhost:9092", kafka.bootstrap_servers).replace('"orders"', f'"{orders}"')
    code = re.sub(r"(hdfs://)?/(audit|checkpoints)/", f"{tmp_path}/", code).replace('"64"', '"2"')
    if "audit_topics" in code:
        options = {**servers, "topic": orders, "audit": "true", "auditStatements": f"{tmp_path}/orders"}
        rows.write.format("aioproducer").options(**options).mode("append").save()
    stream = spark.readStream.schema(rows.schema).parquet(str(source))
    names: dict[str, Any] = {
        "spark": spark,
        "df": numbers if "df.selectExpr" in code else rows,
        "stream": stream,
        "servers": servers,
    }
    exec(compile(code, "snippet", "exec"), names)
    for query in spark.streams.active:
        query.processAllAvailable()
        query.stop()
        query.awaitTermination(PATIENCE_S)
    times = sum(bool(re.search(each, code)) for each in (r"\bdf\.", r"\bstream\.", "audit_topics"))
    assert kafka.end_offsets(orders)[0] >= times * ROWS


def test_sql(spark: SparkSession, kafka: KafkaCluster, topic: Callable[..., str]) -> None:
    """The topic's table has no options, so those of the write must reach the data source."""
    orders = topic()
    (code,) = re.findall(r"^```sql\n(.*?)^```$", (ROOT / "docs" / "spark.md").read_text(), re.MULTILINE | re.DOTALL)
    code = code.replace("localhost:9092", kafka.bootstrap_servers).replace("'orders'", f"'{orders}'")
    spark.range(ROWS).selectExpr("CAST(id AS STRING) AS key", "'v' AS value").createOrReplaceTempView("orders")
    try:
        for statement in code.strip().rstrip(";").split(";\n"):
            spark.sql(statement)
    finally:
        spark.sql("DROP TABLE IF EXISTS orders_topic")
    assert kafka.end_offsets(orders) == {0: ROWS}
