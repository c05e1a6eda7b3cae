"""Imports point down: checked from the sources, compiled ones included.

cli, testing, integrations -> producer -> engine -> sender, metadata, ... -> net -> pure modules, protocol
-> compiled core -> records, errors
"""

from __future__ import annotations

import ast
import graphlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from aioproducer._admission import Admission
from tests.sanitize import TESTS as SANITIZED

REPOSITORY = Path(__file__).parent.parent
PACKAGE = REPOSITORY / "aioproducer"

# From the bottom up; a module may import from its own layer and those below.
LAYERS = (
    (
        "_record_metadata", "bare_errors", "client_logger", "error_codes", "errors", "extras", "health", "log_limit",
        "message_text", "records", "version",
    ),
    (
        "_accumulator", "_admission", "_am_send", "_arguments", "_arrow", "_arrow_columns", "_arrow_source",
        "_buffer_pool", "_built_in_partitioner", "_clock", "_counts", "_delivery", "_delivery_ledger", "_feed",
        "_hashing", "_not_by_hand", "_outcomes", "_prefetch", "_produce", "_producer_batch", "_record_batch",
        "_running_loop", "_sequences", "_tally", "_topic_index", "_varint",
    ),
    (
        "backoff", "cluster", "compression", "config", "errors_docs", "forks", "metadata_schedule", "metrics",
        "oauth_token", "partitioners", "protocol", "refusals", "serializers", "start_count", "strict_json",
        "telemetry", "transaction",
    ),
    ("net", "patient_timer"),
    (
        "batch_outcomes", "coordinator", "deadline", "failure_report", "flushes", "memory_queue", "metadata",
        "processors", "producer_id", "record_preparation", "sealer", "sender", "telemetry.client_telemetry",
        "topic_waiters", "transaction.additions", "transaction.calls", "transaction.completion",
        "transaction.epoch_inquiry", "transaction.head_start", "transaction.records", "transaction.requests",
        "transaction.runner", "turns",
    ),
    ("engine",),
    ("bulk", "closing", "slow_admission", "transaction.block"),
    ("config.librdkafka", "consumers", "event_loop", "producer", "producer_internals", "transactions"),
    ("__init__",),
    ("audit", "cli", "compat", "doctor", "integrations", "spark", "testing"),
    ("__main__",),
)  # fmt: skip
"""A subpackage stands for all its modules, except those that are listed separately."""
RANK = {module: rank for rank, layer in enumerate(LAYERS) for module in layer}

LOOP_RANK = RANK["net"]
"""From here up modules may await; below, nothing reads a clock, does I/O or imports asyncio."""

ASKS_FOR_THE_LOOP = {"_delivery", "_admission"}
"""A pending Delivery needs a future of the running loop, and admission refuses any loop but its own."""

IN_FLIGHT = PACKAGE / "net" / "in_flight.py"
"""It is pure, although it is in the folder of its user."""

OWN_CLOCK = {"_admission"}
"""The entry point of time: everything below gets it as now_ms."""


def sources(folder: Path = PACKAGE) -> list[Path]:
    return sorted(path for kind in ("*.py", "*.pyx", "*.pxd") for path in folder.rglob(kind))


def in_layers(parts: Sequence[str]) -> str:
    """The name in LAYERS for a module: its own, or that of its subpackage."""
    own = ".".join(parts[:2])
    return own if own in RANK else parts[0]


def module_of(path: Path) -> str:
    return in_layers(path.relative_to(PACKAGE).with_suffix("").parts)


def imports(path: Path) -> Iterator[str]:
    """Dotted names of everything the source imports, at any depth."""
    text = path.read_text()
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path.name}:{node.lineno}: relative import"
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
    else:
        statement = r"^\s*(?:from\s+([\w.]+)\s+c?import\s+\(?\s*(\w+)|c?import\s+([\w.]+))"
        for match in re.finditer(statement, text, re.MULTILINE):
            yield f"{match[1]}.{match[2]}" if match[1] else match[3]


def own_imports(path: Path) -> Iterator[str]:
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "aioproducer":
            yield in_layers(parts[1:]) if len(parts) > 1 and parts[1] in RANK else "__init__"


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    """A module imports only from its own layer and the layers below it."""
    module = module_of(path)
    assert module in RANK, f"{module} has no place in LAYERS"
    upwards = [name for name in own_imports(path) if RANK[name] > RANK[module]]
    assert not upwards


def pure_sources() -> list[Path]:
    return [path for path in sources() if RANK[module_of(path)] < LOOP_RANK or path == IN_FLIGHT]


@pytest.mark.parametrize("path", pure_sources(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_pure_modules_know_no_loop_and_no_clock(path: Path) -> None:
    """Below ``net`` time is a parameter, and nothing can await."""
    module = module_of(path)
    roots = {name.split(".")[0] for name in imports(path)}
    forbidden = {"asyncio", "socket", "selectors", "subprocess"} - (
        {"asyncio"} if module in ASKS_FOR_THE_LOOP else set()
    )
    forbidden |= set() if module in OWN_CLOCK else {"time", "datetime"}
    assert not roots & forbidden


def test_every_layer_has_sources() -> None:
    """LAYERS lists only existing modules."""
    found = {module_of(path) for path in sources()}
    assert set(RANK) <= found


@pytest.mark.parametrize("name", SANITIZED)
def test_sanitized_tests_exist(name: str) -> None:
    """Else the sanitizers would run none at all, which is known only after minutes."""
    assert (REPOSITORY / "tests" / "unit" / f"test_{name}.py").is_file()


def private_uses(path: Path, *, own: bool) -> Iterator[ast.Attribute]:
    """Each use of a private attribute: of ``self``, or of anything else."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            of_self = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if of_self == own:
                yield node


PRODUCER_ITSELF = [PACKAGE / "slow_admission.py", PACKAGE / "producer.py"]
OF_THE_BASE = set(dir(Admission))
"""What is private to the compiled base, whose other half is the engine."""
PRIVATE_TO_PRODUCERS = {node.attr for path in PRODUCER_ITSELF for node in private_uses(path, own=True)} - OF_THE_BASE


def test_what_is_private_to_producers_was_found() -> None:
    assert {"_engine", "_bulk"} <= PRIVATE_TO_PRODUCERS


@pytest.mark.parametrize(
    "path",
    [path for path in sources() if path.suffix == ".py" and path not in PRODUCER_ITSELF],
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_nobody_reaches_into_a_producer(path: Path) -> None:
    """Members that are private to a Producer are used by its own modules alone, and by one that exists for the rest."""
    reached = [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in private_uses(path, own=False)
        if node.attr in PRIVATE_TO_PRODUCERS
    ]
    assert not reached or path == PACKAGE / "producer_internals.py"


def dotted(path: Path) -> str:
    """The name of a file's module; a source and its declarations count as one."""
    return ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__")


def needs(folder: Path) -> dict[str, set[str]]:
    """What each module below a folder imports from there, including imports only for type checkers."""
    graph: dict[str, set[str]] = {dotted(path): set() for path in sources(folder)}
    for path in sources(folder):
        for name in imports(path):
            found = next((one for one in (name, name.rpartition(".")[0]) if one in graph), None)
            if found not in (None, dotted(path)):
                graph[dotted(path)].add(found)
    return graph


@pytest.mark.parametrize("folder", ["aioproducer", "benchmarks"])
def test_no_modules_need_each_other(folder: str) -> None:
    """Files with an import cycle, however long, can't be read one after the other."""
    graph = needs(REPOSITORY / folder)
    assert len(list(graphlib.TopologicalSorter(graph).static_order())) == len(graph)
