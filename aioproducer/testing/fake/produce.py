"""Produce requests, as a partition's leader handles them. Pure.

Source: ReplicaManager, DelayedProduce and Partition of Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass

from aioproducer.error_codes import Code
from aioproducer.errors import (
    BrokerError,
    CoordinatorLoadInProgressError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OutOfOrderSequenceNumberError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    broker_error,
)
from aioproducer.protocol.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from aioproducer.testing.fake.batches import (
    Batch,
    RefusedRecordsError,
    check_frame,
    is_transactional,
    producer_of,
    read_batch,
)
from aioproducer.testing.fake.model import ClusterModel
from aioproducer.testing.fake.partition import NO_LEADER, Partition
from aioproducer.testing.fake.partition_log import PartitionLog
from aioproducer.testing.fake.topology import Topic
from aioproducer.testing.fake.txn_apis import verify

ALL_REPLICAS = -1
TOPIC_IDS_SINCE = 13
LEADER_HINTS_SINCE = 10
ADDS_PARTITIONS_SINCE = 12
ABORTABLE_SINCE = 11
NO_OFFSET = -1
WITHOUT_LOG_START = frozenset((Code.CORRUPT_MESSAGE, Code.MESSAGE_TOO_LARGE, Code.NOT_LEADER_OR_FOLLOWER))
"""Errors that omit the log start offset, although they come from the leader."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """The answer for a batch that is in the leader's log, and not yet at all replicas in sync."""

    topic: Topic
    partition: Partition
    epoch: int
    end_offset: int
    answer: PartitionProduceResponse


class ProduceHandler:
    """One Produce request at one broker."""

    def __init__(self, cluster: ClusterModel, node_id: int, request: ProduceRequest, version: int, now_ms: int) -> None:
        self._cluster = cluster
        self._node_id = node_id
        self._request = request
        self._version = version
        self._now_ms = now_ms
        self._responses: list[TopicProduceResponse] = []
        self._waiting: list[_Waiting] = []
        # A broker treats a missing id like one the client may not use.
        self._nameless = request.transactional_id is None and any(
            is_transactional(one.records) for data in request.topic_data for one in data.partition_data
        )

    def write(self) -> None:
        """Write what can be written."""
        self._responses = [
            TopicProduceResponse(
                name=data.name,
                topic_id=data.topic_id,
                partition_responses=[self._partition(data, one) for one in data.partition_data],
            )
            for data in self._request.topic_data
        ]

    def response(self, now_ms: int) -> ProduceResponse | None:
        """The answer for every partition; None while one waits for its replicas, at most for the request's timeout."""
        late = now_ms >= self._now_ms + self._request.timeout_ms
        self._waiting = [one for one in self._waiting if not self._is_decided(one, late=late)]
        if self._waiting:
            return None
        return ProduceResponse(responses=self._responses, node_endpoints=self._endpoints(self._responses))

    def _is_decided(self, one: _Waiting, *, late: bool) -> bool:
        """Whether a batch that was written waits no longer; its answer then tells the outcome."""
        code = self._outcome(one, late=late)
        if code is None:
            return False
        one.answer.error_code = code
        one.answer.current_leader = self._leader_hint(one.partition, code)
        return True

    def _outcome(self, one: _Waiting, *, late: bool) -> int | None:
        """The error code for a batch that was written, 0 if it is committed; None while that is open."""
        if self._cluster.topic_by_id(one.topic.topic_id) is not one.topic:
            return Code.UNKNOWN_TOPIC_OR_PARTITION
        leadership = one.partition.leadership_of(self._node_id)
        if leadership is None or leadership.epoch != one.epoch:
            return Code.NOT_LEADER_OR_FOLLOWER
        if one.partition.logs[self._node_id].high_watermark >= one.end_offset:
            if len(leadership.isr) >= _needed(one.topic, one.partition):
                return 0
            if not self._cluster.version.strict_min_isr:
                return Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return Code.REQUEST_TIMED_OUT if late else None

    def _partition(self, data: TopicProduceData, partition_data: PartitionProduceData) -> PartitionProduceResponse:
        index = partition_data.index
        topic = self._topic(data)
        fault = self._cluster.faults.of_batch(self._node_id, topic.name if topic else data.name, index)
        if fault is not None and not fault.apply:
            return self._refused(topic, index, broker_error(fault.error_code, fault.error_message))
        answer = self._answer(topic, partition_data)
        if fault is not None and not answer.error_code:
            self._waiting = [one for one in self._waiting if one.answer is not answer]
            return self._refused(topic, index, broker_error(fault.error_code, fault.error_message))
        return answer

    def _answer(self, topic: Topic | None, data: PartitionProduceData) -> PartitionProduceResponse:
        try:
            topic, partition, records = self._checked(topic, data)
        except BrokerError as error:
            return self._refused(topic, data.index, error)
        try:
            return self._append(topic, partition, records)
        except RefusedRecordsError as error:
            answer = self._refused(topic, data.index, error.cause)
            answer.record_errors = [
                BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=text)
                for number, text in error.records.items()
            ]
        except BrokerError as error:
            answer = self._refused(topic, data.index, error)
            if error.code in WITHOUT_LOG_START:
                return answer
        answer.log_start_offset = partition.logs[self._node_id].start_offset
        return answer

    def _topic(self, data: TopicProduceData) -> Topic | None:
        if self._version >= TOPIC_IDS_SINCE:
            return self._cluster.topic_by_id(data.topic_id)
        return self._cluster.topics.get(data.name)

    def _checked(self, topic: Topic | None, data: PartitionProduceData) -> tuple[Topic, Partition, bytes]:
        """What a broker checks before it accesses the partition."""
        if self._nameless:
            raise TransactionalIdAuthorizationFailedError("transactional records without a transactional id")
        if topic is None:
            raise UnknownTopicIdError() if self._version >= TOPIC_IDS_SINCE else UnknownTopicOrPartitionError()
        partition = topic.partition(data.index)
        if partition is None:
            raise UnknownTopicOrPartitionError()
        records = check_frame(data.records, self._version)
        if self._request.acks not in (ALL_REPLICAS, 0, 1):
            raise broker_error(Code.INVALID_REQUIRED_ACKS)
        return topic, partition, records

    def _append(self, topic: Topic, partition: Partition, records: bytes) -> PartitionProduceResponse:
        leadership = partition.leadership_of(self._node_id)
        if leadership is None:
            raise NotLeaderOrFollowerError()
        self._verify(topic, partition, records)
        needed, in_sync = _needed(topic, partition), len(leadership.isr)
        if self._request.acks == ALL_REPLICAS and in_sync < needed:
            raise NotEnoughReplicasError(f"{in_sync} replicas are in sync, min.insync.replicas={needed}")
        batch = read_batch(records, topic.config.limits, self._now_ms)
        answer = self._written(topic, partition, batch)
        if self._request.acks == ALL_REPLICAS:
            end_offset = answer.base_offset + len(batch.records)
            self._waiting.append(_Waiting(topic, partition, leadership.epoch, end_offset, answer))
        return answer

    def _verify(self, topic: Topic, partition: Partition, records: bytes) -> None:
        """Ask the coordinator about the first batch of a transaction in this partition."""
        producer_id, epoch, sequence, transactional = producer_of(records)
        if not transactional or self._request.transactional_id is None:
            return
        log = partition.logs[self._node_id]
        entry = log.producers.entry(producer_id)
        adds = self._version >= ADDS_PARTITIONS_SINCE
        verifies = self._cluster.version.verifies_transactions
        if verifies and entry is not None and epoch < entry.epoch:
            raise InvalidProducerEpochError()
        if log.open_transaction(producer_id) is not None and entry is not None and entry.epoch == epoch:
            return
        if verifies:
            log.producers.verify(producer_id, epoch, sequence, adds=adds)
        try:
            verify(
                self._cluster,
                self._request.transactional_id,
                (producer_id, epoch),
                (topic.name, partition.index),
                adds=adds,
                abortable=self._version >= ABORTABLE_SINCE,
                now_ms=self._now_ms,
            )
        except CoordinatorLoadInProgressError as error:
            # Older clients would not retry that. Source: ReplicaManager.handleProduceAppend.
            raise NotEnoughReplicasError(f"the transaction can't be verified: {error.name}") from error

    def _check_transaction(self, log: PartitionLog, batch: Batch) -> None:
        """A transaction has only transactional batches, and in V2 its first one here begins an epoch."""
        who = f"producer {batch.producer_id}"
        if log.open_transaction(batch.producer_id) is not None and not batch.transactional:
            raise InvalidTxnStateError(f"{who} is in a transaction, the batch is not")
        adds = batch.transactional and self._version >= ADDS_PARTITIONS_SINCE
        if adds and batch.base_sequence and log.producers.entry(batch.producer_id) is None:
            raise OutOfOrderSequenceNumberError(f"{who} begins its transaction at sequence {batch.base_sequence}")

    def _written(self, topic: Topic, partition: Partition, batch: Batch) -> PartitionProduceResponse:
        log = partition.logs[self._node_id]
        log_append_time_ms = self._now_ms if topic.config.limits.log_append_time else None
        offset = None
        if batch.has_producer_id:
            duplicate = log.producers.duplicate_of(batch)
            if duplicate is None:
                log.producers.check(batch)
                self._check_transaction(log, batch)
            else:
                # As Kafka does, even where records keep their own timestamps. Source: UnifiedLog.append.
                offset, log_append_time_ms = duplicate.base_offset, duplicate.timestamp_ms
        if offset is None:
            offset = log.append(batch, log_append_time_ms)
            partition.replicate(self._node_id)
        return PartitionProduceResponse(
            index=partition.index,
            base_offset=offset,
            log_append_time_ms=-1 if log_append_time_ms is None else log_append_time_ms,
            log_start_offset=log.start_offset,
        )

    def _refused(self, topic: Topic | None, index: int, error: BrokerError) -> PartitionProduceResponse:
        partition = topic.partition(index) if topic else None
        assert error.code is not None
        told = str(error)
        return PartitionProduceResponse(
            index=index,
            error_code=error.code,
            base_offset=NO_OFFSET,
            error_message=told if told != error.meaning else None,  # as with Kafka: what the code says goes without
            current_leader=self._leader_hint(partition, error.code),
            log_start_offset=-1,
        )

    def _leader_hint(self, partition: Partition | None, code: int) -> LeaderIdAndEpoch:
        if partition is None or code != Code.NOT_LEADER_OR_FOLLOWER or self._version < LEADER_HINTS_SINCE:
            return LeaderIdAndEpoch()
        return LeaderIdAndEpoch(leader_id=partition.leader, leader_epoch=partition.leader_epoch)

    def _endpoints(self, responses: list[TopicProduceResponse]) -> list[NodeEndpoint]:
        """The addresses of the leaders named in the answer (KIP-951)."""
        leaders = dict.fromkeys(
            one.current_leader.leader_id for topic in responses for one in topic.partition_responses
        )
        brokers = (self._cluster.brokers[leader] for leader in leaders if leader != NO_LEADER)
        return [
            NodeEndpoint(node_id=one.node_id, host=one.host, port=one.port, rack=one.rack)
            for one in brokers
            if one.alive
        ]


def _needed(topic: Topic, partition: Partition) -> int:
    """How many replicas must be in sync for acks=all."""
    return min(topic.config.min_insync_replicas, len(partition.replicas))
