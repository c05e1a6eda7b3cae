"""Explains why a TLS handshake failed and what to change. Pure."""

from __future__ import annotations

import ssl

from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import TlsError

_TRUST = "ssl_truststore_location (or ssl_truststore_certificates)"
_OWN = "ssl_keystore_location (or ssl_keystore_key and ssl_keystore_certificate_chain)"

# X509_V_ERR_* of OpenSSL
_NOT_YET_VALID, _EXPIRED, _HOST, _ADDRESS = 9, 10, 62, 64

_ALERTS = {
    "CERTIFICATE_REQUIRED": f"it asks clients for a certificate: set {_OWN}",
    "HANDSHAKE_FAILURE": "the two sides have no cipher in common, or it asks clients for a certificate: look at "
    f"ssl_cipher_suites and ssl_enabled_protocols, or set {_OWN}",
    "BAD_CERTIFICATE": f"it does not accept this client's certificate: look at {_OWN}",
    "UNKNOWN_CA": f"it does not trust who signed this client's certificate: look at {_OWN}",
    "CERTIFICATE_EXPIRED": f"this client's certificate has expired: renew {_OWN}",
    "CERTIFICATE_UNKNOWN": f"it does not accept this client's certificate: look at {_OWN}",
    "CERTIFICATE_REVOKED": f"this client's certificate was revoked: renew {_OWN}",
    "UNSUPPORTED_CERTIFICATE": f"it can't use this kind of client certificate: look at {_OWN}",
    "PROTOCOL_VERSION": "the two sides have no version of TLS in common: look at ssl_enabled_protocols, ssl_protocol",
    "INSUFFICIENT_SECURITY": "it wants stronger ciphers: look at ssl_cipher_suites",
    "UNRECOGNIZED_NAME": "it does not recognize this host name: look at bootstrap_servers",
    "INTERNAL_ERROR": "it had an internal error: look at its log",
    "ACCESS_DENIED": f"it does not accept this client's certificate: look at {_OWN}",
    "DECRYPT_ERROR": f"it found this client's certificate or signature invalid: look at {_OWN}",
}
"""The meaning of the peer's alerts, by the ending of OpenSSL's names for them."""

_OWN_REASONS = {
    "UNSUPPORTED_PROTOCOL": _ALERTS["PROTOCOL_VERSION"],
    "NO_PROTOCOLS_AVAILABLE": _ALERTS["PROTOCOL_VERSION"],
    "WRONG_SSL_VERSION": _ALERTS["PROTOCOL_VERSION"],
    "NO_CIPHERS_AVAILABLE": "no cipher is left: look at ssl_cipher_suites and ssl_enabled_protocols",
    "DH_KEY_TOO_SMALL": "its keys are too weak for this system's OpenSSL: renew the broker's",
    "EE_KEY_TOO_SMALL": "its certificate is too weak for this system's OpenSSL: renew the broker's",
    "CA_MD_TOO_WEAK": "its certificate is too weak for this system's OpenSSL: renew the broker's",
    "WRONG_VERSION_NUMBER": "it does not speak TLS: set security_protocol=PLAINTEXT (or SASL_PLAINTEXT), or use the "
    "broker's port for TLS",
    "RECORD_LAYER_FAILURE": "it does not speak TLS: set security_protocol=PLAINTEXT (or SASL_PLAINTEXT), or use the "
    "broker's port for TLS",
}
_OWN_REASONS["HTTP_REQUEST"] = _OWN_REASONS["PACKET_LENGTH_TOO_LONG"] = _OWN_REASONS["WRONG_VERSION_NUMBER"]

NO_TLS = "it speaks Kafka's protocol without TLS: set security_protocol=PLAINTEXT (or SASL_PLAINTEXT)"
ONLY_TLS = "it speaks TLS, and this client does not: set security_protocol=SSL (or SASL_SSL)"
TOO_EARLY = (
    "bytes came before the TLS handshake, which no broker sends: use the broker's port for TLS, and look at who can "
    "write to the connection on its way (a proxy, an intruder)"
)
NOT_KAFKA = "this may not be a Kafka broker's port: look at bootstrap_servers"
HTTP = "it speaks HTTP, so this is not a Kafka broker's port: look at bootstrap_servers"


def handshake_error(error: ssl.SSLError, where: str, host: str, config: ProducerConfig) -> TlsError | None:
    """The error to raise for a failed handshake; None if it only says that the connection broke."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsError(f"{where}: {_untrusted(error, host, config)}")
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)):
        return None
    reason = error.reason or ""
    if "UNEXPECTED_EOF" in reason:
        return None
    if reason in _OWN_REASONS:
        return TlsError(f"{where}: {_OWN_REASONS[reason]}")
    if alert := alert_error(error, where):
        return alert
    return TlsError(f"{where}: the TLS handshake failed ({reason or 'no reason given'})")


def alert_error(error: ssl.SSLError, where: str) -> TlsError | None:
    """The error for an alert with which the peer ended the handshake; None if ``error`` is not an alert.

    With TLS 1.3 it comes after the client considers the handshake complete.
    """
    reason = error.reason or ""
    # OpenSSL's names of the alerts about extensions lack the word, as in TLSV1_UNRECOGNIZED_NAME.
    if "ALERT" not in reason and not reason.startswith("TLSV1_"):
        return None
    told = reason.rpartition("ALERT_")[2].removeprefix("TLSV1_")
    meaning = next((text for name, text in _ALERTS.items() if told.endswith(name)), "")
    return TlsError(f"{where}: the broker ended the TLS handshake ({told}){': ' + meaning if meaning else ''}")


def _untrusted(error: ssl.SSLCertVerificationError, host: str, config: ProducerConfig) -> str:
    told = error.verify_message
    if config.ssl_context is not None:
        return f"the broker's certificate is not accepted by ssl_context ({told})"
    if error.verify_code in (_HOST, _ADDRESS):
        return (
            f"the broker's certificate is not for {host} ({told}): use a host name that it has in bootstrap_servers "
            "and in the brokers' advertised.listeners, or give the broker a certificate for this one; "
            "ssl_endpoint_identification_algorithm= (empty) turns the check off"
        )
    if error.verify_code == _EXPIRED:
        return f"the broker's certificate, or one that signed it, has expired ({told}): renew it at the broker"
    if error.verify_code == _NOT_YET_VALID:
        return f"the broker's certificate is not valid yet ({told}): look at the clocks of both sides"
    return f"the broker's certificate is not trusted ({told}): name the authority that signed it in {_TRUST}"


def is_tls(head: bytes) -> bool:
    """Whether four bytes that should be the size of an answer start a TLS message: an alert or a handshake."""
    return head[:2] in (b"\x15\x03", b"\x16\x03")
