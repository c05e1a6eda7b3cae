"""A stand-in for a connection, for tests of code that only inspects connections."""

from __future__ import annotations

from typing import Any


class StandIn:
    """The attributes by which connections are chosen, without a real connection."""

    def __init__(self, node_id: int, *, host: str = "unused", **state: Any) -> None:
        self.node_id = node_id
        self.host = host
        self.port = node_id
        self.address = host
        self.closed = False
        self.retiring = False
        self.in_flight_count = 0
        self.throttled_until_ms = 0
        self.unanswered_since_ms: int | None = None
        self.last_used_ms = 0
        self.apis = {3}
        self.__dict__.update(state)

    def can_send(self, now_ms: int) -> bool:
        return not self.closed and not self.retiring and self.throttled_until_ms <= now_ms

    def api_range(self, api_key: int) -> tuple[int, int] | None:
        return (0, 9) if api_key in self.apis else None

    def belongs_to(self, node_id: int) -> None:
        self.node_id = node_id

    def close_when_idle(self) -> None:
        self.retiring = True

    def abort(self) -> None:
        self.closed = True
