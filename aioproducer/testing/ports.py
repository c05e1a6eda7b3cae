"""Free ports for brokers on the loopback."""

from __future__ import annotations

import random
import socket

HOST = "127.0.0.1"
FIRST, LAST = 20_000, 32_767
"""Below the ports that Linux (32768 on) and macOS (49152 on) give to outgoing connections.

A broker that was killed must find its port free again. A port of that other range could go to any client meanwhile,
and a client that keeps connecting to a dead port of that range can even connect to itself."""


def free_ports(count: int, rng: random.Random) -> list[int]:
    """Ports that nobody listens on now. Another process can still take one first: the caller then tries others."""
    ports: list[int] = []
    for _ in range(1_000):
        port = rng.randint(FIRST, LAST)
        if port not in ports and is_free(port):
            ports.append(port)
            if len(ports) == count:
                return ports
    # A machine that full lets the system choose, from the range of outgoing connections.
    return _from_system(count)


def is_free(port: int) -> bool:
    """Whether a listener could be bound to this loopback port now."""
    with socket.socket() as probe:
        # As the JVM does: a port whose old connections are in TIME_WAIT is free for a listener.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def _from_system(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
