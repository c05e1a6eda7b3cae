"""``aioproducer topics`` and ``aioproducer describe``: topics as a producer sees them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from aioproducer import KafkaError
from aioproducer.cli.look import Look
from aioproducer.cli.loop import run_in_loop
from aioproducer.cli.outcome import DONE, SOME_FAILED, CommandError, one_line
from aioproducer.cli.tables import print_table
from aioproducer.errors import InvalidTopicError, error_class
from aioproducer.message_text import listed
from aioproducer.metadata import check_topic_name
from aioproducer.protocol.metadata import MetadataResponseTopic


def list_topics(configs: Mapping[str, str], words: Sequence[str], *, internal: bool, as_json: bool) -> int:
    """Show the topics whose names have all these words; returns the exit code: 1 if there is none.

    Raises:
        CommandError: the cluster can't be asked.
    """

    async def look() -> list[dict[str, Any]]:
        async with Look.at(configs) as cluster:
            response = await cluster.metadata(None)
            found = (each for each in response.topics if each.name and (internal or not each.is_internal))
            return [_overview(each) for each in sorted(found, key=lambda each: each.name or "")]

    rows = [row for row in _run(look()) if all(word in row["topic"] for word in words)]
    if as_json:
        print(json.dumps(rows, indent=2))
    elif rows:
        _print_overview(rows)
    else:
        print("no topic matches all of these words" if words else "there is no topic that this user may see")
    return DONE if rows else SOME_FAILED


def describe(configs: Mapping[str, str], topics: Sequence[str], *, as_json: bool) -> int:
    """Show the partitions of topics; returns the exit code: 1 if a topic is missing or access is denied.

    Raises:
        CommandError: a topic name is invalid, or the cluster can't be asked.
    """
    for name in topics:
        try:
            check_topic_name(name)
        except InvalidTopicError as error:
            raise CommandError(one_line(error)) from error

    async def look() -> list[dict[str, Any]]:
        async with Look.at(configs) as cluster:
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
    return Console(highlight=False, soft_wrap=True)


def _print_overview(rows: Sequence[Mapping[str, Any]]) -> None:
    table = Table("topic", box=None)
    for column in ("partitions", "replicas"):
        table.add_column(column, justify="right")
    table.add_column("state")
    for row in rows:
        said = [row["error"] or "", "internal" if row["internal"] else ""]
        if row["without_leader"]:
            said.append(f"without leader: {listed(row['without_leader'])}")
        if row["behind"]:
            said.append(f"replicas behind: {listed(row['behind'])}")
        bad = row["error"] or row["without_leader"]
        state = Text(
            "; ".join(each for each in said if each) or "ok", "red" if bad else "yellow" if row["behind"] else ""
        )
        table.add_row(Text(row["topic"]), str(row["partitions"]), str(row["replicas"]), state)
    print_table(_console(), table)


def _print_description(found: Mapping[str, Any]) -> None:
    console = _console()
    console.print(Text(found["topic"], "bold"))
    if found["error"]:
        console.print(Text(f"  {found['error']}: {found['meaning']}", "red"))
        return
    if found["configs_not_told"]:
        console.print(Text(f"  configs not available: {found['configs_not_told']}", "dim"))
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
    print_table(console, table)


def _or_nothing(value: int | None) -> str:
    return "" if value is None else str(value)
