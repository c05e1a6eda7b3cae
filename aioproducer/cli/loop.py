"""The event loop a command runs in."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any, TypeVar

from aioproducer.event_loop import new_event_loop

T = TypeVar("T")


def run_in_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, under uvloop if installed.

    Ctrl-C cancels it and raises KeyboardInterrupt, as with ``asyncio.run``, unless it handles signals itself.
    """
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(main)
    finally:
        main.close()  # Ctrl-C may come before the loop exists; Python would warn that it was never awaited


@contextmanager
def signals_to(handler: Callable[[signal.Signals], None]) -> Iterator[None]:
    """During the block, have the running loop call a plain function on SIGINT and SIGTERM."""
    loop = asyncio.get_running_loop()

    def hand_over(number: int, _: FrameType | None) -> None:
        loop.call_soon_threadsafe(handler, signal.Signals(number))

    with ExitStack() as afterwards:
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                loop.add_signal_handler(number, handler, number)
                afterwards.callback(loop.remove_signal_handler, number)
            except NotImplementedError:  # by every loop on Windows
                afterwards.callback(signal.signal, number, signal.signal(number, hand_over))
        yield
