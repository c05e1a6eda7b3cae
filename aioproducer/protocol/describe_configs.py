"""DescribeConfigs (key 32): the configs of topics and of brokers. Brokers from 1.1 answer."""

from __future__ import annotations

from aioproducer.protocol.schema import Int8, Int16, Int32, Message, Request, Struct, field

TOPIC, BROKER, CLIENT_METRICS = 2, 4, 16
"""``resource_type``."""


class DescribeConfigsResource(Struct):
    """A resource and the requested names, None for all."""

    resource_type: Int8
    resource_name: str
    configuration_keys: list[str] | None


class DescribeConfigsSynonym(Struct):
    """Another possible source of a value."""

    name: str
    value: str | None
    source: Int8


class DescribeConfigsResourceResult(Struct):
    """One config; ``value`` is None if it is a secret."""

    name: str
    value: str | None
    read_only: bool
    config_source: Int8 = field(default=-1)
    is_sensitive: bool
    synonyms: list[DescribeConfigsSynonym] = field(default_factory=list)
    config_type: Int8 = field(default=0, since=3, ignorable=True)
    documentation: str | None = field(default=None, since=3, ignorable=True)


class DescribeConfigsResult(Struct):
    """The configs of one resource."""

    error_code: Int16
    error_message: str | None
    resource_type: Int8
    resource_name: str
    configs: list[DescribeConfigsResourceResult]


class DescribeConfigsResponse(Message):
    """One result per resource."""

    throttle_time_ms: Int32 = field(default=0)
    results: list[DescribeConfigsResult]


class DescribeConfigsRequest(Request[DescribeConfigsResponse]):
    """Ask for configs; only the broker itself knows its own."""

    API_KEY = 32
    MIN_VERSION = 1
    MAX_VERSION = 4
    FLEXIBLE_FROM = 4

    resources: list[DescribeConfigsResource]
    include_synonyms: bool = field(default=False)
    include_documentation: bool = field(default=False, since=3)
