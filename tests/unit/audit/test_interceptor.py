"""The interceptor: numbers without gaps, and a statement that claims no more than is certain."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import re
import resource
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aioproducer import (
    BufferExhaustedError,
    ConfigError,
    DeliveryTimeoutError,
    KafkaError,
    Producer,
    Record,
    RecordMetadata,
    RecordTooLargeError,
    TransactionStateError,
)
from aioproducer.audit import HEADER, Audit, Mark
from aioproducer.audit.mark import read_mark
from aioproducer.testing import FakeCluster


def lines_in(directory: Path) -> dict[str, dict[str, Any]]:
    """The one line of each file."""
    return {path.stem: json.loads(path.read_text()) for path in directory.iterdir()}


def in_a_fork(work: Callable[[], object]) -> None:
    """Run a function in a forked process, and wait for it."""
    child = os.fork()
    if not child:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> float:
        return self.now_ms / 1000


def mark_of(record: Any) -> Mark:
    mark = read_mark(record.headers[-1][1])
    assert mark is not None
    return mark


def sent(audit: Audit, topic: str = "orders", **fields: Any) -> Record:
    return audit.on_send(Record(b"value", topic=topic, **fields))


def acked(audit: Audit, record: Record, partition: int = 0) -> None:
    assert record.topic is not None
    audit.on_acknowledgement(RecordMetadata(record.topic, partition, 5, 0, 0, 5), None, record.headers)


def failed(audit: Audit, record: Record, error: KafkaError) -> None:
    audit.on_acknowledgement(None, error, record.headers)


def in_doubt() -> KafkaError:
    return DeliveryTimeoutError("it took too long", maybe_written=True)


async def stated(audit: Audit, directory: Path) -> list[dict[str, Any]]:
    """The lines of the statement file."""
    await audit.written()
    path = directory / f"{audit.producer}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def runs(lines: list[dict[str, Any]]) -> list[list[Any]]:
    return [run for line in lines if line.get("topic") for run in line["runs"]]


# --- marks ------------------------------------------------------------------------------------------------------------


def test_numbers_count_by_topic() -> None:
    audit = Audit("shop", clock=Clock())
    marks = [mark_of(sent(audit, topic)) for topic in ("a", "a", "b", "a")]
    assert [mark.sequence for mark in marks] == [0, 1, 0, 2]
    assert {mark.producer for mark in marks} == {audit.producer}
    assert audit.producer.startswith("shop-")
    assert audit.producer != Audit("shop").producer
    assert marks[0].time_ms == 1_000_000


@pytest.mark.parametrize(
    ("headers", "pairs"),
    [
        (None, []),
        ([("a", b"1"), ("a", None)], [("a", b"1"), ("a", None)]),
        (iter([("a", b"1"), ("a", None)]), [("a", b"1"), ("a", None)]),
        ({"ab": b"1"}, [("ab", b"1")]),
    ],
)
def test_the_rest_of_the_record_is_as_it_was(headers: Any, pairs: list[Any]) -> None:
    record = Record(b"value", b"key", topic="orders", partition=3, headers=headers, timestamp_ms=7)
    marked = Audit().on_send(record)
    assert (marked.value, marked.key, marked.partition, marked.timestamp_ms) == (b"value", b"key", 3, 7)
    assert marked.headers is not None
    assert [*marked.headers][:-1] == pairs
    assert mark_of(marked).sequence == 0


def test_a_record_that_can_not_be_marked_takes_no_number() -> None:
    """Nobody would tell what became of it, and the statement would wait for that for ever."""
    audit = Audit(clock=Clock())
    with pytest.raises(TypeError):
        audit.on_send(Record(b"value", topic="orders", headers=5))  # type: ignore[arg-type]
    assert mark_of(sent(audit, "orders")).sequence == 0


def test_without_a_name_the_random_part_is_the_name() -> None:
    assert re.fullmatch(r"[0-9a-f]{12}", Audit().producer)


@pytest.mark.parametrize("name", ["a b", "a;b", "../x", "x" * 100, "_a", ".a"])
def test_names_that_files_should_not_have(name: str) -> None:
    with pytest.raises(ConfigError, match="name="):
        Audit(name)


def test_a_number_comes_back_if_nothing_was_sent() -> None:
    """A program that submits until the buffer is full leaves no gaps."""
    audit = Audit()
    sent(audit)
    for _ in range(3):
        refused = sent(audit)
        assert mark_of(refused).sequence == 1
        failed(audit, refused, BufferExhaustedError("full"))
    assert mark_of(sent(audit)).sequence == 1
    doubtful = sent(audit)
    failed(audit, doubtful, in_doubt())
    assert mark_of(sent(audit)).sequence == mark_of(doubtful).sequence + 1


# --- statements -------------------------------------------------------------------------------------------------------


async def test_a_statement_covers_what_has_ended(tmp_path: Path) -> None:
    clock = Clock()
    audit = Audit(statements=tmp_path, clock=clock)
    records = [sent(audit) for _ in range(5)]
    clock.now_ms += 123
    acked(audit, records[1], 2)
    acked(audit, records[2], 2)
    assert await stated(audit, tmp_path) == []  # the first record is still pending
    acked(audit, records[0], 1)
    failed(audit, records[3], RecordTooLargeError("too large"))
    lines = await stated(audit, tmp_path)
    assert runs(lines) == [[0, 0, 1_000, 1], [1, 2, 1_000, 2], [3, 3, 1_000, -1]]
    assert lines[0]["latency_ms"] == [[1, 1_000, 120, 1], [2, 1_000, 120, 2]]
    assert (lines[0]["next"], lines[0]["failed"]) == (4, [[3, 3, 1_000]])
    acked(audit, records[4])
    audit.close()
    lines = await stated(audit, tmp_path)
    assert (lines[1]["first"], lines[1]["next"]) == (4, 5)
    assert lines[2] == {"producer": audit.producer, "closed": True}
    assert "." not in (tmp_path / f"{audit.producer}.jsonl").read_text(), "all numbers are whole"


async def test_the_same_number_of_two_topics_in_one_millisecond(tmp_path: Path) -> None:
    """Their marks are equal: both have the time of their calls, and it is known which of the two failed."""
    audit = Audit(statements=tmp_path, clock=Clock())
    first, second = sent(audit, "a"), sent(audit, "b")
    assert mark_of(first) == mark_of(second) == Mark(audit.producer, "0", 0, 1_000_000)
    failed(audit, second, in_doubt())
    acked(audit, first)
    lines = await stated(audit, tmp_path)
    assert {line["topic"]: line["runs"][0][3] for line in lines} == {"a": 0, "b": -1}


async def test_another_interceptor_may_copy_the_mark(tmp_path: Path) -> None:
    audit = Audit(statements=tmp_path)
    record = sent(audit)
    copied = [(name, bytes(bytearray(value))) for name, value in record.headers]
    acked(audit, replace(record, headers=copied))
    audit.close()
    lines = await stated(audit, tmp_path)
    assert runs(lines)[0][:2] == [0, 0]
    assert lines[-1] == {"producer": audit.producer, "closed": True}


async def test_a_record_ends_by_its_own_mark(tmp_path: Path) -> None:
    """It may have one of the topic that it was read from, and headers of other interceptors after its own."""
    audit, theirs = Audit(statements=tmp_path), Audit()
    record = sent(audit, headers=sent(theirs).headers)
    acked(audit, replace(record, headers=[*(record.headers or ()), ("trace", b"1")]))  # type: ignore[misc]
    assert runs(await stated(audit, tmp_path))[0][:2] == [0, 0]
    assert not audit._open


@pytest.mark.parametrize("headers", [None, [], [("trace", b"1")], [(HEADER, None)], [(HEADER, bytearray(b"x"))]])
async def test_a_record_whose_mark_another_interceptor_removed(tmp_path: Path, headers: Any) -> None:
    """It is not known which record has ended."""
    audit = Audit(statements=tmp_path)
    acked(audit, replace(sent(audit), headers=headers))
    assert await stated(audit, tmp_path) == []
    assert lines_in(tmp_path) == {}


async def test_the_file_grows_while_the_producer_runs(tmp_path: Path) -> None:
    audit = Audit(statements=tmp_path, interval_s=0.001)
    path = tmp_path / f"{audit.producer}.jsonl"
    path.touch()
    for number in (1, 2):
        acked(audit, sent(audit))
        async with asyncio.timeout(30):
            while len(path.read_text().splitlines()) < number:
                await asyncio.sleep(0.001)
    assert [run[:2] for run in runs(await stated(audit, tmp_path))] == [[0, 0], [1, 1]]


async def test_one_timer_serves_all_records(tmp_path: Path) -> None:
    """It runs only while there is something to write."""
    audit = Audit(statements=tmp_path)
    audit.on_transaction_begin()
    sent(audit)
    audit.on_transaction_end(False)
    assert audit._timer is None
    first, second, late = (sent(audit) for _ in range(3))
    acked(audit, first)
    timer = audit._timer
    assert timer is not None
    acked(audit, second)
    assert audit._timer is timer
    audit.close()
    assert timer.cancelled()
    acked(audit, late)
    assert audit._timer is None
    assert (await stated(audit, tmp_path))[-1].get("closed")


async def test_long_lines_do_not_wait(tmp_path: Path) -> None:
    """The statement of a busy producer is written in several lines."""
    audit = Audit(statements=tmp_path, interval_s=3_600)
    for number in range(2_500):
        acked(audit, sent(audit), number % 2)
    audit.close()
    lines = await stated(audit, tmp_path)
    assert [len(line["runs"]) for line in lines[:-1]] == [1_000, 1_000, 500]


async def test_a_file_that_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The error is logged, the write is retried, and the error is raised when the caller asks."""
    place = tmp_path / "place"
    place.touch()
    audit = Audit(statements=place)
    acked(audit, sent(audit))
    with pytest.raises(OSError, match="place"):
        await audit.written()
    audit.close()
    async with asyncio.timeout(30):
        while not caplog.records:
            await asyncio.sleep(0.001)
    assert caplog.records[0].levelno == logging.WARNING
    place.unlink()
    assert len(await stated(audit, place)) == 2


async def test_a_disk_that_stays_full_does_not_fill_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One line a minute for a reason, and what is lost when the producer is closed."""
    asyncio.get_running_loop().set_default_executor(NoThreads())
    place = tmp_path / "place"
    place.touch()
    audit = Audit(statements=place)
    for _ in range(3):  # each fills a line, which is written at once
        for number in range(1_000):
            acked(audit, sent(audit), number % 2)
    assert [record.getMessage() for record in caplog.records] == [
        f"the statement of {audit.producer} can't be written to {place}/{audit.producer}.jsonl: can't start new thread"
    ]
    audit.close()
    assert len(caplog.records) == 2


class NoThreads(ThreadPoolExecutor):
    """As if the system had no threads left."""

    def submit(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("is_writable", [True, False])
async def test_no_thread_is_left(tmp_path: Path, caplog: pytest.LogCaptureFixture, is_writable: bool) -> None:
    """Lines are kept until a thread can be started; the last ones are written by the thread that calls close."""
    place = tmp_path / "place"
    audit = Audit(statements=place, clock=Clock())
    asyncio.get_running_loop().set_default_executor(NoThreads())
    for number in range(1_000):
        acked(audit, sent(audit), number % 2)
    assert not place.exists()
    assert "can't start new thread" in caplog.text
    caplog.clear()
    if not is_writable:
        place.touch()
    audit.close()
    if is_writable:
        first, last = map(json.loads, (place / f"{audit.producer}.jsonl").read_text().splitlines())
        assert (first["next"], last["closed"]) == (1_000, True)
    assert [record.levelno for record in caplog.records] == ([] if is_writable else [logging.WARNING])


async def test_a_directory_that_is_not_there_yet(tmp_path: Path) -> None:
    place = tmp_path / "new" / "place"
    audit = Audit(statements=place)
    acked(audit, sent(audit))
    assert len(await stated(audit, place)) == 1


async def test_who_waits_for_the_file_needs_no_thread(tmp_path: Path) -> None:
    audit = Audit(statements=tmp_path, clock=Clock())
    acked(audit, sent(audit))
    asyncio.get_running_loop().set_default_executor(NoThreads())
    (line,) = await stated(audit, tmp_path)
    assert line["next"] == 1


async def test_a_disk_that_is_full_in_the_midst_of_a_line(tmp_path: Path) -> None:
    """Once there is space again, each line is complete and there once."""
    audit = Audit(statements=tmp_path, clock=Clock())
    acked(audit, sent(audit))
    whole = await stated(audit, tmp_path)
    acked(audit, sent(audit))
    size_bytes = (tmp_path / f"{audit.producer}.jsonl").stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes + 20, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            await audit.written()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / f"{audit.producer}.jsonl").stat().st_size == size_bytes + 20
    acked(audit, sent(audit))
    lines = await stated(audit, tmp_path)
    assert lines[:1] == whole
    assert runs(lines) == [[0, 0, 1_000, 0], [1, 1, 1_000, 0], [2, 2, 1_000, 0]]


async def test_what_is_told_after_the_end(tmp_path: Path) -> None:
    """close(0) leaves callbacks for later: the closing line waits for the last of them."""
    audit = Audit(statements=tmp_path, clock=Clock())
    records = [sent(audit) for _ in range(4)]
    acked(audit, records[0])
    audit.close()
    assert [line.get("closed") for line in await stated(audit, tmp_path)] == [None]
    acked(audit, records[1])
    failed(audit, records[2], in_doubt())
    assert [line.get("closed") for line in await stated(audit, tmp_path)] == [None, None]
    failed(audit, records[3], BufferExhaustedError("full"))  # its number is reused
    lines = await stated(audit, tmp_path)
    assert [line.get("closed") for line in lines] == [None, None, True]
    assert runs(lines) == [[0, 0, 1_000, 0], [1, 1, 1_000, 0], [2, 2, 1_000, -1]]


# --- transactions -----------------------------------------------------------------------------------------------------


async def test_numbers_of_an_aborted_transaction_are_used_again(tmp_path: Path) -> None:
    audit = Audit(statements=tmp_path, clock=Clock())
    audit.on_transaction_begin()
    acked(audit, sent(audit))
    assert await stated(audit, tmp_path) == []
    audit.on_transaction_end(True)
    assert runs(await stated(audit, tmp_path)) == [[0, 0, 1_000, 0]]

    audit.on_transaction_begin()
    aborted, late = sent(audit), sent(audit)
    acked(audit, aborted)
    audit.on_transaction_end(False)
    failed(audit, late, in_doubt())
    assert runs(await stated(audit, tmp_path)) == [[0, 0, 1_000, 0]]

    audit.on_transaction_begin()
    again = sent(audit)
    assert (mark_of(aborted).sequence, mark_of(aborted).attempt) == (1, "0")
    assert (mark_of(again).sequence, mark_of(again).attempt) == (1, "1")
    audit.on_transaction_end(True)
    acked(audit, again, 4)  # a record's callbacks may come last
    assert runs(await stated(audit, tmp_path)) == [[0, 0, 1_000, 0], [1, 1, 1_000, 4]]


async def test_records_that_end_in_a_later_transaction(tmp_path: Path) -> None:
    """They belong to their own: what was committed is stated at once, and what was aborted never."""
    audit = Audit(statements=tmp_path, clock=Clock())
    audit.on_transaction_begin()
    first, second = sent(audit), sent(audit)
    audit.on_transaction_end(True)
    audit.on_transaction_begin()
    aborted = [sent(audit), sent(audit)]
    acked(audit, first, 1)
    assert runs(await stated(audit, tmp_path)) == [[0, 0, 1_000, 1]]
    audit.on_transaction_end(False)
    acked(audit, second, 2)
    for record in aborted:
        failed(audit, record, in_doubt())
    assert runs(await stated(audit, tmp_path)) == [[0, 0, 1_000, 1], [1, 1, 1_000, 2]]
    assert mark_of(sent(audit)).sequence == 2


async def test_a_number_that_comes_back_belongs_to_the_open_transaction(tmp_path: Path) -> None:
    """A call that began before the transaction is refused; the record that gets its number is not stated too early."""
    audit = Audit(statements=tmp_path, clock=Clock())
    audit.on_transaction_begin()
    slow = sent(audit)
    audit.on_transaction_end(True)
    audit.on_transaction_begin()
    failed(audit, slow, TransactionStateError("the call began in a transaction that has ended since"))
    aborted = sent(audit)
    acked(audit, aborted)
    assert await stated(audit, tmp_path) == []
    audit.on_transaction_end(False)
    assert await stated(audit, tmp_path) == []

    audit.on_transaction_begin()
    again = sent(audit)
    assert [(mark_of(one).sequence, mark_of(one).attempt) for one in (slow, aborted, again)] == [
        (0, "0"), (0, "0"), (0, "1")
    ]  # fmt: skip
    acked(audit, again)
    audit.on_transaction_end(True)
    assert runs(await stated(audit, tmp_path)) == [[0, 0, 1_000, 0]]


# --- with a producer --------------------------------------------------------------------------------------------------


async def test_a_producer_with_it(tmp_path: Path) -> None:
    """Marks in the log have no gaps, however records are sent, and the last line says that it is complete."""
    async with FakeCluster() as cluster:
        cluster.create_topic("orders", 2)
        audit = Audit(statements=tmp_path)
        async with Producer(bootstrap_servers=cluster.bootstrap_servers, interceptors=[audit]) as producer:
            await asyncio.gather(*(producer.send("orders", b"%d" % number) for number in range(50)))
            await producer.send_many("orders", [b"x"] * 50)
            with pytest.raises(RecordTooLargeError):
                await producer.send("orders", bytes(2_000_000))
            producer.submit_nowait("orders", b"last", partition=1)
        marks = [mark_of(record) for partition in (0, 1) for record in cluster.records("orders", partition)]
        counts = {partition: len(cluster.records("orders", partition)) for partition in (0, 1)}
    assert sorted(mark.sequence for mark in marks) == list(range(101))
    lines = await stated(audit, tmp_path)
    cells = [cell for line in lines[:-1] for cell in line["acked"]]
    assert {p: sum(c for partition, _, c in cells if partition == p) for p in (0, 1)} == counts
    assert lines[-1]["closed"]
    assert lines[-2]["next"] == 101


async def test_a_record_with_impossible_headers_leaves_no_gap(tmp_path: Path) -> None:
    """It is refused to the program's face; the audit must neither miss it nor wait for it."""
    async with FakeCluster() as cluster:
        cluster.create_topic("orders")
        audit = Audit(statements=tmp_path)
        async with Producer(bootstrap_servers=cluster.bootstrap_servers, interceptors=[audit]) as producer:
            bad: Any = Record(b"bad", headers=5)  # type: ignore[arg-type]
            result = await producer.send_many("orders", [b"x", bad, b"y"], raise_on_error=False)
            assert (result.acked, result.failed) == (2, 1)
        assert [mark_of(record).sequence for record in cluster.records("orders", 0)] == [0, 1]
    lines = await stated(audit, tmp_path)
    assert lines[-1]["closed"]
    assert lines[-2]["next"] == 2


def test_a_producer_whose_loop_was_closed(tmp_path: Path) -> None:
    """Without the loop the audit never learns the fate of pending records, so it does not claim to be complete."""
    audit = Audit(statements=tmp_path)

    async def begin(servers: str) -> Producer:
        producer = Producer(bootstrap_servers=servers, interceptors=[audit], linger_ms=60_000)
        await producer.start()
        await producer.send("orders", b"x")
        await producer.submit("orders", b"x")
        return producer

    with FakeCluster() as cluster, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # asyncio's, about sockets left open by the closed loop
        loop = asyncio.new_event_loop()
        producer = loop.run_until_complete(begin(cluster.bootstrap_servers))
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()
        asyncio.run(producer.close())
        assert audit._open
        del loop, task, producer
        for _ in range(3):
            gc.collect()
    assert [line.get("next") for line in asyncio.run(stated(audit, tmp_path))] == [1]


async def test_a_producer_with_transactions(tmp_path: Path) -> None:
    """A read_committed consumer finds no gap where a transaction was aborted."""
    async with FakeCluster() as cluster:
        cluster.create_topic("orders")
        audit = Audit(statements=tmp_path)
        producer = Producer(bootstrap_servers=cluster.bootstrap_servers, interceptors=[audit], transactional_id="shop")
        async with producer:
            for commits in (True, False, True):
                await producer.begin_transaction()
                await producer.send_many("orders", [b"x"] * 10)
                await (producer.commit_transaction() if commits else producer.abort_transaction())
            await producer.begin_transaction()
            await producer.send("orders", b"left open")
        seen = [mark_of(record).sequence for record in cluster.records("orders", read_committed=True)]
        assert len(cluster.records("orders")) > len(seen)
    assert seen == list(range(20))
    lines = await stated(audit, tmp_path)
    assert (lines[-2]["next"], lines[-1].get("closed")) == (20, True)


# --- forks ------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*is multi-threaded, use of fork:DeprecationWarning")  # the test runner's threads
async def test_forked_processes_have_names_of_their_own(tmp_path: Path) -> None:
    """A server creates its producer and then forks its workers: each numbers its own records, and has its own file."""
    audit = Audit("web", statements=tmp_path)
    name = audit.producer
    acked(audit, sent(audit))  # not written yet

    async def work(records: int) -> None:
        for number in range(records):
            record = sent(audit)
            assert mark_of(record).sequence == number
            acked(audit, record)
        await audit.written()

    for records in (2, 3):
        in_a_fork(lambda count=records: asyncio.new_event_loop().run_until_complete(work(count)))  # type: ignore[misc]
    assert audit.producer == name
    await audit.written()
    stated = lines_in(tmp_path)
    assert sorted(line["next"] for line in stated.values()) == [1, 2, 3]
    assert all(line["producer"] == stem and stem.startswith("web-") for stem, line in stated.items())
    assert stated[name]["next"] == 1
    if audit._timer is not None:
        audit._timer.cancel()
