"""What is known about the cluster: brokers, topics, partitions, leaders.

An answer or a hint is first turned into ``ClusterChanges``, which name the topics that differ, and then adopted. Both
cost as much as the answer is long, however many topics are known: a program may learn ten thousand one by one.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from aioproducer.errors import ProtocolError, error_class
from aioproducer.message_text import excerpt
from aioproducer.protocol.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from aioproducer.protocol.schema import ZERO_UUID
from aioproducer.records import PartitionInfo

NO_LEADER = -1
NO_EPOCH = -1

NO_CLUSTER_IDS = ("", "redpanda.initializing")
"""What a cluster that has no id yet may say in place of it."""

LONGEST_HOST = 255
"""Characters: the limit of DNS names, and more than any address has."""
STEP = 256
"""Topics and partitions, counted together, that are dealt with between two pauses."""

OUTDATED_BELIEVED = 5
"""So many answers in a row with an older leader epoch are believed. A broker that is behind catches up; but the epochs
of a recreated topic begin again, which nothing else shows before Kafka 2.8, and so do those of a cluster restored from
a copy."""

LONGEST_DOUBT_MS = 5_000
"""How long a single broker's word that a usable topic is gone is not believed: a broker that has just started may know
nothing of its topics for seconds."""

MAX_GAP = 1024
"""Slack for gaps: partition numbers in an answer must be below this plus twice their count."""


class Broker(NamedTuple):
    """A broker and its advertised address."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    @classmethod
    def told(cls, node_id: int, host: str, port: int, rack: str | None) -> Broker:
        """A broker as another one reports it; the host goes into messages, so it is cut to the longest valid name.

        An IPv6 address loses its brackets, which Java's resolver ignores too.
        """
        host = excerpt(host, LONGEST_HOST)
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        return cls(node_id, bare, port, rack)


class PartitionState(NamedTuple):
    """One partition; replicas are node ids."""

    partition: int
    leader: int
    """The leader's node id, -1 while there is none."""
    leader_epoch: int
    """Grows with each new leader; -1 if the broker does not report it (before Kafka 2.1)."""
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error_code: int


class Doubt(NamedTuple):
    """The first of the answers in a row that said that a usable topic is gone."""

    node_id: int
    """Which broker gave it; negative if that is not known."""
    since_ms: int

    def is_over(self, node_id: int, now_ms: int) -> bool:
        """Whether the same word from this broker settles the matter."""
        is_another = node_id >= 0 and self.node_id >= 0 and node_id != self.node_id
        return is_another or now_ms >= self.since_ms + LONGEST_DOUBT_MS


@dataclass(frozen=True)
class ClusterTopic:
    """One topic, immutable. It stays the same object as long as nothing about the topic changes.

    Always: ``partitions`` holds the numbers 0 to n-1 in order; it is empty while the topic can't be used.
    """

    name: str
    topic_id: bytes = ZERO_UUID
    """16 bytes, all zero if the broker does not report it (before Kafka 2.8)."""
    partitions: tuple[PartitionState, ...] = ()
    error_code: int = 0
    """From the newest answer; 0 if it had none."""
    outdated: int = 0
    """How many answers in a row named, for some partition, an older leader epoch than the known one."""
    doubt: Doubt | None = None
    """Set while the topic keeps its partitions although the newest answer had an error."""

    @cached_property
    def infos(self) -> tuple[PartitionInfo, ...]:
        """The partitions as users see them."""
        return tuple(
            PartitionInfo(
                self.name,
                each.partition,
                None if each.leader < 0 else each.leader,
                each.replicas,
                each.isr,
                each.offline,
            )
            for each in self.partitions
        )


class LeaderHint(NamedTuple):
    """The leader of a partition that a broker named when it refused a batch (KIP-951)."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int


@dataclass(frozen=True)
class ClusterChanges:
    """What a Cluster is to adopt: all its brokers, and the topics that differ."""

    brokers: Mapping[int, Broker]
    topics: Mapping[str, ClusterTopic | None] = field(default_factory=dict)
    """The new state of each; None: it is forgotten."""

    def parts(self) -> Iterator[ClusterChanges]:
        """These changes in parts that can each be adopted in one turn of the loop; one part at least."""
        topics: dict[str, ClusterTopic | None] = {}
        size = 0
        for name, topic in self.topics.items():
            topics[name] = topic
            size += 1 if topic is None else 1 + len(topic.partitions)
            if size >= STEP:
                yield ClusterChanges(self.brokers, topics)
                topics, size = {}, 0
        if topics or not self.topics:
            yield ClusterChanges(self.brokers, topics)

    def keeping(self, topics: Container[str]) -> ClusterChanges:
        """These changes, forgetting none of these topics."""
        kept = {name: topic for name, topic in self.topics.items() if topic is not None or name not in topics}
        return self if len(kept) == len(self.topics) else replace(self, topics=kept)

    def with_leaders(self, hints: Iterable[LeaderHint]) -> ClusterChanges:
        """These changes, without undoing hints that arrived while they were worked out."""
        hinted = _hinted(self.topics, hints, self.brokers)
        return replace(self, topics={**self.topics, **hinted}) if hinted else self

    def has_news(self, before: Cluster) -> Generator[None, None, bool]:
        """Whether some partition gets a newer leader, or some topic is new or was recreated.

        A generator that pauses every few hundred partitions: an answer may differ in nothing but its replicas in sync.
        """
        done = 0
        for name, new in self.topics.items():
            old = before.topics.get(name)
            if new is None:
                continue
            if old is None or old.topic_id != new.topic_id or len(old.partitions) != len(new.partitions):
                return True
            for count, (a, b) in enumerate(zip(new.partitions, old.partitions, strict=True), 1):
                if a.leader != b.leader or a.leader_epoch > b.leader_epoch:
                    return True
                if not count % STEP:
                    yield
            done += 1 + len(new.partitions) % STEP
            if done >= STEP:
                done = 0
                yield
        return False


class Cluster:
    """The brokers by node id and the topics by name. Only ``adopt`` changes them."""

    def __init__(self) -> None:
        self.brokers: Mapping[int, Broker] = MappingProxyType({})
        self._topics: dict[str, ClusterTopic] = {}
        self.topics: Mapping[str, ClusterTopic] = MappingProxyType(self._topics)

    def partitions(self, topic: str) -> tuple[PartitionInfo, ...] | None:
        """A topic's partitions by number; None while they are unknown."""
        known = self.topics.get(topic)
        return known.infos if known is not None and known.partitions else None

    def leader(self, topic: str, partition: int) -> int:
        """The node id of a partition's leader; -1 if the partition has none or is unknown."""
        known = self.topics.get(topic)
        return known.partitions[partition].leader if known and 0 <= partition < len(known.partitions) else NO_LEADER

    def has_unknown_leader(self, topic: str) -> bool:
        """Whether a leader is not among the brokers: a later answer about other topics may have replaced them."""
        known = self.topics.get(topic)
        return known is not None and any(
            state.leader != NO_LEADER and state.leader not in self.brokers for state in known.partitions
        )

    def without_leaders(self) -> dict[str, ClusterTopic]:
        """The topics as if only their numbers of partitions were known, for another cluster that may have them too."""
        return {
            name: ClusterTopic(name, partitions=tuple(_left_out(each.partition, ()) for each in topic.partitions))
            for name, topic in self.topics.items()
        }

    # --- changes ------------------------------------------------------------------------------------------------------

    def adopt(self, changes: ClusterChanges) -> None:
        self.brokers = changes.brokers
        for name, topic in changes.topics.items():
            if topic is None:
                self._topics.pop(name, None)
            else:
                self._topics[name] = topic

    def changes_by(
        self,
        response: MetadataResponse,
        *,
        node_id: int,
        now_ms: int,
        keep: Iterable[str] | None = None,
        reliable_epochs: bool = True,
    ) -> Generator[None, None, ClusterChanges]:
        """What a broker's answer changes; a generator that pauses every few hundred partitions, for others' turns.

        Args:
            node_id: whose answer it is; negative if that is not known.
            keep: the topics in use, after an answer about all of them; others are forgotten. None keeps all.
            reliable_epochs: False for answers before version 9, whose leader epochs may be stale (Kafka before 2.4).
        """
        kept = None if keep is None else frozenset(keep)
        topics: dict[str, ClusterTopic | None] = {}
        if kept is not None:
            topics.update((name, None) for name in self.topics if name not in kept)
        done = 0
        for answer in response.topics:
            if answer.name and (kept is None or answer.name in kept):
                known = topics.get(answer.name) or self.topics.get(answer.name)
                if answer.error_code:
                    topic = _failed_topic(known, answer.name, answer.error_code, node_id, now_ms)
                else:
                    topic = yield from _merged_topic(known, answer, reliable_epochs)
                if topic is not known:
                    topics[answer.name] = topic
                done += 1 + len(answer.partitions) % STEP
                if done >= STEP:
                    done = 0
                    yield
        return ClusterChanges(brokers_of(response), topics)

    def changes_by_hints(self, hints: Iterable[LeaderHint], brokers: Iterable[Broker] = ()) -> ClusterChanges:
        """What newer leaders change, and the addresses of brokers that came with them.

        A hint counts if its epoch is newer than what is known, and its node is one of the brokers.
        """
        every = {**self.brokers, **{broker.node_id: broker for broker in brokers}}
        known = self.brokers if every == self.brokers else MappingProxyType(every)
        return ClusterChanges(known, _hinted(self.topics, hints, known))


def cluster_id_of(response: MetadataResponse) -> str | None:
    """The id of the cluster that answered; None if it has none, or none yet."""
    return None if response.cluster_id in NO_CLUSTER_IDS else response.cluster_id


def brokers_of(response: MetadataResponse) -> Mapping[int, Broker]:
    """The brokers that an answer names, by node id."""
    brokers = (Broker.told(each.node_id, each.host, each.port, each.rack) for each in response.brokers)
    return MappingProxyType({broker.node_id: broker for broker in brokers})


def _hinted(
    topics: Mapping[str, ClusterTopic | None], hints: Iterable[LeaderHint], brokers: Mapping[int, Broker]
) -> dict[str, ClusterTopic]:
    """Those of the topics for which there are newer leaders."""
    moved: dict[str, dict[int, PartitionState]] = {}
    for topic, partition, leader, leader_epoch in hints:
        known = topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions) or leader not in brokers:
            continue
        states = moved.get(topic, {})
        state = states.get(partition, known.partitions[partition])
        if leader_epoch > state.leader_epoch:
            states[partition] = state._replace(leader=leader, leader_epoch=leader_epoch, error_code=0)
            moved[topic] = states
    return {
        name: replace(known, partitions=tuple(states.get(each.partition, each) for each in known.partitions))
        for name, states in moved.items()
        if (known := topics[name]) is not None
    }


def _merged_topic(
    old: ClusterTopic | None, answer: MetadataResponseTopic, reliable_epochs: bool
) -> Generator[None, None, ClusterTopic]:
    name = answer.name or ""
    same_id = old is not None and old.topic_id == answer.topic_id != ZERO_UUID
    known = () if old is None or _made_again(old.topic_id, answer.topic_id) else old.partitions
    outdated = False
    outdated_count = 1 if old is None else old.outdated + 1
    states: dict[int, PartitionState] = {}
    for count, each in enumerate(answer.partitions, 1):
        before = known[each.partition_index] if 0 <= each.partition_index < len(known) else None
        state = _told(each, reliable_epochs)
        if before is not None and NO_EPOCH < state.leader_epoch < before.leader_epoch:
            outdated = True
            # A broker that is behind would name a former leader.
            state = before if outdated_count < OUTDATED_BELIEVED else state
        states.setdefault(each.partition_index, state)
        if not count % STEP:
            yield
    _check_numbers(name, states)
    topic = ClusterTopic(
        name,
        answer.topic_id,
        _numbered(states, known, at_least=len(known) if same_id else 0),
        outdated=outdated_count if outdated and outdated_count < OUTDATED_BELIEVED else 0,
    )
    return old if old == topic and old is not None else topic


def _failed_topic(old: ClusterTopic | None, name: str, error_code: int, node_id: int, now_ms: int) -> ClusterTopic:
    """A topic for which the answer has an error.

    A retriable one may come from a broker that is behind, e.g. one that has just started; dropping the partitions would
    then turn senders away. It is believed when another broker agrees, or when no other answer came for some time. Until
    then records go to the leaders, which know best.
    """
    if old is None:
        return ClusterTopic(name, error_code=error_code)
    if old.partitions and error_class(error_code).retriable:
        doubt = old.doubt or Doubt(node_id, now_ms)
        if old.doubt is None or not doubt.is_over(node_id, now_ms):
            doubted = replace(old, error_code=error_code, doubt=doubt)
            return old if old == doubted else doubted
    failed = ClusterTopic(name, old.topic_id, error_code=error_code)
    return old if old == failed else failed


def _made_again(old: bytes, new: bytes) -> bool:
    """Whether a topic was deleted and recreated, so that nothing known of its partitions holds."""
    return old not in (new, ZERO_UUID) and new != ZERO_UUID


def _told(answer: MetadataResponsePartition, reliable_epochs: bool) -> PartitionState:
    """A partition as an answer has it."""
    return PartitionState(
        answer.partition_index,
        answer.leader_id if answer.leader_id >= 0 else NO_LEADER,
        answer.leader_epoch if reliable_epochs else NO_EPOCH,
        tuple(answer.replica_nodes),
        tuple(answer.isr_nodes),
        tuple(answer.offline_replicas),
        answer.error_code,
    )


def _check_numbers(topic: str, states: dict[int, PartitionState]) -> None:
    """Partition numbers come off the wire and gaps are filled: one number must not cost a gigabyte."""
    if states and not 0 <= min(states) <= max(states) < MAX_GAP + 2 * len(states):
        raise ProtocolError(
            f"partitions {min(states)} to {max(states)} of topic {topic}, but only {len(states)} of them"
        )


def _numbered(
    states: dict[int, PartitionState], known: tuple[PartitionState, ...], at_least: int
) -> tuple[PartitionState, ...]:
    """The partitions from 0 up.

    A broker that is behind may leave some out. Fewer partitions would send keys elsewhere, so missing ones keep their
    known state, or have no leader if there is none; a topic (same id) never loses partitions.
    """
    count = max(max(states, default=-1) + 1, at_least)
    return tuple(states.get(number) or _left_out(number, known) for number in range(count))


def _left_out(number: int, known: tuple[PartitionState, ...]) -> PartitionState:
    return known[number] if number < len(known) else PartitionState(number, NO_LEADER, NO_EPOCH, (), (), (), 0)
