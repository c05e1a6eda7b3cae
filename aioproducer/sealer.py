"""Sealer: compresses small batches on the event loop and large ones in worker threads."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from aioproducer.client_logger import ClientLogger
from aioproducer.compression import Codec, Data, codec, codec_by_attribute
from aioproducer.log_limit import LogLimit
from aioproducer.processors import processor_count

if TYPE_CHECKING:
    from aioproducer._accumulator import RecordAccumulator
    from aioproducer._producer_batch import ProducerBatch
    from aioproducer.config.producer_config import ProducerConfig

logger: logging.Logger = logging.getLogger("aioproducer.sealer")

JOB_BYTES = 128 * 1024
"""Worker jobs compress about this many bytes; a job costs some 50 us by itself."""

MOST_WORKERS = 4

LOG_FAILURES_EVERY_MS = 10_000


class Sealer:
    """Seals closed batches with the producer's ``compression_type``.

    Args:
        on_sealed: called when a worker has handed batches back to the accumulator.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        loop: asyncio.AbstractEventLoop,
        accumulator: RecordAccumulator,
        on_sealed: Callable[[], None],
    ) -> None:
        self._logger = ClientLogger(logger, config.client_id)
        self._loop = loop
        self._accumulator = accumulator
        self._on_sealed = on_sealed
        self._codec = codec(config.compression_type)
        self._level = config.compression_level
        self._compresses = config.compression_type != "none"
        self._workers: ThreadPoolExecutor | None = None
        self._jobs: dict[asyncio.Future[list[bytes]], None] = {}
        self._log_limit = LogLimit(LOG_FAILURES_EVERY_MS)
        self.inline_bytes = self._codec.inline_limit(self._level) if self._compresses else 0
        """The most bytes of one request to compress on the loop: about 0.3 ms."""

    def seal_all(self, batches: list[ProducerBatch]) -> None:
        """Compress the unsealed batches at once, on the loop."""
        if self._compresses:
            for batch in batches:
                if not batch.sealed:
                    batch.seal(self._compressed_or_none(batch), self._codec.attribute)

    def _compressed_or_none(self, batch: ProducerBatch) -> bytes | None:
        try:
            return _compressed(self._codec, self._level, batch.payload())
        except Exception as error:  # each library raises its own exceptions
            self._note_failure(error)
            return None

    def _note_failure(self, error: BaseException) -> None:
        # An uncompressed batch is always valid; the failure is worth a log line, if not one per batch.
        if self._may_log("failed"):
            self._logger.error("%s failed; sending batches uncompressed", self._codec.name, exc_info=error)

    def _may_log(self, trouble: str) -> bool:
        return self._log_limit.allows(int(self._loop.time() * 1000), trouble)

    def seal_in_workers(self, batches: list[ProducerBatch]) -> None:
        """Compress batches in worker threads, with the interpreter lock released; small ones share a job."""
        if self._workers is None:
            self._workers = ThreadPoolExecutor(_worker_count(), thread_name_prefix="aioproducer-compress")
        group: list[ProducerBatch] = []
        size_bytes = 0
        for batch in batches:
            group.append(batch)
            size_bytes += batch.size_bytes
            if size_bytes >= JOB_BYTES or batch is batches[-1]:
                self._start_job(self._workers, group)
                group, size_bytes = [], 0

    def _start_job(self, workers: ThreadPoolExecutor, batches: list[ProducerBatch]) -> None:
        contents = [batch.payload() for batch in batches]
        try:
            job = self._loop.run_in_executor(workers, _compress_all, self._codec, self._level, contents)
        except RuntimeError as error:  # the system has no thread left
            contents.clear()  # of a job that may be queued all the same, for a thread that there is
            if self._may_log("no thread"):
                self._logger.warning("compressing batches on the event loop, which stalls it: %s", error)
            self._hand_back(batches, [self._compressed_or_none(batch) for batch in batches])
            return
        self._jobs[job] = None
        job.add_done_callback(lambda done: self._sealed(batches, done))

    def _sealed(self, batches: list[ProducerBatch], job: asyncio.Future[list[bytes]]) -> None:
        self._jobs.pop(job, None)
        error = None if job.cancelled() else job.exception()
        results: list[bytes | None] = [None] * len(batches)
        if error is not None:
            self._note_failure(error)
        elif not job.cancelled():
            results = [*job.result()]
        self._hand_back(batches, results)

    def _hand_back(self, batches: list[ProducerBatch], results: list[bytes | None]) -> None:
        for batch, compressed in zip(batches, results, strict=True):
            self._accumulator.sealed(batch, compressed, self._codec.attribute)
        self._on_sealed()

    def plain(self, batch: ProducerBatch) -> Data:
        """The uncompressed records section of a batch, sealed or not."""
        if batch.compressed is None:
            return batch.contents()
        return codec_by_attribute(batch.attributes).decompress(batch.compressed, batch.size_bytes)

    async def close(self) -> None:
        """Wait for the workers to end; jobs that have not begun are dropped."""
        self.drop()
        await asyncio.gather(*self._jobs, return_exceptions=True)

    def drop(self) -> None:
        """Like ``close``, without waiting for jobs that have begun."""
        if self._workers is not None:
            self._workers.shutdown(wait=False, cancel_futures=True)


def _worker_count() -> int:
    """Leaves one processor to the loop: with all of them busy it sometimes waits 5 to 9 ms for its turn."""
    return max(1, min(MOST_WORKERS, processor_count() - 1))


class _Scratch(threading.local):
    """Memory kept per thread, in which the blocks of a batch are joined.

    Allocating it each time costs more than the copying: at 1 KiB a record, a sixth of all time with lz4.
    """

    def __init__(self) -> None:
        self.memory = bytearray()

    def join(self, parts: Sequence[Data]) -> memoryview:
        """The parts joined; valid until the next call in this thread."""
        size = sum(map(len, parts))
        if size > len(self.memory):
            self.memory = bytearray(size + size // 4)
        joined = memoryview(self.memory)[:size]
        start = 0
        for part in parts:
            end = start + len(part)
            joined[start:end] = part
            start = end
        return joined


_scratch = _Scratch()


def _compressed(codec: Codec, level: int | None, parts: Sequence[Data]) -> bytes:
    return codec.compress(parts[0] if len(parts) == 1 else _scratch.join(parts), level)


def _compress_all(codec: Codec, level: int | None, contents: list[list[bytes | memoryview]]) -> list[bytes]:
    try:
        return [_compressed(codec, level, parts) for parts in contents]
    finally:
        contents.clear()  # views of the batches' memory, which must be free when the loop gets the result
