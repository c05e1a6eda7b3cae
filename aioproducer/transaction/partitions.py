"""The partitions of the open transaction: which ones batches may go out to, and whether there is anything to end.

Theory of operation. A broker takes transactional batches only for partitions that the coordinator knows to be part of
the transaction. Before transactions V2 the producer adds them with a request of its own: a batch that is ready to go
marks its partition as wanted, the request goes out for all wanted partitions, and the batches follow its answer. With
V2 (KIP-890) the broker adds the partition itself when it gets the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from aioproducer.records import TopicPartition

LAST_PRODUCE_V1 = 11
"""From version 12 on a Produce request adds its partitions by itself, which only V2 has."""


def _nothing() -> None:
    pass


class TransactionPartitions:
    """What belongs to the open transaction, as the coordinator knows it."""

    def __init__(self) -> None:
        self.version: int = 1
        """1, or 2 for transactions V2; does not change while a transaction is open."""
        self.sending: bool = False
        """Whether batches may go out for the first time."""
        self.started: bool = False
        """Whether the coordinator has, or may have, something to end."""
        self.doubtful: bool = False
        """Whether it may have nothing to end all the same: the request that was to start it got no answer."""
        self.wanted: dict[TopicPartition, None] = {}
        self.on_wanted: Callable[[], None] = _nothing
        """Called when a partition is wanted that was not."""
        self._added: set[TopicPartition] = set()

    def begin(self, version: int) -> None:
        """A transaction opens."""
        self.version = version
        self.end()
        self.sending = True

    def end(self) -> None:
        """It is over: the next one begins with nothing."""
        self.sending = self.started = self.doubtful = False
        self.wanted.clear()
        self._added.clear()

    def may_send(self, partition: TopicPartition) -> bool:
        """Whether a batch that was not sent yet may go out; if only its partition is missing, that becomes wanted."""
        if not self.sending:
            return False
        if self.version >= 2 or partition in self._added:
            return True
        if partition not in self.wanted:
            self.wanted[partition] = None
            self.on_wanted()
        return False

    def gives_up(self, in_doubt: bool) -> bool:
        """Whether a batch that could be sent again is not, because its transaction is not going to be committed.

        Before V2 one in doubt is: only its answer tells that no copy of it turns up after the end.
        """
        return not self.sending and (self.version >= 2 or not in_doubt)

    def sent(self) -> None:
        """A batch goes out, or offsets do: whatever becomes of them, the transaction has begun."""
        self.started = True
        self.doubtful = False

    def take_wanted(self) -> tuple[TopicPartition, ...]:
        """What the next request is to add; it stays wanted until ``added``."""
        return tuple(self.wanted)

    def added(self, partitions: Iterable[TopicPartition]) -> None:
        """The coordinator has them."""
        for partition in partitions:
            self._added.add(partition)
            self.wanted.pop(partition, None)
        self.sent()

    def may_have_added(self) -> None:
        """A request to add something was written and has no answer."""
        if not self.started:
            self.started = self.doubtful = True
