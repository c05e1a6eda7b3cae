"""The cheap sink: compiles ``sink.c`` with the system's C compiler and runs it as a separate process."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.compiler import compile_c

SOURCE = Path(__file__).with_name("sink.c")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
UNCOMPRESSED_SHARE = 0.02


@dataclass(frozen=True, slots=True)
class Counts:
    """What the sink saw; records as counted in the batch headers.

    Attributes:
        records_by_codec: codec names from the batches' attributes, with their records; only codecs seen.
        old_format: partitions' data in a request that was not entirely record batches of format 2.
        pushes: of client metrics.
        sequence_errors: batches of idempotent producers whose base sequence did not follow the one before.
        cpu_seconds: user and system time of the sink.
    """

    records: int
    batches: int
    record_bytes: int
    requests: int
    connections: int
    records_by_codec: dict[str, int]
    old_format: int
    sequence_errors: int
    broken_frames: int
    pushes: int
    cpu_seconds: float

    @classmethod
    def from_json(cls, line: str) -> Counts:
        """Read the line the sink prints at its end."""
        values = json.loads(line)
        by_codec = values.pop("records_by_codec")
        names = {name: count for name, count in zip(CODECS, by_codec, strict=False) if count}
        unknown = sum(by_codec[len(CODECS) :])
        return cls(**values, records_by_codec={**names, **({"unknown": unknown} if unknown else {})})

    def problems(self, codec: str, records: int) -> list[str]:
        """Return what differs from ``records`` records, all idempotent, in format 2 and compressed with ``codec``.

        A client may leave a batch uncompressed if compression would not shrink it, such as one with a single record.
        """
        found = [] if self.records == records else [f"the sink counted {self.records} records, not {records}"]
        in_codec = self.records_by_codec.get(codec, 0)
        if self.records_by_codec.keys() - {codec, "none"} or in_codec < (1 - UNCOMPRESSED_SHARE) * self.records:
            found.append(f"the records came as {self.records_by_codec}, not as {codec}")
        for name in ("old_format", "sequence_errors", "broken_frames"):
            if getattr(self, name):
                found.append(f"{name} = {getattr(self, name)}")
        return found


class Sink:
    """A running sink.

    Attributes:
        bootstrap: its ``host:port``.
        counts: set once it has ended.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        self.bootstrap = f"127.0.0.1:{json.loads(process.stdout.readline())['port']}"
        self.counts: Counts | None = None

    def end(self) -> None:
        """Close its input, which ends it, and read its counts."""
        output, _ = self._process.communicate(timeout=30)
        self.counts = Counts.from_json(output)


@contextlib.contextmanager
def running_sink(partitions: int = 6, metrics_interval_ms: int = 0, answer_delay_ms: int = 0) -> Iterator[Sink]:
    """Run a sink; it ends with the block, whatever happens in it.

    Args:
        metrics_interval_ms: how often it requests client metrics; 0 for never.
        answer_delay_ms: how late each answer is.
    """
    options = ["--partitions", str(partitions), "--metrics-interval-ms", str(metrics_interval_ms)]
    options += ["--answer-delay-ms", str(answer_delay_ms)]
    command = [str(compile_c(SOURCE)), *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            sink = Sink(process)
            yield sink
            sink.end()
        finally:
            process.kill()
