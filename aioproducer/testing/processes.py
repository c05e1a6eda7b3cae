"""Processes that can't outlive this one, started through ``_supervisor.py``."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aioproducer.testing.errors import IN_A_FORK, ClusterError

SLICE_S = 0.05
"""How long to wait on the pipe at a time: another thread may have read what this one waits for."""


class Processes:
    """Named child processes, killed when this object is closed or dropped, or when this process ends in any way.

    Calls block and may come from several threads. A fork of this process does not share them.

    Args:
        directory: removed at the end, even if this process is killed; None for none.
    """

    def __init__(self, directory: Path | None = None) -> None:
        script = Path(__file__).with_name("_supervisor.py")
        command = [sys.executable, "-I", "-S", str(script), str(os.getpid())]
        self._supervisor = subprocess.Popen(
            command + ([str(directory)] if directory else []),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
        self._owner_pid = os.getpid()
        self._lock = threading.RLock()
        self._input = b""
        self._last_id = 0
        self._exit_codes: dict[str, int] = {}
        self._finalizer = weakref.finalize(self, _end_supervisor, self._supervisor, self._owner_pid, directory)
        _all.add(self)

    def start(self, name: str, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path) -> int:
        """Start a process whose output is appended to ``log``; returns its pid.

        Raises:
            ClusterError: it could not be started.
        """
        with self._lock:
            self._exit_codes.pop(name, None)
            command = {"start": name, "argv": list(argv), "env": dict(env), "cwd": str(cwd), "log": str(log)}
            pid: int = self._ask(command)["pid"]
            return pid

    def signal(self, name: str, number: int) -> bool:
        """Send a signal to a process and its children; False if it has already ended."""
        sent: bool = self._ask({"signal": name, "number": int(number)})["sent"]
        return sent

    def exit_code(self, name: str) -> int | None:
        """The exit code of a process, negative for a signal; None while it runs."""
        return self.wait(name, 0)

    def wait(self, name: str, timeout_s: float) -> int | None:
        """Wait for a process to end; its exit code, or None if it still runs after ``timeout_s`` seconds."""
        deadline = time.monotonic() + timeout_s
        while True:
            with self._lock:
                self._read(0)
                left_s = deadline - time.monotonic()
                if name in self._exit_codes or left_s <= 0:
                    return self._exit_codes.get(name)
            # Without the lock, so that other threads can send signals meanwhile.
            self._wait_for_news(min(SLICE_S, left_s))

    def close(self) -> None:
        """Kill what still runs and remove the directory. A second call has no effect."""
        with self._lock:
            self._finalizer()

    def forget(self) -> None:
        """In a fork: close the pipe, or the supervisor would not see the owner end."""
        for pipe in (self._supervisor.stdin, self._supervisor.stdout):
            if pipe:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _ask(self, command: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            self._refuse_others()
            # Ctrl-C may come before the answer is read. The next command then finds that answer and skips it.
            self._last_id += 1
            self._send({"id": self._last_id, **command})
            while True:
                for message in self._read(SLICE_S):
                    if message["id"] == self._last_id:
                        if "error" in message:
                            raise ClusterError(message["error"])
                        return message

    def _send(self, command: dict[str, Any]) -> None:
        assert self._supervisor.stdin
        try:
            _write_all(self._supervisor.stdin.fileno(), json.dumps(command).encode() + b"\n")
        except BrokenPipeError:
            raise self._lost() from None

    def _wait_for_news(self, timeout_s: float) -> None:
        assert self._supervisor.stdout
        # Another thread may close it right now.
        with contextlib.suppress(OSError, ValueError):
            _is_readable(self._supervisor.stdout.fileno(), timeout_s)

    def _read(self, timeout_s: float) -> list[dict[str, Any]]:
        """Read the supervisor's messages: store exits, return answers."""
        self._refuse_others()
        assert self._supervisor.stdout
        descriptor = self._supervisor.stdout.fileno()
        if not _is_readable(descriptor, timeout_s):
            return []
        data = os.read(descriptor, 65_536)
        if not data:
            raise self._lost()
        *lines, self._input = (self._input + data).split(b"\n")
        messages = [json.loads(line) for line in lines]
        self._exit_codes.update((one["exited"], one["code"]) for one in messages if "exited" in one)
        return [one for one in messages if "exited" not in one]

    def _refuse_others(self) -> None:
        if os.getpid() != self._owner_pid:
            raise ClusterError(IN_A_FORK)
        if not self._finalizer.alive:
            raise ClusterError("the cluster is stopped")

    def _lost(self) -> ClusterError:
        return ClusterError("the process that looks after the brokers has ended, and the brokers with it")


def _is_readable(descriptor: int, timeout_s: float) -> bool:
    # Not select(), which can't handle descriptors above 1023: tests may have opened thousands of sockets.
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _end_supervisor(supervisor: subprocess.Popen[bytes], owner_pid: int, directory: Path | None) -> None:
    """Close the pipe, upon which the supervisor kills its children, and wait for it."""
    if os.getpid() != owner_pid:
        return
    assert supervisor.stdin
    assert supervisor.stdout
    supervisor.stdin.close()
    # It may still write, which must not fail before it has cleaned up.
    while os.read(supervisor.stdout.fileno(), 65_536):
        pass
    supervisor.stdout.close()
    supervisor.wait()
    if directory is not None:  # still there if the supervisor was killed
        shutil.rmtree(directory, ignore_errors=True)


_all: weakref.WeakSet[Processes] = weakref.WeakSet()


def _forget_all() -> None:
    for one in _all:
        one.forget()


os.register_at_fork(after_in_child=_forget_all)
