"""The partitions of the open transaction: which of them may get batches, and whether there is anything to end.

Theory of operation. A broker accepts transactional batches only for partitions that the coordinator knows to be part of
the transaction. Before transactions V2 the producer adds them with a separate request: a batch that is ready marks its
partition as wanted, the request goes out for all wanted partitions, and the batches follow its answer.

With V2 (KIP-890) the broker adds partitions itself when it gets their first batches. The coordinator makes one such
change at a time, and a broker that finds it at work on another tries again only after 20 ms. So one request at a time
brings new partitions: until it is answered, but for no more than these 20 ms, batches for others that are new as well
are held back. The offsets of a group, which its coordinator adds, count as such a request. All this saves time, and
nothing else depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from aioproducer.records import TopicPartition

BROKER_WAITS_MS = 20
"""A broker that finds the coordinator at work for another request tries again after this time (Kafka's
``add.partitions.to.txn.retry.backoff.ms``), so holding its request back for longer gains nothing."""

LAST_PRODUCE_V1 = 11
"""From version 12 on, a Produce request adds its partitions itself, which needs V2."""


def _nothing() -> None:
    pass


def _no() -> bool:
    return False


class TransactionPartitions:
    """What belongs to the open transaction, as known to the coordinator."""

    def __init__(self) -> None:
        self.version: int = 1
        """1, or 2 for transactions V2; does not change while a transaction is open."""
        self.sending: bool = False
        """Whether batches may be sent for the first time."""
        self.started: bool = False
        """Whether the coordinator has, or may have, something to end."""
        self.doubtful: bool = False
        """Whether it may still have nothing to end: the request that should have started it got no answer."""
        self.wanted: dict[TopicPartition, None] = {}
        self.on_wanted: Callable[[], None] = _nothing
        """Called when a partition becomes wanted."""
        self.holds_back: Callable[[], bool] = _no
        """Asked with V2 whether the batch that would begin the transaction has to wait."""
        self.give_head_start: Callable[[], None] = _nothing
        """Called when a request brings something new."""
        self.head_start_is_over: Callable[[], bool] = _no
        """Asked with V2 whether the latest such request has held back others for long enough."""
        self._added: set[TopicPartition] = set()
        self._adding: set[TopicPartition] = set()
        """New partitions of requests on their way; with V2."""
        self._adds_offsets = False
        """Whether offsets are on their way."""

    def begin(self, version: int) -> None:
        """A transaction opens."""
        self.version = version
        self.end()
        self.sending = True

    def end(self) -> None:
        """The transaction is over: the next one starts empty."""
        self.sending = self.started = self.doubtful = False
        self.wanted.clear()
        self._added.clear()
        self._adding.clear()

    def may_send(self, partition: TopicPartition) -> bool:
        """Whether an unsent batch may go out; before V2, if only its partition is missing, that becomes wanted."""
        if not self.sending:
            return False
        if partition in self._added:
            return True
        if self.version >= 2:
            return self._may_bring_more() if self.started else not self.holds_back()
        if partition not in self.wanted:
            self.wanted[partition] = None
            self.on_wanted()
        return False

    def _may_bring_more(self) -> bool:
        return not (self._adding or self._adds_offsets) or self.head_start_is_over()

    def gives_up(self, in_doubt: bool) -> bool:
        """Whether to drop a batch instead of retrying it, because its transaction will not be committed.

        Before V2 a batch in doubt is retried: only its answer shows that no copy can appear after the end.
        """
        return not self.sending and (self.version >= 2 or not in_doubt)

    def sent(self, partition: TopicPartition) -> None:
        """A batch goes out: whatever its outcome, the transaction has begun."""
        self._begun()
        if partition not in self._added:
            self._adding.add(partition)
            self.give_head_start()

    def request_ended(self, partitions: Iterable[TopicPartition]) -> None:
        """A request with batches of these partitions has ended, answered or not: the next one may bring new ones."""
        if self.version >= 2:
            self._adding.difference_update(partitions := set(partitions))
            self._added |= partitions

    def offsets_sent(self) -> None:
        """Offsets go out, until ``offsets_ended``."""
        self._begun()
        self._adds_offsets = True
        self.give_head_start()

    def offsets_ended(self) -> None:
        """They are part of the transaction, or have failed; also called if they were not sent."""
        self._adds_offsets = False

    def _begun(self) -> None:
        self.started = True
        self.doubtful = False

    def take_wanted(self) -> tuple[TopicPartition, ...]:
        """The partitions for the next request to add; they stay wanted until ``added``."""
        return tuple(self.wanted)

    def added(self, partitions: Iterable[TopicPartition]) -> None:
        """The coordinator has added these partitions."""
        for partition in partitions:
            self._added.add(partition)
            self.wanted.pop(partition, None)
        self._begun()

    def may_have_added(self) -> None:
        """A request to add something was written but not answered."""
        if not self.started:
            self.started = self.doubtful = True
