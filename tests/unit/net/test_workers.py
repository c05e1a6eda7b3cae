"""Blocking steps of a connection when the system has no threads left."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from aioproducer import BootstrapError, KafkaError, Producer
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import ConnectionLostError
from aioproducer.net import pem, resolver
from aioproducer.net.sasl import jwt_file, oauthbearer, oidc
from aioproducer.net.sasl.oauthbearer import OAuthBearer
from aioproducer.net.tls import Tls
from aioproducer.net.workers import SharedCall, in_worker
from aioproducer.testing import CertificateAuthority
from tests.unit.producing_broker import ProducingBroker

NO_THREAD = "can't start new thread"


@contextmanager
def no_threads() -> Iterator[None]:
    """No thread can be started."""

    def start(_: threading.Thread) -> None:
        raise RuntimeError(NO_THREAD)

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        yield


@pytest.fixture
async def named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the resolver treat addresses as names."""
    monkeypatch.setattr(resolver, "_is_address", lambda host: False)


async def test_it_is_an_error_of_that_call() -> None:
    loop = asyncio.get_running_loop()
    with no_threads(), pytest.raises(KafkaError, match=NO_THREAD):
        await in_worker(loop, int, "1")
    assert await in_worker(loop, int, "1") == 1


@pytest.mark.usefixtures("named")
async def test_a_name_is_one_that_can_not_be_looked_up() -> None:
    with no_threads(), pytest.raises(OSError, match=NO_THREAD):
        await resolver.resolve(asyncio.get_running_loop(), "localhost", 1)


@pytest.mark.usefixtures("named")
async def test_a_start_may_be_tried_again() -> None:
    async with ProducingBroker() as broker:
        producer = Producer(bootstrap_servers=broker.bootstrap_servers)
        with no_threads(), pytest.raises(BootstrapError, match=NO_THREAD):
            await producer.start()
        async with producer:
            assert await producer.send("orders", b"v")


@pytest.mark.parametrize(
    "configs",
    [
        {"security_protocol": "SSL"},
        {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "u", "sasl_password": "p"},
    ],
    ids=["tls", "sasl"],
)
async def test_a_start_that_needs_files_or_packages(configs: dict[str, str]) -> None:
    async with ProducingBroker() as broker:
        producer = Producer(bootstrap_servers=broker.bootstrap_servers, **configs)
        with no_threads(), pytest.raises(BootstrapError, match=NO_THREAD):
            await producer.start()


@pytest.mark.usefixtures("named")
async def test_a_running_producer_goes_on() -> None:
    """A broker whose name can't be looked up is retried like an unreachable one."""
    async with ProducingBroker() as broker:
        configs = {"reconnect_backoff_ms": 1, "retry_backoff_ms": 1}
        async with Producer(bootstrap_servers=broker.bootstrap_servers, **configs) as producer:
            await producer.send("orders", b"1")
            with no_threads():
                for peer in broker.peers:
                    peer.drop()
                delivery = await producer.submit("orders", b"2")
                async with asyncio.timeout(10):
                    while NO_THREAD not in str(producer.health().error):
                        await asyncio.sleep(0.001)
            await delivery
        assert broker.values() == [b"1", b"2"]


# --- calls that hang --------------------------------------------------------------------------------------------------


class Hanging:
    """A function that hangs, as on a dead file system; counts its calls, and can be ended."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.calls = 0
        self.goes_on = threading.Event()

    def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        assert self.goes_on.wait(20)
        return self._function(*arguments)


@pytest.fixture
async def executor() -> AsyncIterator[ThreadPoolExecutor]:
    """An executor with two threads."""
    with ThreadPoolExecutor(2) as executor:
        asyncio.get_running_loop().set_default_executor(executor)
        yield executor


async def given_up_thrice(attempt: Callable[[], Any]) -> None:
    """Three attempts that hang, then other work for the remaining threads."""
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await attempt()
    async with asyncio.timeout(10):
        assert await in_worker(asyncio.get_running_loop(), int, "1") == 1


@pytest.mark.usefixtures("executor")
async def test_who_asks_again_shares_the_call_under_way() -> None:
    hanging = Hanging(int)
    shared = SharedCall(asyncio.get_running_loop(), hanging)
    try:
        await given_up_thrice(lambda: shared.result("5"))
    finally:
        hanging.goes_on.set()
    assert await shared.result("5") == 5
    assert hanging.calls == 1
    assert await shared.result("6") == 6


@pytest.mark.usefixtures("executor")
async def test_an_error_of_a_call_that_all_have_given_up_is_nobodys() -> None:
    """The loop does not report it, which clean_loop checks."""
    hanging = Hanging(int)
    shared = SharedCall(asyncio.get_running_loop(), hanging)
    try:
        await given_up_thrice(lambda: shared.result("x"))
    finally:
        hanging.goes_on.set()
    job = shared._job
    assert job is not None
    await asyncio.wait([job])


async def test_a_name_that_hangs_takes_one_thread_and_none_of_the_loop(
    executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name servers do not answer."""
    hanging = Hanging(socket.getaddrinfo)
    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    loop = asyncio.get_running_loop()
    try:
        await given_up_thrice(lambda: resolver.resolve(loop, "localhost", 9092))
        assert len(executor._threads) == 1  # of what given_up_thrice does last
    finally:
        hanging.goes_on.set()
    assert await resolver.resolve(loop, "localhost", 9093)
    assert hanging.calls == 1
    assert await resolver.resolve(loop, "localhost", 9093)
    assert hanging.calls == 2


@pytest.mark.usefixtures("executor")
async def test_an_address_without_a_name_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``client_dns_lookup`` may ask for."""
    hanging = Hanging(socket.getnameinfo)
    monkeypatch.setattr(socket, "getnameinfo", hanging)
    loop = asyncio.get_running_loop()
    try:
        await given_up_thrice(lambda: resolver.canonical_names(loop, "127.0.0.1", 9092))
    finally:
        hanging.goes_on.set()
    assert await resolver.canonical_names(loop, "127.0.0.1", 9092)
    assert hanging.calls == 1


async def test_the_end_of_a_loop_does_not_wait_for_a_name_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = Hanging(socket.getaddrinfo)
    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    loops: list[asyncio.AbstractEventLoop] = []

    async def program() -> None:
        loops.append(asyncio.get_running_loop())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await resolver.resolve(loops[0], "localhost", 9092)

    async with asyncio.timeout(10):
        await asyncio.to_thread(asyncio.run, program())
    assert not hanging.goes_on.is_set()
    hanging.goes_on.set()
    assert await resolver.resolve(asyncio.get_running_loop(), "localhost", 9092)
    assert all(key[0] is not loops[0] for key in resolver._under_way)


@pytest.mark.usefixtures("executor")
async def test_a_certificate_file_that_hangs_takes_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trust = tmp_path / "trust.pem"
    trust.write_text(CertificateAuthority().pem)
    hanging = Hanging(pem.read)
    monkeypatch.setattr(pem, "read", hanging)
    config = ProducerConfig.parse(
        {"bootstrap_servers": "a:1", "security_protocol": "SSL", "ssl_truststore_location": str(trust)}
    )
    tls = Tls(config, asyncio.get_running_loop())
    try:
        await given_up_thrice(tls.context)
    finally:
        hanging.goes_on.set()
    assert len((await tls.context()).get_ca_certs()) == 1
    assert hanging.calls == 1


@pytest.mark.usefixtures("executor")
@pytest.mark.parametrize(
    ("where", "name", "function", "configs"),
    [
        (oauthbearer, "read_jwt", jwt_file.read_jwt, {"sasl_oauthbearer_token_endpoint_url": "file:///nowhere"}),
        (pem, "read", pem.read, {"sasl_oauthbearer_assertion_file": "/nowhere", "ssl_truststore_location": "/nowhere"}),
    ],
    ids=["token", "trust"],
)
async def test_a_file_of_a_token_that_hangs_takes_one_thread(
    monkeypatch: pytest.MonkeyPatch, where: Any, name: str, function: Callable[..., Any], configs: dict[str, str]
) -> None:
    hanging = Hanging(function)
    monkeypatch.setattr(where, name, hanging)
    config = ProducerConfig.parse(
        {
            "bootstrap_servers": "a:1",
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": "https://127.0.0.1:1/",
            **configs,
        }
    )
    bearer = OAuthBearer(config, asyncio.get_running_loop(), random.Random(1))
    try:
        await given_up_thrice(lambda: bearer.begin("broker"))
    finally:
        hanging.goes_on.set()
    with pytest.raises(KafkaError, match=r"/nowhere can't be read: No such file"):
        await bearer.begin("broker")


async def test_the_name_of_a_token_endpoint_that_hangs_takes_none_of_the_loops_threads(
    executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = Hanging(socket.getaddrinfo)
    config = ProducerConfig.parse(
        {
            "bootstrap_servers": "a:1",
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": "https://localhost:1/",
            "sasl_oauthbearer_client_credentials_client_id": "orders",
            "sasl_oauthbearer_client_credentials_client_secret": "s3cret",
            "sasl_login_retry_backoff_ms": 0,
        }
    )
    endpoint = oidc.TokenEndpoint(config, asyncio.get_running_loop(), random.Random(1))
    with pytest.raises(ConnectionLostError, match="can't be asked"):
        await endpoint.fetch()
    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    loop = asyncio.get_running_loop()
    fetches = [loop.create_task(endpoint.fetch()) for _ in range(3)]
    try:
        async with asyncio.timeout(10):
            while not hanging.calls:
                await asyncio.sleep(0.001)
            assert await in_worker(loop, int, "1") == 1
        assert hanging.calls == 1
    finally:
        hanging.goes_on.set()
    for ended in await asyncio.gather(*fetches, return_exceptions=True):
        assert isinstance(ended, ConnectionLostError)


@pytest.mark.usefixtures("executor")
async def test_a_file_of_an_assertion_that_hangs_takes_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = Hanging(jwt_file.read_jwt)
    monkeypatch.setattr(oidc, "read_jwt", hanging)
    config = ProducerConfig.parse(
        {
            "bootstrap_servers": "a:1",
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": "https://127.0.0.1:1/",
            "sasl_oauthbearer_assertion_file": "/nowhere",
        }
    )
    endpoint = oidc.TokenEndpoint(config, asyncio.get_running_loop(), random.Random(1))
    try:
        await given_up_thrice(endpoint._form)  # the steps before it need a thread too
    finally:
        hanging.goes_on.set()
    with pytest.raises(KafkaError, match=r"/nowhere can't be read: No such file"):
        await endpoint._form()
