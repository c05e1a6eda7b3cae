"""Configs by librdkafka's names."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import threading
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import StringSerializer

from aioproducer import AuthenticationError, ConfigError, OAuthToken, Producer
from aioproducer.config.librdkafka import translate
from aioproducer.config.librdkafka_table import CONSUMERS, IGNORED, REFUSED, RENAMED, SETTLED
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.config.table import CONFIGS
from aioproducer.integrations.orjson import OrjsonSerializer
from aioproducer.partitioners import LIBRDKAFKA
from aioproducer.records import PartitionInfo

SERVERS = {"bootstrap.servers": "localhost:9092"}
LOGIN = {"security.protocol": "sasl_ssl"}
PORTLESS = (("a", 9092), ("b", 9092), ("::1", 9092))


def config_of(configs: dict[str, Any]) -> ProducerConfig:
    return ProducerConfig.parse(translate({**SERVERS, **configs}))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"metadata.broker.list": "a:1"}, {"bootstrap_servers": (("a", 1),)}),
        ({"bootstrap.servers": "a:1,b:2"}, {"bootstrap_servers": (("a", 1), ("b", 2))}),
        ({"bootstrap.servers": "a, SSL://b,[::1],c:1"}, {"bootstrap_servers": (*PORTLESS, ("c", 1))}),
        ({"metadata.broker.list": "a,SSL://b,[::1]"}, {"bootstrap_servers": PORTLESS}),
        ({"ssl.ca.location": "probe"}, {"ssl_truststore_location": None}),
        ({"security.protocol": "ssl", "ssl.ca.location": "ca"}, {"ssl_truststore_location": "ca"}),
        ({"security.protocol": "ssl", "ssl.keystore.location": ""}, {"ssl_keystore_type": "PEM"}),
        ({"client.id": "shop"}, {"client_id": "shop"}),
        ({"message.max.bytes": 5_000}, {"max_request_size": 5_000}),
        ({"max.in.flight": "1"}, {"max_in_flight_requests_per_connection": 1}),
        ({"max.in.flight": "1000000"}, {"max_in_flight_requests_per_connection": 5, "enable_idempotence": True}),
        ({"max.in.flight.requests.per.connection": 1_000_000}, {"max_in_flight_requests_per_connection": 5}),
        ({"linger.ms": 0}, {"linger_ms": 0}),
        ({"linger.ms": 0.4}, {"linger_ms": 1}),
        ({"linger.ms": "0.5"}, {"linger_ms": 1}),
        ({"linger.ms": 2.4}, {"linger_ms": 2}),
        ({"enable.idempotence": 1}, {"enable_idempotence": True}),
        ({"enable.idempotence": "0"}, {"enable_idempotence": False}),
        ({"enable.idempotence": "F"}, {"enable_idempotence": False}),
        ({"enable.metrics.push": "t"}, {"enable_metrics_push": True}),
        ({"queue.buffering.max.ms": "50"}, {"linger_ms": 50}),
        ({"queue.buffering.max.kbytes": 64}, {"buffer_memory": 65_536}),
        ({"message.send.max.retries": 3, "enable.idempotence": False}, {"retries": 3}),
        ({"request.required.acks": -1}, {"acks": -1}),
        ({"acks": "1"}, {"acks": 1, "enable_idempotence": False}),
        ({"acks": "ALL"}, {"acks": -1}),
        ({"request.required.acks": "All"}, {"acks": -1}),
        ({"client.dns.lookup": "USE_ALL_DNS_IPS"}, {"client_dns_lookup": "use_all_dns_ips"}),
        (
            {"security.protocol": "ssl", "ssl.endpoint.identification.algorithm": "NONE"},
            {"ssl_endpoint_identification_algorithm": ""},
        ),
        (
            {"compression.type": "Gzip", "compression.level": 9},
            {"compression_type": "gzip", "compression_gzip_level": 9},
        ),
        ({"compression.codec": "LZ4", "compression.level": 1}, {"compression_lz4_level": 9}),
        (
            {"compression.codec": "gzip", "compression.level": 9},
            {"compression_type": "gzip", "compression_gzip_level": 9},
        ),
        (
            {"compression.type": "zstd", "compression.level": -1},
            {"compression_type": "zstd", "compression_zstd_level": 3},
        ),
        ({"compression.type": "snappy", "compression.level": 5}, {"compression_type": "snappy"}),
        ({"compression.type": "lz4", "compression.level": -1}, {"compression_lz4_level": 9}),
        ({"compression.type": "lz4", "compression.level": 0}, {"compression_lz4_level": 9}),
        ({"compression.type": "lz4", "compression.level": "1"}, {"compression_lz4_level": 9}),
        ({"compression.type": "lz4", "compression.level": " 1"}, {"compression_lz4_level": 9}),
        ({"compression.type": "lz4", "compression.level": 2}, {"compression_lz4_level": 9}),
        ({"compression.type": "lz4", "compression.level": 3}, {"compression_lz4_level": 3}),
        ({"compression.type": "lz4", "compression.level": "9"}, {"compression_lz4_level": 10}),
        ({"compression.type": "lz4", "compression.level": 12}, {"compression_lz4_level": 12}),
        ({"message.timeout.ms": 10_000}, {"delivery_timeout_ms": 10_000, "request_timeout_ms": 9_995}),
        ({"message.timeout.ms": 0}, {"delivery_timeout_ms": 2_147_483_647, "request_timeout_ms": 30_000}),
        ({"delivery.timeout.ms": "0"}, {"delivery_timeout_ms": 2_147_483_647}),
        (
            {"delivery.timeout.ms": 20_000, "socket.timeout.ms": 60_000, "linger.ms": 0},
            {"delivery_timeout_ms": 20_000, "request_timeout_ms": 20_000},
        ),
        ({"connections.max.idle.ms": 0}, {"connections_max_idle_ms": -1}),
        ({"allow.auto.create.topics": "false"}, {"allow_auto_create_topics": False}),
        ({"socket.send.buffer.bytes": 0}, {"send_buffer_bytes": -1}),
        ({"topic.metadata.refresh.interval.ms": -1}, {"metadata_max_age_ms": 2_147_483_647}),
        ({"topic.metadata.refresh.interval.ms": "0"}, {"metadata_max_age_ms": 2_147_483_647}),
        (
            {"metadata.max.age.ms": 100_000, "topic.metadata.refresh.interval.ms": "300000"},
            {"metadata_max_age_ms": 100_000},
        ),
        (
            {"metadata.max.age.ms": "300000", "topic.metadata.refresh.interval.ms": 100_000},
            {"metadata_max_age_ms": 100_000},
        ),
        (
            {"topic.metadata.refresh.interval.ms": -1, "metadata.max.age.ms": "900000"},
            {"metadata_max_age_ms": 900_000},
        ),
        ({"security.protocol": "ssl"}, {"security_protocol": "SSL"}),
        ({"security.protocol": "ssl", "ssl.endpoint.identification.algorithm": "none"}, {"security_protocol": "SSL"}),
        (
            {
                "security.protocol": "sasl_plaintext",
                "sasl.mechanisms": "PLAIN",
                "sasl.username": "u",
                "sasl.password": "p",
            },
            {"sasl_mechanism": "PLAIN", "sasl_username": "u"},
        ),
        ({"partitioner": "fnv1a_random"}, {"partitioner_class": "fnv1a_random"}),
        ({"partitioner": "murmur2_random"}, {"partitioner_class": None}),
        ({}, {"partitioner_class": "consistent_random"}),
        ({"default.topic.config": {"acks": "all"}}, {"acks": -1}),
        (
            {"transactional.id": "t", "transaction.timeout.ms": 9_000},
            {"transactional_id": "t", "transaction_timeout_ms": 9_000},
        ),
    ],
)
def test_a_config(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    servers = {} if {"bootstrap.servers", "metadata.broker.list"} & set(theirs) else SERVERS
    config = ProducerConfig.parse(translate({**servers, **theirs}))
    assert {name: getattr(config, name) for name in ours} == ours


@pytest.mark.parametrize("servers", ["", "a,,b", 5, [5], None])
def test_no_servers(servers: object) -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers"):
        config_of({"bootstrap.servers": servers})


@pytest.mark.parametrize("configs", ["s3cret", None, [("client.id", "s3cret")]])
def test_what_is_no_mapping_is_not_shown(configs: Any) -> None:
    with pytest.raises(ConfigError, match=r"^configs are a mapping of names to values, not (str|NoneType|list)$"):
        translate(configs)


def test_every_name_of_ours_is_one() -> None:
    known = {definition.name for definition in CONFIGS}
    for ours in RENAMED.values():
        assert set(ours.replace(" or ", ", ").split(", ")) <= known
    assert not set(RENAMED) & set(IGNORED)
    assert not (set(RENAMED) | set(IGNORED)) & set(REFUSED)
    assert not set(SETTLED) & {*RENAMED, *IGNORED, *REFUSED}
    assert not CONSUMERS & {*RENAMED, *IGNORED, *REFUSED, *SETTLED}


@pytest.mark.parametrize("name", IGNORED)
def test_what_means_nothing_here_is_named_once(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "aioproducer.config"):
        config_of({name: "true" if "enable" in name else "0"})
    assert [record.getMessage() for record in caplog.records] == [f"ignored, as they have no meaning here: {name}"]


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_done_another_way_says_how(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_of({name: "x"})
    assert str(caught.value) == f"config {name} of librdkafka is not accepted: {REFUSED[name]}"


@pytest.mark.parametrize("name", SETTLED)
def test_what_takes_one_value_only(name: str, caplog: pytest.LogCaptureFixture) -> None:
    values, instead = SETTLED[name]
    with caplog.at_level(logging.INFO, "aioproducer.config"):
        for value in values:
            assert config_of({name: value}).given == config_of({}).given
    assert not caplog.records
    with pytest.raises(ConfigError) as caught:
        config_of({name: "other"})
    assert str(caught.value) == f"{name}=other is not taken: {instead}"


@pytest.mark.parametrize("partitioner", ["consistent_random", "murmur2_random", "fnv1a_random"])
def test_records_without_a_key_that_do_not_stick_to_a_partition(partitioner: str) -> None:
    """Those with a key go where they went before."""
    partitions = tuple(PartitionInfo("a", number, 1, (), (), ()) for number in range(3))

    def chosen(key: bytes | None, **more: object) -> set[object]:
        choose = translate({"partitioner": partitioner, **more})["partitioner_class"]
        return {choose("a", key, b"", partitions) for _ in range(100)}

    sticky_ms = "sticky.partitioning.linger.ms"
    for value in (0, "0"):
        assert chosen(None, **{sticky_ms: value}) == {0, 1, 2}
        assert chosen(b"key", **{sticky_ms: value}) == {LIBRDKAFKA[partitioner]("a", b"key", b"", partitions)}
    assert translate({"partitioner": partitioner, sticky_ms: 10}) == translate({"partitioner": partitioner})


@pytest.mark.parametrize("partitioner", ["consistent", "murmur2", "fnv1a", "random"])
def test_partitioners_by_which_no_record_sticks_stay_compiled(partitioner: str) -> None:
    given = {"partitioner": partitioner, "sticky.partitioning.linger.ms": 0}
    assert config_of(given).partitioner_class == partitioner


def test_what_is_for_consumers_is_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Configs that are shared by producers and consumers have such names."""
    with caplog.at_level(logging.INFO, "aioproducer.config"):
        config_of({"session.timeout.ms": 45_000, "group.id": "readers"})
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert told == [("WARNING", "left out, as they are for consumers: group.id, session.timeout.ms")]


@pytest.mark.parametrize(
    ("grant", "retriever"),
    [
        ("client_credentials", "ClientCredentialsJwtRetriever"),
        ("urn:ietf:params:oauth:grant-type:jwt-bearer", "JwtBearerJwtRetriever"),
    ],
)
def test_grants_of_oidc(grant: str, retriever: str) -> None:
    """The names for assertions are the same as Java's; the grant type has a different name."""
    config = config_of(
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": "https://x",
            "sasl.oauthbearer.grant.type": grant,
            "sasl.oauthbearer.client.id": "shop",
            "sasl.oauthbearer.assertion.private.key.file": "key.pem",
            "sasl.oauthbearer.assertion.claim.iss": "shop",
        }
    )
    assert config.sasl_oauthbearer_jwt_retriever_class == retriever
    assert config.sasl_oauthbearer_assertion_claim_iss == "shop"
    with pytest.raises(ConfigError, match=r"sasl\.oauthbearer\.grant\.type=password is refused; allowed: client_cred"):
        config_of({"sasl.oauthbearer.grant.type": "password"})


@pytest.mark.parametrize(
    ("configs", "jaas"),
    [
        ({"sasl.kerberos.principal": "shop@TEST"}, 'Krb5LoginModule required principal="shop@TEST";'),
        (
            {"sasl.kerberos.keytab": '/a "b"', "sasl.kerberos.principal": "shop"},
            'Krb5LoginModule required useKeyTab="true" keyTab="/a \\"b\\"" principal="shop";',
        ),
        (
            {"sasl.kerberos.keytab": "/etc/shop.keytab"},
            'Krb5LoginModule required useKeyTab="true" keyTab="/etc/shop.keytab" principal="kafkaclient";',
        ),
        (
            {"sasl.kerberos.keytab": "C:\\shop.keytab", "sasl.kerberos.principal": "shop"},
            'Krb5LoginModule required useKeyTab="true" keyTab="C:\\\\shop.keytab" principal="shop";',
        ),
        (
            {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.extensions": "a=b=c, d=e"},
            'OAuthBearerLoginModule required extension_a="b=c" extension_d="e";',
        ),
        (
            {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.extensions": "a=b", "oauth_cb": len},
            None,
        ),
        ({"sasl.mechanisms": "PLAIN", "sasl.kerberos.principal": "shop"}, None),
        ({"sasl.mechanisms": "PLAIN", "sasl.kerberos.keytab": "/etc/shop.keytab"}, None),
        ({"sasl.mechanisms": "PLAIN", "sasl.oauthbearer.extensions": "a=b"}, None),
    ],
)
def test_what_java_says_in_its_jaas_config(configs: dict[str, Any], jaas: str | None) -> None:
    """librdkafka uses each only for its own mechanism, and extensions only without oauth_cb."""
    assert translate({**SERVERS, **LOGIN, **configs}).get("sasl_jaas_config") == jaas


@pytest.mark.parametrize(
    ("configs", "service"),
    [
        ({}, "kafka"),
        ({"sasl.mechanisms": "GSSAPI", "sasl.kerberos.principal": "shop"}, "kafka"),
        ({"sasl.kerberos.service.name": "broker"}, "broker"),
        ({"sasl.jaas.config": 'Krb5LoginModule required serviceName="broker";'}, None),
        ({"sasl.mechanism": "PLAIN"}, None),
        ({"security.protocol": "ssl"}, None),
    ],
)
def test_the_kerberos_service_is_kafka_unless_it_is_named(configs: dict[str, Any], service: str | None) -> None:
    assert translate({**SERVERS, **LOGIN, **configs}).get("sasl_kerberos_service_name") == service


@pytest.mark.parametrize("protocol", [{}, {"security.protocol": "plaintext"}, {"security.protocol": "ssl"}])
def test_a_login_that_the_protocol_does_not_need_is_left_out_with_a_warning(
    protocol: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "secret", "oauth_cb": print}
    config = config_of(protocol | login)
    assert (config.sasl_username, config.sasl_password, config.sasl_oauth_token_provider) == (None, None, None)
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    name = str(protocol.get("security.protocol", "plaintext")).upper()
    assert warned == [f"left out, as security.protocol={name} needs no login: {', '.join(sorted(login))}"]


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"enable.ssl.certificate.verification": False}, "ssl_context"),
        ({"enable.ssl.certificate.verification": "0"}, "ssl_context"),
        (
            {"message.timeout.mss": 1},
            "message.timeout.mss is unknown: the nearest known name is message.timeout.ms",
        ),
        ({"qqqqq": 1}, "config qqqqq is unknown: no known name is similar"),
        ({5: 1}, "config names are strings, not 5"),
        ({"linger.ms": "abc"}, "linger.ms: linger_ms='abc' is refused; allowed: 64-bit integer (ms)"),
        ({"linger.ms": -0.5}, "linger.ms: linger_ms=-1 is refused"),
        ({"linger.ms": float("inf")}, "linger.ms: linger_ms=inf is refused"),
        ({"message.timeout.ms": "abc"}, "message.timeout.ms: delivery_timeout_ms='abc' is refused"),
        ({"message.timeout.ms": None}, "message.timeout.ms: delivery_timeout_ms=None is refused"),
        ({"message.timeout.ms": 1, "linger.ms": None}, "linger.ms: linger_ms=None is refused"),
        ({"compression.type": "gzip", "compression.level": "abc"}, "compression.level: compression_gzip_level='abc'"),
        ({"socket.send.buffer.bytes": "x"}, "socket.send.buffer.bytes: send_buffer_bytes='x' is refused"),
        ({"queue.buffering.max.kbytes": -1}, "queue.buffering.max.kbytes: buffer_memory=-1024 is refused"),
        ({"default.topic.config": None}, "default.topic.config=None is refused; allowed: a mapping of configs"),
        ({"max.in.flight": 10}, "max_in_flight_requests_per_connection=10 contradicts idempotence"),
        ({"sasl.oauthbearer.config": "x"}, "sasl.oauthbearer.config needs oauth_cb"),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.extensions": "x"}, "allowed: name=value"),
        ({"sasl.kerberos.principal": "x", "sasl.jaas.config": "y"}, "give one"),
        ({"oauth_cb": "x"}, "oauth_cb='x' is refused"),
        ({"oauth_cb": lambda: ("token", 0)}, " is refused; allowed: function of sasl.oauthbearer.config"),
        ({"sticky.partitioning.linger.ms": "x"}, "sticky.partitioning.linger.ms='x' is refused; allowed: milliseconds"),
        ({"sticky.partitioning.linger.ms": None}, "sticky.partitioning.linger.ms=None is refused"),
        ({"sticky.partitioning.linger.ms": float("inf")}, "sticky.partitioning.linger.ms=inf is refused"),
        ({"partitioner": "sticky"}, "partitioner='sticky' is refused; allowed: consistent, "),
        (
            {"metadata.max.age.ms": 5, "topic.metadata.refresh.interval.ms": "x"},
            "topic.metadata.refresh.interval.ms: metadata_max_age_ms='x' is refused",
        ),
        ({"linger.ms": 1, "queue.buffering.max.ms": 2}, "linger.ms and queue.buffering.max.ms are two names"),
        ({"security.protocol": "ssl", "ssl.key.location": "/no/such/file"}, "/no/such/file' can't be read"),
        ({"security.protocol": "ssl", "ssl.key.location": 5}, "ssl.key.location=5 is not a file of PEM text"),
        (
            {"ssl.key.location": "-----BEGIN PRIVATE KEY-----"},
            "ssl.key.location=[hidden] is refused: it is what a file",
        ),
        ({"acks": "most"}, "acks='most'"),
        (
            {"value.serializer": lambda value, context: b""},
            "is refused (it takes other arguments); allowed: function of the value, object with serialize(topic,",
        ),
        (
            {"key.serializer": AvroSerializer(SchemaRegistryClient({"url": "mock://"}), '"string"')},
            "key.serializer is confluent-kafka's AvroSerializer, which needs a SerializationContext: give one of "
            "aioproducer.integrations.schema_registry",
        ),
    ],
)
def test_a_wrong_config_is_refused_with_what_is_wrong(configs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_of(configs)
    assert message in str(caught.value)


def test_certificate_and_key_from_two_files(tmp_path: Path) -> None:
    """The files are read once: later changes have no effect."""
    import trustme

    issued = trustme.CA().issue_cert("client.test")
    certificate, key = tmp_path / "client.pem", tmp_path / "client.key"
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    config = config_of(
        {
            "security.protocol": "ssl",
            "ssl.certificate.location": str(certificate),
            "ssl.key.location": key,
            "ssl.ca.pem": trustme.CA().cert_pem.bytes().decode(),
        }
    )
    assert config.ssl_keystore_certificate_chain == certificate.read_text()
    assert config.ssl_keystore_key == key.read_text()


def test_a_pkcs12_store() -> None:
    config = config_of(
        {"security.protocol": "ssl", "ssl.keystore.location": "client.p12", "ssl.keystore.password": "changeit"}
    )
    assert (config.ssl_keystore_type, config.ssl_keystore_location) == ("PKCS12", "client.p12")
    assert config.ssl_keystore_password == "changeit"


@pytest.mark.parametrize("name", ["ssl.key.location", "ssl.certificate.location"])
def test_a_file_that_is_no_text(name: str, tmp_path: Path) -> None:
    """Such as a PKCS#12 store, or a DER key."""
    path = tmp_path / "client.p12"
    path.write_bytes(b"\x30\x82\xff\xfe")
    with pytest.raises(ConfigError) as caught:
        config_of({"security.protocol": "ssl", name: str(path)})
    assert str(caught.value) == f"{name}={str(path)!r} is not a file of PEM text"


def test_the_guide_has_every_name() -> None:
    page = (Path(__file__).parents[3] / "docs" / "from-confluent-kafka.md").read_text()
    for name, ours in RENAMED.items():
        assert f"| `{name}` | `{ours.split(',')[0]}`" in page
    for name, text in {**IGNORED, **REFUSED}.items():
        assert f"| `{name}` | {text} |" in page
    for name, (values, instead) in SETTLED.items():
        shown = f"`{values[0]}`" if values[0] else "empty, or librdkafka's default"
        assert f"| `{name}` | {shown} | {instead} |" in page
    for name in CONSUMERS:
        assert f"`{name}`" in page


def test_every_producer_property_of_librdkafka_is_known() -> None:
    """From its own list, with its own defaults: none is unknown here, and none raises anything but a ConfigError."""
    confluent_kafka = pytest.importorskip("confluent_kafka")
    for name, kind, default in properties_of_librdkafka(Path(confluent_kafka.__file__).parent):
        if kind == "C":
            assert name in CONSUMERS or name in IGNORED, name
        elif name not in ("bootstrap.servers", "metadata.broker.list"):
            said = refusal({name: default or "x"})
            assert "unknown" not in said
            assert "JVM" not in said


def refusal(configs: dict[str, Any]) -> str:
    try:
        config_of(configs)
    except ConfigError as error:
        return str(error)
    return ""


def properties_of_librdkafka(package: Path) -> list[tuple[str, str, str]]:
    """Each property's name, its users (C, P or *), and its default."""
    bundled = next(package.parent.glob("confluent_kafka.libs/librdkafka*"), None)
    if bundled is None:
        pytest.skip("confluent-kafka has its librdkafka elsewhere")
    library = ctypes.CDLL(str(bundled))
    c = ctypes.CDLL(None)
    c.open_memstream.restype = ctypes.c_void_p
    text, size = ctypes.c_char_p(), ctypes.c_size_t()
    stream = ctypes.c_void_p(c.open_memstream(ctypes.byref(text), ctypes.byref(size)))
    library.rd_kafka_conf_properties_show(stream)
    c.fclose(stream)
    assert text.value is not None
    rows = [[cell.strip() for cell in line.split(" | ")] for line in text.value.decode().splitlines()]
    found = [(row[0], row[1], row[3]) for row in rows if len(row) >= 6 and row[1] in ("C", "P", "*")]
    assert len(found) > 150
    return found


class Both:
    """Also callable, but not for serializing."""

    def serialize(self, topic: str, headers: Any, value: Any) -> bytes:
        return b""

    def __call__(self, more: object, arguments: object) -> None: ...


@pytest.mark.parametrize("serializer", [StringSerializer("utf_8"), str.encode, bytes, OrjsonSerializer(dict), Both()])
def test_a_serializer_that_works_here_too(serializer: Any) -> None:
    config = config_of({"key.serializer": serializer, "value.serializer": serializer})
    assert (config.key_serializer, config.value_serializer) == (serializer, serializer)


async def test_a_token_callback() -> None:
    """confluent-kafka's callback may block, returns seconds, and receives sasl.oauthbearer.config."""
    threads = []

    def token_for(config: str) -> tuple[str, float]:
        threads.append(threading.get_ident())
        return f"token for {config}", 1_700_000_000.5

    config = config_of(
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "default",
            "sasl.oauthbearer.config": "scope=shop",
            "oauth_cb": token_for,
        }
    )
    assert config.sasl_oauth_token_provider is not None
    token = await config.sasl_oauth_token_provider()
    assert token == OAuthToken("token for scope=shop", expires_at_ms=1_700_000_000_500)
    assert threading.get_ident() not in threads
    ours = translate({**LOGIN, "sasl.mechanism": "OAUTHBEARER", "oauth_cb": token_for})
    assert (await ours["sasl_oauth_token_provider"]()).value == "token for "


@pytest.mark.parametrize(
    "given", [None, "s3cret", ("s3cret",), (5, "s3cret"), ("s3cret", None), ("s3cret", float("inf"))]
)
async def test_a_token_callback_that_gives_something_else_is_named(given: Any) -> None:
    """The error is permanent, and neither it nor its cause contains what the callback returned."""
    ours = translate({**LOGIN, "sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: given})
    with pytest.raises(AuthenticationError, match=r"^oauth_cb has to return \(token, expiry in seconds") as caught:
        await ours["sasl_oauth_token_provider"]()
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


async def test_a_token_callback_with_extensions() -> None:
    """They are the fourth element of its result, after a principal."""
    ours = translate({**LOGIN, "sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: ("token", 1, "shop", {"a": "b"})})
    assert (await ours["sasl_oauth_token_provider"]()).extensions == {"a": "b"}
    ours = translate({**LOGIN, "sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: ("token", 1, "shop")})
    assert (await ours["sasl_oauth_token_provider"]()).extensions == {}


class AsyncCallback:
    """A coroutine function only by its ``__call__``."""

    async def __call__(self, config: str) -> tuple[str, float]:
        return f"token for {config}", asyncio.get_running_loop().time()


@pytest.mark.parametrize("callback", [AsyncCallback().__call__, AsyncCallback()])
async def test_an_async_token_callback(callback: Callable[[str], Awaitable[tuple[str, float]]]) -> None:
    """confluent-kafka's AIOProducer takes one; it runs in the producer's loop."""
    ours = translate(
        {**LOGIN, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.config": "shop", "oauth_cb": callback}
    )
    assert (await ours["sasl_oauth_token_provider"]()).value == "token for shop"


async def test_a_producer() -> None:
    producer = Producer.from_librdkafka_config({**SERVERS, "client.id": "shop"})
    assert "shop" in repr(producer)
    await producer.close()
