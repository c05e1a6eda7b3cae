"""Passes rows from the reading thread to the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import Self

from aioproducer.cli.produce.rows import Parser, Row
from aioproducer.cli.produce.source import LineSource, Stopped, split_lines

BUNDLES_AHEAD = 2
"""How many bundles the thread may have ready before it waits, so that a file is never held whole."""

TURNS, TURNS_S = 5, 10.0
"""Turns of the loop in which it handles a signal, and how long to wait for them; it may not run any more."""


class RowFeed:
    """Async iterator of bundles of rows, read and parsed in a thread of the loop's executor.

    Before every read, which may wait long for a pipe, the thread hands over the rows it has. After ``stop`` the rows of
    completely read lines still come, then the iteration ends.

    Raises, from ``__anext__`` after the last good bundle:
        CommandError: the input is unusable from here on.
        OSError: reading failed.
    """

    def __init__(self, source: LineSource, parse: Parser) -> None:
        self._source = source
        self._parse = parse
        self._rows: list[Row] = []
        self._bundles: asyncio.Queue[list[Row] | None] = asyncio.Queue(BUNDLES_AHEAD)
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._thread = self._loop.run_in_executor(None, self._read)

    def stop(self) -> None:
        """Stop reading."""
        self._source.stop()

    def close(self) -> None:
        """Make the thread end soon and drop what it has left; nobody takes it any more."""
        self._closed = True
        self._source.stop()
        self._thread.add_done_callback(lambda thread: thread.cancelled() or thread.exception())
        while not self._bundles.empty():
            self._bundles.get_nowait()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Row]:
        bundle = await self._bundles.get()
        if bundle is None:
            await self._thread
            raise StopAsyncIteration
        return bundle

    # In the thread:

    def _read(self) -> None:
        try:
            self._collect()
        except CancelledError:
            pass  # closed while this thread waited to hand over; the loop has ended its tasks
        except BaseException:
            self._hand_over(end=True)
            raise
        else:
            self._hand_over(end=True)

    def _collect(self) -> None:
        try:
            for row in self._parse(split_lines(self._chunks())):
                self._rows.append(row)
        except Stopped:
            pass

    def _chunks(self) -> Iterator[bytes]:
        self._hand_over()
        for chunk in self._source.chunks():
            yield chunk
            self._hand_over()
        # Ctrl-C also ends the program before the pipe, most often in the midst of a line. The end of its output is seen
        # here before the loop has handled the signal, which takes it a turn or two.
        self._await_turns()
        if self._source.is_stopped:
            raise Stopped

    def _hand_over(self, *, end: bool = False) -> None:
        rows, self._rows = self._rows, []
        if rows:
            self._put(rows)
        if end:
            self._put(None)

    def _put(self, bundle: list[Row] | None) -> None:
        if not self._closed:
            asyncio.run_coroutine_threadsafe(self._bundles.put(bundle), self._loop).result()

    def _await_turns(self) -> None:
        """Wait for some turns of the loop: enough for a signal that has arrived to be handled."""
        passed = threading.Event()

        def turn(left: int) -> None:
            if left:
                self._loop.call_soon(turn, left - 1)
            else:
                passed.set()

        if not self._closed:
            self._loop.call_soon_threadsafe(turn, TURNS)
            passed.wait(TURNS_S)
