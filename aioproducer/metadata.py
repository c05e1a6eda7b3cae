"""Keeps the cluster metadata fresh, and lets ``send`` wait for a topic.

One task, ``run``, makes the requests that are due by ``metadata_schedule.py``, one at a time, and merges the answers
into ``cluster``. Steps that could block the loop (reading and merging the answer of a huge cluster) yield to it.

An update without an answer is retried with back-off. If all known brokers have failed, if a broker asks for it, or if
an update has taken too long, everything starts again from ``bootstrap_servers`` (``metadata_recovery_strategy``).

An answer from another cluster is not adopted: it may come from one broker whose address leads elsewhere. It too makes
everything start again; if ``bootstrap_servers`` lead to another cluster now, that one is adopted, with nothing known of
its topics, and ``on_other_cluster`` is called.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import random
import re
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from typing import TypeVar

from aioproducer.client_logger import ClientLogger
from aioproducer.cluster import (
    NO_LEADER,
    STEP,
    Broker,
    Cluster,
    ClusterChanges,
    ClusterTopic,
    LeaderHint,
    brokers_of,
    cluster_id_of,
)
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.error_codes import Code
from aioproducer.errors import (
    AuthenticationError,
    ConnectionLostError,
    InvalidTopicError,
    KafkaError,
    MetadataTimeoutError,
    ProducerClosedError,
    ProducerFailedError,
    ProtocolError,
    RebootstrapRequiredError,
    broker_error,
    error_class,
)
from aioproducer.log_limit import WARN_EVERY_MS, LogLimit
from aioproducer.message_text import excerpt, listed
from aioproducer.metadata_schedule import MetadataSchedule, MetadataUpdate
from aioproducer.net.client import NetworkClient
from aioproducer.net.connection import Connection, not_written
from aioproducer.net.first_answer import first_answer
from aioproducer.net.node import Refusals
from aioproducer.net.nodes import SLOW_MS
from aioproducer.protocol.header import decode_response_in_steps
from aioproducer.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from aioproducer.topic_waiters import TopicWaiters

logger: logging.Logger = logging.getLogger("aioproducer.metadata")

RELIABLE_EPOCHS_SINCE = 9
"""The first Metadata version whose leader epochs can be compared (Kafka 2.4)."""

WARN_FROM_FAILURES = 3
"""A topic that is just being created first has an error or two, which needs no warning."""

STEP_BYTES = 4_096
"""Bytes of an answer read in one turn of the loop: well under a millisecond."""

_LEGAL_TOPIC = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}\Z")
_UNKNOWN_LEADER = "which is not in the cluster's list of brokers"
_REFUSED = (Code.INVALID_TOPIC_EXCEPTION, Code.TOPIC_AUTHORIZATION_FAILED)

T = TypeVar("T")


class OtherClusterError(RebootstrapRequiredError):
    """A broker belongs to another cluster than those before it."""


def _nothing(*_: object) -> None:
    pass


class Metadata:
    """The cluster as it is known now, and the task that keeps it up to date.

    Args:
        on_fatal: gets the error that ended ``run`` although nothing should; all waiters here get it too.
    """

    def __init__(
        self,
        config: ProducerConfig,
        client: NetworkClient,
        *,
        loop: asyncio.AbstractEventLoop,
        rng: random.Random,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self.cluster: Cluster = Cluster()
        self.on_cluster_change: Callable[[Collection[str]], None] = _nothing
        """Called after each change of the brokers or topics, with the topics that changed, forgotten ones included."""
        self.has_records: Callable[[str], bool] = lambda _: False
        """Whether records for a topic are buffered: it is not forgotten, and may be created if it is missing."""
        self.on_other_cluster: Callable[[str, str], None] = _nothing
        """Called with the ids of the former cluster and of the one that has taken its place, before that is adopted."""
        self.cluster_id: str | None = None
        self.on_cluster_id: Callable[[str], None] = _nothing
        """Called with each new ``cluster_id``."""
        self._logger = ClientLogger(logger, config.client_id)
        self._config = config
        self._client = client
        self._loop = loop
        self._on_fatal = on_fatal
        self._schedule = MetadataSchedule(config, rng)
        self._wake = asyncio.Event()
        self._kept: set[str] = set()
        self._waiters = TopicWaiters(loop)
        self._hints: list[LeaderHint] = []
        self._last_error: KafkaError | None = None
        self._rebootstrapping = False
        self._refusals = Refusals()
        self._ended_by: KafkaError | None = None
        self._warnings_of_topics = LogLimit(WARN_EVERY_MS)
        self._warnings_of_rebootstrap = LogLimit(WARN_EVERY_MS)
        client.on_disconnect = self._on_disconnect

    # --- for senders --------------------------------------------------------------------------------------------------

    def age_ms(self, now_ms: int) -> int:
        """Milliseconds since the last full answer."""
        return now_ms - self._schedule.full_at_ms

    def touch(self, topic: str, now_ms: int) -> None:
        """Note that a topic is in use. A topic untouched for ``metadata_max_idle_ms`` is forgotten.

        Raises:
            InvalidTopicError: no topic can have this name.
        """
        if topic not in self._schedule.topics:
            check_topic_name(topic)
        if self._schedule.use(topic, now_ms):
            self._wake.set()

    def need(self, topic: str, now_ms: int) -> None:
        """Have a topic fetched, and created if it is missing, for a caller that does not wait for it.

        Raises:
            InvalidTopicError: no topic can have this name.
        """
        self.touch(topic, now_ms)
        self._schedule.need(topic)

    def keep(self, topics: Iterable[str]) -> None:
        """Never forget these topics, however long they are not touched."""
        self._kept.update(topics)

    def request_update(self) -> None:
        """Ask for fresh metadata of everything in use: a leader is wrong or unknown. Returns at once."""
        self._schedule.want_all()
        self._wake.set()

    def apply_leader_hints(self, hints: Collection[LeaderHint], brokers: Iterable[Broker] = ()) -> bool:
        """Adopt the leaders that a broker named in one produce answer; True if one of them was newer.

        Args:
            brokers: addresses that came with the answer.
        Source: KIP-951.
        """
        changes = self.cluster.changes_by_hints(hints, brokers)
        if not changes.topics:
            return False
        self._hints.extend(hints)
        self._take(changes)
        return True

    async def wait_for_topic(self, topic: str, *, partition: int | None = None, deadline_ms: int) -> ClusterTopic:
        """Wait until the topic's partitions are known, and ``partition`` is one of them.

        Raises:
            InvalidTopicError: no topic can have this name, or the broker does not offer it to producers.
            TopicAuthorizationFailedError: the principal may not see the topic.
            MetadataTimeoutError: the deadline has passed; the cause is the last error.
            AuthenticationError: no broker accepts this client.
            ProducerClosedError: the producer was closed.
        """
        check_topic_name(topic)
        began_ms = self._now_ms()
        asked = False
        while True:
            now_ms = self._now_ms()
            if self._ended_by is not None:
                raise copy.copy(self._ended_by)
            known = self.cluster.topics.get(topic)
            if known is not None and len(known.partitions) > (partition or 0):
                self.touch(topic, now_ms)
                return known
            self._raise_if_refused(known, fresh=asked or self._schedule.answered_lately(topic, now_ms))
            if now_ms >= deadline_ms:
                raise self._timeout(topic, partition, now_ms - began_ms)
            if self._schedule.want(topic, now_ms):
                self._wake.set()
            asked = await self._waiters.answer(topic, partition, deadline_ms) or asked

    def _raise_if_refused(self, known: ClusterTopic | None, *, fresh: bool) -> None:
        if fresh and known is not None and known.error_code in _REFUSED:
            raise not_written(broker_error(known.error_code, f"topic {known.name}: {_meaning(known.error_code)}"))

    def _timeout(self, topic: str, partition: int | None, waited_ms: int) -> MetadataTimeoutError:
        known = self.cluster.topics.get(topic)
        if known is not None and known.partitions:
            what = f"topic {topic} has {len(known.partitions)} partitions and no partition {partition}"
        else:
            what = f"the partitions of topic {topic} are not known"
        cause = _error_of(topic, known) or self._last_error
        why = f": {cause}" if cause is not None else ""
        error = MetadataTimeoutError(f"{what} after {waited_ms} ms (max_block_ms={self._config.max_block_ms}){why}")
        error.__cause__ = cause
        return error

    def why_no_leader(self, topic: str, partition: int) -> KafkaError | None:
        """Why a partition has no leader to send to: what the last answer said of the topic, or of the partition."""
        known = self.cluster.topics.get(topic)
        if known is None or known.error_code:
            return _error_of(topic, known) or self._last_error
        if partition >= len(known.partitions):
            count = len(known.partitions)
            return broker_error(Code.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{partition}: {count} partitions are left")
        state = known.partitions[partition]
        error_code = state.error_code or Code.LEADER_NOT_AVAILABLE
        if not state.error_code and state.leader != NO_LEADER:
            return broker_error(error_code, f"{topic}-{partition}: node {state.leader} leads it, {_UNKNOWN_LEADER}")
        return broker_error(error_code, f"{topic}-{partition}: {_meaning(error_code)}")

    # --- life cycle ---------------------------------------------------------------------------------------------------

    async def bootstrap(self, deadline_ms: int) -> None:
        """Learn the brokers from ``bootstrap_servers``; call it once before ``run``, and again if it failed.

        Raises:
            BootstrapError: no address could be used in time.
            AuthenticationError: a broker and this client do not accept each other.
        """
        response = await self._client.bootstrap(deadline_ms)
        self._name_cluster(response)
        self._take(ClusterChanges(brokers_of(response)))
        self._schedule.started(self._now_ms())

    async def run(self) -> None:
        """Keep the cluster fresh until cancelled, or until the client is closed."""
        try:
            while True:
                await self._until_due()
                await self._update()
        except ProducerClosedError:
            pass  # something called from here ignored the cancellation, such as a token provider
        except Exception as error:
            self._end(ProducerFailedError(f"the metadata task ended with an internal error: {error!r}", cause=error))
            self._on_fatal(error)

    def close(self, error: KafkaError | None = None) -> None:
        """Turn away all callers that wait for a topic, now and later.

        Args:
            error: None means that the producer was closed.
        """
        self._end(error or ProducerClosedError("the producer was closed"))

    def _end(self, error: KafkaError) -> None:
        if self._ended_by is None:
            self._ended_by = error
        self._waiters.fail(error)

    async def _until_due(self) -> None:
        while (due_ms := self._schedule.due_ms()) > self._now_ms():
            self._wake.clear()
            timer = self._loop.call_at((due_ms + 1) / 1000, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                timer.cancel()

    # --- one update ---------------------------------------------------------------------------------------------------

    async def _update(self) -> None:
        now_ms = self._now_ms()
        update = self._schedule.begin(now_ms, self._is_used, self._is_to_be_created)
        try:
            connection, version, frame = await self._ask(update)
            await self._work_in(update, connection, version, frame)
        except ProducerClosedError:
            raise
        except KafkaError as error:
            await self._update_failed(update, error)

    def _is_used(self, topic: str) -> bool:
        return topic in self._waiters or topic in self._kept or self.has_records(topic)

    def _is_to_be_created(self, topic: str) -> bool:
        """Whether a topic seems to be missing, and somebody waits for it, has asked for it, or has records for it."""
        return (
            self._config.allow_auto_create_topics
            and self._is_missing(topic)
            and (topic in self._waiters or self._schedule.is_needed(topic) or self.has_records(topic))
        )

    def _is_missing(self, topic: str) -> bool:
        known = self.cluster.topics.get(topic)
        return known is None or known.error_code != 0

    async def _ask(self, update: MetadataUpdate) -> tuple[Connection, int, bytes]:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic) for topic in update.topics],
            allow_auto_topic_creation=update.creates,
        )
        return await first_answer(
            self._client,
            request,
            deadline_ms=self._patience_ends_ms(),
            read=lambda connection, frame: (connection, connection.version(MetadataRequest), frame),
        )

    def _patience_ends_ms(self) -> int:
        """The latest time to which an update may wait for a broker that can take a request."""
        longest_ms = min(self._config.metadata_recovery_rebootstrap_trigger_ms, self._config.request_timeout_ms)
        return self._now_ms() + max(longest_ms, SLOW_MS)

    async def _work_in(self, update: MetadataUpdate, connection: Connection, version: int, frame: bytes) -> None:
        keep = tuple(self._schedule.topics) if update.full else None
        self._hints.clear()
        try:
            response = await _in_turns(
                decode_response_in_steps(MetadataRequest, version, frame, budget_bytes=STEP_BYTES)
            )
            _check(response, connection)
            self._check_cluster(response, connection)
            changes = await _in_turns(
                self.cluster.changes_by(
                    response,
                    node_id=connection.node_id,
                    now_ms=self._now_ms(),
                    keep=keep,
                    reliable_epochs=version >= RELIABLE_EPOCHS_SINCE,
                )
            )
        except ProtocolError as error:
            raise connection.nonsense(str(error)) from error
        news = await _in_turns(changes.with_leaders(self._hints).has_news(self.cluster))
        brokers_are_gone = bool(self.cluster.brokers.keys() - changes.brokers.keys())
        for part in changes.parts():
            self._take(part.with_leaders(self._hints))
            await asyncio.sleep(0)
        failing = await _in_turns(self._failing(update))
        again = {topic for topic in failing if failing[topic] not in _REFUSED}
        missing = {topic for topic in failing if self._is_missing(topic)}
        self._schedule.succeeded(update, self._now_ms(), failing=failing, again=again, missing=missing, news=news)
        if brokers_are_gone and not update.full:
            self._look_for_leaders()
        self._warn(failing)
        self._last_error = None
        self._rebootstrapping = False
        self._refusals.end()
        for topic in update.topics:
            self._settle_waiters(topic)

    def _check_cluster(self, response: MetadataResponse, connection: Connection) -> None:
        """Refuse the answer of another cluster."""
        if self._is_other(response):
            raise OtherClusterError(
                f"{connection} belongs to another cluster: its id is {_shown(response)}, not {self.cluster_id}"
            )
        self._name_cluster(response)

    def _is_other(self, response: MetadataResponse) -> bool:
        cluster_id = cluster_id_of(response)
        return None not in (self.cluster_id, cluster_id) and self.cluster_id != cluster_id

    def _name_cluster(self, response: MetadataResponse) -> None:
        cluster_id = cluster_id_of(response)
        if cluster_id is not None and cluster_id != self.cluster_id:
            self.cluster_id = cluster_id
            self._client.name_cluster(cluster_id)
            self.on_cluster_id(cluster_id)

    def _look_for_leaders(self) -> None:
        """Brokers disappeared from an answer about some topics only: they may have led partitions of the others.

        Nothing else would show it: without a connection to a broker, none is lost.
        """
        if any(self.cluster.has_unknown_leader(topic) for topic in self._schedule.topics):
            self._schedule.want_all()

    def _failing(self, update: MetadataUpdate) -> Generator[None, None, dict[str, int]]:
        """The topics of an answer that need another one, with the error code; 0 for too few partitions."""
        failing: dict[str, int] = {}
        for count, topic in enumerate(update.topics, 1):
            if not count % STEP:
                yield
            known = self.cluster.topics.get(topic)
            if known is None:
                failing[topic] = 0
            elif error_code := known.error_code or _partition_error(known):
                failing[topic] = error_code
            elif self.cluster.has_unknown_leader(topic):
                failing[topic] = Code.LEADER_NOT_AVAILABLE
            elif self._waiters.partitions_needed(topic) > len(known.partitions):
                failing[topic] = 0
        return failing

    async def _update_failed(self, update: MetadataUpdate, error: KafkaError) -> None:
        self._last_error = error
        now_ms = self._now_ms()
        self._schedule.failed(update, now_ms)
        refused = isinstance(error, AuthenticationError)
        if refused and self._client.refused:
            self._waiters.fail(error)
        # Perhaps it is a stranger who refuses, at a broker's former address. If it is the cluster, more logins could
        # lock the account, so a refusal has to last.
        if isinstance(error, OtherClusterError) or (
            self._config.metadata_recovery_strategy == "rebootstrap"
            and (
                isinstance(error, RebootstrapRequiredError)
                or self._schedule.pending_too_long(now_ms)
                or (self._client.all_failed and not refused)
            )
        ):
            await self._rebootstrap(error)

    async def _rebootstrap(self, reason: KafkaError) -> None:
        # A single broker of another cluster may be the reason again and again, with answers of others in between.
        if not self._rebootstrapping and self._warnings_of_rebootstrap.allows(self._now_ms()):
            self._logger.warning("starting again from bootstrap_servers: %s", str(reason))
        self._rebootstrapping = True
        try:
            response = await self._client.rebootstrap()
        except ProducerClosedError:
            raise
        except KafkaError as error:
            self._last_error = error
            if self._warnings_of_rebootstrap.allows(self._now_ms(), type(error).__name__):
                self._logger.warning("bootstrap_servers can't be used now: %s", str(error))
            if isinstance(error, AuthenticationError) and self._refusals.have_lasted(self._now_ms()):
                self._waiters.fail(error)
            return
        self._refusals.end()
        self._schedule.rebootstrapped(self._now_ms())
        topics: Mapping[str, ClusterTopic] = {}
        if self._is_other(response):
            topics = self._leave_cluster(response)
        self._name_cluster(response)
        self._take(ClusterChanges(brokers_of(response), topics))

    def _leave_cluster(self, response: MetadataResponse) -> Mapping[str, ClusterTopic]:
        """Another cluster has taken the place of the known one. Returns the topics without what only the latter knew.

        Its brokers may have the same ids and even addresses, so connections made meanwhile end too.
        """
        told = f"the connection was closed, as bootstrap_servers lead to another cluster now, {_shown(response)}"
        self._client.leave_brokers(ConnectionLostError(told))
        self.on_other_cluster(str(self.cluster_id), _shown(response))
        return self.cluster.without_leaders()

    # --- notifying others ---------------------------------------------------------------------------------------------

    def _take(self, changes: ClusterChanges) -> None:
        new_brokers = changes.brokers != self.cluster.brokers
        changes = self._without_used(changes)
        self.cluster.adopt(changes)
        self._client.set_brokers(changes.brokers)
        if changes.topics or new_brokers:
            self.on_cluster_change(changes.topics.keys())
        for topic in changes.topics:
            self._settle_waiters(topic)

    def _without_used(self, changes: ClusterChanges) -> ClusterChanges:
        """The changes, without forgetting topics that have come into use since the request was made."""
        used = {topic for topic, state in changes.topics.items() if state is None and self._is_used(topic)}
        for topic in used:
            self.touch(topic, self._now_ms())
        return changes.keeping(used)

    def _settle_waiters(self, topic: str) -> None:
        known = self.cluster.topics.get(topic)
        if known is not None:
            self._waiters.settle(known, is_refused=known.error_code in _REFUSED)

    def _on_disconnect(self, node_id: int, error: KafkaError) -> None:
        self._last_error = error
        self.request_update()

    def _warn(self, failing: dict[str, int]) -> None:
        now_ms = self._now_ms()
        broken: dict[str, list[str]] = {}
        for topic, error_code in failing.items():
            tells = error_code in _REFUSED or self._schedule.failures(topic) >= WARN_FROM_FAILURES
            if error_code and tells and self._warnings_of_topics.allows(now_ms, topic):
                broken.setdefault(self._told(topic, error_code), []).append(topic)
        for told, topics in broken.items():
            self._logger.warning("topic%s %s: %s", "s" if len(topics) > 1 else "", listed(topics), told)

    def _told(self, topic: str, error_code: int) -> str:
        if error_code == Code.LEADER_NOT_AVAILABLE and self.cluster.has_unknown_leader(topic):
            return f"partitions have a leader {_UNKNOWN_LEADER}"
        return _meaning(error_code)

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)


def check_topic_name(topic: str) -> None:
    """Refuse an impossible topic name: a request that contains one could fail for all its topics.

    Raises:
        InvalidTopicError: no topic can have this name.
    """
    if not _LEGAL_TOPIC.match(topic):
        raise InvalidTopicError(
            f"{topic[:250]!r} is not a valid topic name: 1 to 249 letters, digits, '.', '_' and '-', not '.' or '..'"
        )


def _check(response: MetadataResponse, connection: Connection) -> None:
    """Refuse an answer without anything usable."""
    if response.error_code:
        raise broker_error(response.error_code, f"{connection} refused Metadata: {_meaning(response.error_code)}")
    if not response.brokers:
        raise KafkaError(f"{connection} knows of no broker")


def _shown(response: MetadataResponse) -> str:
    """The id of a cluster for messages; a real one has 22 characters."""
    return excerpt(response.cluster_id or "")


def _partition_error(topic: ClusterTopic) -> int:
    """An error of a partition that the next answer may not have, e.g. no leader at the moment.

    Redpanda's brokers name no leader without an error.
    """
    codes = {
        each.error_code or (Code.LEADER_NOT_AVAILABLE if each.leader == NO_LEADER else 0) for each in topic.partitions
    }
    return max((code for code in codes if code and error_class(code).refresh_metadata), default=0)


def _error_of(topic: str, known: ClusterTopic | None) -> KafkaError | None:
    """The error of the last answer about a topic."""
    if known is None or not known.error_code:
        return None
    return broker_error(known.error_code, f"topic {topic}: {_meaning(known.error_code)}")


def _meaning(error_code: int) -> str:
    cls = error_class(error_code)
    return f"{cls.name} ({error_code}), {cls.meaning}"


async def _in_turns(steps: Generator[None, None, T]) -> T:
    """Run a long computation, giving the loop a turn at each of its pauses."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)
