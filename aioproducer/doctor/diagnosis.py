"""The whole diagnosis, in order: configs, bootstrap addresses, advertised listeners, topic, and optionally a record."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Unpack

from aioproducer.bare_errors import raises_bare
from aioproducer.cluster import Broker, brokers_of
from aioproducer.compression import codec
from aioproducer.config.keywords import ProducerConfigs
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.doctor import advice, certificates, topics
from aioproducer.doctor.contact import Contact, Tools
from aioproducer.doctor.findings import Finding, Report, Status, Step, said_by
from aioproducer.errors import (
    ConfigError,
    KafkaError,
    TlsError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    error_class,
)
from aioproducer.message_text import excerpt, host_port
from aioproducer.net.connection import Connection
from aioproducer.protocol.describe_transactions import DescribeTransactionsRequest
from aioproducer.protocol.find_coordinator import (
    TRANSACTION,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from aioproducer.protocol.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

LISTENERS_AT_ONCE = 8
TRANSACTION_TOPIC = "__transaction_state"


async def diagnose(
    *,
    topic: str | None = None,
    write: bool = False,
    timeout_s: float = 10.0,
    on_finding: Callable[[Finding], object] | None = None,
    **configs: Unpack[ProducerConfigs[Any, Any]],
) -> Report:
    """Find out what keeps a producer with these configs from working, and what to do about it.

    Checks each bootstrap address and each address that a broker advertises: name, TCP, TLS, login, versions. It writes
    nothing unless asked to, and shows no secrets.

    Args:
        topic: check this topic too.
        write: write one record to it, with the key ``aioproducer-doctor``, through a separate producer.
        timeout_s: for each step.
        on_finding: called with each finding as it is made.
        configs: those of Producer.
    Raises:
        ConfigError: the configs themselves are invalid.
    """
    if write and topic is None:
        raise ConfigError("write=True needs a topic")
    try:
        diagnosis = _Diagnosis(configs, timeout_s, on_finding)
    finally:
        del configs  # a ConfigError would keep them, with this frame
    await diagnosis.run(topic, write)
    return Report(tuple(diagnosis.findings))


class _Diagnosis:
    @raises_bare(ConfigError)
    def __init__(
        self, configs: Mapping[str, Any], timeout_s: float, on_finding: Callable[[Finding], object] | None
    ) -> None:
        self._raw = configs
        self._config = ProducerConfig.parse(configs)
        codec(self._config.compression_type)
        self._timeout_s = timeout_s
        self._on_finding = on_finding
        self.findings: list[Finding] = []

    def _emit(self, finding: Finding) -> None:
        self.findings.append(finding)
        if self._on_finding is not None:
            self._on_finding(finding)

    async def run(self, topic: str | None, write: bool) -> None:
        tools = Tools.make(self._config, self._timeout_s)
        for finding in of_config(self._config):
            self._emit(finding)
        if tools.tls is not None:
            try:
                await tools.tls.context()
            except TlsError as error:
                message, remedy = said_by(error)
                remedy = remedy or "check the ssl_ configs: the files they name, their format (PEM), their permissions"
                self._emit(Finding(Step.TLS, "", Status.FAILED, message, remedy))
                return
            await self._look_at_own_certificate()
        contacts = []
        try:
            for host, port in self._config.bootstrap_servers:
                contact = Contact(tools, host, port, self._emit)
                contacts.append(contact)
                await contact.look()
            reached = [each for each in contacts if each.metadata is not None]
            if not reached:
                return
            self._compare_clusters(reached)
            await self._look_at_listeners(tools, reached[0])
            assert reached[0].connection is not None
            await self._look_at_use(reached[0].connection, topic, write)
        finally:
            for contact in contacts:
                await contact.close()

    async def _look_at_own_certificate(self) -> None:
        """Once it has expired, brokers that ask for it accept no new connection; they may not ask for it yet."""
        facts = await asyncio.to_thread(certificates.own_facts, self._config)
        left = certificates.days_left(facts, time.time())
        if left is not None and left < certificates.SOON_DAYS:
            ends = f"expires in {left:.0f} days" if left >= 0 else "has expired"
            remedy = "renew ssl_keystore_location (or ssl_keystore_key and ssl_keystore_certificate_chain)"
            self._emit(Finding(Step.TLS, "", Status.WARNING, f"this client's own certificate {ends}", remedy, facts))

    def _compare_clusters(self, reached: list[Contact]) -> None:
        ids = {each.where: each.metadata.cluster_id for each in reached if each.metadata is not None}
        if len(set(ids.values())) > 1:
            shown = ", ".join(f"{where} to {excerpt(str(name))}" for where, name in ids.items())
            message = f"the bootstrap addresses belong to different clusters: {shown}"
            advice_ = "keep only those of one cluster in bootstrap_servers: which of them answers first is chance"
            self._emit(Finding(Step.CLUSTER, "", Status.FAILED, message, advice_, ids))

    # --- advertised listeners -----------------------------------------------------------------------------------------

    async def _look_at_listeners(self, tools: Tools, by: Contact) -> None:
        assert by.metadata is not None
        limit = asyncio.Semaphore(LISTENERS_AT_ONCE)

        async def look(broker: Broker) -> list[Finding]:
            async with limit:
                return await self._listener(tools, broker, by)

        brokers = sorted(brokers_of(by.metadata).values())
        async with asyncio.TaskGroup() as group:
            for task in [group.create_task(look(each)) for each in brokers]:
                for finding in await task:
                    self._emit(finding)

    async def _listener(self, tools: Tools, broker: Broker, by: Contact) -> list[Finding]:
        """One broker at its advertised address."""
        found: list[Finding] = []
        host, port = broker.host, broker.port
        contact = Contact(tools, host, port, found.append)
        try:
            reached = await contact.look()
        finally:
            await contact.close()
        where = f"node {broker.node_id} at {host_port(host, port)}"
        facts = {"node": broker.node_id, "host": host, "port": port, "rack": broker.rack}
        if reached:
            # Facts about the whole cluster were reported at the bootstrap address; report only differences here.
            others = {(each.step, each.message) for each in self.findings}
            told = [each for each in found if each.status is not Status.OK and (each.step, each.message) not in others]
            if contact.metadata is not None and contact.metadata.cluster_id != _cluster_id(by.metadata):
                told.append(_other_cluster(where, by.where, facts))
                return told
            rack = f" in rack {excerpt(broker.rack)}" if broker.rack else ""
            message = f"reached at the address it advertises{rack}"
            return [*told, Finding(Step.LISTENER, where, Status.OK, message, facts=facts)]
        causes = [each for each in found if each.status is Status.FAILED]
        reason = causes[-1]
        message = (
            f"this broker, listed by {by.where}, advertises {host_port(host, port)}, which can't be "
            f"{'reached' if reason.step in (Step.DNS, Step.TCP) else 'used'} from here: {reason.message}"
        )
        remedy = reason.advice
        if reason.step in (Step.DNS, Step.TCP) and (host, port) not in self._config.bootstrap_servers:
            remedy = advice.of_advertised(host, port, self._config.bootstrap_servers)
        facts |= {"failed_step": str(reason.step), "cause": reason.message}
        return [Finding(Step.LISTENER, where, Status.FAILED, message, remedy, facts)]

    # --- what records need --------------------------------------------------------------------------------------------

    async def _look_at_use(self, connection: Connection, topic: str | None, write: bool) -> None:
        step, where = Step.TRANSACTIONS, self._config.transactional_id or ""
        try:
            async with asyncio.timeout(self._timeout_s):
                if self._config.transactional_id is not None:
                    await self._look_at_transactions(connection, self._config.transactional_id)
                if topic is None:
                    return
                step, where = Step.TOPIC, topic
                usable = await topics.look(connection, self._config, topic, self._emit)
        except TimeoutError:
            remedy = "check whether the brokers are overloaded"
            self._emit(Finding(step, where, Status.FAILED, f"no answer within {self._timeout_s:g} s", remedy))
            return
        except KafkaError as error:
            self._emit(Finding(step, where, Status.FAILED, *said_by(error)))
            return
        if write and usable:
            await topics.write(self._config, self._raw, topic, self._timeout_s, self._emit)
        elif write:
            self._emit(Finding(Step.WRITE, topic, Status.NOTE, "not tried: the topic can't be written to as it is"))

    async def _look_at_transactions(self, connection: Connection, transactional_id: str) -> None:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=TRANSACTION_TOPIC)], allow_auto_topic_creation=False
        )
        told = (await connection.request(request)).topics
        state = topics.only(connection, f"Metadata for {TRANSACTION_TOPIC!r}", told)
        if error_class(state.error_code) is UnknownTopicOrPartitionError:
            # Asking for a coordinator would create this topic, and a diagnosis changes nothing.
            message = "this cluster has had no transactions yet: the coordinator is chosen at the first"
            self._emit(Finding(Step.TRANSACTIONS, transactional_id, Status.NOTE, message))
            return
        if error_class(state.error_code) is TopicAuthorizationFailedError:
            await self._look_at_right(connection, transactional_id)
            return
        by_list = connection.version(FindCoordinatorRequest) >= 4
        response = await connection.request(
            FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[transactional_id])
            if by_list
            else FindCoordinatorRequest(key_type=TRANSACTION, key=transactional_id)
        )
        found: Coordinator | FindCoordinatorResponse = response
        if by_list:
            found = topics.only(connection, f"FindCoordinator for {transactional_id!r}", response.coordinators)
        if not found.error_code:
            self._emit(Finding(Step.TRANSACTIONS, transactional_id, Status.OK, f"coordinated by node {found.node_id}"))
            return
        error = error_class(found.error_code)
        if error is TransactionalIdAuthorizationFailedError:
            self._emit(_forbidden(transactional_id))
            return
        remedy = "check the replicas of __transaction_state: its partition for this id has no leader that answers"
        message = f"no coordinator: {error.name}"
        self._emit(Finding(Step.TRANSACTIONS, transactional_id, Status.FAILED, message, remedy, {"error": error.name}))

    async def _look_at_right(self, connection: Connection, transactional_id: str) -> None:
        """Whether this user may use the id; the cluster may have had no transactions, which this user can't see.

        Any broker refuses to describe an id that the user may not use; only its coordinator would describe it.
        """
        if connection.api_range(DescribeTransactionsRequest.API_KEY) is not None:
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            states = (await connection.request(request)).transaction_states
            state = topics.only(connection, f"DescribeTransactions for {transactional_id!r}", states)
            if error_class(state.error_code) is TransactionalIdAuthorizationFailedError:
                self._emit(_forbidden(transactional_id))
                return
        message = (
            "not asked for the coordinator: that would create __transaction_state in a cluster without transactions, "
            "and this user may not see whether it has had any"
        )
        self._emit(Finding(Step.TRANSACTIONS, transactional_id, Status.NOTE, message))


def _forbidden(transactional_id: str) -> Finding:
    error = TransactionalIdAuthorizationFailedError.name
    remedy = "allow this user WRITE and DESCRIBE on this transactional id"
    message = f"this user may not use it: {error}"
    return Finding(Step.TRANSACTIONS, transactional_id, Status.FAILED, message, remedy, {"error": error})


def _cluster_id(metadata: MetadataResponse | None) -> str | None:
    return None if metadata is None else metadata.cluster_id


def _other_cluster(where: str, bootstrap: str, facts: dict[str, Any]) -> Finding:
    message = f"a different cluster answers at this address than at {bootstrap}"
    remedy = "check advertised.listeners of this broker, and whatever forwards the port"
    return Finding(Step.LISTENER, where, Status.FAILED, message, remedy, facts)


def of_config(config: ProducerConfig) -> list[Finding]:
    """Configs that are allowed but seldom intended. Pure."""
    found = []

    def warn(name: str, message: str, remedy: str) -> None:
        found.append(Finding(Step.CONFIG, name, Status.WARNING, message, remedy))

    protocol = config.security_protocol
    for begin, used, better in (
        ("ssl_", config.uses_tls, "SSL or SASL_SSL"),
        ("sasl_", config.uses_sasl, "SASL_SSL or SASL_PLAINTEXT"),
    ):
        names = sorted(name for name in config.given if name.startswith(begin))
        if names and not used:
            message = f"{', '.join(names)}: without effect with security_protocol={protocol}"
            warn(names[0], message, f"set security_protocol to {better}")
    if protocol == "SASL_PLAINTEXT" and config.sasl_mechanism in ("PLAIN", "OAUTHBEARER"):
        secret = "password" if config.sasl_mechanism == "PLAIN" else "token"
        warn(
            "security_protocol",
            f"{config.sasl_mechanism} over SASL_PLAINTEXT: anyone who can see the traffic can read the {secret}",
            "use SASL_SSL, or a SCRAM mechanism",
        )
    if config.acks != -1:
        warn(
            "acks",
            f"acks={config.acks}: losing one broker can lose acknowledged records, and retries can write duplicates",
            "leave acks at its default (all)",
        )
    return found
