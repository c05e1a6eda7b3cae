"""The messages of the admin client, in versions common to brokers from 2.8 to 4.4."""

from __future__ import annotations

from aioproducer.protocol.schema import ZERO_UUID, Int8, Int16, Int32, Message, Request, Struct, Uuid, field

SET, DELETE = 0, 1
"""``config_operation`` of IncrementalAlterConfigs."""
PREFERRED = 0
"""``election_type``: the first of the partition's replicas."""


# --- CreateTopics (key 19) --------------------------------------------------------------------------------------------


class CreatableReplicaAssignment(Struct):
    """The brokers of one partition; the first becomes its leader."""

    partition_index: Int32
    broker_ids: list[Int32]


class CreatableTopicConfig(Struct):
    """One config of a new topic."""

    name: str
    value: str | None


class CreatableTopic(Struct):
    """A topic to create; -1 leaves a number to the broker or the assignments."""

    name: str
    num_partitions: Int32 = field(default=-1)
    replication_factor: Int16 = field(default=-1)
    assignments: list[CreatableReplicaAssignment] = field(default_factory=list)
    configs: list[CreatableTopicConfig] = field(default_factory=list)


class CreatableTopicConfigs(Struct):
    """A config of the created topic."""

    name: str
    value: str | None
    read_only: bool
    config_source: Int8 = field(default=-1)
    is_sensitive: bool


class CreatableTopicResult(Struct):
    """The result for one topic."""

    name: str
    topic_id: Uuid = field(default=ZERO_UUID, since=7, ignorable=True)
    error_code: Int16
    error_message: str | None = field(default=None)
    topic_config_error_code: Int16 = field(default=0, since=5, tag=0, ignorable=True)
    num_partitions: Int32 = field(default=-1, since=5, ignorable=True)
    replication_factor: Int16 = field(default=-1, since=5, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = field(default_factory=list, since=5, ignorable=True)


class CreateTopicsResponse(Message):
    """One result per topic."""

    throttle_time_ms: Int32 = field(default=0)
    topics: list[CreatableTopicResult]


class CreateTopicsRequest(Request[CreateTopicsResponse]):
    """Create topics; any broker forwards the request to the controller."""

    API_KEY = 19
    MIN_VERSION = 2
    MAX_VERSION = 7
    FLEXIBLE_FROM = 5

    topics: list[CreatableTopic]
    timeout_ms: Int32 = field(default=60_000)
    validate_only: bool = field(default=False)


# --- DeleteTopics (key 20) --------------------------------------------------------------------------------------------


class DeletableTopicResult(Struct):
    """The result for one topic."""

    name: str
    error_code: Int16
    error_message: str | None = field(default=None, since=5, ignorable=True)


class DeleteTopicsResponse(Message):
    """One result per topic."""

    throttle_time_ms: Int32 = field(default=0)
    responses: list[DeletableTopicResult]


class DeleteTopicsRequest(Request[DeleteTopicsResponse]):
    """Remove topics by name."""

    API_KEY = 20
    MIN_VERSION = 1
    MAX_VERSION = 5
    FLEXIBLE_FROM = 4

    topic_names: list[str]
    timeout_ms: Int32


# --- CreatePartitions (key 37) ----------------------------------------------------------------------------------------


class CreatePartitionsAssignment(Struct):
    """The brokers of one new partition."""

    broker_ids: list[Int32]


class CreatePartitionsTopic(Struct):
    """A topic and its new total number of partitions."""

    name: str
    count: Int32
    assignments: list[CreatePartitionsAssignment] | None = field(default=None)


class CreatePartitionsTopicResult(Struct):
    """The result for one topic."""

    name: str
    error_code: Int16
    error_message: str | None = field(default=None)


class CreatePartitionsResponse(Message):
    """One result per topic."""

    throttle_time_ms: Int32 = field(default=0)
    results: list[CreatePartitionsTopicResult]


class CreatePartitionsRequest(Request[CreatePartitionsResponse]):
    """Add partitions to topics."""

    API_KEY = 37
    MIN_VERSION = 0
    MAX_VERSION = 3
    FLEXIBLE_FROM = 2

    topics: list[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: bool = field(default=False)


# --- IncrementalAlterConfigs (key 44) ---------------------------------------------------------------------------------


class AlterableConfig(Struct):
    """One config and its change."""

    name: str
    config_operation: Int8
    value: str | None


class AlterConfigsResource(Struct):
    """A topic by name, or a broker by its number."""

    resource_type: Int8
    resource_name: str
    configs: list[AlterableConfig]


class AlterConfigsResourceResponse(Struct):
    """The result for one resource."""

    error_code: Int16
    error_message: str | None
    resource_type: Int8
    resource_name: str


class IncrementalAlterConfigsResponse(Message):
    """One result per resource."""

    throttle_time_ms: Int32 = field(default=0)
    responses: list[AlterConfigsResourceResponse]


class IncrementalAlterConfigsRequest(Request[IncrementalAlterConfigsResponse]):
    """Change some configs and leave the others."""

    API_KEY = 44
    MIN_VERSION = 0
    MAX_VERSION = 1
    FLEXIBLE_FROM = 1

    resources: list[AlterConfigsResource]
    validate_only: bool = field(default=False)


# --- ElectLeaders (key 43) --------------------------------------------------------------------------------------------


class ElectableTopic(Struct):
    """Partitions of one topic."""

    topic: str
    partitions: list[Int32]


class PartitionElectionResult(Struct):
    """The result for one partition."""

    partition_id: Int32
    error_code: Int16
    error_message: str | None


class ReplicaElectionResult(Struct):
    """The results for the partitions of one topic."""

    topic: str
    partition_result: list[PartitionElectionResult]


class ElectLeadersResponse(Message):
    """One result per partition."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16
    replica_election_results: list[ReplicaElectionResult]


class ElectLeadersRequest(Request[ElectLeadersResponse]):
    """Elect leaders anew."""

    API_KEY = 43
    MIN_VERSION = 1
    MAX_VERSION = 2
    FLEXIBLE_FROM = 2

    election_type: Int8 = field(default=PREFERRED)
    topic_partitions: list[ElectableTopic] | None
    timeout_ms: Int32 = field(default=60_000)


# --- AlterPartitionReassignments (key 45) -----------------------------------------------------------------------------


class ReassignablePartition(Struct):
    """A partition and its new brokers, in order of preference for its leader."""

    partition_index: Int32
    replicas: list[Int32] | None


class ReassignableTopic(Struct):
    """Partitions of one topic."""

    name: str
    partitions: list[ReassignablePartition]


class ReassignablePartitionResponse(Struct):
    """The result for one partition."""

    partition_index: Int32
    error_code: Int16
    error_message: str | None


class ReassignableTopicResponse(Struct):
    """The results for the partitions of one topic."""

    name: str
    partitions: list[ReassignablePartitionResponse]


class AlterPartitionReassignmentsResponse(Message):
    """One result per partition."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16
    error_message: str | None
    responses: list[ReassignableTopicResponse]


class AlterPartitionReassignmentsRequest(Request[AlterPartitionReassignmentsResponse]):
    """Move partitions to other brokers."""

    API_KEY = 45
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_FROM = 0

    timeout_ms: Int32 = field(default=60_000)
    topics: list[ReassignableTopic]
