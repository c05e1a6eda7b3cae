"""Topics of the cluster model, and their configs. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from aioproducer.error_codes import Code
from aioproducer.errors import broker_error
from aioproducer.testing.fake.batches import BatchLimits
from aioproducer.testing.fake.partition import Partition

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1
SMALLEST_SEGMENT = 14
"""The minimum before Kafka 4.0. The later one, 1 MiB, would be much for a test to fill."""
TOPIC_CONFIGS = frozenset(
    {
        "cleanup.policy",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "index.interval.bytes",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    }
)
"""The topic configs of Kafka's newest version."""
_POLICIES = ("compact", "delete")
_TIMES = ("CreateTime", "LogAppendTime")
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


def is_topic_name(name: str) -> bool:
    """Whether a topic may have this name."""
    return bool(_NAME.fullmatch(name)) and name not in (".", "..")


def metric_name(topic: str) -> str:
    """A topic's name in metrics, unique within a cluster.

    Source: Topic.unifyCollisionChars.
    """
    return topic.replace(".", "_")


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic's effective configs."""

    limits: BatchLimits
    min_insync_replicas: int

    def with_overrides(self, configs: Mapping[str, object]) -> TopicConfig:
        """A copy with overrides, by Kafka name. Some of Kafka's configs have no effect in the model.

        Raises:
            InvalidConfigError: Kafka has no such topic config, or the value is not allowed.
        """
        limits, min_insync_replicas = self.limits, self.min_insync_replicas
        for name, value in configs.items():
            if name == "max.message.bytes":
                limits = replace(limits, max_message_bytes=_integer(name, value, 0))
            elif name == "segment.bytes":
                limits = replace(limits, segment_bytes=_integer(name, value, SMALLEST_SEGMENT))
            elif name == "cleanup.policy":
                policies = [_choice(name, policy.strip(), _POLICIES) for policy in str(value).split(",")]
                limits = replace(limits, compacted="compact" in policies)
            elif name == "message.timestamp.type":
                limits = replace(limits, log_append_time=_choice(name, str(value), _TIMES) == "LogAppendTime")
            elif name == "message.timestamp.before.max.ms":
                limits = replace(limits, timestamp_before_ms=_integer(name, value, 0, MAX_LONG))
            elif name == "message.timestamp.after.max.ms":
                limits = replace(limits, timestamp_after_ms=_integer(name, value, 0, MAX_LONG))
            elif name == "min.insync.replicas":
                min_insync_replicas = _integer(name, value, 1)
            elif name not in TOPIC_CONFIGS:
                raise broker_error(Code.INVALID_CONFIG, f"Unknown topic config name: {name}")
        return TopicConfig(limits, min_insync_replicas)


def _integer(name: str, value: object, least: int, most: int = MAX_INT) -> int:
    number = int(text) if _INTEGER.fullmatch(text := str(value).strip()) else None
    if number is None or not -most - 1 <= number <= most:
        problem = f"Not a number of type {'INT' if most == MAX_INT else 'LONG'}"
    elif number < least:
        problem = f"Value must be at least {least}"
    else:
        return number
    raise broker_error(Code.INVALID_CONFIG, f"Invalid value {value} for configuration {name}: {problem}")


def _choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        allowed = ", ".join(choices)
        raise broker_error(
            Code.INVALID_CONFIG, f"Invalid value {value} for configuration {name}: must be one of {allowed}"
        )
    return value


@dataclass(slots=True)
class Topic:
    """One topic. Recreated under the same name it is another topic, with another id.

    Attributes:
        overrides: configs set for it, by name; ``config`` is the result.
    """

    name: str
    topic_id: bytes
    config: TopicConfig
    overrides: dict[str, object] = field(default_factory=dict)
    partitions: list[Partition] = field(default_factory=list)

    def partition(self, index: int) -> Partition | None:
        """The partition with this number; None if there is none."""
        return self.partitions[index] if 0 <= index < len(self.partitions) else None
