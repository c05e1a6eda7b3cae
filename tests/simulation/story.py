"""What happened in a run, in order; printed if the run fails."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator


class Story:
    """Events with their times. They are formatted only when needed."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._events: list[tuple[float, str, tuple[object, ...]]] = []

    def tell(self, template: str, *facts: object) -> None:
        """Record an event; the facts are plain values that no longer change."""
        self._events.append((self._time(), template, facts))

    def lines(self) -> Iterator[str]:
        """The story, with seconds since its beginning."""
        began = self._events[0][0] if self._events else 0.0
        for time, template, facts in self._events:
            yield f"{time - began:11.5f}  {template % facts}"

    def digest(self) -> str:
        """Equal if and only if two runs were equal."""
        return hashlib.sha256("\n".join(self.lines()).encode()).hexdigest()
