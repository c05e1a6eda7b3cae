"""TransactionRequests: the requests about one transactional id, sent to whoever coordinates it until they are answered.

What they hold, in which versions they may go out, where in their answers the errors stand. What an answer means for the
transaction is not decided here. Every call raises what ``Coordinators.ask`` raises, and takes from there

    wanted   asked before each repetition; False ends the attempts
    lost     called when an attempt was written and not answered, so that it may come late

Source: KIP-98, KIP-360 (InitProducerId by the producer that has the epoch), KIP-447 (offsets with the member that sends
them), KIP-664 (DescribeTransactions), KIP-890 (EndTxn and TxnOffsetCommit of transactions V2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from aioproducer.coordinator import Answered, Coordinators, always
from aioproducer.errors import UnsupportedVersionError
from aioproducer.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from aioproducer.protocol.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from aioproducer.protocol.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from aioproducer.protocol.end_txn import EndTxnRequest, EndTxnResponse
from aioproducer.protocol.find_coordinator import GROUP, TRANSACTION
from aioproducer.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aioproducer.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from aioproducer.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from aioproducer.transaction_errors import worst
from aioproducer.transaction_manager import NO_EPOCH, NO_PRODUCER_ID
from aioproducer.transaction_outcome import TransactionDescription

LAST_END_TXN_V1 = 4
LAST_OFFSETS_V1 = 4
MEMBERS_SINCE_VERSION = 3
"""The first TxnOffsetCommit with generation and member (Kafka 2.5)."""
EPOCH_BUMP_SINCE_VERSION = 3
"""The first InitProducerId that gives the next epoch to the producer that has this one (Kafka 2.5)."""


class TransactionRequests:
    """What can be asked about a transactional id."""

    def __init__(self, coordinators: Coordinators, transactional_id: str) -> None:
        self._coordinators = coordinators
        self._transactional_id = transactional_id

    async def init_producer_id(
        self,
        timeout_ms: int,
        producer_id: int = NO_PRODUCER_ID,
        epoch: int = NO_EPOCH,
        *,
        wanted: Callable[[], bool] = always,
    ) -> Answered[InitProducerIdResponse]:
        """Get an epoch that fences all before it; what is open is aborted.

        Args:
            timeout_ms: the ``transaction_timeout_ms`` of what follows.
            producer_id, epoch: of the producer that asks, which is refused if somebody has a newer epoch. Without them
                nobody is.
        """
        request = InitProducerIdRequest(
            transactional_id=self._transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        return await self._coordinators.ask(
            TRANSACTION,
            self._transactional_id,
            request,
            error_of=lambda response: response.error_code,
            min_version=EPOCH_BUMP_SINCE_VERSION if producer_id != NO_PRODUCER_ID else 0,
            wanted=wanted,
        )

    async def add_partitions(
        self, producer_id: int, epoch: int, places: Iterable[TopicPartition], *, wanted: Callable[[], bool]
    ) -> Answered[AddPartitionsToTxnResponse]:
        """Make partitions a part of the transaction; before V2."""
        topics: dict[str, list[int]] = {}
        for topic, partition in places:
            topics.setdefault(topic, []).append(partition)
        request = AddPartitionsToTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()],
        )
        return await self._coordinators.ask(
            TRANSACTION,
            self._transactional_id,
            request,
            error_of=_error_of_added,
            topics_of=_topics_of_added_with,
            wanted=wanted,
        )

    async def add_group(
        self, producer_id: int, epoch: int, group_id: str, *, wanted: Callable[[], bool]
    ) -> Answered[AddOffsetsToTxnResponse]:
        """Make the offsets of a group a part of the transaction; before V2."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            group_id=group_id,
        )
        return await self._coordinators.ask(
            TRANSACTION,
            self._transactional_id,
            request,
            error_of=lambda response: response.error_code,
            wanted=wanted,
        )

    async def commit_offsets(
        self,
        producer_id: int,
        epoch: int,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
        *,
        is_v2: bool,
        wanted: Callable[[], bool],
        lost: Callable[[], None],
    ) -> None:
        """Have the coordinator of the group take offsets that count when the transaction is committed.

        Raises:
            UnsupportedVersionError: abortable; the broker can't fence by the group's generation and member.
        """
        request = TxnOffsetCommitRequest(
            transactional_id=self._transactional_id,
            group_id=group.group_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=_topics_of(offsets),
        )
        is_fenced = group != ConsumerGroupMetadata(group.group_id)
        try:
            await self._coordinators.ask(
                GROUP,
                group.group_id,
                request,
                error_of=_error_of_offsets,
                topics_of=_topics_of_offsets_with,
                max_version=None if is_v2 else LAST_OFFSETS_V1,
                min_version=LAST_OFFSETS_V1 + 1 if is_v2 else MEMBERS_SINCE_VERSION if is_fenced else 0,
                lost=lost,
                wanted=wanted,
            )
        except UnsupportedVersionError as error:
            told = UnsupportedVersionError(
                f"offsets of group {group.group_id!r} with its generation and member need Kafka 2.5 or newer; "
                f"ConsumerGroupMetadata(group_id) alone does without, and without fencing: {error}"
            )
            raise told.marked(abortable=True) from error

    async def end(
        self, producer_id: int, epoch: int, *, committed: bool, is_v2: bool, wanted: Callable[[], bool] = always
    ) -> Answered[EndTxnResponse]:
        """Commit or abort; the answer of V2 has the next epoch."""
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=committed,
        )
        return await self._coordinators.ask(
            TRANSACTION,
            self._transactional_id,
            request,
            error_of=lambda response: response.error_code,
            max_version=None if is_v2 else LAST_END_TXN_V1,
            min_version=LAST_END_TXN_V1 + 1 if is_v2 else 0,
            wanted=wanted,
        )

    async def describe(self) -> TransactionDescription:
        """How the id stands with its coordinator.

        Raises:
            TransactionalIdNotFoundError: it is not known there.
            UnsupportedVersionError: the broker can't tell; Kafka 3.0 or newer can.
        """
        request = DescribeTransactionsRequest(transactional_ids=[self._transactional_id])
        answer = await self._coordinators.ask(
            TRANSACTION, self._transactional_id, request, error_of=_error_of_described
        )
        (told,) = answer.response.transaction_states
        return TransactionDescription(
            transactional_id=self._transactional_id,
            state=told.transaction_state,
            producer_id=told.producer_id,
            epoch=told.producer_epoch,
            timeout_ms=told.transaction_timeout_ms,
            started_ms=told.transaction_start_time_ms,
            partitions=tuple(TopicPartition(each.topic, number) for each in told.topics for number in each.partitions),
        )


def _topics_of(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> list[TxnOffsetCommitRequestTopic]:
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for (topic, partition), position in offsets.items():
        topics.setdefault(topic, []).append(
            TxnOffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=position.offset,
                committed_leader_epoch=-1 if position.leader_epoch is None else position.leader_epoch,
                committed_metadata=position.metadata,
            )
        )
    return [TxnOffsetCommitRequestTopic(name=name, partitions=partitions) for name, partitions in topics.items()]


def _error_of_offsets(response: TxnOffsetCommitResponse) -> int:
    codes = [each.error_code for topic in response.topics for each in topic.partitions]
    return worst(TxnOffsetCommitRequest.API_KEY, codes)


def _topics_of_offsets_with(response: TxnOffsetCommitResponse, code: int) -> Iterator[str]:
    return (topic.name for topic in response.topics for each in topic.partitions if each.error_code == code)


def _error_of_added(response: AddPartitionsToTxnResponse) -> int:
    codes = [each.partition_error_code for topic in response.results_by_topic for each in topic.results_by_partition]
    return worst(AddPartitionsToTxnRequest.API_KEY, codes)


def _topics_of_added_with(response: AddPartitionsToTxnResponse, code: int) -> Iterator[str]:
    answers = ((topic.name, each) for topic in response.results_by_topic for each in topic.results_by_partition)
    return (name for name, each in answers if each.partition_error_code == code)


def _error_of_described(response: DescribeTransactionsResponse) -> int:
    return worst(DescribeTransactionsRequest.API_KEY, [each.error_code for each in response.transaction_states])
