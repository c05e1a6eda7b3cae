"""A topic from a producer's view: does it exist, may it be written to, can its leaders take records, and do they.

The checks change nothing; ``write`` is a separate step, only on request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from aioproducer.config.producer_config import ProducerConfig
from aioproducer.doctor.findings import Finding, Status, Step, said_by
from aioproducer.errors import (
    ClusterAuthorizationFailedError,
    InvalidTimestampError,
    InvalidTopicError,
    KafkaError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    error_class,
)
from aioproducer.message_text import excerpt, listed
from aioproducer.metadata import check_topic_name
from aioproducer.net.connection import Connection
from aioproducer.producer import Producer
from aioproducer.protocol import describe_configs
from aioproducer.protocol.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from aioproducer.protocol.metadata import (
    UNKNOWN_OPERATIONS,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aioproducer.records import RecordMetadata
from aioproducer.version import VERSION

WRITE_OPERATION = 4
"""Its bit in the allowed operations reported by a broker."""
NUMBERS = ("min.insync.replicas", "max.message.bytes")
CONFIGS = (*NUMBERS, "message.timestamp.type", "compression.type", "cleanup.policy")
AUTO_CREATE = "auto.create.topics.enable"

MARK = "aioproducer-doctor"
"""Key and header name of the record written by ``write``."""
PROBE = b"written by aioproducer doctor"
SKEW_MS = 2_000
"""Warn about clocks that differ by more."""

Emit = Callable[[Finding], None]
T = TypeVar("T")


def only(connection: Connection, question: str, answers: Sequence[T]) -> T:
    """The answer to a question about one thing.

    Raises:
        ProtocolError: there is none, or there are several; the connection ends.
    """
    if len(answers) != 1:
        raise connection.nonsense(f"{question} got {len(answers)} answers")
    return answers[0]


class NotTold(Exception):
    """A broker does not report configs: this user may not see them, or the broker can't describe them."""


async def topic_configs(connection: Connection, topic: str) -> dict[str, str | None]:
    """Some of a topic's configs, by name.

    Raises:
        NotTold: the reason.
        KafkaError: the connection was lost, or the answer is nonsense.
    """
    resource = DescribeConfigsResource(
        resource_type=describe_configs.TOPIC, resource_name=topic, configuration_keys=list(CONFIGS)
    )
    try:
        response = await connection.request(DescribeConfigsRequest(resources=[resource]))
    except UnsupportedVersionError:
        raise NotTold("the broker does not support DescribeConfigs") from None
    result = only(connection, f"DescribeConfigs for {topic!r}", response.results)
    if result.error_code:
        kind = error_class(result.error_code)
        allow = ": allow DESCRIBE_CONFIGS to see them" if "AUTHORIZATION" in kind.name else ""
        raise NotTold(f"{kind.name}{allow}")
    configs = {each.name: each.value for each in result.configs}
    for name in NUMBERS:
        value = configs.get(name) or "0"
        try:
            int(value)
        except ValueError:
            raise connection.nonsense(f"DescribeConfigs for {topic!r} got {name}={excerpt(value)}") from None
    return configs


async def look(connection: Connection, config: ProducerConfig, topic: str, emit: Emit) -> bool:
    """Check a topic; returns whether records can be written to it.

    Raises:
        KafkaError: the connection was lost, or an answer is nonsense.
    """
    try:
        check_topic_name(topic)
    except InvalidTopicError:
        emit(_impossible(topic))
        return False
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=connection.version(MetadataRequest) >= 8,
    )
    response = await connection.request(request)
    found = only(connection, f"Metadata for {topic!r}", response.topics)
    if found.error_code:
        makes_itself = await _makes_itself(connection, [each.node_id for each in response.brokers])
        emit(_not_usable(topic, found, config, makes_itself))
        return False
    partitions = sorted(found.partitions, key=lambda each: each.partition_index)
    try:
        configs = await topic_configs(connection, topic)
    except NotTold as reason:
        configs = {}
        emit(Finding(Step.TOPIC, topic, Status.NOTE, f"its configs are not available: {reason}"))
    findings = _of_rights(topic, found)
    findings += of_partitions(topic, partitions, configs, config)
    findings += of_configs(topic, configs, config)
    for finding in findings:
        emit(finding)
    failed = any(each.status is Status.FAILED for each in findings)
    if not failed:
        emit(Finding(Step.TOPIC, topic, Status.OK, _described(partitions, configs), facts=_facts(partitions, configs)))
    return not failed


async def _makes_itself(connection: Connection, nodes: Sequence[int]) -> bool | None:
    """Whether brokers create requested topics; None if none tells.

    Each knows only its own configs, and which one this connection leads to is not known: the others answer with errors.
    """
    resources = [
        DescribeConfigsResource(
            resource_type=describe_configs.BROKER, resource_name=str(node), configuration_keys=[AUTO_CREATE]
        )
        for node in nodes
    ]
    try:
        response = await connection.request(DescribeConfigsRequest(resources=resources))
    except KafkaError:
        return None
    configs = [each for result in response.results if not result.error_code for each in result.configs]
    told = [each.value for each in configs if each.name == AUTO_CREATE]
    return told[0] == "true" if told else None


def _not_usable(topic: str, found: MetadataResponseTopic, config: ProducerConfig, makes_itself: bool | None) -> Finding:
    error = error_class(found.error_code)
    facts = {"error": error.name}
    if error is UnknownTopicOrPartitionError:
        if makes_itself and config.allow_auto_create_topics:
            message = "it does not exist; this cluster creates topics when they are first used"
            return Finding(Step.TOPIC, topic, Status.WARNING, message, "create it with the partitions it needs", facts)
        why = {True: ", and allow_auto_create_topics=False", False: f", and brokers have {AUTO_CREATE}=false", None: ""}
        advice = "create it, or check its name for typing errors; a user without DESCRIBE on it gets the same answer"
        message = f"it does not exist{why[makes_itself]}"
        return Finding(Step.TOPIC, topic, Status.FAILED, message, advice, facts)
    if error is TopicAuthorizationFailedError:
        advice = "allow this user WRITE on it (which includes DESCRIBE): kafka-acls --add --producer --topic ..."
        return Finding(Step.TOPIC, topic, Status.FAILED, "this user may not see it", advice, facts)
    if error is InvalidTopicError:
        return _impossible(topic)
    return Finding(Step.TOPIC, topic, Status.FAILED, f"{error.name}: {error.meaning}", "check the brokers", facts)


def _impossible(topic: str) -> Finding:
    advice = "use up to 249 letters, digits, dots, _ and -"
    facts = {"error": InvalidTopicError.name}
    return Finding(Step.TOPIC, topic, Status.FAILED, "no topic can have this name", advice, facts)


def _of_rights(topic: str, found: MetadataResponseTopic) -> list[Finding]:
    allowed = found.topic_authorized_operations
    if allowed == UNKNOWN_OPERATIONS or allowed >> WRITE_OPERATION & 1:
        return []
    advice = "allow this user WRITE on it: kafka-acls --add --producer --topic ..."
    return [Finding(Step.TOPIC, topic, Status.FAILED, "this user may see it, but not write to it", advice)]


def of_partitions(
    topic: str,
    partitions: list[MetadataResponsePartition],
    configs: Mapping[str, str | None],
    config: ProducerConfig,
) -> list[Finding]:
    """What prevents partitions from taking records, now or soon. Pure."""
    found = []
    leaderless = [each.partition_index for each in partitions if each.leader_id < 0]
    if leaderless:
        message = f"{_partitions(leaderless)} no leader"
        advice = "bring back the brokers that have their replicas: " + _brokers(
            {node for each in partitions if each.leader_id < 0 for node in each.replica_nodes}
        )
        found.append(Finding(Step.TOPIC, topic, Status.FAILED, message, advice, {"leaderless": leaderless}))
    least = int(configs.get("min.insync.replicas") or 0)
    short = [each for each in partitions if each.leader_id >= 0 and len(each.isr_nodes) < least]
    if short and config.acks == -1:
        numbers = [each.partition_index for each in short]
        missing = {node for each in short for node in each.replica_nodes if node not in each.isr_nodes}
        message = f"{_partitions(numbers)} fewer in-sync replicas than min.insync.replicas={least}: acks=all is refused"
        if any(len(each.replica_nodes) < least for each in short):
            advice = "lower min.insync.replicas, or give the topic more replicas: it has fewer than that in total"
        else:
            advice = "bring these replicas back in sync: " + _brokers(missing)
        found.append(Finding(Step.TOPIC, topic, Status.FAILED, message, advice, {"short": numbers}))
    behind = [
        each.partition_index
        for each in partitions
        if each.leader_id >= 0 and each not in short and len(each.isr_nodes) < len(each.replica_nodes)
    ]
    if behind:
        message = f"{_partitions(behind)} replicas that are not in sync"
        advice = "check these brokers: " + _brokers(
            {node for each in partitions for node in each.replica_nodes if node not in each.isr_nodes}
        )
        found.append(Finding(Step.TOPIC, topic, Status.WARNING, message, advice, {"behind": behind}))
    return found


def of_configs(topic: str, configs: Mapping[str, str | None], config: ProducerConfig) -> list[Finding]:
    """Topic configs that conflict with the producer's. Pure."""
    found = []

    def warn(message: str, advice: str) -> None:
        found.append(Finding(Step.TOPIC, topic, Status.WARNING, message, advice))

    largest = int(configs.get("max.message.bytes") or 0)
    if largest and largest < config.batch_size:
        warn(
            f"its max.message.bytes={largest} is below batch_size={config.batch_size}: "
            "larger batches are refused, then split",
            f"set batch_size={largest} or less, or raise max.message.bytes",
        )
    codec = configs.get("compression.type") or "producer"
    own = "uncompressed" if config.compression_type == "none" else config.compression_type
    if codec not in ("producer", own):
        warn(
            f"its compression.type={codec} differs from this producer's ({config.compression_type}): "
            "brokers recompress every batch",
            f"set compression_type={'none' if codec == 'uncompressed' else codec}, or compression.type=producer",
        )
    return found


def _partitions(numbers: list[int]) -> str:
    return f"partition {numbers[0]} has" if len(numbers) == 1 else f"partitions {listed(numbers)} have"


def _brokers(nodes: set[int]) -> str:
    return ", ".join(f"node {each}" for each in sorted(nodes)) or "unknown"


def _described(partitions: list[MetadataResponsePartition], configs: Mapping[str, str | None]) -> str:
    copies = sorted({len(each.replica_nodes) for each in partitions})
    count = len(partitions)
    many = "partition" if count == 1 else "partitions"
    replicas = f"{' or '.join(map(str, copies))} replica{'' if copies == [1] else 's'}"
    shown = f"{count} {many}, {replicas} each, all with a leader"
    told = ", ".join(f"{name}={configs[name]}" for name in CONFIGS[:3] if configs.get(name))
    return f"{shown}; {told}" if told else shown


def _facts(partitions: list[MetadataResponsePartition], configs: Mapping[str, str | None]) -> dict[str, Any]:
    return {
        "partitions": [
            {
                "partition": each.partition_index,
                "leader": each.leader_id,
                "replicas": list(each.replica_nodes),
                "isr": list(each.isr_nodes),
            }
            for each in partitions
        ],
        "configs": dict(configs),
    }


# --- writing ----------------------------------------------------------------------------------------------------------

_NOT_FOR_A_PROBE = frozenset(
    (
        "transactional_id",
        "key_serializer",
        "value_serializer",
        *("partitioner_class", "partitioner"),
        *("interceptor_classes", "interceptors"),
        "on_error",
    )
)
"""Configs that would fence one of the user's producers, or run user code; some have two names."""


async def write(config: ProducerConfig, given: Mapping[str, Any], topic: str, timeout_s: float, emit: Emit) -> None:
    """Write one marked record through a separate producer, and report its outcome and the clocks.

    Without acknowledgements there would be nothing to report, so acks=0 becomes acks=1.
    """
    wanted = {name: value for name, value in given.items() if name.replace(".", "_") not in _NOT_FOR_A_PROBE}
    if config.acks == 0:
        wanted["acks"] = 1
    producer = Producer(**wanted)
    sent_ms = answered_ms = 0
    try:
        async with asyncio.timeout(timeout_s):
            await producer.start()
            await producer.partitions_for(topic)
            sent_ms, began = _now_ms(), time.perf_counter()
            written = await producer.send(
                topic,
                PROBE,
                key=MARK,
                headers={MARK: VERSION.encode()},
                timestamp_ms=sent_ms,
            )
            took_ms, answered_ms = (time.perf_counter() - began) * 1000, _now_ms()
    except TimeoutError as error:
        message = str(error) if isinstance(error, KafkaError) else f"no acknowledgement within {timeout_s:g} s"
        advice = "check the partition's leader and its in-sync replicas; the record may still be written"
        emit(Finding(Step.WRITE, topic, Status.FAILED, message, advice))
    except KafkaError as error:
        emit(_refused(topic, error))
    else:
        facts = {"partition": written.partition, "offset": written.offset, "took_ms": round(took_ms, 2)}
        at = f"partition {written.partition}, offset {written.offset}"
        asked = " when asked with acks=1" if config.acks == 0 else ""
        message = f"one record was acknowledged{asked} after {took_ms:.1f} ms: {at}"
        emit(Finding(Step.WRITE, topic, Status.OK, message, facts=facts))
        emit(of_clocks(topic, written, sent_ms, answered_ms))
    finally:
        await producer.close(timeout=0)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _refused(topic: str, error: KafkaError) -> Finding:
    message, advice = said_by(error)
    if isinstance(error, TopicAuthorizationFailedError):
        advice = "allow this user WRITE on the topic: kafka-acls --add --producer --topic ..."
    elif isinstance(error, ClusterAuthorizationFailedError):
        advice = "allow this user IDEMPOTENT_WRITE on the cluster, or set enable_idempotence=False"
    elif isinstance(error, InvalidTimestampError):
        advice = "compare the clocks of this machine and of the brokers: the record carries this machine's time"
    return Finding(Step.WRITE, topic, Status.FAILED, message, advice, {"error": error.name})


def of_clocks(topic: str, written: RecordMetadata, sent_ms: int, answered_ms: int) -> Finding:
    """The difference between the leader's clock and ours, if the leader stamps records with its own time. Pure.

    Its timestamp was taken between our request and its answer, which limits the precision.
    """
    if written.timestamp_ms == sent_ms:
        return Finding(
            Step.CLOCK, topic, Status.NOTE, "not compared: a broker shows its time only in records of topics with "
            "message.timestamp.type=LogAppendTime; this one keeps the producer's",
        )  # fmt: skip
    skew_ms = written.timestamp_ms - (sent_ms + answered_ms) / 2
    unsure_ms = (answered_ms - sent_ms) / 2 + 1
    facts = {"skew_ms": round(skew_ms), "plus_or_minus_ms": round(unsure_ms)}
    side = "ahead of" if skew_ms > 0 else "behind"
    message = (
        f"the broker's clock is {abs(skew_ms):.0f} ms {side} this machine's, give or take {unsure_ms:.0f} ms, going by "
        "the record's timestamp"
    )
    if abs(skew_ms) - unsure_ms < SKEW_MS:
        return Finding(Step.CLOCK, topic, Status.OK, message, facts=facts)
    advice = (
        "synchronize both clocks with NTP: certificates, tokens and tickets depend on them, and brokers refuse records "
        "that are more than message.timestamp.after.max.ms ahead"
    )
    return Finding(Step.CLOCK, topic, Status.WARNING, message, advice, facts)
