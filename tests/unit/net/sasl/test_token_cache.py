"""When tokens are fetched, and which logins wait for them."""

from __future__ import annotations

import asyncio
import base64
import json
import random

import pytest

from aioproducer import OAuthToken
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import ConnectionLostError
from aioproducer.net.sasl import token_cache
from aioproducer.net.sasl.token_cache import TokenCache
from aioproducer.oauth_token import refresh_at_ms
from tests.unit.waiting import in_virtual_time

CONFIG = ProducerConfig.parse({"bootstrap_servers": "a:1"})
HOUR_MS = 3_600_000


def encoded(claims: dict[str, float]) -> str:
    return base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()


class Source:
    """Provides numbered tokens that are valid for an hour, and a clock."""

    def __init__(self) -> None:
        self.now_s = 1_000_000.0
        self.asked = 0
        self.fetched = 0
        self.fails = False
        self.ends = True
        self.times_s: dict[str, float] = {}
        """The claims of a JWT, instead of an expiry given with the token."""
        self.gate = asyncio.Event()
        self.gate.set()
        self.cache = TokenCache(CONFIG, self.fetch, random.Random(1), wall_s=lambda: self.now_s)

    async def fetch(self) -> OAuthToken:
        await self.gate.wait()
        self.asked += 1
        if self.fails:
            raise ConnectionLostError("down")
        self.fetched += 1
        if self.times_s:
            return OAuthToken(f"{self.fetched}.{encoded(self.times_s)}.signature")
        return OAuthToken(f"token-{self.fetched}", int(self.now_s * 1000) + HOUR_MS if self.ends else None)

    async def value(self) -> str:
        return (await self.cache.get()).value


async def test_a_token_is_kept_until_most_of_its_life_is_over() -> None:
    source = Source()
    assert [await source.value() for _ in range(3)] == ["token-1"] * 3
    source.now_s += 0.79 * 3600
    assert await source.value() == "token-1"
    source.now_s += 0.07 * 3600
    assert await source.value() == "token-2"


async def test_a_token_without_an_end_is_for_one_login() -> None:
    source = Source()
    source.ends = False
    assert [await source.value(), await source.value()] == ["token-1", "token-2"]


async def test_a_token_that_says_itself_when_it_ends() -> None:
    """A provider may return a token from its own cache: the lifetime counts from when it was issued."""
    source = Source()
    source.times_s = {"iat": source.now_s - 1800, "exp": source.now_s + 1800}
    first = await source.value()
    source.now_s += 0.29 * 3600
    assert await source.value() == first
    source.now_s += 0.07 * 3600
    assert await source.value() != first


def test_the_first_token_may_take_its_time() -> None:
    """Logins don't wait long for a renewal, because there is a token; without one they have to wait."""

    async def run() -> None:
        source = Source()
        for hour in 1, 2:
            source.gate.clear()
            asyncio.get_running_loop().call_later(4 * token_cache.PATIENCE_S, source.gate.set)
            assert await source.value() == f"token-{hour}"
            source.now_s += 3600

    in_virtual_time(run())


async def test_a_refused_token_is_not_used_again() -> None:
    source = Source()
    await source.value()
    source.cache.forget("token-1")
    assert await source.value() == "token-2"


async def test_a_token_refused_after_it_was_renewed_leaves_the_new_one() -> None:
    source = Source()
    await source.value()
    source.now_s += 0.9 * 3600
    assert await source.value() == "token-2"
    source.cache.forget("token-1")
    assert await source.value() == "token-2"


async def test_a_renewal_that_hangs_leaves_the_last_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_cache, "PATIENCE_S", 0.01)
    source = Source()
    await source.value()
    source.gate.clear()
    source.now_s += 0.9 * 3600
    assert await asyncio.gather(*(source.value() for _ in range(3))) == ["token-1"] * 3
    assert source.fetched == 1
    source.now_s += 10
    source.gate.set()
    assert await source.value() == "token-2"


async def test_a_login_given_up_during_a_renewal_leaves_the_last_token() -> None:
    """A connection's timeout may be shorter than the wait for a renewal; the next one must not hang there too."""
    source = Source()
    await source.value()
    source.gate.clear()
    source.now_s += 0.9 * 3600
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await source.value()
    async with asyncio.timeout(1):
        assert await source.value() == "token-1"
    source.now_s += 10
    source.gate.set()
    assert await source.value() == "token-2"


async def test_one_fetch_serves_all_who_wait_and_survives_the_first() -> None:
    source = Source()
    source.gate.clear()
    waiting = [asyncio.ensure_future(source.value()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    source.gate.set()
    assert await asyncio.gather(*waiting[1:]) == ["token-1"] * 2
    assert source.fetched == 1


async def test_the_last_token_bridges_a_failure_while_it_lives() -> None:
    source = Source()
    await source.value()
    source.fails = True
    source.now_s += 0.95 * 3600
    assert await source.value() == "token-1"
    source.now_s += 0.06 * 3600
    with pytest.raises(ConnectionLostError):
        await source.value()


async def test_a_failed_renewal_is_tried_again_after_ten_seconds_as_by_java() -> None:
    """Otherwise each connection would wait for a hanging token endpoint, although there is a valid token."""
    source = Source()
    await source.value()
    source.fails = True
    source.now_s += 0.9 * 3600
    assert [await source.value() for _ in range(5)] == ["token-1"] * 5
    assert source.asked == 2
    source.now_s += 9
    assert await source.value() == "token-1"
    assert source.asked == 2
    source.now_s += 1
    source.fails = False
    assert await source.value() == "token-2"


async def test_a_failed_renewal_shortly_before_the_end_is_tried_again_at_the_end() -> None:
    source = Source()
    await source.value()
    source.fails = True
    source.now_s += 3600 - 4
    assert await source.value() == "token-1"
    source.now_s += 4
    source.fails = False
    assert await source.value() == "token-2"


@pytest.mark.parametrize(
    ("lifetime_ms", "chance", "expected_ms"),
    [
        (HOUR_MS, 0.0, 0.8 * HOUR_MS),
        (HOUR_MS, 1.0, 0.85 * HOUR_MS),
        (1_000_000, 1.0, 700_000),  # 300 s before the end
        (361_000, 0.0, 61_000),
        (360_000, 0.0, 60_000),
        (359_999, 0.0, 287_999),  # too short for both limits: neither applies
        (2_000, 0.0, 1_600),
    ],
)
def test_when_the_next_token_is_fetched(lifetime_ms: int, chance: float, expected_ms: float) -> None:
    assert refresh_at_ms(CONFIG, 0, lifetime_ms, 0, chance) == int(expected_ms)


@pytest.mark.parametrize("lifetime_ms", [2_000, 359_999, 360_000, HOUR_MS])
def test_the_next_token_is_fetched_before_the_last_one_ends(lifetime_ms: int) -> None:
    """Even if the configs allow more than the whole life of a token."""
    late = {"sasl_login_refresh_window_factor": 1.0, "sasl_login_refresh_window_jitter": 0.25}
    config = ProducerConfig.parse({"bootstrap_servers": "a:1", **late})
    for chance in 0.0, 0.5, 1.0:
        assert refresh_at_ms(config, 0, lifetime_ms, 0, chance) <= lifetime_ms
