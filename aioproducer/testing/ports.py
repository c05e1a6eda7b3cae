"""Free loopback ports for brokers, each given to one process of this machine."""

from __future__ import annotations

import errno
import os
import random
import socket
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

T = TypeVar("T")

HOST = "127.0.0.1"
FIRST, LAST = 20_000, 32_767
"""Below the ports that Linux (32768 on) and macOS (49152 on) give to outgoing connections.

A killed broker must find its port free again. A port of the outgoing range could go to any client meanwhile, and a
client that keeps connecting to a dead port of that range can even connect to itself."""


def free_ports(count: int, rng: random.Random) -> list[int]:
    """Ports that are unused now; this function hands them to nobody else until they are given back.

    Ports not given back are free again when this process ends. A process that chooses its ports in another way may
    still take one first: the caller then tries others.
    """
    ports: list[int] = []
    for _ in range(1_000):
        port = rng.randint(FIRST, LAST)
        if _claims.claim(port):
            if is_free(port):
                ports.append(port)
            else:
                _claims.give_back(port)
            if len(ports) == count:
                return ports
    give_back(ports)
    # On a machine this full, let the system choose, from the range of outgoing connections.
    return _from_system(count)


def bound_to_free(bind: Callable[[int], T], rng: random.Random) -> T:
    """What ``bind`` returns for a free port; another one is tried if it is taken meanwhile."""
    while True:
        (port,) = free_ports(1, rng)
        try:
            return bind(port)
        except OSError as error:
            give_back([port])
            if error.errno != errno.EADDRINUSE:
                raise


def give_back(ports: Iterable[int]) -> None:
    """Release the ports; no effect for a port this process does not hold."""
    for port in ports:
        _claims.give_back(port)


def is_free(port: int) -> bool:
    """Whether a listener could be bound to this loopback port now."""
    with socket.socket() as probe:
        if os.name == "posix":
            # Like the JVM: a port with old connections in TIME_WAIT is free for a listener. On Windows, where it is so
            # anyway, this would share the port with another listener.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


class _Claims:
    """Ports chosen by processes of this user, which their brokers bind later, and again after a restart.

    A claim is a lock on one byte of a shared file, so it ends with its process, however that ends. Where there are no
    such locks, on Windows, other processes do not see it; they can still tell that a port is in use.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._own: set[int] = set()  # such a lock excludes other processes, but not its own
        self._file: int | None = None

    def claim(self, port: int) -> bool:
        """Claim a port; False if another process has it."""
        with self._lock:
            if port in self._own:
                return False
            if fcntl is not None:
                try:
                    fcntl.lockf(self._opened(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
                except OSError:
                    return False
            self._own.add(port)
            return True

    def give_back(self, port: int) -> None:
        with self._lock:
            if port in self._own:
                self._own.discard(port)
                if fcntl is not None:
                    fcntl.lockf(self._opened(), fcntl.LOCK_UN, 1, port)

    def _opened(self) -> int:
        if self._file is None:
            path = Path(tempfile.gettempdir(), f"aioproducer-ports-{os.getuid()}")
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        return self._file


_claims = _Claims()


def _from_system(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
