"""What brokers report about topics, over connections like a producer's; nothing is written."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aioproducer import ConfigError, KafkaError
from aioproducer.cli.outcome import CommandError, one_line
from aioproducer.cluster import brokers_of
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.doctor.topics import NotTold, topic_configs
from aioproducer.errors import error_class
from aioproducer.message_text import excerpt, host_port, listed
from aioproducer.metadata import Metadata
from aioproducer.net.client import NetworkClient
from aioproducer.net.connection import Connection
from aioproducer.net.sasl.authenticator import SaslAuthenticator
from aioproducer.protocol.list_offsets import (
    EARLIEST,
    LATEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from aioproducer.protocol.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

logger: logging.Logger = logging.getLogger("aioproducer.cli")

OFFSETS_MS = 5_000
"""How long to wait for a leader that may be gone; offsets are optional."""


def _note(cause: BaseException) -> None:
    """Only log internal errors: they also end the connection, and its users get the error."""
    logger.error("a connection failed", exc_info=cause)


class Look:
    """Read-only connections to a cluster."""

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._loop = asyncio.get_running_loop()
        rng = random.Random()
        authenticate = None
        if config.uses_sasl:
            sasl = SaslAuthenticator(config, loop=self._loop, rng=rng, on_internal_error=_note)
            authenticate = sasl.authenticate
        self._client = NetworkClient(
            config, loop=self._loop, rng=rng, on_internal_error=_note, authenticate=authenticate
        )
        self._metadata = Metadata(config, self._client, loop=self._loop, rng=rng, on_fatal=_note)

    @classmethod
    @asynccontextmanager
    async def at(cls, configs: Mapping[str, str]) -> AsyncIterator[Look]:
        """Connect; close at the end of the block."""
        try:
            look = cls(ProducerConfig.parse_dotted(configs))
        except ConfigError as error:
            raise CommandError(one_line(error)) from error
        try:
            await look._metadata.bootstrap(look._deadline_ms())
            yield look
        finally:
            look._metadata.close()
            await look._client.close()

    def _deadline_ms(self) -> int:
        return int(self._loop.time() * 1000) + self._config.max_block_ms

    async def metadata(self, topics: list[str] | None) -> MetadataResponse:
        """Brokers and topics; None for all topics."""
        connection = await self._client.any_ready_connection(self._deadline_ms())
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        response = await connection.request(MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
        told = {each.name for each in response.topics}
        if missing := [name for name in topics or () if name not in told]:
            raise connection.nonsense(f"Metadata was answered without {listed(missing)}")
        return response

    async def describe(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """All facts about topics, each once, for JSON; says so where access is denied."""
        wanted = list(dict.fromkeys(names))
        response = await self.metadata(wanted)
        topics = {each.name: each for each in response.topics}
        found = [await self._facts(topics[name], response) for name in wanted]
        # Last, as brokers without this API may close the connection.
        for facts in found:
            offsets = await self._offsets(topics[facts["topic"]])
            for each in facts["partitions"]:
                each["begin_offset"], each["end_offset"] = offsets.get(each["partition"], (None, None))
        return found

    async def _facts(self, topic: MetadataResponseTopic, response: MetadataResponse) -> dict[str, Any]:
        if topic.error_code:
            kind = error_class(topic.error_code)
            return {
                "topic": topic.name,
                "error": kind.name,
                "meaning": kind.meaning,
                "internal": topic.is_internal,
                "partitions": [],
                "configs": {},
                "configs_not_told": None,
            }
        brokers = brokers_of(response)
        connection = await self._client.any_ready_connection(self._deadline_ms())
        configs, not_told = await _configs_of(connection, topic.name or "")
        partitions = []
        for each in sorted(topic.partitions, key=lambda one: one.partition_index):
            leader = brokers.get(each.leader_id)
            partitions.append(
                {
                    "partition": each.partition_index,
                    "leader": each.leader_id if each.leader_id >= 0 else None,
                    "host": None if leader is None else host_port(leader.host, leader.port),
                    "rack": None if leader is None or leader.rack is None else excerpt(leader.rack),
                    "leader_epoch": each.leader_epoch if each.leader_epoch >= 0 else None,
                    "replicas": list(each.replica_nodes),
                    "isr": list(each.isr_nodes),
                    "offline": list(each.offline_replicas),
                }
            )
        return {
            "topic": topic.name,
            "error": None,
            "internal": topic.is_internal,
            "partitions": partitions,
            "configs": configs,
            "configs_not_told": not_told,
        }

    async def _offsets(self, topic: MetadataResponseTopic) -> dict[int, tuple[int | None, int | None]]:
        """First and next offset by partition, where the leaders report them."""
        leaders: dict[int, list[int]] = {}
        for each in topic.partitions:
            if each.leader_id >= 0:
                leaders.setdefault(each.leader_id, []).append(each.partition_index)
        found: dict[int, tuple[int | None, int | None]] = {}
        for node_id, partitions in leaders.items():
            begins = await self._offsets_at(node_id, topic.name or "", partitions, EARLIEST)
            ends = await self._offsets_at(node_id, topic.name or "", partitions, LATEST)
            found |= {each: (begins.get(each), ends.get(each)) for each in partitions}
        return found

    async def _offsets_at(self, node_id: int, topic: str, partitions: list[int], timestamp: int) -> dict[int, int]:
        wanted = [ListOffsetsPartition(partition_index=each, timestamp=timestamp) for each in partitions]
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=wanted)])
        try:
            deadline_ms = int(self._loop.time() * 1000) + OFFSETS_MS
            connection = await self._client.ready_connection(node_id, deadline_ms)
            response = await connection.request(request)
        except KafkaError:
            return {}  # a leader without an answer to this: producers need no offsets
        return {
            each.partition_index: each.offset
            for one in response.topics
            for each in one.partitions
            if not each.error_code
        }


async def _configs_of(connection: Connection, topic: str) -> tuple[dict[str, str | None], str | None]:
    """Configs, or the reason why there are none."""
    try:
        return await topic_configs(connection, topic), None
    except NotTold as reason:
        return {}, str(reason)
