"""AWS_MSK_IAM: tokens signed locally, without access to AWS."""

from __future__ import annotations

import asyncio
import base64
import random
from dataclasses import replace
from typing import Any

import pytest

from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import AuthenticationError, ConnectionLostError
from aioproducer.net.sasl.aws_msk_iam import AwsMskIam, region_of
from tests.unit.net.fake_broker import closed_port

CONFIG = ProducerConfig.parse(
    {"bootstrap_servers": "a:1", "security_protocol": "SASL_SSL", "sasl_mechanism": "AWS_MSK_IAM"}
)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Fake credentials, and no access to real ones."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


def mechanism() -> AwsMskIam:
    return AwsMskIam(CONFIG, asyncio.get_running_loop(), random.Random(1))


async def test_a_signed_token_goes_by_oauthbearer() -> None:
    made = mechanism()
    assert made.name == "OAUTHBEARER"
    first = await (await made.begin("b-1.x.c2.kafka.eu-west-1.amazonaws.com")).respond(None)
    assert first is not None
    assert first.startswith(b"n,,\x01auth=Bearer ")
    token = first.split(b" ")[1].split(b"\x01")[0]
    signed = base64.urlsafe_b64decode(token + b"=" * (-len(token) % 4)).decode()
    assert signed.startswith("https://kafka.eu-west-1.amazonaws.com/?Action=kafka-cluster%3AConnect")
    assert "s3cret" not in signed


async def test_a_token_is_used_again_while_it_is_good() -> None:
    made = mechanism()
    host = "b-1.x.c2.kafka.eu-west-1.amazonaws.com"
    assert await (await made.begin(host)).respond(None) == await (await made.begin(host)).respond(None)


async def test_a_region_that_nobody_names(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AuthenticationError, match="is not known: set AWS_REGION"):
        await mechanism().begin("kafka.local")
    monkeypatch.setenv("AWS_REGION", "us-east-2")
    await mechanism().begin("kafka.local")


async def test_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(AuthenticationError, match="no token could be signed with the IAM credentials"):
        await mechanism().begin("b-1.x.c2.kafka.eu-west-1.amazonaws.com")


async def test_a_service_that_can_not_be_asked_is_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{closed_port()}")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    config = replace(
        CONFIG, sasl_jaas_config="x.IAMLoginModule required awsRoleArn='arn:aws:iam::123456789012:role/producer';"
    )
    made = AwsMskIam(config, asyncio.get_running_loop(), random.Random(1))
    with pytest.raises(AuthenticationError, match=r"for the role arn:.*/producer: set AWS_DEFAULT_REGION"):
        await made.begin("b-1.x.c2.kafka.eu-west-1.amazonaws.com")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    with pytest.raises(ConnectionLostError, match=r"AWS could not be asked \(EndpointConnectionError\)"):
        await made.begin("b-1.x.c2.kafka.eu-west-1.amazonaws.com")


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("b-1.x.abcde.c2.kafka.eu-west-1.amazonaws.com", "eu-west-1"),
        ("boot-abc.c1.kafka-serverless.us-gov-east-1.amazonaws.com", "us-gov-east-1"),
        ("kafka.example.com", None),
    ],
)
def test_the_region_in_a_name(host: str, region: str | None) -> None:
    assert region_of(host) == region
