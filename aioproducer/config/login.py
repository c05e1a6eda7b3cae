"""Which configs a SASL mechanism needs, and how ``sasl_jaas_config`` replaces them. Pure."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any
from urllib.parse import urlsplit

from aioproducer.config.jaas import Jaas, parse_jaas
from aioproducer.errors import ConfigError
from aioproducer.extras import check_package

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM")

_MODULES = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
    "GSSAPI": "Krb5LoginModule",
    "AWS_MSK_IAM": "IAMLoginModule",
}
_CREDENTIALS = (("sasl_username", "username"), ("sasl_password", "password"))
"""Configs for PLAIN and SCRAM, and their options in ``sasl_jaas_config``."""
_OIDC = {
    "clientId": "sasl_oauthbearer_client_credentials_client_id",
    "clientSecret": "sasl_oauthbearer_client_credentials_client_secret",
    "scope": "sasl_oauthbearer_scope",
}
_RETRIEVER = "sasl_oauthbearer_jwt_retriever_class"
_URL = "sasl_oauthbearer_token_endpoint_url"
_ASSERTION = "sasl_oauthbearer_assertion_file"
_ASSERTION_KEY = "sasl_oauthbearer_assertion_private_key_file"
ENDPOINT_TLS = "sasl_jaas_config, of TLS to the token endpoint"
_PACKAGES = {
    "SCRAM-SHA-256": ("scramp", "scram"),
    "SCRAM-SHA-512": ("scramp", "scram"),
    "GSSAPI": ("gssapi", "gssapi"),
    "AWS_MSK_IAM": ("aws_msk_iam_sasl_signer", "msk"),
}
"""Module and extra that a mechanism needs."""


def check_login(values: MutableMapping[str, Any]) -> None:
    """Check and complete the login configs, in place.

    Raises:
        ConfigError: one is missing, they contradict each other, or an extra is not installed.
    """
    protocol = values["security_protocol"]
    if not protocol.startswith("SASL"):
        return
    mechanism = values["sasl_mechanism"]
    if mechanism not in MECHANISMS:
        what = f"sasl_mechanism={mechanism!r} is refused" if mechanism else "sasl_mechanism is empty"
        raise ConfigError(f"{what}, but security_protocol={protocol} needs one of {', '.join(MECHANISMS)}")
    jaas = jaas_of(values["sasl_jaas_config"], mechanism)
    if mechanism == "PLAIN" or mechanism.startswith("SCRAM"):
        _check_password(values, mechanism, jaas)
    elif values["sasl_credentials_provider"] is not None:
        raise ConfigError(f"sasl_credentials_provider is for PLAIN and SCRAM, not for sasl_mechanism={mechanism}")
    elif mechanism == "OAUTHBEARER":
        _check_token(values, jaas)
    elif mechanism == "GSSAPI" and not values["sasl_kerberos_service_name"]:
        values["sasl_kerberos_service_name"] = jaas.options.get("serviceName")
        if not values["sasl_kerberos_service_name"]:
            raise ConfigError("sasl_mechanism=GSSAPI needs sasl_kerberos_service_name, most often kafka")
    if mechanism in _PACKAGES:
        check_package(f"sasl_mechanism={mechanism}", *_PACKAGES[mechanism])


def jaas_of(text: str | None, mechanism: str) -> Jaas:
    """The parsed ``sasl_jaas_config``; empty if it is not given.

    Raises:
        ConfigError: it can't be parsed, or is for another mechanism.
    """
    wanted = _MODULES[mechanism]
    if text is None:
        return Jaas(wanted, {})
    jaas = parse_jaas(text)
    if jaas.module != wanted:
        raise ConfigError(f"sasl_jaas_config names {jaas.module}, but sasl_mechanism={mechanism} goes with {wanted}")
    return jaas


def _check_password(values: MutableMapping[str, Any], mechanism: str, jaas: Jaas) -> None:
    if values["sasl_credentials_provider"] is not None:
        _check_sole(values, jaas)
        return
    for name, option in _CREDENTIALS:
        if option in jaas.options:
            if values[name] is not None:
                raise ConfigError(f"{name} contradicts sasl_jaas_config, which has a {option} too")
            values[name] = jaas.options[option]
        if not values[name]:
            raise ConfigError(f"sasl_mechanism={mechanism} needs {name}, or sasl_credentials_provider")
    if mechanism == "PLAIN" and "\0" in values["sasl_username"] + values["sasl_password"]:
        raise ConfigError("sasl_mechanism=PLAIN: sasl_username and sasl_password can't hold the character NUL")


def _check_sole(values: MutableMapping[str, Any], jaas: Jaas) -> None:
    """Check that nothing else names a user: a provider is not just the first to be asked."""
    for name, option in _CREDENTIALS:
        if values[name] is not None:
            raise ConfigError(f"sasl_credentials_provider contradicts {name}: give one")
        if option in jaas.options:
            raise ConfigError(f"sasl_credentials_provider contradicts sasl_jaas_config, which has a {option} too")


def _check_token(values: MutableMapping[str, Any], jaas: Jaas) -> None:
    for option, name in _OIDC.items():
        if option in jaas.options:
            if values[name] is not None:
                raise ConfigError(f"{name} contradicts sasl_jaas_config, which has {option} too")
            values[name] = jaas.options[option].strip()  # as in Java
    url = values[_URL]
    _check_endpoint_tls(url, jaas)
    if values["sasl_oauth_token_provider"] is not None:
        if url:
            raise ConfigError(f"sasl_oauth_token_provider contradicts {_URL}: give one")
        return
    if not url:
        raise ConfigError(
            f"sasl_mechanism=OAUTHBEARER needs sasl_oauth_token_provider, or {_URL} with client id and secret"
        )
    is_file = _check_endpoint(url)
    retriever = values[_RETRIEVER]
    if retriever == "DefaultJwtRetriever":
        retriever = values[_RETRIEVER] = "FileJwtRetriever" if is_file else "ClientCredentialsJwtRetriever"
    if is_file != (retriever == "FileJwtRetriever"):
        raise ConfigError(f"{_RETRIEVER}={retriever} contradicts {_URL}, which is {'' if is_file else 'not '}of a file")
    if is_file:
        return
    if retriever == "JwtBearerJwtRetriever" or _asserts(values):
        values[_OIDC["clientSecret"]] = None  # the assertion takes its place
        _check_assertion(values)
    else:
        for name in (_OIDC["clientId"], _OIDC["clientSecret"]):
            if not values[name]:
                raise ConfigError(f"{_URL} needs {name}")
    check_package(f"sasl_mechanism=OAUTHBEARER with {_URL}", "httpx", "oauth")


def _asserts(values: MutableMapping[str, Any]) -> bool:
    """Whether the client authenticates by an assertion; Kafka's order: one in a file, one signed here, the secret."""
    by_key = values[_ASSERTION_KEY] and not values[_OIDC["clientSecret"]]
    return bool(values[_ASSERTION] or values["sasl_oauthbearer_assertion_claim_iss"] or by_key)


def _check_assertion(values: MutableMapping[str, Any]) -> None:
    if values[_ASSERTION]:
        return
    if not values[_ASSERTION_KEY]:
        raise ConfigError(f"an assertion for OAUTHBEARER needs {_ASSERTION_KEY}, or {_ASSERTION}")
    check_package(f"sasl_mechanism=OAUTHBEARER with {_ASSERTION_KEY}", "jwt", "oauth")
    check_package(f"sasl_mechanism=OAUTHBEARER with {_ASSERTION_KEY}", "cryptography", "oauth")


def endpoint_options(jaas: Jaas) -> dict[str, str]:
    """The ``ssl.*`` options of a login module for OAUTHBEARER; as in Java they concern TLS to the token endpoint."""
    return {option: value for option, value in jaas.options.items() if option.startswith("ssl.")}


def _check_endpoint_tls(url: str | None, jaas: Jaas) -> None:
    options = endpoint_options(jaas)
    if options and not (url or "").lower().startswith("https:"):
        names = ", ".join(options)
        raise ConfigError(f"sasl_jaas_config has {names}, which is for TLS to a token endpoint: {_URL} is not https:")
    if "ssl.cipher.suites" in options:
        raise ConfigError(f"{ENDPOINT_TLS}: ssl.cipher.suites can't be chosen there")
    algorithm = "ssl.endpoint.identification.algorithm"
    if options.get(algorithm, "https").lower() != "https":
        raise ConfigError(f"{ENDPOINT_TLS}: {algorithm} has to be https, as the host name is always checked")


def _check_endpoint(url: str) -> bool:
    """Check the URL; whether it is a file. No part of it is shown, as some contain a password."""
    try:
        parts = urlsplit(url)
        is_file = parts.scheme == "file" and parts.netloc in ("", "localhost") and len(parts.path) > 1
        usable = is_file or (parts.scheme in ("https", "http") and parts.hostname and parts.port != 0)
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(f"{_URL} is refused; allowed: https://host/..., http://host/..., file:///path")
    if is_file and ("?" in url or "#" in url):
        raise ConfigError(f"{_URL} of a file has a ? or # in it: in a file's name they are %3F and %23")
    if "@" in parts.netloc:
        raise ConfigError(f"{_URL} has a user in it: give {_OIDC['clientId']} and {_OIDC['clientSecret']} instead")
    return is_file
