"""ProducerConfigs: the keywords of Producer with their types, for type checkers and editors.

`aioproducer.config.table` remains the source of truth; nothing reads this at run time.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Generic, Literal, SupportsIndex, TypedDict

from aioproducer.errors import KafkaError
from aioproducer.oauth_token import OAuthToken
from aioproducer.partitioners import Partitioner
from aioproducer.records import Key_contra, Value_contra
from aioproducer.serializers import Serializer


class ProducerConfigs(TypedDict, Generic[Key_contra, Value_contra], total=False):
    """The configs of a Producer by keyword: Python values, or Java's strings.

    Use it to type a function that passes configs on, ``**configs: Unpack[ProducerConfigs]``, or a dict of them. The
    keys are in the order of the table, see docs/configuration.md.
    """

    # Cluster and connections
    bootstrap_servers: list[str] | tuple[str, ...] | str
    bootstrap_resolve_timeout_ms: SupportsIndex | str
    client_id: str | None
    client_rack: str | None
    client_dns_lookup: str
    proxy_url: str | None
    request_timeout_ms: SupportsIndex | str
    socket_connection_setup_timeout_ms: SupportsIndex | str
    socket_connection_setup_timeout_max_ms: SupportsIndex | str
    connections_max_idle_ms: SupportsIndex | str
    reconnect_backoff_ms: SupportsIndex | str
    reconnect_backoff_max_ms: SupportsIndex | str
    send_buffer_bytes: SupportsIndex | str
    receive_buffer_bytes: SupportsIndex | str
    metadata_max_age_ms: SupportsIndex | str
    metadata_max_idle_ms: SupportsIndex | str
    metadata_recovery_strategy: str
    metadata_recovery_rebootstrap_trigger_ms: SupportsIndex | str
    metadata_cluster_check_enable: bool | str
    allow_auto_create_topics: bool | str
    # Delivery
    acks: SupportsIndex | str
    enable_idempotence: bool | str
    max_in_flight_requests_per_connection: SupportsIndex | str
    retries: SupportsIndex | str
    retry_backoff_ms: SupportsIndex | str
    retry_backoff_max_ms: SupportsIndex | str
    delivery_timeout_ms: SupportsIndex | str
    max_block_ms: SupportsIndex | str
    on_error: Callable[[KafkaError, int], object] | None
    transactional_id: str | None
    transaction_timeout_ms: SupportsIndex | str
    transaction_two_phase_commit_enable: bool | str
    # Batches and memory
    batch_size: SupportsIndex | str
    linger_ms: SupportsIndex | str
    buffer_memory: SupportsIndex | str
    max_request_size: SupportsIndex | str
    compression_type: str
    compression_gzip_level: SupportsIndex | str
    compression_lz4_level: SupportsIndex | str
    compression_zstd_level: SupportsIndex | str
    # Records
    key_serializer: Serializer[Key_contra] | str | None
    value_serializer: Serializer[Value_contra] | str | None
    partitioner_class: Partitioner | str | None
    partitioner: Partitioner | str | None
    partitioner_ignore_keys: bool | str
    partitioner_adaptive_partitioning_enable: bool | str
    partitioner_availability_timeout_ms: SupportsIndex | str
    partitioner_rack_aware: bool | str
    interceptor_classes: list[Any] | tuple[Any, ...] | Literal[""]
    interceptors: list[Any] | tuple[Any, ...] | Literal[""]
    # Metrics
    metrics_num_samples: SupportsIndex | str
    metrics_sample_window_ms: SupportsIndex | str
    metrics_recording_level: str
    enable_metrics_push: bool | str
    # TLS
    security_protocol: str
    ssl_context: ssl.SSLContext | None
    ssl_truststore_location: os.PathLike[str] | str | None
    ssl_truststore_certificates: str | None
    ssl_truststore_type: str
    ssl_truststore_password: str | None
    ssl_keystore_location: os.PathLike[str] | str | None
    ssl_keystore_key: str | None
    ssl_keystore_certificate_chain: str | None
    ssl_keystore_type: str
    ssl_keystore_password: str | None
    ssl_key_password: str | None
    ssl_endpoint_identification_algorithm: str
    ssl_enabled_protocols: list[str] | tuple[str, ...] | str
    ssl_protocol: str
    ssl_cipher_suites: list[str] | tuple[str, ...] | str
    # Login (SASL)
    sasl_mechanism: str
    sasl_username: str | None
    sasl_password: str | None
    sasl_credentials_provider: Callable[[], Awaitable[tuple[str, str]]] | None
    sasl_oauth_token_provider: Callable[[], Awaitable[OAuthToken | str]] | None
    sasl_jaas_config: str | None
    sasl_kerberos_service_name: str | None
    sasl_login_connect_timeout_ms: SupportsIndex | str | None
    sasl_login_read_timeout_ms: SupportsIndex | str | None
    sasl_login_retry_backoff_ms: SupportsIndex | str
    sasl_login_retry_backoff_max_ms: SupportsIndex | str
    sasl_login_refresh_window_factor: float | str
    sasl_login_refresh_window_jitter: float | str
    sasl_login_refresh_min_period_seconds: SupportsIndex | str
    sasl_login_refresh_buffer_seconds: SupportsIndex | str
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_jwt_retriever_class: str
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: str | None
    sasl_oauthbearer_header_urlencode: bool | str
    sasl_oauthbearer_assertion_algorithm: str
    sasl_oauthbearer_assertion_claim_aud: str | None
    sasl_oauthbearer_assertion_claim_exp_seconds: SupportsIndex | str
    sasl_oauthbearer_assertion_claim_iss: str | None
    sasl_oauthbearer_assertion_claim_jti_include: bool | str
    sasl_oauthbearer_assertion_claim_nbf_seconds: SupportsIndex | str
    sasl_oauthbearer_assertion_claim_sub: str | None
    sasl_oauthbearer_assertion_file: os.PathLike[str] | str | None
    sasl_oauthbearer_assertion_private_key_file: os.PathLike[str] | str | None
    sasl_oauthbearer_assertion_private_key_passphrase: str | None
    sasl_oauthbearer_assertion_template_file: os.PathLike[str] | str | None
