"""FindCoordinator (key 10): the broker that coordinates a consumer group or a transactional id."""

from __future__ import annotations

from aioproducer.protocol.schema import Int8, Int16, Int32, Message, Request, Struct, field

GROUP = 0
"""``key_type`` of a consumer group's id."""
TRANSACTION = 1
"""``key_type`` of a transactional id."""


class Coordinator(Struct):
    """The coordinator of one key; ``error_message`` may be empty without an error."""

    key: str
    node_id: Int32
    host: str
    port: Int32
    error_code: Int16 = field(default=0)
    error_message: str | None = field(default=None)


class FindCoordinatorResponse(Message):
    """From version 4 one Coordinator per key, before that a single one in the message's own fields (KIP-699)."""

    throttle_time_ms: Int32 = field(default=0, since=1, ignorable=True)
    error_code: Int16 = field(default=0, until=3)
    error_message: str | None = field(default=None, since=1, until=3, ignorable=True)
    node_id: Int32 = field(default=0, until=3)
    host: str = field(default="", until=3)
    port: Int32 = field(default=0, until=3)
    coordinators: list[Coordinator] = field(default_factory=list, since=4)


class FindCoordinatorRequest(Request[FindCoordinatorResponse]):
    """Ask any broker; ``key`` up to version 3, ``coordinator_keys`` from version 4."""

    API_KEY = 10
    MIN_VERSION = 0
    MAX_VERSION = 6
    FLEXIBLE_FROM = 3

    key: str = field(default="", until=3)
    key_type: Int8 = field(default=GROUP, since=1)
    coordinator_keys: list[str] = field(default_factory=list, since=4)
