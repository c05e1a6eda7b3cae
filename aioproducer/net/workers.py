"""Blocking steps of a connection, in worker threads."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from aioproducer.errors import KafkaError

T = TypeVar("T")


async def in_worker(loop: asyncio.AbstractEventLoop, function: Callable[..., T], *arguments: object) -> T:
    """Call a function in a worker thread of the loop.

    Raises:
        KafkaError: no thread could be started for it. That may pass, so it fails the one attempt to connect.
    """
    return await _started(loop, function, *arguments)


class SharedCall(Generic[T]):
    """A call in a worker thread that all who ask while it is under way wait for.

    A file on a file system that hangs holds a thread for as long. Who gives up and tries again waits for the same one:
    else each attempt to connect would hold one more, until none is left for names either.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, function: Callable[..., T]) -> None:
        self._loop = loop
        self._function = function
        self._job: asyncio.Future[T] | None = None

    async def result(self, *arguments: object) -> T:
        """What the call under way returns, or else a new one with these arguments.

        Raises:
            KafkaError: no thread could be started for it.
        """
        if self._job is None or self._job.done():
            self._job = _started(self._loop, self._function, *arguments)
            self._job.add_done_callback(_look_at)
        job = self._job
        await asyncio.wait([job])
        return job.result()


def _look_at(job: asyncio.Future[T]) -> None:
    """An error that comes when all have given up is nobody's, and need not be logged."""
    if not job.cancelled():
        job.exception()


def _started(loop: asyncio.AbstractEventLoop, function: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
    try:
        return loop.run_in_executor(None, function, *arguments)
    except RuntimeError as error:
        raise KafkaError(f"no worker thread: {error}") from error


@contextmanager
def threads_are_scarce() -> Iterator[None]:
    """Have a call that the loop makes in a worker thread by itself fail with OSError where none can be started."""
    try:
        yield
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, f"no worker thread: {error}") from error
