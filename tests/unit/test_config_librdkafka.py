"""Configs by librdkafka's names."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from aioproducer import ConfigError, Producer
from aioproducer.config import ProducerConfig
from aioproducer.config_librdkafka import IGNORED, REFUSED, RENAMED, translate
from aioproducer.config_table import CONFIGS
from aioproducer.partitioners import consistent_random, fnv1a_random

SERVERS = {"bootstrap.servers": "localhost:9092"}


def config_of(configs: dict[str, Any]) -> ProducerConfig:
    return ProducerConfig.parse(translate({**SERVERS, **configs}))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"metadata.broker.list": "a:1"}, {"bootstrap_servers": (("a", 1),)}),
        ({"bootstrap.servers": "a:1,b:2"}, {"bootstrap_servers": (("a", 1), ("b", 2))}),
        ({"client.id": "shop"}, {"client_id": "shop"}),
        ({"message.max.bytes": 5_000}, {"max_request_size": 5_000}),
        ({"max.in.flight": "1"}, {"max_in_flight_requests_per_connection": 1}),
        ({"linger.ms": 0.4}, {"linger_ms": 0}),
        ({"queue.buffering.max.ms": "50"}, {"linger_ms": 50}),
        ({"queue.buffering.max.kbytes": 64}, {"buffer_memory": 65_536}),
        ({"message.send.max.retries": 3, "enable.idempotence": False}, {"retries": 3}),
        ({"request.required.acks": -1}, {"acks": -1}),
        ({"acks": "1"}, {"acks": 1, "enable_idempotence": False}),
        (
            {"compression.codec": "gzip", "compression.level": 9},
            {"compression_type": "gzip", "compression_gzip_level": 9},
        ),
        (
            {"compression.type": "zstd", "compression.level": -1},
            {"compression_type": "zstd", "compression_zstd_level": 3},
        ),
        ({"compression.type": "snappy", "compression.level": 5}, {"compression_type": "snappy"}),
        ({"message.timeout.ms": 10_000}, {"delivery_timeout_ms": 10_000, "request_timeout_ms": 9_995}),
        ({"message.timeout.ms": 0}, {"delivery_timeout_ms": 2_147_483_647, "request_timeout_ms": 30_000}),
        (
            {"delivery.timeout.ms": 20_000, "socket.timeout.ms": 60_000, "linger.ms": 0},
            {"delivery_timeout_ms": 20_000, "request_timeout_ms": 20_000},
        ),
        ({"connections.max.idle.ms": 0}, {"connections_max_idle_ms": -1}),
        ({"socket.send.buffer.bytes": 0}, {"send_buffer_bytes": -1}),
        ({"topic.metadata.refresh.interval.ms": -1}, {"metadata_max_age_ms": 2_147_483_647}),
        ({"security.protocol": "ssl"}, {"security_protocol": "SSL"}),
        ({"security.protocol": "ssl", "ssl.endpoint.identification.algorithm": "none"}, {"security_protocol": "SSL"}),
        (
            {
                "security.protocol": "sasl_plaintext",
                "sasl.mechanisms": "PLAIN",
                "sasl.username": "u",
                "sasl.password": "p",
            },
            {"sasl_mechanism": "PLAIN", "sasl_username": "u"},
        ),
        ({"partitioner": "fnv1a_random"}, {"partitioner_class": fnv1a_random}),
        ({"partitioner": "murmur2_random"}, {"partitioner_class": None}),
        ({}, {"partitioner_class": consistent_random}),
        ({"default.topic.config": {"acks": "all"}}, {"acks": -1}),
        (
            {"transactional.id": "t", "transaction.timeout.ms": 9_000},
            {"transactional_id": "t", "transaction_timeout_ms": 9_000},
        ),
    ],
)
def test_a_config(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    servers = {} if {"bootstrap.servers", "metadata.broker.list"} & set(theirs) else SERVERS
    config = ProducerConfig.parse(translate({**servers, **theirs}))
    assert {name: getattr(config, name) for name in ours} == ours


def test_every_name_of_ours_is_one() -> None:
    known = {definition.name for definition in CONFIGS}
    for ours in RENAMED.values():
        assert set(ours.replace(" or ", ", ").split(", ")) <= known
    assert not set(RENAMED) & set(IGNORED)
    assert not (set(RENAMED) | set(IGNORED)) & set(REFUSED)


@pytest.mark.parametrize("name", IGNORED)
def test_what_means_nothing_here_is_named_once(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "aioproducer.config"):
        config_of({name: "true" if "enable" in name else "0"})
    assert [record.getMessage() for record in caplog.records] == [f"ignored, as they have no meaning here: {name}"]


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_done_another_way_says_how(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_of({name: "x"})
    assert str(caught.value) == f"config {name} of librdkafka is not taken: {REFUSED[name]}"


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"group.id": "readers"}, "group_id"),
        ({"enable.ssl.certificate.verification": False}, "ssl_context"),
        ({"partitioner": "sticky"}, "partitioner='sticky' is refused; allowed: consistent, "),
        ({"linger.ms": 1, "queue.buffering.max.ms": 2}, "linger.ms and queue.buffering.max.ms are two names"),
        ({"security.protocol": "ssl", "ssl.key.location": "/no/such/file"}, "/no/such/file' can't be read"),
        ({"acks": "most"}, "acks='most'"),
    ],
)
def test_errors(configs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_of(configs)
    assert message in str(caught.value)


def test_certificate_and_key_from_two_files(tmp_path: Path) -> None:
    """The files are read: their text is what counts from then on."""
    import trustme

    issued = trustme.CA().issue_cert("client.test")
    certificate, key = tmp_path / "client.pem", tmp_path / "client.key"
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    config = config_of(
        {
            "security.protocol": "ssl",
            "ssl.certificate.location": str(certificate),
            "ssl.key.location": key,
            "ssl.ca.pem": trustme.CA().cert_pem.bytes().decode(),
        }
    )
    assert config.ssl_keystore_certificate_chain == certificate.read_text()
    assert config.ssl_keystore_key == key.read_text()


def test_the_guide_has_every_name() -> None:
    page = (Path(__file__).parents[2] / "docs" / "from-confluent-kafka.md").read_text()
    for name, ours in RENAMED.items():
        assert f"| `{name}` | `{ours.split(',')[0]}`" in page
    for name, text in {**IGNORED, **REFUSED}.items():
        assert f"| `{name}` | {text} |" in page


async def test_a_token_callback() -> None:
    """confluent-kafka's may block, and gives seconds."""
    config = config_of(
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "default",
            "oauth_cb": lambda _: ("token", 1_700_000_000.5),
        }
    )
    assert config.sasl_oauth_token_provider is not None
    token = await config.sasl_oauth_token_provider()
    assert (token.value, token.expires_at_ms) == ("token", 1_700_000_000_500)


async def test_a_producer() -> None:
    producer = Producer.from_librdkafka_config({**SERVERS, "client.id": "shop"})
    assert "shop" in repr(producer)
    await producer.close()
