"""User names and passwords that change: the program provides them for each login."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from typing import Any

import pytest

from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import AuthenticationError, ConnectionLostError
from aioproducer.net.sasl.mechanism import Mechanism
from aioproducer.net.sasl.plain import Plain
from aioproducer.net.sasl.scram import Scram
from tests.unit.shown import shown_by_tools


def mechanism(provider: Callable[[], Any], name: str = "PLAIN", **configs: Any) -> Mechanism:
    config = ProducerConfig.parse(
        {
            "bootstrap_servers": "a:1",
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": name,
            "sasl_credentials_provider": provider,
            **configs,
        }
    )
    return Plain(config) if name == "PLAIN" else Scram(config, asyncio.get_running_loop())


async def test_each_login_asks_anew() -> None:
    """What it got before may have been revoked."""
    passwords = iter(["first", "second"])

    async def provider() -> tuple[str, str]:
        return "alice", next(passwords)

    plain = mechanism(provider)
    assert [await (await plain.begin("host")).respond(None) for _ in range(2)] == [
        b"\0alice\0first",
        b"\0alice\0second",
    ]


class Hidden(str):
    """A secret that does not show itself."""

    def __str__(self) -> str:
        return "[hidden]"


class Secret(str, enum.Enum):  # noqa: UP042 - a StrEnum would show its value
    PASSWORD = "secret"


@pytest.mark.parametrize("password", [Hidden("secret"), Secret.PASSWORD], ids=["hidden", "enum"])
async def test_a_str_that_looks_like_something_else_is_sent_as_it_is(password: str) -> None:
    async def provider() -> tuple[str, str]:
        return "alice", password

    configs = {"bootstrap_servers": "a:1", "security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}
    fixed = Plain(ProducerConfig.parse({**configs, "sasl_username": "alice", "sasl_password": password}))
    for plain in fixed, mechanism(provider):
        assert await (await plain.begin("host")).respond(None) == b"\0alice\0secret"


async def test_scram_asks_too() -> None:
    """The user name of this login is in the first message; a delegation token still says that it is one."""

    async def provider() -> list[str]:
        return ["b,b", "secret"]

    first = await (await mechanism(provider, "SCRAM-SHA-512").begin("host")).respond(None)
    assert first is not None
    assert first.startswith(b"n,,n=b=2Cb,r=")
    jaas = "x.ScramLoginModule required tokenauth=true;"
    first = await (await mechanism(provider, "SCRAM-SHA-256", sasl_jaas_config=jaas).begin("host")).respond(None)
    assert first is not None
    assert first.endswith(b",tokenauth=true")


@pytest.mark.parametrize("name", ["PLAIN", "SCRAM-SHA-256"])
async def test_messages_name_the_config(name: str) -> None:
    """The fixed configs are not the ones to look at."""

    async def provider() -> tuple[str, str]:
        return "alice", "s3cret"

    one = mechanism(provider, name)
    assert one.who == "the user of sasl_credentials_provider"
    assert one.remedy.startswith("look at what sasl_credentials_provider returns")


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        ("s3cret", "has to return a user name and a password, two str"),
        (("s3cret",), "two str"),
        (("alice", b"s3cret"), "two str"),
        (("alice", "s3cret", ""), "two str"),
        (None, "two str"),
        (("", "s3cret"), "returned an empty user name"),
        (("alice", ""), "returned an empty password"),
        (("alice", "s3cret\0"), "returned the character NUL"),
        (("alice", "s3cret\ud800"), "returned characters that have no UTF-8"),
    ],
)
async def test_what_can_not_be_used(returned: Any, told: str) -> None:
    """The error says what is wrong, and shows nothing of it."""

    async def provider() -> Any:
        return returned

    with pytest.raises(AuthenticationError, match=told) as caught:
        await mechanism(provider).begin("host")
    assert "s3cret" not in repr(caught.value)
    assert not [text for text in shown_by_tools(caught.value) if "s3cret" in text]
    assert caught.value.__cause__ is None


async def test_a_provider_that_fails_is_tried_again_later() -> None:
    """Its own text may contain the secret, and is no reason to give up."""

    async def provider() -> tuple[str, str]:
        raise OSError("s3cret")

    with pytest.raises(ConnectionLostError, match=r"^sasl_credentials_provider raised OSError$"):
        await mechanism(provider).begin("host")


async def test_a_provider_that_is_not_asynchronous() -> None:
    """That is no passing trouble."""
    with pytest.raises(AuthenticationError, match="returned a tuple, not an awaitable; it has to be an async function"):
        await mechanism(lambda: ("alice", "s3cret")).begin("host")
