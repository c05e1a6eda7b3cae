"""JSON web tokens as a token endpoint reads them: their signature and claims."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)


def private_key(algorithm: str) -> rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey:
    """A key for RS256 or ES256."""
    if algorithm == "RS256":
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return ec.generate_private_key(ec.SECP256R1())


def pem_of(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, passphrase: str | None = None) -> bytes:
    """The key in PEM form, PKCS 8."""
    lock = BestAvailableEncryption(passphrase.encode()) if passphrase else NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock)


def claims_of(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and claims of a JSON web token."""
    header, claims = (json.loads(_decode(part)) for part in token.split(".")[:2])
    return header, claims


def verified(token: str, key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey) -> bool:
    """Whether it was signed with that key, and is valid now."""
    signed, _, signature = token.rpartition(".")
    try:
        if isinstance(key, rsa.RSAPublicKey):
            key.verify(_decode(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        else:
            raw = _decode(signature)
            der = encode_dss_signature(int.from_bytes(raw[:32]), int.from_bytes(raw[32:]))
            key.verify(der, signed.encode(), ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError):
        return False
    _, claims = claims_of(token)
    return bool(claims["nbf"] <= time.time() < claims["exp"])


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
