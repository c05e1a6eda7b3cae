"""``aioproducer config``: the table of configs, searched."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from aioproducer.cli.outcome import DONE, SOME_FAILED
from aioproducer.config.definition import REQUIRED, ConfigDef
from aioproducer.config.librdkafka_table import HINTS, RENAMED
from aioproducer.config.table import GROUPS, JVM_ONLY


def show(words: Sequence[str], *, as_json: bool) -> int:
    """Print every config with all these words in its name, its meaning, or its name in another client.

    Returns the exit code: 1 if there is none.
    """
    found = [(group, each) for group, definitions in GROUPS.items() for each in definitions if _matches(each, words)]
    elsewhere = [hint for word in words for hint in _elsewhere(word)]
    if as_json:
        print(json.dumps([_facts(group, each) for group, each in found], indent=2))
    else:
        _print(found, elsewhere)
    return DONE if found or elsewhere else SOME_FAILED


def _matches(definition: ConfigDef, words: Iterable[str]) -> bool:
    theirs = " ".join(name for name, ours in RENAMED.items() if definition.name in ours)
    text = f"{definition.name} {definition.alias} {definition.java_name} {theirs} {definition.doc}".lower()
    return all(word.lower() in text for word in words)


def _elsewhere(word: str) -> Iterable[str]:
    """What to say about a config that other clients have and this one lacks."""
    dotted = word.replace("_", ".")
    for name in {word, dotted} & set(HINTS):
        yield f"{name} of librdkafka: {HINTS[name]}"
    if (hint := JVM_ONLY.get(word.replace(".", "_"))) is not None:
        yield f"{dotted} of the Java client: {hint}"


def _facts(group: str, definition: ConfigDef) -> dict[str, Any]:
    return {
        "name": definition.name,
        "group": group,
        "default": None if definition.default is REQUIRED else _plain(definition.default),
        "required": definition.default is REQUIRED,
        "allowed": definition.allowed,
        "importance": definition.importance,
        "meaning": definition.doc,
        "departs_from_java": definition.departs,
        "librdkafka": sorted(name for name, ours in RENAMED.items() if definition.name in ours),
    }


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _print(found: Sequence[tuple[str, ConfigDef]], elsewhere: Sequence[str]) -> None:
    console = Console(highlight=False)
    if found:
        table = Table(show_lines=True)
        table.add_column("config", overflow="fold", style="bold")
        table.add_column("default", overflow="fold")
        table.add_column("allowed", overflow="fold")
        table.add_column("meaning", ratio=1, overflow="fold")
        for _, each in found:
            default = "required" if each.default is REQUIRED else "" if each.default is None else str(each.default)
            meaning = each.doc + (f" Departs from Java: {each.departs}" if each.departs else "")
            table.add_row(*(Text(cell) for cell in (each.name, default, each.allowed, meaning)))
        console.print(table)
    for hint in elsewhere:
        console.print(Text(hint))
    if not found and not elsewhere:
        console.print("no config matches all of these words; without words, all configs are shown")
