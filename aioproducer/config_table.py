"""Every config of the producer, in one table: name, type, default, range, importance, meaning.

The rules that involve several configs are in `aioproducer.config`; ``docs/configuration.md`` is made from this table by
``python -m aioproducer.config_docs``.

Source: the configs of Kafka's Java producer 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from aioproducer.config_def import REQUIRED, ConfigDef
from aioproducer.config_proxy import PROXY
from aioproducer.config_security import SASL, TLS
from aioproducer.config_values import (
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
"""The protocol counts them in 16 bits with a sign."""
_CLUSTER = (
    ConfigDef(
        name="bootstrap_servers",
        type=SERVERS,
        default=REQUIRED,
        importance="high",
        doc="Where to ask for the brokers of the cluster first, tried in this order. It need not name all of them.",
    ),
    ConfigDef(
        name="client_id",
        type=STRING,
        default="",
        valid=Utf8Length(0, _MAX_STRING_BYTES),
        importance="medium",
        doc="The name under which the brokers log, measure and limit this producer. When empty: `producer-` and the "
        "`transactional_id`, or a number that counts the producers of the process.",
    ),
    ConfigDef(
        name="client_dns_lookup",
        type=STRING,
        default="use_all_dns_ips",
        valid=OneOf("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
        importance="medium",
        doc="Whether a host name stands for all its addresses, tried one after the other, or a bootstrap name is first "
        "resolved into the canonical names behind it.",
    ),
    ConfigDef(
        name="proxy_url",
        type=PROXY,
        default=None,
        importance="low",
        in_java=False,
        doc="Connect to brokers through this proxy, by CONNECT of HTTP, or by SOCKS5, which needs the extra `proxy`. "
        "With `socks5` names of brokers are resolved here, with `socks5h` and `http` by the proxy.",
    ),
    ConfigDef(
        name="request_timeout_ms",
        type=INT,
        default=30_000,
        valid=_AT_LEAST_0,
        importance="medium",
        doc="How long one request may stay unanswered. Then its connection is closed and it is tried again, as far as "
        "`retries` and `delivery_timeout_ms` allow.",
    ),
    ConfigDef(
        name="socket_connection_setup_timeout_ms",
        type=LONG,
        default=10_000,
        valid=_AT_LEAST_0,
        importance="medium",
        doc="How long setting up a connection may take at the first try.",
    ),
    ConfigDef(
        name="socket_connection_setup_timeout_max_ms",
        type=LONG,
        default=30_000,
        valid=_AT_LEAST_0,
        importance="medium",
        doc="The bound of that time, which doubles with every failed try.",
    ),
    ConfigDef(
        name="connections_max_idle_ms",
        type=LONG,
        default=540_000,
        importance="medium",
        doc="A connection without traffic for this long is closed; negative: never.",
    ),
    ConfigDef(
        name="reconnect_backoff_ms",
        type=LONG,
        default=50,
        valid=_AT_LEAST_0,
        importance="low",
        doc="The wait before a broker is connected to again. Set alone, it is the same after every failure.",
    ),
    ConfigDef(
        name="reconnect_backoff_max_ms",
        type=LONG,
        default=1_000,
        valid=_AT_LEAST_0,
        importance="low",
        doc="The bound of that wait, which doubles with every failure, spread by a fifth to both sides.",
    ),
    ConfigDef(
        name="send_buffer_bytes",
        type=INT,
        default=-1,
        valid=Range(-1),
        importance="medium",
        doc="The send buffer of the operating system for a connection (SO_SNDBUF); -1 leaves it to the system, which "
        "lets it grow as the network needs.",
        departs="131072 there, less than a full batch has here, and a size that is set stops the system from letting "
        "it grow. Measured with records of 1 KB into a server that stores nothing, with Kafka's receive buffer, CPU "
        "seconds of the client per million records: submit_nowait 0.78 in place of 0.99, send_arrow 0.70 in place of "
        "0.79; into a real broker up to 7 % less.",
    ),
    ConfigDef(
        name="receive_buffer_bytes",
        type=INT,
        default=32_768,
        valid=Range(-1),
        importance="medium",
        doc="The receive buffer of the operating system for a connection (SO_RCVBUF); -1 leaves it alone.",
    ),
    ConfigDef(
        name="metadata_max_age_ms",
        type=LONG,
        default=300_000,
        valid=_AT_LEAST_0,
        importance="low",
        doc="After this time the picture of the cluster is renewed without any cause, to see new brokers and "
        "partitions.",
    ),
    ConfigDef(
        name="metadata_max_idle_ms",
        type=LONG,
        default=300_000,
        valid=Range(5_000),
        importance="low",
        doc="A topic that nothing was sent to for this long is no longer asked for.",
    ),
    ConfigDef(
        name="metadata_recovery_strategy",
        type=STRING,
        default="rebootstrap",
        valid=OneOf("rebootstrap", "none", any_case=True),
        importance="low",
        doc="When none of the known brokers can be reached: start again from `bootstrap_servers`, or keep trying them.",
    ),
    ConfigDef(
        name="metadata_recovery_rebootstrap_trigger_ms",
        type=LONG,
        default=300_000,
        valid=_AT_LEAST_0,
        importance="low",
        doc="With `rebootstrap`: also start again when the picture of the cluster could not be renewed for this long.",
    ),
)

_DELIVERY = (
    ConfigDef(
        name="acks",
        type=ACKS,
        default=-1,
        importance="low",
        doc="Which brokers have to have a record before it counts as sent: `all` (-1) replicas in sync, the leader "
        "alone (1), or none (0: nothing is waited for, and offsets are not known).",
    ),
    ConfigDef(
        name="enable_idempotence",
        type=BOOLEAN,
        default=True,
        importance="low",
        doc="Each record is written once and in order in spite of retries. Needs `acks=all`, `retries` above 0 and at "
        "most 5 requests in flight; left out, it goes off by itself when `acks` or `retries` forbid it.",
    ),
    ConfigDef(
        name="max_in_flight_requests_per_connection",
        type=INT,
        default=5,
        valid=Range(1),
        importance="low",
        doc="Requests sent to a broker before it has answered the first. Above 1 without idempotence, retries can "
        "change the order.",
    ),
    ConfigDef(
        name="retries",
        type=INT,
        default=2_147_483_647,
        valid=_AT_LEAST_0,
        importance="high",
        doc="How often a record is tried again. `delivery_timeout_ms` is the better bound.",
    ),
    ConfigDef(
        name="retry_backoff_ms",
        type=LONG,
        default=100,
        valid=_AT_LEAST_0,
        importance="low",
        doc="The wait before a failed request is tried again.",
    ),
    ConfigDef(
        name="retry_backoff_max_ms",
        type=LONG,
        default=1_000,
        valid=_AT_LEAST_0,
        importance="low",
        doc="The bound of that wait, which doubles with every failure, spread by a fifth to both sides.",
    ),
    ConfigDef(
        name="delivery_timeout_ms",
        type=INT,
        default=120_000,
        valid=_AT_LEAST_0,
        importance="medium",
        doc="After this time in the buffer a record ends, as acknowledged or as failed, retries included. At least "
        "`linger_ms` + `request_timeout_ms`; left out, it is raised to that.",
    ),
    ConfigDef(
        name="max_block_ms",
        type=LONG,
        default=60_000,
        valid=_AT_LEAST_0,
        importance="medium",
        doc="How long a call may wait for the picture of the cluster and for buffer memory, together; also the bound "
        "of `start` and of each call of a transaction.",
    ),
    ConfigDef(
        name="on_error",
        type=ERROR_HANDLER,
        default=None,
        importance="medium",
        in_java=False,
        doc="Called on the event loop with an error, and with how many records failed by it whose end nobody had asked "
        "for.",
    ),
    ConfigDef(
        name="transactional_id",
        type=STRING,
        default=None,
        valid=Utf8Length(1, _MAX_STRING_BYTES - len("producer-")),  # client_id is made of it
        importance="low",
        doc="Turns transactions on. One name per producer that outlives restarts: a new producer of the same name "
        "fences the old one off.",
    ),
    ConfigDef(
        name="transaction_timeout_ms",
        type=INT,
        default=60_000,
        importance="low",
        doc="After this time the coordinator aborts an open transaction. The broker's `transaction.max.timeout.ms` "
        "bounds it. Without `transactional_id` it means nothing.",
    ),
    ConfigDef(
        name="transaction_two_phase_commit_enable",
        type=BOOLEAN,
        default=False,
        importance="low",
        supported=False,
        doc="Transactions that an outside coordinator ends, and that therefore never time out (KIP-939).",
    ),
)

_BATCHES = (
    ConfigDef(
        name="batch_size",
        type=INT,
        default=524_288,
        valid=_AT_LEAST_0,
        importance="medium",
        doc="A batch of a partition that has this many bytes is sent without waiting for `linger_ms`. Small batches "
        "cost throughput, on the brokers too; 0 sends each record alone. Memory is taken in blocks, of 2 KiB, 16 and "
        "then 64, as the batch grows, so a large value costs idle partitions nothing; records without a key still "
        "change partition after 16 KiB unless this config is set. A topic that a broker takes no such batches for gets "
        "smaller ones, see docs/architecture.md.",
        departs="16384 there. Measured with records of 1 KB on one broker, CPU seconds per million records: client 2.2 "
        "at 16 KiB and 1.2 from 256 KiB on; with lz4 4.2, 3.9 at 256 KiB and 3.6 at 512, broker 3.3, 2.6 and 2.4; "
        "larger gains little more.",
    ),
    ConfigDef(
        name="linger_ms",
        type=LONG,
        default=5,
        valid=_AT_LEAST_0,
        importance="medium",
        doc="How long a batch that is not full waits for more records, at most. An awaited `send` waits for it only "
        "while its broker owes an answer. Where this config is not set, batches wait up to fifty times as long while a "
        "program submits without a pause and they hold less than 64 records on average: with so many partitions their "
        "number would decide how fast it can go.",
    ),
    ConfigDef(
        name="buffer_memory",
        type=LONG,
        default=33_554_432,
        valid=_AT_LEAST_0,
        importance="high",
        doc="Memory for records that are not yet acknowledged. When it is used up, `submit` waits (`max_block_ms`) and "
        "`submit_nowait` raises.",
    ),
    ConfigDef(
        name="max_request_size",
        type=INT,
        default=1_048_576,
        valid=_AT_LEAST_0,
        importance="medium",
        doc="The largest record, before compression, and the largest request. Brokers and topics have limits of "
        "their own (`message.max.bytes`).",
    ),
    ConfigDef(
        name="compression_type",
        type=STRING,
        default="none",
        valid=OneOf("none", "gzip", "snappy", "lz4", "zstd"),
        importance="high",
        doc="How batches are compressed; the larger the batch, the better. `snappy` needs the extra of that name, "
        "`zstd` brokers from 2.1.",
    ),
    ConfigDef(
        name="compression_gzip_level",
        type=INT,
        default=-1,
        valid=Range(1, 9, also=-1),
        importance="medium",
        doc="1 is fastest, 9 smallest, -1 the library's choice.",
    ),
    ConfigDef(
        name="compression_lz4_level",
        type=INT,
        default=9,
        valid=Range(1, 17),
        importance="medium",
        doc="9 is the fast compressor, as in Java; every other level is the slow and small one, higher being smaller.",
    ),
    ConfigDef(
        name="compression_zstd_level",
        type=INT,
        default=3,
        valid=Range(-131_072, 22),
        importance="medium",
        doc="Negative is fastest, 22 smallest.",
    ),
)

_RECORDS = (
    ConfigDef(
        name="key_serializer",
        type=SERIALIZER,
        default=None,
        importance="high",
        departs="Java requires one; here bytes-like objects, str (as UTF-8) and None need none.",
        doc="Makes bytes of keys other than None; sync or async.",
    ),
    ConfigDef(
        name="value_serializer",
        type=SERIALIZER,
        default=None,
        importance="high",
        departs="Java requires one; here bytes-like objects, str (as UTF-8) and None need none.",
        doc="Makes bytes of values other than None; sync or async.",
    ),
    ConfigDef(
        name="partitioner_class",
        alias="partitioner",
        type=PARTITIONER,
        default=None,
        importance="medium",
        doc="Chooses the partition of records that don't name one. Left out: a key decides by its murmur2 hash, as in "
        "Java; records without a key stay with one partition for a batch, then change to another. "
        "`aioproducer.partitioners` has those of other clients, and BUILT_IN, which a function may return to leave a "
        "record to the built-in choice.",
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
        doc="For records without a key the built-in partitioner prefers partitions whose brokers keep up.",
    ),
    ConfigDef(
        name="partitioner_availability_timeout_ms",
        type=LONG,
        default=0,
        valid=_AT_LEAST_0,
        importance="low",
        doc="With adaptive partitioning: leave out brokers that could not be sent to for this long; 0 never does.",
    ),
    ConfigDef(
        name="interceptor_classes",
        alias="interceptors",
        type=INTERCEPTORS,
        default=(),
        importance="low",
        doc="Objects that see, and may change, each record before it is serialized, and that see its end: "
        "on_send(record) returns the Record that goes on, on_acknowledgement(metadata, error, headers) gets None for "
        "one of the first two. close(), on_start(client_id), on_transaction_begin(), on_transaction_end(committed), "
        "on_bulk_begin(topic) and on_bulk_end(result, error) are called if they have them. What one raises is logged "
        "and changes nothing.",
    ),
)

_METRICS = (
    ConfigDef(
        name="metrics_num_samples",
        type=INT,
        default=2,
        valid=Range(1),
        importance="low",
        doc="Rates, averages and maxima are taken over this many windows.",
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
        doc="Accepted; all metrics are of the level INFO and always recorded.",
    ),
    ConfigDef(
        name="enable_metrics_push",
        type=BOOLEAN,
        default=True,
        importance="low",
        doc="Gives the metrics to a cluster that asks for them (KIP-714).",
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
_KERBEROS = "tickets are kept by the system here"
_BROKER = "brokers check tokens, not this client"

JVM_ONLY: Mapping[str, str] = MappingProxyType(
    {
        "auto_include_jmx_reporter": "Producer.metrics() is always there",
        "config_providers": "put the values themselves",
        "metric_reporters": "Producer.metrics() is always there",
        "sasl_client_callback_handler_class": _CLASS,
        "sasl_kerberos_kinit_cmd": _KERBEROS,
        "sasl_kerberos_min_time_before_relogin": _KERBEROS,
        "sasl_kerberos_ticket_renew_jitter": _KERBEROS,
        "sasl_kerberos_ticket_renew_window_factor": _KERBEROS,
        "sasl_login_callback_handler_class": f"{_CLASS}; sasl_oauth_token_provider takes its place",
        "sasl_login_class": _CLASS,
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
"""Java's configs that only mean something to the JVM, with what to do here."""

JVM_ONLY_PREFIXES = ("config_providers_", "metrics_context_")
"""Names that begin like this are parameters of plugins of the JVM."""

OF_PYTHON_CLIENTS: Mapping[str, str] = MappingProxyType(
    {
        "max_batch_size": "batch_size",
        "sasl_plain_password": "sasl_password",
        "sasl_plain_username": "sasl_username",
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
