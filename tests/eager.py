"""Tasks that begin at once, as some programs have them (Python 3.12)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


def make_tasks_eager(loop: asyncio.AbstractEventLoop) -> None:
    """As with ``asyncio.eager_task_factory``, to which uvloop 0.23 passes more than that of Python 3.13.0 takes."""
    loop.set_task_factory(_eager)  # type: ignore[arg-type]


def _eager(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
    return asyncio.Task(work, loop=loop, **{**options, "eager_start": True})
