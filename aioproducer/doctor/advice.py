"""Messages and advice about names, addresses and ports that do not work as they should. Pure."""

from __future__ import annotations

import errno
import ipaddress
from collections.abc import Sequence

from aioproducer.message_text import host_port

_PORTS = {
    2181: "2181 is ZooKeeper's port, not a broker's; brokers listen at 9092 by default",
    3000: "3000 is usually a web server's port",
    8080: "8080 is usually a web server's port",
    8081: "8081 is usually the port of Schema Registry, not a broker's",
    8082: "8082 is usually the port of the REST proxy, not a broker's",
    8083: "8083 is usually the port of Kafka Connect, not a broker's",
}

_REFUSED = (errno.ECONNREFUSED,)
_NO_WAY = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def of_port(port: int) -> str:
    """The known use of a port that no broker should have; empty for any other."""
    return _PORTS.get(port, "")


def joined(*parts: str) -> str:
    """The non-empty parts, as one text."""
    return "; ".join(part for part in parts if part)


def of_name(host: str, *, does_not_exist: bool) -> str:
    """What to do about a host name that can't be resolved.

    Args:
        does_not_exist: the name service says there is no such name; else it did not say.
    """
    if not does_not_exist:
        return "the name server did not answer: check /etc/resolv.conf and the network, then try again"
    if "." not in host:
        return (
            f"check {host} for typing errors; a name without a dot is often that of a container or a pod, known only "
            "in its own network"
        )
    return f"check {host} for typing errors, and whether the name is known only in another network"


def of_connection(error: OSError, host: str, port: int, *, through_proxy: bool = False) -> tuple[str, str]:
    """What happened to an attempt to connect, and what to do about it.

    Args:
        through_proxy: the error is that of ``open_stream`` with a proxy.
    """
    if through_proxy:
        return (
            "no answer through the proxy" if isinstance(error, TimeoutError) else str(error),
            "check the address and the login in proxy_url, and whether the proxy may and can connect to "
            + host_port(host, port),
        )
    if isinstance(error, TimeoutError):
        return (
            "nothing answers at all",
            f"a firewall or security group drops packets to this address, or the machine is down: open port {port}, "
            "or use an address of this network",
        )
    if error.errno in _REFUSED:
        return (
            "connection refused: the machine is up, but nothing listens on this port",
            joined(
                "check whether the broker is running, and on which port (listeners in its server.properties)",
                of_port(port),
            ),
        )
    if error.errno in _NO_WAY:
        return "there is no route to this address from here", "check the network and its routes, or use another address"
    return f"no connection: {error.strerror or error}", "check the network between this machine and the broker"


def of_silence(port: int) -> str:
    """What to check if a connection is open but no answer comes."""
    return joined(
        "check whether this is a Kafka broker at all, whether it is overloaded or paused, and whether it is a proxy or "
        "load balancer with no broker behind it",
        of_port(port),
    )


def of_hang_up(port: int) -> str:
    """What to check if the peer closes the connection instead of answering."""
    return joined(
        "check whether this is a Kafka broker at all, whether it is a proxy with no broker behind it, and the broker's "
        "log: limits such as max.connections.per.ip close connections too",
        of_port(port),
    )


def of_stranger(port: int) -> str:
    """What to do if something other than Kafka answers."""
    return joined("use the address of a Kafka broker in bootstrap_servers", of_port(port))


def is_loopback(host: str) -> bool:
    """Whether a host is this machine itself, by its name or address."""
    if host.rstrip(".").lower() in ("localhost", "localhost.localdomain", "ip6-localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def of_advertised(host: str, port: int, bootstrap: Sequence[tuple[str, int]]) -> str:
    """What to do about a broker reachable at a bootstrap address but not at its advertised one."""
    reached = bootstrap[0][0] if bootstrap else "its own name"
    told = f"set advertised.listeners of this broker to an address that clients can reach from here, such as {reached}"
    if is_loopback(host) and not any(is_loopback(each) for each, _ in bootstrap):
        return f"{host} is this machine, not the broker's: {told}"
    if "." not in host and ":" not in host and not is_loopback(host):
        return (
            f"{told} (on a separate listener, if clients inside the broker's network use {host}), or make {host} "
            "resolvable here"
        )
    return f"{told}, or open the network to {host_port(host, port)}"
