"""Options of the sink: which are valid, and which are refused before anything runs."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path

import pytest

from aioproducer.errors import ConfigError
from aioproducer.spark.batch_names import batch_write
from aioproducer.spark.commit_log import CommitLog, Winners
from aioproducer.spark.options import SinkOptions, Transactional
from aioproducer.spark.storage import Storage

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def test_what_is_not_said_is_as_sparks_own_sink_has_it() -> None:
    options = SinkOptions.parse(SERVERS)
    assert options.producer == {"bootstrap.servers": "localhost:9092"}
    assert (options.topic, options.dead_letter_topic, options.totals) == (None, None, None)
    assert options.arrow
    assert options.idle_timeout_ms == 600_000


def test_names_come_in_any_case() -> None:
    """Spark passes the names in lower case."""
    given = {**SERVERS, "TOPIC": " a ", "deadlettertopic": "b\n", "Writer": "ROWS", "idleTimeoutMs": "5"}
    options = SinkOptions.parse(given)
    assert (options.topic, options.dead_letter_topic, options.arrow, options.idle_timeout_ms) == ("a", "b", False, 5)


@pytest.mark.parametrize("name", ["checkpointLocation", "queryName", "includeHeaders", "spark.some.config"])
def test_what_spark_passes_on_is_taken(name: str) -> None:
    SinkOptions.parse({**SERVERS, name: "true"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "kafka.bootstrap.servers is missing: .* Spark does not pass on those of a table"),
        ({**SERVERS, "deadLeterTopic": "x"}, "'deadletertopic'; did you mean deadLetterTopic?"),
        ({**SERVERS, "path": "x"}, "unknown option 'path'"),
        ({**SERVERS, "writer": "columns"}, "option writer='columns': must be one of arrow, rows"),
        ({**SERVERS, "idleTimeoutMs": "0"}, "option idleTimeoutMs='0': must be a whole number, at least 1"),
        ({**SERVERS, "idleTimeoutMs": "soon"}, "option idleTimeoutMs='soon'"),
        ({**SERVERS, "kafka.compresion.type": "lz4"}, "compression_type|compression.type"),
        ({**SERVERS, "kafka.linger.ms": "-1"}, "linger_ms"),
        ({**SERVERS, "kafka.key.serializer": "x"}, "kafka.key.serializer=x is not supported"),
        ({**SERVERS, "kafka.transactional.id": "x"}, "each task needs its own id"),
        ({**SERVERS, "kafka.acks": "0"}, "kafka.acks=0 is not supported"),
        ({**SERVERS, "kafka.acks": " 0"}, "kafka.acks= 0 is not supported"),
        ({**SERVERS, "kafka.linger.ms": "1", "kafka.linger_ms": "2"}, "as kafka.linger.ms and as kafka.linger_ms"),
        ({**SERVERS, "topic": ""}, "option topic is empty"),
        ({**SERVERS, "deadlettertopic": ""}, "option deadLetterTopic is empty"),
        ({**SERVERS, "topic": "my orders"}, "option topic: 'my orders' is not a valid topic name: 1 to 249 letters"),
        ({**SERVERS, "topic": " "}, "option topic is empty"),
        ({**SERVERS, "deadlettertopic": "bad/rows"}, "option deadLetterTopic: 'bad/rows' is not a valid topic name"),
        ({**SERVERS, "transactional.id.prefix": "p"}, "needs option transactionLog"),
        ({**SERVERS, "transactional.id.prefix": "", "transactionLog": "/x"}, "transactional.id.prefix is empty"),
        ({**SERVERS, "transactional.id.prefix": "p", "transactionLog": " "}, "option transactionLog is empty"),
        ({**SERVERS, "transactional.id.prefix": "\t", "transactionLog": "/x"}, "transactional.id.prefix is empty"),
        ({**SERVERS, "audit": "true", "auditStatements": "\n"}, "option auditStatements is empty"),
        ({**SERVERS, "transactionLog": "/x"}, "option transactionLog is for transactions"),
        ({**SERVERS, "jobId": "x"}, "option jobId is for transactions"),
        (
            {**SERVERS, "transactional.id.prefix": "p", "transactionLog": "/x", "kafka.enable.idempotence": "false"},
            "enable_idempotence",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_error_names_the_option(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SinkOptions.parse(options)


def test_it_pickles_and_its_repr_has_no_secrets() -> None:
    options = SinkOptions({"sasl.password": "hidden!"}, topic="t")
    assert pickle.loads(pickle.dumps(options)) == options
    assert "hidden!" not in repr(options)
    place = "s3://key:hidden!@bucket/place"
    given = {**SERVERS, "transactional.id.prefix": "p", "transactionLog": place, "audit": "true"}
    assert "hidden!" not in repr(SinkOptions.parse({**given, "auditStatements": place}))


def test_transactions_have_their_log_in_the_checkpoint() -> None:
    given = {**SERVERS, "transactional.id.prefix": "p", "checkpointLocation": "/checkpoints/q/"}
    options = SinkOptions.parse(given)
    assert options.transactional == Transactional("p", "/checkpoints/q/aioproducer")
    assert options.producer["transaction.timeout.ms"] == "900000"
    assert "transactional.id" not in options.producer
    chosen = SinkOptions.parse({**given, "transactionLog": "s3://b/log", "kafka.transaction.timeout.ms": "60000"})
    assert chosen.transactional == Transactional("p", "s3://b/log")
    assert chosen.producer["transaction.timeout.ms"] == "60000"
    job = SinkOptions.parse(
        {**SERVERS, "transactional.id.prefix": "p", "transactionLog": "/log", "jobId": "2013-01-01"}
    )
    assert job.transactional == Transactional("p", "/log", "2013-01-01")


def test_statements_of_an_audit_need_the_audit() -> None:
    options = SinkOptions.parse({"kafka.bootstrap.servers": "x:1", "Audit": "TRUE", "auditStatements": "/s"})
    assert (options.audit, options.audit_statements) == (True, "/s")
    assert not SinkOptions.parse({"kafka.bootstrap.servers": "x:1"}).audit
    for wrong, match in (({"audit": "yes"}, "audit='yes'"), ({"auditStatements": "/s"}, "needs option audit=true")):
        with pytest.raises(ConfigError, match=match):
            SinkOptions.parse({"kafka.bootstrap.servers": "x:1", **wrong})


def test_options_of_sparks_own_source_may_name_classes_of_the_jvm(caplog: pytest.LogCaptureFixture) -> None:
    """One dict of options serves both; the mechanism itself is this package's."""
    caplog.set_level(logging.INFO)
    given = {
        "kafka.bootstrap.servers": "x:1",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "AWS_MSK_IAM",
        "kafka.sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
        "kafka.sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
        "kafka.metric_reporters": "x.Y",
    }
    options = SinkOptions.parse(given)
    assert list(options.producer) == ["bootstrap.servers", "security.protocol", "sasl.mechanism", "sasl.jaas.config"]
    assert caplog.messages == [
        "options of the write: ignored configs that only a JVM can use: "
        "sasl.client.callback.handler.class, metric.reporters"
    ]


def test_configs_may_have_names_with_underscores() -> None:
    """They are stored by their dotted names, so that none can be given twice."""
    given = {"kafka.bootstrap_servers": "x:1", "transactional.id.prefix": "p", "transactionLog": "/log"}
    options = SinkOptions.parse({**given, "kafka.transaction_timeout_ms": "60000"})
    assert options.producer == {"bootstrap.servers": "x:1", "transaction.timeout.ms": "60000"}


@pytest.mark.parametrize(("longest", "longer"), [("x" * 193, "x" * 194), ("ü" * 32, "ü" * 33), ("." * 64, "." * 65)])
def test_a_job_is_named_as_the_log_can_write_it_down(tmp_path: Path, longest: str, longer: str) -> None:
    """Otherwise the write would fail after all rows are sent."""
    exactly_once = {**SERVERS, "transactional.id.prefix": "p", "transactionLog": str(tmp_path)}
    options = SinkOptions.parse({**exactly_once, "jobId": longest})
    assert options.transactional is not None
    log = CommitLog(Storage(options.transactional.log))
    batch = batch_write(options.transactional.job)
    log.record(Winners(batch, ()))
    log.finish(batch)
    assert log.is_committed(batch)
    assert log.unfinished() == []
    with pytest.raises(ConfigError, match="in the name of a file, of at most 193"):
        SinkOptions.parse({**exactly_once, "jobId": longer})
