"""ProducerConfig: the configs of one producer, checked, typed and immutable.

`aioproducer.config.table` defines the configs; this module parses values against it and applies the rules that involve
several configs.

Source: Kafka's ProducerConfig, KafkaProducer.configureDeliveryTimeout; KIP-679 (idempotence), KIP-91 (timeouts).
"""

from __future__ import annotations

import difflib
import itertools
import logging
import os
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from aioproducer.config.definition import REQUIRED, ConfigDef, check_mapping
from aioproducer.config.librdkafka_table import RENAMED
from aioproducer.config.login import ENDPOINT_TLS, check_login, endpoint_options, jaas_of
from aioproducer.config.properties import parse_properties
from aioproducer.config.proxy import Proxy, check_proxy
from aioproducer.config.table import CONFIGS, JVM_ONLY, JVM_ONLY_PREFIXES, NEEDLESS, OF_PYTHON_CLIENTS
from aioproducer.config.tls import check_tls
from aioproducer.config.values import UNIFORM_STICKY
from aioproducer.errors import ConfigError
from aioproducer.partitioners import LIBRDKAFKA, BuiltIn
from aioproducer.serializers import Serializer

logger: logging.Logger = logging.getLogger("aioproducer.config")

_BY_NAME = {name: definition for definition in CONFIGS for name in (definition.name, definition.alias) if name}
MAX_NAME_SIZE = 60
"""Characters: more than any config's name has, and less than a line of a key in PEM form."""
_ENCODINGS = ("key.serializer.encoding", "value.serializer.encoding", "serializer.encoding")
_next_client_number = itertools.count(1).__next__


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class ProducerConfig:
    """The configs of one producer, one attribute each, named as in the table; times in ms, sizes in bytes.

    Made by `parse` or `parse_dotted`, which both raise ConfigError with the name, the value and the
    allowed values. The attributes are in the order of the table.
    """

    # Cluster and connections
    bootstrap_servers: tuple[tuple[str, int], ...]
    bootstrap_resolve_timeout_ms: int
    client_id: str
    client_rack: str
    client_dns_lookup: str
    proxy_url: Proxy | None
    request_timeout_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    connections_max_idle_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    metadata_max_age_ms: int
    metadata_max_idle_ms: int
    metadata_recovery_strategy: str
    metadata_recovery_rebootstrap_trigger_ms: int
    metadata_cluster_check_enable: bool
    allow_auto_create_topics: bool
    # Delivery
    acks: int
    enable_idempotence: bool
    max_in_flight_requests_per_connection: int
    retries: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    delivery_timeout_ms: int
    max_block_ms: int
    on_error: Callable[[Any, Any], object] | None
    transactional_id: str | None
    transaction_timeout_ms: int
    transaction_two_phase_commit_enable: bool
    # Batches and memory
    batch_size: int
    linger_ms: int
    buffer_memory: int
    max_request_size: int
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    # Records
    key_serializer: Serializer | None
    value_serializer: Serializer | None
    partitioner_class: Callable[..., int | BuiltIn] | str | None
    partitioner_ignore_keys: bool
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: int
    partitioner_rack_aware: bool
    interceptor_classes: tuple[Any, ...]
    # Metrics
    metrics_num_samples: int
    metrics_sample_window_ms: int
    metrics_recording_level: str
    enable_metrics_push: bool
    # TLS
    security_protocol: str
    ssl_context: ssl.SSLContext | None
    ssl_truststore_location: str | None
    ssl_truststore_certificates: str | None
    ssl_truststore_type: str
    ssl_truststore_password: str | None
    ssl_keystore_location: str | None
    ssl_keystore_key: str | None
    ssl_keystore_certificate_chain: str | None
    ssl_keystore_type: str
    ssl_keystore_password: str | None
    ssl_key_password: str | None
    ssl_endpoint_identification_algorithm: str
    ssl_enabled_protocols: tuple[str, ...]
    ssl_protocol: str
    ssl_cipher_suites: tuple[str, ...]
    # Login (SASL)
    sasl_mechanism: str
    sasl_username: str | None
    sasl_password: str | None
    sasl_credentials_provider: Callable[[], Awaitable[Any]] | None
    sasl_oauth_token_provider: Callable[[], Awaitable[Any]] | None
    sasl_jaas_config: str | None
    sasl_kerberos_service_name: str | None
    sasl_login_connect_timeout_ms: int | None
    sasl_login_read_timeout_ms: int | None
    sasl_login_retry_backoff_ms: int
    sasl_login_retry_backoff_max_ms: int
    sasl_login_refresh_window_factor: float
    sasl_login_refresh_window_jitter: float
    sasl_login_refresh_min_period_seconds: int
    sasl_login_refresh_buffer_seconds: int
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_jwt_retriever_class: str
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: str | None
    sasl_oauthbearer_header_urlencode: bool
    sasl_oauthbearer_assertion_algorithm: str
    sasl_oauthbearer_assertion_claim_aud: str | None
    sasl_oauthbearer_assertion_claim_exp_seconds: int
    sasl_oauthbearer_assertion_claim_iss: str | None
    sasl_oauthbearer_assertion_claim_jti_include: bool
    sasl_oauthbearer_assertion_claim_nbf_seconds: int
    sasl_oauthbearer_assertion_claim_sub: str | None
    sasl_oauthbearer_assertion_file: str | None
    sasl_oauthbearer_assertion_private_key_file: str | None
    sasl_oauthbearer_assertion_private_key_passphrase: str | None
    sasl_oauthbearer_assertion_template_file: str | None

    given: frozenset[str]
    """The names that were given, as opposed to defaults from the table."""

    @property
    def compression_level(self) -> int | None:
        """The level of the chosen codec; None if it has none."""
        level: int | None = getattr(self, f"compression_{self.compression_type}_level", None)
        return level

    @property
    def max_record_bytes(self) -> int:
        """The most bytes of a record, its batch's header included."""
        return min(self.max_request_size, self.buffer_memory)

    @property
    def uses_tls(self) -> bool:
        """Whether connections use TLS."""
        return self.security_protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether connections log in."""
        return self.security_protocol.startswith("SASL")

    def endpoint_tls(self) -> ProducerConfig | None:
        """The TLS options for the token endpoint from ``sasl_jaas_config``, as the configs of the same names.

        Raises:
            ConfigError: it can't be used.
        """
        options = endpoint_options(jaas_of(self.sasl_jaas_config, "OAUTHBEARER"))
        if not options:
            return None
        others = {"bootstrap.servers": "endpoint:443", "client.id": "endpoint", "security.protocol": "SSL"}
        try:
            return self.parse_dotted({**options, **others})
        except ConfigError as error:
            raise ConfigError(f"{ENDPOINT_TLS}: {error}") from None

    @classmethod
    def parse(
        cls, values: Mapping[str, object], *, next_client_number: Callable[[], int] = _next_client_number
    ) -> ProducerConfig:
        """Read configs by their names with ``_``.

        Args:
            values: Python values or Java's strings; None counts as not given if the default is empty.
            next_client_number: for the ``client_id`` of a producer that was given none.
        Raises:
            ConfigError: a name is unknown, a value is not allowed, or values contradict each other.
        """
        typed: dict[str, Any] = {}
        names: dict[str, str] = {}
        for name, value in values.items():
            definition = _definition(name)
            _note_name(names, definition.name, name)
            typed[definition.name] = definition.parse(value)
        given = frozenset(name for name, value in typed.items() if value is not None)
        for definition in CONFIGS:
            typed.setdefault(definition.name, definition.default)
        _apply_rules(typed, given, next_client_number)
        config = cls(**typed, given=given)
        if config.uses_sasl and config.sasl_mechanism == "OAUTHBEARER":
            config.endpoint_tls()
        return config

    @classmethod
    def parse_dotted(
        cls, values: Mapping[str, object], *, next_client_number: Callable[[], int] = _next_client_number
    ) -> ProducerConfig:
        """Read configs by Java's names with dots; names with ``_`` are accepted too."""
        return cls.parse(underscored(values), next_client_number=next_client_number)

    def __repr__(self) -> str:
        """The values that are not the defaults, without secrets."""
        shown = []
        for definition in CONFIGS:
            value = getattr(self, definition.name)
            if value != definition.default:
                shown.append(f"{definition.name}={definition.show(value)}")
        return f"ProducerConfig({', '.join(shown)})"


def underscored(values: Mapping[str, object]) -> dict[str, Any]:
    """Configs by names with ``_``, from names with dots or ``_``. Unknown names stay unchanged, for errors to show.

    Raises:
        ConfigError: a config is given by two names, a name is not a string, or ``values`` is not a mapping.
    """
    check_mapping(values)
    result: dict[str, Any] = {}
    names: dict[str, str] = {}
    for name, value in values.items():
        if not isinstance(name, str):
            _refuse_name(name)
        if name in _ENCODINGS:
            _check_encoding(name, value)
            continue
        definition = _BY_NAME.get(_underscored(name))
        key = definition.name if definition else name
        _note_name(names, key, name)
        result[key] = value
    return result


def read_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """The configs of a Java ``.properties`` file as text, by names with dots, to be parsed alone or with others.

    Names that only mean something to the JVM are left out with one log line.

    Raises:
        OSError: the file can't be read.
        ConfigError: it is not such a file, or a config provider of the JVM would have to fill in a value.
    """
    try:
        text = Path(path).read_text(encoding="latin-1")
        values = {name: value.strip() for name, value in parse_properties(text).items()}
    except ValueError as error:
        raise ConfigError(f"{os.fspath(path)} is not a .properties file: {error}") from error
    _refuse_references(values)
    return without_jvm_only(values, os.fspath(path))


def without_jvm_only(values: Mapping[str, str], whose: str) -> dict[str, str]:
    """The configs without those that only mean something to the JVM, which are named in one log line.

    Args:
        values: by names with dots.
        whose: where they come from, for the log.
    """
    ignored = [name for name in values if _jvm_only_hint(_underscored(name))]
    if ignored:
        logger.info("%s: ignored configs that only a JVM can use: %s", whose, ", ".join(ignored))
    return {name: value for name, value in values.items() if name not in ignored}


# --- names ------------------------------------------------------------------------------------------------------------


def _underscored(name: str) -> str:
    return name.replace(".", "_") if isinstance(name, str) else name


def _note_name(names: dict[str, str], config: str, name: str) -> None:
    """Add the name by which a config was given; it may have only one."""
    if config in names:
        raise ConfigError(f"config {config} is given twice: as {names[config]} and as {name}")
    names[config] = name


def _definition(name: str) -> ConfigDef:
    definition = _BY_NAME.get(name)
    if definition is None:
        _refuse_name(name)
    return definition


def _refuse_name(name: str) -> NoReturn:
    if not isinstance(name, str):
        raise ConfigError(f"config names are strings, not {name!r}")
    underscored = _underscored(name)
    hint = _jvm_only_hint(underscored)
    if hint:
        raise ConfigError(f"config {name} only means something to the JVM: {hint}")
    if underscored in _BY_NAME:
        raise ConfigError(f"config {name} is {underscored} here; Producer.from_config takes names with dots")
    if underscored in OF_PYTHON_CLIENTS:
        raise ConfigError(f"config {name} is {OF_PYTHON_CLIENTS[underscored]} here")
    if underscored in NEEDLESS:
        raise ConfigError(f"config {name} is not needed here, leave it out: {NEEDLESS[underscored]}")
    if (ours := RENAMED.get(underscored.replace("_", "."))) is not None:
        raise ConfigError(
            f"config {name} is librdkafka's, {ours} here; Producer.from_librdkafka_config takes librdkafka's names"
        )
    if len(name) > MAX_NAME_SIZE:
        raise ConfigError(
            f"a config with a name of {len(name)} characters is unknown; it may be part of a value, such as a line "
            "of a key: in a .properties file, a value goes on in the next line only after a backslash"
        )
    nearest = difflib.get_close_matches(underscored.lower(), _BY_NAME, n=1)
    hint = f"the nearest known name is {nearest[0]}" if nearest else "no known name is similar"
    raise ConfigError(f"config {name} is unknown: {hint}")


def _jvm_only_hint(name: str) -> str:
    if name.startswith(JVM_ONLY_PREFIXES):
        return "it is for a plugin of the JVM"
    return JVM_ONLY.get(name, "")


def _check_encoding(name: str, value: object) -> None:
    """Check the encoding meant for Java's StringSerializer; strings are UTF-8 here."""
    if str(value).strip().lower().replace("_", "-") not in ("utf-8", "utf8"):
        raise ConfigError(f"{name}={value!r} is refused; allowed: UTF-8; for another one give a function as serializer")


def _refuse_references(values: Mapping[str, str]) -> None:
    """A password file must not become the password ``${file:...}``."""
    if not values.get("config.providers"):
        return
    for name, value in values.items():
        if re.search(r"\$\{[^}]*:[^}]*\}", value):
            raise ConfigError(
                f"config {name} refers to a config provider, which only a JVM supports: give the value itself"
            )


# --- rules that involve several configs -------------------------------------------------------------------------------


def _apply_rules(values: dict[str, Any], given: AbstractSet[str], next_client_number: Callable[[], int]) -> None:
    """Check and complete the values, in place. Defaults adapt; given values do not, unless above their own maximum."""
    if values["bootstrap_servers"] is REQUIRED:
        raise ConfigError("config bootstrap_servers is missing: name at least one broker as host:port")
    _apply_partitioner(values)
    _apply_idempotence(values, given)
    _check_transactions(values, given)
    _apply_delivery_timeout(values, given)
    _apply_backoffs(values, given)
    check_proxy(values)
    _check_security(values, given)
    _check_supported(values)
    if not values["client_id"]:
        suffix = values["transactional_id"] or next_client_number()
        values["client_id"] = f"producer-{suffix}"


def _apply_partitioner(values: dict[str, Any]) -> None:
    """Replace a class of Java before 4.0 by its successor (KIP-794), a function that is also compiled by its name."""
    given = values["partitioner_class"]
    if given == UNIFORM_STICKY:
        values["partitioner_class"] = None
        values["partitioner_ignore_keys"] = True
    for name, function in LIBRDKAFKA.items():
        if given is function:
            values["partitioner_class"] = None if name == "murmur2_random" else name
    if values["partitioner_rack_aware"] and not values["client_rack"]:
        raise ConfigError("partitioner_rack_aware needs client_rack: the rack, or availability zone, of this program")


def _apply_idempotence(values: dict[str, Any], given: AbstractSet[str]) -> None:
    """``acks`` and ``retries`` turn it off unless it was requested; too many requests in flight never do."""
    if not values["enable_idempotence"]:
        return
    conflicts = []
    if values["retries"] == 0:
        conflicts.append("retries=0 (above 0 is needed)")
    if values["acks"] != -1:
        conflicts.append(f"acks={values['acks']} (all is needed)")
    in_flight = values["max_in_flight_requests_per_connection"]
    if in_flight > 5:
        raise ConfigError(
            f"max_in_flight_requests_per_connection={in_flight} contradicts idempotence, which allows 1 to 5; "
            "set enable_idempotence=False if more are needed"
        )
    if conflicts and "enable_idempotence" in given:
        raise ConfigError(f"enable_idempotence=True contradicts {' and '.join(conflicts)}")
    if conflicts:
        logger.info("idempotence is off because of %s", " and ".join(conflicts))
        values["enable_idempotence"] = False


def _check_transactions(values: dict[str, Any], given: AbstractSet[str]) -> None:
    if values["transactional_id"] is not None and not values["enable_idempotence"]:
        raise ConfigError(
            f"transactional_id={values['transactional_id']!r} contradicts enable_idempotence=False, whether given or "
            "caused by acks or retries"
        )
    if values["transaction_two_phase_commit_enable"] and "transaction_timeout_ms" in given:
        raise ConfigError("transaction_timeout_ms contradicts transaction_two_phase_commit_enable: it never times out")


def _apply_delivery_timeout(values: dict[str, Any], given: AbstractSet[str]) -> None:
    """A record must have time for one linger and one request."""
    least_ms = min(values["linger_ms"] + values["request_timeout_ms"], 2**31 - 1)
    timeout_ms = values["delivery_timeout_ms"]
    if timeout_ms >= least_ms:
        return
    sum_text = f"linger_ms + request_timeout_ms = {values['linger_ms']} + {values['request_timeout_ms']}"
    if "delivery_timeout_ms" in given:
        raise ConfigError(f"delivery_timeout_ms={timeout_ms} is too low: at least {sum_text}")
    logger.warning("delivery_timeout_ms raised from %d to %d: it must be at least %s", timeout_ms, least_ms, sum_text)
    values["delivery_timeout_ms"] = least_ms


def _apply_backoffs(values: dict[str, Any], given: AbstractSet[str]) -> None:
    if "reconnect_backoff_ms" in given and "reconnect_backoff_max_ms" not in given:
        values["reconnect_backoff_max_ms"] = values["reconnect_backoff_ms"]
    for first, bound in (
        ("retry_backoff_ms", "retry_backoff_max_ms"),
        ("reconnect_backoff_ms", "reconnect_backoff_max_ms"),
        ("socket_connection_setup_timeout_ms", "socket_connection_setup_timeout_max_ms"),
    ):
        if values[first] > values[bound]:
            logger.warning("%s=%d is above %s; using %d", first, values[first], bound, values[bound])
            values[first] = values[bound]  # as connecting to bootstrap_servers reads the first alone


def _check_security(values: dict[str, Any], given: AbstractSet[str]) -> None:
    _check_used(values["security_protocol"], given)
    check_tls(values, given)
    check_login(values)


def _check_used(protocol: str, given: AbstractSet[str]) -> None:
    """Refuse security configs that would silently have no effect; for Java's own names, only warn."""
    for begin, used, instead in (
        ("ssl_", protocol.endswith("SSL"), "SSL or SASL_SSL"),
        ("sasl_", protocol.startswith("SASL"), "SASL_SSL or SASL_PLAINTEXT"),
    ):
        names = sorted(name for name in given if name.startswith(begin))
        if used or not names:
            continue
        told = f"{', '.join(names)}: without effect with security_protocol={protocol}; set it to {instead}"
        if any(not _BY_NAME[name].in_java for name in names):
            raise ConfigError(told)
        logger.warning("%s", told)


def _check_supported(values: dict[str, Any]) -> None:
    for definition in CONFIGS:
        value = values[definition.name]
        if not definition.supported and value != definition.default:
            raise ConfigError(
                f"{definition.name}={definition.show(value)} is not supported by this version yet; "
                f"allowed: {definition.default!r}"
            )
