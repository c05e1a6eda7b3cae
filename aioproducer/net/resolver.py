"""Resolves host names to IP addresses without blocking the loop."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import re
import socket
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from aioproducer.net.workers import in_own_thread, threads_are_scarce

T = TypeVar("T")

LAST_PORT = 65535
_NAME = re.compile(r"[!-~]{1,255}")

_under_way: dict[tuple[Hashable, ...], asyncio.Future[Any]] = {}
"""The lookups that the system has not ended, by event loop and what is looked up. Loops of other threads add theirs."""


async def resolve(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[str]:
    """All IP addresses of a host, in the system's order; an IP address stands for itself.

    Raises:
        OSError: the name is unknown or impossible (``socket.gaierror``), the port is impossible, or the system has no
            thread left for the lookup.
    """
    check_port(port)
    ascii_name(host)  # an address too: its scope ("fe80::1%eth0") may be anything
    if _is_address(host):
        return [host]
    with threads_are_scarce():
        if _is_replaced(loop.getaddrinfo):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        else:
            found = await _looked_up(loop, socket.getaddrinfo, host, None, 0, socket.SOCK_STREAM)
    addresses = [_text(family, address) for family, *_, address in found]
    return list(dict.fromkeys(addresses))


async def _looked_up(loop: asyncio.AbstractEventLoop, lookup: Callable[..., T], *what: Hashable) -> T:
    """The result of a lookup in its own thread, shared by all that ask the same while it is under way.

    Name servers that do not answer keep a thread for up to a minute, longer than an attempt to connect waits. If each
    attempt began another lookup, in the loop's own threads, none of these would be left, for the program neither.
    """
    key = (loop, lookup, *what)
    job = _under_way.get(key)
    if job is None:
        for other in list(_under_way):
            if other[0].is_closed():  # type: ignore[attr-defined]
                _under_way.pop(other, None)
        job = _under_way[key] = in_own_thread(loop, "aioproducer lookup", lookup, *what)
        job.add_done_callback(lambda _: _under_way.pop(key))
    await asyncio.wait([job])
    result: T = job.result()
    return result


def _is_replaced(method: Callable[..., Any]) -> bool:
    """Whether a lookup of the loop is the program's own; otherwise it is the system's, in a thread of the loop."""
    return str(method.__module__).partition(".")[0] not in ("asyncio", "uvloop")


def check_port(port: int) -> None:
    """Refuse an impossible port with an OSError: brokers may advertise anything."""
    if not 0 <= port <= LAST_PORT:
        raise OSError(errno.EINVAL, f"there is no port {port}")


def ascii_name(host: str) -> str:
    """A host's name in ASCII, as in DNS; brokers may advertise anything, even impossible names.

    The system's resolver would look up only the part before a NUL, and a proxy gets the name as part of its protocol.
    Only an IPv6 address has a scope: certificates are checked against the rest ("fe80::1%eth0" without "%eth0"), and of
    other names nothing might be left, against which asyncio would check nothing.

    Raises:
        socket.gaierror: no host can have this name.
    """
    try:
        name = host.encode("idna").decode()
    except UnicodeError as error:
        raise socket.gaierror(socket.EAI_NONAME, f"no host can have this name: {error}") from error
    if not _NAME.fullmatch(name) or ("%" in name and not _is_address(host)):
        raise socket.gaierror(socket.EAI_NONAME, "no host can have this name")
    return name


async def canonical_names(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[str]:
    """The canonical names behind one name, for clusters whose credentials are bound to them (Kerberos).

    An address without a name stands for itself.

    Raises:
        OSError: as for ``resolve``.
    Source: ``client.dns.lookup=resolve_canonical_bootstrap_servers_only``; KIP-235.
    """
    names = []
    for address in await resolve(loop, host, port):
        with threads_are_scarce():
            if _is_replaced(loop.getnameinfo):
                name, _ = await loop.getnameinfo((address, port))
            else:
                name, _ = await _looked_up(loop, socket.getnameinfo, (address, port), 0)
        names.append(name)
    return list(dict.fromkeys(names))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _text(family: int, address: tuple[object, ...]) -> str:
    """The address as text, with the scope that a link-local address needs."""
    scoped = family == socket.AF_INET6 and len(address) == 4 and address[3]
    return f"{address[0]}%{address[3]}" if scoped else str(address[0])
