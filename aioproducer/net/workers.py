"""Blocking steps of a connection, in the loop's worker threads or, if they may hang for long, in one of their own."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Generic, TypeVar

from aioproducer.errors import KafkaError

T = TypeVar("T")


async def in_worker(loop: asyncio.AbstractEventLoop, function: Callable[..., T], *arguments: object) -> T:
    """Call a function in a worker thread of the loop.

    Raises:
        KafkaError: no thread could be started for it. That is transient, so only this attempt to connect fails.
    """
    return await _started(loop, function, *arguments)


class SharedCall(Generic[T]):
    """A call in a worker thread, shared by all callers that ask while it is under way.

    A file on a hung file system blocks a thread for as long. Callers that give up and retry wait for the same call:
    otherwise each attempt to connect would block one more thread, until none is left for name lookups either.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, function: Callable[..., T]) -> None:
        self._loop = loop
        self._function = function
        self._job: asyncio.Future[T] | None = None

    async def result(self, *arguments: object) -> T:
        """The result of the call under way, or else of a new one with these arguments.

        Raises:
            KafkaError: no thread could be started for it.
        """
        if self._job is None or self._job.done():
            self._job = _started(self._loop, self._function, *arguments)
            self._job.add_done_callback(_look_at)
        job = self._job
        await asyncio.wait([job])
        return job.result()


def in_own_thread(
    loop: asyncio.AbstractEventLoop, name: str, function: Callable[..., T], *arguments: object
) -> asyncio.Future[T]:
    """Call a function in a thread of its own, so that nothing has to wait for it.

    Neither do the calls in the loop's worker threads, of which there are few and which belong to the program, nor the
    end of the loop or of the process.

    Raises:
        RuntimeError: no thread could be started for it.
    """
    job: asyncio.Future[T] = loop.create_future()
    job.add_done_callback(_look_at)

    def run() -> None:
        try:
            end = partial(job.set_result, function(*arguments))
        except Exception as error:
            end = partial(job.set_exception, error)
        with suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(end)
        del end  # the error's traceback refers to this frame

    threading.Thread(target=run, name=name, daemon=True).start()
    return job


def _look_at(job: asyncio.Future[T]) -> None:
    """Retrieve an error that comes after all callers gave up, so that asyncio does not log it."""
    if not job.cancelled():
        job.exception()


def _started(loop: asyncio.AbstractEventLoop, function: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
    try:
        return loop.run_in_executor(None, function, *arguments)
    except RuntimeError as error:
        raise no_thread(error) from error


def no_thread(error: RuntimeError) -> KafkaError:
    """The error of an attempt to connect for which no thread could be started."""
    return KafkaError(f"no worker thread: {error}")


@contextmanager
def threads_are_scarce() -> Iterator[None]:
    """Make the loop's own calls in worker threads fail with OSError if no thread can be started."""
    try:
        yield
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, f"no worker thread: {error}") from error
