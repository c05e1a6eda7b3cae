"""Session: how long a broker trusts the login of a connection, and the timer and task that renew it."""

from __future__ import annotations

import asyncio


class Session:
    """The session of one connection; without a login it never ends.

    The ``SaslAuthenticator`` sets ``timer`` and ``task``; the connection ends them at its own end.
    """

    def __init__(self) -> None:
        self.is_paused: bool = False
        """Whether a login is under way, during which the broker accepts no other requests."""
        self.timer: asyncio.TimerHandle | None = None
        """Starts the next login."""
        self.task: asyncio.Task[None] | None = None
        """Logs in again."""
        self._ends_ms: int | None = None

    def begin(self, ends_ms: int | None) -> None:
        """A login has succeeded; the session lasts until ``ends_ms``, or forever if that is None."""
        self.is_paused = False
        self._ends_ms = ends_ms

    def takes_requests(self, now_ms: int) -> bool:
        """Whether the broker would answer a request that is not part of a login."""
        return not self.is_paused and (self._ends_ms is None or now_ms < self._ends_ms)

    def end(self, current_task: asyncio.Task[object] | None) -> None:
        """Stop renewing the login; ``task`` is not cancelled if it is the current one, which ends the connection."""
        if self.timer is not None:
            self.timer.cancel()
        if self.task is not None and self.task is not current_task:
            self.task.cancel()
