"""Tokens that a test broker accepts: Kafka's own OAUTHBEARER without signatures. Pure: the time is an argument."""

from __future__ import annotations

import base64
import json


def unsecured_token(subject: str, *, now_s: float, lifetime_s: float = 3600, **claims: object) -> str:
    """A JSON web token without a signature, which OAUTHBEARER listeners accept for ``subject``.

    Args:
        now_s: ``time.time()``.
        claims: further claims.
    """
    payload = {"sub": subject, "iat": now_s, "exp": now_s + lifetime_s, **claims}
    return f"{_part({'alg': 'none', 'typ': 'JWT'})}.{_part(payload)}."


def _part(value: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
