"""Assertions: JSON web tokens, signed with this client's own key, that prove its identity to a token endpoint.

    from                                      header       payload
    ----------------------------------------  -----------  ------------------
    sasl_oauthbearer_assertion_claim_...                   aud, iss, sub
    sasl_oauthbearer_assertion_template_file  its header   its payload
    made here                                 alg, typ     iat, exp, nbf, jti

If several give the same claim, the lower one wins. Source: RFC 7523, KIP-1139, and Kafka's DefaultAssertionCreator.
"""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from aioproducer.bare_errors import raises_bare
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import AuthenticationError
from aioproducer.net import pem
from aioproducer.net.sasl.jwt_file import read_text

_KEY_FILE = "sasl_oauthbearer_assertion_private_key_file"
_PASSPHRASE = "sasl_oauthbearer_assertion_private_key_passphrase"
_TEMPLATE_FILE = "sasl_oauthbearer_assertion_template_file"
_ALGORITHM = "sasl_oauthbearer_assertion_algorithm"


@raises_bare(AuthenticationError)
def signed_assertion(config: ProducerConfig) -> str:
    """A new assertion. Blocking: key and template are read each time, as they may be renewed.

    Raises:
        AuthenticationError: key or template can't be used; the message names the config.
    """
    header, payload = _template(config)
    now_s = int(time.time())
    payload |= {
        "iat": now_s,
        "exp": now_s + config.sasl_oauthbearer_assertion_claim_exp_seconds,
        "nbf": now_s - config.sasl_oauthbearer_assertion_claim_nbf_seconds,
    }
    if config.sasl_oauthbearer_assertion_claim_jti_include:
        payload["jti"] = str(uuid.uuid4())
    algorithm = config.sasl_oauthbearer_assertion_algorithm
    header |= {"alg": algorithm, "typ": "JWT"}
    try:
        return jwt.encode(payload, _key(config), algorithm, headers=header)
    except (TypeError, ValueError, jwt.PyJWTError) as error:
        # Claims from configs and the clock are always valid, so the template is at fault.
        raise AuthenticationError(
            f"{_TEMPLATE_FILE}: {config.sasl_oauthbearer_assertion_template_file} can't be signed: {error}"
        ) from None


def _template(config: ProducerConfig) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parts of header and payload that come from the configs."""
    header: dict[str, Any] = {}
    claims = {
        "aud": config.sasl_oauthbearer_assertion_claim_aud,
        "iss": config.sasl_oauthbearer_assertion_claim_iss,
        "sub": config.sasl_oauthbearer_assertion_claim_sub,
    }
    payload: dict[str, Any] = {name: value for name, value in claims.items() if value is not None}
    path = config.sasl_oauthbearer_assertion_template_file
    if path is None:
        return header, payload
    try:
        template = json.loads(read_text(path, _TEMPLATE_FILE))
        return header | template.get("header", {}), payload | template.get("payload", {})
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise AuthenticationError(
            f"{_TEMPLATE_FILE}: {path} is not a JSON object with objects header and payload"
        ) from None


def _key(config: ProducerConfig) -> RSAPrivateKey | EllipticCurvePrivateKey:
    path, passphrase = (
        config.sasl_oauthbearer_assertion_private_key_file or "",
        config.sasl_oauthbearer_assertion_private_key_passphrase,
    )
    where = f"{_KEY_FILE}: {path}"
    text = next((block for kind, block in pem.blocks(read_text(path, _KEY_FILE)) if kind.endswith("PRIVATE KEY")), None)
    if text is None:
        raise AuthenticationError(f"{where} holds no private key in PEM form (-----BEGIN PRIVATE KEY-----)")
    if "OPENSSH" in text[:40]:
        raise AuthenticationError(
            f"{where} holds a key in OpenSSH format: ssh-keygen -p -m PKCS8 -f {path} makes it PEM"
        )
    encrypted = "ENCRYPTED" in text[:200]
    if encrypted and not passphrase:
        raise AuthenticationError(f"{where} holds an encrypted key: set {_PASSPHRASE}")
    try:
        key = load_pem_private_key(text.encode(), passphrase.encode() if encrypted and passphrase else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        reason = f"{_PASSPHRASE} does not open it, or it is damaged" if encrypted else "it is damaged"
        raise AuthenticationError(f"{where} holds a key that can't be read: {reason}") from None
    if config.sasl_oauthbearer_assertion_algorithm == "RS256":
        if isinstance(key, RSAPrivateKey):
            return key
    elif isinstance(key, EllipticCurvePrivateKey) and isinstance(key.curve, SECP256R1):
        return key
    raise AuthenticationError(
        f"{where} holds no key for {_ALGORITHM}={config.sasl_oauthbearer_assertion_algorithm}: RS256 needs an RSA key, "
        "ES256 one of the curve P-256"
    )
