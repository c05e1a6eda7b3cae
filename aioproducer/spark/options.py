"""SinkOptions: the ``.option(...)`` values, checked while Spark plans the query."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

from aioproducer.config.producer_config import ProducerConfig, without_jvm_only
from aioproducer.errors import ConfigError, InvalidTopicError
from aioproducer.metadata import check_topic_name
from aioproducer.spark.batch_names import in_file_name
from aioproducer.spark.storage import resolved

KAFKA = "kafka."
"""Prefix of a producer config, given by its Java name."""

OPTIONS = {
    "topic": "topic of all rows; overrides the column of that name",
    "deadLetterTopic": "topic for rows that can't be written; without it, such a row fails the write",
    "writer": "arrow (default), or rows: a Python object per row, as PySpark 4.0 has it for streams",
    "idleTimeoutMs": "how long a worker keeps an unused producer; default 600000",
    "transactional.id.prefix": "exactly once, in transactions whose ids start with this; one prefix per query",
    "transactionLog": "directory or URI for the record of what is to be committed; default in the checkpointLocation",
    "jobId": "names a batch write: a write already committed under this name is not repeated",
    "audit": "true marks each record for the delivery audit; default false",
    "auditStatements": "directory or URI for the statements of each write: what an audit is to find",
    "totals": "set by WriteTotals.options",
    "includeHeaders": "accepted, as by Spark's own sink; a column named headers is written in any case",
}
"""Options of the sink by name; Spark ignores their case."""

LOG_DIRECTORY = "aioproducer"
"""In a checkpoint, beside Spark's own directories."""

SPARKS_OWN = ("checkpointLocation", "queryName")
"""Options that Spark's stream writer passes on to the sink."""

REFUSED = {
    "key.serializer": "keys are strings or bytes already",
    "value.serializer": "values are strings or bytes already",
    "transactional.id": "each task needs its own id",
    "on.error": "the outcome of each row is known to the sink",
}
"""Configs of the producer that can't be set here, and why."""

MIN_IDLE_TIMEOUT_MS = 1

MAX_JOB_SIZE = 193
"""Longest jobId in a file name; the log needs the rest of the 255 characters."""

TRANSACTION_TIMEOUT_MS = 900_000
"""How long a task's transaction may stay open after its first row, unless configured: the brokers' default maximum."""


@dataclass(frozen=True, slots=True)
class Transactional:
    """The settings for exactly-once.

    Args:
        prefix: of all transactional ids.
        log: location of the driver's log; no other query uses it.
        job: the jobId of a batch write; None gives each write its own name.
    """

    prefix: str
    log: str = field(repr=False)
    job: str | None = None


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What the tasks need to know; picklable, with no secrets in its repr.

    Args:
        producer: producer configs by dotted name.
        topic: None if the rows have it.
        dead_letter_topic: None: a row that can't be written fails the write.
        arrow: whether columns go to the producer as Arrow data, not row by row.
        idle_timeout_ms: how long a worker keeps an unused producer.
        transactional: None for at-least-once.
        audit: whether records are marked.
        audit_statements: where statements go; None for none.
        totals: a reference to the driver's accumulator; None if not requested.
    """

    producer: Mapping[str, str] = field(repr=False)
    topic: str | None = None
    dead_letter_topic: str | None = None
    arrow: bool = True
    idle_timeout_ms: int = 600_000
    transactional: Transactional | None = None
    audit: bool = False
    audit_statements: str | None = field(default=None, repr=False)
    totals: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        """Parse the options that Spark passes on.

        Args:
            options: names in any case.
        Raises:
            ConfigError: an option is unknown, or its value is not allowed; the message names it.
        """
        own = {name.lower(): value for name, value in options.items() if not name.lower().startswith(KAFKA)}
        producer = _producer_configs(options)
        _check_own(own)
        transactional = _transactional(own)
        if transactional is not None:
            producer = {"transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS), **producer}
        _check_producer(producer, transactional)
        audit = _one_of("audit", own.get("audit", "false"), ("true", "false")) == "true"
        if "auditstatements" in own and not audit:
            raise ConfigError("option auditStatements is for the delivery audit: it needs option audit=true")
        return cls(
            producer=producer,
            topic=_topic("topic", own.get("topic")),
            dead_letter_topic=_topic("deadLetterTopic", own.get("deadlettertopic")),
            arrow=_one_of("writer", own.get("writer", "arrow"), ("arrow", "rows")) == "arrow",
            idle_timeout_ms=_number("idleTimeoutMs", own.get("idletimeoutms", "600000"), MIN_IDLE_TIMEOUT_MS),
            transactional=transactional,
            audit=audit,
            audit_statements=resolved(own["auditstatements"], "auditStatements") if "auditstatements" in own else None,
            totals=own.get("totals"),
        )


def _topic(name: str, topic: str | None) -> str | None:
    """Strip and check a topic, like Spark's own sink; else the first bad row would find a dead-letter topic invalid."""
    if topic is None:
        return None
    try:
        check_topic_name(topic := topic.strip())
    except InvalidTopicError as error:
        raise ConfigError(f"option {name}: {error}") from None
    return topic


def _producer_configs(options: Mapping[str, str]) -> dict[str, str]:
    """The producer's configs, without those for the JVM: Spark's own source and sink may share these options."""
    configs: dict[str, str] = {}
    names: dict[str, str] = {}
    for name, value in options.items():
        if name.lower().startswith(KAFKA):
            dotted = name[len(KAFKA) :].replace("_", ".")
            if dotted in configs:
                raise ConfigError(f"option {KAFKA}{dotted} is given twice: as {names[dotted]} and as {name}")
            configs[dotted], names[dotted] = value, name
    return without_jvm_only(configs, "options of the write")


def _check_own(own: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in (*OPTIONS, *SPARKS_OWN)}
    for name, value in own.items():
        if known.get(name) in OPTIONS and not value.strip():  # a directory's name may be spaces
            raise ConfigError(f"option {known[name]} is empty")
        if name in known or name.startswith("spark."):
            continue
        # Don't ignore a misspelled option: it may be the one meant to make the write exactly-once.
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {known[near[0]]}?" if near else ""
        raise ConfigError(f"unknown option {name!r}{hint} (options: {', '.join(OPTIONS)}, and {KAFKA}* configs)")


def _transactional(own: Mapping[str, str]) -> Transactional | None:
    prefix, log, job = own.get("transactional.id.prefix"), own.get("transactionlog"), own.get("jobid")
    if prefix is None:
        for name, value in (("transactionLog", log), ("jobId", job)):
            if value is not None:
                raise ConfigError(f"option {name} is for transactions: it needs option transactional.id.prefix")
        return None
    if job is not None:
        _check_job(job)
    checkpoint = own.get("checkpointlocation")
    if log is None and checkpoint is None:
        raise ConfigError(
            "option transactional.id.prefix needs option transactionLog: a directory, for this query alone, where the "
            "driver records what it is going to commit"
        )
    if log is not None:
        return Transactional(prefix, resolved(log, "transactionLog"), job)
    return Transactional(prefix, f"{resolved(str(checkpoint), 'checkpointLocation')}/{LOG_DIRECTORY}", job)


def _check_job(job: str) -> None:
    """Refuse a jobId too long for the log, which would fail only after all rows are sent."""
    size = len(in_file_name(job))
    if size > MAX_JOB_SIZE:
        raise ConfigError(
            f"option jobId takes {size} characters in the name of a file, of at most {MAX_JOB_SIZE}: each byte of a "
            "character other than A to Z, a to z, digits, _, - and ~ takes 3"
        )


def _check_producer(producer: Mapping[str, str], transactional: Transactional | None) -> None:
    if "bootstrap.servers" not in producer:
        raise ConfigError(
            f"option {KAFKA}bootstrap.servers is missing: the addresses of the brokers. Options must be given with the "
            "write; Spark does not pass on those of a table"
        )
    for name, why in REFUSED.items():
        if name in producer:
            raise _refused(producer, name, why)
    transactions = {} if transactional is None else {"transactional.id": transactional.prefix}
    if ProducerConfig.parse_dotted({**producer, **transactions}).acks == 0:
        raise _refused(producer, "acks", "the sink has to know how each row ended")


def _refused(producer: Mapping[str, str], name: str, why: str) -> ConfigError:
    return ConfigError(f"option {KAFKA}{name}={producer[name]} is not supported: {why}")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value.lower() not in allowed:
        raise ConfigError(f"option {name}={value!r}: must be one of {', '.join(allowed)}")
    return value.lower()


def _number(name: str, value: str, least: int) -> int:
    try:
        number = int(value)
    except ValueError:
        number = least - 1
    if number < least:
        raise ConfigError(f"option {name}={value!r}: must be a whole number, at least {least}")
    return number
