"""What the errors of functions that take secrets keep."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aioproducer import ConfigError, Producer
from aioproducer.bare_errors import raises_bare
from aioproducer.compat.aiokafka import AIOKafkaProducer
from aioproducer.doctor import diagnose
from aioproducer.transactions import TransactionClient
from tests.unit.shown import shown_by_tools

LOGIN = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "u", "sasl_password": "s3cret"}
JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required username=u password=s3cret;"


def from_properties(configs: dict[str, Any], tmp_path: Path) -> object:
    path = tmp_path / "producer.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in dotted(configs).items()))
    return Producer.from_properties(path)


def dotted(configs: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in configs.items()}


@pytest.mark.parametrize(
    "make",
    [
        lambda configs, _: Producer(**configs),
        lambda configs, _: TransactionClient(**configs),
        lambda configs, _: asyncio.run(diagnose(**configs)),
        lambda configs, _: Producer.from_config(dotted(configs)),
        lambda configs, _: Producer.from_librdkafka_config(dotted(configs)),
        from_properties,
    ],
    ids=["producer", "transaction client", "doctor", "config", "librdkafka", "properties"],
)
@pytest.mark.parametrize(
    "configs",
    [
        {**LOGIN, "nonsense": 1},
        {**LOGIN, "linger_ms": "\\u00zz"},
        {**LOGIN, "acks": 0, "enable_idempotence": "true"},
        {**LOGIN, "security_protocol": "SSL", "ssl_keystore_key": "s3cret"},
        {**LOGIN, "sasl_jaas_config": JAAS},
        {"proxy_url": "socks5://u:s3cret@host:port"},
        {"nonsense": "s3cret"},
    ],
    ids=["unknown", "refused", "contradicting", "incomplete", "two logins", "proxy", "value"],
)
def test_no_frame_of_a_config_error_has_a_secret(
    make: Callable[[dict[str, Any], Path], object], configs: dict[str, Any], tmp_path: Path
) -> None:
    """Tools that report errors show the variables of all frames; a producer is often made where the program starts."""
    with pytest.raises(ConfigError) as caught:
        make({"bootstrap_servers": "a:1", **configs}, tmp_path)
    assert not [text for text in shown_by_tools(caught.value) if "s3cret" in text]


@raises_bare(ValueError)
def refuse(secret: str, error: Exception | None = None) -> None:
    if error is not None:
        raise error
    try:
        int(secret)
    except ValueError as cause:
        raise ValueError("no number") from cause


def test_the_cause_and_the_callers_frames_stay() -> None:
    with pytest.raises(ValueError, match="no number") as caught:
        refuse("s3cret")
    assert isinstance(caught.value.__cause__, ValueError)
    assert caught.traceback[0].name == "test_the_cause_and_the_callers_frames_stay"
    assert not [text for text in shown_by_tools(caught.value) if "s3cret" in text]


def test_an_error_that_the_caller_handles_stays() -> None:
    handled = KeyError("before")
    try:
        raise handled
    except KeyError:
        with pytest.raises(ValueError, match="now") as caught:
            refuse("s3cret", ValueError("now"))
    assert caught.value.__context__ is handled


def test_other_errors_are_left_alone() -> None:
    with pytest.raises(TypeError) as caught:
        refuse("s3cret", TypeError())
    assert caught.traceback[-1].name == "refuse"


def test_a_producer_in_place_of_aiokafkas() -> None:
    with pytest.raises(ConfigError) as caught:
        AIOKafkaProducer(security_protocol="SASL_SSL", sasl_plain_password="s3cret", linger_ms=-1)
    assert not [text for text in shown_by_tools(caught.value) if "s3cret" in text]
