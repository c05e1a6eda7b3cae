"""Deadlines: one timer per connection that notices when anything it waits for is late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aioproducer.net.in_flight import InFlightRequests
from aioproducer.patient_timer import PatientTimer


def _nothing(*_: object) -> None:
    pass


class Deadlines:
    """The deadlines of the requests in flight, and the one for bytes still to be written.

    Args:
        on_late: gets the correlation ids of the late requests, none if the writing is late, and the time in
            milliseconds. The connection ends then.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        in_flight: InFlightRequests,
        on_late: Callable[[set[int], int], None],
    ) -> None:
        self.writing_ms: int | None = None
        """When requests that expect no answer must have been written; None while all have."""
        self._loop = loop
        self._in_flight = in_flight
        self._on_late = on_late
        self._timer: PatientTimer | None = None

    def watch(self, deadline_ms: int) -> None:
        """Make the timer fire at the deadline or earlier; it is not moved back when answers come in time."""
        if self._timer is None or deadline_ms < self._timer.at_ms:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = PatientTimer(self._loop, deadline_ms, self._look)

    def end(self) -> None:
        """Stop watching, and release the owner."""
        self.writing_ms = None
        self._on_late = _nothing
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        now_ms = self._now_ms()
        late = {request.correlation_id for request in self._in_flight.expired(now_ms)}
        if late or (self.writing_ms is not None and self.writing_ms <= now_ms):
            self._on_late(late, now_ms)
        elif (deadline_ms := self._next_ms()) is not None:
            self.watch(deadline_ms)

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _next_ms(self) -> int | None:
        deadline_ms = self._in_flight.next_deadline_ms()
        if self.writing_ms is None:
            return deadline_ms
        return self.writing_ms if deadline_ms is None else min(deadline_ms, self.writing_ms)
