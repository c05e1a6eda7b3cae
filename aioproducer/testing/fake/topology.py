"""Brokers, topics and partitions of the cluster model. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from aioproducer.testing.fake.batches import BatchLimits
from aioproducer.testing.fake.partition_log import PartitionLog

NO_LEADER = -1
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)


def is_topic_name(name: str) -> bool:
    """Whether a topic may have this name."""
    return bool(_NAME.fullmatch(name)) and name not in (".", "..")


@dataclass(slots=True)
class Broker:
    """One broker.

    Attributes:
        up: whether it runs. One that does not takes no connection and leads nothing.
    """

    node_id: int
    host: str
    port: int
    rack: str | None = None
    up: bool = True


@dataclass(slots=True)
class Partition:
    """One partition; ``leader`` is NO_LEADER during an election."""

    index: int
    replicas: list[int]
    isr: list[int]
    leader: int
    leader_epoch: int
    log: PartitionLog


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The configs that a topic obeys."""

    limits: BatchLimits
    min_insync_replicas: int

    def with_overrides(self, configs: Mapping[str, object]) -> TopicConfig:
        """These, with others set by their Kafka names. Configs that the model knows nothing of have no effect."""
        limits, min_insync_replicas = self.limits, self.min_insync_replicas
        for name, value in configs.items():
            text = str(value)
            if name == "max.message.bytes":
                limits = replace(limits, max_message_bytes=int(text))
            elif name == "segment.bytes":
                limits = replace(limits, segment_bytes=int(text))
            elif name == "cleanup.policy":
                limits = replace(limits, compacted="compact" in text)
            elif name == "message.timestamp.type":
                limits = replace(limits, log_append_time=text == "LogAppendTime")
            elif name == "message.timestamp.before.max.ms":
                limits = replace(limits, timestamp_before_ms=int(text))
            elif name == "message.timestamp.after.max.ms":
                limits = replace(limits, timestamp_after_ms=int(text))
            elif name == "min.insync.replicas":
                min_insync_replicas = int(text)
        return TopicConfig(limits, min_insync_replicas)


@dataclass(slots=True)
class Topic:
    """One topic. Made again under the same name it is another topic, with another id."""

    name: str
    topic_id: bytes
    config: TopicConfig
    partitions: list[Partition] = field(default_factory=list)

    def partition(self, index: int) -> Partition | None:
        """The partition of this number, None if there is none."""
        return self.partitions[index] if 0 <= index < len(self.partitions) else None
