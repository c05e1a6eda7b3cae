"""What a broker of the model does for each API, and how it refuses. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from aioproducer.error_codes import Code
from aioproducer.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest
from aioproducer.protocol.add_partitions_to_txn import AddPartitionsToTxnRequest
from aioproducer.protocol.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from aioproducer.protocol.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from aioproducer.protocol.end_txn import EndTxnRequest
from aioproducer.protocol.find_coordinator import FindCoordinatorRequest
from aioproducer.protocol.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from aioproducer.protocol.init_producer_id import InitProducerIdRequest
from aioproducer.protocol.list_transactions import ListTransactionsRequest
from aioproducer.protocol.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from aioproducer.protocol.produce import ProduceRequest
from aioproducer.protocol.push_telemetry import PushTelemetryRequest
from aioproducer.protocol.schema import Message, Request
from aioproducer.protocol.txn_offset_commit import TxnOffsetCommitRequest
from aioproducer.testing.fake import client_metrics, txn_apis
from aioproducer.testing.fake.faults import Fault, Targets
from aioproducer.testing.fake.frames import RequestFrame
from aioproducer.testing.fake.metadata import metadata, metadata_of
from aioproducer.testing.fake.model import ClusterModel
from aioproducer.testing.fake.produce import ProduceHandler
from aioproducer.testing.fake.versions import TRANSACTION_VERSION

NO_ACKS = 0
SOFTWARE_SINCE = 3
ZERO_LEVELS_SINCE = 4
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", re.ASCII)


class CloseConnectionError(Exception):
    """The broker closes the connection instead of answering."""


Handled = Message | ProduceHandler | None
"""The answer, or what gives it once replicas have decided; None for none."""
Handler = Callable[[ClusterModel, int, RequestFrame, int], Handled]
"""(cluster, node id, request, now_ms) -> the answer, or None if the protocol has none."""


def handle(cluster: ClusterModel, node_id: int, request: RequestFrame, now_ms: int) -> Handled:
    """Carry out a request to a broker.

    Raises:
        CloseConnectionError: the broker closes the connection instead.
    """
    return _HANDLERS[request.api_key](cluster, node_id, request, now_ms)


def _api_versions(cluster: ClusterModel, node_id: int, request: RequestFrame, now_ms: int) -> Message:
    if request.message is None:
        # A version the broker does not know: answered in version 0, with only its range for this API (KIP-511).
        low, high = cluster.ranges[ApiVersionsRequest.API_KEY]
        own = ApiVersion(api_key=ApiVersionsRequest.API_KEY, min_version=low, max_version=high)
        return OldestApiVersions(error_code=Code.UNSUPPORTED_VERSION, api_keys=[own])
    message: ApiVersionsRequest = request.message
    software = message.client_software_name, message.client_software_version
    if request.version >= SOFTWARE_SINCE and not all(_SOFTWARE.fullmatch(one) for one in software):
        return ApiVersionsResponse(error_code=Code.INVALID_REQUEST, api_keys=[])
    return _known_versions(cluster, request.version)


class OldestApiVersions(ApiVersionsResponse):
    """An answer always written in version 0."""

    def encode(self, version: int) -> bytes:
        """The body in version 0."""
        return super().encode(0)


def _known_versions(cluster: ClusterModel, version: int) -> ApiVersionsResponse:
    features = dict(cluster.version.features)
    if cluster.version.transaction_version:
        features[TRANSACTION_VERSION] = 0, cluster.version.transaction_version, cluster.transaction_version
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in cluster.ranges.items()
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high, _) in features.items()
            if low or version >= ZERO_LEVELS_SINCE
        ],
        finalized_features_epoch=cluster.features_epoch if features else -1,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, (_, _, level) in features.items()
            if level
        ],
    )


def _metadata(cluster: ClusterModel, node_id: int, request: RequestFrame, now_ms: int) -> Message:
    return metadata_of(cluster, node_id, request.message)


def _produce(cluster: ClusterModel, node_id: int, request: RequestFrame, now_ms: int) -> Handled:
    message: ProduceRequest = request.message
    handler = ProduceHandler(cluster, node_id, message, request.version, now_ms)
    handler.write()
    response = handler.response(now_ms)
    if response is None:
        return handler
    if message.acks != NO_ACKS:
        return response
    if any(one.error_code for topic in response.responses for one in topic.partition_responses):
        # acks=0 has no answer, so closing the connection is how the client learns of the error.
        raise CloseConnectionError
    return None


_HANDLERS: dict[int, Handler] = {
    AddOffsetsToTxnRequest.API_KEY: lambda cluster, node_id, request, now_ms: txn_apis.add_offsets(
        cluster, node_id, request.message, request.version, now_ms
    ),
    AddPartitionsToTxnRequest.API_KEY: lambda cluster, node_id, request, now_ms: txn_apis.add_partitions(
        cluster, node_id, request.message, request.version, now_ms
    ),
    ApiVersionsRequest.API_KEY: _api_versions,
    DescribeTransactionsRequest.API_KEY: lambda cluster, node_id, request, _: txn_apis.describe(
        cluster, node_id, request.message
    ),
    EndTxnRequest.API_KEY: lambda cluster, node_id, request, now_ms: txn_apis.end_txn(
        cluster, node_id, request.message, request.version, now_ms
    ),
    FindCoordinatorRequest.API_KEY: lambda cluster, _, request, __: txn_apis.find_coordinator(
        cluster, request.message, request.version
    ),
    GetTelemetrySubscriptionsRequest.API_KEY: lambda cluster, node_id, request, now_ms: client_metrics.subscription(
        cluster.client_metrics, node_id, request.message, now_ms
    ),
    InitProducerIdRequest.API_KEY: lambda cluster, node_id, request, now_ms: txn_apis.init_producer_id(
        cluster, node_id, request.message, request.version, now_ms
    ),
    ListTransactionsRequest.API_KEY: lambda cluster, node_id, request, now_ms: txn_apis.list_ids(
        cluster, node_id, request.message, now_ms
    ),
    MetadataRequest.API_KEY: _metadata,
    ProduceRequest.API_KEY: _produce,
    PushTelemetryRequest.API_KEY: lambda cluster, node_id, request, now_ms: client_metrics.push(
        cluster.client_metrics, node_id, request.message, now_ms
    ),
    TxnOffsetCommitRequest.API_KEY: lambda cluster, node_id, request, now_ms: txn_apis.commit_offsets(
        cluster, node_id, request.message, request.version, now_ms
    ),
}
API_CLASSES: dict[int, type[Request[Any]]] = {
    request.API_KEY: request
    for request in (
        AddOffsetsToTxnRequest,
        AddPartitionsToTxnRequest,
        ApiVersionsRequest,
        DescribeTransactionsRequest,
        EndTxnRequest,
        FindCoordinatorRequest,
        GetTelemetrySubscriptionsRequest,
        InitProducerIdRequest,
        ListTransactionsRequest,
        MetadataRequest,
        ProduceRequest,
        PushTelemetryRequest,
        TxnOffsetCommitRequest,
    )
}
"""The classes of readable requests, by API key."""


# --- faults -----------------------------------------------------------------------------------------------------------


def targets_of(cluster: ClusterModel, request: RequestFrame) -> Targets:
    """The topics named by a request, with their partitions if it names those too."""
    if request.api_key == ProduceRequest.API_KEY:
        found: dict[str, set[int]] = {}
        for topic in request.message.topic_data:
            known = cluster.topic_by_id(topic.topic_id)
            found[topic.name or (known.name if known else "")] = {one.index for one in topic.partition_data}
        return found
    if request.api_key == MetadataRequest.API_KEY:
        return {one.name: set() for one in request.message.topics or () if one.name is not None}
    if request.api_key == AddPartitionsToTxnRequest.API_KEY:
        return {topic.name: set(topic.partitions) for topic in request.message.topics}
    if request.api_key == TxnOffsetCommitRequest.API_KEY:
        return {topic.name: {one.partition_index for one in topic.partitions} for topic in request.message.topics}
    return {}


def refuse(cluster: ClusterModel, request: RequestFrame, fault: Fault, applied: Handled) -> Message:
    """The answer to a request that fails because of a fault.

    Args:
        applied: the regular answer, if the request was carried out nevertheless.
    """
    if request.api_key == MetadataRequest.API_KEY:
        return _refused_metadata(cluster, request.message, fault)
    if request.api_key == ApiVersionsRequest.API_KEY:
        return ApiVersionsResponse(error_code=fault.error_code, api_keys=[])
    if request.api_key == FindCoordinatorRequest.API_KEY:
        return txn_apis.refused_coordinator(request.message, request.version, fault.error_code)
    if request.api_key == GetTelemetrySubscriptionsRequest.API_KEY:
        return client_metrics.refused_subscription(fault.error_code)
    if request.api_key == AddPartitionsToTxnRequest.API_KEY:
        return txn_apis.refused_partitions(request.message, fault.error_code)
    if request.api_key == TxnOffsetCommitRequest.API_KEY:
        return txn_apis.refused_offsets(request.message, fault.error_code)
    if request.api_key == DescribeTransactionsRequest.API_KEY:
        return DescribeTransactionsResponse(
            transaction_states=[
                TransactionState(error_code=fault.error_code, transactional_id=each)
                for each in request.message.transactional_ids
            ]
        )
    message: Any = type(request.message).RESPONSE
    failed: Message = message(error_code=fault.error_code)
    return failed


def _refused_metadata(cluster: ClusterModel, request: MetadataRequest, fault: Fault) -> MetadataResponse:
    """The error where a broker puts it: at the top for rebootstrapping, else at the topic or one of its partitions."""
    answer = metadata(cluster, replace(request, allow_auto_topic_creation=fault.apply))
    if fault.error_code == Code.REBOOTSTRAP_REQUIRED:
        return MetadataResponse(brokers=[], topics=[], error_code=fault.error_code)
    for topic in answer.topics:
        if fault.topic in (None, topic.name):
            _spoil(topic, fault)
    return answer


def _spoil(topic: MetadataResponseTopic, fault: Fault) -> None:
    if fault.partition is None:
        topic.error_code, topic.partitions = fault.error_code, []
        return
    for partition in topic.partitions:
        if partition.partition_index == fault.partition:
            partition.error_code = fault.error_code
            partition.leader_id = partition.leader_epoch = -1
