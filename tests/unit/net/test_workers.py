"""Blocking steps of a connection where the system has no thread left."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from aioproducer import BootstrapError, KafkaError, Producer
from aioproducer.net import resolver
from aioproducer.net.workers import in_worker
from tests.unit.producing_broker import ProducingBroker

pytestmark = pytest.mark.usefixtures("clean_loop")

NO_THREAD = "can't start new thread"


@contextmanager
def no_threads() -> Iterator[None]:
    """None can be started."""

    def start(_: threading.Thread) -> None:
        raise RuntimeError(NO_THREAD)

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        yield


@pytest.fixture
async def named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses are names to the resolver."""
    if not isinstance(asyncio.get_running_loop(), asyncio.BaseEventLoop):
        pytest.skip("uvloop has threads of its own for names")
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
    """A broker whose name can't be looked up is tried again, as one that is away."""
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
