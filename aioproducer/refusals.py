"""The errors of calls made too early, too late, or from elsewhere."""

from __future__ import annotations

from aioproducer.errors import KafkaError, NotStartedError, ProducerClosedError, WrongLoopError


def not_started() -> KafkaError:
    """For a call before ``start``."""
    return NotStartedError("the producer was not started; use async with, or await start()")


def still_starting() -> KafkaError:
    """For a call while ``start`` runs."""
    return NotStartedError(
        "the producer is still starting; call it after start() has returned, or in the body of async with"
    )


def closed() -> KafkaError:
    """For a call after ``close``."""
    return ProducerClosedError("the producer was closed; it does not start again, make a new one")


def in_fork() -> KafkaError:
    """For a call in a forked child of the process that started the producer."""
    return WrongLoopError("this process was forked from the one that started the producer; start a new one here")


def in_no_loop() -> KafkaError:
    """For a start where asyncio does not run."""
    return WrongLoopError("a producer needs asyncio's event loop, which does not run here; trio has another kind")


def in_other_loop() -> KafkaError:
    """For a call from a coroutine or callback of another event loop, or outside any."""
    return WrongLoopError(
        "this producer was started in another event loop; use it from coroutines and callbacks of that loop, "
        "or start a separate producer for each loop"
    )


def in_other_thread() -> KafkaError:
    """For a plain call from a thread where the producer's loop does not run."""
    return WrongLoopError(
        "this producer was started in another thread; hand the record over with "
        "loop.call_soon_threadsafe(producer.submit_nowait, ...) or "
        "asyncio.run_coroutine_threadsafe(producer.send(...), loop), where loop is the event loop of that thread"
    )
