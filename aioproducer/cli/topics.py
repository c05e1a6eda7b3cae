"""``aioproducer topics`` and ``aioproducer describe``: topics as a producer sees them."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from aioproducer import ConfigError, KafkaError
from aioproducer.cli.loop import run_in_loop
from aioproducer.cli.outcome import DONE, SOME_FAILED, CommandError, one_line
from aioproducer.config import ProducerConfig
from aioproducer.doctor.topics import NotTold, topic_configs
from aioproducer.errors import error_class, excerpt
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
"""How long a leader is waited for that may be gone; offsets are only nice to have."""


def list_topics(configs: Mapping[str, str], words: Sequence[str], *, internal: bool, as_json: bool) -> int:
    """Show the topics whose names have all these words; the exit code: 1 if there is none.

    Raises:
        CommandError: the cluster can't be asked.
    """

    async def look() -> list[dict[str, Any]]:
        async with _Look.at(configs) as cluster:
            response = await cluster.metadata(None)
            found = (each for each in response.topics if each.name and (internal or not each.is_internal))
            return [_overview(each) for each in sorted(found, key=lambda each: each.name or "")]

    rows = [row for row in _run(look()) if all(word in row["topic"] for word in words)]
    if as_json:
        print(json.dumps(rows, indent=2))
    elif rows:
        _print_overview(rows)
    else:
        print("no topic has these words in its name" if words else "no topic is there that this user may see")
    return DONE if rows else SOME_FAILED


def describe(configs: Mapping[str, str], topics: Sequence[str], *, as_json: bool) -> int:
    """Show the partitions of topics; the exit code: 1 if one of them is not there or may not be seen.

    Raises:
        CommandError: the cluster can't be asked.
    """

    async def look() -> list[dict[str, Any]]:
        async with _Look.at(configs) as cluster:
            return await cluster.describe(topics)

    found = _run(look())
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        for each in found:
            _print_description(each)
    return SOME_FAILED if any(each["error"] for each in found) else DONE


def _run(work: Any) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = run_in_loop(work)
    except KafkaError as error:
        raise CommandError(one_line(error)) from error
    return found


# --- asking -----------------------------------------------------------------------------------------------------------


def _note(cause: BaseException) -> None:
    """What must not happen also ends the connection, whose users hear of it."""
    logger.error("a connection failed", exc_info=cause)


class _Look:
    """Connections to a cluster that nothing is written over."""

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
    async def at(cls, configs: Mapping[str, str]) -> AsyncIterator[_Look]:
        """Connected; closed at the end of the block."""
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
        """Brokers and topics; None means all."""
        connection = await self._client.any_ready_connection(self._deadline_ms())
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        return await connection.request(MetadataRequest(topics=wanted, allow_auto_topic_creation=False))

    async def describe(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """All that is known of topics, for JSON; what may not be seen says so."""
        response = await self.metadata(list(names))
        topics = {each.name: each for each in response.topics}
        found = [await self._facts(topics[name], response) for name in names]
        # Last, as brokers that do not tell them may end the connection.
        for facts in found:
            offsets = await self._offsets(topics[facts["topic"]])
            for each in facts["partitions"]:
                each["begin_offset"], each["end_offset"] = offsets.get(each["partition"], (None, None))
        return found

    async def _facts(self, topic: MetadataResponseTopic, response: MetadataResponse) -> dict[str, Any]:
        if topic.error_code:
            kind = error_class(topic.error_code)
            return {"topic": topic.name, "error": kind.name, "meaning": kind.meaning, "partitions": [], "configs": {}}
        brokers = {each.node_id: each for each in response.brokers}
        connection = await self._client.any_ready_connection(self._deadline_ms())
        configs, not_told = await _configs_of(connection, topic.name or "")
        partitions = []
        for each in sorted(topic.partitions, key=lambda one: one.partition_index):
            leader = brokers.get(each.leader_id)
            partitions.append(
                {
                    "partition": each.partition_index,
                    "leader": each.leader_id if each.leader_id >= 0 else None,
                    "host": None if leader is None else f"{excerpt(leader.host, 255)}:{leader.port}",
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
        """First and next offset by partition, as far as the leaders tell them."""
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
            return {}  # a leader that does not answer, or not this: producers need no offsets
        return {
            each.partition_index: each.offset
            for one in response.topics
            for each in one.partitions
            if not each.error_code
        }


async def _configs_of(connection: Connection, topic: str) -> tuple[dict[str, str | None], str | None]:
    """Configs, and why there are none."""
    try:
        return await topic_configs(connection, topic), None
    except NotTold as reason:
        return {}, str(reason)


# --- showing ----------------------------------------------------------------------------------------------------------


def _overview(topic: MetadataResponseTopic) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "error": error_class(topic.error_code).name if topic.error_code else None,
        "internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replicas": max((len(each.replica_nodes) for each in topic.partitions), default=0),
        "without_leader": sorted(each.partition_index for each in topic.partitions if each.leader_id < 0),
        "behind": sorted(
            each.partition_index for each in topic.partitions if len(each.isr_nodes) < len(each.replica_nodes)
        ),
    }


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=200)


def _print_overview(rows: Sequence[Mapping[str, Any]]) -> None:
    table = Table("topic", box=None)
    for column in ("partitions", "replicas"):
        table.add_column(column, justify="right")
    table.add_column("state")
    for row in rows:
        said = [row["error"] or "", "internal" if row["internal"] else ""]
        if row["without_leader"]:
            said.append(f"without leader: {_numbers(row['without_leader'])}")
        if row["behind"]:
            said.append(f"replicas behind: {_numbers(row['behind'])}")
        bad = row["error"] or row["without_leader"]
        state = Text(
            "; ".join(each for each in said if each) or "ok", "red" if bad else "yellow" if row["behind"] else ""
        )
        table.add_row(Text(row["topic"]), str(row["partitions"]), str(row["replicas"]), state)
    _console().print(table)


def _numbers(values: Sequence[int]) -> str:
    return ", ".join(map(str, values[:10])) + (f" and {len(values) - 10} more" if len(values) > 10 else "")


def _print_description(found: Mapping[str, Any]) -> None:
    console = _console()
    console.print(Text(found["topic"], "bold"))
    if found["error"]:
        console.print(Text(f"  {found['error']}: {found['meaning']}", "red"))
        return
    if found["configs_not_told"]:
        console.print(Text(f"  configs are not told: {found['configs_not_told']}", "dim"))
    for name, value in found["configs"].items():
        console.print(Text(f"  {name}={value}"))
    table = Table(box=None)
    for column in ("partition", "leader", "epoch"):
        table.add_column(column, justify="right")
    for column in ("at", "rack", "replicas", "in sync"):
        table.add_column(column)
    for column in ("first offset", "next offset"):
        table.add_column(column, justify="right")
    for each in found["partitions"]:
        behind = len(each["isr"]) < len(each["replicas"])
        table.add_row(
            str(each["partition"]),
            Text("none", "red") if each["leader"] is None else str(each["leader"]),
            _or_nothing(each["leader_epoch"]),
            Text(each["host"] or ""),
            Text(each["rack"] or ""),
            " ".join(map(str, each["replicas"])),
            Text(" ".join(map(str, each["isr"])), "yellow" if behind else ""),
            _or_nothing(each["begin_offset"]),
            _or_nothing(each["end_offset"]),
        )
    console.print(table)


def _or_nothing(value: int | None) -> str:
    return "" if value is None else str(value)
