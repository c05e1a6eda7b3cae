"""Translates the configs for TLS versions and ciphers for OpenSSL, and checks which configs go together. Pure."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable, Mapping
from typing import Any

from aioproducer.errors import ConfigError
from aioproducer.extras import check_package

VERSIONS = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}

_TLS_1_3_SUITES = (
    "TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_CCM_SHA256",
    "TLS_AES_128_CCM_8_SHA256",
)  # fmt: skip

_STORES = ("ssl_truststore", "ssl_keystore")
_FROM_JKS = "keytool -importkeystore -srckeystore {store} -destkeystore {name}.p12 -deststoretype PKCS12"


def is_pkcs12(store_type: str) -> bool:
    """Whether a store is in PKCS 12 format; else it is PEM."""
    return store_type.upper() == "PKCS12"


def check_tls(values: Mapping[str, Any], given: Iterable[str]) -> None:
    """Refuse TLS configs that contradict each other.

    Raises:
        ConfigError: with the names and what to change.
    """
    given = set(given)
    if "ssl_context" in given:
        others = sorted(name for name in given if name.startswith("ssl_") and name != "ssl_context")
        if others:
            raise ConfigError(f"ssl_context contradicts {', '.join(others)}: it sets all of that itself")
    for location, text in (
        ("ssl_truststore_location", "ssl_truststore_certificates"),
        ("ssl_keystore_location", "ssl_keystore_key"),
        ("ssl_keystore_location", "ssl_keystore_certificate_chain"),
    ):
        if values[location] and values[text] is not None:
            raise ConfigError(f"{location} contradicts {text}: give a file or PEM text, not both")
    pair = ("ssl_keystore_key", "ssl_keystore_certificate_chain")
    for one, other in (pair, pair[::-1]):
        if values[one] is not None and values[other] is None:
            raise ConfigError(f"{one} needs {other} too")
    for store in _STORES:
        _check_store(store, values)
    if values["ssl_endpoint_identification_algorithm"].lower() not in ("https", ""):
        algorithm = values["ssl_endpoint_identification_algorithm"]
        raise ConfigError(f"ssl_endpoint_identification_algorithm={algorithm!r} is refused; allowed: https, or empty")
    version_limits(values["ssl_enabled_protocols"], values["ssl_protocol"], values["ssl_cipher_suites"])


def _check_store(store: str, values: Mapping[str, Any]) -> None:
    kind, location, password = (values[f"{store}_{part}"] for part in ("type", "location", "password"))
    if is_pkcs12(kind):
        _check_pkcs12(store, location, password, values["ssl_key_password"])
        return
    suffix = os.path.splitext(location or "")[1].lower()
    if kind.upper() != "PEM" or suffix in (".jks", ".keystore"):
        command = _FROM_JKS.format(store=location or "STORE", name=store.removeprefix("ssl_"))
        raise ConfigError(
            f"{store}_type={kind}, {store}_location={location!r}: allowed are PEM and PKCS12, as only the JVM can read "
            f"JKS. Stores made by keytool since Java 9 are mostly PKCS12, whatever their names. Else convert: {command}"
        )
    if suffix in (".p12", ".pfx"):
        raise ConfigError(f"{store}_location={location!r} does not look like PEM: set {store}_type=PKCS12")
    if password is not None and values["security_protocol"].endswith("SSL"):
        instead = "; ssl_key_password opens an encrypted key" if store == "ssl_keystore" else ""
        raise ConfigError(f"{store}_password is for {store}_type=PKCS12, which is {kind}{instead}")


def _check_pkcs12(store: str, location: str | None, password: str | None, key_password: str | None) -> None:
    if not location:
        raise ConfigError(f"{store}_type=PKCS12 needs {store}_location: only PEM can be given as text")
    check_package(f"{store}_type=PKCS12", "cryptography", "pkcs12")
    if store == "ssl_keystore" and password is not None and key_password not in (None, password):
        raise ConfigError("ssl_key_password differs from ssl_keystore_password: a PKCS12 store has one password")


def version_limits(
    enabled: tuple[str, ...], newest: str, suites: tuple[str, ...]
) -> tuple[ssl.TLSVersion, ssl.TLSVersion]:
    """The oldest and newest TLS versions to use.

    Args:
        enabled, newest, suites: ``ssl_enabled_protocols``, ``ssl_protocol`` and ``ssl_cipher_suites``.
    Raises:
        ConfigError: they leave no version, or skip one in between.
    """
    unknown = [name for name in (*enabled, newest) if name not in VERSIONS and name != "TLS"]
    if unknown or not enabled or "TLS" in enabled:
        shown = f"ssl_enabled_protocols={','.join(enabled)}, ssl_protocol={newest}"
        raise ConfigError(f"{shown} is refused; allowed: {', '.join(VERSIONS)}")
    allowed = [name for name in VERSIONS if name in enabled and (newest == "TLS" or name <= newest)]
    if suites:
        named = {suite in _TLS_1_3_SUITES for suite in suites}
        allowed = [name for name in allowed if (name == "TLSv1.3") in named]
    if not allowed:
        raise ConfigError(
            f"no version of TLS is left by ssl_enabled_protocols={','.join(enabled)}, ssl_protocol={newest} and "
            f"ssl_cipher_suites={','.join(suites)}"
        )
    first, last = (list(VERSIONS).index(name) for name in (allowed[0], allowed[-1]))
    if last - first + 1 != len(allowed):
        raise ConfigError(f"ssl_enabled_protocols={','.join(enabled)} is refused: it leaves out a version in between")
    return VERSIONS[allowed[0]], VERSIONS[allowed[-1]]


def cipher_string(suites: Iterable[str]) -> str:
    """The suites up to TLS 1.2 by OpenSSL's names, from Java's names or OpenSSL's; empty if there are none."""
    return ":".join(_openssl_name(suite) for suite in suites if suite not in _TLS_1_3_SUITES)


def allowed_suites(suites: Iterable[str]) -> frozenset[str]:
    """The TLS 1.3 suites among them."""
    return frozenset(suites) & frozenset(_TLS_1_3_SUITES)


def _openssl_name(suite: str) -> str:
    """OpenSSL calls ``TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`` ``ECDHE-RSA-AES128-GCM-SHA256``."""
    if not suite.startswith("TLS_") or "_WITH_" not in suite:
        return suite
    exchange, cipher = suite.removeprefix("TLS_").split("_WITH_", 1)
    for bits in ("128", "256"):
        cipher = cipher.replace(f"AES_{bits}", f"AES{bits}")
    cipher = cipher.replace("_CBC", "").replace("POLY1305_SHA256", "POLY1305")
    return "-".join([*(exchange.split("_") if exchange != "RSA" else ()), *cipher.split("_")])
