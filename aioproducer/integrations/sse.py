"""A producer's metrics and health as server-sent events, for a page that shows them live.

The text works in any web framework; ``metrics_routes`` of ``aioproducer.integrations.starlette`` and ``metrics_router``
of ``aioproducer.integrations.fastapi`` serve it.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from aioproducer import Producer, ProducerHealth, ProducerState
from aioproducer.deadline import in_seconds
from aioproducer.strict_json import without_nan

MEDIA_TYPE = "text/event-stream"
HEADERS: Mapping[str, str] = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Headers of the response: proxies must neither cache nor buffer (nginx) it."""
RETRY_MS = 1_000
"""How long a browser waits before it reconnects a broken stream."""
LOOK_S = 0.1
"""Interval between checks for the stream's end, between events."""

_ENDING = (ProducerState.CLOSING, ProducerState.CLOSED)


def metrics_events(
    producer: Producer,
    *,
    interval: float = 1.0,
    extra: Callable[[], Mapping[str, Any]] | None = None,
    ended: Callable[[], bool] | None = None,
    health: Callable[[Producer], ProducerHealth] = Producer.health,
) -> AsyncIterator[str]:
    """Yield the producer's metrics and health, at once and then every ``interval`` seconds, until it closes.

    Each event is one JSON object: ``time_ms`` since the epoch, ``client_id``, ``health`` (``state``, ``ready``,
    ``live``, ``reason``, ``waiting``), ``metrics`` as in ``Producer.metrics()``, with null for averages of nothing,
    and what ``extra`` adds. Averages, maxima and rates cover ``metrics_num_samples`` windows of
    ``metrics_sample_window_ms``; differences between totals are as recent as the events.

    Args:
        extra: called for each event; its result is added beside ``metrics``.
        ended: checked several times a second; the stream ends soon after it becomes true.
        health: replaces the producer's own, for frameworks that know more.
    Raises:
        TypeError, ValueError: at once, if ``interval`` is not a number, or one of the functions is not callable.
    """
    interval_s = check(interval, extra)
    if ended is not None and not callable(ended):
        raise TypeError(f"ended is a {type(ended).__name__}; a function is needed")
    if not callable(health):
        raise TypeError(f"health is a {type(health).__name__}; a function is needed")
    return _events(producer, interval_s, extra, ended, health)


def check(interval: float, extra: object) -> float:
    """The interval in seconds. Checks both before there is a stream, which could only break off.

    Raises:
        TypeError, ValueError: ``interval`` is not a number, or ``extra`` not callable.
    """
    if extra is not None and not callable(extra):
        raise TypeError(f"extra is a {type(extra).__name__}; a function that returns a mapping is needed")
    return in_seconds(interval, "interval")


async def _events(
    producer: Producer,
    interval_s: float,
    extra: Callable[[], Mapping[str, Any]] | None,
    ended: Callable[[], bool] | None,
    health: Callable[[Producer], ProducerHealth],
) -> AsyncIterator[str]:
    yield f"retry: {RETRY_MS}\n\n"
    while True:
        event = snapshot(producer, health(producer))
        if extra is not None:
            event.update(extra())
        yield f"data: {json.dumps(without_nan(event), separators=(',', ':'))}\n\n"
        due = time.monotonic() + interval_s
        left = max(interval_s, 0.0)
        while left >= 0:
            if producer.health().state in _ENDING or (ended is not None and ended()):
                return
            await asyncio.sleep(min(left, LOOK_S))  # at least one turn of the loop, whatever the interval
            left = due - time.monotonic()


def snapshot(producer: Producer, health: ProducerHealth) -> dict[str, Any]:
    """The producer's part of one event."""
    return {
        "time_ms": time.time_ns() // 1_000_000,
        "client_id": producer.client_id,
        "health": {
            "state": health.state,
            "ready": health.ready,
            "live": health.live,
            "reason": health.reason,
            "waiting": health.waiting,
        },
        "metrics": producer.metrics(),
    }


def server_is_ending() -> bool:
    """Whether uvicorn, if it runs in this process, has been told to stop.

    It waits for open responses before it shuts the application down, and notifies neither. But its server handles
    signals, so it can be found through the signal handler; its attribute ``should_exit`` says it.
    """
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return getattr(server, "should_exit", False) is True
