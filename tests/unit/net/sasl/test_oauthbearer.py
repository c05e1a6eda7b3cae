"""OAUTHBEARER: its bytes, its tokens, and a broker's objections."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from aioproducer import OAuthToken
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import AuthenticationError, ConnectionLostError
from aioproducer.net.sasl.oauthbearer import OAuthBearer, OAuthBearerExchange, objection
from aioproducer.oauth_token import check_token, jwt_times_ms

VECTORS = json.loads((Path(__file__).parents[3] / "golden" / "vectors.json").read_text())["oauthbearer_initial"]


def mechanism(provider: Any, **more: Any) -> OAuthBearer:
    config = ProducerConfig.parse(
        {
            "bootstrap_servers": "a:1",
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": provider,
            **more,
        }
    )
    return OAuthBearer(config, asyncio.get_running_loop(), random.Random(1))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.get("extensions", "none"))
async def test_the_first_message_is_that_of_kafka(vector: dict[str, str]) -> None:
    extensions = dict([vector["extensions"].split("=")]) if "extensions" in vector else {}
    login = OAuthBearerExchange(OAuthToken(vector["token"], extensions=extensions))
    assert await login.respond(None) == bytes.fromhex(vector["hex"])
    assert await login.respond(b"") is None


async def test_an_objection_is_acknowledged_and_then_told() -> None:
    login = OAuthBearerExchange(OAuthToken("t"))
    await login.respond(None)
    assert await login.respond(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(AuthenticationError, match="invalid_token"):
        await login.respond(b'{"status":"invalid_token"}')


@pytest.mark.parametrize("seed", range(20))
def test_any_objection_can_be_told(seed: int) -> None:
    rng = random.Random(seed)
    texts = [b'{"status":"invalid_token","scope":"x"}', b"[1]", b'{"status":5}', b"[" * 100_000, b'{"status":"a\\nb"}']
    for text in texts:
        cut = text[: rng.randrange(len(text) + 1)] + rng.randbytes(rng.randrange(9))
        assert objection(cut).isprintable()
        assert len(objection(cut)) <= 80


@pytest.mark.parametrize("value", ["", "a b", "a\x01b", "a\nb", "ä", 5, None])
def test_tokens_that_can_not_be_sent(value: Any) -> None:
    with pytest.raises(AuthenticationError) as caught:
        check_token(OAuthToken(value))
    assert repr(value) not in str(caught.value) or not value


@pytest.mark.parametrize(("key", "value"), [("auth", "x"), ("a1", "x"), ("", "x"), ("a", ""), ("a", "x\x01auth=b")])
def test_extensions_that_can_not_be_sent(key: str, value: str) -> None:
    with pytest.raises(AuthenticationError):
        check_token(OAuthToken("t", extensions={key: value}))


def test_a_token_is_not_shown() -> None:
    assert "s3cret" not in repr(OAuthToken("s3cret", extensions={"a": "s3cret"}))


def jwt(claims: object) -> str:
    return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.x"


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({"iat": 1, "exp": 2.5}, (1_000, 2_500)),
        ({"exp": 2}, (None, 2_000)),
        ({"exp": "2"}, (None, None)),
        ({"exp": True}, (None, None)),
        ({"exp": 1e300}, (None, None)),
        ({"exp": -5}, (None, None)),
        ([1], (None, None)),
        (5, (None, None)),
    ],
)
def test_when_a_token_ends(claims: object, expected: tuple[int | None, int | None]) -> None:
    assert jwt_times_ms(jwt(claims)) == expected


@pytest.mark.parametrize("seed", range(20))
def test_any_text_has_times_or_none(seed: int) -> None:
    rng = random.Random(seed)
    for text in [
        "",
        ".",
        "..",
        jwt({"exp": 2}),
        "a." + "A" * 1_000,
        "a.%%%.c",
        "a." + base64.b64encode(b"[" * 9_999).decode(),
    ]:
        cut = list(text)
        for _ in range(rng.randrange(4)):
            cut.insert(rng.randrange(len(cut) + 1), chr(rng.randrange(1, 0x300)))
        jwt_times_ms("".join(cut))


async def test_a_provider_that_gives_something_else_is_told_what() -> None:
    async def provider() -> Any:
        return ("s3cret", 5)

    with pytest.raises(AuthenticationError, match="returned a tuple; it has to be a str or an OAuthToken") as caught:
        await mechanism(provider).begin("host")
    assert "s3cret" not in str(caught.value)


ENDLESS = [float("inf"), float("-inf"), float("nan"), 10**400, 2**63, -(2**63) - 1]


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (OAuthToken("t", "s3cret"), "expires_at_ms is a str; it has to be milliseconds since"),  # type: ignore[arg-type]
        *((OAuthToken("t", end), "expires_at_ms does not fit in 64 bits; it has to be milli") for end in ENDLESS),  # type: ignore[arg-type]
        (OAuthToken("t", extensions=None), "extensions are a NoneType; they have to be a mapping"),  # type: ignore[arg-type]
        (OAuthToken("t", extensions=["s3cret"]), "extensions are a list; they have to be a mapping"),  # type: ignore[arg-type]
        (OAuthToken("t", extensions={"a": 5}), "the extension 'a' of the token for OAUTHBEARER can't be sent"),  # type: ignore[dict-item]
        (OAuthToken("t", extensions={5: "a"}), "the extension 5 of the token for OAUTHBEARER can't be sent"),  # type: ignore[dict-item]
    ],
)
async def test_a_provider_whose_token_has_wrong_types_is_told_so(token: OAuthToken, expected: str) -> None:
    async def provider() -> OAuthToken:
        return token

    with pytest.raises(AuthenticationError, match=re.escape(expected)) as caught:
        await mechanism(provider).begin("host")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("end", [0, -(2**63), 2**63 - 1, 1e18, 4_000_000_000_000])
async def test_a_token_may_expire_at_any_time_of_64_bits(end: float) -> None:
    async def provider() -> OAuthToken:
        return OAuthToken("t", end)  # type: ignore[arg-type]

    login = mechanism(provider)
    for _ in range(2):
        assert await (await login.begin("host")).respond(None)


async def test_a_provider_that_was_cancelled_is_tried_again_later() -> None:
    """The provider itself is cancelled, as its own task may be, not the connection attempt."""
    fetching = asyncio.ensure_future(asyncio.sleep(60))
    fetching.cancel()

    async def provider() -> str:
        await fetching
        return "t"

    with pytest.raises(ConnectionLostError, match="sasl_oauth_token_provider raised CancelledError"):
        await mechanism(provider).begin("host")


async def test_a_login_that_is_cancelled_cancels_the_provider() -> None:
    async def provider() -> str:
        await asyncio.sleep(60)
        return "t"

    login = asyncio.ensure_future(mechanism(provider).begin("host"))
    await asyncio.sleep(0)
    login.cancel()
    with pytest.raises(asyncio.CancelledError):
        await login


async def test_a_provider_that_is_not_async_is_told_so() -> None:
    """The error is permanent, and not one of the connection."""
    with pytest.raises(
        AuthenticationError, match="returned a str, not an awaitable; it has to be an async function"
    ) as caught:
        await mechanism(lambda: "s3cret").begin("host")
    assert "s3cret" not in str(caught.value)


async def test_a_plain_function_may_return_an_awaitable() -> None:
    async def fetch() -> str:
        return "t"

    login = await mechanism(lambda: fetch()).begin("host")
    assert await login.respond(None) == b"n,,\x01auth=Bearer t\x01\x01"


async def test_a_token_that_hides_itself_is_sent_as_it_is() -> None:
    class Hidden(str):
        def __str__(self) -> str:
            return "[hidden]"

    async def plain() -> str:
        return Hidden("t")

    async def with_extensions() -> OAuthToken:
        return OAuthToken(Hidden("t"), extensions={"b": Hidden("2")})

    login = await mechanism(plain).begin("host")
    assert await login.respond(None) == b"n,,\x01auth=Bearer t\x01\x01"
    login = await mechanism(with_extensions).begin("host")
    assert await login.respond(None) == b"n,,\x01auth=Bearer t\x01b=2\x01\x01"


async def test_a_provider_that_fails_is_tried_again_later() -> None:
    async def provider() -> str:
        raise RuntimeError("s3cret")

    with pytest.raises(ConnectionLostError, match="sasl_oauth_token_provider raised RuntimeError") as caught:
        await mechanism(provider).begin("host")
    assert isinstance(caught.value.__cause__, RuntimeError)


async def test_extensions_of_the_login_module_go_along() -> None:
    async def provider() -> OAuthToken:
        return OAuthToken("t", extensions={"b": "2"})

    jaas = "x.OAuthBearerLoginModule required extension_a=1;"
    login = await mechanism(provider, sasl_jaas_config=jaas).begin("host")
    assert await login.respond(None) == b"n,,\x01auth=Bearer t\x01a=1\x01b=2\x01\x01"


async def test_the_name_of_a_file_may_have_any_character(tmp_path: Path) -> None:
    """Its URL has ``%XX`` for special characters."""
    token = jwt({"exp": 4_000_000_000})
    (tmp_path / "a b?c#d%20\u00e4").write_text(token)
    config = ProducerConfig.parse(
        {
            "bootstrap_servers": "a:1",
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": f"{tmp_path.as_uri()}/a%20b%3Fc%23d%2520\u00e4",
        }
    )
    bearer = OAuthBearer(config, asyncio.get_running_loop(), random.Random(1))
    first = await (await bearer.begin("broker")).respond(None)
    assert first is not None
    assert token.encode() in first
