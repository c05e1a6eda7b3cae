"""Configs by librdkafka's names, as confluent-kafka takes them, in this producer's.

Names that librdkafka shares with the Java client keep their meaning; the tables here say what becomes of the others.

Source: librdkafka's CONFIGURATION.md.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from aioproducer.config_table import CONFIGS
from aioproducer.errors import ConfigError
from aioproducer.oauth_token import OAuthToken
from aioproducer.partitioners import LIBRDKAFKA

logger: logging.Logger = logging.getLogger("aioproducer.config")

RENAMED: Mapping[str, str] = MappingProxyType(
    {
        "metadata.broker.list": "bootstrap_servers",
        "message.max.bytes": "max_request_size",
        "max.in.flight": "max_in_flight_requests_per_connection",
        "socket.timeout.ms": "request_timeout_ms",
        "socket.send.buffer.bytes": "send_buffer_bytes",
        "socket.receive.buffer.bytes": "receive_buffer_bytes",
        "socket.connection.setup.timeout.ms": "socket_connection_setup_timeout_ms",
        "topic.metadata.refresh.interval.ms": "metadata_max_age_ms",
        "message.timeout.ms": "delivery_timeout_ms",
        "message.send.max.retries": "retries",
        "request.required.acks": "acks",
        "queue.buffering.max.ms": "linger_ms",
        "queue.buffering.max.kbytes": "buffer_memory",
        "compression.codec": "compression_type",
        "compression.level": "compression_gzip_level, compression_lz4_level or compression_zstd_level",
        "partitioner": "partitioner_class",
        "sasl.mechanisms": "sasl_mechanism",
        "oauth_cb": "sasl_oauth_token_provider",
        "ssl.ca.location": "ssl_truststore_location",
        "ssl.ca.pem": "ssl_truststore_certificates",
        "ssl.certificate.location": "ssl_keystore_certificate_chain",
        "ssl.certificate.pem": "ssl_keystore_certificate_chain",
        "ssl.key.location": "ssl_keystore_key",
        "ssl.key.pem": "ssl_keystore_key",
        "sasl.oauthbearer.client.id": "sasl_oauthbearer_client_credentials_client_id",
        "sasl.oauthbearer.client.secret": "sasl_oauthbearer_client_credentials_client_secret",
    }
)
"""librdkafka's name, and ours."""

_NO_THREADS = "there are no threads and queues of a library to be set up"
_LOGGING = "set the levels of Python's loggers below aioproducer"
IGNORED: Mapping[str, str] = MappingProxyType(
    {
        "allow.auto.create.topics": "the broker decides",
        "api.version.fallback.ms": "versions are always asked for",
        "api.version.request": "versions are always asked for",
        "api.version.request.timeout.ms": "it is part of setting up a connection",
        "batch.num.messages": "batches are bounded by batch_size alone",
        "broker.address.ttl": "names are resolved at each connect",
        "broker.version.fallback": "versions are always asked for",
        "client.rack": "it is for consumers",
        "debug": _LOGGING,
        "delivery.report.only.error": "Deliveries tell both",
        "enable.background": _NO_THREADS,
        "enable.gapless.guarantee": "a batch that failed is never skipped silently: its records tell",
        "enable.random.seed": _NO_THREADS,
        "enable.ssl.certificate.verification": "certificates are verified",
        "error_cb": "errors come with the record, in on_error, and in the log",
        "internal.termination.signal": _NO_THREADS,
        "log.connection.close": _LOGGING,
        "log.queue": _LOGGING,
        "log.thread.name": _LOGGING,
        "log_level": _LOGGING,
        "logger": _LOGGING,
        "message.copy.max.bytes": "records are always copied",
        "queue.buffering.backpressure.threshold": "requests go out as soon as a broker takes one",
        "queue.buffering.max.messages": "the buffer is bounded by buffer_memory alone",
        "queuing.strategy": "records of a partition go out in order",
        "receive.message.max.bytes": "an answer's size is bounded by what was asked",
        "request.timeout.ms": "socket.timeout.ms is both: how long a broker waits for others, and this client for it",
        "socket.blocking.max.ms": _NO_THREADS,
        "socket.keepalive.enable": "idle connections are closed by connections_max_idle_ms",
        "socket.max.fails": "a request that is not answered in time ends its connection",
        "socket.nagle.disable": "it is always so",
        "statistics.interval.ms": "metrics() is there at any time",
        "stats_cb": "metrics() is there at any time",
        "sticky.partitioning.linger.ms": "a partition is kept for a batch",
        "throttle_cb": "see produce-throttle-time-avg of metrics()",
        "topic.metadata.propagation.max.ms": "a call waits for an unknown topic for max_block_ms",
        "topic.metadata.refresh.fast.cnt": "metadata are asked for until they are there",
        "topic.metadata.refresh.fast.interval.ms": "retry_backoff_ms does that",
        "topic.metadata.refresh.sparse": "it is always so",
    }
)
"""What has no meaning here, and why; left out with one log line."""

_CONTEXT = "make an ssl.SSLContext and give it as ssl_context"
REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "dr_cb": "give each Delivery a callback: delivery.add_done_callback(fn)",
        "dr_msg_cb": "give each Delivery a callback: delivery.add_done_callback(fn)",
        "on_delivery": "give each Delivery a callback: delivery.add_done_callback(fn)",
        "plugin.library.paths": "plugins of librdkafka can't be loaded; interceptor_classes takes Python objects",
        "sasl.kerberos.keytab": "get the ticket outside: kinit -kt FILE PRINCIPAL",
        "sasl.kerberos.principal": "get the ticket outside: kinit PRINCIPAL",
        "ssl.crl.location": _CONTEXT,
        "ssl.curves.list": _CONTEXT,
        "ssl.engine.location": _CONTEXT,
        "ssl.keystore.location": "make it PEM: openssl pkcs12 -in STORE -out client.pem, and give that file as "
        "ssl.key.location and ssl.certificate.location",
        "ssl.keystore.password": "make the store PEM: openssl pkcs12 -in STORE -out client.pem",
        "ssl.providers": _CONTEXT,
        "ssl.sigalgs.list": _CONTEXT,
    }
)
"""What an application relies on and this producer has by another way."""

_LEVELS = {"gzip": "compression_gzip_level", "lz4": "compression_lz4_level", "zstd": "compression_zstd_level"}
_FILES = {"ssl.certificate.location", "ssl.key.location"}
_UNLIMITED_MS = 2_147_483_647
_DEFAULTS = {definition.name: definition.default for definition in CONFIGS}


def translate(configs: Mapping[str, Any]) -> dict[str, Any]:
    """This producer's configs for librdkafka's.

    PEM files of a client's certificate and key are read, now; what a consumer alone uses must not be among the configs.

    Args:
        configs: by librdkafka's names, as text or Python values. What is not given keeps this producer's default, but
            for the partitioner: keys go where librdkafka puts them.
    Raises:
        ConfigError: a config can't be taken over; it says what to do instead.
    """
    given = dict(configs)
    given |= given.pop("default.topic.config", {})
    for name, hint in REFUSED.items():
        if name in given:
            raise ConfigError(f"config {name} of librdkafka is not taken: {hint}")
    if str(given.get("enable.ssl.certificate.verification", "true")).lower() == "false":
        raise ConfigError(f"enable.ssl.certificate.verification=false is not taken: {_CONTEXT}")
    ignored = sorted(name for name in given if name in IGNORED)
    if ignored:
        logger.info("ignored, as they have no meaning here: %s", ", ".join(ignored))
    ours: dict[str, Any] = {"partitioner_class": _partitioner("consistent_random")}
    names: dict[str, str] = {}
    for name, value in given.items():
        if name in IGNORED:
            continue
        for own, converted in _converted(name, value, given):
            if own in names:
                raise ConfigError(f"{names[own]} and {name} are two names of one config: give one")
            names[own] = name
            ours[own] = converted
    _fit_request_timeout(ours)
    return {name: value for name, value in ours.items() if value is not None}


def _fit_request_timeout(ours: dict[str, Any]) -> None:
    """A request waits no longer than its records may live; there the smaller of two limits counts, here they fit."""
    if "delivery_timeout_ms" in ours:
        values = {**_DEFAULTS, **ours}
        left_ms = int(values["delivery_timeout_ms"]) - int(values["linger_ms"])
        ours["request_timeout_ms"] = max(1, min(int(values["request_timeout_ms"]), left_ms))


def _converted(name: str, value: Any, given: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Our names and values for one of theirs."""
    own = RENAMED.get(name, name.replace(".", "_"))
    if name in _FILES:
        return [(own, _read(name, value))]
    if name == "compression.level":
        return _level(value, given)
    if name == "sasl.oauthbearer.method":
        return []  # which of the two it is follows from what is given for it
    convert = _CONVERSIONS.get(name)
    return [(own, value if convert is None else convert(value))]


def _read(name: str, path: Any) -> str:
    try:
        return Path(os.fspath(path)).read_text()
    except OSError as error:
        raise ConfigError(f"{name}={path!r} can't be read: {error.strerror}") from error


def _level(value: Any, given: Mapping[str, Any]) -> list[tuple[str, Any]]:
    codec = str(given.get("compression.type", given.get("compression.codec", "none")))
    if codec not in _LEVELS or int(value) == -1:
        return []
    return [(_LEVELS[codec], value)]


def _partitioner(name: Any) -> Any:
    if name not in LIBRDKAFKA:
        raise ConfigError(f"partitioner={name!r} is refused; allowed: {', '.join(sorted(LIBRDKAFKA))}")
    # The last is what happens without a partitioner, in compiled code.
    return None if name == "murmur2_random" else LIBRDKAFKA[name]


def _token_provider(callback: Callable[[str], Any]) -> Callable[[], Awaitable[OAuthToken]]:
    """confluent-kafka's callback gives (token, when it ends in seconds since the epoch), and may block."""

    async def provide() -> OAuthToken:
        token, expires_s, *_ = await asyncio.to_thread(callback, "")
        return OAuthToken(token, expires_at_ms=int(expires_s * 1000))

    return provide


def _or_system(value: Any) -> Any:
    return -1 if int(value) == 0 else value


def _or_never(value: Any) -> Any:
    return _UNLIMITED_MS if int(value) == 0 else value


_CONVERSIONS: Mapping[str, Callable[[Any], Any]] = {
    "connections.max.idle.ms": lambda value: -1 if int(value) == 0 else value,
    "delivery.timeout.ms": _or_never,
    "linger.ms": lambda value: round(float(value)),
    "message.timeout.ms": _or_never,
    "oauth_cb": _token_provider,
    "partitioner": _partitioner,
    "queue.buffering.max.kbytes": lambda value: int(value) * 1024,
    "queue.buffering.max.ms": lambda value: round(float(value)),
    "security.protocol": lambda value: str(value).upper(),
    "socket.receive.buffer.bytes": _or_system,
    "socket.send.buffer.bytes": _or_system,
    "ssl.endpoint.identification.algorithm": lambda value: "" if value == "none" else value,
    "topic.metadata.refresh.interval.ms": lambda value: _UNLIMITED_MS if int(value) == -1 else value,
}
