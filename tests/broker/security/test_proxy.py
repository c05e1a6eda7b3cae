"""Connections through a proxy to a real broker, also to one whose name only the proxy can resolve."""

from __future__ import annotations

from typing import Any

import pytest

from aioproducer import Producer
from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import new_topic
from tests.broker.readers import read_values
from tests.broker.security.fixtures import FAR, FAR_ADDRESS
from tests.proxy_server import ProxyServer

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]


async def check(cluster: KafkaCluster, **configs: Any) -> None:
    topic = await new_topic(cluster)
    async with Producer(**configs) as producer:
        for number in range(100):
            await producer.submit(topic, b"%d" % number * 1_000)
        await producer.flush()
    assert await read_values(cluster, topic) == [b"%d" % number * 1_000 for number in range(100)]


@pytest.mark.parametrize("scheme", ["socks5h", "http"])
async def test_a_broker_that_only_the_proxy_knows(secure_kafka: KafkaCluster, scheme: str) -> None:
    far, here = _address(FAR_ADDRESS), _address(secure_kafka.bootstrap_of(FAR))
    async with ProxyServer(names={far: here}, login=("user", "password")) as proxy:
        url = f"{scheme}://user:password@127.0.0.1:{proxy.port}"
        await check(secure_kafka, bootstrap_servers=FAR_ADDRESS, proxy_url=url)
    assert set(proxy.asked_for) == {far}


@pytest.mark.parametrize("scheme", ["socks5", "socks5h", "http"])
async def test_tls_and_a_login_through_a_proxy(secure_kafka: KafkaCluster, scheme: str) -> None:
    """The certificate is the broker's, and its host name is checked as usual."""
    configs = secure_kafka.client_configs("SASL_SSL", user="alice", mechanism="SCRAM-SHA-256")
    async with ProxyServer() as proxy:
        await check(secure_kafka, **configs, proxy_url=f"{scheme}://127.0.0.1:{proxy.port}")
        assert proxy.asked_for


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)
