"""TransactionRequests: the requests about one transactional id, sent to its coordinator until they are answered.

This module knows their contents, the versions in which they may be sent, and where answers carry errors. It does not
decide what an answer means for the transaction. Every call raises what ``Coordinators.ask`` raises, and shares these
parameters with it:

    wanted   asked before each repetition; False ends the attempts
    lost     called when an attempt was written but not answered, so it may arrive late

An answer that omits something asked about, or gives an invalid id, is treated as impossible: believing it would count a
partition as part of the transaction, or an offset as committed, when it is not.

Source: KIP-98, KIP-360 (InitProducerId by the producer that has the epoch), KIP-447 (offsets with the member that sends
them), KIP-664 (DescribeTransactions), KIP-890 (EndTxn and TxnOffsetCommit of transactions V2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from aioproducer.coordinator import Answered, Coordinators, always, nothing
from aioproducer.errors import ProtocolError, UnsupportedVersionError
from aioproducer.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest
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
from aioproducer.transaction.errors import worst
from aioproducer.transaction.manager import NO_EPOCH, NO_PRODUCER_ID, is_identity
from aioproducer.transaction.outcome import TransactionDescription

LAST_END_TXN_V1 = 4
LAST_OFFSETS_V1 = 4
MEMBERS_SINCE_VERSION = 3
"""The first TxnOffsetCommit with generation and member (Kafka 2.5)."""
EPOCH_BUMP_SINCE_VERSION = 3
"""The first InitProducerId that gives the next epoch to the producer that has the current one (Kafka 2.5)."""


class TransactionRequests:
    """The requests about one transactional id."""

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
        """Get an epoch that fences all earlier ones; an open transaction is aborted.

        Args:
            timeout_ms: the ``transaction_timeout_ms`` of the transactions that follow.
            producer_id, epoch: those of the asking producer, which is refused if another has a newer epoch. Without
                them, it is never refused.
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
            error_of=self._error_of_init,
            min_version=EPOCH_BUMP_SINCE_VERSION if producer_id != NO_PRODUCER_ID else 0,
            wanted=wanted,
        )

    async def add_partitions(
        self,
        producer_id: int,
        epoch: int,
        places: Iterable[TopicPartition],
        *,
        wanted: Callable[[], bool],
        lost: Callable[[], None],
    ) -> None:
        """Add partitions to the transaction; before V2."""
        places = tuple(places)
        topics: dict[str, list[int]] = {}
        for topic, partition in places:
            topics.setdefault(topic, []).append(partition)
        request = AddPartitionsToTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()],
        )
        await self._coordinators.ask(
            TRANSACTION,
            self._transactional_id,
            request,
            error_of=lambda response: self._error_of_added(response, places),
            topics_of=_topics_of_added_with,
            wanted=wanted,
            lost=lost,
        )

    async def add_group(
        self, producer_id: int, epoch: int, group_id: str, *, wanted: Callable[[], bool], lost: Callable[[], None]
    ) -> None:
        """Add the offsets of a group to the transaction; before V2."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            group_id=group_id,
        )
        await self._coordinators.ask(
            TRANSACTION,
            self._transactional_id,
            request,
            error_of=lambda response: response.error_code,
            wanted=wanted,
            lost=lost,
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
        """Send offsets to the group's coordinator; they take effect when the transaction is committed.

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
                error_of=lambda response: self._error_of_offsets(response, offsets),
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
        self,
        producer_id: int,
        epoch: int,
        *,
        committed: bool,
        is_v2: bool,
        wanted: Callable[[], bool] = always,
        lost: Callable[[], None] = nothing,
    ) -> Answered[EndTxnResponse]:
        """Commit or abort; with V2 the answer has the next epoch."""
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
            error_of=self._error_of_end,
            max_version=None if is_v2 else LAST_END_TXN_V1,
            min_version=LAST_END_TXN_V1 + 1 if is_v2 else 0,
            wanted=wanted,
            lost=lost,
        )

    async def describe(self, *, wanted: Callable[[], bool] = always) -> TransactionDescription:
        """The state of the id at its coordinator.

        Raises:
            TransactionalIdNotFoundError: it is unknown there.
            UnsupportedVersionError: the broker can't tell; Kafka 3.0 or newer can.
        """
        request = DescribeTransactionsRequest(transactional_ids=[self._transactional_id])
        answer = await self._coordinators.ask(
            TRANSACTION, self._transactional_id, request, error_of=self._error_of_described, wanted=wanted
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

    # --- the error code of an answer, or a ProtocolError for an impossible one ----------------------------------------

    def _error_of_init(self, response: InitProducerIdResponse) -> int:
        producer_id, epoch = response.producer_id, response.producer_epoch
        if not response.error_code and not is_identity(producer_id, epoch):
            raise self._nonsense("InitProducerId", f"gave producer id {producer_id} with epoch {epoch}")
        return response.error_code

    def _error_of_end(self, response: EndTxnResponse) -> int:
        producer_id, epoch = response.producer_id, response.producer_epoch
        if not response.error_code and producer_id != NO_PRODUCER_ID and not is_identity(producer_id, epoch):
            raise self._nonsense("EndTxn", f"gave producer id {producer_id} with epoch {epoch}")
        return response.error_code

    def _error_of_added(self, response: AddPartitionsToTxnResponse, places: Iterable[TopicPartition]) -> int:
        codes = [
            (TopicPartition(topic.name, each.partition_index), each.partition_error_code)
            for topic in response.results_by_topic
            for each in topic.results_by_partition
        ]
        return self._error_of_all("AddPartitionsToTxn", AddPartitionsToTxnRequest.API_KEY, codes, places)

    def _error_of_offsets(self, response: TxnOffsetCommitResponse, places: Iterable[TopicPartition]) -> int:
        codes = [
            (TopicPartition(topic.name, each.partition_index), each.error_code)
            for topic in response.topics
            for each in topic.partitions
        ]
        return self._error_of_all("TxnOffsetCommit", TxnOffsetCommitRequest.API_KEY, codes, places)

    def _error_of_all(
        self, api: str, api_key: int, codes: list[tuple[TopicPartition, int]], places: Iterable[TopicPartition]
    ) -> int:
        code = worst(api_key, [code for _, code in codes])
        told = {place for place, _ in codes}
        missing = [place for place in places if place not in told]
        if missing and not code:
            others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise self._nonsense(api, f"was answered without {missing[0].topic}-{missing[0].partition}{others}")
        return code

    def _error_of_described(self, response: DescribeTransactionsResponse) -> int:
        states = response.transaction_states
        if len(states) != 1:
            raise self._nonsense("DescribeTransactions", f"was answered with {len(states)} states")
        return states[0].error_code

    def _nonsense(self, api: str, what: str) -> ProtocolError:
        return ProtocolError(f"{api} for transactional id {self._transactional_id!r} {what}")


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


def _topics_of_offsets_with(response: TxnOffsetCommitResponse, code: int) -> Iterator[str]:
    return (topic.name for topic in response.topics for each in topic.partitions if each.error_code == code)


def _topics_of_added_with(response: AddPartitionsToTxnResponse, code: int) -> Iterator[str]:
    answers = ((topic.name, each) for topic in response.results_by_topic for each in topic.results_by_partition)
    return (name for name, each in answers if each.partition_error_code == code)
