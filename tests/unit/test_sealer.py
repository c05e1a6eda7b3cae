"""Batches compressed on the loop and off it."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from aioproducer import Producer
from aioproducer import sealer as sealer_module
from aioproducer._accumulator import RecordAccumulator
from aioproducer._producer_batch import ProducerBatch
from aioproducer.compression import codec
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.sealer import JOB_BYTES, Sealer
from aioproducer.testing import FakeCluster
from tests.unit.core import UNLIMITED, add_topic, end, fail, make_accumulator, messages_of, put

CODECS = ["gzip", "snappy", "lz4", "zstd"]


class Bench:
    """A sealer with an accumulator, and batches for it."""

    def __init__(self, compression_type: str = "zstd", **configs: Any) -> None:
        loop = asyncio.get_running_loop()
        config = ProducerConfig.parse(
            {"bootstrap_servers": "unused:1", "compression_type": compression_type, **configs}
        )
        self.accumulator: RecordAccumulator = make_accumulator(
            loop=loop, compresses=True, batch_size=1 << 20, delivery_timeout_ms=1000
        )
        self.sealed = asyncio.Event()
        self.sealer = Sealer(config, loop=loop, accumulator=self.accumulator, on_sealed=self.sealed.set)

    def batches(self, *sizes: int) -> list[ProducerBatch]:
        """One unsealed batch per partition, of that many bytes each."""
        topic = add_topic(self.accumulator, leaders=[1] * len(sizes))
        for partition, size in enumerate(sizes):
            put(self.accumulator, topic, bytes(size), partition=partition)
        self.accumulator.close_all()
        _, unsealed = self.accumulator.drain(1, UNLIMITED, 0, lambda _: True, 0)
        return unsealed

    def take(self) -> list[ProducerBatch]:
        batches, unsealed = self.accumulator.drain(1, UNLIMITED, 0, lambda _: True, 0)
        assert not unsealed
        return batches


@pytest.fixture(params=CODECS)
async def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(request.param)


async def test_on_the_loop(bench: Bench) -> None:
    """A batch is compressed on the loop, once."""
    (batch,) = bench.batches(5000)
    plain = bytes(batch.contents())
    bench.sealer.seal_all([batch])
    first = batch.compressed
    assert first is not None
    assert len(first) < 1000
    bench.sealer.seal_all([batch])
    assert batch.compressed is first
    assert bench.sealer.plain(batch) == plain


async def test_batches_of_many_blocks(bench: Bench) -> None:
    """Several blocks are compressed as one, whatever the thread has compressed before."""
    topic = add_topic(bench.accumulator, leaders=[1] * 4)
    for partition, records in enumerate((8, 40, 5, 41)):
        for number in range(records):
            put(bench.accumulator, topic, b"%d-%d " % (partition, number) * 1000, partition=partition)
    bench.accumulator.close_all()
    _, batches = bench.accumulator.drain(1, UNLIMITED, 0, lambda _: True, 0)
    plain = [bytes(batch.contents()) for batch in batches]
    assert [len(batch.payload()) > 1 for batch in batches] == [True] * 4
    bench.sealer.seal_all(batches[:3])
    bench.sealer.seal_in_workers(batches[3:])
    while not batches[3].sealed:
        bench.sealed.clear()
        await bench.sealed.wait()
    assert [bench.sealer.plain(batch) for batch in batches] == plain
    assert all(batch.compressed for batch in batches)
    assert bench.accumulator.pool.used_bytes == 0
    await bench.sealer.close()


async def test_in_workers(bench: Bench) -> None:
    """Batches are compressed by other threads, and come back to the accumulator on the loop."""
    batches = bench.batches(300_000, 300_000)
    plain = [bytes(batch.contents()) for batch in batches]
    bench.sealer.seal_in_workers(batches)
    while not all(batch.sealed for batch in batches):
        bench.sealed.clear()
        await bench.sealed.wait()
    assert set(bench.take()) == set(batches)
    assert [bench.sealer.plain(batch) for batch in batches] == plain
    assert all(batch.compressed is not None and len(batch.compressed) < 20_000 for batch in batches)
    assert bench.accumulator.pool.used_bytes == 0
    assert not bench.sealer._jobs, "kept for nothing, one for each batch of a producer's life"
    await bench.sealer.close()


async def test_threads_are_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each large batch would start others."""
    made: list[ThreadPoolExecutor] = []

    def make(*arguments: Any, **options: Any) -> ThreadPoolExecutor:
        made.append(ThreadPoolExecutor(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(sealer_module, "ThreadPoolExecutor", make)
    bench = Bench()
    for _ in range(2):
        bench.sealer.seal_in_workers(bench.batches(300_000))
        await asyncio.gather(*bench.sealer._jobs)
        (batch,) = bench.take()
        end(bench.accumulator, batch)
    assert len(made) == 1
    await bench.sealer.close()


async def test_not_compressed() -> None:
    """Without a codec nothing is compressed."""
    bench = Bench("none")
    (batch,) = bench.batches(5000)
    bench.sealer.seal_all([batch])
    assert not batch.sealed
    assert bench.sealer.inline_bytes == 0
    assert bench.sealer.plain(batch) == batch.contents()


async def test_the_configured_level_is_used() -> None:
    """The level of the config is used."""
    data = b"".join(b"%d," % (number * number) for number in range(20_000))
    sizes = []
    for level in 1, 9:
        bench = Bench("gzip", compression_gzip_level=level)
        topic = add_topic(bench.accumulator)
        put(bench.accumulator, topic, data)
        bench.accumulator.close_all()
        _, (batch,) = bench.accumulator.drain(1, UNLIMITED, 0, lambda _: True, 0)
        bench.sealer.seal_all([batch])
        sizes.append(len(batch.compressed or b""))
        assert batch.compressed == codec("gzip").compress(bench.sealer.plain(batch), level)
    assert sizes[1] < sizes[0]


async def test_inline_limit() -> None:
    """The limit per request is what the codec compresses in a moment at this level."""
    assert Bench("zstd").sealer.inline_bytes == codec("zstd").inline_limit(None)
    slow = Bench("zstd", compression_zstd_level=19).sealer.inline_bytes
    assert slow == codec("zstd").inline_limit(19) < codec("zstd").inline_limit(1)


async def test_jobs_hold_several_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small batches share a job, large ones have their own; the threads are not those of the loop's executor."""
    jobs: list[tuple[int, int]] = []
    compress_all = sealer_module._compress_all

    def noting(kind: Any, level: Any, contents: Any) -> Any:
        jobs.append((len(contents), threading.get_ident()))
        return compress_all(kind, level, contents)

    monkeypatch.setattr(sealer_module, "_compress_all", noting)
    bench = Bench("lz4")
    sizes = [JOB_BYTES // 4] * 6 + [JOB_BYTES * 2] + [100]
    batches = bench.batches(*sizes)
    bench.sealer.seal_in_workers(batches)
    while not all(batch.sealed for batch in batches):
        bench.sealed.clear()
        await bench.sealed.wait()
    assert sorted(count for count, _ in jobs) == [1, 3, 4]
    assert threading.get_ident() not in {thread for _, thread in jobs}
    await bench.sealer.close()


@pytest.mark.parametrize(("processors", "threads"), [(1, 1), (2, 1), (3, 2), (5, 4), (64, 4)])
def test_one_processor_stays_for_the_loop(monkeypatch: pytest.MonkeyPatch, processors: int, threads: int) -> None:
    """There is one thread fewer than processors available to this process."""
    monkeypatch.setattr(sealer_module, "processor_count", lambda: processors)
    assert sealer_module._worker_count() == threads


async def test_codec_that_fails(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """If a worker fails, the batch is sent uncompressed, which is always valid, and a log line says so."""

    def broken(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(sealer_module, "_compress_all", broken)
    bench = Bench("gzip")
    batches = bench.batches(5000)
    bench.sealer.seal_in_workers(batches)
    await bench.sealed.wait()
    assert bench.take() == batches
    assert (batches[0].sealed, batches[0].compressed) == (True, None)
    assert [(entry.levelno, "gzip failed" in entry.getMessage()) for entry in caplog.records] == [(logging.ERROR, True)]
    await bench.sealer.close()


async def test_codec_that_fails_on_the_loop(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """As in a worker: the batch is sent uncompressed, a log line says so, and the producer goes on."""

    def broken(*_: Any) -> Any:
        raise MemoryError

    with FakeCluster() as cluster:
        with monkeypatch.context() as patch:
            patch.setattr(sealer_module, "codec", lambda name: replace(codec(name), deflate=broken))
            producer = Producer(bootstrap_servers=cluster.bootstrap_servers, compression_type="gzip")
            await producer.start()
        async with asyncio.timeout(30):
            assert [(await producer.send("t", value)).offset for value in (b"one", b"two")] == [0, 1]
            await producer.close()
        assert [each.value for each in cluster.records("t")] == [b"one", b"two"]
    told = messages_of(caplog, "aioproducer.sealer", logging.ERROR)
    assert told == ["gzip failed; sending batches uncompressed"]  # not one line per batch


async def test_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """As in a container at its process limit: the loop compresses, says so once, and the memory is freed."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    bench = Bench("gzip")
    batches = bench.batches(*[JOB_BYTES] * 3)
    plain = [bytes(batch.contents()) for batch in batches]
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        bench.sealer.seal_in_workers(batches)
    assert bench.take() == batches
    assert [bench.sealer.plain(batch) for batch in batches] == plain
    assert all(batch.compressed for batch in batches)
    told = messages_of(caplog, "aioproducer.sealer")
    assert told == ["compressing batches on the event loop, which stalls it: can't start new thread"]
    for batch in batches:
        end(bench.accumulator, batch)
    assert bench.accumulator.pool.used_bytes == 0
    await bench.sealer.close()


async def test_one_trouble_does_not_keep_another_from_the_log() -> None:
    sealer = Bench().sealer
    assert [sealer._may_log(trouble) for trouble in ("failed", "no thread", "failed")] == [True, True, False]


async def test_batch_that_expired_in_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory is freed when the worker is done, not before."""
    go_on = threading.Event()
    compress_all = sealer_module._compress_all

    def waiting(*arguments: Any) -> Any:
        go_on.wait(10)
        return compress_all(*arguments)

    monkeypatch.setattr(sealer_module, "_compress_all", waiting)
    bench = Bench("gzip")
    batches = bench.batches(50_000)
    bench.sealer.seal_in_workers(batches)
    assert bench.accumulator.expire(1000) == batches
    fail(bench.accumulator, batches[0])
    assert bench.accumulator.has_live_batches()
    assert bench.accumulator.pool.used_bytes > 50_000
    go_on.set()
    await bench.sealed.wait()
    assert not bench.accumulator.has_live_batches()
    await bench.sealer.close()
    assert bench.accumulator.pool.used_bytes == 0


async def test_close_with_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing waits for running jobs and drops the others; no thread is left."""
    before = threading.active_count()
    go_on = threading.Event()
    in_time: list[bool] = []
    compress_all = sealer_module._compress_all

    def waiting(*arguments: Any) -> Any:
        in_time.append(go_on.wait(10))
        return compress_all(*arguments)

    monkeypatch.setattr(sealer_module, "_compress_all", waiting)
    bench = Bench("lz4")
    batches = bench.batches(*[JOB_BYTES] * 10)
    bench.sealer.seal_in_workers(batches)
    closing = asyncio.create_task(bench.sealer.close())
    await asyncio.sleep(0)
    go_on.set()
    await closing
    assert in_time
    assert all(in_time), "the loop was held until they had ended"
    assert all(batch.sealed for batch in batches)
    for batch in bench.take():
        end(bench.accumulator, batch)
    assert not bench.accumulator.has_live_batches()
    for thread in threading.enumerate():
        if thread.name.startswith("aioproducer-compress"):
            thread.join(10)
    assert threading.active_count() <= before


async def test_close_unused() -> None:
    """A sealer that never had work has nothing to close."""
    await Bench().sealer.close()
