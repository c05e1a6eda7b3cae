"""When the timer for idle connections fires, and which connections it closes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aioproducer.net.idle import IdleTimer
from tests.unit.net.stand_in import StandIn


class Timer:
    """What ``call_at`` of a loop returns."""

    def __init__(self, when_ms: int, callback: Callable[[], None]) -> None:
        self.when_ms = when_ms
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """A loop with a clock that stands still, and its timers."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now_ms / 1000

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        self.timers.append(Timer(round(when * 1000), callback))
        return self.timers[-1]

    def go_on(self) -> None:
        """Advance to the time of the latest timer, and fire it."""
        timer = self.timers[-1]
        self.now_ms = timer.when_ms
        timer.callback()


def idle_timer(loop: Any, max_idle_ms: int, *connections: Any) -> tuple[IdleTimer, dict[Any, None]]:
    opened = dict.fromkeys(connections)
    return IdleTimer(loop, max_idle_ms, opened), opened


def test_nothing_is_watched_without_connections_or_a_limit() -> None:
    loop = Loop()
    idle_timer(loop, 100)[0].watch()
    idle_timer(loop, -1, StandIn(1))[0].watch()
    assert loop.timers == []


def test_the_one_used_longest_ago_says_when() -> None:
    loop = Loop()
    timer, _ = idle_timer(loop, 100, StandIn(1, last_used_ms=70), StandIn(2, last_used_ms=50))
    timer.watch()
    timer.watch()
    (only,) = loop.timers
    assert only.when_ms == 151


def test_those_that_are_idle_end_and_the_others_are_watched_on() -> None:
    loop = Loop()
    old, waiting, young = StandIn(1), StandIn(2, in_flight_count=1), StandIn(3, last_used_ms=60)
    timer, _ = idle_timer(loop, 100, old, waiting, young)
    timer.watch()
    loop.go_on()
    assert (old.closed, waiting.closed, young.closed) == (True, False, False)
    assert waiting.last_used_ms == 101
    assert len(loop.timers) == 2


def test_with_the_last_connection_the_watch_ends_and_begins_with_the_next() -> None:
    loop = Loop()
    timer, opened = idle_timer(loop, 100, StandIn(1))
    timer.watch()
    opened.clear()
    loop.go_on()
    assert len(loop.timers) == 1
    connection: Any = StandIn(2, last_used_ms=300)
    opened[connection] = None
    timer.watch()
    assert loop.timers[-1].when_ms == 401


def test_nothing_is_watched_after_the_end() -> None:
    loop = Loop()
    timer, _ = idle_timer(loop, 100, StandIn(1))
    timer.watch()
    timer.end()
    assert loop.timers[0].cancelled
    timer.watch()
    idle, _ = idle_timer(loop, 100, StandIn(1))
    idle.end()
    idle.watch()
    assert len(loop.timers) == 1
