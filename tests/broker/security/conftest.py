"""What the security tests share."""

from __future__ import annotations

from tests.broker.security.fixtures import kdc, kerberos_kafka, secure_kafka, secure_kafka_v1, signing_key

__all__ = ["kdc", "kerberos_kafka", "secure_kafka", "secure_kafka_v1", "signing_key"]
