"""Rows from the reading thread to the loop."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import BinaryIO

import pytest

from aioproducer.cli.loop import signals_to
from aioproducer.cli.outcome import CommandError
from aioproducer.cli.produce.feed import BUNDLES_AHEAD, RowFeed
from aioproducer.cli.produce.rows import Format, Row, parser_of
from aioproducer.cli.produce.source import CHUNK_BYTES, LineSource

LINES = parser_of(Format.LINES, None)
LIMIT_S = 10


@pytest.fixture
def pipe() -> Iterator[tuple[LineSource, BinaryIO]]:
    """A source and the end to write to."""
    read_end, write_end = os.pipe()
    with LineSource(FileIO(read_end)) as source, os.fdopen(write_end, "wb", buffering=0) as writer:
        yield source, writer


async def values(feed: RowFeed) -> list[bytes]:
    """The values of the next chunk of rows."""
    async with asyncio.timeout(LIMIT_S):
        return [row.value for row in await anext(feed)]


async def end(feed: RowFeed) -> None:
    """Check that the feed has ended."""
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(StopAsyncIteration):
            await anext(feed)


async def test_rows_of_a_pipe_come_before_it_is_read_on(pipe: tuple[LineSource, BinaryIO]) -> None:
    source, writer = pipe
    feed = RowFeed(source, LINES)
    writer.write(b"one\ntwo\nthr")
    assert await values(feed) == [b"one", b"two"]
    writer.write(b"ee\n")
    assert await values(feed) == [b"three"]
    writer.write(b"last")
    writer.close()
    assert await values(feed) == [b"last"]
    await end(feed)


async def test_after_stop_whole_rows_come_and_no_part_of_one(pipe: tuple[LineSource, BinaryIO]) -> None:
    source, writer = pipe
    feed = RowFeed(source, LINES)
    writer.write(b"one\n")
    assert await values(feed) == [b"one"]
    writer.write(b"two\nthr")
    assert await values(feed) == [b"two"]
    feed.stop()
    await end(feed)


async def test_a_line_that_ends_with_its_writer_by_the_same_signal_is_no_row(
    pipe: tuple[LineSource, BinaryIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C ends the program before the pipe in the midst of a line, which is seen before the loop hears of it."""
    source, writer = pipe
    chunks, reads_on, ended = source.chunks, threading.Event(), threading.Event()

    def noting() -> Iterator[bytes]:
        for chunk in chunks():
            yield chunk
            reads_on.set()
        ended.set()

    monkeypatch.setattr(source, "chunks", noting)
    feed = RowFeed(source, LINES)
    with signals_to(lambda _: feed.stop()):
        writer.write(b"one\ntw")
        assert await values(feed) == [b"one"]
        assert await asyncio.to_thread(reads_on.wait, LIMIT_S)
        writer.close()
        assert ended.wait(LIMIT_S)  # the loop does not run meanwhile
        signal.raise_signal(signal.SIGTERM)
        await end(feed)


async def test_a_csv_row_that_has_begun_is_not_cut_by_stop(pipe: tuple[LineSource, BinaryIO]) -> None:
    source, writer = pipe
    feed = RowFeed(source, parser_of(Format.CSV, None))
    writer.write(b'a\n1\n"2\n')
    assert await values(feed) == [b'{"a":"1"}']
    feed.stop()
    await end(feed)


async def test_a_slow_taker_holds_the_reader_back(tmp_path: Path) -> None:
    """Invariant: a big file is never held in memory as a whole."""
    path = tmp_path / "big"
    line = b"x" * 999 + b"\n"
    path.write_bytes(line * 20_000)
    with LineSource(FileIO(path)) as source:
        feed = RowFeed(source, LINES)
        count = 0
        async with asyncio.timeout(LIMIT_S):
            async for rows in feed:
                count += len(rows)
                # Those in the queue, the one that the thread is about to add, and what it has read of the next.
                assert source.bytes_read <= count * 1000 + (BUNDLES_AHEAD + 2) * CHUNK_BYTES
        assert count == 20_000


async def test_what_is_wrong_comes_after_what_was_good(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"1\n2\n")

    def failing(lines: Iterator[object]) -> Iterator[Row]:
        next(lines)
        yield Row(1, b"1", b"1")
        raise CommandError("line 2 is unusable")

    with LineSource(FileIO(path)) as source:
        feed = RowFeed(source, failing)  # type: ignore[arg-type]
        assert await values(feed) == [b"1"]
        with pytest.raises(CommandError, match="line 2 is unusable"):
            await anext(feed)


@pytest.mark.parametrize("taken", [0, 1, 3])
async def test_close_lets_the_thread_end_whatever_it_has(taken: int, tmp_path: Path) -> None:
    path = tmp_path / "big"
    path.write_bytes(b"x\n" * (10 * CHUNK_BYTES))
    with LineSource(FileIO(path)) as source:
        feed = RowFeed(source, LINES)
        for _ in range(taken):
            await values(feed)
        feed.close()
        async with asyncio.timeout(LIMIT_S):
            await feed._thread
        assert source.bytes_read < source.size_bytes  # type: ignore[operator]


def test_the_end_of_the_loop_ends_the_thread(tmp_path: Path) -> None:
    """Ctrl-C twice: the loop is closed while the thread waits to hand over rows."""
    path = tmp_path / "big"
    path.write_bytes(b"x\n" * (10 * CHUNK_BYTES))

    async def interrupted(source: LineSource) -> None:
        feed = RowFeed(source, LINES)
        await values(feed)
        feed.close()

    with LineSource(FileIO(path)) as source:
        asyncio.run(interrupted(source))
