"""Translates configs with librdkafka's names, as confluent-kafka takes them, into this producer's.

Names that librdkafka shares with the Java client keep their meaning; `aioproducer.config.librdkafka_table` maps the
others.

Source: librdkafka's CONFIGURATION.md.
"""

from __future__ import annotations

import asyncio
import difflib
import inspect
import logging
import math
import os
import re
from collections.abc import Awaitable, Callable, Container, Mapping
from pathlib import Path
from typing import Any

from aioproducer.config.definition import check_mapping, check_path
from aioproducer.config.librdkafka_table import CONSUMERS, HINTS, IGNORED, REFUSED, RENAMED, SETTLED
from aioproducer.config.table import CONFIGS
from aioproducer.config.values import BOOLEAN, takes, with_ports
from aioproducer.errors import AuthenticationError, ConfigError
from aioproducer.oauth_token import OAuthToken
from aioproducer.partitioners import LIBRDKAFKA, anywhere, consistent_random, fnv1a_random, murmur2_random
from aioproducer.records import PartitionInfo

logger: logging.Logger = logging.getLogger("aioproducer.config")

_LEVELS = {"gzip": "compression_gzip_level", "lz4": "compression_lz4_level", "zstd": "compression_zstd_level"}
_LZ4_LEVELS = {"0": 9, "1": 9, "2": 9, "9": 10}
"""For librdkafka, as for lz4 itself, levels below 3 are the fast compressor. Here that is 9; lz4's own 9 becomes 10."""
_FILES = {"ssl.certificate.location", "ssl.key.location"}
_SERIALIZERS = {"key.serializer", "value.serializer"}
_IN_JAAS = {"sasl.kerberos.keytab", "sasl.kerberos.principal", "sasl.oauthbearer.extensions"}
_STICKY_MS = "sticky.partitioning.linger.ms"
_STICKING = (consistent_random, murmur2_random, fnv1a_random)
"""Partitioners by which records without a key stay with a partition; by the others they never do."""
_UNLIMITED_MS = 2_147_483_647
_MAX_IN_FLIGHT = 1_000_000
"""librdkafka's default, which an idempotent producer can't use."""
_SMALLER_COUNTS = "metadata_max_age_ms"
"""librdkafka refreshes metadata at an interval, and lets it expire by age: the shorter of the two times counts."""
_DEFINITIONS = {definition.name: definition for definition in CONFIGS}
_ALIASES = {definition.alias for definition in CONFIGS}


def translate(configs: Mapping[str, Any]) -> dict[str, Any]:
    """This producer's configs for librdkafka's.

    PEM files of a client's certificate and key are read immediately. Consumer configs are left out with a warning.

    Args:
        configs: by librdkafka's names, as text or Python values. Configs not given keep this producer's defaults,
            except the partitioner: keys go where librdkafka puts them.
    Raises:
        ConfigError: a config can't be translated; it says what to do instead.
    """
    given = _with_topic_configs(configs)
    _refuse(given)
    _tell("left out, as they are for consumers: %s", logging.WARNING, given, CONSUMERS)
    _tell("ignored, as they have no meaning here: %s", logging.INFO, given, IGNORED)
    ours: dict[str, Any] = {"partitioner_class": _partitioner("consistent_random")}
    names: dict[str, str] = {}
    for name, value in given.items():
        if name in IGNORED or name in CONSUMERS or name in SETTLED:
            continue
        for own, converted in _converted(name, value, given):
            if own in names and own != _SMALLER_COUNTS:
                raise ConfigError(f"{names[own]} and {name} are two names of one config: give one")
            _check(name, own, converted)
            if own in names:
                converted = min(int(ours[own]), int(converted))
            names[own] = name
            ours[own] = converted
    _scatter(ours, given)
    _add_login_options(ours, given)
    _leave_out_login(ours, names)
    _name_kerberos_service(ours)
    _fit_request_timeout(ours)
    return {name: value for name, value in ours.items() if value is not None}


def _with_topic_configs(configs: Mapping[str, Any]) -> dict[str, Any]:
    check_mapping(configs)
    given = dict(configs)
    of_topics = given.pop("default.topic.config", {})
    if not isinstance(of_topics, Mapping):
        raise ConfigError(f"default.topic.config={of_topics!r} is refused; allowed: a mapping of configs")
    return given | dict(of_topics)


def _refuse(given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        if not isinstance(name, str):
            raise ConfigError(f"config names are strings, not {name!r}")
        if name in REFUSED:
            raise ConfigError(f"config {name} of librdkafka is not accepted: {REFUSED[name]}")
        if name in SETTLED:
            values, instead = SETTLED[name]
            if str(value).lower() not in map(str.lower, values):
                raise ConfigError(f"{name}={value} is not taken: {instead}")
    if "sasl.oauthbearer.config" in given and "oauth_cb" not in given:
        raise ConfigError("sasl.oauthbearer.config needs oauth_cb, which receives it")


def _tell(message: str, level: int, given: Mapping[str, Any], names: Container[str]) -> None:
    named = sorted(name for name in given if name in names)
    if named:
        logger.log(level, message, ", ".join(named))


def _fit_request_timeout(ours: dict[str, Any]) -> None:
    """Lower the request timeout to the records' lifetime: librdkafka uses the smaller limit, here they must fit."""
    if "delivery_timeout_ms" in ours:
        delivery_ms, linger_ms, request_ms = (
            int(ours.get(name, _DEFINITIONS[name].default))
            for name in ("delivery_timeout_ms", "linger_ms", "request_timeout_ms")
        )
        ours["request_timeout_ms"] = max(1, min(request_ms, delivery_ms - linger_ms))


def _converted(name: str, value: Any, given: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Our names and values for one of theirs; a value that can't be converted stays unchanged, to be refused later."""
    own = RENAMED.get(name, name.replace(".", "_"))
    if name in _FILES:
        return [(own, _read(name, value))]
    if name == "ssl.keystore.location":
        return [(own, value), ("ssl_keystore_type", "PKCS12")] if value else []
    if name in _SERIALIZERS:
        _check_serializer(name, value)
        return [(own, value)]
    if name == "compression.level":
        return _level(value, given)
    if name == "oauth_cb":
        return [(own, _token_provider(value, str(given.get("sasl.oauthbearer.config", ""))))]
    if name in _IN_JAAS or name in ("sasl.oauthbearer.config", "sasl.oauthbearer.method", _STICKY_MS):
        return []  # they belong to other configs, which also decide between the two methods of OAUTHBEARER
    convert = _CONVERSIONS.get(name)
    if convert is None and own in _DEFINITIONS and _DEFINITIONS[own].type is BOOLEAN:
        convert = _boolean
    try:
        return [(own, value if convert is None else convert(value))]
    except ConfigError:
        raise
    except (ValueError, TypeError, OverflowError):
        return [(own, value)]


def _check(name: str, own: str, value: Any) -> None:
    """Check a value, or a name; errors use the name that was given."""
    if own in _DEFINITIONS:
        try:
            _DEFINITIONS[own].parse(value)
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from None
    elif own not in _ALIASES:
        nearest = difflib.get_close_matches(name, (*RENAMED, *HINTS), n=1)
        if nearest:
            raise ConfigError(f"config {name} is unknown: the nearest known name is {nearest[0]}")


def _read(name: str, path: Any) -> str:
    check_path(name, path)
    try:
        return Path(os.fspath(path)).read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"{name}={path!r} can't be read: {error.strerror}") from error
    except (TypeError, ValueError):
        raise ConfigError(f"{name}={path!r} is not a file of PEM text") from None


def _level(value: Any, given: Mapping[str, Any]) -> list[tuple[str, Any]]:
    codec = str(given.get("compression.type", given.get("compression.codec", "none"))).lower()
    if codec not in _LEVELS or str(value) == "-1":
        return []
    return [(_LEVELS[codec], _LZ4_LEVELS.get(str(value).strip(), value) if codec == "lz4" else value)]


def _partitioner(name: Any) -> Any:
    if name not in LIBRDKAFKA:
        raise ConfigError(f"partitioner={name!r} is refused; allowed: {', '.join(sorted(LIBRDKAFKA))}")
    return LIBRDKAFKA[name]


def _scatter(ours: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Let every record without a key go anywhere, if the program has turned off librdkafka's sticky partitions."""
    try:
        is_sticky = int(given.get(_STICKY_MS, 1)) != 0
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"{_STICKY_MS}={given[_STICKY_MS]!r} is refused; allowed: milliseconds") from None
    choose = ours["partitioner_class"]
    if is_sticky or choose not in _STICKING:
        return

    def scattered(topic: str, key: bytes | None, value: bytes | None, partitions: tuple[PartitionInfo, ...]) -> Any:
        return (anywhere if key is None else choose)(topic, key, value, partitions)

    ours["partitioner_class"] = scattered


def _check_serializer(name: str, serializer: Any) -> None:
    """confluent-kafka's are called with a value and its context, which here nothing makes."""
    kind = type(serializer)
    if kind.__module__.startswith("confluent_kafka.schema_registry."):
        raise ConfigError(
            f"{name} is confluent-kafka's {kind.__name__}, which needs a SerializationContext: "
            "give one of aioproducer.integrations.schema_registry"
        )


def _token_provider(callback: Any, config: str) -> Callable[[], Awaitable[OAuthToken]]:
    """confluent-kafka's callback gives (token, expiry in seconds, principal, extensions), and is async or may block."""
    if not takes(callback, 1):
        raise ConfigError(f"oauth_cb={callback!r} is refused; allowed: function of sasl.oauthbearer.config")

    async def provide() -> OAuthToken:
        is_async = inspect.iscoroutinefunction(callback)
        answer = callback(config) if is_async else await asyncio.to_thread(callback, config)
        if inspect.isawaitable(answer):
            answer = await answer
        try:
            token, expires_s, *more = answer if isinstance(answer, (tuple, list)) else ()
            expires_at_ms = int(float(expires_s) * 1000)
        except (TypeError, ValueError, OverflowError):
            raise AuthenticationError(
                "oauth_cb has to return (token, expiry in seconds since the epoch), and maybe principal and extensions"
            ) from None
        return OAuthToken(token, expires_at_ms, more[1] if len(more) > 1 else {})

    return provide


def _add_login_options(ours: dict[str, Any], given: Mapping[str, Any]) -> None:
    """In Java these are options in ``sasl.jaas.config``, for the mechanism they belong to."""
    mechanism = ours.get("sasl_mechanism", _DEFINITIONS["sasl_mechanism"].default)
    keytab, principal = given.get("sasl.kerberos.keytab"), given.get("sasl.kerberos.principal")
    if mechanism == "GSSAPI" and keytab:
        module = "Krb5LoginModule"
        options = {"useKeyTab": "true", "keyTab": str(keytab), "principal": str(principal or "kafkaclient")}
    elif mechanism == "GSSAPI" and principal:
        module, options = "Krb5LoginModule", {"principal": str(principal)}
    elif mechanism == "OAUTHBEARER" and "oauth_cb" not in given and given.get("sasl.oauthbearer.extensions"):
        module, options = "OAuthBearerLoginModule", _extensions(str(given["sasl.oauthbearer.extensions"]))
    else:
        return
    if "sasl_jaas_config" in ours:
        raise ConfigError("sasl.jaas.config contradicts configs of librdkafka that say the same: give one")
    quoted = [f'{name}="{_escaped(value)}"' for name, value in options.items()]
    ours["sasl_jaas_config"] = f"{module} required {' '.join(quoted)};"


def _leave_out_login(ours: dict[str, Any], names: Mapping[str, str]) -> None:
    """Leave out a login that the protocol does not need; librdkafka ignores it, so one mapping may serve both."""
    protocol = str(ours.get("security_protocol", _DEFINITIONS["security_protocol"].default))
    unused = [] if protocol.startswith("SASL") else [own for own in ours if own.startswith("sasl_")]
    for own in unused:
        del ours[own]
    if unused:
        told = ", ".join(sorted(names.get(own, own) for own in unused))
        logger.warning("left out, as security.protocol=%s needs no login: %s", protocol, told)


def _name_kerberos_service(ours: dict[str, Any]) -> None:
    """It is ``kafka`` by librdkafka's default; in Java it has to be given, here or in ``sasl.jaas.config``."""
    needs_login = str(ours.get("security_protocol")).startswith("SASL")
    mechanism = ours.get("sasl_mechanism", _DEFINITIONS["sasl_mechanism"].default)
    is_named = "serviceName" in str(ours.get("sasl_jaas_config"))
    if needs_login and mechanism == "GSSAPI" and not is_named:
        ours.setdefault("sasl_kerberos_service_name", "kafka")


def _extensions(text: str) -> dict[str, str]:
    pairs = [re.fullmatch(r"\s*([A-Za-z]+)=([^,]+)", part) for part in text.split(",")]
    if None in pairs:
        raise ConfigError("sasl.oauthbearer.extensions is refused; allowed: name=value, several separated by commas")
    return {f"extension_{pair[1]}": pair[2] for pair in pairs if pair}


def _escaped(value: str) -> str:
    return re.sub(r'(["\\])', r"\\\1", value)


def _boolean(value: Any) -> Any:
    """librdkafka accepts these forms too."""
    return {"1": True, "t": True, "0": False, "f": False}.get(str(value).lower(), value)


def _lower(value: Any) -> Any:
    """librdkafka takes the names of values in upper and lower case."""
    return value.lower() if isinstance(value, str) else value


def _or_system(value: Any) -> Any:
    return -1 if int(value) == 0 else value


def _or_never(value: Any) -> Any:
    return _UNLIMITED_MS if int(value) == 0 else value


def _in_flight(value: Any) -> Any:
    return _DEFINITIONS["max_in_flight_requests_per_connection"].default if int(value) == _MAX_IN_FLIGHT else value


def _whole_ms(value: Any) -> int:
    """librdkafka allows fractions of a millisecond; what is above 0 there stays above 0 here."""
    number = float(value)
    return max(1, round(number)) if number > 0 else math.floor(number)


_GRANTS = {
    "client_credentials": "DefaultJwtRetriever",
    "urn:ietf:params:oauth:grant-type:jwt-bearer": "JwtBearerJwtRetriever",
}


def _grant(value: Any) -> str:
    try:
        return _GRANTS[_lower(value)]
    except (KeyError, TypeError):
        raise ConfigError(f"sasl.oauthbearer.grant.type={value} is refused; allowed: {', '.join(_GRANTS)}") from None


def _servers(value: Any) -> str:
    return ",".join(with_ports(str.split(value, ",")))


_CONVERSIONS: Mapping[str, Callable[[Any], Any]] = {
    "acks": _lower,
    "bootstrap.servers": _servers,
    "client.dns.lookup": _lower,
    "compression.codec": _lower,
    "compression.type": _lower,
    "connections.max.idle.ms": lambda value: -1 if int(value) == 0 else value,
    "delivery.timeout.ms": _or_never,
    "linger.ms": _whole_ms,
    "max.in.flight": _in_flight,
    "max.in.flight.requests.per.connection": _in_flight,
    "message.timeout.ms": _or_never,
    "metadata.broker.list": _servers,
    "partitioner": _partitioner,
    "queue.buffering.max.kbytes": lambda value: int(value) * 1024,
    "queue.buffering.max.ms": _whole_ms,
    "request.required.acks": _lower,
    "sasl.oauthbearer.grant.type": _grant,
    "security.protocol": lambda value: str(value).upper(),
    "socket.receive.buffer.bytes": _or_system,
    "socket.send.buffer.bytes": _or_system,
    "ssl.ca.location": lambda value: None if value == "probe" else value,  # the system's, without a config
    "ssl.endpoint.identification.algorithm": lambda value: "" if _lower(value) == "none" else value,
    "topic.metadata.refresh.interval.ms": lambda value: _UNLIMITED_MS if int(value) in (-1, 0) else value,
}
