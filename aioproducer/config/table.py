"""Every config of the producer, in one table: name, type, default, range, importance, meaning.

The rules that involve several configs are in `aioproducer.config`; ``python -m aioproducer.config.docs`` makes
``docs/configuration.md`` from this table.

Source: the configs of Kafka's Java producer 4.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from aioproducer.config.definition import REQUIRED, ConfigDef
from aioproducer.config.proxy import PROXY
from aioproducer.config.security import SASL, TLS
from aioproducer.config.values import (
    ACKS,
    BOOLEAN,
    ERROR_HANDLER,
    INT,
    INTERCEPTORS,
    LONG,
    PARTITIONER,
    SERIALIZER,
    SERVERS,
    STRING,
    OneOf,
    Range,
    Utf8Length,
)

_AT_LEAST_0 = Range(0)
_MAX_STRING_BYTES = 2**15 - 1
"""The protocol stores the length in a signed 16-bit integer."""
_CLUSTER = (
    ConfigDef(
        name="bootstrap_servers",
        type=SERVERS,
        default=REQUIRED,
        importance="high",
        doc="The brokers from which the producer learns the rest of the cluster, tried in this order. Not every broker "
        "has to be listed.",
    ),
    ConfigDef(
        name="bootstrap_resolve_timeout_ms",
        type=LONG,
        default=0,
        valid=_AT_LEAST_0,
        importance="high",
        doc="While no name in `bootstrap_servers` can be resolved, such as right after a container's start, `start` "
        "looks them up again for this long, but not beyond `max_block_ms`. With 0, it fails at once.",
    ),
    ConfigDef(
        name="client_id",
        type=STRING,
        default="",
        valid=Utf8Length(0, _MAX_STRING_BYTES),
        importance="medium",
        doc="The name under which the brokers log, measure and limit this producer. If empty: `producer-` and the "
        "`transactional_id`, or a number that counts the producers of the process.",
    ),
    ConfigDef(
        name="client_rack",
        type=STRING,
        default="",
        importance="low",
        doc="Where this program runs, as the brokers' `broker.rack` names it: the availability zone in a cloud. It has "
        "no effect without `partitioner_rack_aware`.",
    ),
    ConfigDef(
        name="client_dns_lookup",
        type=STRING,
        default="use_all_dns_ips",
        valid=OneOf("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
        importance="medium",
        doc="Whether all addresses of a host name are tried, one after the other, or a bootstrap name is first "
        "resolved to the canonical names behind it.",
    ),
    ConfigDef(
        name="proxy_url",
        type=PROXY,
        default=None,
        importance="low",
        in_java=False,
        doc="Connect to brokers through this proxy: with HTTP CONNECT, or with SOCKS5, which needs the extra `proxy`. "
        "With `socks5` this client resolves the brokers' names, with `socks5h` and `http` the proxy does.",
    ),
    ConfigDef(
        name="request_timeout_ms",
        type=INT,
        default=30_000,
        valid=_AT_LEAST_0,
        importance="medium",
        doc="How long a request may remain unanswered. After that its connection is closed and the request is retried, "
        "as far as `retries` and `delivery_timeout_ms` allow.",
    ),
    ConfigDef(
        name="socket_connection_setup_timeout_ms",
        type=LONG,
        default=10_000,
        valid=_AT_LEAST_0,
        importance="medium",
        doc="How long setting up a connection may take at the first attempt.",
    ),
    ConfigDef(
        name="socket_connection_setup_timeout_max_ms",
        type=LONG,
        default=30_000,
        valid=_AT_LEAST_0,
        importance="medium",
        doc="The upper limit of `socket_connection_setup_timeout_ms`, which doubles with every failed attempt.",
    ),
    ConfigDef(
        name="connections_max_idle_ms",
        type=LONG,
        default=540_000,
        importance="medium",
        doc="A connection without traffic for this long is closed; a negative value means never.",
    ),
    ConfigDef(
        name="reconnect_backoff_ms",
        type=LONG,
        default=50,
        valid=_AT_LEAST_0,
        importance="low",
        doc="How long to wait before reconnecting to a broker. If only this is set, the wait is the same after every "
        "failure.",
    ),
    ConfigDef(
        name="reconnect_backoff_max_ms",
        type=LONG,
        default=1_000,
        valid=_AT_LEAST_0,
        importance="low",
        doc="The upper limit of `reconnect_backoff_ms`, which doubles with every failure and varies at random by up to "
        "a fifth in both directions.",
    ),
    ConfigDef(
        name="send_buffer_bytes",
        type=INT,
        default=-1,
        valid=Range(-1),
        importance="medium",
        doc="The send buffer of the operating system for a connection (SO_SNDBUF); -1 leaves it to the system, which "
        "lets it grow as the network needs.",
        departs="Java's default is 131072, which is less than a full batch here, and a fixed size stops the system "
        "from growing the buffer. Measured with records of 1 KB into a server that stores nothing, with Kafka's "
        "receive buffer, CPU seconds of the client per million records: submit_nowait 0.78 instead of 0.99, send_arrow "
        "0.70 instead of 0.79; into a real broker up to 7 % less.",
    ),
    ConfigDef(
        name="receive_buffer_bytes",
        type=INT,
        default=32_768,
        valid=Range(-1),
        importance="medium",
        doc="The receive buffer of the operating system for a connection (SO_RCVBUF); -1 leaves it to the system.",
    ),
    ConfigDef(
        name="metadata_max_age_ms",
        type=LONG,
        default=300_000,
        valid=_AT_LEAST_0,
        importance="low",
        doc="The metadata is refreshed at least this often, to find new brokers and partitions.",
    ),
    ConfigDef(
        name="metadata_max_idle_ms",
        type=LONG,
        default=300_000,
        valid=Range(5_000),
        importance="low",
        doc="A topic to which nothing has been sent for this long is left out of metadata requests.",
    ),
    ConfigDef(
        name="metadata_recovery_strategy",
        type=STRING,
        default="rebootstrap",
        valid=OneOf("rebootstrap", "none", any_case=True),
        importance="low",
        doc="What to do when none of the known brokers can be reached: start again from `bootstrap_servers` "
        "(`rebootstrap`), or keep trying them (`none`).",
    ),
    ConfigDef(
        name="metadata_recovery_rebootstrap_trigger_ms",
        type=LONG,
        default=300_000,
        valid=_AT_LEAST_0,
        importance="low",
        doc="With `rebootstrap`: also start again if the metadata could not be refreshed for this long.",
    ),
    ConfigDef(
        name="metadata_cluster_check_enable",
        type=BOOLEAN,
        default=True,
        importance="low",
        doc="Whether brokers are told, from Kafka 4.4 on, which broker of which cluster a connection is meant for "
        "(KIP-1242). If it leads to another one, as where machines get each other's addresses, it ends before anything "
        "is sent. It has no effect with the recovery strategy `none`.",
    ),
    ConfigDef(
        name="allow_auto_create_topics",
        type=BOOLEAN,
        default=True,
        importance="low",
        in_java=False,
        doc="Whether a broker may create a topic that the program sends to and that does not exist. The broker does so "
        "only if `auto.create.topics.enable` is set there too. With `false`, a mistyped name raises an error and "
        "leaves no topic behind.",
    ),
)

_DELIVERY = (
    ConfigDef(
        name="acks",
        type=ACKS,
        default=-1,
        importance="low",
        doc="Which brokers must have a record before it counts as sent: `all` (-1) in-sync replicas, the leader alone "
        "(1), or none (0: the producer waits for no answer, and offsets are not known).",
    ),
    ConfigDef(
        name="enable_idempotence",
        type=BOOLEAN,
        default=True,
        importance="low",
        doc="Each record is written once and in order despite retries. Needs `acks=all`, `retries` above 0 and at most "
        "5 requests in flight; if not set, it is turned off when `acks` or `retries` rule it out.",
    ),
    ConfigDef(
        name="max_in_flight_requests_per_connection",
        type=INT,
        default=5,
        valid=Range(1),
        importance="low",
        doc="How many requests may be sent to a broker before it has answered the first of them. Above 1 without "
        "idempotence, retries can change the order.",
    ),
    ConfigDef(
        name="retries",
        type=INT,
        default=2_147_483_647,
        valid=_AT_LEAST_0,
        importance="high",
        doc="How often a record is retried. It is better to limit retries with `delivery_timeout_ms`.",
    ),
    ConfigDef(
        name="retry_backoff_ms",
        type=LONG,
        default=100,
        valid=_AT_LEAST_0,
        importance="low",
        doc="How long to wait before a failed request is retried.",
    ),
    ConfigDef(
        name="retry_backoff_max_ms",
        type=LONG,
        default=1_000,
        valid=_AT_LEAST_0,
        importance="low",
        doc="The upper limit of `retry_backoff_ms`, which doubles with every failure and varies at random by up to a "
        "fifth in both directions.",
    ),
    ConfigDef(
        name="delivery_timeout_ms",
        type=INT,
        default=120_000,
        valid=_AT_LEAST_0,
        importance="medium",
        doc="How long a record may stay in the buffer, retries included, before it is either acknowledged or fails. At "
        "least `linger_ms` + `request_timeout_ms`; if not set, it is raised to that.",
    ),
    ConfigDef(
        name="max_block_ms",
        type=LONG,
        default=60_000,
        valid=_AT_LEAST_0,
        importance="medium",
        doc="How long a call may wait for metadata and for buffer memory, together; also the limit for `start` and for "
        "each transaction call.",
    ),
    ConfigDef(
        name="on_error",
        type=ERROR_HANDLER,
        default=None,
        importance="medium",
        in_java=False,
        doc="Called on the event loop with an error and the number of records that failed with it without anyone "
        "asking for their outcome.",
    ),
    ConfigDef(
        name="transactional_id",
        type=STRING,
        default=None,
        valid=Utf8Length(1, _MAX_STRING_BYTES - len("producer-")),  # client_id is derived from it
        importance="low",
        doc="Turns transactions on. One name per producer, kept across restarts: a new producer with the same name "
        "fences off the old one.",
    ),
    ConfigDef(
        name="transaction_timeout_ms",
        type=INT,
        default=60_000,
        importance="low",
        doc="After this time the coordinator aborts an open transaction. The broker's `transaction.max.timeout.ms` "
        "limits it. It has no effect without `transactional_id`.",
    ),
    ConfigDef(
        name="transaction_two_phase_commit_enable",
        type=BOOLEAN,
        default=False,
        importance="low",
        supported=False,
        doc="Transactions that are ended by an outside coordinator and therefore never time out (KIP-939).",
    ),
)

_BATCHES = (
    ConfigDef(
        name="batch_size",
        type=INT,
        default=520_192,
        valid=_AT_LEAST_0,
        importance="medium",
        doc="A partition's batch that reaches this many bytes is sent without waiting for `linger_ms`. Small batches "
        "cost throughput, on the brokers too; 0 sends each record alone. Memory is taken as the batch grows, in blocks "
        "of 2 KiB, then 16, then 64, so a large value costs idle partitions nothing; records without a key still "
        "change partition after 16 KiB unless this config is set. A topic for which a broker does not accept batches "
        "of this size gets smaller ones, see docs/architecture.md.",
        departs="Java's default is 16384. Measured with records of 1 KB on one broker, CPU seconds per million "
        "records: client 2.2 at 16 KiB and 1.2 from 256 KiB on; with lz4 4.2 at 16 KiB, 3.9 at 256 and 3.6 at 512, "
        "broker 3.3, 2.6 and 2.4; larger batches gain little more. With 4 KiB less than half of `max_request_size`, "
        "two full batches fit into a request.",
    ),
    ConfigDef(
        name="linger_ms",
        type=LONG,
        default=5,
        valid=_AT_LEAST_0,
        importance="medium",
        doc="The longest time that a batch waits for more records if it is not full. An awaited `send` waits that long "
        "only while its broker has requests to answer. If this config is not set, batches wait up to fifty times as "
        "long while a program submits without a pause and they hold fewer than 64 records on average: with so many "
        "partitions, the number of batches would otherwise limit the speed.",
    ),
    ConfigDef(
        name="buffer_memory",
        type=LONG,
        default=33_554_432,
        valid=_AT_LEAST_0,
        importance="high",
        doc="Memory for records that are not yet acknowledged. When it is used up, `submit` waits (for up to "
        "`max_block_ms`) and `submit_nowait` raises an error.",
    ),
    ConfigDef(
        name="max_request_size",
        type=INT,
        default=1_048_576,
        valid=_AT_LEAST_0,
        importance="medium",
        doc="The largest record, before compression, and the largest request. Brokers and topics have their own limits "
        "(`message.max.bytes`).",
    ),
    ConfigDef(
        name="compression_type",
        type=STRING,
        default="none",
        valid=OneOf("none", "gzip", "snappy", "lz4", "zstd"),
        importance="high",
        doc="How batches are compressed; larger batches compress better. `snappy` needs the extra of that name, `zstd` "
        "needs brokers from 2.1 on.",
    ),
    ConfigDef(
        name="compression_gzip_level",
        type=INT,
        default=-1,
        valid=Range(1, 9, also=-1),
        importance="medium",
        doc="1 is the fastest, 9 the smallest, -1 the library's default.",
    ),
    ConfigDef(
        name="compression_lz4_level",
        type=INT,
        default=9,
        valid=Range(1, 17),
        importance="medium",
        doc="9 is the fast compressor, as in Java; every other level is the slow compressor with smaller results, the "
        "smaller the higher the level.",
    ),
    ConfigDef(
        name="compression_zstd_level",
        type=INT,
        default=3,
        valid=Range(-131_072, 22),
        importance="medium",
        doc="Negative levels are the fastest, 22 is the smallest.",
    ),
)

_RECORDS = (
    ConfigDef(
        name="key_serializer",
        type=SERIALIZER,
        default=None,
        importance="high",
        departs="Java requires one; here bytes-like objects, str (as UTF-8) and None need none.",
        doc="Turns keys other than None into bytes; sync or async.",
    ),
    ConfigDef(
        name="value_serializer",
        type=SERIALIZER,
        default=None,
        importance="high",
        departs="Java requires one; here bytes-like objects, str (as UTF-8) and None need none.",
        doc="Turns values other than None into bytes; sync or async.",
    ),
    ConfigDef(
        name="partitioner_class",
        alias="partitioner",
        type=PARTITIONER,
        default=None,
        importance="medium",
        doc="Chooses the partition of records that don't name one. If not set, a key is placed by its murmur2 hash, as "
        "in Java; records without a key stay with one partition until the end of a batch after 16 KiB (`batch_size`, "
        "if that is set), then change to another. `aioproducer.partitioners` has other clients' partitioners, and "
        "BUILT_IN, which a function may return to leave a record to the built-in partitioner.",
    ),
    ConfigDef(
        name="partitioner_ignore_keys",
        type=BOOLEAN,
        default=False,
        importance="medium",
        doc="The built-in partitioner treats all records as if they had no key.",
    ),
    ConfigDef(
        name="partitioner_adaptive_partitioning_enable",
        type=BOOLEAN,
        default=True,
        importance="low",
        doc="For records without a key, the built-in partitioner prefers partitions whose brokers keep up.",
    ),
    ConfigDef(
        name="partitioner_availability_timeout_ms",
        type=LONG,
        default=0,
        valid=_AT_LEAST_0,
        importance="low",
        doc="With adaptive partitioning: skip brokers to which nothing could be sent for this long; 0 means never.",
    ),
    ConfigDef(
        name="partitioner_rack_aware",
        type=BOOLEAN,
        default=False,
        importance="low",
        doc="For records without a key, the built-in partitioner prefers partitions whose leaders are in `client_rack` "
        "(KIP-1123); if none can be reached, it takes any. It saves traffic between availability zones, but partitions "
        "in other racks may get less.",
    ),
    ConfigDef(
        name="interceptor_classes",
        alias="interceptors",
        type=INTERCEPTORS,
        default=(),
        importance="low",
        doc="Objects that see, and may change, each record before it is serialized, and that see how it ended: "
        "on_send(record) returns the Record to go on with, on_acknowledgement(metadata, error, headers) gets None for "
        "one of the first two. close(), on_start(client_id), on_cluster(cluster_id), on_transaction_begin(), "
        "on_transaction_end(committed), on_bulk_begin(topic) and on_bulk_end(result, error) are called on objects that "
        "have them. What an interceptor raises is logged and changes nothing.",
    ),
)

_METRICS = (
    ConfigDef(
        name="metrics_num_samples",
        type=INT,
        default=2,
        valid=Range(1),
        importance="low",
        doc="The number of windows that rates, averages and maxima cover.",
    ),
    ConfigDef(
        name="metrics_sample_window_ms",
        type=LONG,
        default=30_000,
        valid=_AT_LEAST_0,
        importance="low",
        doc="The length of such a window.",
    ),
    ConfigDef(
        name="metrics_recording_level",
        type=STRING,
        default="INFO",
        valid=OneOf("INFO", "DEBUG", "TRACE"),
        importance="low",
        doc="Accepted; all metrics have level INFO and are always recorded.",
    ),
    ConfigDef(
        name="enable_metrics_push",
        type=BOOLEAN,
        default=True,
        importance="low",
        doc="Pushes the metrics to a cluster that asks for them (KIP-714).",
    ),
)

GROUPS: Mapping[str, tuple[ConfigDef, ...]] = MappingProxyType(
    {
        "Cluster and connections": _CLUSTER,
        "Delivery": _DELIVERY,
        "Batches and memory": _BATCHES,
        "Records": _RECORDS,
        "Metrics": _METRICS,
        "TLS": TLS,
        "Login (SASL)": SASL,
    }
)
"""The table, in the groups and the order of the documentation."""

CONFIGS: tuple[ConfigDef, ...] = tuple(definition for group in GROUPS.values() for definition in group)
"""The table, flat."""

_CLASS = "it names a class of the JVM"
_KERBEROS = "here the system manages tickets"
_BROKER = "brokers check tokens, not this client"

JVM_ONLY: Mapping[str, str] = MappingProxyType(
    {
        "auto_include_jmx_reporter": "Producer.metrics() is always available",
        "buffer_memory_allocation_strategy": "memory is taken as a batch grows",
        "config_providers": "give the values themselves",
        "metric_reporters": "Producer.metrics() is always available",
        "sasl_client_callback_handler_class": _CLASS,
        "sasl_kerberos_kinit_cmd": _KERBEROS,
        "sasl_kerberos_min_time_before_relogin": _KERBEROS,
        "sasl_kerberos_ticket_renew_jitter": _KERBEROS,
        "sasl_kerberos_ticket_renew_window_factor": _KERBEROS,
        "sasl_login_callback_handler_class": f"{_CLASS}; sasl_oauth_token_provider takes its place",
        "sasl_login_class": _CLASS,
        "sasl_oauthbearer_allow_unverified_audience": _BROKER,
        "sasl_oauthbearer_allow_unverified_issuer": _BROKER,
        "sasl_oauthbearer_clock_skew_seconds": _BROKER,
        "sasl_oauthbearer_expected_audience": _BROKER,
        "sasl_oauthbearer_expected_issuer": _BROKER,
        "sasl_oauthbearer_jwks_endpoint_refresh_ms": _BROKER,
        "sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms": _BROKER,
        "sasl_oauthbearer_jwks_endpoint_retry_backoff_ms": _BROKER,
        "sasl_oauthbearer_jwks_endpoint_url": _BROKER,
        "sasl_oauthbearer_jwt_validator_class": _CLASS,
        "sasl_oauthbearer_scope_claim_name": _BROKER,
        "sasl_oauthbearer_sub_claim_name": _BROKER,
        "security_providers": _CLASS,
        "ssl_engine_factory_class": f"{_CLASS}; ssl_context takes its place",
        "ssl_keymanager_algorithm": "ssl_context takes its place",
        "ssl_provider": "ssl_context takes its place",
        "ssl_secure_random_implementation": "the system's random numbers are used",
        "ssl_trustmanager_algorithm": "ssl_context takes its place",
    }
)
"""Java's configs that only mean something to the JVM, with the way to do it here."""

JVM_ONLY_PREFIXES = ("config_providers_", "metrics_context_")
"""Names with these prefixes are parameters of JVM plugins."""

OF_PYTHON_CLIENTS: Mapping[str, str] = MappingProxyType(
    {
        "max_batch_size": "batch_size",
        "sasl_plain_password": "sasl_password",
        "sasl_plain_username": "sasl_username",
        "socks5_proxy": "proxy_url",
        "ssl_cafile": "ssl_truststore_location",
        "ssl_certfile": "ssl_keystore_location (one file with the key) or ssl_keystore_certificate_chain (the text)",
        "ssl_check_hostname": 'ssl_endpoint_identification_algorithm, "" for False,',
        "ssl_ciphers": "ssl_cipher_suites",
        "ssl_crlfile": "an ssl_context that checks it",
        "ssl_keyfile": "ssl_keystore_location (one file with the certificates) or ssl_keystore_key (the text)",
        "ssl_password": "ssl_key_password",
    }
)
"""Arguments of aiokafka's and kafka-python's producers that have another name here."""

NEEDLESS: Mapping[str, str] = MappingProxyType(
    {
        "api_version": "each broker is asked which versions it speaks",
        "bootstrap_timeout_ms": "max_block_ms limits start()",
        "kafka_client": "it is for tests; aioproducer.testing has clusters for them",
        "loop": "the running one is used",
        "metrics_enabled": "Producer.metrics() is always available",
        "receive_message_max_bytes": "no answer to a producer is large",
        "sasl_kerberos_domain_name": "the broker's own host name is used",
        "sasl_kerberos_name": "the broker's own host name is used",
        "selector": "the event loop has one",
        "socket_options": "send_buffer_bytes and receive_buffer_bytes are there",
    }
)
"""Arguments of these producers that nothing takes the place of, with the reason."""
