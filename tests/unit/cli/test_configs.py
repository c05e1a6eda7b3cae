"""``aioproducer config``."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from aioproducer.cli.app import app
from aioproducer.config.table import CONFIGS


def shown(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["config", *words], env={"COLUMNS": "200"})
    assert result.stderr == ""
    return result.exit_code, result.stdout


def names(*words: str) -> list[str]:
    code, output = shown("--json", *words)
    found = [each["name"] for each in json.loads(output)]
    assert code == (0 if found else 1)
    return found


def test_all_of_them() -> None:
    assert names() == [definition.name for definition in CONFIGS]
    code, table = shown()
    assert code == 0
    assert all(definition.name in table for definition in CONFIGS if len(definition.name) < 30)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["linger.ms"], "linger_ms"),
        (["linger_ms"], "linger_ms"),
        (["queue.buffering.max.kbytes"], "buffer_memory"),
        (["COMPRESSION", "zstd", "level"], "compression_zstd_level"),
    ],
)
def test_found_by_words(words: list[str], name: str) -> None:
    assert name in names(*words)
    assert len(names(*words)) < 5
    code, table = shown(*words)
    assert code == 0
    assert name in table


def test_what_a_program_gets() -> None:
    _, output = shown("--json", "buffer_memory")
    (found,) = (each for each in json.loads(output) if each["name"] == "buffer_memory")
    assert (found["default"], found["required"], found["librdkafka"]) == (
        33_554_432,
        False,
        ["queue.buffering.max.kbytes"],
    )
    _, output = shown("--json", "bootstrap_servers")
    assert json.loads(output)[0]["required"] is True


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("statistics.interval.ms", "statistics.interval.ms of librdkafka: call metrics() at any time"),
        ("on_delivery", "on_delivery of librdkafka: give each Delivery a callback"),
        ("metric.reporters", "metric.reporters of the Java client: "),
    ],
)
def test_names_of_other_clients_that_mean_nothing_here(word: str, hint: str) -> None:
    code, output = shown(word)
    assert code == 0
    assert hint in output


def test_nothing_found() -> None:
    assert shown("nonsense") == (1, "no config matches all of these words; without words, all configs are shown\n")
