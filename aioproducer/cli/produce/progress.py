"""The progress of ``aioproducer produce``, on a terminal only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from aioproducer.cli.produce.job import Counts


class Amount(Protocol):
    """An input, and how much of it was read."""

    @property
    def bytes_read(self) -> int:
        """So far."""
        ...

    @property
    def size_bytes(self) -> int | None:
        """In total; None if unknown."""
        ...


class _SourceBar(ProgressColumn):
    """Moves the bar by the bytes read; rich's own thread redraws it, so the loop has no work."""

    def __init__(self, source: Amount, counts: Counts) -> None:
        super().__init__()
        self._source = source
        self._counts = counts

    def render(self, task: Task) -> Text:
        """The current counts."""
        task.completed = self._source.bytes_read
        counts = self._counts
        text = f"{counts.read:,} read, {counts.acked:,} acked"
        wrong = counts.failed + counts.rejected
        return Text(f"{text}, {wrong:,} failed" if wrong else text)


@contextmanager
def show_progress(console: Console, source: Amount, counts: Counts) -> Iterator[None]:
    """Show bytes and counts while the block runs, if the console is a terminal."""
    columns = [
        _SourceBar(source, counts),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    ]
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        progress.add_task("", total=source.size_bytes)
        yield
