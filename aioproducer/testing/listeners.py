"""Additional listeners of a test cluster: what each requires of a client, and the matching server properties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aioproducer.testing.certificates import Certificate

PLAIN, OAUTHBEARER, GSSAPI = "PLAIN", "OAUTHBEARER", "GSSAPI"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_JAAS = {
    OAUTHBEARER: "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    'unsecuredLoginStringClaim_sub="broker";',
    **dict.fromkeys(SCRAM, "org.apache.kafka.common.security.scram.ScramLoginModule required;"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """An additional listener of every broker.

    Args:
        protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
        mechanisms: SASL mechanisms. OAUTHBEARER accepts unsecured tokens (`unsecured_token`), unless ``properties``
            configure it otherwise.
        client_certificates: whether a client must present a certificate of the cluster's authority.
        certificate: the brokers' certificate; None for a valid one.
        properties: server properties of this listener only, without their prefix ``listener.name.<name>.``.
    """

    protocol: str
    mechanisms: Sequence[str] = (PLAIN, *SCRAM, OAUTHBEARER)
    client_certificates: bool = False
    certificate: Certificate | None = None
    properties: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise ValueError(f"{self.protocol!r} is not a security protocol; these are: {', '.join(PROTOCOLS)}")

    @property
    def uses_tls(self) -> bool:
        """Whether it speaks TLS."""
        return self.protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether clients log in."""
        return self.protocol.startswith("SASL")


Listeners = Sequence[str] | Mapping[str, Listener]
"""Names of security protocols, or listeners by any name."""


def named(listeners: Listeners) -> dict[str, Listener]:
    """Listeners by name; a name alone is also the security protocol."""
    if isinstance(listeners, Mapping):
        return dict(listeners)
    return {name: Listener(protocol=name) for name in listeners}


def listener_properties(
    name: str, listener: Listener, users: Mapping[str, str], trust_store: Path, key_store: Path
) -> dict[str, object]:
    """The server properties of one listener.

    Args:
        users: passwords by name.
        trust_store, key_store: PEM files, used if the listener speaks TLS.
    """
    own: dict[str, Any] = {}
    if listener.uses_tls:
        own["ssl.keystore.type"] = own["ssl.truststore.type"] = "PEM"
        own["ssl.keystore.location"] = key_store
        own["ssl.truststore.location"] = trust_store
        own["ssl.client.auth"] = "required" if listener.client_certificates else "none"
    if listener.uses_sasl:
        own["sasl.enabled.mechanisms"] = ",".join(listener.mechanisms)
        for mechanism in listener.mechanisms:
            jaas = _plain_jaas(users) if mechanism == PLAIN else _JAAS.get(mechanism)
            if jaas:
                own[f"{mechanism.lower()}.sasl.jaas.config"] = jaas
    own.update(listener.properties)
    return {f"listener.name.{name.lower()}.{key}": value for key, value in own.items()}


def _plain_jaas(users: Mapping[str, str]) -> str:
    entries = "".join(f" user_{name}={_quoted(password)}" for name, password in users.items())
    return f"org.apache.kafka.common.security.plain.PlainLoginModule required{entries};"


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
