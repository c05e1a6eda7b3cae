"""StartCount: notices a process that makes a producer for each request, or for each topic."""

from __future__ import annotations

import logging
from collections import deque

logger: logging.Logger = logging.getLogger("aioproducer.producer")

MANY = 20
"""So many producers within ``WITHIN_MS``, or open at the same time, are nothing to speak of."""
WITHIN_MS = 60_000


class StartCount:
    """Counts the producers that a process starts, and warns once when they are more than makes sense.

    Each has connections, buffer and tasks of its own, and one has room for the records of a whole program. One for each
    request pays for a start, and for a login, with every record, and no two records share a batch.
    """

    def __init__(self) -> None:
        self._started_ms: deque[int] = deque(maxlen=MANY + 1)
        self._told = False

    def started(self, now_ms: int, open_now: int) -> None:
        """Count one more; ``open_now`` is how many there are, with this one."""
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
