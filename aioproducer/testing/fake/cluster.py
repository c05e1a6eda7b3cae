"""FakeCluster: the cluster model on real sockets, for tests that need no real broker."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from aioproducer.forks import ForkWatch
from aioproducer.testing.errors import IN_A_FORK, ClusterError
from aioproducer.testing.fake.client_metrics import CODECS, DEFAULT_INTERVAL_MS, MAX_BYTES, Push
from aioproducer.testing.fake.faults import FaultScript
from aioproducer.testing.fake.groups import CommittedOffset
from aioproducer.testing.fake.metadata import fall_behind
from aioproducer.testing.fake.model import Address, ClusterModel
from aioproducer.testing.fake.partition_log import LogRecord
from aioproducer.testing.fake.server import BrokerServers
from aioproducer.testing.fake.versions import NEWEST
from aioproducer.testing.ports import HOST

NO_PORT = 0


class _Lock:
    """A lock that refuses a fork of its process, where a thread that the fork does not have may hold it for ever."""

    def __init__(self) -> None:
        self.is_forked = False
        self._lock = threading.RLock()

    def check(self) -> None:
        """Raise ClusterError in a fork."""
        if self.is_forked:
            raise ClusterError(IN_A_FORK)

    def __enter__(self) -> None:
        self.check()
        self._lock.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._lock.release()


class FakeCluster:
    """A Kafka cluster inside the test's process, ready in milliseconds.

    It accepts and refuses the same as a broker: batches are checked to the last byte, and sequences, epochs and
    transactions follow Kafka's rules. It serves no consumers: ``records`` returns what was written. ``faults`` makes
    single requests fail.

    Use it in a ``with`` or ``async with`` block. It answers from its own thread, so calls may come from any thread or
    event loop and return within milliseconds, and a test that blocks its loop does not block the brokers. A fork of the
    process can only connect to it.

    Args:
        brokers: how many; their node ids count from 1.
        version: the Kafka version it behaves like: "4.3", "3.9", "2.8", "2.1" or "0.11".
        transaction_version: level of the feature ``transaction.version``; None for the newest.
        auto_create_topics: whether a topic is created when a client asks for it.
        default_partitions: of topics created that way.
        min_insync_replicas, message_max_bytes: the defaults of topics.
        receives_metrics: whether the brokers have a receiver for client metrics (KIP-714); see ``subscribe_metrics``.
        seed: of everything random.
    Raises:
        ValueError: a number is impossible for a Kafka cluster.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        version: str = NEWEST,
        transaction_version: int | None = None,
        auto_create_topics: bool = True,
        default_partitions: int = 1,
        min_insync_replicas: int = 1,
        message_max_bytes: int = 1_048_588,
        receives_metrics: bool = False,
        seed: int = 0,
    ) -> None:
        self._lock = _Lock()
        self._model = ClusterModel(
            brokers=brokers,
            rng=random.Random(seed),
            version=version,
            transaction_version=transaction_version,
            auto_create_topics=auto_create_topics,
            default_partitions=default_partitions,
            min_insync_replicas=min_insync_replicas,
            message_max_bytes=message_max_bytes,
            receives_metrics=receives_metrics,
            addresses=dict.fromkeys(range(1, brokers + 1), (HOST, NO_PORT)),
            guard=self._lock,
        )
        self._receives_metrics = receives_metrics
        self._servers: BrokerServers | None = None

    # --- the cluster

    def start(self) -> None:
        """Listen on a free port of the loopback interface for every broker."""
        self._lock.check()
        if self._servers is not None:
            raise ClusterError("the fake cluster is running")
        servers = BrokerServers(self._model, self._lock, now_ms)
        servers.start()
        self._servers = servers
        _forks.add(self)

    def stop(self) -> None:
        """Close all ports and connections. The records can still be read. Does nothing if it is not running.

        Nor in a fork: the cluster goes on in its own process.
        """
        servers, self._servers = self._servers, None
        if servers is not None and not self._lock.is_forked:
            _forks.discard(self)
            servers.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.stop()
        # Clients in this loop see their connections close in its next turn.
        await asyncio.sleep(0)

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers as a producer takes them: ``host:port,host:port``."""
        return ",".join("{}:{}".format(*self.address_of(broker)) for broker in self.brokers)

    @property
    def brokers(self) -> tuple[int, ...]:
        """The node ids of all brokers, including those that are not running."""
        return tuple(self._model.brokers)

    @property
    def running(self) -> tuple[int, ...]:
        """The brokers that are running."""
        with self._lock:
            return tuple(node_id for node_id, broker in self._model.brokers.items() if broker.up)

    def address_of(self, broker: int) -> Address:
        """Host and port where clients reach a broker; unchanged by restarts.

        Raises:
            ClusterError: the cluster was never started.
        """
        found = self._model.broker(broker)
        if found.port == NO_PORT:
            raise ClusterError("the fake cluster has no addresses before it is started: use it in a with block")
        return found.host, found.port

    @property
    def faults(self) -> FaultScript:
        """The faults to inject: see FaultScript."""
        return self._model.faults

    # --- its brokers

    def stop_broker(self, broker: int, *, elect: bool = True) -> None:
        """Stop a broker and close its connections; its partitions get other leaders.

        Args:
            elect: False leaves them without a leader until ``elect_leaders``.
        """
        servers = self._running_servers()
        with self._lock:
            self._model.stop_broker(broker, elect=elect)
        servers.close(broker)

    def start_broker(self, broker: int) -> None:
        """Start a stopped broker on its port; it is in sync again at once.

        Raises:
            ClusterError: it is running, or another process has taken its port.
        """
        servers = self._running_servers()
        if broker in self.running:
            raise ClusterError(f"broker {broker} is running")
        # The port first, which another process may have: a broker that is up without one leads what nobody reaches.
        listener = servers.bind(broker)
        with self._lock:
            self._model.outdated.pop(broker, None)
            self._model.start_broker(broker)
        servers.serve(broker, listener)

    def pause_replication(self, broker: int) -> None:
        """Let a broker copy nothing more of what leaders write, for instance because it is slow.

        It stays in sync, so its partitions answer nobody with acks=all, until ``resume_replication`` or ``shrink_isr``.
        If it then leads one of them, what it does not have is lost.
        """
        with self._lock:
            self._model.pause_replication(broker)

    def resume_replication(self, broker: int) -> None:
        """Let a broker copy again; it is in sync again at once."""
        with self._lock:
            self._model.resume_replication(broker)

    def cut_off(self, broker: int) -> None:
        """Let a broker and the controller lose each other: others lead its partitions, and it does not know that.

        Clients still reach it. It tells them what it knew, and accepts records; those with acks=1 are lost when it is
        reconnected, and for those with acks=all it waits in vain for replicas.

        Raises:
            ClusterError: it does not run.
        """
        self._check_running(broker)
        with self._lock:
            fall_behind(self._model, broker)
            self._model.cut_off(broker)

    def reconnect(self, broker: int) -> None:
        """Let a broker that was cut off know who leads; it is in sync again at once."""
        with self._lock:
            self._model.outdated.pop(broker, None)
            self._model.reconnect(broker)

    def drop_connections(self, broker: int) -> None:
        """Close all connections of a broker; it keeps listening."""
        servers = self._running_servers()
        self._check_running(broker)
        servers.close(broker)
        servers.serve(broker, servers.bind(broker))

    def change_addresses(self, *brokers: int) -> None:
        """Move running brokers (all if none is named) to other ports, and close their connections.

        Clients learn of it from a broker they still reach; ``bootstrap_servers`` has the new addresses.
        """
        servers = self._running_servers()
        self._check_running(*brokers)
        servers.move(brokers or self.running)

    # --- topics

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        configs: Mapping[str, object] | None = None,
        *,
        assignments: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        """Create a topic.

        Args:
            replication_factor: None for one replica per broker, at most 3.
            configs: by their Kafka names. These have an effect: max.message.bytes, segment.bytes, min.insync.replicas,
                cleanup.policy (compact: records need a key), message.timestamp.type and
                message.timestamp.{before,after}.max.ms.
            assignments: the brokers of each partition, its leader first; replaces the two numbers.
        Raises:
            BrokerError: as a real cluster answers, for instance TopicAlreadyExistsError.
        """
        with self._lock:
            self._model.create_topic(name, partitions, replication_factor, configs, assignments=assignments)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records. If it is created again, it has another id."""
        with self._lock:
            self._model.delete_topic(name)

    def add_partitions(self, name: str, total: int) -> None:
        """Grow a topic to ``total`` partitions."""
        with self._lock:
            self._model.add_partitions(name, total)

    def alter_configs(self, topic: str, configs: Mapping[str, object]) -> None:
        """Set configs of a topic (None restores the default); see ``create_topic`` for those with an effect."""
        with self._lock:
            self._model.alter_configs(topic, configs)

    def topics(self) -> tuple[str, ...]:
        """The names of all topics, in creation order."""
        with self._lock:
            return tuple(self._model.topics)

    def topic_id(self, topic: str) -> bytes:
        """The 16 bytes of a topic's id."""
        with self._lock:
            return self._model.topic(topic).topic_id

    # --- leaders and replicas

    def leader_of(self, topic: str, partition: int = 0) -> int | None:
        """The node id of the leader, None during an election."""
        with self._lock:
            return self._model.leader_of(topic, partition)

    def move_leader(self, topic: str, partition: int = 0, broker: int | None = None) -> int:
        """Make another replica the leader, by default the next one in sync; returns its node id."""
        with self._lock:
            return self._model.move_leader(topic, partition, broker)

    def remove_leader(self, topic: str, partition: int = 0) -> None:
        """Leave a partition without a leader until ``elect_leaders`` or ``move_leader``."""
        with self._lock:
            self._model.remove_leader(topic, partition)

    def elect_leaders(self, *, unclean: bool = False) -> None:
        """Make the first running in-sync replica the leader of each partition without one.

        Args:
            unclean: take any replica if none of those in sync runs; what it does not have is lost.
        """
        with self._lock:
            self._model.elect_leaders(unclean=unclean)

    def shrink_isr(self, topic: str, partition: int, isr: Sequence[int]) -> None:
        """Set the in-sync replicas, which must include the leader."""
        with self._lock:
            self._model.shrink_isr(topic, partition, isr)

    # --- the log

    def records(self, topic: str, partition: int = 0, *, read_committed: bool = False) -> list[LogRecord]:
        """The records of a partition that consumers see, in the order of the log.

        Args:
            read_committed: leave out records of open and aborted transactions, and those that follow an open one.
        Raises:
            UnknownTopicOrPartitionError: there is no such partition.
        """
        with self._lock:
            self._model.advance(now_ms())
            return self._model.records(topic, partition, read_committed=read_committed)

    def end_offsets(self, topic: str) -> dict[int, int]:
        """The offset of the next record in each partition, as consumers see it."""
        with self._lock:
            self._model.advance(now_ms())
            return self._model.end_offsets(topic)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Drop the oldest records, as retention does."""
        with self._lock:
            self._model.advance(now_ms())
            self._model.delete_records(topic, partition, before_offset)

    def forget_producers(self, topic: str, partition: int = 0, producer_id: int | None = None) -> None:
        """Make a partition forget one producer or all, as after ``producer.id.expiration.ms``.

        It keeps those that have an open transaction there.
        """
        with self._lock:
            self._model.advance(now_ms())
            self._model.forget_producers(topic, partition, producer_id)

    # --- transactions and groups

    def coordinator_of(self, key: str) -> int | None:
        """The broker that coordinates a transactional id or a consumer group; None if no broker is running."""
        with self._lock:
            return self._model.coordinators.node_of(key)

    def move_coordinator(self, key: str, broker: int) -> None:
        """Make a broker coordinate a transactional id or a group from now on, while it is running."""
        with self._lock:
            self._model.coordinators.move(key, self._model.broker(broker).node_id)

    def load_coordinator(self, broker: int, duration_ms: int) -> None:
        """Make a broker answer COORDINATOR_LOAD_IN_PROGRESS for some time.

        Leaders can't ask it meanwhile, and answer the first batches of its transactions with NOT_ENOUGH_REPLICAS.
        """
        with self._lock:
            self._model.coordinators.load(self._model.broker(broker).node_id, now_ms() + duration_ms)

    def delay_markers(self, duration_ms: int) -> None:
        """Write the markers that end transactions this much later than EndTxn is answered.

        Until then the next transaction meets CONCURRENT_TRANSACTIONS, as on a real cluster that is busy."""
        with self._lock:
            self._model.coordinators.transactions.marker_delay_ms = duration_ms

    def forget_transactional_id(self, transactional_id: str) -> None:
        """Make the coordinator forget a transactional id, as after ``transactional.id.expiration.ms``.

        It keeps one that has an open transaction.
        """
        with self._lock:
            self._model.advance(now_ms())
            self._model.coordinators.transactions.forget(transactional_id)

    def transaction_state(self, transactional_id: str) -> str | None:
        """The state by Kafka's name, such as ``Ongoing`` or ``CompleteCommit``; None if the id is unknown."""
        with self._lock:
            self._model.advance(now_ms())
            found = self._model.coordinators.transactions.get(transactional_id)
            return found.state.value if found else None

    def committed_offsets(self, group_id: str) -> dict[tuple[str, int], CommittedOffset]:
        """The committed offsets of a consumer group, by topic and partition."""
        with self._lock:
            self._model.advance(now_ms())
            return dict(self._model.coordinators.group(group_id).offsets)

    def set_group(self, group_id: str, generation_id: int, members: Mapping[str, str | None]) -> None:
        """Set the members of a consumer group: their group instance ids (or None) by member id."""
        with self._lock:
            group = self._model.coordinators.group(group_id)
            group.generation_id, group.members = generation_id, dict(members)

    # --- the metrics of clients

    def subscribe_metrics(
        self,
        *names: str,
        interval_ms: int = DEFAULT_INTERVAL_MS,
        max_bytes: int = MAX_BYTES,
        delta: bool = True,
        codecs: Sequence[int] = CODECS,
    ) -> None:
        """Have clients push metrics; before this call, and without names, the brokers ask for none.

        Args:
            names: prefixes of the wanted names; "*" for all.
            interval_ms: between two pushes.
            max_bytes: the largest push.
            delta: whether sums count from the last push, not from the start.
            codecs: numbers of the accepted compression types, the preferred one first.

        Raises:
            ClusterError: the brokers have no receiver, so no client would ask them.
        """
        if not self._receives_metrics:
            raise ClusterError("the brokers have no receiver for metrics; FakeCluster(receives_metrics=True) has")
        with self._lock:
            self._model.client_metrics.subscribe(names, interval_ms, max_bytes, delta, codecs)

    def pushed_metrics(self) -> tuple[Push, ...]:
        """The metrics pushed by clients, in order of arrival."""
        with self._lock:
            return tuple(self._model.client_metrics.pushes)

    def _check_running(self, *brokers: int) -> None:
        for broker in brokers:
            if broker not in self.running:
                raise ClusterError(f"broker {broker} does not run")

    def _forget(self) -> None:
        self._lock.is_forked = True
        if self._servers is not None:
            self._servers.forget()

    def _running_servers(self) -> BrokerServers:
        self._lock.check()
        if self._servers is None:
            raise ClusterError("the fake cluster does not run")
        return self._servers


_forks = ForkWatch(FakeCluster._forget)


def now_ms() -> int:
    """The wall clock, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
