"""ListTransactions and DescribeTransactions, byte by byte according to Kafka's schemas."""

from __future__ import annotations

import pytest

from aioproducer.protocol.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
)
from aioproducer.protocol.describe_transactions import TransactionState as Described
from aioproducer.protocol.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

LIST = b"\x02\x08Ongoing" + b"\x02" + (4000).to_bytes(8)
AFTER = {0: b"\0", 1: (250).to_bytes(8) + b"\0", 2: (250).to_bytes(8) + b"\x05sink" + b"\0"}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_list_request(version: int) -> None:
    """Filters by state and producer id; from version 1 on by duration, from 2 on by a pattern of the id."""
    request = ListTransactionsRequest(
        state_filters=["Ongoing"],
        producer_id_filters=[4000],
        duration_filter=250 if version >= 1 else -1,
        transactional_id_pattern="sink" if version >= 2 else None,
    )
    assert request.encode(version) == LIST + AFTER[version]
    assert ListTransactionsRequest.decode(LIST + AFTER[version], version) == request


def test_list_response() -> None:
    """The id, its producer id and its state."""
    data = bytes(4) + bytes(2) + b"\x01" + b"\x02" + b"\x03id" + (7).to_bytes(8) + b"\x06Empty" + b"\0" + b"\0"
    state = TransactionState(transactional_id="id", producer_id=7, transaction_state="Empty")
    assert ListTransactionsResponse(transaction_states=[state]).encode(2) == data
    assert ListTransactionsResponse.decode(data, 2).transaction_states == [state]


def test_a_described_transaction_has_its_state_times_and_partitions() -> None:
    """The ids go out, and come back with state, timeout, start, producer id, epoch and partitions."""
    assert DescribeTransactionsRequest(transactional_ids=["id"]).encode(0) == b"\x02\x03id\0"
    data = (
        bytes(4) + b"\x02" + bytes(2) + b"\x03id" + b"\x08Ongoing" + (60_000).to_bytes(4) + (1_700_000).to_bytes(8)
        + (7).to_bytes(8) + (3).to_bytes(2)
        + b"\x02" + b"\x07orders" + b"\x02" + (5).to_bytes(4) + b"\0" + b"\0" + b"\0"
    )  # fmt: skip
    state = Described(
        transactional_id="id",
        transaction_state="Ongoing",
        transaction_timeout_ms=60_000,
        transaction_start_time_ms=1_700_000,
        producer_id=7,
        producer_epoch=3,
        topics=[TopicData(topic="orders", partitions=[5])],
    )
    assert DescribeTransactionsResponse(transaction_states=[state]).encode(0) == data
    assert DescribeTransactionsResponse.decode(data, 0).transaction_states == [state]
