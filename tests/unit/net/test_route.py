"""Connections through a proxy to a broker."""

from __future__ import annotations

import asyncio
import socket
import sys
from dataclasses import replace
from typing import Any

import pytest

from aioproducer import BootstrapError, ConfigError, KafkaError, Producer
from aioproducer.config.proxy import Proxy
from aioproducer.doctor import Status, diagnose
from aioproducer.protocol.metadata import MetadataRequest, MetadataResponseBroker
from aioproducer.testing import FakeCluster
from tests.proxy_server import ProxyServer
from tests.unit.net.fake_broker import FakeBroker, closed_port
from tests.unit.shown import shown_by_tools

FAR = ("kafka.invalid", 9092)
"""An address that can't be resolved here."""


async def publish(bootstrap: str, **configs: Any) -> int:
    async with Producer(bootstrap_servers=bootstrap, **configs) as producer:
        return (await producer.send("orders", b"value")).offset


async def refusal(**configs: Any) -> str:
    with pytest.raises(BootstrapError) as raised:
        await Producer(bootstrap_servers="kafka.invalid:9092", max_block_ms=2_000, **configs).start()
    return str(raised.value)


@pytest.mark.parametrize("scheme", ["socks5h", "http"])
async def test_the_proxy_resolves_names(scheme: str) -> None:
    with FakeCluster(2) as cluster:
        async with ProxyServer(names={FAR: cluster.address_of(1)}) as proxy:
            assert await publish("kafka.invalid:9092", proxy_url=f"{scheme}://localhost:{proxy.port}") == 0
        assert proxy.asked_for[0] == FAR
        assert set(proxy.asked_for[1:]) <= {cluster.address_of(1), cluster.address_of(2)}
        assert len(proxy.asked_for) > 1


@pytest.mark.parametrize("scheme", ["socks5h", "http"])
async def test_a_name_with_other_letters_reaches_the_proxy_in_ascii(scheme: str) -> None:
    name = ("xn--bcher-kva.invalid", 9092)
    with FakeCluster() as cluster:
        async with ProxyServer(names={name: cluster.address_of(1)}) as proxy:
            assert await publish("bücher.invalid:9092", proxy_url=f"{scheme}://127.0.0.1:{proxy.port}") == 0
        assert proxy.asked_for[0] == name


async def test_an_answer_by_http_may_come_in_pieces() -> None:
    """The rest of the proxy's answer must not be read as the broker's bytes."""
    with FakeCluster() as cluster:
        async with ProxyServer(names={FAR: cluster.address_of(1)}, in_pieces=True) as proxy:
            assert await publish("kafka.invalid:9092", proxy_url=f"http://127.0.0.1:{proxy.port}") == 0


@pytest.mark.parametrize(
    ("scheme", "answer"),
    [
        ("http", b"HTTP/1.1 200 OK\r\n"),
        ("http", b"\x05\x00\x00\x01" + b"x" * 70_000),
        ("http", b"220 ready\r\n\r\n"),
        ("http", b""),
        ("socks5h", b"\x05\x00\x05\x00\x00\x03\x01\xff\x00\x00"),
        ("socks5h", b"\x05"),
    ],
)
async def test_what_is_no_proxy_gives_no_connection(scheme: str, answer: bytes) -> None:
    async with ProxyServer(says=answer) as proxy:
        told = await refusal(proxy_url=f"{scheme}://127.0.0.1:{proxy.port}")
    assert f"the proxy {scheme}://127.0.0.1:{proxy.port} gave no connection: " in told


async def test_names_are_resolved_here() -> None:
    with FakeCluster() as cluster:
        port = cluster.address_of(1)[1]
        async with ProxyServer() as proxy:
            assert await publish(f"localhost:{port}", proxy_url=f"socks5://127.0.0.1:{proxy.port}") == 0
        assert {host for host, _ in proxy.asked_for} <= {"127.0.0.1", "::1"}
    assert "can't be resolved" in await refusal(proxy_url="socks5://127.0.0.1:9")


@pytest.mark.parametrize("scheme", ["socks5h", "http"])
async def test_a_proxy_that_asks_who_is_there(scheme: str) -> None:
    """User and password may have any characters; in the URL they are percent-encoded."""
    with FakeCluster() as cluster:
        async with ProxyServer(names={FAR: cluster.address_of(1)}, login=("jo@home", "pa/ss: word")) as proxy:
            url = f"{scheme}://jo%40home:pa%2Fss%3A%20word@127.0.0.1:{proxy.port}"
            assert await publish("kafka.invalid:9092", proxy_url=url) == 0
            told = await refusal(proxy_url=f"{scheme}://jo:s3cret@127.0.0.1:{proxy.port}")
    assert f"the proxy {scheme}://127.0.0.1:{proxy.port} gave no connection" in told
    assert "uthentication" in told
    assert "s3cret" not in told


@pytest.mark.parametrize("scheme", ["socks5h", "http"])
async def test_a_password_that_is_refused_is_in_no_frame_of_the_error(scheme: str) -> None:
    async with ProxyServer(login=("jo", "right")) as proxy:
        url = f"{scheme}://jo:s3cret@127.0.0.1:{proxy.port}"
        with pytest.raises(BootstrapError) as raised:
            await Producer(bootstrap_servers="kafka.invalid:9092", max_block_ms=2_000, proxy_url=url).start()
    shown = shown_by_tools(raised.value)
    assert len(shown) > 10
    assert not [text for text in shown if "s3cret" in text]


@pytest.mark.parametrize("scheme", ["socks5h", "http"])
async def test_a_broker_that_the_proxy_does_not_reach(scheme: str) -> None:
    async with ProxyServer(names={FAR: ("127.0.0.1", closed_port())}) as proxy:
        told = await refusal(proxy_url=f"{scheme}://127.0.0.1:{proxy.port}")
    assert f"kafka.invalid:9092: the proxy {scheme}://127.0.0.1:{proxy.port} gave no connection: " in told
    assert proxy.asked_for == [FAR]  # the reason is known, so no further probe is made


async def test_a_proxy_that_is_not_there() -> None:
    port = closed_port()
    told = await refusal(proxy_url=f"socks5h://127.0.0.1:{port}")
    assert f"the proxy socks5h://127.0.0.1:{port} gave no connection: Could not connect to proxy" in told


@pytest.mark.parametrize("scheme", ["socks5h", "http"])
async def test_a_proxy_is_tried_at_each_of_its_addresses(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    loop = asyncio.get_running_loop()
    system = loop.getaddrinfo

    async def getaddrinfo(host: str | None, port: int, **options: Any) -> list[Any]:
        if host != "proxy.invalid":
            return await system(host, port, **options)
        return [info for there in ("127.0.0.2", "127.0.0.1") for info in await system(there, port, **options)]

    monkeypatch.setattr(type(loop), "getaddrinfo", lambda _, *args, **options: getaddrinfo(*args, **options))
    with FakeCluster() as cluster:
        async with ProxyServer(names={FAR: cluster.address_of(1)}) as proxy:
            assert await publish("kafka.invalid:9092", proxy_url=f"{scheme}://proxy.invalid:{proxy.port}") == 0
    told = await refusal(proxy_url=f"{scheme}://proxy.invalid:{proxy.port}")
    assert f"the proxy {scheme}://proxy.invalid:{proxy.port} gave no connection: " in told


@pytest.mark.parametrize("scheme", ["socks5h", "http"])
async def test_an_address_of_a_proxy_that_hangs_leaves_time_for_the_next(
    monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    """As with a machine that is off: connections are neither accepted nor refused."""
    loop = asyncio.get_running_loop()

    async def resolve(*_: object) -> list[str]:
        return ["127.0.0.2", "127.0.0.1"]

    async def hang(host: str, *args: Any, **options: Any) -> Any:
        if host == "127.0.0.2":
            await loop.create_future()
        return await open_connection(host, *args, **options)

    open_connection = asyncio.open_connection
    monkeypatch.setattr("aioproducer.net.route.resolve", resolve)
    if scheme == "http":
        monkeypatch.setattr(asyncio, "open_connection", hang)
    with FakeCluster() as cluster:
        async with ProxyServer(names={FAR: cluster.address_of(1)}) as proxy:
            url = f"{scheme}://proxy.invalid:{proxy.port}"
            times = {"socket_connection_setup_timeout_ms": 1_000, "max_block_ms": 5_000}
            with socket.create_server(("127.0.0.2", proxy.port)):  # it accepts connections, but never reads
                assert await publish("kafka.invalid:9092", proxy_url=url, **times) == 0


async def test_a_proxy_that_says_nothing_has_the_time_of_a_connection() -> None:
    async with ProxyServer(silent=True) as proxy:
        told = await refusal(
            proxy_url=f"socks5h://127.0.0.1:{proxy.port}",
            socket_connection_setup_timeout_ms=100,
            socket_connection_setup_timeout_max_ms=100,
        )
    assert "not ready within 100 ms (socket_connection_setup_timeout_ms)" in told


async def test_a_start_that_is_cancelled_leaves_no_socket() -> None:
    """The fixture checks that."""
    async with ProxyServer(silent=True) as proxy:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await Producer(
                    bootstrap_servers="kafka.invalid:9092", proxy_url=f"http://127.0.0.1:{proxy.port}"
                ).start()


@pytest.mark.parametrize(
    ("host", "port"),
    [("kafka-2", 70_000), ("kafka 2", 9092), ("kafka\r\nX-Forged: 1\r\n", 9092), ("a..b", 9092), ("k" * 300, 9092)],
)
async def test_what_can_be_no_address_goes_to_no_proxy(host: str, port: int) -> None:
    async with FakeBroker() as broker, ProxyServer(names={FAR: (broker.host, broker.port)}) as proxy:
        nowhere = MetadataResponseBroker(node_id=1, host=host, port=port)
        broker.on(MetadataRequest, lambda _: replace(broker.metadata(), brokers=[nowhere]))
        configs = {"proxy_url": f"http://127.0.0.1:{proxy.port}", "max_block_ms": 500, "reconnect_backoff_ms": 10}
        async with Producer(bootstrap_servers="kafka.invalid:9092", **configs) as producer:
            with pytest.raises(KafkaError):
                await producer.send("orders", b"value")
    assert set(proxy.asked_for) == {FAR}


async def test_the_doctor_takes_the_same_way() -> None:
    with FakeCluster() as cluster:
        async with ProxyServer(names={FAR: cluster.address_of(1)}) as proxy:
            report = await diagnose(
                bootstrap_servers="kafka.invalid:9092", proxy_url=f"socks5h://127.0.0.1:{proxy.port}"
            )
        assert report.status is Status.OK
        assert proxy.asked_for[0] == FAR


# --- the config -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "proxy:1080", "socks4://proxy:1080", "socks5://proxy", "socks5://:1080", "socks5://proxy:0", "http://proxy:80/x",
        "socks5://proxy:99999", "http://user:s3c/ret@proxy:1", "socks5://[::1:1080", "http://us%0D%0Aer:x@proxy:1",
        "http://user:w%C3%B6rd@proxy:1", "", "http://token@proxy:1", "socks5://user@proxy:1", "http://a..b:1",
        "http://us%3Aer:x@proxy:1", f"socks5://{'k' * 64}.example:1", "socks5://:x@proxy:1", "socks5://user:@proxy:1",
        f"socks5://user:{'s3cret' * 43}@proxy:1",
    ],
)  # fmt: skip
def test_urls_that_are_refused(url: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Producer(bootstrap_servers="a:1", proxy_url=url)
    allowed = "socks5://, socks5h:// or http:// and [user:password@]host:port, in ASCII"
    assert str(raised.value) == f"proxy_url=[hidden] is refused; allowed: secret string, {allowed}"


async def test_the_url_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is parsed with the other configs, not for each connection."""
    read: list[str] = []
    parse = Proxy.parse

    def count(url: str) -> Proxy:
        read.append(url)
        return parse(url)

    monkeypatch.setattr(Proxy, "parse", count)
    with FakeCluster(2) as cluster:
        async with ProxyServer(names={FAR: cluster.address_of(1)}) as proxy:
            url = f"socks5h://127.0.0.1:{proxy.port}"
            assert await publish("kafka.invalid:9092", proxy_url=url) == 0
        assert len(proxy.asked_for) > 1
    assert read == [url]


def test_it_is_not_shown() -> None:
    with pytest.raises(ConfigError, match=r"contradicts proxy_url=http://\[::1\]:80,") as raised:
        Producer(
            bootstrap_servers="a:1",
            proxy_url="http://user:s3cret@[::1]:80",
            client_dns_lookup="resolve_canonical_bootstrap_servers_only",
        )
    assert "s3cret" not in str(raised.value)


def test_what_it_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "python_socks", None)
    with pytest.raises(ConfigError, match=r"proxy:80 needs the package python-socks: .*'aioproducer\[proxy\]'"):
        Producer(bootstrap_servers="a:1", proxy_url="socks5://proxy:80")
    Producer(bootstrap_servers="a:1", proxy_url="http://proxy:80")
