"""ApiVersions (key 18): the requests and versions that a broker accepts, and the features of its cluster."""

from __future__ import annotations

from aioproducer.protocol.schema import Int16, Int32, Int64, Message, Request, Struct, field

UNSUPPORTED_VERSION = b"\0\x23"  # error code 35, the first field of an answer


class ApiVersion(Struct):
    """The versions of one request that a broker accepts."""

    api_key: Int16
    min_version: Int16
    max_version: Int16


class SupportedFeatureKey(Struct):
    """The levels of a feature that this broker supports."""

    name: str
    min_version: Int16
    max_version: Int16


class FinalizedFeatureKey(Struct):
    """The level of a feature that the whole cluster has agreed on; ``transaction.version`` is one (KIP-890)."""

    name: str
    max_version_level: Int16
    min_version_level: Int16


class ApiVersionsResponse(Message):
    """What a broker speaks. ``finalized_features_epoch`` is -1 if the broker does not know the features."""

    error_code: Int16 = field(default=0)
    api_keys: list[ApiVersion]
    throttle_time_ms: Int32 = field(default=0, since=1, ignorable=True)
    supported_features: list[SupportedFeatureKey] = field(default_factory=list, since=3, tag=0, ignorable=True)
    finalized_features_epoch: Int64 = field(default=-1, since=3, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = field(default_factory=list, since=3, tag=2, ignorable=True)
    zk_migration_ready: bool = field(default=False, since=3, tag=3, ignorable=True)

    @classmethod
    def _as_written(cls, data: bytes, version: int) -> tuple[bytes, int]:
        # A broker that does not know the request's version can't answer in it, so it uses version 0 (KIP-511). Others,
        # such as librdkafka's mock cluster, mix versions up: such an answer tells no more than its error.
        if not data.startswith(UNSUPPORTED_VERSION):
            return data, version
        count = int.from_bytes(data[2:6])
        return (data if len(data) == 6 + count * 6 else UNSUPPORTED_VERSION + bytes(4)), 0


class ApiVersionsRequest(Request[ApiVersionsResponse]):
    """The first request on a connection.

    Name and version of the software consist of letters, digits, ``-`` and ``.``, with a letter or digit at both ends.
    After error 35 ask again in the version that the answer gives for key 18, or in version 0 if it gives none.

    With ``cluster_id`` and ``node_id``, which need each other, a broker that is another one answers error 129
    (KIP-1242).
    """

    API_KEY = 18
    MIN_VERSION = 0
    MAX_VERSION = 5
    FLEXIBLE_FROM = 3

    client_software_name: str = field(default="", since=3, ignorable=True)
    client_software_version: str = field(default="", since=3, ignorable=True)
    cluster_id: str | None = field(default=None, since=5, ignorable=True)
    node_id: Int32 = field(default=-1, since=5, ignorable=True)

    @classmethod
    def response_header_is_flexible(cls, version: int) -> bool:
        # The client can't know yet what the broker speaks, so this header never changes.
        return False
