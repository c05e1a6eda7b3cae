"""The facts of a certificate, verified or not, and when it expires."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from aioproducer.config.producer_config import ProducerConfig
from aioproducer.net import pem
from aioproducer.net.tls import own_text

SOON_DAYS = 14
"""Warn about a certificate that expires within this many days."""
_DAY_S = 86_400


def verified_facts(told: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a certificate, as given by the ``ssl`` module for a verified peer."""
    return {
        "subject": _name(told.get("subject", ())),
        "issuer": _name(told.get("issuer", ())),
        "names": [value for _, value in told.get("subjectAltName", ())],
        "not_before_s": ssl.cert_time_to_seconds(told["notBefore"]) if "notBefore" in told else None,
        "not_after_s": ssl.cert_time_to_seconds(told["notAfter"]) if "notAfter" in told else None,
    }


def _name(parts: Any) -> str:
    return ", ".join(f"{key}={value}" for part in parts for key, value in part)


def unverified_facts(der: bytes) -> dict[str, Any]:
    """The same facts, read from the bytes of an unverified certificate.

    Empty without the package cryptography (extra ``cli``), or if this is not a certificate.
    """
    try:
        from cryptography import x509
    except ImportError:
        return {}
    try:
        found = x509.load_der_x509_certificate(der)
        facts: dict[str, Any] = {
            "subject": found.subject.rfc4514_string(),
            "issuer": found.issuer.rfc4514_string(),
            "not_before_s": int(found.not_valid_before_utc.timestamp()),
            "not_after_s": int(found.not_valid_after_utc.timestamp()),
        }
        facts["names"] = _alternative_names(found)
    except ValueError:
        return {}
    return facts


def own_facts(config: ProducerConfig) -> dict[str, Any]:
    """The same facts about this client's own certificate, the first of its chain; empty without one. Blocking.

    Raises:
        TlsError: its file can't be used.
    """
    own = own_text(config)
    found = [] if own is None else [block for kind, block in pem.blocks(own[0]) if kind == "CERTIFICATE"]
    return unverified_facts(ssl.PEM_cert_to_DER_cert(found[0])) if found else {}


def _alternative_names(certificate: Any) -> list[str]:
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(each.value) for each in names if isinstance(each, (x509.DNSName, x509.IPAddress))]


def days_left(facts: Mapping[str, Any], now_s: float) -> float | None:
    """Days until a certificate expires, negative once it has; None if unknown."""
    end_s = facts.get("not_after_s")
    return None if end_s is None else (end_s - now_s) / _DAY_S


def described(facts: Mapping[str, Any]) -> str:
    """One line for people; empty if nothing is known."""
    if not facts:
        return ""
    names = f" for {', '.join(facts['names'])}" if facts.get("names") else ""
    return f"certificate of {facts.get('subject') or 'nobody'}{names}, signed by {facts.get('issuer') or 'nobody'}"
