"""OAuthToken: a token for OAUTHBEARER, when it expires, and when to get the next one. Pure."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING

from aioproducer.errors import AuthenticationError

if TYPE_CHECKING:
    from aioproducer.config.producer_config import ProducerConfig

_TOKEN = re.compile(r"[!-~]+")
_KEY = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x20-\x7e\t\r\n]+")


@dataclass(frozen=True, slots=True)
class OAuthToken:
    """A token for OAUTHBEARER.

    Args:
        value: the token itself, as sent to the broker.
        expires_at_ms: when it expires, in milliseconds since the epoch; None reads it from the token if that is a JSON
            web token, and otherwise requests a new token for each login.
        extensions: sent along with it (KIP-342), such as ``{"logicalCluster": "lkc-1"}``.
    """

    value: str = field(repr=False)
    expires_at_ms: int | None = None
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)


def check_token(token: OAuthToken) -> OAuthToken:
    """The token, if it can be sent.

    Raises:
        AuthenticationError: it contains what no token may, or has wrong types. No part of it is shown.
    """
    if not isinstance(token.value, str) or not _TOKEN.fullmatch(token.value):
        raise AuthenticationError("the token for OAUTHBEARER is empty, or has characters that no token may have")
    if token.expires_at_ms is not None and not isinstance(token.expires_at_ms, Real):
        raise AuthenticationError(
            f"the token's expires_at_ms is a {type(token.expires_at_ms).__name__}; it has to be milliseconds since the "
            "epoch, or None"
        )
    if token.expires_at_ms is not None and not -(2**63) <= token.expires_at_ms < 2**63:  # so NaN is refused too
        raise AuthenticationError(
            "the token's expires_at_ms does not fit in 64 bits; it has to be milliseconds since the epoch, or None"
        )
    if not isinstance(token.extensions, Mapping):
        raise AuthenticationError(
            f"the token's extensions are a {type(token.extensions).__name__}; they have to be a mapping of str to str"
        )
    for key, value in token.extensions.items():
        texts = isinstance(key, str) and isinstance(value, str)
        if not texts or not _KEY.fullmatch(key) or key == "auth" or not _VALUE.fullmatch(value):
            raise AuthenticationError(f"the extension {key!r} of the token for OAUTHBEARER can't be sent")
    return token


def jwt_times_ms(value: str) -> tuple[int | None, int | None]:
    """When a JSON web token was issued and expires, without verifying anything; None for a time it does not contain."""
    try:
        part = value.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        return _ms(claims.get("iat")), _ms(claims.get("exp"))
    except (IndexError, ValueError, AttributeError, binascii.Error, RecursionError):
        return None, None


def _ms(seconds: object) -> int | None:
    usable = isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and 0 < seconds < 1e11
    return int(float(seconds) * 1000) if usable else None  # type: ignore[arg-type]


def refresh_at_ms(config: ProducerConfig, began_ms: int, ends_ms: int, now_ms: int, chance: float) -> int:
    """When to fetch the next token.

    Args:
        chance: 0 to 1.
    Source: Kafka's ExpiringCredentialRefreshingLogin.
    """
    factor = config.sasl_login_refresh_window_factor + config.sasl_login_refresh_window_jitter * chance
    proposed_ms = began_ms + int((ends_ms - began_ms) * factor)
    least_ms = config.sasl_login_refresh_min_period_seconds * 1000
    buffer_ms = config.sasl_login_refresh_buffer_seconds * 1000
    if least_ms + buffer_ms > ends_ms - now_ms:
        return min(proposed_ms, ends_ms)  # its life is too short for these two
    return max(min(proposed_ms, ends_ms - buffer_ms), now_ms + least_ms)
