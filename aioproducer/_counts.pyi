"""The sums behind the metrics, window by window."""

from collections.abc import Callable
from typing import Generic, TypeVar, final

from aioproducer._producer_batch import ProducerBatch

C = TypeVar("C", bound=Counts)

class Counts:
    """Sums, and maxima where the name ends with ``_max``, of one window; zeros when made, equal if all fields are."""

    def add(self, other: Counts) -> None:
        """Take in the counts of another window."""

@final
class TopicCounts(Counts):
    """Of one topic."""

    batches: int
    batch_bytes: int
    records: int
    compression_ratios: float
    errors: int
    retries: int

@final
class NodeCounts(Counts):
    """Of the connection to one broker."""

    requests: int
    request_bytes: int
    request_bytes_max: int
    responses: int
    response_bytes: int
    latencies: int
    latency_ms: int
    latency_ms_max: int

@final
class ProducerCounts(Counts):
    """Of the whole producer."""

    batches: int
    batch_bytes: int
    batch_bytes_max: int
    compression_ratios: float
    queue_ms: int
    queue_ms_max: int
    records: int
    record_bytes: int
    record_bytes_max: int
    produce_requests: int
    errors: int
    retries: int
    splits: int
    throttles: int
    throttle_ms: int
    throttle_ms_max: int
    buffer_wait_ms: int
    buffer_exhausted: int
    flush_ms: int
    metadata_wait_ms: int
    txn_init_ms: int
    txn_begin_ms: int
    txn_send_offsets_ms: int
    txn_prepare_ms: int
    txn_commit_ms: int
    txn_abort_ms: int
    connections_opened: int
    connections_closed: int
    logins: int
    logins_failed: int
    logins_again: int
    logins_again_failed: int
    login_again_ms: int
    login_again_ms_max: int

@final
class Windows(Generic[C]):
    """The counts of the latest windows, and of the whole lifetime.

    Args:
        make: the class of the counts.
        samples: how many windows are recent.
        window_ms: their length.
    """

    def __init__(self, make: Callable[[], C], samples: int, window_ms: int) -> None: ...
    def at(self, now_ms: int) -> C:
        """The counts that an event at this time is added to."""

    def recent(self, now_ms: int) -> C:
        """The sum over the latest windows."""

    def total(self, now_ms: int) -> C:
        """The sum over the whole lifetime."""

    def elapsed_ms(self, now_ms: int) -> int:
        """The time that ``recent`` covers; at least all full windows but one."""

def count_batches_sent(
    producer: Windows[ProducerCounts],
    topics: dict[str, Windows[TopicCounts]],
    make_windows: Callable[[type[TopicCounts]], Windows[TopicCounts]],
    batches: list[ProducerBatch],
    now_ms: int,
) -> None:
    """Count one Produce request and its batches.

    Args:
        topics: by name; a missing topic gets one from ``make_windows``.
    """

@final
class Traffic:
    """Traffic of one connection, counted for its node and for all nodes.

    Args:
        node: counts of the node.
        network: counts of all nodes together.
    """

    def __init__(self, node: Windows[NodeCounts], network: Windows[NodeCounts]) -> None: ...
    def sent(self, size_bytes: int, now_ms: int) -> None:
        """A request of any kind was written; its frame has this size."""

    def received(self, size_bytes: int, now_ms: int) -> None:
        """A response of any kind was read; its frame has this size."""

def count_answer(
    producer: Windows[ProducerCounts], traffic: Traffic, latency_ms: int, throttle_ms: int, now_ms: int
) -> None:
    """Count one answer to Produce: how long it took, and how long it asks to wait, 0 included."""
