"""SaslAuthenticate (key 36): carry the tokens of a SASL exchange."""

from __future__ import annotations

from aioproducer.protocol.schema import Int16, Int64, Message, Request, field


class SaslAuthenticateResponse(Message):
    """The broker's token. ``session_lifetime_ms`` above 0 is the time after which it wants a new exchange (KIP-368)."""

    error_code: Int16 = field(default=0)
    error_message: str | None = field(default=None)
    auth_bytes: bytes = field(hidden=True)
    session_lifetime_ms: Int64 = field(default=0, since=1, ignorable=True)


class SaslAuthenticateRequest(Request[SaslAuthenticateResponse]):
    """The client's token."""

    API_KEY = 36
    MIN_VERSION = 0
    MAX_VERSION = 2
    FLEXIBLE_FROM = 2

    auth_bytes: bytes = field(hidden=True)
