"""RecordFeed: admits the records of one send_many, slice by slice."""

from collections.abc import Iterable
from typing import Any, final

from aioproducer._admission import Admission
from aioproducer._tally import Tally

FEED_DONE: int
"""Every record received is admitted or refused."""
FEED_TURN: int
"""The event loop is due a turn."""
FEED_BLOCKED: int
"""The next record has to wait for metadata or memory."""
FEED_CLOSED: int
"""The producer no longer admits records."""
FEED_BROKEN: int
"""The caller's iterable raised; see ``error``."""
FEED_EMPTY: int
"""The next records must be fetched first."""

@final
class RecordFeed:
    """Admits the caller's records; for producers without user code to run.

    Args:
        tally: counts the records, and has the topic of the call.
        records: an iterable; None if they come by ``offer``.
    """

    error: Exception | None
    """What the iterable raised."""

    def __init__(self, producer: Admission, tally: Tally, records: Iterable[Any] | None = None) -> None: ...
    def run(self) -> int:
        """Admit records for at most a millisecond or 256 KiB; returns a FEED constant: why it stopped."""

    def offer(self, record: Any) -> int:
        """``run`` with one more record."""

    @property
    def holds_record(self) -> bool:
        """Whether it holds a record that is neither admitted nor refused."""

    @property
    def wanted(self) -> tuple[str, int | None]:
        """Topic and partition of that record.

        Raises:
            SerializationError: the partition is invalid.
        """

    def try_now(self) -> bool:
        """Admit that record as the first in the queue for memory; False if it still has to wait."""

    def refuse(self, error: Exception) -> None:
        """Fail that record, and go on with the next."""
