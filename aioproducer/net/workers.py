"""Blocking steps of a connection, in worker threads."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from aioproducer.errors import KafkaError

T = TypeVar("T")


async def in_worker(loop: asyncio.AbstractEventLoop, function: Callable[..., T], *arguments: object) -> T:
    """Call a function in a worker thread of the loop.

    Raises:
        KafkaError: no thread could be started for it. That may pass, so it fails the one attempt to connect.
    """
    try:
        job = loop.run_in_executor(None, function, *arguments)
    except RuntimeError as error:
        raise KafkaError(f"no worker thread: {error}") from error
    return await job


@contextmanager
def threads_are_scarce() -> Iterator[None]:
    """Have a call that the loop makes in a worker thread by itself fail with OSError where none can be started."""
    try:
        yield
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, f"no worker thread: {error}") from error
