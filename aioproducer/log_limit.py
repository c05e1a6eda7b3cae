"""LogLimit: keeps a trouble that lasts from filling the log."""

from __future__ import annotations

from collections.abc import Hashable

WARN_EVERY_MS = 60_000
"""How often a warning is repeated while its cause lasts."""


class LogLimit:
    """Says which log lines to write.

    Args:
        every_ms: the least time between two lines with the same key.
        most: the most lines with different keys in that time; None for no limit.
    """

    def __init__(self, every_ms: int, most: int | None = None) -> None:
        self._every_ms = every_ms
        self._most = most
        self._told_ms: dict[Hashable, int] = {}  # in the order of the times

    @property
    def full(self) -> bool:
        """Whether the last line that was allowed was the last of ``most``."""
        return self._most is not None and len(self._told_ms) >= self._most

    def allows(self, now_ms: int, key: Hashable = None) -> bool:
        """Whether to write a line now; if so, it counts as written."""
        while self._told_ms:
            first = next(iter(self._told_ms))
            if now_ms < self._told_ms[first] + self._every_ms:
                break
            del self._told_ms[first]
        if self.full or key in self._told_ms:
            return False
        self._told_ms[key] = now_ms
        return True

    def again_at_ms(self, key: Hashable = None) -> int:
        """When a line with a key that was written lately may be written again."""
        return self._told_ms[key] + self._every_ms
