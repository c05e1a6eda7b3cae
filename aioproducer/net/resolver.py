"""From host names to IP addresses, without holding up the loop."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import re
import socket

from aioproducer.net.workers import threads_are_scarce

LAST_PORT = 65535
_NAME = re.compile(r"[!-~]{1,255}")


async def resolve(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[str]:
    """All IP addresses of a host, in the order of the system; an IP address stands for itself.

    Raises:
        OSError: the name is not known, or can be none (``socket.gaierror``), there can't be such a port, or the system
            has no thread left to ask in.
    """
    check_port(port)
    if _is_address(host):
        return [host]
    ascii_name(host)
    with threads_are_scarce():
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [_text(family, address) for family, *_, address in found]
    return list(dict.fromkeys(addresses))


def check_port(port: int) -> None:
    """Refuse, by an OSError, a port that can't be: brokers advertise anything."""
    if not 0 <= port <= LAST_PORT:
        raise OSError(errno.EINVAL, f"there is no port {port}")


def ascii_name(host: str) -> str:
    """A host's name in ASCII, as DNS has it; brokers advertise anything, also what can be no name.

    The system's resolver would look up what stands before a NUL, and for a proxy it is a part of the protocol.

    Raises:
        socket.gaierror: no host can have this name.
    """
    try:
        name = host.encode("idna").decode()
    except UnicodeError as error:
        raise socket.gaierror(socket.EAI_NONAME, f"no host can have this name: {error}") from error
    if not _NAME.fullmatch(name):
        raise socket.gaierror(socket.EAI_NONAME, "no host can have this name")
    return name


async def canonical_names(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[str]:
    """The full names behind one name, for clusters whose credentials are bound to them (Kerberos).

    An address without a name stands for itself.

    Raises:
        OSError: as ``resolve``.
    Source: ``client.dns.lookup=resolve_canonical_bootstrap_servers_only``; KIP-235.
    """
    names = []
    for address in await resolve(loop, host, port):
        with threads_are_scarce():
            name, _ = await loop.getnameinfo((address, port))
        names.append(name)
    return list(dict.fromkeys(names))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _text(family: int, address: tuple[object, ...]) -> str:
    """The address as text, with the scope that a link-local one needs."""
    scoped = family == socket.AF_INET6 and len(address) == 4 and address[3]
    return f"{address[0]}%{address[3]}" if scoped else str(address[0])
