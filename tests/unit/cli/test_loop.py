"""The event loop of a command, and the signals that end it."""

from __future__ import annotations

import asyncio
import signal
from typing import NoReturn

import pytest

from aioproducer.cli.loop import signals_to

PATIENCE_S = 20
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class WindowsLoop(asyncio.SelectorEventLoop):
    """A loop that can't handle signals by itself."""

    def add_signal_handler(self, *_: object) -> NoReturn:
        raise NotImplementedError

    def remove_signal_handler(self, *_: object) -> NoReturn:
        raise NotImplementedError


@pytest.mark.parametrize("loop", [asyncio.SelectorEventLoop, WindowsLoop])
def test_signals_are_handled_during_the_block(loop: type[asyncio.SelectorEventLoop]) -> None:
    """On the loop, one after the other; afterwards they do what they did before."""
    before = [signal.getsignal(number) for number in SIGNALS]

    async def main() -> list[signal.Signals]:
        came: asyncio.Queue[signal.Signals] = asyncio.Queue()
        with signals_to(came.put_nowait):
            for number in SIGNALS:
                signal.raise_signal(number)
            return [await asyncio.wait_for(came.get(), PATIENCE_S) for _ in SIGNALS]

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(main()) == [*SIGNALS]
    assert [signal.getsignal(number) for number in SIGNALS] == before
