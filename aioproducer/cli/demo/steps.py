"""The steps of the demo on the screen: one line each, with its current action or progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text


class _Count(MofNCompleteColumn):
    """Records done and in total, for steps over records."""

    def render(self, task: Task) -> Text:
        """Nothing for other steps."""
        return super().render(task) if task.fields["counted"] else Text("")


class Steps:
    """Shows steps while they run; without a terminal, at the end."""

    def __init__(self, console: Console) -> None:
        self.progress = Progress(
            SpinnerColumn(finished_text="[green]✓[/]"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            _Count(),
            TimeElapsedColumn(),
            console=console,
        )

    @contextmanager
    def step(self, what: str) -> Iterator[Callable[[str], None]]:
        """A step of unknown length; yields a function that changes the text."""
        task = self.progress.add_task(what, total=None, counted=False)
        yield lambda text: self.progress.update(task, description=text)
        self.progress.update(task, description=what, total=1, completed=1)

    @contextmanager
    def counted(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """A step over ``total`` records; yields a function to call with the number done."""
        task = self.progress.add_task(what, total=total, counted=True)
        yield lambda done: self.progress.update(task, completed=done)
