"""Tokens that a broker of a test takes: Kafka's own OAUTHBEARER without signatures. Pure but for the time given."""

from __future__ import annotations

import base64
import json


def unsecured_token(subject: str, *, now_s: float, lifetime_s: float = 3600, **claims: object) -> str:
    """A JSON web token without a signature, which listeners with OAUTHBEARER take for the word of ``subject``.

    Args:
        now_s: ``time.time()``.
        claims: more of them.
    """
    payload = {"sub": subject, "iat": now_s, "exp": now_s + lifetime_s, **claims}
    return f"{_part({'alg': 'none', 'typ': 'JWT'})}.{_part(payload)}."


def _part(value: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
