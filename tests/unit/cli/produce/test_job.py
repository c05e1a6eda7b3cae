"""The outcome of rows: read = acked + failed + rejected, whatever happens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from aioproducer import (
    BufferExhaustedError,
    DeliveryTimeoutError,
    KafkaError,
    Producer,
    ProducerClosedError,
    RecordTooLargeError,
)
from aioproducer.cli.outcome import CommandError
from aioproducer.cli.produce.feed import RowFeed
from aioproducer.cli.produce.job import Counts, Job
from aioproducer.cli.produce.rejects import Rejects
from aioproducer.cli.produce.rows import Format, parser_of
from aioproducer.cli.produce.source import LineSource
from aioproducer.testing import FakeCluster


class FakeDelivery:
    """A Delivery that the test ends."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[Any], None]] = []
        self._error: KafkaError | None = None

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._callbacks.append(callback)

    def exception(self) -> KafkaError | None:
        return self._error

    def end(self, error: KafkaError | None) -> None:
        """End it; its callbacks are scheduled, like those of a real one."""
        self._error = error
        for callback in self._callbacks:
            asyncio.get_running_loop().call_soon(callback, self)


class FakeProducer:
    """Refuses, loses or holds records by their value."""

    def __init__(
        self, refuse: dict[bytes, KafkaError], lose: dict[bytes, KafkaError], hold: bytes | None = None
    ) -> None:
        self._refuse = refuse
        self._lose = lose
        self._hold = hold
        self._held: list[FakeDelivery] = []
        self.holding = asyncio.Event()
        self.sent: list[tuple[str, bytes, bytes | None]] = []

    async def submit(self, topic: str, value: bytes, *, key: bytes | None) -> FakeDelivery:
        await asyncio.sleep(0)
        if value in self._refuse:
            raise self._refuse[value]
        self.sent.append((topic, value, key))
        delivery = FakeDelivery()
        self._held.append(delivery)
        if value == self._hold:
            self.holding.set()
        else:
            asyncio.get_running_loop().call_soon(delivery.end, self._lose.get(value))
        return delivery

    async def close(self, timeout: float | None = None) -> None:
        if timeout is None and self._hold is not None:
            await asyncio.Event().wait()
        for delivery in self._held:
            if delivery._error is None and self._hold is not None:
                delivery.end(ProducerClosedError("closed too early", maybe_written=True))
        await asyncio.sleep(0)  # like a real producer's, it returns when the callbacks were called


async def run(
    tmp_path: Path, data: bytes, producer: FakeProducer, kind: Format = Format.LINES
) -> tuple[Counts, str | None, list[dict[str, Any]]]:
    """Counts, error and rejects of a run over a file with this content."""
    path = tmp_path / "data"
    path.write_bytes(data)
    rejected = tmp_path / "rejects"
    with LineSource(FileIO(path)) as source, Rejects(rejected) as rejects:
        feed = RowFeed(source, parser_of(kind, None))
        job = Job(producer, "topic", feed, rejects)  # type: ignore[arg-type]
        try:
            async with asyncio.timeout(10):
                await job.run()
        finally:
            feed.close()
    counts = job.counts
    assert counts.read == counts.acked + counts.failed + counts.rejected
    lines = rejected.read_text().splitlines() if rejected.exists() else []
    assert len(lines) == counts.failed + counts.rejected
    return counts, job.trouble, [json.loads(line) for line in lines]


async def test_everything_acked(tmp_path: Path) -> None:
    producer = FakeProducer({}, {})
    counts, trouble, rejects = await run(tmp_path, b"a\nb\nc", producer)
    assert counts == Counts(read=3, acked=3, last_line=3)
    assert trouble is None
    assert rejects == []
    assert producer.sent == [("topic", b"a", None), ("topic", b"b", None), ("topic", b"c", None)]


async def test_bad_rows_refused_records_and_lost_ones(tmp_path: Path) -> None:
    producer = FakeProducer(
        refuse={b'"big"': RecordTooLargeError("above max_request_size")},
        lose={b'"lost"': DeliveryTimeoutError("not acknowledged", maybe_written=True)},
    )
    counts, trouble, rejects = await run(tmp_path, b'"good"\n{\n"big"\n"lost"\n"good"\n', producer, Format.JSONL)
    assert counts == Counts(read=5, acked=2, failed=1, rejected=2, last_line=5)
    assert trouble is None
    by_line = {reject.pop("line_number"): reject for reject in rejects}
    assert by_line[3] == {"error": "above max_request_size", "line": '"big"'}
    assert by_line[4] == {"error": "not acknowledged", "line": '"lost"', "maybe_written": True}
    assert by_line[2]["line"] == "{"


async def test_a_cluster_that_stays_away_ends_the_reading(tmp_path: Path) -> None:
    lines = [f"line {number:06}" for number in range(200_000)]
    producer = FakeProducer(refuse={b"line 000003": BufferExhaustedError("memory stayed full")}, lose={})
    counts, trouble, rejects = await run(tmp_path, "\n".join(lines).encode(), producer)
    assert trouble == "memory stayed full"
    assert counts.acked == 3
    assert counts.rejected == counts.read - 3
    assert counts.read == counts.last_line < 200_000
    assert rejects[0] == {"line_number": 4, "error": "memory stayed full", "line": "line 000003"}
    # Rows that were read but not sent are not lost: they are rejects too.
    assert [reject["line"] for reject in rejects] == lines[3 : counts.read]
    assert rejects[1]["error"] == "not sent: memory stayed full"


async def test_input_that_becomes_unusable_does_not_undo_what_came_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioproducer.cli.produce.source.LONGEST_LINE_BYTES", 100)
    counts, trouble, _ = await run(tmp_path, b"a\nb\n" + b"x" * 200, FakeProducer({}, {}))
    assert (counts.read, counts.acked) == (2, 2)
    assert trouble is not None
    assert trouble.startswith("line 3 is longer than")


async def test_input_that_is_unusable_from_the_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="two columns"):
        await run(tmp_path, b"a,a\n1,2\n", FakeProducer({}, {}), Format.CSV)


async def test_cancelled_it_fails_what_is_under_way(tmp_path: Path) -> None:
    """A second Ctrl-C, while the first one's flush waits for a cluster that does not answer."""
    producer = FakeProducer({}, {}, hold=b"held")
    path = tmp_path / "data"
    path.write_bytes(b"held\n")
    with LineSource(FileIO(path)) as source, Rejects(tmp_path / "rejects") as rejects:
        feed = RowFeed(source, parser_of(Format.LINES, None))
        job = Job(producer, "topic", feed, rejects)  # type: ignore[arg-type]
        task = asyncio.create_task(job.run())
        async with asyncio.timeout(10):
            await producer.holding.wait()
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        feed.close()
    assert job.counts == Counts(read=1, failed=1, last_line=1)
    (reject,) = (tmp_path / "rejects").read_text().splitlines()
    assert json.loads(reject)["maybe_written"] is True


async def test_cancelled_in_a_turn_of_the_loop_it_does_not_deny_the_row(tmp_path: Path) -> None:
    """A row of more than 256 KiB is in the buffer when submit gives the loop a turn: it may be sent."""
    path = tmp_path / "data"
    path.write_bytes(b"x" * 300_000)
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await producer.partitions_for("t")
            with LineSource(FileIO(path)) as source, Rejects(tmp_path / "rejects") as rejects:
                job = Job(producer, "t", RowFeed(source, parser_of(Format.LINES, None)), rejects)
                task = asyncio.create_task(job.run())
                async with asyncio.timeout(10):
                    while not producer.health().pending:
                        await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
    assert job.counts == Counts(read=1, failed=1, last_line=1)
    (reject,) = map(json.loads, (tmp_path / "rejects").read_text().splitlines())
    assert (reject["error"], reject["maybe_written"]) == ("given up: interrupted", True)


async def test_cancelled_it_counts_what_is_told_after_the_close(tmp_path: Path) -> None:
    """close(0) leaves done callbacks to the loop; a third Ctrl-C does not lose them either."""
    count = 20_000
    path = tmp_path / "data"
    path.write_bytes(b"row\n" * count)
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        cluster.faults.swallow("Produce", times=None)
        producer = Producer(bootstrap_servers=cluster.bootstrap_servers, batch_size=1_000)
        await producer.start()
        with LineSource(FileIO(path)) as source, Rejects(tmp_path / "rejects") as rejects:
            job = Job(producer, "t", RowFeed(source, parser_of(Format.LINES, None)), rejects)
            task = asyncio.create_task(job.run())
            async with asyncio.timeout(10):
                while job.counts.read < count:
                    await asyncio.sleep(0)
            task.cancel()
            while not job.counts.failed:
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await producer.close(timeout=0)
    counts = job.counts
    assert counts.read == counts.failed + counts.rejected == count
    assert len((tmp_path / "rejects").read_text().splitlines()) == count
