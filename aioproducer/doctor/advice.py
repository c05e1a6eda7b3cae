"""What to say about names, addresses and ports that do not do what they should. Pure."""

from __future__ import annotations

import errno
import ipaddress
from collections.abc import Sequence

_PORTS = {
    2181: "2181 is ZooKeeper's port, not a broker's; brokers listen at 9092 by default",
    3000: "3000 is a web server's port as a rule",
    8080: "8080 is a web server's port as a rule",
    8081: "8081 is the port of Schema Registry as a rule, not a broker's",
    8082: "8082 is the port of the REST proxy as a rule, not a broker's",
    8083: "8083 is the port of Kafka Connect as a rule, not a broker's",
}

_REFUSED = (errno.ECONNREFUSED,)
_NO_WAY = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def of_port(port: int) -> str:
    """What a port is known for that no broker should have; empty for any other."""
    return _PORTS.get(port, "")


def joined(*parts: str) -> str:
    """The parts that say something, as one text."""
    return "; ".join(part for part in parts if part)


def of_name(host: str, *, does_not_exist: bool) -> str:
    """What to do about a host name that can't be resolved.

    Args:
        does_not_exist: the name service knows that there is no such name; else it did not say.
    """
    if not does_not_exist:
        return "the name service did not answer: look at /etc/resolv.conf and at the network, then try again"
    if "." not in host:
        return (
            f"look for a typing error in {host}; a name without a dot is often that of a container or a pod, which "
            "only others in its network know"
        )
    return f"look for a typing error in {host}, and whether only another network than this machine's has this name"


def of_connection(error: OSError, host: str, port: int) -> tuple[str, str]:
    """What happened to an attempt to connect, and what to do about it."""
    if isinstance(error, TimeoutError):
        return (
            "nothing answers at all",
            "a firewall or security group drops packets to this address, or the machine is not there: open it for "
            f"port {port}, or use an address of this network",
        )
    if error.errno in _REFUSED:
        return (
            "the connection is refused: the machine is there, and nobody listens at this port",
            joined(
                "look whether the broker runs, and at which port (listeners in its server.properties)", of_port(port)
            ),
        )
    if error.errno in _NO_WAY:
        return "there is no way to this address from here", "look at the network and its routes, or use another address"
    return f"no connection: {error.strerror or error}", "look at the network between this machine and the broker"


def of_silence(port: int) -> str:
    """What to look at where a connection stands and no answer comes."""
    return joined(
        "look whether this is a Kafka broker at all, whether it is overloaded or paused, and whether a proxy or a load "
        "balancer stands here with no broker behind it",
        of_port(port),
    )


def of_hang_up(port: int) -> str:
    """What to look at where the other side closes the connection instead of answering."""
    return joined(
        "look whether this is a Kafka broker at all, whether a proxy stands here with no broker behind it, and at the "
        "broker's log: limits such as max.connections.per.ip close connections too",
        of_port(port),
    )


def of_stranger(port: int) -> str:
    """What to do where something else than Kafka answers."""
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
    """What to do about a broker that can be reached by a bootstrap address and not by the one that it advertises."""
    reached = bootstrap[0][0] if bootstrap else "its own name"
    told = f"set advertised.listeners of this broker to an address that clients reach from here, such as {reached}"
    if is_loopback(host) and not any(is_loopback(each) for each, _ in bootstrap):
        return f"{host} is this machine, not the broker's: {told}"
    if "." not in host and ":" not in host and not is_loopback(host):
        return (
            f"{told} (on a listener of its own, if others inside the broker's network use {host}), or make {host} "
            "known here"
        )
    return f"{told}, or open the network to {host}:{port}"
