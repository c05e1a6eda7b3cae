"""Which broker coordinates which transactional id or group, and their state. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping

from aioproducer.errors import CoordinatorLoadInProgressError, InvalidProducerEpochError, NotCoordinatorError
from aioproducer.testing.fake.broker import Broker
from aioproducer.testing.fake.groups import OFFSETS_TOPIC, Group, offsets_partition
from aioproducer.testing.fake.partition import NO_LEADER
from aioproducer.testing.fake.topology import Topic
from aioproducer.testing.fake.transactions import Transaction, Transactions

V2 = 2


class Coordinators:
    """The coordinators of a cluster. A broker that starts or stops moves only the keys it gets or had.

    Args:
        brokers, topics: the cluster's, always current.
        new_producer_id: takes one from the block of a broker.
        transaction_version: the cluster's level of ``transaction.version``.
    """

    def __init__(
        self,
        brokers: Mapping[int, Broker],
        topics: Mapping[str, Topic],
        new_producer_id: Callable[[int], int],
        transaction_version: int,
    ) -> None:
        self._brokers = brokers
        self._topics = topics
        self._now_ms = 0
        self._moved: dict[str, int] = {}
        self._loading_until_ms: dict[int, int] = {}
        self.groups: dict[str, Group] = {}
        self._offset_epochs: dict[tuple[int, int], int] = {}
        """By partition of the offsets topic and producer id: the newest epoch that wrote offsets or a marker there."""
        self.transactions: Transactions = Transactions(
            lambda: new_producer_id(next(iter(brokers))), self._write_markers, v2=transaction_version >= V2
        )

    def node_of(self, key: str) -> int | None:
        """The broker that coordinates a transactional id or a group; None if none is up."""
        up = [node_id for node_id, broker in self._brokers.items() if broker.alive]
        if self._moved.get(key) in up:
            return self._moved[key]
        return max(up, key=lambda node_id: zlib.crc32(f"{key}/{node_id}".encode()), default=None)

    def move(self, key: str, node_id: int) -> None:
        """Make a broker coordinate a transactional id or a group from now on, while it is up."""
        self._moved[key] = node_id

    def load(self, node_id: int, until_ms: int) -> None:
        """Make a broker answer COORDINATOR_LOAD_IN_PROGRESS until a time."""
        self._loading_until_ms[node_id] = until_ms

    def check(self, key: str, node_id: int) -> None:
        """Check that a broker coordinates a key, and is ready to.

        Raises:
            NotCoordinatorError, CoordinatorLoadInProgressError: the answer to the client.
        """
        if self.node_of(key) != node_id:
            raise NotCoordinatorError()
        self.check_loaded(key)

    def check_loaded(self, key: str) -> None:
        """Check that the broker that coordinates a key is ready to.

        Raises:
            CoordinatorLoadInProgressError: the answer to the client, or to the leader that asks.
        """
        node_id = self.node_of(key)
        if node_id is not None and self._now_ms < self._loading_until_ms.get(node_id, 0):
            raise CoordinatorLoadInProgressError()

    def group(self, group_id: str) -> Group:
        """A group; created if there is none."""
        return self.groups.setdefault(group_id, Group())

    def check_offsets(self, index: int, producer_id: int, epoch: int) -> None:
        """Check, like the log would, that a partition of the offsets topic accepts a transaction's offsets.

        Raises:
            InvalidProducerEpochError: it has seen a newer epoch.
        """
        newest = self._offset_epochs.get((index, producer_id), epoch)
        if epoch < newest:
            raise InvalidProducerEpochError(f"producer {producer_id} has epoch {newest}, the offsets {epoch}")
        self._offset_epochs[index, producer_id] = epoch

    def advance(self, now_ms: int) -> None:
        """Advance time."""
        self._now_ms = now_ms
        self.transactions.advance(now_ms)

    def _write_markers(self, transaction: Transaction, committed: bool) -> bool:
        for name, index in list(transaction.partitions):
            if self._write_marker(transaction, name, index, committed):
                del transaction.partitions[name, index]
        return not transaction.partitions

    def _write_marker(self, transaction: Transaction, name: str, index: int, committed: bool) -> bool:
        """Write a marker; False while not all replicas in sync have it, so that the partition must be tried again."""
        if name == OFFSETS_TOPIC:
            place = index, transaction.producer_id
            self._offset_epochs[place] = max(self._offset_epochs.get(place, 0), transaction.epoch)
            for group_id, group in self.groups.items():
                if offsets_partition(group_id) == index:
                    group.end_transaction(transaction.producer_id, committed=committed)
            return True
        topic = self._topics.get(name)
        partition = topic.partition(index) if topic else None
        if partition is None:  # deleted: needs no marker
            return True
        entry = partition.log.producers.entry(transaction.producer_id)
        if partition.leader == NO_LEADER or (entry is not None and entry.epoch > transaction.epoch):
            return False
        marker = transaction.partitions[name, index]
        if marker is None or not partition.log.holds(marker):
            marker = partition.log.end_transaction(transaction.producer_id, transaction.epoch, committed=committed)
            partition.replicate(partition.leader)
            transaction.partitions[name, index] = marker
        return partition.is_committed(marker)
