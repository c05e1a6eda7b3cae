"""Arrow columns as records: the C data interface, what columns hold, and the feed of one send_arrow."""

from typing import Any, final

from aioproducer._admission import Admission
from aioproducer._tally import Tally
from aioproducer.errors import SerializationError
from aioproducer.records import Record

class CorruptArrowError(SerializationError):
    """Buffers that contradict their own lengths: nothing that comes from there can be believed."""

@final
class ArrowSource:
    """A stream of record batches, or one batch, taken over by the PyCapsule interface and released with this object.

    Making one runs the other library's code, which may take long.

    Raises:
        TypeError: ``data`` has no such interface, or no columns.
        SerializationError: the stream failed.
    """

    def __init__(self, data: Any) -> None: ...

@final
class ArrowFeed:
    """Turns rows into admitted records, straight from Arrow's buffers.

    Of one batch they are here from the start, of a stream after ``fetch``.

    Args:
        tally: counts the records, and has the topic of rows that name none.
        key, value, headers, partition, timestamp, topic_column: names of columns; those that are not there are not
            used.
    Raises:
        SerializationError: the value's column is missing, or a column has a type that does not fit.
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
    def error(self) -> Exception | None:
        """Why no more rows come, if that is not the end of the data."""

    def fetch(self) -> None:
        """Get the next batches from the source; for any thread, one at a time, while nothing else is called."""

    def run(self) -> int:
        """Admit rows, for a millisecond or 256 KiB at most; one of `_feed`'s FEED constants says why no more."""

    @property
    def holds_record(self) -> bool:
        """Whether there is a row here that is neither admitted nor refused."""

    @property
    def wanted(self) -> tuple[str, int | None]:
        """Topic and partition of that row."""

    def try_now(self) -> bool:
        """Admit that row as the first of those who wait for memory; False if it still has to wait."""

    def refuse(self, error: Exception) -> None:
        """Fail that row, and go on with the next."""

    def next_record(self) -> Record | Exception | None:
        """The next row as a Record with str and bytes, or the error that it is; None if ``fetch`` has to be called.

        Raises:
            Exception: no more rows come, and that is not the end of the data.
        """

    @property
    def exhausted(self) -> bool:
        """Whether everything was fetched."""
