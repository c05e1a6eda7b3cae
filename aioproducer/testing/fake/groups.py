"""Consumer groups of the cluster model, only for producers: offsets committed in transactions. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from aioproducer.error_codes import Code
from aioproducer.errors import broker_error

TopicPartition = tuple[str, int]
OFFSETS_TOPIC = "__consumer_offsets"
OFFSETS_PARTITIONS = 50


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The offset of the next record to consume; the leader epoch is -1 if none was given."""

    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""


@dataclass(slots=True)
class Group:
    """One group. If it has no members, any client that claims no membership may commit."""

    generation_id: int = -1
    members: dict[str, str | None] = field(default_factory=dict)
    """The group instance id of each member, by member id."""
    offsets: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    pending: dict[int, dict[TopicPartition, CommittedOffset]] = field(default_factory=dict)
    """What open transactions will commit, by producer id."""

    def check(self, generation_id: int, member_id: str, group_instance_id: str | None) -> None:
        """Check that this member may commit now.

        Raises:
            BrokerError: the answer to the client.
        """
        if not self.members and generation_id >= 0:
            raise broker_error(Code.ILLEGAL_GENERATION)
        if generation_id < 0 and (not self.members or (not member_id and group_instance_id is None)):
            return
        if group_instance_id is not None and group_instance_id in self.members.values():
            if self.members.get(member_id) != group_instance_id:
                raise broker_error(Code.FENCED_INSTANCE_ID)
        elif group_instance_id is not None or member_id not in self.members:
            raise broker_error(Code.UNKNOWN_MEMBER_ID)
        if generation_id != self.generation_id:
            raise broker_error(Code.ILLEGAL_GENERATION)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply or drop a transaction's pending offsets."""
        offsets = self.pending.pop(producer_id, {})
        if committed:
            self.offsets.update(offsets)


def offsets_partition(group_id: str) -> int:
    """The partition of ``__consumer_offsets`` for a group, by Java's hash of its id."""
    value = 0
    for unit in range(0, len(encoded := group_id.encode("utf-16-be")), 2):
        value = (31 * value + int.from_bytes(encoded[unit : unit + 2], "big")) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >= 1 << 31 else value
    return (abs(signed) if signed != -(1 << 31) else 0) % OFFSETS_PARTITIONS
