"""SaslHandshake (key 17): choose the SASL mechanism of a connection."""

from __future__ import annotations

from aioproducer.protocol.schema import NEVER, Int16, Message, Request, field


class SaslHandshakeResponse(Message):
    """The mechanisms that the broker offers, most useful after error 33."""

    error_code: Int16 = field(default=0)
    mechanisms: list[str]


class SaslHandshakeRequest(Request[SaslHandshakeResponse]):
    """After version 1 come SaslAuthenticate requests, after version 0 the bare tokens with an int32 length."""

    API_KEY = 17
    MIN_VERSION = 0
    MAX_VERSION = 1
    FLEXIBLE_FROM = NEVER

    mechanism: str
