"""The process between a test session and its brokers: however the session ends, they end too.

Runs as a script in its own session, so that Ctrl-C does not reach it::

    python _supervisor.py PARENT_PID [DIRECTORY_TO_REMOVE_AT_THE_END]

Reads commands as JSON lines from standard input and answers each in order, with the command's "id":
    {"start": name, "argv": [...], "env": {...}, "cwd": path, "log": path}   -> {"pid": number}
    {"signal": name, "number": n}                                            -> {"sent": bool}
A refused command gives {"error": text}. In between come {"exited": name, "code": code}, with codes as in subprocess.

The end of standard input is the end of the parent: every child is killed, with its process group, and the directory is
removed. If another process inherited the pipe, that end would not show, so the parent's pid is checked as well. On
Linux the kernel kills the children if this process itself is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

LOOK_AT_PARENT_S = 0.5
PR_SET_PDEATHSIG = 1


class Supervisor:
    """Children by name, and the pipe to the parent."""

    def __init__(self, parent_pid: int) -> None:
        self.parent_pid = parent_pid
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self.selector = selectors.DefaultSelector()
        self.ended = False
        self.input = b""
        self.before_exec = _die_with_this_process()

    def run(self) -> None:
        """Serve the parent until it is gone, then kill every child."""
        self._wake_on_signals()
        self.selector.register(0, selectors.EVENT_READ, self._read_commands)
        try:
            while not self.ended and os.getppid() == self.parent_pid:
                for key, _ in self.selector.select(LOOK_AT_PARENT_S):
                    key.data()
                self._report_exits()
        except BrokenPipeError:
            pass
        finally:
            self._kill_all()

    def _wake_on_signals(self) -> None:
        """SIGCHLD wakes the select; a request to terminate counts as the parent's end."""
        reader, writer = socket.socketpair()
        reader.setblocking(False)
        writer.setblocking(False)
        self.wake_sockets = reader, writer
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._end)
        self.selector.register(reader, selectors.EVENT_READ, lambda: reader.recv(4096))

    def _end(self, *_: object) -> None:
        self.ended = True

    def _read_commands(self) -> None:
        data = os.read(0, 65_536)
        if not data:
            self.ended = True
        *lines, self.input = (self.input + data).split(b"\n")
        for line in lines:
            command = json.loads(line)
            _say({"id": command.pop("id"), **self._obey(command)})

    def _obey(self, command: dict[str, Any]) -> dict[str, Any]:
        try:
            if "start" in command:
                return {"pid": self._start(**command)}
            return {"sent": self._signal(command["signal"], command["number"])}
        except (OSError, KeyError, ValueError) as error:
            return {"error": f"{type(error).__name__}: {error}"}

    def _start(self, *, start: str, argv: list[str], env: dict[str, str], cwd: str, log: str) -> int:
        with Path(log).open("ab") as output:
            # A new session has its own process group, so the child's children are killed as well.
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=cwd,
                start_new_session=True,
                preexec_fn=self.before_exec,
            )
        self.children[start] = child
        return child.pid

    def _signal(self, name: str, number: int) -> bool:
        child = self.children.get(name)
        if child is None or child.poll() is not None:
            return False
        _signal_group(child, number)
        if number == signal.SIGSTOP and hasattr(os, "waitid"):
            # Its threads may run a moment longer, and a broker thought to be frozen would still answer.
            os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return True

    def _report_exits(self) -> None:
        for name, child in list(self.children.items()):
            code = child.poll()
            if code is not None:
                _signal_group(child, signal.SIGKILL)
                del self.children[name]
                _say({"exited": name, "code": code})

    def _kill_all(self) -> None:
        for child in self.children.values():
            _signal_group(child, signal.SIGKILL)
        for child in self.children.values():
            child.wait()


def _signal_group(child: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def _die_with_this_process() -> Callable[[], object] | None:
    """Called in a child before it execs Java. Safe here: this process has one thread, which never ends first."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _say(message: dict[str, Any]) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def main() -> None:
    """Serve the parent named by the first argument."""
    try:
        Supervisor(int(sys.argv[1])).run()
    finally:
        for directory in sys.argv[2:]:
            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
