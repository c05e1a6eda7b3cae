"""Bytes to lines, and a read that can be stopped."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.cli.outcome import CommandError
from aioproducer.cli.produce import source as source_module
from aioproducer.cli.produce.source import Line, LineSource, Stopped, split_lines


@given(st.lists(st.binary(max_size=20).map(lambda data: data.replace(b"a", b"\n").replace(b"b", b"\r"))))
def test_lines_do_not_depend_on_how_the_bytes_come(chunks: list[bytes]) -> None:
    data = b"".join(chunks)
    pieces = data.split(b"\n")
    expected = [piece + b"\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])
    assert list(split_lines(iter(chunks))) == [Line(number, raw) for number, raw in enumerate(expected, 1)]


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "LONGEST_LINE_BYTES", 1000)
    taken = 0

    def endless() -> Iterator[bytes]:
        nonlocal taken
        yield b"short\n"
        while True:
            taken += 1
            yield b"x" * 100

    lines = split_lines(endless())
    assert next(lines) == Line(1, b"short\n")
    with pytest.raises(CommandError, match="line 2 is longer than 1,000 bytes"):
        next(lines)
    assert taken == 11


def test_a_file_is_read_in_chunks(tmp_path: Path) -> None:
    data = bytes(range(256)) * 3000
    path = tmp_path / "data"
    path.write_bytes(data)
    with LineSource(FileIO(path)) as source:
        chunks = source.chunks()
        first = next(chunks)
        assert source.bytes_read == len(first) == source_module.CHUNK_BYTES
        assert source.size_bytes == len(data)
        assert first + b"".join(chunks) == data
        assert source.bytes_read == len(data)


def test_stop_ends_a_read_that_waits() -> None:
    read_end, write_end = os.pipe()
    with LineSource(FileIO(read_end)) as source, os.fdopen(write_end, "wb", buffering=0) as writer:
        assert source.size_bytes is None
        got: list[bytes] = []
        first_came = threading.Event()
        ended: list[bool] = []

        def read() -> None:
            try:
                for chunk in source.chunks():
                    got.append(chunk)
                    first_came.set()
            except Stopped:
                ended.append(True)

        thread = threading.Thread(target=read)
        thread.start()
        writer.write(b"first\n")
        assert first_came.wait(10)
        source.stop()
        source.stop()
        thread.join(10)
        assert ended == [True]
        assert got == [b"first\n"]


def test_stop_after_close_touches_no_other_file(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(write_end)
    source = LineSource(FileIO(read_end))
    source.close()
    others = [os.open(tmp_path / f"other{number}", os.O_CREAT | os.O_RDWR) for number in range(3)]
    source.stop()
    source.close()
    for number, descriptor in enumerate(others):
        os.close(descriptor)
        assert (tmp_path / f"other{number}").read_bytes() == b""
