"""What each librdkafka config becomes: a config of ours, nothing, or an error that says what to do instead.

Source: librdkafka's CONFIGURATION.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

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
        "sticky.partitioning.linger.ms": "partitioner_class",
        "sasl.mechanisms": "sasl_mechanism",
        "sasl.kerberos.keytab": "sasl_jaas_config",
        "sasl.kerberos.principal": "sasl_jaas_config",
        "oauth_cb": "sasl_oauth_token_provider",
        "ssl.ca.location": "ssl_truststore_location",
        "ssl.ca.pem": "ssl_truststore_certificates",
        "ssl.certificate.location": "ssl_keystore_certificate_chain",
        "ssl.certificate.pem": "ssl_keystore_certificate_chain",
        "ssl.key.location": "ssl_keystore_key",
        "ssl.key.pem": "ssl_keystore_key",
        "sasl.oauthbearer.client.id": "sasl_oauthbearer_client_credentials_client_id",
        "sasl.oauthbearer.client.secret": "sasl_oauthbearer_client_credentials_client_secret",
        "sasl.oauthbearer.assertion.jwt.template.file": "sasl_oauthbearer_assertion_template_file",
        "sasl.oauthbearer.extensions": "sasl_jaas_config",
        "sasl.oauthbearer.grant.type": "sasl_oauthbearer_jwt_retriever_class",
    }
)
"""librdkafka's names, with ours."""

_NO_THREADS = "there are no library threads or queues to configure"
_LOGGING = "set the levels of Python's loggers below aioproducer"
IGNORED: Mapping[str, str] = MappingProxyType(
    {
        "api.version.fallback.ms": "brokers are always asked for their versions",
        "api.version.request": "brokers are always asked for their versions",
        "api.version.request.timeout.ms": "it is part of setting up a connection",
        "batch.num.messages": "batches are bounded by batch_size alone",
        "broker.address.family": "all addresses of a name, of both families, are tried in turn",
        "broker.address.ttl": "names are resolved for each connection",
        "broker.version.fallback": "brokers are always asked for their versions",
        "builtin.features": "what a config needs is checked when the producer is made",
        "client.rack": "it is for consumers",
        "debug": _LOGGING,
        "delivery.report.only.error": "Deliveries report success and failure",
        "enable.background": _NO_THREADS,
        "enable.random.seed": _NO_THREADS,
        "enabled_events": _NO_THREADS,
        "error_cb": "errors come with the record, in on_error, and in the log",
        "internal.termination.signal": _NO_THREADS,
        "log.connection.close": _LOGGING,
        "log.queue": _LOGGING,
        "log.thread.name": _LOGGING,
        "log_cb": _LOGGING,
        "log_level": _LOGGING,
        "logger": _LOGGING,
        "message.copy.max.bytes": "records are always copied",
        "opaque": "a callback is a Python function and can hold its own state",
        "produce.offset.report": "offsets are always reported",
        "queue.buffering.backpressure.threshold": "requests go out as soon as a broker takes one",
        "queue.buffering.max.messages": "the buffer is bounded by buffer_memory alone",
        "queuing.strategy": "records of a partition go out in order",
        "receive.message.max.bytes": "answers of up to 100 MB are accepted, but only 512 KiB before login",
        "reconnect.backoff.jitter.ms": "librdkafka does not use it either; waits vary by a fifth in both directions",
        "request.timeout.ms": "socket.timeout.ms sets both waits: a broker's for replicas, and ours for a broker",
        "sasl.kerberos.min.time.before.relogin": "each login looks for a ticket again",
        "sasl.oauthbearer.sub.claim.name": "brokers check tokens, not this client",
        "socket.blocking.max.ms": _NO_THREADS,
        "socket.keepalive.enable": "keep-alive is always on, as in Java; how often is the system's setting",
        "socket.max.fails": "a request that is not answered in time ends its connection",
        "socket.nagle.disable": "Nagle's algorithm is always off",
        "ssl.engine.id": "it is for ssl.engine.location",
        "statistics.interval.ms": "call metrics() at any time",
        "stats_cb": "call metrics() at any time",
        "throttle_cb": "see produce-throttle-time-avg of metrics()",
        "topic.metadata.propagation.max.ms": "a call waits up to max_block_ms for an unknown topic",
        "topic.metadata.refresh.fast.cnt": "metadata is requested until it is there",
        "topic.metadata.refresh.fast.interval.ms": "retry_backoff_ms does that",
        "topic.metadata.refresh.sparse": "only topics in use are ever asked for",
    }
)
"""Configs without meaning here, and why; left out with one log line."""

_BUILDER = "give the serializer itself, one of aioproducer.integrations.schema_registry"
_CONTEXT = "make an ssl.SSLContext and give it as ssl_context"
_EVENTS = "there are no events: see Deliveries, on_error and the log"
_SOCKETS = "connections are made by the event loop, whose own methods can be replaced"
REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "background_event_cb": _EVENTS,
        "closesocket_cb": _SOCKETS,
        "connect_cb": _SOCKETS,
        "default_topic_conf": "give topic configs with the others, or as default.topic.config",
        "dr_cb": "give each Delivery a callback: delivery.add_done_callback(fn)",
        "dr_msg_cb": "give each Delivery a callback: delivery.add_done_callback(fn)",
        "https.ca.location": "put the certificates into ssl.ca.location, which also verifies the token endpoint",
        "https.ca.pem": "put the certificates into ssl.ca.pem, which also verifies the token endpoint",
        "key.serializer.builder": _BUILDER,
        "msg_order_cmp": "records of a partition go out in the order of their calls",
        "oauthbearer_token_refresh_cb": "give a function as oauth_cb",
        "on_delivery": "give each Delivery a callback: delivery.add_done_callback(fn)",
        "open_cb": "files are opened by Python; ssl.ca.pem, ssl.certificate.pem and ssl.key.pem take text",
        "partitioner_cb": "give a function as partitioner_class",
        "plugin.library.paths": "plugins of librdkafka can't be loaded; interceptor_classes takes Python objects",
        "resolve_cb": _SOCKETS,
        "sasl.oauthbearer.assertion.private.key.pem": "give sasl.oauthbearer.assertion.private.key.file",
        "schema.registry.url": "give it to aioproducer.integrations.schema_registry.SchemaRegistry",
        "socket_cb": _SOCKETS,
        "ssl.certificate.verify_cb": _CONTEXT,
        "ssl.crl.location": _CONTEXT,
        "ssl.curves.list": _CONTEXT,
        "ssl.engine.location": _CONTEXT,
        "ssl.providers": _CONTEXT,
        "ssl.sigalgs.list": _CONTEXT,
        "ssl_ca": "give the text as ssl.ca.pem",
        "ssl_certificate": "give the text as ssl.certificate.pem",
        "ssl_engine_callback_data": _CONTEXT,
        "ssl_key": "give the text as ssl.key.pem",
        "topic.blacklist": "compare the topic before a record is sent",
        "value.serializer.builder": _BUILDER,
    }
)
"""Configs that an application relies on and that this producer offers in another way, or not at all."""

_TRUE = ("true", "t", "1")
_FALSE = ("false", "f", "0")
_KINIT = '-t "%{sasl.kerberos.keytab}" -k %{sasl.kerberos.principal}'
SETTLED: Mapping[str, tuple[tuple[str, ...], str]] = MappingProxyType(
    {
        "enable.gapless.guarantee": (_FALSE, "await each record before the next, and stop at the first error"),
        "enable.sasl.oauthbearer.unsecure.jwt": (_FALSE, "make the token in oauth_cb"),
        "enable.ssl.certificate.verification": (_TRUE, _CONTEXT),
        "sasl.kerberos.kinit.cmd": (
            ("", f"kinit -R {_KINIT} || kinit {_KINIT}"),
            "run it outside, or give sasl.kerberos.keytab and sasl.kerberos.principal, which need no command",
        ),
        "sasl.oauthbearer.metadata.authentication.type": (
            ("none",),
            "get the token in oauth_cb; for Amazon MSK give sasl.mechanism=AWS_MSK_IAM",
        ),
        "ssl.ca.certificate.stores": (("Root",), _CONTEXT),
    }
)
"""Values, in upper or lower case, that match this producer's behaviour, and what to do instead of any other value."""

CONSUMERS: frozenset[str] = frozenset(
    (
        "auto.commit.enable", "auto.commit.interval.ms", "auto.offset.reset", "check.crcs",
        "consume.callback.max.messages", "consume_cb", "coordinator.query.interval.ms", "enable.auto.commit",
        "enable.auto.offset.store", "enable.partition.eof", "fetch.error.backoff.ms", "fetch.max.bytes",
        "fetch.message.max.bytes", "fetch.min.bytes", "fetch.queue.backoff.ms", "fetch.wait.max.ms", "group.id",
        "group.instance.id", "group.protocol", "group.protocol.type", "group.remote.assignor", "heartbeat.interval.ms",
        "isolation.level", "max.partition.fetch.bytes", "max.poll.interval.ms", "max.poll.records",
        "offset.store.method", "offset.store.path", "offset.store.sync.interval.ms", "offset_commit_cb",
        "partition.assignment.strategy", "queued.max.messages.kbytes", "queued.min.messages", "rebalance_cb",
        "session.timeout.ms", "share.acknowledgement.mode",
    )
)  # fmt: skip
"""librdkafka's consumer-only configs; left out with a warning, as there."""

HINTS: Mapping[str, str] = MappingProxyType(
    {
        **IGNORED,
        **REFUSED,
        **{name: instead for name, (_, instead) in SETTLED.items()},
        **dict.fromkeys(CONSUMERS, "it is for consumers"),
    }
)
"""The explanation for every name that has no config of ours."""
