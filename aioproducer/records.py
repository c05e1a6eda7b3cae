"""The plain values that the producer takes and returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from aioproducer._record_metadata import RecordMetadata as RecordMetadata

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Key_contra = TypeVar("Key_contra", contravariant=True, default=Any)
    Value_contra = TypeVar("Value_contra", contravariant=True, default=Any)
else:  # Defaults came with Python 3.13; without a type, keys and values may be anything.
    from typing import TypeVar

    Key_contra = TypeVar("Key_contra", contravariant=True)
    Value_contra = TypeVar("Value_contra", contravariant=True)

Headers = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]
"""What ``headers`` arguments accept; order and repeated names are kept."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record for ``send_many``, and what interceptors see.

    Args:
        value, key: bytes-like, str (UTF-8), None, or what the configured serializer takes.
        topic: None if the call names it.
        partition: None lets the partitioner choose.
        headers: pairs of (str, bytes | None), or a mapping.
        timestamp_ms: milliseconds since the epoch; None means the time of its admission.
    """

    # Payloads stay out of the repr, so that a logged record can't leak them.
    value: Any = field(default=None, repr=False)
    key: Any = field(default=None, repr=False)
    topic: str | None = field(default=None, kw_only=True)
    partition: int | None = field(default=None, kw_only=True)
    headers: Headers | None = field(default=None, kw_only=True, repr=False)
    timestamp_ms: int | None = field(default=None, kw_only=True)


class TopicPartition(NamedTuple):
    """A partition of a topic; its text is ``topic-partition``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class PartitionInfo(NamedTuple):
    """What the cluster says about one partition; replicas are node ids."""

    topic: str
    partition: int
    leader: int | None
    """The node id of the leader; None while there is none."""
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]


MAX_ERRORS = 1_000
"""The most errors in a BatchResult by default: enough to see what is wrong, for any number of records."""


class BatchResult(NamedTuple):
    """How the records of one ``send_many`` or ``send_arrow`` ended."""

    acked: int
    failed: int
    """Not acknowledged, or not even admitted; together with ``acked``, all records that the call took."""
    offsets: dict[int | TopicPartition, list[tuple[int, int]]]
    """Acknowledged records by partition, as ascending ranges of (first, last) offset.

    A partition of a topic other than the call's has its TopicPartition as key. Records whose offset the broker did not
    report (``acks=0``) are left out.
    """
    errors: list[tuple[int, Exception]]
    """(index, error) of the first 1,000 failed records; indexes count from 0 in the order the call took them.

    Records that a broker refused are among them however many others failed, for instance because they shared a batch.
    """


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A consumer's position in a partition.

    Args:
        offset: that of the next record to consume.
        metadata: text to store with it.
        leader_epoch: of the last record consumed; None if unknown.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """A consumer's membership in its group; see ``aioproducer.consumers``.

    If more than the group's id is given, the group refuses offsets of a member that has left it (KIP-447, Kafka 2.5).
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """What another process needs to end a transaction; see ``aioproducer.transactions``. It can be pickled.

    Args:
        transactional_id: that of the producer that wrote it.
        producer_id, epoch: those of the producer when it wrote.
        transaction_version: 2 if the cluster had transactions V2 (KIP-890), else 1.
        is_empty: nothing was written, so there is nothing to end.
        started_ms: when it began, by the coordinator's clock, which identifies it; -1 before Kafka 3.0.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    transaction_version: int = 1
    is_empty: bool = False
    started_ms: int = -1


class ArrowStreamExportable(Protocol):
    """A table, data frame or stream with the Arrow PyCapsule interface."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


class ArrowArrayExportable(Protocol):
    """A record batch with the Arrow PyCapsule interface."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any: ...


ArrowData: TypeAlias = ArrowStreamExportable | ArrowArrayExportable
"""What ``send_arrow`` accepts."""
