"""Back-off: the same delays as Kafka's ExponentialBackoff."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.backoff import ExponentialBackoff, RequestBackoff
from aioproducer.error_codes import Code


class FixedRandom(random.Random):
    """Draws the same relative position from every range."""

    def __init__(self, place: float) -> None:
        super().__init__(0)
        self.place = place

    def uniform(self, a: float, b: float) -> float:
        return a + (b - a) * self.place


@pytest.mark.parametrize(
    ("initial_ms", "max_ms", "expected"),
    [
        (100, 1000, [100, 200, 400, 800, 1000, 1000, 1000]),
        (50, 1000, [50, 100, 200, 400, 800, 1000, 1000]),
        (1000, 1000, [1000] * 7),
        (5000, 1000, [1000] * 7),
        (0, 1000, [0] * 7),
        (100, 0, [0] * 7),
    ],
)
def test_delays_are_javas(initial_ms: int, max_ms: int, expected: list[int]) -> None:
    """Values printed by Kafka 4.3.1's class with jitter 0."""
    backoff = ExponentialBackoff(initial_ms, max_ms, jitter=0.0)
    assert [backoff.delay_ms(attempts, random.Random(1)) for attempts in range(7)] == expected


@pytest.mark.parametrize(("place", "expected"), [(0.0, [80, 160, 320, 640, 800]), (1.0, [120, 240, 480, 960, 1000])])
def test_jitter_is_a_fifth_to_both_sides_and_never_above_the_maximum(place: float, expected: list[int]) -> None:
    backoff = ExponentialBackoff(100, 1000)
    assert [backoff.delay_ms(attempts, FixedRandom(place)) for attempts in range(5)] == expected


@pytest.mark.parametrize("place", [0.0, 1.0])
def test_constant_when_the_maximum_is_not_above_the_start(place: float) -> None:
    assert [ExponentialBackoff(100, 100).delay_ms(n, FixedRandom(place)) for n in range(4)] == [100] * 4


@given(
    initial_ms=st.integers(0, 10**6),
    max_ms=st.integers(0, 10**7),
    attempts=st.integers(0, 2**31),
    seed=st.integers(0, 2**32),
)
def test_always_between_the_bounds(initial_ms: int, max_ms: int, attempts: int, seed: int) -> None:
    """Even after two billion attempts, without overflow."""
    delay_ms = ExponentialBackoff(initial_ms, max_ms).delay_ms(attempts, random.Random(seed))
    assert int(min(initial_ms, max_ms) * 0.8) <= delay_ms <= max_ms


def test_one_seed_gives_one_sequence() -> None:
    backoff = ExponentialBackoff(100, 1000)
    first, second = random.Random(5), random.Random(5)
    assert [backoff.delay_ms(n, first) for n in range(9)] == [backoff.delay_ms(n, second) for n in range(9)]


@pytest.mark.parametrize("code", [None, Code.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_request_is_repeated_later_and_later(code: int | None) -> None:
    backoff = RequestBackoff(100, 1000)
    assert [backoff.delay_ms(n, FixedRandom(0.5), code) for n in range(5)] == [100, 200, 400, 800, 1000]


@pytest.mark.parametrize(("initial_ms", "expected"), [(160, [1, 2, 4, 8, 16]), (5, [1, 2, 4, 4, 4]), (0, [0] * 5)])
def test_a_broker_that_only_ends_a_transaction_is_asked_again_soon(initial_ms: int, expected: list[int]) -> None:
    """The wait starts at 1 ms and stays within ``retry_backoff_ms``."""
    backoff = RequestBackoff(initial_ms, 1000)
    assert [backoff.delay_ms(n, FixedRandom(0.5), Code.CONCURRENT_TRANSACTIONS) for n in range(5)] == expected
