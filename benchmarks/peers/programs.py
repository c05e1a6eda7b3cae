"""Clients not in Python: each stream of records is one run of a program, which reports its own cost."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import tempfile
import time
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path

from benchmarks import programs
from benchmarks.payloads import KEY_BYTES, KeyValue
from benchmarks.peers.base import Ends, Publisher


class Program(Publisher):
    """Runs a program once per stream; its report excludes connecting."""

    async def start(self) -> None:
        self.directory = tempfile.TemporaryDirectory(prefix="aioproducer-bench-")

    async def stop(self) -> None:
        self.directory.cleanup()

    async def publish(self, records: Iterator[KeyValue]) -> Ends:
        pool = list(records)
        return await self.publish_pool(pool, len(pool))

    async def publish_pool(self, pool: list[KeyValue], records: int) -> Ends:
        file = Path(self.directory.name) / "pool"
        file.write_bytes(self.pool_file(pool))
        return self.run(file, len(pool[0][1]), records)

    def pool_file(self, pool: list[KeyValue]) -> bytes:
        """Return the payloads in the program's input format."""
        return b"".join(key + value for key, value in pool)

    def run(self, pool: Path, value_bytes: int, records: int) -> Ends:
        """Run the program and read what it printed."""
        settings = self.settings
        arguments = [settings.bootstrap, settings.topic, settings.codec, settings.linger_ms, pool]
        command = [*self.command(), *map(str, arguments), str(KEY_BYTES), str(value_bytes), str(records)]
        found = json.loads(output_of(command).splitlines()[-1])
        return Ends(
            found["acked"],
            found["failed"],
            seconds=found["seconds"],
            cpu_seconds=found["cpu_seconds"],
            peak_rss_bytes=found["peak_rss_bytes"],
        )

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command up to the arguments common to all programs."""


class Librdkafka(Program):
    """rd_kafka_produce with a delivery report callback a record."""

    def command(self) -> list[str]:
        return [str(programs.librdkafka_program()), str(programs.librdkafka_library())]


class Franz(Program):
    """kgo.Client.Produce with a promise per record."""

    def command(self) -> list[str]:
        return [str(programs.franz_program())]


class ProducerPerformance(Program):
    """Kafka's own tool; what it takes is measured from outside and has the JVM's start in it."""

    def command(self) -> list[str]:
        raise NotImplementedError("its arguments are its own")

    def pool_file(self, pool: list[KeyValue]) -> bytes:
        return b"\n".join(value for _, value in pool)

    def run(self, pool: Path, value_bytes: int, records: int) -> Ends:
        settings = self.settings
        properties = [
            f"bootstrap.servers={settings.bootstrap}",
            f"linger.ms={settings.linger_ms}",
            f"compression.type={settings.codec}",
            "acks=all",
        ]
        command = programs.performance_command(pool)
        command += ["--topic", settings.topic, "--num-records", str(records), "--command-property", *properties]
        before, started = children_cpu_seconds(), time.perf_counter()
        output = output_of(command)
        seconds = time.perf_counter() - started
        sent = re.findall(r"(\d+) records sent", output)
        acked = int(sent[-1]) if sent else 0
        if "Exception" in output:
            raise RuntimeError(output)
        return Ends(
            acked,
            records - acked,
            seconds=seconds,
            cpu_seconds=children_cpu_seconds() - before,
            peak_rss_bytes=resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
        )


def output_of(command: list[str]) -> str:
    """Return a program's output.

    Raises:
        RuntimeError: it failed; has the last line of its standard error.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    return done.stdout


def children_cpu_seconds() -> float:
    """Return the user and system time of all ended programs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
