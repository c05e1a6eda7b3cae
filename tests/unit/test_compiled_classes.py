"""Uninitialized instances of compiled classes: they can't be made, or they are harmless."""

from __future__ import annotations

import ast
import asyncio
import copy
import importlib
import inspect
import pickle
import pkgutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import aioproducer
from aioproducer import Delivery, Producer, RecordMetadata
from aioproducer.testing import FakeCluster

COMPILED = [module.name for module in pkgutil.iter_modules(aioproducer.__path__) if module.name.startswith("_")]

POKE = """
    import copy, importlib, pickle, sys

    for name in sys.argv[1:]:
        module = importlib.import_module(f"aioproducer.{name}")
        for kind in [each for each in vars(module).values() if isinstance(each, type)]:
            if kind.__module__ != module.__name__ or kind.__flags__ & 1 << 9:
                continue
            for make in kind.__new__, type.__call__:
                try:
                    made = make(kind)
                except TypeError:
                    continue
                print(kind, "from", make, flush=True)
                looks = [lambda f=f: f(made) for f in (repr, hash, copy.copy, pickle.dumps, memoryview)]
                for call in looks + [lambda each=each: getattr(made, each)() for each in dir(made)]:
                    try:
                        call()
                    except Exception:
                        pass
"""


def test_whatever_can_be_made_by_hand_does_no_harm() -> None:
    """An instance without its parts must not crash the process."""
    poked = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(POKE), *COMPILED], capture_output=True, text=True, timeout=60
    )
    assert poked.returncode == 0, poked.stdout.splitlines()[-1:]


DOCUMENTED = {
    Producer: ("_admission", "Admission", ("send", "submit", "submit_nowait")),
    Delivery: (
        "_delivery",
        "Delivery",
        ("__doc__", "done", "result", "exception", "cancel", "cancelled", "add_done_callback", "remove_done_callback"),
    ),
    RecordMetadata: ("_record_metadata", "RecordMetadata", ("__doc__",)),
}
"""The documented parts of compiled classes: the class, its stub's module and class, and its members."""


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, (*_, names) in DOCUMENTED.items() for name in names])
def test_help_says_what_the_stubs_say(kind: type, name: str) -> None:
    """``help()`` and shells use the class, type checkers and the site's API pages use the stub."""
    module, class_name, _ = DOCUMENTED[kind]
    stub = ast.parse(Path(aioproducer.__path__[0], f"{module}.pyi").read_text(encoding="utf-8"))
    told: ast.ClassDef | ast.FunctionDef
    (told,) = [each for each in stub.body if isinstance(each, ast.ClassDef) and each.name == class_name]
    asked: object = kind
    if name != "__doc__":
        (told,) = [each for each in told.body if isinstance(each, ast.FunctionDef) and each.name == name]
        asked = getattr(kind, name)
    said = ast.get_docstring(told)
    assert said
    assert inspect.getdoc(asked) == said


@pytest.mark.parametrize("name", ["send", "submit", "submit_nowait"])
def test_signatures_can_be_asked_for(name: str) -> None:
    """By shells that show arguments, and by code that wraps functions."""
    parameters = inspect.signature(getattr(Producer, name)).parameters
    assert [*parameters] == ["self", "topic", "value", "key", "partition", "headers", "timestamp_ms"]


@pytest.fixture
def made_by_the_producer() -> dict[str, Any]:
    """Objects that a program gets from a producer, whose type it can look up."""
    found: dict[str, Any] = {}

    async def main(servers: str) -> None:
        async with Producer(bootstrap_servers=servers) as producer:
            delivery = await producer.submit("orders", b"v")
            sending: Any = producer.send("orders", b"v")
            found.update(delivery=delivery, waiter=delivery.__await__(), submission=sending, metadata=await sending)
            await delivery

    with FakeCluster() as cluster:
        asyncio.run(main(cluster.bootstrap_servers))
    return found


@pytest.mark.parametrize("what", ["delivery", "waiter", "submission"])
def test_only_the_producer_makes_them(made_by_the_producer: dict[str, Any], what: str) -> None:
    """Nothing in Python can make them: not their type, not a copy, not a pickle."""
    made = made_by_the_producer[what]
    kind: Any = type(made)
    for make in (kind, lambda: kind.__new__(kind), lambda: object.__new__(kind)):
        with pytest.raises(TypeError):
            make()
    for make in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="pickle"):
            make(made)


def test_metadata_is_a_plain_value(made_by_the_producer: dict[str, Any]) -> None:
    metadata = made_by_the_producer["metadata"]
    assert copy.copy(metadata) == copy.deepcopy(metadata) == pickle.loads(pickle.dumps(metadata)) == metadata


def test_compiled_modules_are_found() -> None:
    assert "_delivery" in COMPILED
    assert importlib.import_module("aioproducer._delivery").Delivery is Delivery
