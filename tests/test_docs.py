"""The documentation is right: its Python compiles and runs, its links work, its tables are up to date.

Also the site that is built from it: no warnings, every public name is there, nothing is loaded from elsewhere.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.main import get_command

import aioproducer
from aioproducer import errors
from aioproducer.cli.app import app
from aioproducer.config.table import CONFIGS
from aioproducer.errors_docs import errors_page
from aioproducer.testing import FakeCluster, TopicAdmin
from aioproducer.testing.plugin import TopicFactory

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
SENDING = ROOT / "docs" / "sending.md"
TROUBLESHOOTING = ROOT / "docs" / "troubleshooting.md"
TESTING = ROOT / "docs" / "testing.md"
TRANSACTIONS = ROOT / "docs" / "transactions.md"
TRANSACTION_ERRORS = "Errors, and what to write in an except clause"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
OBSERVABILITY = ROOT / "docs" / "observability.md"
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(page for folder in ("docs", "tests", "benchmarks") for page in (ROOT / folder).rglob("*.md")),
    ]
)
PUBLIC_MODULES = [
    "aioproducer",
    "aioproducer.audit",
    "aioproducer.compat.aiokafka",
    "aioproducer.doctor",
    "aioproducer.spark",
    "aioproducer.spark.audit",
    "aioproducer.testing",
    "aioproducer.testing.fake",
    "aioproducer.transactions",
]
LISTED_PACKAGES = [
    "config",
    "transaction",
    "net",
    "net/sasl",
    "integrations",
    "integrations/schema_registry",
    "spark",
    "spark/audit",
]
"""Those whose modules have a list each in the architecture; the others are in its table."""
PATIENCE_S = 60.0


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def section(page: Path, title: str) -> str:
    """The text from one heading of the second level to the next."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", page.read_text(), re.MULTILINE | re.DOTALL)
    assert found, f"{name_of(page)} has no section {title!r}"
    return found[1]


def first_cells(text: str) -> list[str]:
    """The text in backticks in the first column of the tables."""
    return [name for cell in re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE) for name in re.findall(r"`(\w+)`", cell)]


# --- Python -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_compiles(page: Path) -> None:
    for number, code in enumerate(blocks(page, "python"), 1):
        compile(code, f"{name_of(page)}, block {number}", "exec")


def snippet(page: Path, having: str, cluster: TopicAdmin, **topics: str) -> str:
    """The only Python block of a page with this text, changed to use this cluster and these topics."""
    (code,) = (block for block in blocks(page, "python") if having in block)
    code = code.replace("localhost:9092", cluster.bootstrap_servers)
    for old, new in topics.items():
        assert f'"{old}"' in code
        code = code.replace(f'"{old}"', f'"{new}"')
    return code


def names_in(code: str) -> dict[str, Any]:
    """The names that a block defines."""
    names: dict[str, Any] = {"__name__": "snippet"}
    exec(compile(code, "snippet", "exec"), names)
    return names


def test_the_first_example_has_twelve_lines() -> None:
    assert len(blocks(README, "python")[0].splitlines()) == 12


def test_the_first_example_runs_without_a_kafka() -> None:
    (code,) = (block for block in blocks(README, "python") if "asyncio.run(main())" in block)
    command = [sys.executable, "-W", "error", "-c", code]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert finished.stderr == ""
    assert finished.stdout.startswith("RecordMetadata(topic='orders', partition=0, offset=0, ")


@pytest.mark.broker
async def test_the_full_speed_pattern_runs(kafka_cluster: TopicAdmin, kafka_topic: str) -> None:
    publish = names_in(snippet(SENDING, "for value in values", kafka_cluster, measurements=kafka_topic))["publish"]
    async with aioproducer.Producer(
        bootstrap_servers=kafka_cluster.bootstrap_servers, buffer_memory=65_536, batch_size=16_384
    ) as producer:
        await publish(producer, [b"x" * 1_000] * 1_000)
    assert await asyncio.to_thread(kafka_cluster.end_offsets, kafka_topic) == {0: 1_000}


@pytest.mark.broker
async def test_the_web_application_runs(kafka_cluster: TopicAdmin, kafka_topic_factory: TopicFactory) -> None:
    orders, clicks = kafka_topic_factory(), kafka_topic_factory()
    app = names_in(snippet(README, "FastAPI", kafka_cluster, orders=orders, clicks=clicks))["app"]
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        order = await client.post("/orders", params={"item": "tea"})
        click = await client.post("/clicks", params={"page": "home"})
    assert (order.status_code, order.json()) == (201, {"partition": 0, "offset": 0})
    assert click.status_code == 202
    # When the application ended, it sent what was still in the buffer.
    assert await asyncio.to_thread(kafka_cluster.end_offsets, clicks) == {0: 1}


@pytest.mark.broker
async def test_the_example_of_a_test_passes(kafka_cluster: TopicAdmin, kafka_topic: str) -> None:
    test = names_in(snippet(TESTING, "test_order_is_published", kafka_cluster))["test_order_is_published"]
    await test(kafka_cluster, kafka_topic)


async def test_the_example_with_a_fake_cluster_passes(fake_kafka_cluster: FakeCluster) -> None:
    (code,) = (block for block in blocks(TESTING, "python") if "test_a_lost_answer" in block)
    await names_in(code)["test_a_lost_answer"](fake_kafka_cluster)


@pytest.mark.broker
async def test_the_secure_cluster_runs() -> None:
    (code,) = (block for block in blocks(ROOT / "docs" / "security.md", "python") if "Listener(protocol" in block)
    names = names_in(code)
    cluster = names["cluster"]
    await asyncio.to_thread(cluster.start)
    try:
        await asyncio.to_thread(cluster.create_topic, "orders")
        await names["use"]()
        assert await asyncio.to_thread(cluster.end_offsets, "orders") == {0: 1}
    finally:
        await asyncio.to_thread(cluster.stop)


@pytest.mark.broker
@pytest.mark.slow
def test_the_cluster_that_fails_on_purpose(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = (block for block in blocks(TESTING, "python") if "cluster.kill" in block)
    names_in(code)
    assert capsys.readouterr().out.endswith("{0: 0, 1: 0, 2: 0, 3: 0, 4: 0, 5: 0}\n")


# --- commands ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_exist(page: Path) -> None:
    """Targets of make, and commands of ``aioproducer`` with their options, in blocks and in backticks."""
    text = page.read_text()
    blocks_of_commands = [code for language in ("shell", "console", "sh") for code in blocks(page, language)]
    written = "\n".join([*blocks_of_commands, *re.findall(r"(?<!`)`([^`]+)`(?!`)", text)]).replace("\\\n", " ")
    targets = set(re.findall(r"^([a-z][a-z -]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    known = {name for names in targets for name in names.split()}
    for target in re.findall(r"^\s*(?:\$ )?make ([a-z-]+)", written, re.MULTILINE):
        assert target in known, f"make {target}"
    for words in re.findall(r"(?:^|\| )aioproducer ([a-z][^\n|]*)", written, re.MULTILINE):
        if hasattr(aioproducer.Producer, words.split()[0]):
            continue  # a row of the benchmarks
        command = group = get_command(app)
        for word in words.split():
            if word in (commands := getattr(command, "commands", {})):
                command = commands[word]
            elif word.startswith("--"):
                options = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
                assert word.partition("=")[0] in {*options, "--help"}, f"aioproducer {words}"
        assert command is not group, f"aioproducer {words}"


# --- links ------------------------------------------------------------------------------------------------------------


def links(page: Path) -> Iterator[str]:
    """The targets of a page's links and pictures, outside of code."""
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    yield from re.findall(r"\]\(([^)\s]+)\)", text)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_merge_left_no_marks(page: Path) -> None:
    """Markdown treats conflict markers as text, so no other check would notice them."""
    assert not re.findall(r"^(?:<{7}|={7}|>{7}|\|{7})(?: .*)?$", page.read_text(), re.MULTILINE)


@pytest.mark.parametrize("page", [page for page in PAGES if not page.name.startswith("benchmarks")], ids=name_of)
def test_lines_of_prose_have_at_most_120_characters(page: Path) -> None:
    """Except in pages that the benchmarks write."""
    prose = re.sub(r"^```.*?^```$|^\s*\|.*?$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert [line for line in prose.splitlines() if len(line) > 120] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_named_files_exist(page: Path) -> None:
    """Paths in backticks exist, and so do the tests named after them."""
    for path in re.findall(r"`((?:aioproducer|benchmarks|docs|examples|tests)/[\w./-]+)`", page.read_text()):
        assert (ROOT / path).exists(), path
    for path, names in re.findall(r"`(tests/[\w/]+\.py)`\s+\(([^)]*)\)", page.read_text()):
        for name in re.findall(r"`(test_\w+)`", names):
            assert f"def {name}(" in (ROOT / path).read_text(), f"{path} has no {name}"


# --- the site ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; any warning of MkDocs is a failure."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    finished = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return folder


class Loads(HTMLParser):
    """What a browser fetches to show a page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.classes: list[str] = []
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.classes += values.get("class", "").split()
        self.addresses += [values[name] for name in ("src", "srcset", "data", "poster") if name in values]
        if tag == "link" and values.get("rel") != "canonical":
            self.addresses.append(values["href"])


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        loads = Loads(page)
        assert loads.addresses
        assert not [address for address in loads.addresses if re.match(r"(https?:)?//", address)], page
        assert "mermaid" not in loads.classes, f"{page}: the theme fetches a script to draw this; use an SVG"


def test_the_site_shows_every_public_name(site: Path) -> None:
    inventory = zlib.decompress((site / "objects.inv").read_bytes().split(b"\n", 4)[4]).decode()
    shown = {line.split(" ")[0] for line in inventory.splitlines()}
    for name in PUBLIC_MODULES:
        module = import_module(name)
        for public in module.__all__:
            assert public == "__version__" or f"{name}.{public}" in shown, f"docs/api has no {name}.{public}"


def test_the_site_shows_each_section_of_the_readme_in_one_place(site: Path) -> None:
    shown = [title for page in PAGES for title in re.findall(r"^<!-- README: (.+) -->$", page.read_text(), re.M)]
    assert len(shown) == len(set(shown)) > 3
    for title in shown:
        assert section(README, title)


# --- tables -----------------------------------------------------------------------------------------------------------


def test_errors_page_is_up_to_date() -> None:
    """After a change of the error tree: python -m aioproducer.errors_docs > docs/errors.md."""
    assert (ROOT / "docs" / "errors.md").read_text() == errors_page()


def test_what_troubleshooting_quotes_is_what_is_said() -> None:
    """Quoted texts, in headings and first cells, occur in the sources, apart from line breaks."""
    sources = [path for kind in ("*.py", "*.pyx") for path in (ROOT / "aioproducer").rglob(kind)]
    said = re.sub(r'"\s+f?"', "", "\n".join(path.read_text() for path in sources))
    lines = re.findall(r"^(?:### |\| )(.*)", TROUBLESHOOTING.read_text(), re.MULTILINE)
    quoted = [quote for line in lines for quote in re.findall(r"`([^`]+)`", line.partition(" | ")[0])]
    assert len(quoted) > 30
    assert not [quote for quote in quoted if quote not in said and quote != os.strerror(errno.ECONNREFUSED)]


def test_the_table_of_loggers_names_each_logger_once() -> None:
    cells = re.findall(r"^\| (`aioproducer\.[^|]+) \|", OBSERVABILITY.read_text(), re.MULTILINE)
    named = [name for cell in cells for name in re.findall(r"`(?:aioproducer)?(\.\w+)`", cell)]
    sources = [path for kind in ("*.py", "*.pyx") for path in (ROOT / "aioproducer").rglob(kind)]
    made = {name for path in sources for name in re.findall(r'getLogger\("aioproducer(\.\w+)"\)', path.read_text())}
    assert len(made) > 10
    assert sorted(named) == sorted(made)


def test_errors_of_the_readme_exist() -> None:
    named = first_cells(section(README, "Errors"))
    assert len(named) > 10
    for name in named:
        assert issubclass(getattr(errors, name), errors.KafkaError)


def test_flags_of_the_errors_of_transactions() -> None:
    """As in their classes; a failed record makes an error abortable that has no such flag itself."""
    flags = ("retriable", "abortable", "fatal", "application_recoverable")
    rows = re.findall(r"^\| (.+?) \| (.+?) \|", section(TRANSACTIONS, TRANSACTION_ERRORS), re.MULTILINE)
    named = [(cell, name) for cell, more in rows for name in re.findall(r"`(\w+Error)`", cell + more)]
    assert len(named) > 10
    for cell, name in named:
        said = {flag for flag in flags if f"`{flag}`" in cell}
        has = {flag for flag in flags if getattr(getattr(errors, name), flag)}
        assert has == said or (has, said) == (set(), {"abortable"}), name


def test_the_readme_names_every_default_that_departs() -> None:
    assert first_cells(section(README, "Configuration")) == [each.name for each in CONFIGS if each.departs]


def test_the_architecture_names_every_module() -> None:
    text = section(ARCHITECTURE, "Modules")
    package = ROOT / "aioproducer"
    modules = {
        path.relative_to(package).with_suffix("")
        for kind in ("*.py", "*.pyx", "telemetry/*.py")
        for path in package.glob(kind)
    }
    unnamed = [one for one in sorted(modules) if f"`{one}`" not in text and f"`{one.name}`" not in text]
    assert [one for one in unnamed if one.name not in ("__init__", "version")] == []


@pytest.mark.parametrize("package", LISTED_PACKAGES)
def test_the_list_of_a_package_in_the_architecture_names_every_module(package: str) -> None:
    _, _, text = section(ARCHITECTURE, "Modules").partition(f"\n### {package}\n")
    named = set(re.findall(r"`(\w+)`", text.partition("\n### ")[0]))
    modules = {path.stem for path in (ROOT / "aioproducer" / package).glob("*.py")} - {"__init__"}
    assert len(modules) > 3
    assert modules - named == set()


@pytest.mark.parametrize("page", ["architecture", "guarantees"])
def test_named_tests_exist(page: str) -> None:
    """Tests that are cited as evidence exist: `broker/test_x.py` (`test_y`), with or without a leading `tests/`."""
    text = (ROOT / "docs" / f"{page}.md").read_text()
    path_of_tests = r"`(?:tests/)?((?:unit|broker)/[\w/.]+|(?:fuzz|simulation|spark)/[\w/]*test_\w+\.py)`"
    named = re.findall(path_of_tests + r",?(?:\s*\(([^)]*)\))?", text)
    assert len(named) > 10
    for path, beside in named:
        found = ROOT / "tests" / path
        assert found.exists(), path
        for test in re.findall(r"`(test_\w+)`", beside):
            assert f"def {test}(" in found.read_text(), f"{path} has no {test}"
