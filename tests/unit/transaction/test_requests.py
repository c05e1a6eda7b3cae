"""What an answer about a transactional id has to contain; an impossible one is a ProtocolError."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

import pytest

from aioproducer.coordinator import Answered, Coordinators
from aioproducer.errors import ProtocolError
from aioproducer.net.connection import Connection
from aioproducer.protocol.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from aioproducer.protocol.describe_transactions import DescribeTransactionsResponse, TransactionState
from aioproducer.protocol.end_txn import EndTxnResponse
from aioproducer.protocol.init_producer_id import InitProducerIdResponse
from aioproducer.protocol.schema import Message
from aioproducer.protocol.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from aioproducer.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from aioproducer.transaction.requests import TransactionRequests

PID, EPOCH = 4000, 7
TOPIC_NOT_ALLOWED, NOT_ATTEMPTED, TXN_STATE = 29, 55, 48
PLACES = [TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("audit", 0)]
COMPLETE = {("orders", 0): 0, ("orders", 1): 0, ("audit", 0): 0}


class Coordinator:
    """A fake Coordinators with one answer, which returns what the reader makes of it."""

    def __init__(self, response: Message) -> None:
        self._response = response
        self.code: int | None = None

    async def ask(
        self, kind: int, key: str, request: Message, *, error_of: Callable[[Any], int], **_: Any
    ) -> Answered[Any]:
        self.code = error_of(self._response)
        return Answered(self._response, cast(Connection, None))


def asking(response: Message) -> tuple[TransactionRequests, Coordinator]:
    coordinator = Coordinator(response)
    return TransactionRequests(cast(Coordinators, coordinator), "id"), coordinator


def added(codes: dict[tuple[str, int], int]) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic=[
            AddPartitionsToTxnTopicResult(
                name=name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code)
                    for (topic, number), code in codes.items()
                    if topic == name
                ],
            )
            for name in dict.fromkeys(topic for topic, _ in codes)
        ]
    )


def committed(codes: dict[tuple[str, int], int]) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=number, error_code=code)
                    for (topic, number), code in codes.items()
                    if topic == name
                ],
            )
            for name in dict.fromkeys(topic for topic, _ in codes)
        ]
    )


async def add_partitions(codes: dict[tuple[str, int], int]) -> int | None:
    requests, coordinator = asking(added(codes))
    await requests.add_partitions(PID, EPOCH, PLACES, wanted=lambda: True, lost=lambda: None)
    return coordinator.code


async def commit_offsets(codes: dict[tuple[str, int], int]) -> int | None:
    requests, coordinator = asking(committed(codes))
    await requests.commit_offsets(
        PID,
        EPOCH,
        {place: OffsetAndMetadata(5) for place in PLACES},
        ConsumerGroupMetadata("group"),
        is_v2=True,
        wanted=lambda: True,
        lost=lambda: None,
    )
    return coordinator.code


Asking = Callable[[dict[tuple[str, int], int]], Any]
EACH = pytest.mark.parametrize(
    ("ask", "api"), [(add_partitions, "AddPartitionsToTxn"), (commit_offsets, "TxnOffsetCommit")]
)


@EACH
async def test_all_partitions(ask: Asking, api: str) -> None:
    """In any order, together with others."""
    assert await ask(COMPLETE) == 0
    assert await ask(dict(reversed(COMPLETE.items())) | {("other", 3): 0}) == 0


@EACH
@pytest.mark.parametrize(
    ("left", "named"),
    [
        ([], "orders-0 and 2 more"),
        ([("orders", 0), ("audit", 0)], "orders-1"),
        ([("orders", 1)], "orders-0 and 1 more"),
    ],
)
async def test_a_partition_is_left_out(ask: Asking, api: str, left: list[tuple[str, int]], named: str) -> None:
    """Otherwise it would count as part of the transaction, or its offset as committed."""
    with pytest.raises(ProtocolError, match=f"{api} for transactional id 'id' was answered without {named}$"):
        await ask(dict.fromkeys(left, 0))


@EACH
async def test_a_partition_is_left_out_beside_an_error(ask: Asking, api: str) -> None:
    """The other partition's error is more specific."""
    assert await ask({("orders", 1): TOPIC_NOT_ALLOWED}) == TOPIC_NOT_ALLOWED


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (-1, -1), (-5, 3), (PID, -1)])
async def test_an_id_that_is_none(producer_id: int, epoch: int) -> None:
    requests, _ = asking(InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch))
    told = f"InitProducerId for transactional id 'id' gave producer id {producer_id} with epoch {epoch}"
    with pytest.raises(ProtocolError, match=re.escape(told)):
        await requests.init_producer_id(60_000)


async def test_an_error_needs_no_id() -> None:
    requests, coordinator = asking(InitProducerIdResponse(error_code=TXN_STATE))
    await requests.init_producer_id(60_000)
    assert coordinator.code == TXN_STATE


@pytest.mark.parametrize("committed", [True, False])
async def test_the_id_after_the_end(committed: bool) -> None:
    """A new id, or -1 if it does not change."""
    for producer_id, epoch in (-1, -1), (PID, EPOCH + 1), (PID + 1, 0):
        requests, coordinator = asking(EndTxnResponse(producer_id=producer_id, producer_epoch=epoch))
        await requests.end(PID, EPOCH, committed=committed, is_v2=True)
        assert coordinator.code == 0
    for producer_id, epoch in (PID, -1), (-2, -1), (-2, 0):
        requests, _ = asking(EndTxnResponse(producer_id=producer_id, producer_epoch=epoch))
        with pytest.raises(ProtocolError, match=f"EndTxn .* gave producer id {producer_id} with epoch {epoch}$"):
            await requests.end(PID, EPOCH, committed=committed, is_v2=True)


@pytest.mark.parametrize("count", [0, 2])
async def test_a_description_of_more_or_less_than_one(count: int) -> None:
    state = TransactionState(transactional_id="id", transaction_state="Ongoing", producer_id=PID, producer_epoch=EPOCH)
    requests, _ = asking(DescribeTransactionsResponse(transaction_states=[state] * count))
    with pytest.raises(ProtocolError, match=f"DescribeTransactions for .*'id' was answered with {count} states"):
        await requests.describe()
