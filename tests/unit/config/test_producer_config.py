"""ProducerConfig: names, values and the rules that join several configs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import logging
import pickle
import re
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer import Producer, partitioners, serializers
from aioproducer.config.producer_config import MAX_NAME_SIZE, ProducerConfig, read_properties
from aioproducer.config.table import CONFIGS, JVM_ONLY, OF_PYTHON_CLIENTS
from aioproducer.errors import ConfigError, KafkaError


def parse(**values: object) -> ProducerConfig:
    return ProducerConfig.parse({"bootstrap_servers": "localhost:9092", **values}, next_client_number=lambda: 7)


def refusal(**values: object) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(**values)
    return str(caught.value)


class Interceptor:
    def on_send(self, record: Any) -> Any:
        return record


class UpperSerializer:
    def serialize(self, topic: str, headers: object, value: str) -> bytes:
        return value.upper().encode()


def partition(topic: str, key: bytes | None, value: bytes | None, partitions: tuple[Any, ...]) -> int:
    return 0


# --- defaults and objects ---------------------------------------------------------------------------------------------


def test_what_is_not_given_has_its_default() -> None:
    config = parse()
    assert config.bootstrap_servers == (("localhost", 9092),)
    assert config.client_id == "producer-7"
    assert (config.acks, config.enable_idempotence, config.linger_ms, config.batch_size) == (-1, True, 5, 520192)
    assert config.given == {"bootstrap_servers"}
    for definition in CONFIGS:
        if definition.name not in ("bootstrap_servers", "client_id"):
            assert getattr(config, definition.name) == definition.default


def test_bootstrap_servers_are_required() -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers is missing"):
        ProducerConfig.parse({})


def test_errors_are_value_errors_and_kafka_errors() -> None:
    with pytest.raises(ValueError, match="linger_ms") as caught:
        parse(linger_ms=-1)
    assert isinstance(caught.value, KafkaError)


def test_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        parse().acks = 0  # type: ignore[misc]


def test_a_config_survives_pickling() -> None:
    config = parse(acks=1, key_serializer=serializers.integer)
    assert pickle.loads(pickle.dumps(config)) == config


def test_client_numbers_count_up_in_the_process() -> None:
    servers = {"bootstrap_servers": "localhost:9092"}
    first, second = ProducerConfig.parse(servers), ProducerConfig.parse_dotted(servers)
    numbers = [int(config.client_id.removeprefix("producer-")) for config in (first, second)]
    assert numbers[1] == numbers[0] + 1


@pytest.mark.parametrize("client_id", ["", None])
def test_empty_client_id_is_replaced(client_id: str | None) -> None:
    assert parse(client_id=client_id).client_id == "producer-7"
    assert parse(client_id="mine").client_id == "mine"


def test_the_source_of_client_numbers_may_be_given() -> None:
    config = ProducerConfig.parse_dotted({"bootstrap.servers": "a:1"}, next_client_number=lambda: 9)
    assert config.client_id == "producer-9"


def test_a_refused_config_uses_no_client_number() -> None:
    def no_number() -> int:
        raise AssertionError

    with pytest.raises(ConfigError):
        ProducerConfig.parse({"bootstrap_servers": "a:1", "linger_ms": -1}, next_client_number=no_number)
    ProducerConfig.parse({"bootstrap_servers": "a:1", "client_id": "mine"}, next_client_number=no_number)


def test_repr_shows_what_differs() -> None:
    assert repr(parse(acks=1)) == (
        "ProducerConfig(bootstrap_servers=(('localhost', 9092),), client_id='producer-7', acks=1, "
        "enable_idempotence=False)"
    )


@pytest.mark.parametrize("name", [definition.name for definition in CONFIGS if definition.secret])
def test_secrets_are_never_shown(name: str, caplog: pytest.LogCaptureFixture) -> None:
    values: dict[str, Any] = {name: "hunter2"}
    shown = repr(dataclasses.replace(parse(), **values))
    assert "hunter2" not in shown
    assert f"{name}=[hidden]" in shown
    with contextlib.suppress(ConfigError):
        parse(**values)
    assert "hunter2" not in caplog.text
    assert "hunter2" not in refusal(**values, security_protocol="SASL_SSL", sasl_mechanism="MAGIC")
    assert "hunter2" not in refusal(**{name: ["hunter2"]})
    assert "hunter2" not in refusal(**{name: "hunter2\udc00"})


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("batch_sise", "batch_size"),
        ("linger", "linger_ms"),
        ("bootstrap_server", "bootstrap_servers"),
        ("compresion_type", "compression_type"),
        ("partitoner", "partitioner"),
        ("request_timeout", "request_timeout_ms"),
        ("LINGER_MS", "linger_ms"),
    ],
)
def test_unknown_name_gives_the_nearest(name: str, nearest: str) -> None:
    assert refusal(**{name: 1}) == f"config {name} is unknown: the nearest known name is {nearest}"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("ssl_cafile", "config ssl_cafile is ssl_truststore_location here"),
        ("ssl_password", "config ssl_password is ssl_key_password here"),
        ("sasl_plain_username", "config sasl_plain_username is sasl_username here"),
        ("socks5_proxy", "config socks5_proxy is proxy_url here"),
        ("receive_message_max_bytes", "config receive_message_max_bytes is not needed here, leave it out: no answer"),
        ("message.timeout.ms", "config message.timeout.ms is librdkafka's, delivery_timeout_ms here; "),
        ("queue_buffering_max_ms", "config queue_buffering_max_ms is librdkafka's, linger_ms here; "),
    ],
)
def test_names_of_other_clients_are_known(name: str, told: str) -> None:
    """The nearest name would mislead: sasl_password is nearer to ssl_password than ssl_key_password."""
    assert refusal(**{name: "s3cret"}).startswith(told)


OTHER_CLIENTS = {
    "aiokafka": (
        "loop bootstrap_servers client_id metadata_max_age_ms request_timeout_ms api_version acks key_serializer "
        "value_serializer compression_type max_batch_size partitioner max_request_size linger_ms retry_backoff_ms "
        "security_protocol ssl_context connections_max_idle_ms enable_idempotence transactional_id "
        "transaction_timeout_ms sasl_mechanism sasl_plain_password sasl_plain_username sasl_kerberos_service_name "
        "sasl_kerberos_domain_name sasl_oauth_token_provider"
    ),
    "kafka-python": (
        "acks allow_auto_create_topics api_version batch_size bootstrap_servers bootstrap_timeout_ms client_dns_lookup "
        "client_id compression_type connections_max_idle_ms delivery_timeout_ms enable_idempotence kafka_client "
        "key_serializer linger_ms max_block_ms max_in_flight_requests_per_connection max_request_size "
        "metadata_max_age_ms metric_reporters metrics_enabled metrics_num_samples metrics_sample_window_ms partitioner "
        "proxy_url receive_buffer_bytes receive_message_max_bytes reconnect_backoff_max_ms reconnect_backoff_ms "
        "request_timeout_ms retries retry_backoff_ms sasl_kerberos_domain_name sasl_kerberos_name "
        "sasl_kerberos_service_name sasl_mechanism sasl_oauth_token_provider sasl_plain_password sasl_plain_username "
        "security_protocol selector send_buffer_bytes socket_options socks5_proxy ssl_cafile ssl_certfile "
        "ssl_check_hostname ssl_ciphers ssl_context ssl_crlfile ssl_keyfile ssl_password transaction_timeout_ms "
        "transactional_id value_serializer"
    ),
}
"""The arguments of AIOKafkaProducer 0.14 and of KafkaProducer 3.0."""


@pytest.mark.parametrize("client", OTHER_CLIENTS)
def test_no_name_of_another_client_is_unknown(client: str) -> None:
    """It would get the nearest name as a hint, which is another config's."""
    told = {name: refusal(**{name: object()}) for name in OTHER_CLIENTS[client].split()}
    assert not [text for text in told.values() if "is unknown" in text]


def test_what_takes_the_place_of_other_names_is_there() -> None:
    for ours in OF_PYTHON_CLIENTS.values():
        names = [word.strip(",") for word in ours.split() if "_" in word]
        assert names
        assert set(names) <= {definition.name for definition in CONFIGS}


def test_a_line_of_a_key_is_not_shown_as_a_name(tmp_path: Path) -> None:
    """It stands there as one if the line before lacks its backslash."""
    path = tmp_path / "producer.properties"
    line = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgs3cret" + 10 * "A"
    path.write_text(f"bootstrap.servers=a:1\nssl.keystore.key=-----BEGIN PRIVATE KEY-----\n{line}\n")
    with pytest.raises(ConfigError, match=r"^a config with a name of 64 characters is unknown; .* only after a backsl"):
        Producer.from_properties(path)
    assert max(len(each.name) for each in CONFIGS) < MAX_NAME_SIZE < len(line)


def test_unknown_name_far_from_all() -> None:
    assert refusal(zzz=1) == "config zzz is unknown: no known name is similar"


def test_names_with_dots_belong_to_from_config() -> None:
    text = refusal(**{"batch.size": 1})
    assert text == "config batch.size is batch_size here; Producer.from_config takes names with dots"


def test_from_config_takes_both_forms() -> None:
    config = ProducerConfig.parse_dotted({"bootstrap.servers": "a:1", "linger_ms": "9", "batch.size": 5})
    assert (config.linger_ms, config.batch_size) == (9, 5)
    assert config.given == {"bootstrap_servers", "linger_ms", "batch_size"}


@pytest.mark.parametrize("configs", ["s3cret", None, ["s3cret"]])
def test_from_config_takes_nothing_but_a_mapping(configs: Any) -> None:
    with pytest.raises(ConfigError, match=r"^configs are a mapping of names to values, not (str|NoneType|list)$"):
        ProducerConfig.parse_dotted(configs)


def test_none_is_not_given() -> None:
    config = parse(sasl_username=None, ssl_truststore_location=None, transactional_id=None)
    assert config.given == {"bootstrap_servers"}


@pytest.mark.parametrize(
    ("configs", "most"),
    [({}, 1_048_576), ({"buffer_memory": 50_000}, 50_000), ({"max_request_size": 9_000}, 9_000)],
)
def test_a_record_has_to_fit_into_a_request_and_the_buffer(configs: dict[str, int], most: int) -> None:
    assert parse(**configs).max_record_bytes == most


def test_from_config_unknown_name_is_shown_as_given() -> None:
    with pytest.raises(ConfigError, match=r"^config batch\.sise is unknown: the nearest known name is batch_size$"):
        ProducerConfig.parse_dotted({"bootstrap.servers": "a:1", "batch.sise": 5})


@pytest.mark.parametrize(
    ("first", "second", "config"),
    [
        ("linger.ms", "linger_ms", "linger_ms"),
        ("linger_ms", "linger.ms", "linger_ms"),
        ("partitioner", "partitioner.class", "partitioner_class"),
    ],
)
def test_given_twice(first: str, second: str, config: str) -> None:
    """The message has both names as they were given: those are the ones to look for."""
    with pytest.raises(ConfigError) as caught:
        ProducerConfig.parse_dotted({"bootstrap.servers": "a:1", first: "5", second: "5"})
    assert str(caught.value) == f"config {config} is given twice: as {first} and as {second}"


def test_given_by_its_two_keywords() -> None:
    text = refusal(partitioner=partition, partitioner_class=partition)
    assert text == "config partitioner_class is given twice: as partitioner and as partitioner_class"


def test_a_rack_aware_partitioner_needs_a_rack() -> None:
    assert refusal(partitioner_rack_aware=True).startswith("partitioner_rack_aware needs client_rack")
    config = ProducerConfig.parse_dotted(
        {"bootstrap.servers": "h:1", "partitioner.rack.aware": "true", "client.rack": "eu-1a"}
    )
    assert (config.partitioner_rack_aware, config.client_rack) == (True, "eu-1a")


@pytest.mark.parametrize("parser", [ProducerConfig.parse, ProducerConfig.parse_dotted])
def test_names_must_be_strings(parser: Any) -> None:
    with pytest.raises(ConfigError, match="config names are strings, not 5"):
        parser({"bootstrap_servers": "a:1", 5: 1})


def test_partitioner_and_interceptors_are_names_of_the_configs_too() -> None:
    interceptor = Interceptor()
    assert parse(partitioner=partition).partitioner_class is partition
    assert parse(interceptors=[interceptor]).interceptor_classes == (interceptor,)


@pytest.mark.parametrize("name", [*JVM_ONLY, "config_providers_file_class", "metrics_context_x"])
def test_names_of_the_jvm_are_refused_with_a_hint(name: str) -> None:
    assert refusal(**{name: "x"}).startswith(f"config {name} only means something to the JVM: ")


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("batch_size", "5", 5),
        ("batch_size", " +12 ", 12),
        ("batch_size", 2**31 - 1, 2**31 - 1),
        ("linger_ms", 2**31, 2**31),
        ("retries", "2147483647", 2**31 - 1),
        ("send_buffer_bytes", "-1", -1),
        ("enable_idempotence", "TRUE", True),
        ("enable_idempotence", " false ", False),
        ("enable_metrics_push", False, False),
        ("compression_type", " gzip", "gzip"),
        ("compression_gzip_level", -1, -1),
        ("compression_gzip_level", "9", 9),
        ("compression_lz4_level", 17, 17),
        ("compression_zstd_level", "-131072", -131072),
        ("metadata_recovery_strategy", "NONE", "none"),
        ("security_protocol", "plaintext", "PLAINTEXT"),
        ("key_serializer", "org.apache.kafka.common.serialization.IntegerSerializer", serializers.integer),
        ("value_serializer", " org.apache.kafka.common.serialization.StringSerializer ", serializers.string),
        ("value_serializer", "StringSerializer", serializers.string),
        ("value_serializer", str.encode, str.encode),
        ("value_serializer", None, None),
        ("partitioner_class", None, None),
        ("partitioner_class", "round_robin", "round_robin"),
        ("partitioner_class", "org.apache.kafka.clients.producer.RoundRobinPartitioner", "round_robin"),
        ("partitioner_class", "RoundRobinPartitioner", "round_robin"),
        ("partitioner_class", "org.apache.kafka.clients.producer.internals.DefaultPartitioner", None),
        ("partitioner_class", " DefaultPartitioner ", None),
        ("partitioner_class", partitioners.consistent, "consistent"),
        ("partitioner_class", partitioners.anywhere, "random"),
        ("partitioner_class", partitioners.murmur2_random, None),
        ("interceptor_classes", "", ()),
        ("interceptor_classes", [], ()),
        ("on_error", print, print),
        ("transactional_id", None, None),
        ("ssl_enabled_protocols", " TLSv1.2 , TLSv1.3 ", ("TLSv1.2", "TLSv1.3")),
        ("ssl_enabled_protocols", ["TLSv1.2", "TLSv1.3"], ("TLSv1.2", "TLSv1.3")),
        ("sasl_login_refresh_window_factor", "0.8", 0.8),
        ("sasl_login_refresh_window_jitter", 0.05, 0.05),
    ],
)
def test_a_value_may_be_typed_or_written_as_in_java(name: str, value: object, expected: object) -> None:
    assert getattr(parse(**{name: value}), name) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [("all", -1), ("-1", -1), (-1, -1), (1, 1), (" 1 ", 1), (0, 0), ("0", 0)]
)
def test_acks_may_be_all_or_a_number(value: object, expected: int) -> None:
    assert parse(acks=value).acks == expected


def test_objects_as_serializers() -> None:
    upper = UpperSerializer()
    assert parse(key_serializer=upper).key_serializer is upper


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"batch_size": -1}, "batch_size=-1 is refused; allowed: 32-bit integer (bytes), at least 0"),
        ({"batch_size": 2**31}, "batch_size=2147483648 is refused; allowed: 32-bit integer (bytes), at least 0"),
        ({"batch_size": "1_0"}, "batch_size='1_0' is refused; allowed: 32-bit integer (bytes), at least 0"),
        ({"batch_size": "5.0"}, "batch_size='5.0' is refused; allowed: 32-bit integer (bytes), at least 0"),
        ({"batch_size": "٣"}, "batch_size='٣' is refused; allowed: 32-bit integer (bytes), at least 0"),
        ({"batch_size": 5.0}, "batch_size=5.0 is refused; allowed: 32-bit integer (bytes), at least 0"),
        ({"batch_size": True}, "batch_size=True is refused; allowed: 32-bit integer (bytes), at least 0"),
        ({"batch_size": None}, "batch_size=None is refused; allowed: 32-bit integer (bytes), at least 0"),
        (
            {"sasl_login_refresh_window_factor": 10**400},
            f"sasl_login_refresh_window_factor=1{'0' * 299}... is refused; allowed: number, 0.5 to 1.0",
        ),
        *(
            ({name: -1}, f"{name}=-1 is refused; allowed: {bits}-bit integer (ms), at least 0")
            for name, bits in (
                ("sasl_login_connect_timeout_ms", 32),
                ("sasl_login_read_timeout_ms", 32),
                ("sasl_login_retry_backoff_ms", 64),
                ("sasl_login_retry_backoff_max_ms", 64),
            )
        ),
        ({"linger_ms": 2**63}, f"linger_ms={2**63} is refused; allowed: 64-bit integer (ms), at least 0"),
        (
            {"metadata_max_idle_ms": 4999},
            "metadata_max_idle_ms=4999 is refused; allowed: 64-bit integer (ms), at least 5000",
        ),
        ({"compression_gzip_level": 0}, "compression_gzip_level=0 is refused; allowed: 32-bit integer, 1 to 9, or -1"),
        (
            {"compression_gzip_level": 10},
            "compression_gzip_level=10 is refused; allowed: 32-bit integer, 1 to 9, or -1",
        ),
        ({"compression_lz4_level": 18}, "compression_lz4_level=18 is refused; allowed: 32-bit integer, 1 to 17"),
        (
            {"compression_zstd_level": 23},
            "compression_zstd_level=23 is refused; allowed: 32-bit integer, -131072 to 22",
        ),
        (
            {"compression_type": "GZIP"},
            "compression_type='GZIP' is refused; allowed: one of none, gzip, snappy, lz4, zstd",
        ),
        ({"compression_type": None}, "compression_type=None is refused; allowed: one of none, gzip, snappy, lz4, zstd"),
        ({"acks": 2}, "acks=2 is refused; allowed: all, -1, 0 or 1"),
        ({"acks": "ALL"}, "acks='ALL' is refused; allowed: all, -1, 0 or 1"),
        ({"acks": True}, "acks=True is refused; allowed: all, -1, 0 or 1"),
        ({"enable_idempotence": "yes"}, "enable_idempotence='yes' is refused; allowed: true or false"),
        ({"enable_idempotence": 1}, "enable_idempotence=1 is refused; allowed: true or false"),
        ({"client_id": 5}, "client_id=5 is refused; allowed: string, at most 32767 bytes as UTF-8"),
        ({"client_id": "\udc00"}, r"client_id='\udc00' is refused; allowed: string, at most 32767 bytes as UTF-8"),
        (
            {"client_id": "é" * 16_384},
            f"client_id='{'é' * 299}... is refused; allowed: string, at most 32767 bytes as UTF-8",
        ),
        (
            {"transactional_id": " "},
            "transactional_id=' ' is refused; allowed: string, 1 to 32758 bytes as UTF-8",
        ),
        (
            {"transactional_id": "x" * 32_759},
            f"transactional_id='{'x' * 299}... is refused; allowed: string, 1 to 32758 bytes as UTF-8",
        ),
        ({"on_error": 5}, "on_error=5 is refused; allowed: function of (error, records)"),
        ({"ssl_context": 5}, "ssl_context=5 is refused; allowed: ssl.SSLContext"),
        (
            {"ssl_cipher_suites": "a,,b"},
            "ssl_cipher_suites='a,,b' is refused (it has an empty entry); "
            "allowed: list of strings, or one comma-separated string",
        ),
        (
            {"sasl_login_refresh_window_factor": "nan"},
            "sasl_login_refresh_window_factor='nan' is refused; allowed: number, 0.5 to 1.0",
        ),
        (
            {"sasl_login_refresh_window_factor": True},
            "sasl_login_refresh_window_factor=True is refused; allowed: number, 0.5 to 1.0",
        ),
    ],
)
def test_refused_value_names_config_value_and_range(values: dict[str, object], text: str) -> None:
    assert refusal(**values) == text


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("org.example.Mine", "JVM classes can't run here"),
        (UpperSerializer, "it is a class: give an instance of it"),
        (5, "key_serializer=5 is refused; allowed: function"),
    ],
)
def test_refused_serializer(value: object, hint: str) -> None:
    assert hint in refusal(key_serializer=value)


async def _told(error: object, records: object) -> None: ...


class _Teller:
    async def __call__(self, error: object, records: object) -> None: ...


@pytest.mark.parametrize("value", [_told, functools.partial(_told), _Teller(), _Teller().__call__])
def test_an_async_on_error_is_refused(value: object) -> None:
    """Nothing would await it."""
    told = refusal(on_error=value)
    assert "it is async, but on_error is not awaited: give a plain function, which may create a task" in told


class AsyncSend:
    async def on_send(self, record: object) -> object: ...


class AsyncClose:
    def on_send(self, record: object) -> None: ...

    async def close(self) -> None: ...


@pytest.mark.parametrize("interceptor", [AsyncSend(), AsyncClose()])
def test_an_async_interceptor_is_refused(interceptor: AsyncSend | AsyncClose) -> None:
    """Each of its calls would make a coroutine that nobody awaits."""
    told = refusal(interceptors=[interceptor])
    assert re.search(r"Async(Send\.on_send|Close\.close) is async, but interceptors are not awaited", told)


def test_an_async_partitioner_is_refused() -> None:
    async def choose(*_: object) -> int:
        return 0

    assert "it is async, but partitioners are not awaited: give a plain function" in refusal(partitioner=choose)


@pytest.mark.parametrize("value", [print, functools.partial(print), lambda error, records: None])
def test_a_plain_on_error_is_taken(value: object) -> None:
    assert parse(on_error=value).on_error is value


def with_context(value: bytes, context: object) -> bytes:
    """A serializer as confluent-kafka calls it."""
    return value


@functools.wraps(with_context)
def of_value(value: bytes) -> bytes:
    return with_context(value, None)


class Callable3:
    def __call__(self, key: object, everything: object, available: object) -> int:
        return 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("key_serializer", with_context),
        ("value_serializer", lambda: b""),
        ("partitioner", Callable3()),
        ("on_error", lambda error: None),
    ],
)
def test_a_function_of_other_arguments_is_refused(name: str, value: object) -> None:
    """Such as those that other clients call; else each record would fail."""
    assert "is refused (it takes other arguments); allowed: " in refusal(**{name: value})


@pytest.mark.parametrize("name", ["sasl_oauth_token_provider", "sasl_credentials_provider"])
def test_a_provider_of_other_arguments_is_refused(name: str) -> None:
    assert refusal(**{name: of_value}) == f"{name}=[hidden] is refused; allowed: async function without arguments"


@pytest.mark.parametrize(
    "value", [of_value, bytes, str.encode, OrderedDict, functools.partial(with_context, context=None)]
)
def test_a_function_that_can_be_called_with_the_value_is_taken(value: object) -> None:
    """Including one that adapts another, whose arguments ``functools.wraps`` makes it show."""
    assert parse(value_serializer=value).value_serializer is value


@pytest.mark.parametrize("package", ["org.apache.kafka.clients.producer.", ""])
def test_the_uniform_sticky_partitioner_ignores_keys(package: str) -> None:
    """As the built-in partitioner does with the config that replaced this Java class."""
    config = parse(partitioner_class=f"{package}UniformStickyPartitioner")
    assert config.partitioner_class is None
    assert config.partitioner_ignore_keys
    assert not parse(partitioner_class="DefaultPartitioner").partitioner_ignore_keys


@pytest.mark.parametrize("value", ["org.example.StickyPartitioner", "sticky", 5])
def test_refused_partitioner(value: object) -> None:
    allowed = "round_robin, or the name of one of Kafka's partitioner classes: RoundRobinPartitioner, "
    assert allowed in refusal(partitioner=value)


@pytest.mark.parametrize("value", ["org.example.Audit", [Interceptor], ["org.example.Audit"], [None], Interceptor()])
def test_refused_interceptors(value: object) -> None:
    assert "list of objects with on_send or on_acknowledgement" in refusal(interceptors=value)


@given(name=st.sampled_from([definition.name for definition in CONFIGS]), value=st.from_type(object))
def test_any_value_is_taken_or_refused(name: str, value: object) -> None:
    try:
        config = parse(**{name: value})
    except ConfigError:
        return
    assert name in config.given or value is None


# --- bootstrap_servers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a:9092", [("a", 9092)]),
        (" a:9092 , b:65535 ", [("a", 9092), ("b", 65535)]),
        (["a:9092", "b:1"], [("a", 9092), ("b", 1)]),
        (("a:9092",), [("a", 9092)]),
        ("a:1,a:2", [("a", 1), ("a", 2)]),
        ("127.0.0.1:9092", [("127.0.0.1", 9092)]),
        ("[::1]:9092", [("::1", 9092)]),
        ("[fe80::1%eth0]:9092", [("fe80::1%eth0", 9092)]),
        ("[fe80::1%br-lan.5]:9092", [("fe80::1%br-lan.5", 9092)]),
        ("broker-1.my_net.example:9092", [("broker-1.my_net.example", 9092)]),
        ("PLAINTEXT://a:9092", [("a", 9092)]),
    ],
)
def test_servers_may_be_a_list_or_text_with_commas(value: object, expected: list[tuple[str, int]]) -> None:
    assert parse(bootstrap_servers=value).bootstrap_servers == tuple(expected)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("", "it is empty"),
        ([], "it is empty"),
        (" , ", "it has an empty entry"),
        ("a:1,", "it has an empty entry"),
        ("a", "'a' is not host:port"),
        ("a:", "'a:' is not host:port"),
        (":9092", "':9092' is not host:port"),
        ("a:b", "'a:b' is not host:port"),
        ("a:-1", "'a:-1' is not host:port"),
        ("a b:1", "'a b:1' is not host:port"),
        ("a:٩", "'a:٩' is not host:port"),
        ("::1:9092", "'::1:9092' is not host:port"),
        ("[::1]", "'[::1]' is not host:port"),
        ("[]:9092", "'[]:9092' is not host:port"),
        ("a:0", "'a:0' has a port out of range"),
        ("a:65536", "'a:65536' has a port out of range"),
        ("a:1,A:1", "'A:1' is listed twice"),
        ("[::1]:1,[::1]:1", "'[::1]:1' is listed twice"),
    ],
)
def test_refused_servers(value: object, hint: str) -> None:
    text = refusal(bootstrap_servers=value)
    assert text.startswith(f"bootstrap_servers={value!r} is refused ({hint}); allowed: host:port or [IPv6]:port")


@pytest.mark.parametrize(
    "value", ["alice:s3cret@kafka:9092", "kafka://alice:s3,cr3t@kafka:9092", ["a:1", "kafka://:s3cret@kafka"]]
)
def test_a_password_among_bootstrap_servers_is_not_shown(value: object) -> None:
    """Addresses of other kinds of servers may contain one."""
    hint = "an address can't contain a user: give sasl_username and sasl_password"
    assert refusal(bootstrap_servers=value).startswith(f"bootstrap_servers=[hidden] is refused ({hint}); allowed: ")


@pytest.mark.parametrize("value", [None, 9092, [("a", 9092)], {"a:1"}])
def test_servers_of_a_wrong_type(value: object) -> None:
    assert "allowed: host:port" in refusal(bootstrap_servers=value)


# --- rules ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [{"acks": 1}, {"acks": 0}, {"retries": 0}, {"acks": "1", "retries": "0"}])
def test_idempotence_goes_off_when_left_out(values: dict[str, object], caplog: pytest.LogCaptureFixture) -> None:
    """KIP-679: conflicting values win over a default, with one log line."""
    caplog.set_level(logging.INFO, "aioproducer.config")
    assert not parse(**values).enable_idempotence
    assert caplog.messages[0].startswith("idempotence is off because of ")
    for name, value in values.items():
        assert f"{name}={value}" in caplog.messages[0]


@pytest.mark.parametrize("values", [{"acks": 1}, {"acks": 0}, {"retries": 0}])
def test_idempotence_asked_for_contradicts(values: dict[str, object]) -> None:
    assert refusal(enable_idempotence="true", **values).startswith("enable_idempotence=True contradicts ")


@pytest.mark.parametrize("values", [{}, {"enable_idempotence": True}, {"acks": 1}, {"retries": 0}])
def test_more_than_five_in_flight(values: dict[str, object]) -> None:
    """Refused even if acks or retries would have turned idempotence off, as in Java."""
    text = refusal(max_in_flight_requests_per_connection=6, **values)
    assert text.startswith("max_in_flight_requests_per_connection=6 contradicts idempotence, which allows 1 to 5")


def test_without_idempotence_all_is_allowed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aioproducer.config")
    config = parse(enable_idempotence=False, acks=0, retries=0, max_in_flight_requests_per_connection=100)
    assert (config.acks, config.retries, config.max_in_flight_requests_per_connection) == (0, 0, 100)
    assert parse(max_in_flight_requests_per_connection=5, acks="all", retries=1).enable_idempotence
    assert caplog.messages == []


@pytest.mark.parametrize("values", [{"enable_idempotence": False}, {"acks": 1}, {"retries": 0}])
def test_transactions_need_idempotence(values: dict[str, object]) -> None:
    assert refusal(transactional_id="t", **values).startswith(
        "transactional_id='t' contradicts enable_idempotence=False"
    )


def test_two_phase_commit_has_no_timeout() -> None:
    assert "transaction_timeout_ms contradicts" in refusal(
        transaction_two_phase_commit_enable=True, transaction_timeout_ms=60000
    )


@pytest.mark.parametrize(
    ("values", "expected_ms"),
    [
        ({}, 120_000),
        ({"request_timeout_ms": 119_995}, 120_000),
        ({"request_timeout_ms": 119_996}, 120_001),
        ({"linger_ms": 100_000}, 130_000),
        ({"linger_ms": 2**40}, 2**31 - 1),
        ({"delivery_timeout_ms": 30_005}, 30_005),
        ({"delivery_timeout_ms": 0, "linger_ms": 0, "request_timeout_ms": 0}, 0),
    ],
)
def test_delivery_timeout_left_out_is_raised(
    values: dict[str, object], expected_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert parse(**values).delivery_timeout_ms == expected_ms
    warned = expected_ms > 120_000
    assert [message.startswith("delivery_timeout_ms raised from 120000 to") for message in caplog.messages] == (
        [True] * warned
    )


@pytest.mark.parametrize("values", [{"delivery_timeout_ms": 30_004}, {"delivery_timeout_ms": "100", "linger_ms": 0}])
def test_delivery_timeout_given_too_low(values: dict[str, object]) -> None:
    assert "is too low: at least linger_ms + request_timeout_ms" in refusal(**values)


def test_reconnect_backoff_alone_is_constant() -> None:
    assert parse(reconnect_backoff_ms=5000).reconnect_backoff_max_ms == 5000
    assert parse(reconnect_backoff_ms=10).reconnect_backoff_max_ms == 10
    assert parse(reconnect_backoff_ms=10, reconnect_backoff_max_ms=20).reconnect_backoff_max_ms == 20
    assert parse().reconnect_backoff_max_ms == 1000


@pytest.mark.parametrize(
    ("values", "name", "used"),
    [
        ({"retry_backoff_ms": 5000}, "retry_backoff_ms", 1000),
        ({"reconnect_backoff_ms": 5000, "reconnect_backoff_max_ms": 1000}, "reconnect_backoff_ms", 1000),
        ({"socket_connection_setup_timeout_ms": 30_001}, "socket_connection_setup_timeout_ms", 30_000),
        ({"socket_connection_setup_timeout_max_ms": 2_000}, "socket_connection_setup_timeout_ms", 2_000),
    ],
)
def test_a_backoff_above_its_bound_is_replaced_with_a_warning(
    values: dict[str, object], name: str, used: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert getattr(parse(**values), name) == used
    assert len(caplog.messages) == 1
    assert f"{name}=" in caplog.messages[0]
    assert caplog.messages[0].endswith(f"using {used}")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, None),
        ({"compression_type": "gzip"}, -1),
        ({"compression_type": "lz4"}, 9),
        ({"compression_type": "snappy"}, None),
    ],
)
def test_compression_level_is_the_chosen_codecs(values: dict[str, object], expected: int | None) -> None:
    assert parse(compression_zstd_level=7, **values).compression_level == expected
    assert parse(compression_type="zstd", compression_zstd_level=7).compression_level == 7


# --- not built yet ----------------------------------------------------------------------------------------------------


def test_what_is_not_built_is_refused_not_ignored() -> None:
    text = refusal(transaction_two_phase_commit_enable=True)
    assert text.startswith("transaction_two_phase_commit_enable=")
    assert "is not supported by this version yet; allowed: " in text


def test_defaults_of_what_is_not_built_are_fine() -> None:
    values = {d.name: d.default for d in CONFIGS if not d.supported}
    assert parse(**values).security_protocol == "PLAINTEXT"


def test_sasl_without_a_mechanism() -> None:
    text = refusal(security_protocol="SASL_SSL", sasl_mechanism="")
    assert text == (
        "sasl_mechanism is empty, but security_protocol=SASL_SSL needs one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, "
        "OAUTHBEARER, GSSAPI, AWS_MSK_IAM"
    )


@pytest.mark.parametrize(
    ("values", "command"),
    [
        ({"ssl_truststore_type": "JKS"}, "-srckeystore STORE -destkeystore truststore.p12 -deststoretype PKCS12"),
        ({"ssl_truststore_location": "/x/trust.jks"}, "keytool -importkeystore -srckeystore /x/trust.jks"),
        ({"ssl_keystore_location": "/x/me.keystore"}, "-srckeystore /x/me.keystore -destkeystore keystore.p12"),
    ],
)
def test_jks_stores_come_with_the_conversion(values: dict[str, object], command: str) -> None:
    text = refusal(**values)
    assert "only the JVM can read JKS" in text
    assert command in text


STORE = {"security_protocol": "SSL", "ssl_keystore_type": "PKCS12", "ssl_keystore_location": "me.p12"}


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"ssl_keystore_location": "/x/me.P12"}, "ssl_keystore_location='/x/me.P12' does not look like PEM: set ssl_"),
        ({"ssl_truststore_location": "ca.pfx"}, "does not look like PEM: set ssl_truststore_type=PKCS12"),
        (
            {"ssl_truststore_type": "pkcs12"},
            "ssl_truststore_type=PKCS12 needs ssl_truststore_location: only PEM can be",
        ),
        ({**STORE, "ssl_keystore_location": None}, "ssl_keystore_type=PKCS12 needs ssl_keystore_location"),
        (
            {"security_protocol": "SSL", "ssl_keystore_location": "me.pem", "ssl_keystore_password": "s3cret"},
            "ssl_keystore_password is for ssl_keystore_type=PKCS12, which is PEM; ssl_key_password opens an encrypted",
        ),
        (
            {"security_protocol": "SSL", "ssl_truststore_password": "s3cret"},
            "ssl_truststore_password is for ssl_truststore_type=PKCS12, which is PEM",
        ),
        (
            {**STORE, "ssl_keystore_password": "s3cret", "ssl_key_password": "s3cret too"},
            "ssl_key_password differs from ssl_keystore_password: a PKCS12 store has one password",
        ),
    ],
)
def test_stores_that_do_not_go_together(values: dict[str, object], told: str) -> None:
    text = refusal(**values)
    assert told in text
    assert "s3cret" not in text


def test_a_pkcs12_store_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "cryptography" else real(name))
    told = "ssl_keystore_type=PKCS12 needs the package cryptography: pip install 'aioproducer[pkcs12]'"
    assert told in refusal(**STORE)


# --- .properties ------------------------------------------------------------------------------------------------------


def write(path: Path, text: str) -> Path:
    file = path / "producer.properties"
    file.write_text(text, encoding="latin-1")
    return file


def parse_properties(path: Path | str) -> ProducerConfig:
    return ProducerConfig.parse_dotted(read_properties(path))


def test_a_file_that_a_java_producer_uses_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aioproducer.config")
    file = write(
        tmp_path,
        """
        # a file that a Java producer uses
        bootstrap.servers = a:9092,\\
                            b:9092
        key.serializer=org.apache.kafka.common.serialization.LongSerializer
        value.serializer: org.apache.kafka.common.serialization.StringSerializer
        partitioner.class=org.apache.kafka.clients.producer.RoundRobinPartitioner
        acks=all
        compression.type=zstd\x20\x20
        client.id=caf\\u00e9 \xe9
        metric.reporters=org.apache.kafka.common.metrics.JmxReporter
        metrics.context.team=orders
        enable.metrics.push=false
        ssl.provider=SunJSSE
        """,
    )
    config = parse_properties(file)
    assert config.bootstrap_servers == (("a", 9092), ("b", 9092))
    assert config.key_serializer is serializers.long
    assert config.value_serializer is serializers.string
    assert (config.partitioner_class, config.compression_type, config.client_id) == ("round_robin", "zstd", "café é")
    assert caplog.messages == [
        f"{file}: ignored configs that only a JVM can use: metric.reporters, metrics.context.team, ssl.provider"
    ]


def test_properties_without_names_of_the_jvm_log_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aioproducer.config")
    parse_properties(str(write(tmp_path, "bootstrap.servers=a:1")))
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bootstrap.servers=a:1\nlinger=5", "config linger is unknown: the nearest known name is linger_ms"),
        ("bootstrap.servers=a:1\nlinger.ms=x", "linger_ms='x' is refused"),
        ("bootstrap.servers=a:1\nclient.id=\\u12", "is not a .properties file: "),
        ("bootstrap.servers=a:1\ninterceptor.classes=org.example.Audit", "interceptor_classes='org.example.Audit' is"),
        (
            "bootstrap.servers=a:1\nvalue.serializer.encoding=ISO-8859-1",
            "value.serializer.encoding='ISO-8859-1' is refused; allowed: UTF-8",
        ),
        ("bootstrap.servers=a:1\nsecurity.protocol=TLS", "security_protocol='TLS' is refused"),
        ("config.providers=file\nclient.id=${file:/x:id}", "config client.id refers to a config provider"),
        ("config.providers=env\nclient.id=shop-${env:ID}", "config client.id refers to a config provider"),
        ("acks=all", "bootstrap_servers is missing"),
    ],
)
def test_refused_properties(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_properties(write(tmp_path, text))
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["key.serializer.encoding", "value.serializer.encoding", "serializer.encoding"])
@pytest.mark.parametrize("encoding", ["UTF-8", "utf-8", "Utf8", "UTF_8"])
def test_the_encoding_of_java_s_string_serializer(name: str, encoding: str) -> None:
    """Strings are always sent as UTF-8."""
    assert ProducerConfig.parse_dotted({"bootstrap.servers": "a:1", name: encoding}).given == {"bootstrap_servers"}


def test_the_longest_ids_fit_a_request() -> None:
    """The protocol has 15 bits for a string's length, also for a client_id that is derived from another id."""
    longest = parse(transactional_id="x" * 32_758)
    assert len(longest.client_id) == 32_767
    assert len(parse(client_id="é" * 16_383 + "x").client_id.encode()) == 32_767


def test_dollar_signs_mean_nothing_without_a_config_provider(tmp_path: Path) -> None:
    file = write(tmp_path, "bootstrap.servers=a:1\nclient.id=${file:/x:id}")
    assert parse_properties(file).client_id == "${file:/x:id}"


def test_missing_properties_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        parse_properties(tmp_path / "none.properties")
