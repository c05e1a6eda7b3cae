"""The transaction requests, as a broker of the model answers them. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from aioproducer.error_codes import Code
from aioproducer.errors import (
    BrokerError,
    InvalidProducerEpochError,
    InvalidRequestError,
    ProducerFencedError,
    broker_error,
)
from aioproducer.protocol import describe_transactions, list_transactions
from aioproducer.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from aioproducer.protocol.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from aioproducer.protocol.end_txn import EndTxnRequest, EndTxnResponse
from aioproducer.protocol.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from aioproducer.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aioproducer.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from aioproducer.testing.fake.groups import OFFSETS_TOPIC, CommittedOffset, TopicPartition, offsets_partition
from aioproducer.testing.fake.model import ClusterModel
from aioproducer.testing.fake.transactions import State

KEYS_SINCE = 4
V2_END_SINCE = 5
V2_OFFSETS_SINCE = 5
ABORTABLE_OFFSETS_SINCE = 4
FENCED_SINCE = {InitProducerIdRequest: 4, AddPartitionsToTxnRequest: 2, AddOffsetsToTxnRequest: 2, EndTxnRequest: 2}
"""From these versions on a client gets PRODUCER_FENCED, before them INVALID_PRODUCER_EPOCH."""


def find_coordinator(cluster: ClusterModel, request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
    """Where the coordinators of some keys are."""
    keys = request.coordinator_keys if version >= KEYS_SINCE else [request.key]
    found = [_coordinator(cluster, key) for key in keys]
    if version >= KEYS_SINCE:
        return FindCoordinatorResponse(coordinators=found)
    (one,) = found
    return FindCoordinatorResponse(
        error_code=one.error_code, node_id=one.node_id, host=one.host, port=one.port, error_message=one.error_message
    )


def _coordinator(cluster: ClusterModel, key: str) -> Coordinator:
    node_id = cluster.coordinators.node_of(key)
    if node_id is None:
        return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=Code.COORDINATOR_NOT_AVAILABLE)
    broker = cluster.brokers[node_id]
    return Coordinator(key=key, node_id=node_id, host=broker.host, port=broker.port, error_message="")


def init_producer_id(
    cluster: ClusterModel, node_id: int, request: InitProducerIdRequest, version: int, now_ms: int
) -> InitProducerIdResponse:
    """A producer id; with a transactional id, the one that belongs to it."""
    try:
        if (request.producer_id < 0) != (request.producer_epoch < 0):
            raise InvalidRequestError()
        if request.transactional_id is None:
            return InitProducerIdResponse(producer_id=cluster.new_producer_id(node_id), producer_epoch=0)
        if request.transactional_id:
            cluster.coordinators.check(request.transactional_id, node_id)
        producer_id, epoch = cluster.coordinators.transactions.init_producer_id(
            request.transactional_id,
            request.transaction_timeout_ms,
            request.producer_id,
            request.producer_epoch,
            now_ms,
        )
    except BrokerError as error:
        return InitProducerIdResponse(error_code=_code(request, version, error))
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)


def add_partitions(
    cluster: ClusterModel, node_id: int, request: AddPartitionsToTxnRequest, version: int, now_ms: int
) -> AddPartitionsToTxnResponse:
    """Add partitions to a transaction: all or none."""
    wanted = [(topic.name, index) for topic in request.topics for index in topic.partitions]
    missing = [(name, index) for name, index in wanted if not cluster.has_partition(name, index)]
    codes: dict[tuple[str, int], int]
    if missing:
        codes = {
            one: Code.UNKNOWN_TOPIC_OR_PARTITION if one in missing else Code.OPERATION_NOT_ATTEMPTED for one in wanted
        }
    else:
        code = 0
        try:
            cluster.coordinators.check(request.transactional_id, node_id)
            cluster.coordinators.transactions.add_partitions(
                request.transactional_id, request.producer_id, request.producer_epoch, wanted, now_ms
            )
        except BrokerError as error:
            code = _code(request, version, error)
        codes = dict.fromkeys(wanted, code)
    return _partition_results(request, codes)


def _partition_results(
    request: AddPartitionsToTxnRequest, codes: dict[tuple[str, int], int]
) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=codes[topic.name, index]
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def add_offsets(
    cluster: ClusterModel, node_id: int, request: AddOffsetsToTxnRequest, version: int, now_ms: int
) -> AddOffsetsToTxnResponse:
    """Add a group's offsets to a transaction."""
    held = OFFSETS_TOPIC, offsets_partition(request.group_id)
    try:
        cluster.coordinators.check(request.transactional_id, node_id)
        cluster.coordinators.transactions.add_partitions(
            request.transactional_id, request.producer_id, request.producer_epoch, [held], now_ms
        )
    except BrokerError as error:
        return AddOffsetsToTxnResponse(error_code=_code(request, version, error))
    return AddOffsetsToTxnResponse()


def commit_offsets(
    cluster: ClusterModel, node_id: int, request: TxnOffsetCommitRequest, version: int, now_ms: int
) -> TxnOffsetCommitResponse:
    """Keep a group's offsets until the transaction ends; those of missing partitions are refused.

    Source: KafkaApis.handleTxnOffsetCommitRequest; the group coordinator only sees the rest.
    """
    held = {
        (topic.name, one.partition_index): CommittedOffset(
            one.committed_offset, one.committed_leader_epoch, one.committed_metadata
        )
        for topic in request.topics
        for one in topic.partitions
        if cluster.has_partition(topic.name, one.partition_index)
    }
    code = 0
    if held:
        try:
            _hold_offsets(cluster, node_id, request, version, held, now_ms)
        except BrokerError as error:
            code = error.code or 0
    return _offset_results(request, lambda partition: code if partition in held else Code.UNKNOWN_TOPIC_OR_PARTITION)


def refused_offsets(request: TxnOffsetCommitRequest, code: int) -> TxnOffsetCommitResponse:
    """The same code for every partition."""
    return _offset_results(request, lambda partition: code)


def _offset_results(
    request: TxnOffsetCommitRequest, code_of: Callable[[TopicPartition], int]
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=one.partition_index, error_code=code_of((topic.name, one.partition_index))
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _hold_offsets(
    cluster: ClusterModel,
    node_id: int,
    request: TxnOffsetCommitRequest,
    version: int,
    offsets: dict[TopicPartition, CommittedOffset],
    now_ms: int,
) -> None:
    coordinators = cluster.coordinators
    coordinators.check(request.group_id, node_id)
    group = coordinators.group(request.group_id)
    group.check(request.generation_id, request.member_id, request.group_instance_id)
    held = OFFSETS_TOPIC, offsets_partition(request.group_id)
    verify(
        cluster,
        request.transactional_id,
        (request.producer_id, request.producer_epoch),
        held,
        adds=version >= V2_OFFSETS_SINCE,
        abortable=version >= ABORTABLE_OFFSETS_SINCE,
        now_ms=now_ms,
    )
    coordinators.check_offsets(held[1], request.producer_id, request.producer_epoch)
    group.pending.setdefault(request.producer_id, {}).update(offsets)


def verify(
    cluster: ClusterModel,
    transactional_id: str,
    producer: tuple[int, int],
    partition: tuple[str, int],
    *,
    adds: bool,
    abortable: bool,
    now_ms: int,
) -> None:
    """Ask the coordinator whether a partition belongs to a transaction, before a write to it.

    Args:
        producer: its id and epoch.
        adds: in V2, add the partition if it does not.
        abortable: the client knows TRANSACTION_ABORTABLE.
    Raises:
        BrokerError: the answer to the client.
    """
    if not adds and not cluster.version.verifies_transactions:
        return
    cluster.coordinators.check_loaded(transactional_id)
    transactions = cluster.coordinators.transactions
    try:
        if adds:
            transactions.add_partitions(transactional_id, *producer, [partition], now_ms)
        else:
            transactions.verify(transactional_id, *producer, partition)
    except ProducerFencedError as error:
        raise InvalidProducerEpochError() from error
    except BrokerError as error:
        if error.code == Code.TRANSACTION_ABORTABLE and not abortable:
            raise broker_error(Code.INVALID_TXN_STATE) from error
        if error.code == Code.CONCURRENT_TRANSACTIONS and not adds:
            raise broker_error(Code.NOT_ENOUGH_REPLICAS) from error
        raise


def end_txn(cluster: ClusterModel, node_id: int, request: EndTxnRequest, version: int, now_ms: int) -> EndTxnResponse:
    """Commit or abort."""
    try:
        if request.transactional_id:
            cluster.coordinators.check(request.transactional_id, node_id)
        producer_id, epoch = cluster.coordinators.transactions.end(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            committed=request.committed,
            bump=version >= V2_END_SINCE,
            now_ms=now_ms,
        )
    except BrokerError as error:
        return EndTxnResponse(error_code=_code(request, version, error))
    return EndTxnResponse(producer_id=producer_id, producer_epoch=epoch)


def list_ids(
    cluster: ClusterModel, node_id: int, request: list_transactions.ListTransactionsRequest, now_ms: int
) -> list_transactions.ListTransactionsResponse:
    """The transactional ids that a broker coordinates."""
    names = {state.value for state in State}
    wanted = set(request.state_filters)
    pattern = re.compile(request.transactional_id_pattern) if request.transactional_id_pattern else None
    states = [
        list_transactions.TransactionState(
            transactional_id=one.transactional_id, producer_id=one.producer_id, transaction_state=one.state.value
        )
        for one in cluster.coordinators.transactions.all()
        if cluster.coordinators.node_of(one.transactional_id) == node_id
        and (not wanted or one.state.value in wanted)
        and (not request.producer_id_filters or one.producer_id in request.producer_id_filters)
        and (request.duration_filter < 0 or now_ms - one.started_ms > request.duration_filter)
        and (pattern is None or pattern.fullmatch(one.transactional_id))
    ]
    return list_transactions.ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in names], transaction_states=states
    )


def describe(
    cluster: ClusterModel, node_id: int, request: describe_transactions.DescribeTransactionsRequest
) -> describe_transactions.DescribeTransactionsResponse:
    """The states of transactional ids."""
    states = [_described(cluster, node_id, each) for each in request.transactional_ids]
    return describe_transactions.DescribeTransactionsResponse(transaction_states=states)


def _described(cluster: ClusterModel, node_id: int, transactional_id: str) -> describe_transactions.TransactionState:
    try:
        if not transactional_id:
            raise InvalidRequestError()
        cluster.coordinators.check(transactional_id, node_id)
    except BrokerError as error:
        return describe_transactions.TransactionState(error_code=error.code or 0, transactional_id=transactional_id)
    known = cluster.coordinators.transactions.get(transactional_id)
    if known is None:
        return describe_transactions.TransactionState(
            error_code=Code.TRANSACTIONAL_ID_NOT_FOUND, transactional_id=transactional_id
        )
    topics: dict[str, list[int]] = {}
    for name, index in known.partitions:
        topics.setdefault(name, []).append(index)
    return describe_transactions.TransactionState(
        transactional_id=transactional_id,
        transaction_state=known.state.value,
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.started_ms,
        producer_id=known.producer_id,
        producer_epoch=known.epoch,
        topics=[describe_transactions.TopicData(topic=name, partitions=indexes) for name, indexes in topics.items()],
    )


def refused_partitions(request: AddPartitionsToTxnRequest, code: int) -> AddPartitionsToTxnResponse:
    """The same code for every partition."""
    return _partition_results(
        request, {(topic.name, index): code for topic in request.topics for index in topic.partitions}
    )


def refused_coordinator(request: FindCoordinatorRequest, version: int, code: int) -> FindCoordinatorResponse:
    """The same code for every key."""
    if version < KEYS_SINCE:
        return FindCoordinatorResponse(error_code=code, node_id=-1, port=-1)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code) for key in request.coordinator_keys
        ]
    )


def _code(request: Any, version: int, error: BrokerError) -> int:
    if isinstance(error, ProducerFencedError) and version < FENCED_SINCE[type(request)]:
        return Code.INVALID_PRODUCER_EPOCH
    return error.code or 0
