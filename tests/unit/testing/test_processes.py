"""Processes end with the process that started them."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from aioproducer.testing import ClusterError
from aioproducer.testing.processes import Processes
from aioproducer.testing.waiting import wait_until

PATIENCE_S = 30.0
ENVIRON = {"PATH": os.environ["PATH"]}


def start(processes: Processes, directory: Path, name: str, script: str) -> int:
    """Start a shell script; its output goes to a file named after it."""
    return processes.start(name, ["/bin/sh", "-c", script], env=ENVIRON, cwd=directory, log=directory / f"{name}.log")


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for_end(pid: int) -> None:
    """The supervisor reaps its children, so the pid of one that ended goes away."""
    wait_until(lambda: f"process {pid} lives" if is_alive(pid) else "", PATIENCE_S, "its end")


def wait_for_file(path: Path) -> None:
    wait_until(lambda: "" if path.exists() else f"no {path}", PATIENCE_S, "writing a file")


def test_a_process_runs_and_its_exit_code_is_told(tmp_path: Path) -> None:
    processes = Processes()
    try:
        start(processes, tmp_path, "a", "echo out; echo err >&2; pwd; exit 3")
        assert processes.wait("a", PATIENCE_S) == 3
        assert (tmp_path / "a.log").read_text() == f"out\nerr\n{tmp_path}\n"
        start(processes, tmp_path, "a", "echo again")
        assert processes.wait("a", PATIENCE_S) == 0
        assert (tmp_path / "a.log").read_text().endswith("again\n")
    finally:
        processes.close()


def test_signals_reach_the_process_and_its_children(tmp_path: Path) -> None:
    processes = Processes()
    try:
        start(processes, tmp_path, "a", "sleep 1000 & echo $! > child; touch ready; wait")
        wait_for_file(tmp_path / "ready")
        assert processes.exit_code("a") is None
        assert processes.signal("a", signal.SIGKILL)
        assert processes.wait("a", PATIENCE_S) == -signal.SIGKILL
        assert not processes.signal("a", signal.SIGKILL)
    finally:
        processes.close()


def test_what_can_not_be_started_is_an_error(tmp_path: Path) -> None:
    processes = Processes()
    try:
        with pytest.raises(ClusterError, match="no-such-program"):
            processes.start("a", ["no-such-program"], env=ENVIRON, cwd=tmp_path, log=tmp_path / "log")
        start(processes, tmp_path, "b", "exit 0")
        assert processes.wait("b", PATIENCE_S) == 0
    finally:
        processes.close()


def test_close_ends_what_runs_and_removes_the_directory(tmp_path: Path) -> None:
    directory = tmp_path / "own"
    directory.mkdir()
    processes = Processes(directory)
    pids = [start(processes, directory, name, "exec sleep 1000") for name in ("a", "b")]
    processes.close()
    assert not any(is_alive(pid) for pid in pids)
    assert not directory.exists()
    processes.close()
    with pytest.raises(ClusterError, match="stopped"):
        start(processes, tmp_path, "c", "exit 0")


def test_a_paused_process_ends_too(tmp_path: Path) -> None:
    processes = Processes()
    pid = start(processes, tmp_path, "a", "exec sleep 1000")
    assert processes.signal("a", signal.SIGSTOP)
    processes.close()
    assert not is_alive(pid)


def test_dropping_the_object_ends_its_processes(tmp_path: Path) -> None:
    processes = Processes()
    pid = start(processes, tmp_path, "a", "exec sleep 1000")
    del processes
    gc.collect()
    assert not is_alive(pid)


def test_closing_in_one_thread_ends_the_wait_of_another(tmp_path: Path) -> None:
    processes = Processes()
    start(processes, tmp_path, "a", "exec sleep 1000")
    errors: list[str] = []
    waiting = threading.Event()

    def wait() -> None:
        try:
            waiting.set()
            processes.wait("a", PATIENCE_S)
        except ClusterError as error:
            errors.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    assert waiting.wait(PATIENCE_S)
    processes.close()
    thread.join(PATIENCE_S)
    assert errors == ["the cluster is stopped"]


def test_an_answer_that_nobody_waited_for_is_passed_over(tmp_path: Path) -> None:
    processes = Processes()
    try:
        # As if Ctrl-C had been pressed between the command and its answer.
        processes._send({"id": 0, "signal": "a", "number": 9})
        start(processes, tmp_path, "a", "exit 4")
        assert processes.wait("a", PATIENCE_S) == 4
    finally:
        processes.close()


def test_two_threads_wait_for_different_processes(tmp_path: Path) -> None:
    processes = Processes()
    codes: dict[str, int | None] = {}

    def wait_for(name: str) -> None:
        codes[name] = processes.wait(name, PATIENCE_S)

    try:
        start(processes, tmp_path, "a", "until test -e go; do sleep 0.01; done; exit 1")
        start(processes, tmp_path, "b", "until test -e go; do sleep 0.01; done; exit 2")
        threads = [threading.Thread(target=wait_for, args=(name,)) for name in ("a", "b")]
        for thread in threads:
            thread.start()
        # Both wait, but a third call is still served.
        start(processes, tmp_path, "c", "touch go")
        for thread in threads:
            thread.join(PATIENCE_S)
        assert codes == {"a": 1, "b": 2}
    finally:
        processes.close()


OWNER = """
import os, sys
from pathlib import Path
from aioproducer.testing.processes import Processes


def tell(*words):
    # In one piece, as a fork writes to the same pipe: with PYTHONUNBUFFERED, print() makes several of a line.
    os.write(1, (" ".join(map(str, words)) + os.linesep).encode())


directory = Path(sys.argv[1])
processes = Processes(directory)
pid = processes.start("a", ["sleep", "1000"], env=dict(os.environ), cwd=directory, log=directory / "log")
how = sys.argv[2]
if how == "fork":
    # A fork that lives on holds copies of everything that was open.
    if os.fork() == 0:
        try:
            processes.exit_code("a")
            processes.signal("a", 9)
        except RuntimeError as error:
            tell(error)
        sys.stdin.read()
        os._exit(0)
tell(pid, processes._supervisor.pid)
if how == "exception":
    raise KeyboardInterrupt
sys.stdin.read()
"""


def owner(directory: Path, how: str) -> subprocess.Popen[str]:
    """A process that has started another one and now waits for the end of its input."""
    command = [sys.executable, "-W", "ignore", "-c", OWNER, str(directory), how]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)


@pytest.mark.parametrize("how", ["kill -9", "Ctrl-C", "exit", "exception"])
def test_however_the_owner_ends_nothing_stays(tmp_path: Path, how: str) -> None:
    directory = tmp_path / "own"
    directory.mkdir()
    with owner(directory, how) as process:
        assert process.stdout
        child, _ = map(int, process.stdout.readline().split())
        if how == "kill -9":
            process.kill()
        elif how == "Ctrl-C":
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
    wait_for_end(child)
    wait_until(lambda: "it is there" if directory.exists() else "", PATIENCE_S, "removing the directory")


def test_a_fork_has_no_part_in_it_and_does_not_hide_the_owners_end(tmp_path: Path) -> None:
    directory = tmp_path / "own"
    directory.mkdir()
    with owner(directory, "fork") as process:
        assert process.stdout
        lines = sorted(process.stdout.readline() for _ in range(2))
        child = int(lines[0].split()[0])
        assert "fork" in lines[1]
        process.kill()
        process.wait(PATIENCE_S)
        # The fork still runs here, with the pipes it inherited.
        wait_for_end(child)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no signal for the death of a parent")
def test_when_the_supervisor_is_killed_its_children_go_too(tmp_path: Path) -> None:
    directory = tmp_path / "own"
    directory.mkdir()
    with owner(directory, "supervisor") as process:
        assert process.stdout
        child, supervisor = map(int, process.stdout.readline().split())
        os.kill(supervisor, signal.SIGKILL)
        # Possibly nothing reaps it, so its state counts: gone, or a zombie.
        wait_until(lambda: "" if _has_ended(child) else f"process {child} lives", PATIENCE_S, "its end")
        process.communicate(timeout=PATIENCE_S)


def _has_ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state in "ZX"


def test_a_lost_supervisor_is_said_to_be_lost(tmp_path: Path) -> None:
    """The directory, which it can't remove any more, goes all the same."""
    directory = tmp_path / "own"
    directory.mkdir()
    processes = Processes(directory)
    start(processes, tmp_path, "a", "exec sleep 1000")
    os.kill(processes._supervisor.pid, signal.SIGKILL)
    try:
        with pytest.raises(ClusterError, match="brokers with it"):
            processes.wait("a", PATIENCE_S)
        with pytest.raises(ClusterError, match="brokers with it"):
            processes.signal("a", signal.SIGTERM)
    finally:
        processes.close()
    assert not directory.exists()


def test_the_supervisor_answers_every_command(tmp_path: Path) -> None:
    script = Path(__file__).parents[3] / "aioproducer" / "testing" / "_supervisor.py"
    commands = [
        {"id": 1, "start": "a", "argv": ["true"], "env": ENVIRON, "cwd": "/nowhere", "log": str(tmp_path / "log")},
        {"id": 2, "signal": "b", "number": 9},
        {"id": 3, "nonsense": 1},
    ]
    with subprocess.Popen(
        [sys.executable, "-I", "-S", str(script), str(os.getpid())], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        text = "".join(json.dumps(one) + "\n" for one in commands)
        answers, _ = process.communicate(text.encode(), timeout=PATIENCE_S)
    first, second, third = (json.loads(line) for line in answers.splitlines())
    assert first["id"] == 1
    assert "nowhere" in first["error"]
    assert second == {"id": 2, "sent": False}
    assert third == {"id": 3, "error": "KeyError: 'signal'"}
