"""Exponential back-off with jitter, for requests and for connections."""

from __future__ import annotations

import math
import random

from aioproducer.error_codes import Code

BUSY_BACKOFF_MS = 1
"""The first wait for a broker that is only ending the previous transaction, which takes a few milliseconds."""


class ExponentialBackoff:
    """How long to wait before the next try.

    The wait starts at ``initial_ms`` and is multiplied by ``multiplier`` after each failed attempt, up to ``max_ms``.
    ``jitter`` spreads each wait to both sides, so that clients that failed together don't come back together. If
    ``max_ms`` is at or below ``initial_ms``, the wait is always ``max_ms``, without jitter.

    Source: Kafka's ExponentialBackoff; KIP-580.
    """

    __slots__ = ("_initial_ms", "_jitter", "_max_exponent", "_max_ms", "_multiplier")

    def __init__(self, initial_ms: int, max_ms: int, multiplier: int = 2, jitter: float = 0.2) -> None:
        self._initial_ms = min(initial_ms, max_ms)
        self._max_ms = max_ms
        self._multiplier = multiplier
        self._jitter = jitter
        self._max_exponent = math.log(max_ms / max(initial_ms, 1), multiplier) if max_ms > initial_ms else 0.0

    def delay_ms(self, attempts: int, rng: random.Random) -> int:
        """Milliseconds to wait after ``attempts`` earlier failures (0: this is the first)."""
        if self._max_exponent == 0.0:
            return self._initial_ms
        # The exponent is capped, not the power: many attempts must not overflow.
        delay = self._initial_ms * self._multiplier ** min(attempts, self._max_exponent)
        return min(int(delay * rng.uniform(1 - self._jitter, 1 + self._jitter)), self._max_ms)


class RequestBackoff:
    """How long to wait before a request is repeated, given the error that ended the last attempt.

    Args:
        initial_ms: ``retry_backoff_ms``; also the longest wait for a broker that only has to end a transaction.
        max_ms: ``retry_backoff_max_ms``.
    """

    __slots__ = ("_busy", "_usual")

    def __init__(self, initial_ms: int, max_ms: int) -> None:
        self._usual = ExponentialBackoff(initial_ms, max_ms)
        self._busy = ExponentialBackoff(min(BUSY_BACKOFF_MS, initial_ms), initial_ms)

    def delay_ms(self, attempts: int, rng: random.Random, code: int | None) -> int:
        """Milliseconds to wait after ``attempts`` earlier failures and this one; None for an error without a code."""
        backoff = self._busy if code == Code.CONCURRENT_TRANSACTIONS else self._usual
        return backoff.delay_ms(attempts, rng)
