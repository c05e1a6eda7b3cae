"""Programs that tests kill: they are started, watched by their output, and never left running."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tests.broker.fixtures import PATIENCE_S

ROOT = Path(__file__).parents[3]


class Program:
    """One Python process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def says(self, line: str) -> None:
        """Wait until it prints a line."""
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            while (told := await self._process.stdout.readline()) != line.encode() + b"\n":
                assert told, f"it ended without saying {line!r}"

    async def kill(self) -> None:
        """End it with SIGKILL."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def ends(self) -> int:
        """Ask it to end, wait for that, and return its exit code."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_S):
            return await self._process.wait()


@asynccontextmanager
async def program(*arguments: str | Path, environment: Mapping[str, str] | None = None) -> AsyncIterator[Program]:
    """Run ``python *arguments``; killed at the end of the block if it still runs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *map(str, arguments),
        env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
        stdout=asyncio.subprocess.PIPE,
    )
    running = Program(process)
    try:
        yield running
    finally:
        await running.kill()
        # The pipe belongs to the loop's transport, which would otherwise be closed by the garbage collector.
        process._transport.close()  # type: ignore[attr-defined]
