"""Creating, changing and describing topics, with blocking calls over the package's own protocol classes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from aioproducer.error_codes import Code
from aioproducer.errors import BrokerError, ConnectionLostError, broker_error
from aioproducer.message_text import host_port
from aioproducer.protocol import describe_configs, list_offsets
from aioproducer.protocol.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aioproducer.protocol.schema import R, Request
from aioproducer.testing import admin_messages as messages
from aioproducer.testing.admin_connection import AdminConnection
from aioproducer.testing.errors import ClusterError
from aioproducer.testing.properties import Address, text
from aioproducer.testing.waiting import POLL_S, wait_until

DYNAMIC_SOURCES = (1, 2)
"""``config_source`` of a value set for this topic or broker."""


class TopicAdmin:
    """The topics of a cluster reached by its addresses.

    Every call blocks until all running brokers show the change, so a test never sees stale metadata afterwards.
    In a coroutine use ``await asyncio.to_thread(cluster.create_topic, "orders")``; calls may come from several threads.

    Args:
        bootstrap_servers: addresses as ``host:port``, separated by commas.
    """

    answer_timeout_s: float = 5.0
    """How long a broker may take to answer."""
    change_timeout_s: float = 30.0
    """How long a change may take until every broker shows it."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap = [_address(one) for one in bootstrap_servers.split(",") if one.strip()]

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the cluster's brokers as a producer takes them: ``host:port,host:port``."""
        return ",".join(host_port(host, port) for host, port in self._bootstrap)

    @property
    def brokers(self) -> tuple[int, ...]:
        """The node ids of the cluster's brokers."""
        return tuple(sorted(self._live()))

    # --- topics

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        configs: Mapping[str, object] | None = None,
        *,
        assignments: Mapping[int, list[int]] | None = None,
    ) -> None:
        """Create a topic and wait until every broker knows it and every partition has a leader.

        Args:
            replication_factor: None for one replica per broker, at most 3.
            assignments: the brokers of each partition, its first leader first; replaces the two numbers.
        Raises:
            BrokerError: the broker's error, for instance TopicAlreadyExistsError.
        """
        topic = messages.CreatableTopic(
            name=name,
            configs=[
                messages.CreatableTopicConfig(name=key, value=text(value)) for key, value in (configs or {}).items()
            ],
        )
        if assignments:
            topic.assignments = [
                messages.CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
                for index, brokers in assignments.items()
            ]
            partitions = len(assignments)
        else:
            topic.num_partitions = partitions
            topic.replication_factor = replication_factor or min(3, len(self._live()))
        request = messages.CreateTopicsRequest(topics=[topic], timeout_ms=self._change_timeout_ms)
        self._change(request, _topic_results, Code.TOPIC_ALREADY_EXISTS, f"topic {name}")
        self._wait_for_leaders(name, partitions)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until no broker knows it."""
        request = messages.DeleteTopicsRequest(topic_names=[name], timeout_ms=self._change_timeout_ms)
        self._change(request, _deletion_results, Code.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}")

        def left() -> str:
            brokers = [
                one for one in self._live() if self._topic_at(one, name).error_code != Code.UNKNOWN_TOPIC_OR_PARTITION
            ]
            return f"{brokers} still know it" if brokers else ""

        wait_until(left, self.change_timeout_s, f"deleting topic {name}")

    def add_partitions(self, name: str, total: int) -> None:
        """Grow a topic to ``total`` partitions, and wait for their leaders."""
        topic = messages.CreatePartitionsTopic(name=name, count=total)
        request = messages.CreatePartitionsRequest(topics=[topic], timeout_ms=self._change_timeout_ms)
        self._change(request, _partition_results, Code.INVALID_PARTITIONS, f"topic {name}")
        self._wait_for_leaders(name, total)

    def alter_configs(self, topic: str, configs: Mapping[str, object]) -> None:
        """Set configs of a topic (None restores the default), and wait until every broker has them."""
        self._alter(describe_configs.TOPIC, topic, configs, None)
        for broker in self._live():
            self._wait_for_configs(describe_configs.TOPIC, topic, configs, broker)

    def alter_broker_configs(self, broker: int, configs: Mapping[str, object]) -> None:
        """Set dynamic configs of one broker (None restores the default), and wait until it has them."""
        self._alter(describe_configs.BROKER, str(broker), configs, broker)
        self._wait_for_configs(describe_configs.BROKER, str(broker), configs, broker)

    def alter_client_metrics(self, subscription: str, configs: Mapping[str, object]) -> None:
        """Set configs of a subscription to client metrics, and wait until every broker has them.

        Args:
            subscription: its name; created if it does not exist.
            configs: ``metrics`` (prefixes of names, "*" for all), ``interval.ms``, ``match``.
        Source: KIP-714.
        """
        self._alter(describe_configs.CLIENT_METRICS, subscription, configs, None)
        for broker in self._live():
            self._wait_for_configs(describe_configs.CLIENT_METRICS, subscription, configs, broker)

    def configs(self, topic: str) -> dict[str, str | None]:
        """All configs of a topic with their values, defaults included."""
        return {one.name: one.value for one in self._describe(describe_configs.TOPIC, topic, None, None)}

    # --- what is where

    def describe_topic(self, name: str) -> MetadataResponseTopic:
        """The topic as in Metadata: partitions with leader, replicas and in-sync replicas, sorted by number.

        Raises:
            BrokerError: UnknownTopicOrPartitionError if there is no such topic.
        """
        (topic,) = self.ask(_metadata_of(name)).topics
        _raise_for(topic.error_code, None, f"topic {name}")
        topic.partitions.sort(key=lambda one: one.partition_index)
        return topic

    def leader_of(self, topic: str, partition: int = 0) -> int | None:
        """The node id of a partition's leader; None if it has none."""
        for one in self.describe_topic(topic).partitions:
            if one.partition_index == partition:
                return one.leader_id if one.leader_id >= 0 else None
        raise ClusterError(f"topic {topic} has no partition {partition}")

    def move_leader(self, topic: str, partition: int, broker: int) -> None:
        """Make one of a partition's replicas its leader, and wait until every broker knows."""
        state = self.describe_topic(topic).partitions[partition]
        if broker not in state.replica_nodes:
            raise ClusterError(
                f"broker {broker} has no replica of {topic}-{partition}, only {state.replica_nodes} have"
            )
        replicas = [broker, *(one for one in state.replica_nodes if one != broker)]
        self._reassign(topic, partition, replicas)
        self._elect(topic, partition)

        def elsewhere() -> str:
            leaders = {at: self._topic_at(at, topic).partitions for at in self._live()}
            wrong = [at for at, states in leaders.items() if _leader(states, partition) != broker]
            return f"{wrong} do not show it" if wrong else ""

        wait_until(elsewhere, self.change_timeout_s, f"making broker {broker} the leader of {topic}-{partition}")

    def wait_in_sync(self, timeout_s: float = 60.0) -> None:
        """Wait until every replica of every partition is in sync."""

        def behind() -> str:
            lagging = [
                f"{topic.name}-{one.partition_index}"
                for topic in self.ask(MetadataRequest(topics=None)).topics
                for one in topic.partitions
                if set(one.isr_nodes) != set(one.replica_nodes) or one.leader_id < 0
            ]
            return f"{len(lagging)} partitions lack replicas, such as {lagging[0]}" if lagging else ""

        wait_until(behind, timeout_s, "getting all replicas in sync")

    def end_offsets(self, topic: str, *, committed: bool = False) -> dict[int, int]:
        """For each partition, the offset that its next record will have.

        Args:
            committed: the end for a consumer that reads only committed records: before open transactions.
        """
        wait_until(lambda: self._not_led(topic), self.change_timeout_s, f"finding the leaders of topic {topic}")
        found = self._offsets(topic, self.describe_topic(topic).partitions, committed)
        for one in found:
            _raise_for(one.error_code, None, f"{topic}-{one.partition_index}")
        return {one.partition_index: one.offset for one in found}

    # --- asking

    def ask(self, request: Request[R], *, broker: int | None = None) -> R:
        """Send any request of the protocol package to one broker, or to the first that answers; returns the response.

        Raises:
            ClusterError: no broker could be reached.
        """
        live = self._live()
        if broker is not None and broker not in live:
            raise ClusterError(f"broker {broker} is not there, only {sorted(live)} are")
        return self._ask_first(request, list(live.values()) if broker is None else [live[broker]])

    def _ask_first(self, request: Request[R], addresses: list[Address]) -> R:
        failures = []
        for address in addresses:
            try:
                with AdminConnection(address, self.answer_timeout_s) as connection:
                    return connection.ask(request)
            except (OSError, ConnectionLostError) as error:
                failures.append(f"{host_port(*address)}: {error or type(error).__name__}")
        raise ClusterError(f"no broker answers: {'; '.join(failures) or 'none is running'}{self._why_silent()}")

    def _why_silent(self) -> str:
        """Further reasons why no broker answers, appended to the failures."""
        return ""

    def _why_unchangeable(self) -> str:
        """Why no broker can take a change; empty if some can, or if that is not known."""
        return ""

    def _live(self) -> dict[int, Address]:
        """The brokers that should answer, by node id."""
        found: MetadataResponse = self._ask_first(MetadataRequest(topics=[]), self._bootstrap)
        return {one.node_id: (one.host, one.port) for one in found.brokers}

    def _topic_at(self, broker: int, name: str) -> MetadataResponseTopic:
        (topic,) = self.ask(_metadata_of(name), broker=broker).topics
        return topic

    @property
    def _change_timeout_ms(self) -> int:
        return int(self.change_timeout_s * 1000)

    # --- steps

    def _change(
        self, request: Request[R], results: Callable[[R], Iterable[tuple[int, str | None]]], done: int, what: str
    ) -> None:
        """Repeat a change request until a broker decides: the controller may have moved, or the answer been lost.

        Args:
            results: error code and message of each part of an answer.
            done: the error code by which a repeated request shows that an earlier one succeeded.
        """
        deadline = time.monotonic() + self.change_timeout_s
        repeated = False
        while True:
            live = self._live()
            if not live:  # and none is starting: _live() would have waited for it
                raise ClusterError(f"{what}: no broker is running{self._why_silent()}")
            if unchangeable := self._why_unchangeable():
                raise ClusterError(f"{what}: {unchangeable}{self._why_silent()}")
            for address in live.values():
                try:
                    with AdminConnection(address, self.answer_timeout_s) as connection:
                        answer = connection.ask(request)
                    for code, message in results(answer):
                        if not (repeated and code == done):
                            _raise_for(code, message, what)
                    return
                except (OSError, BrokerError) as error:
                    if isinstance(error, BrokerError) and (error.code == done or not error.retriable):
                        raise
                    failure: Exception = error
                    repeated = True
            if time.monotonic() > deadline:
                raise ClusterError(f"{what}: no broker took the change within {self.change_timeout_s:g} s") from failure
            time.sleep(POLL_S)

    def _wait_for_leaders(self, name: str, partitions: int) -> None:
        def missing() -> str:
            live = self._live()
            for broker in live:
                topic = self._topic_at(broker, name)
                led = [one for one in topic.partitions if one.leader_id in live]
                if topic.error_code or len(led) != partitions:
                    return f"broker {broker} shows {len(led)} of {partitions} partitions with a leader"
            return self._not_led(name)

        wait_until(missing, self.change_timeout_s, f"making {partitions} partitions of topic {name}")

    def _not_led(self, topic: str) -> str:
        """A partition whose leader does not act as one yet: brokers show a leader before it has taken over."""
        live = self._live()
        partitions = self.describe_topic(topic).partitions
        waiting = [one.partition_index for one in partitions if one.leader_id not in live]
        if not waiting:
            found = self._offsets(topic, partitions, committed=False)
            waiting = [one.partition_index for one in found if one.error_code]
        return f"the partitions {waiting} have no leader" if waiting else ""

    def _offsets(
        self, topic: str, partitions: list[MetadataResponsePartition], committed: bool
    ) -> list[list_offsets.ListOffsetsPartitionResponse]:
        """The end offsets of partitions, with one request to each leader."""
        found: list[list_offsets.ListOffsetsPartitionResponse] = []
        for leader in sorted({one.leader_id for one in partitions}):
            wanted = [
                list_offsets.ListOffsetsPartition(partition_index=one.partition_index, timestamp=list_offsets.LATEST)
                for one in partitions
                if one.leader_id == leader
            ]
            topics = [list_offsets.ListOffsetsTopic(name=topic, partitions=wanted)]
            request = list_offsets.ListOffsetsRequest(isolation_level=int(committed), topics=topics)
            found += self.ask(request, broker=leader).topics[0].partitions
        return sorted(found, key=lambda one: one.partition_index)

    def _alter(self, kind: int, name: str, configs: Mapping[str, object], broker: int | None) -> None:
        changes = [
            messages.AlterableConfig(
                name=key,
                config_operation=messages.DELETE if value is None else messages.SET,
                value=None if value is None else text(value),
            )
            for key, value in configs.items()
        ]
        resource = messages.AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
        for result in self.ask(messages.IncrementalAlterConfigsRequest(resources=[resource]), broker=broker).responses:
            _raise_for(result.error_code, result.error_message, f"configs of {name}")

    def _describe(
        self, kind: int, name: str, keys: list[str] | None, broker: int | None
    ) -> list[describe_configs.DescribeConfigsResourceResult]:
        resource = describe_configs.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=keys
        )
        (result,) = self.ask(describe_configs.DescribeConfigsRequest(resources=[resource]), broker=broker).results
        _raise_for(result.error_code, result.error_message, f"configs of {name}")
        return result.configs

    def _wait_for_configs(self, kind: int, name: str, configs: Mapping[str, object], broker: int) -> None:
        def missing() -> str:
            found = {one.name: one for one in self._describe(kind, name, list(configs), broker)}
            wrong = [key for key, value in configs.items() if not _is_set(found.get(key), value)]
            return f"broker {broker} shows {[found.get(key) for key in wrong]}" if wrong else ""

        wait_until(missing, self.change_timeout_s, f"setting configs of {name}")

    def _reassign(self, topic: str, partition: int, replicas: list[int]) -> None:
        moved = messages.ReassignablePartition(partition_index=partition, replicas=replicas)
        topics = [messages.ReassignableTopic(name=topic, partitions=[moved])]
        answer = self.ask(messages.AlterPartitionReassignmentsRequest(topics=topics))
        _raise_for(answer.error_code, answer.error_message, f"{topic}-{partition}")
        for result in answer.responses[0].partitions:
            _raise_for(result.error_code, result.error_message, f"{topic}-{partition}")

    def _elect(self, topic: str, partition: int) -> None:
        wanted = messages.ElectableTopic(topic=topic, partitions=[partition])
        answer = self.ask(messages.ElectLeadersRequest(topic_partitions=[wanted]))
        _raise_for(answer.error_code, None, f"{topic}-{partition}")
        for result in answer.replica_election_results[0].partition_result:
            if result.error_code != Code.ELECTION_NOT_NEEDED:
                _raise_for(result.error_code, result.error_message, f"{topic}-{partition}")


class ExistingCluster(TopicAdmin):
    """A cluster started elsewhere: topics can be created and described, brokers can't be touched."""

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(bootstrap_servers)
        if not self._bootstrap:
            raise ClusterError("there is no address in the bootstrap servers; write host:port")


def _address(server: str) -> Address:
    host, _, port = server.strip().rpartition(":")
    if not host or not port.isdigit():
        raise ClusterError(f"{server!r} is not an address; write host:port")
    return host.strip("[]"), int(port)


def _metadata_of(topic: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)


def _topic_results(answer: messages.CreateTopicsResponse) -> list[tuple[int, str | None]]:
    return [(one.error_code, one.error_message) for one in answer.topics]


def _deletion_results(answer: messages.DeleteTopicsResponse) -> list[tuple[int, str | None]]:
    return [(one.error_code, one.error_message) for one in answer.responses]


def _partition_results(answer: messages.CreatePartitionsResponse) -> list[tuple[int, str | None]]:
    return [(one.error_code, one.error_message) for one in answer.results]


def _raise_for(error_code: int, message: str | None, what: str) -> None:
    if error_code:
        raise broker_error(error_code, f"{what}: {message}" if message else what)


def _leader(partitions: list[MetadataResponsePartition], partition: int) -> int | None:
    return next((one.leader_id for one in partitions if one.partition_index == partition), None)


def _is_set(found: describe_configs.DescribeConfigsResourceResult | None, value: object) -> bool:
    """Whether a broker shows the new value; secrets are never shown."""
    if found is None:
        return False
    if value is None:
        return found.config_source not in DYNAMIC_SOURCES
    return found.is_sensitive or (found.value or "").replace(" ", "") == text(value).replace(" ", "")
