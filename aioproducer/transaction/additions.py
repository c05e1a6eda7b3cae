"""TransactionAdditions: tells the coordinator what belongs to the open transaction: partitions, and a group's offsets.

Theory of operation. Before transactions V2 (KIP-890) the coordinator has to know a partition before it gets a batch:
``TransactionPartitions`` says which are wanted, and one request adds all that become so in one turn of the loop. With
V2 the batch adds its partition itself. In the same way a group is added before its offsets, or with V2 by them.

What was written but not answered may have been added, and may still arrive late: ``lost`` is told. A refusal goes to
``refused``, which spoils or ends the transaction.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aioproducer.errors import KafkaError
from aioproducer.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from aioproducer.transaction.partitions import TransactionPartitions
from aioproducer.transaction.requests import TransactionRequests
from aioproducer.transaction.state import TransactionStates


class TransactionAdditions:
    """Adds to the transactions of one producer.

    Args:
        who: returns producer id and epoch.
        lost: called when a request has left and got no answer.
        refused: finds out why the coordinator refused something, unless the transaction has failed already.
        given_up: called with a transient error that is not waited out.
        added: called when batches that were held back may go.
        previous_complete: waits until the coordinator has completed the previous transaction; with V2.
        on_end: called when the task that adds partitions has ended.
    """

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        requests: TransactionRequests,
        partitions: TransactionPartitions,
        states: TransactionStates,
        who: Callable[[], tuple[int, int]],
        lost: Callable[[], None],
        refused: Callable[[KafkaError], Awaitable[None]],
        given_up: Callable[[KafkaError], None],
        added: Callable[[], None],
        previous_complete: Callable[[], Awaitable[None]],
        on_end: Callable[[asyncio.Task[Any]], None],
    ) -> None:
        self.adding: asyncio.Task[None] | None = None
        """The latest task that adds partitions."""
        self.offsets_given_up: bool = False
        """If set, offsets that wait for something that may never come, such as a partition, are given up."""
        self._loop = loop
        self._requests = requests
        self._partitions = partitions
        self._states = states
        self._who = who
        self._lost = lost
        self._refused = refused
        self._given_up = given_up
        self._added = added
        self._previous_complete = previous_complete
        self._on_end = on_end
        partitions.on_wanted = self._add_soon

    # --- partitions ---------------------------------------------------------------------------------------------------

    def _add_soon(self) -> None:
        """A batch waits for its partition to be added; those wanted in the same turn of the loop go along."""
        if self.adding is None or self.adding.done():
            self.adding = self._loop.create_task(self._add_partitions(), name="aioproducer add partitions")
            self.adding.add_done_callback(self._on_end)

    async def _add_partitions(self) -> None:
        await asyncio.sleep(0)
        while self._partitions.sending and (places := self._partitions.take_wanted()):
            try:
                await self._requests.add_partitions(
                    *self._who(), places, wanted=lambda: self._partitions.sending, lost=self._lost
                )
            except KafkaError as error:
                if error.maybe_written:
                    self._partitions.may_have_added()
                if self._partitions.sending:
                    await self._refused(error)
                return
            self._partitions.added(places)
            self._added()

    # --- offsets ------------------------------------------------------------------------------------------------------

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        """Before V2 the group is first added to the transaction; with V2 the offset commit adds it.

        Raises:
            KafkaError: the offsets do not belong to the transaction, which has failed.
        """
        partitions = self._partitions
        try:
            if partitions.version < 2:
                await self._requests.add_group(
                    *self._who(), group.group_id, wanted=self._wants_offsets, lost=self._lost
                )
            elif not partitions.started:
                await self._previous_complete()
            partitions.offsets_sent()
            await self._requests.commit_offsets(
                *self._who(),
                offsets,
                group,
                is_v2=partitions.version >= 2,
                wanted=self._wants_offsets,
                lost=self._lost,
            )
        except KafkaError as error:
            if error.maybe_written:
                partitions.may_have_added()
            if self._states.error is None and not (error.abortable or error.fatal):
                self._given_up(error)  # transient, and not waited out because of an abort
            else:
                await self._refused(error)
            raise copy.copy(self._states.error or error) from error.__cause__
        finally:
            partitions.offsets_ended()
            self._added()

    def _wants_offsets(self) -> bool:
        return self._states.admits and not self.offsets_given_up
