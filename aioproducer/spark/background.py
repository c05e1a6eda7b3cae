"""Background: a thread with an event loop for the producers of this process, so that blocking code can use them.

Spark runs the tasks of a Python worker one after the other, in the worker's main thread, and keeps the worker for later
tasks. A producer made for one task is kept for the next one with the same configs, and closed after some idle time. All
its records are acknowledged before its task ends, so a worker loses nothing when it is killed, or when PySpark's daemon
ends it with ``os._exit``, which skips atexit.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import BootstrapError, KafkaError
from aioproducer.event_loop import new_event_loop
from aioproducer.producer import Producer
from aioproducer.transactions import TransactionClient

CLOSE_S = 10.0
"""How long process exit may wait for producers to close."""

TRY_AGAIN_S = 0.5
"""Pause before trying again to reach a cluster."""

logger: logging.Logger = logging.getLogger("aioproducer.spark")

Result = TypeVar("Result")


class Background:
    """A thread that runs an event loop until the process ends, and the producers in it."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = new_event_loop()
        self.producers: ProducerCache = ProducerCache()
        # A daemon: process exit must not wait for an event loop that never ends by itself.
        self._thread = threading.Thread(target=self._loop.run_forever, name="aioproducer spark", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._loop.close()
            raise

    def start(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Run a coroutine in the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine in the loop and wait for its end; an interrupt cancels it."""
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    @contextmanager
    def inside(self, manager: AbstractAsyncContextManager[Result]) -> Iterator[Result]:
        """``with`` for an ``async with`` in the loop."""
        value = self.run(_entered(manager))
        try:
            yield value
        except BaseException as error:
            self.run(_left(manager, error))
            raise
        self.run(_left(manager, None))

    def close(self) -> None:
        """Close all producers and end the thread; a forked process has neither."""
        if self._loop.is_closed() or self._pid != os.getpid():
            return
        try:
            self.run(asyncio.wait_for(self.producers.close(), CLOSE_S))
        except (KafkaError, TimeoutError) as error:
            logger.warning("closing the producers at the end of the process: %s", str(error))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_S)
        if not self._thread.is_alive():
            self._loop.close()


async def _entered(manager: AbstractAsyncContextManager[Result]) -> Result:
    return await manager.__aenter__()


async def _left(manager: AbstractAsyncContextManager[Any], error: BaseException | None) -> None:
    """Exit the block as the ``with`` block was exited, with the same exception if it raised one."""
    try:
        if error is None:
            await manager.__aexit__(None, None, None)
        else:
            await manager.__aexit__(type(error), error, error.__traceback__)
    except BaseException as again:
        if again is not error:
            raise


class _TaskProducer(Producer):
    """One of many: each transaction needs its own, and the user who runs the query can't change that."""

    _is_counted = False


@dataclass(slots=True)
class _Kept:
    """A started producer, its number of users, and the timer that closes it when idle."""

    producer: Producer
    users: int = 0
    timer: asyncio.TimerHandle | None = None


class ProducerCache:
    """The producers of one event loop, by config."""

    def __init__(self) -> None:
        self._kept: dict[tuple[tuple[str, str], ...], _Kept] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def count(self) -> int:
        """How many producers are open."""
        return len(self._kept)

    @asynccontextmanager
    async def borrow(self, configs: Mapping[str, str], idle_s: float) -> AsyncIterator[Producer]:
        """A started producer with these configs, for the ``async with`` block; not kept if the block raises.

        Args:
            idle_s: how long to keep it afterwards while unused.
        """
        key = tuple(sorted(configs.items()))
        kept = self._kept.get(key)
        if kept is None:
            producer = await _started(configs)
            kept = self._kept[key] = _Kept(producer)
        if kept.timer is not None:
            kept.timer.cancel()
            kept.timer = None
        kept.users += 1
        try:
            yield kept.producer
        except BaseException:
            # It may have failed for good. A new one costs little compared with repeating a task.
            if self._kept.get(key) is kept:
                del self._kept[key]
            raise
        finally:
            kept.users -= 1
            if not kept.users:
                if self._kept.get(key) is kept:
                    kept.timer = asyncio.get_running_loop().call_later(idle_s, self._close_idle, key, kept)
                else:
                    self._close_soon(kept.producer, 0.0)

    def _close_idle(self, key: tuple[tuple[str, str], ...], kept: _Kept) -> None:
        if not kept.users and self._kept.get(key) is kept:
            del self._kept[key]
            self._close_soon(kept.producer, None)

    def _close_soon(self, producer: Producer, timeout: float | None) -> None:
        task = asyncio.get_running_loop().create_task(_close(producer, timeout))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all of them."""
        for kept in self._kept.values():
            if kept.timer is not None:
                kept.timer.cancel()
            self._close_soon(kept.producer, None)
        self._kept.clear()
        while self._closing:
            await asyncio.wait(self._closing)


@asynccontextmanager
async def in_transaction(configs: Mapping[str, str]) -> AsyncIterator[Producer]:
    """A producer in an open transaction, for the ``async with`` block; aborted unless prepared there.

    It is not kept: another process ends its transaction, after which it would need a new epoch anyway.

    Args:
        configs: with ``transactional.id``.
    """
    producer = await _started(configs)
    try:
        await producer.begin_transaction()
        yield producer
    finally:
        await _close(producer, CLOSE_S)


async def _started(configs: Mapping[str, str]) -> Producer:
    producer = _TaskProducer.from_config(configs)
    await start_patiently(producer, configs)
    return producer


async def start_patiently(one: Producer | TransactionClient, configs: Mapping[str, str]) -> None:
    """Start it; while no broker can be reached try again, for max_block_ms.

    Brokers that restart, or a network that is away for a moment, must not cost a task one of its attempts, and still
    less a query its driver.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + ProducerConfig.parse_dotted(configs).max_block_ms / 1000
    while True:
        try:
            await one.start()
        except BootstrapError:
            if loop.time() + TRY_AGAIN_S >= deadline:
                raise
            await asyncio.sleep(TRY_AGAIN_S)
        else:
            return


async def _close(producer: Producer, timeout: float | None) -> None:
    try:
        await producer.close(timeout)
    except KafkaError as error:
        # The task that sent these records has already reported how they ended.
        logger.debug("closing %s: %s", repr(producer), str(error))


_running: tuple[int, Background] | None = None
_starting = threading.Lock()


def background() -> Background:
    """The Background of this process; started on the first call."""
    global _running
    with _starting:
        # Workers are forked: the parent's thread does not exist in the child.
        if _running is None or _running[0] != os.getpid():
            _running = (os.getpid(), Background())
            atexit.register(_running[1].close)
        return _running[1]
