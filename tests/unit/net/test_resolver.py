"""Host names: which of them are looked up."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from aioproducer.config.producer_config import ProducerConfig
from aioproducer.net import resolver
from aioproducer.net.resolver import LAST_PORT, resolve
from aioproducer.net.route import addresses_of

NO_NAMES = [
    "", "localhost\0.example", "local host", "localhost\n", "a..b", ".a", "k" * 64, "a." * 150 + "b", "\ud800",
    "\u3000", "::1%" + "a" * 61, "fe80::1%a..b", "%eth0", "kafka-1%eth0", "a.\u200d%b",
]  # fmt: skip
"""The system's resolver would look up the part before a NUL; TLS would check a certificate against that before a %."""


@pytest.mark.parametrize("host", NO_NAMES)
@pytest.mark.parametrize("proxy", [None, "socks5://127.0.0.1:1", "http://127.0.0.1:1"])
async def test_what_can_be_no_name_is_refused_on_every_way(host: str, proxy: str | None) -> None:
    config = ProducerConfig.parse({"bootstrap_servers": "a:1", "proxy_url": proxy})
    with pytest.raises(socket.gaierror, match="no host can have this name") as raised:
        await addresses_of(config, asyncio.get_running_loop(), host, 9092)
    assert raised.value.errno == socket.EAI_NONAME


@pytest.mark.parametrize("host", ["kafka-1", "kafka_1.example.", "k" * 63, "bücher.example", "::1", "fe80::1%lo"])
async def test_a_name_that_may_be_is_left_to_the_proxy(host: str) -> None:
    """Only in ASCII, because proxies accept nothing else."""
    config = ProducerConfig.parse({"bootstrap_servers": "a:1", "proxy_url": "socks5h://127.0.0.1:1"})
    ascii_host = {"bücher.example": "xn--bcher-kva.example"}.get(host, host)
    assert await addresses_of(config, asyncio.get_running_loop(), host, 9092) == [ascii_host]


async def test_names_and_addresses_are_resolved() -> None:
    loop = asyncio.get_running_loop()
    for address in ("127.0.0.1", "::1", "fe80::1%lo"):
        assert await resolve(loop, address, 1) == [address]
    assert set(await resolve(loop, "localhost", 1)) <= {"127.0.0.1", "::1"}


async def test_each_lookup_has_the_answer_of_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker may move; those who ask at the same time share one lookup, later ones do not."""
    answers = iter(["10.0.0.1", "10.0.0.2"])

    def getaddrinfo(*what: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), 0))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    loop = asyncio.get_running_loop()
    both = await asyncio.gather(*(resolve(loop, "kafka.example", 9092) for _ in range(2)))
    assert both == [["10.0.0.1"]] * 2
    assert await resolve(loop, "kafka.example", 9092) == ["10.0.0.2"]
    assert not [key for key in resolver._under_way if key[0] is loop]


async def test_an_address_that_is_valid_in_one_network_only_says_in_which(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of the interface, without which nothing can be connected to a link-local address."""
    v6 = [("fe80::1", 0, 0, 3), ("2001:db8::1", 0, 0, 0), ("fe80::1", 0, 0, 4)]
    found = [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", address) for address in v6]
    found += [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", 0))] * 2  # type: ignore[list-item]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *what: found)
    addresses = await resolve(asyncio.get_running_loop(), "kafka.example", 9092)
    assert addresses == ["fe80::1%3", "2001:db8::1", "fe80::1%4", "10.0.0.1"]


async def test_a_loop_may_have_another_way_to_look_names_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def getaddrinfo(host: str, port: int, **_: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"10.0.0.{len(host)}", port))]

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(type(loop), "getaddrinfo", lambda _, *args, **options: getaddrinfo(*args, **options))
    assert await resolve(loop, "kafka", 9092) == ["10.0.0.5"]


def test_a_loop_that_is_compiled_may_not_say_where_its_method_is_from() -> None:
    built_in: Any = [].append
    assert built_in.__module__ is None
    assert resolver._is_replaced(built_in)


async def test_other_threads_may_look_names_up_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with a loop of its own; whoever finds a closed one forgets its lookups."""

    class Closed:
        def is_closed(self) -> bool:  # another thread has its turn, begins a lookup and forgets this one
            under_way[object()] = under_way.pop(key)
            return True

    loop: Any = asyncio.get_running_loop()
    under_way: dict[Any, Any] = {}
    under_way[key := (Closed(), "kafka")] = loop.create_future()
    monkeypatch.setattr(resolver, "_under_way", under_way)
    assert set(await resolve(loop, "localhost", 1)) <= {"127.0.0.1", "::1"}


@pytest.mark.parametrize("port", [-1, LAST_PORT + 1])
async def test_there_is_no_such_port(port: int) -> None:
    with pytest.raises(OSError, match=f"there is no port {port}"):
        await resolve(asyncio.get_running_loop(), "127.0.0.1", port)
