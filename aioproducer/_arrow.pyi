"""ArrowFeed: admits the rows of one send_arrow call."""

from collections.abc import Callable
from typing import final

from aioproducer._admission import Admission
from aioproducer._arrow_source import ArrowSource
from aioproducer._tally import Tally
from aioproducer.errors import KafkaError
from aioproducer.records import Record

@final
class ArrowFeed:
    """Turns rows into admitted records, straight from Arrow's buffers.

    The rows of a single batch are here from the start, those of a stream after ``fetch``.

    Args:
        tally: counts the records, and has the topic for rows without one.
        key, value, headers, partition, timestamp, topic_column: column names; absent columns are not used.
    Raises:
        SerializationError: the value column is missing, or a column has an unsuitable type.
    """

    def __init__(
        self,
        producer: Admission,
        tally: Tally,
        source: ArrowSource,
        *,
        key: str,
        value: str,
        headers: str,
        partition: str,
        timestamp: str,
        topic_column: str,
    ) -> None: ...
    @property
    def names(self) -> frozenset[str]:
        """Of all columns of the data, whether they are used or not."""

    @property
    def error(self) -> Exception | None:
        """Why no more rows come, unless the data simply ended."""

    def fetch(self, arrived: Callable[[], object] | None = None) -> None:
        """Get the next batches from the source; in any thread, one call at a time.

        Meanwhile the loop's thread may call the other methods.

        Args:
            arrived: called in this thread when there are rows after ``await_rows``, and the source is asked for more.
        """

    def stop(self) -> None:
        """End a ``fetch`` under way, after the batch that it waits for."""

    def await_rows(self) -> bool:
        """Whether there are no rows now, so that ``fetch`` has to tell of the next."""

    @property
    def has_ended(self) -> bool:
        """Whether all batches have been taken, and none follows."""

    def run(self) -> int:
        """Admit rows for at most a millisecond or 256 KiB; returns a FEED constant of `_feed`: why it stopped."""

    @property
    def holds_record(self) -> bool:
        """Whether a row is here that is neither admitted nor refused."""

    @property
    def wanted(self) -> tuple[str, int | None]:
        """Topic and partition of that row."""

    def try_now(self) -> bool:
        """Admit that row as the first in the queue for memory; False if it still has to wait."""

    def refuse(self, error: Exception) -> None:
        """Fail that row, and go on with the next."""

    def next_record(self) -> Record | KafkaError | None:
        """The next row as a Record with str and bytes, or the row's error; None if ``fetch`` must be called first.

        Raises:
            Exception: no more rows come, although the data has not ended.
        """

    @property
    def exhausted(self) -> bool:
        """Whether everything was fetched."""
