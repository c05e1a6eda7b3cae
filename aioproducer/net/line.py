"""Line: callers that wait for the same thing, in order of arrival."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Line:
    """Lets one caller at a time look for what all of them wait for.

    If each looked whenever something changed, a thousand callers would look a million times until all are served.
    """

    def __init__(self) -> None:
        self._first = asyncio.Lock()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @asynccontextmanager
    async def turn(self, deadline_ms: int) -> AsyncIterator[None]:
        """Wait to be first in line, or for the deadline on the loop's clock, and stay in line for the block.

        When the block ends, the next caller goes on, in a later turn of the loop.
        """
        is_first = False
        self._length += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout_at((deadline_ms + 1) / 1000):
                    is_first = await self._first.acquire()
            yield
        finally:
            self._length -= 1
            if is_first:
                self._first.release()
