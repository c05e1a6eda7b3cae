"""StartCount: notices a process that creates a producer per request or per topic."""

from __future__ import annotations

import logging
from collections import deque

logger: logging.Logger = logging.getLogger("aioproducer.producer")

MANY = 20
"""No warning up to this many producers within ``WITHIN_MS``, or open at the same time."""
WITHIN_MS = 60_000


class StartCount:
    """Counts the producers that a process starts, and warns once when there are too many.

    Each has its own connections, buffer and tasks, and one can take the records of a whole program. With one producer
    per request, every record costs a start and a login, and no two records share a batch.
    """

    def __init__(self) -> None:
        self._started_ms: deque[int] = deque(maxlen=MANY + 1)
        self._told = False

    def started(self, now_ms: int, open_now: int) -> None:
        """Count one more; ``open_now`` is the number now open, this one included."""
        self._started_ms.append(now_ms)
        lately = sum(now_ms - each_ms <= WITHIN_MS for each_ms in self._started_ms)
        if self._told or max(lately, open_now) <= MANY:
            return
        self._told = True
        logger.warning(
            "%d producers were started within %d s, and %d %s open in this process: one is enough for all records of "
            "an event loop, whatever their topics, for as long as the program runs",
            lately, WITHIN_MS // 1000, open_now, "is" if open_now == 1 else "are",
        )  # fmt: skip
