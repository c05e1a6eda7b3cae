"""One partition: its replicas, each with a log of its own, and who leads them. Pure.

Theory of operation. The leader writes, and the other replicas copy it at once, unless their brokers are down or copy
nothing for now. What all replicas in sync have is committed: a producer with acks=all gets its answer then, also if its
batch was there before. When another replica becomes the leader, the others drop what it does not have. That loses
nothing that was committed, as long as the new leader was in sync.

A broker that is cut off from the controller goes on as the leader that it was (a zombie), although the partition has
another one. Nobody copies from it and its replicas in sync stay what they were, so nothing of what it writes is ever
committed, unless it was the only one in sync. It drops that once it learns of its successor.

Unlike in Kafka, a replica drops what its new leader lacks as soon as it has one, not with its first Fetch.

Source: Partition, ReplicaManager and ReplicaFetcherThread of Kafka 4.3; KIP-101, KIP-279.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from aioproducer.testing.fake.broker import Broker
from aioproducer.testing.fake.partition_log import LogEntry, PartitionLog

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class Leadership:
    """What a broker knows that leads a partition, or thinks it does."""

    epoch: int
    isr: tuple[int, ...]


class Partition:
    """See the module.

    Attributes:
        leader: NO_LEADER during an election.
        isr: the replicas in sync.
        logs: by node id.

    Args:
        brokers: the cluster's, always current.
        new_log: makes an empty log.
    """

    def __init__(
        self, index: int, replicas: Sequence[int], brokers: Mapping[int, Broker], new_log: Callable[[int], PartitionLog]
    ) -> None:
        self.index = index
        self.replicas: list[int] = list(replicas)
        self.isr: list[int] = [one for one in replicas if brokers[one].alive] or [replicas[0]]
        self.leader: int = self.isr[0] if brokers[self.isr[0]].alive else NO_LEADER
        self.leader_epoch: int = 0
        self.logs: dict[int, PartitionLog] = {node_id: new_log(0) for node_id in replicas}
        self._brokers = brokers
        self._new_log = new_log
        self._latest_leader = self.isr[0]
        self._zombies: dict[int, Leadership] = {}

    @property
    def log(self) -> PartitionLog:
        """The leader's log; during an election that of the last leader."""
        return self.logs[self._latest_leader]

    def leadership_of(self, node_id: int) -> Leadership | None:
        """What a broker knows that leads the partition, or thinks it does; None for all others."""
        if node_id == self.leader:
            return Leadership(self.leader_epoch, tuple(self.isr))
        return self._zombies.get(node_id)

    def is_committed(self, entry: LogEntry) -> bool:
        """Whether the leader has this entry, and knows it to be at all replicas in sync."""
        return self.log.holds(entry) and self.log.high_watermark >= entry.end_offset

    # --- copying

    def replicate(self, node_id: int) -> None:
        """A broker that leads has written: the others copy what they can, and what all in sync have is committed."""
        if node_id == self.leader:
            for follower in self._followers():
                self.logs[follower].follow(self.log)
            self.log.high_watermark = max(self.log.high_watermark, min(self.logs[one].end_offset for one in self.isr))
        elif self._zombies[node_id].isr == (node_id,):
            self.logs[node_id].high_watermark = self.logs[node_id].end_offset

    def catch_up(self) -> None:
        """Replicas that copy again are in sync again."""
        if self.leader == NO_LEADER:
            return
        self.replicate(self.leader)
        self.isr += [one for one in self._followers() if one not in self.isr]

    def _followers(self) -> list[int]:
        return [one for one in self.replicas if one != self.leader and self._brokers[one].copies]

    # --- leaders

    def lead(self, leader: int) -> None:
        """Give the partition another leader, or none."""
        if leader == self.leader:
            return
        self.leader = leader
        self.leader_epoch += 1
        if leader == NO_LEADER:
            return
        self._latest_leader = leader
        for node_id in self.replicas:
            if self._brokers[node_id].alive:
                self.logs[node_id].drop_what_is_not_in(self.log)
        self.replicate(leader)

    def leave(self, node_id: int) -> None:
        """A broker has stopped, or the controller hears nothing of it: it neither leads nor is in sync any more.

        The last one in sync stays so: nobody else has everything.
        """
        if self.leader == node_id:
            self.lead(NO_LEADER)
        if node_id in self.isr and len(self.isr) > 1:
            self.isr.remove(node_id)
            if self.leader != NO_LEADER:
                self.replicate(self.leader)

    def cut_off(self, node_id: int) -> None:
        """The same, but the broker goes on as what it was."""
        leadership = self.leadership_of(node_id)
        self.leave(node_id)
        if leadership is not None:
            self._zombies[node_id] = leadership

    def give_up(self, node_id: int) -> None:
        """A broker no longer takes itself for the leader if it is not."""
        self._zombies.pop(node_id, None)

    # --- records

    def delete_before(self, offset: int) -> None:
        """Drop the records before an offset; a replica that is not that far begins again there."""
        self.log.delete_before(offset)
        for node_id, log in self.logs.items():
            if log is self.log:
                continue
            if offset <= log.end_offset:
                log.delete_before(max(offset, log.start_offset))
            else:
                self.logs[node_id] = self._new_log(offset)
