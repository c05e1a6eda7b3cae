"""``aioproducer perf`` from its options to its exit code."""

from __future__ import annotations

import asyncio
import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from typing import Any
from uuid import uuid4

from rich.console import Console

from aioproducer import ConfigError, KafkaError, Producer
from aioproducer.cli.loop import run_in_loop, signals_to
from aioproducer.cli.outcome import DONE, SOME_FAILED, CommandError, one_line, require
from aioproducer.cli.perf import payloads, picture, report
from aioproducer.cli.perf.load import Load, Mode
from aioproducer.cli.perf.view import REDRAWS_PER_S, Screen, Watch, line
from aioproducer.cli.settings import SERIALIZERS

LAST_WAIT_S = 10.0
"""How long unfinished records get after Ctrl-C."""


@dataclass(frozen=True, slots=True)
class PerfOptions:
    """The options of the command."""

    configs: Mapping[str, str]
    topic: str
    num_records: int
    record_size: int | None
    payload_file: Path | None
    payload_delimiter: str
    key_size: int
    throughput: float
    """Records per second; 0 or less for no limit."""
    mode: Mode
    concurrency: int | None
    chunk: int
    warmup_records: int
    transactional: bool
    transactional_id: str | None
    transaction_duration_ms: int
    reporting_interval_ms: int
    print_metrics: bool
    live: bool
    json_file: Path | None
    picture_file: Path | None


def run(options: PerfOptions) -> int:
    """Send the load, show the results, and return the exit code.

    Raises:
        CommandError: nothing was sent: options, configs or the cluster prevent it.
    """
    _check(options)
    if options.payload_file is not None:
        make = payloads.from_file(options.payload_file, options.payload_delimiter, options.key_size)
    else:
        make = payloads.random_letters(options.record_size or 0, options.key_size)
    # Payloads are bytes and need no serializers.
    configs = {name: value for name, value in options.configs.items() if name not in SERIALIZERS}
    if options.transactional or options.transactional_id is not None:
        configs["transactional.id"] = options.transactional_id or f"aioproducer-perf-{uuid4()}"
    try:
        producer = Producer.from_config(configs)
    except ConfigError as error:
        raise CommandError(one_line(error)) from error
    return run_in_loop(_Run(options, producer, make, "transactional.id" in configs).main())


def _check(options: PerfOptions) -> None:
    if (options.record_size is None) == (options.payload_file is None):
        raise CommandError("use either --record-size or --payload-file: what the records contain")
    if options.warmup_records >= options.num_records:
        raise CommandError("--warmup-records must be less than --num-records, which includes them")
    if not math.isfinite(options.throughput) or (options.throughput <= 0 and options.throughput != -1):
        raise CommandError("--throughput takes a number of records per second above 0, or -1 for no limit")
    for size, name in ((options.record_size or 0, "--record-size"), (options.key_size, "--key-size")):
        if size > payloads.LARGEST_BYTES:
            raise CommandError(f"{name} can be at most {payloads.LARGEST_BYTES:,} bytes")
    if not options.payload_delimiter:
        raise CommandError("--payload-delimiter can't be empty")
    if options.picture_file is not None:
        if options.picture_file.suffix not in picture.SUFFIXES:
            raise CommandError(f"--picture takes a file name that ends in {', '.join(picture.SUFFIXES)}")
        require({"matplotlib": "matplotlib"}, "perf")
    for file in (options.json_file, options.picture_file):
        if file is not None and not file.absolute().parent.is_dir():
            raise CommandError(f"there is no directory {file.absolute().parent} for {file.name}")
        if file is not None and file.is_dir():
            raise CommandError(f"{file} is a directory")


class _Run:
    """Connect, warm up, measure, close. A first signal ends sending, a second one ends waiting."""

    def __init__(self, options: PerfOptions, producer: Producer, make: payloads.Make, transactional: bool) -> None:
        self._options = options
        self._producer = producer
        self._transactional = transactional
        self._json_is_output = options.json_file is not None and _is_standard_output(options.json_file)
        self._console = Console(stderr=self._json_is_output, highlight=False, soft_wrap=True)
        self._signal: Signals | None = None
        self._task: asyncio.Task[Any] | None = None
        many = options.mode is Mode.SEND_MANY
        self._load = Load(
            producer,
            options.topic,
            make,
            mode=options.mode,
            rate=options.throughput if options.throughput > 0 else None,
            concurrency=options.concurrency or (2 if many else 100),
            chunk=options.chunk,
            transaction_s=options.transaction_duration_ms / 1000 if transactional else None,
        )
        self._watch = Watch(self._load, self._buffer_used)

    async def main(self) -> int:
        """The whole run."""
        with signals_to(self._on_signal):
            self._task = asyncio.current_task()
            try:
                await self._producer.start()
                await self._producer.partitions_for(self._options.topic)
                result = await self._measure()
            except KafkaError as error:
                raise CommandError(one_line(error)) from error
            except asyncio.CancelledError:
                if self._signal is None:
                    raise
                self._console.print("interrupted before anything was measured")
                return 128 + self._signal
            finally:
                await self._producer.close(timeout=0)
        return self._show(result)

    def _on_signal(self, number: Signals) -> None:
        first = self._signal is None
        self._signal = self._signal or number
        self._load.stop()
        if self._task is not None and (not first or not self._load.stats.sent):
            self._task.cancel()
        elif first:
            asyncio.get_running_loop().call_later(LAST_WAIT_S, self._task.cancel if self._task else lambda: None)

    async def _measure(self) -> report.Result:
        options = self._options
        warmed_up = 0
        if options.warmup_records:
            with self._console.status("warming up"):
                warmed_up = (await self._load.run(options.warmup_records)).sent
            if self._load.trouble is not None:
                raise CommandError(f"while warming up: {self._load.trouble}")
            if self._load.stopped:
                raise asyncio.CancelledError
            self._load.reset()
        self._watch.begin()
        began_s = time.perf_counter()
        wanted = options.num_records - options.warmup_records
        screen = Screen(self._load, self._watch, wanted)
        on_terminal = self._console.is_terminal and options.live
        reporting = asyncio.create_task(self._report(on_terminal))
        try:
            # Cancelled by a signal: the result is what there is so far.
            with screen.live(self._console, on_terminal), suppress(asyncio.CancelledError):
                await self._load.run(wanted)
        finally:
            reporting.cancel()
        took_s = time.perf_counter() - began_s
        self._watch.tick()
        await self._producer.close(timeout=0 if self._signal is not None else None)
        return report.Result(
            options=self._told(),
            stats=self._load.stats,
            took_s=took_s,
            warmup=warmed_up,
            intervals=self._watch.intervals,
            trouble=self._load.trouble,
            interrupted=self._signal is not None,
            transactional=self._transactional,
            metrics=self._producer.metrics() if options.print_metrics else None,
        )

    async def _report(self, on_terminal: bool) -> None:
        every_s = 1 / REDRAWS_PER_S if on_terminal else self._options.reporting_interval_ms / 1000
        while True:
            await asyncio.sleep(every_s)
            interval = self._watch.tick()
            if not on_terminal:
                self._console.print(line(interval))

    def _buffer_used(self) -> float:
        told = self._producer.metrics().get("producer-metrics", {})
        total = told.get("buffer-total-bytes", 0.0)
        return 1 - told.get("buffer-available-bytes", total) / total if total else 0.0

    def _told(self) -> dict[str, Any]:
        """The options for the report; configs by name only, as some are secrets."""
        options = self._options
        return {
            "topic": options.topic,
            "num_records": options.num_records,
            "record_size": options.record_size,
            "payload_file": None if options.payload_file is None else options.payload_file.name,
            "key_size": options.key_size,
            "throughput": options.throughput,
            "mode": str(options.mode),
            "configs": sorted(options.configs),
        }

    def _show(self, result: report.Result) -> int:
        options = self._options
        report.show(self._console, result)
        if result.metrics is not None:
            for name, value in sorted(_flat(result.metrics)):
                self._console.print(f"{name:<80} {value:.3f}", markup=False)
        if self._json_is_output:
            print(_as_json(result))
        told = self._json_is_output or _saved(options.json_file, _write_json, result)
        drawn = _saved(options.picture_file, picture.draw, result)
        if result.trouble is not None:
            self._console.print(f"ended early: {result.trouble}", markup=False)
        if self._signal is not None:
            return 128 + self._signal
        return SOME_FAILED if result.stats.failed or result.trouble is not None or not (told and drawn) else DONE


def _saved(file: Path | None, write: Callable[[Path, report.Result], None], result: report.Result) -> bool:
    """Write a requested file; report a failure without hiding other results."""
    if file is None:
        return True
    try:
        write(file, result)
    except OSError as error:
        print(f"aioproducer: {file} can't be written: {error.strerror}", file=sys.stderr)
        return False
    return True


def _is_standard_output(file: Path) -> bool:
    """Whether it is ``-``, or a name such as /dev/stdout for what standard output goes to."""
    with suppress(OSError):
        return str(file) == "-" or os.path.samestat(file.stat(), os.fstat(1))
    return False


def _write_json(file: Path, result: report.Result) -> None:
    file.write_text(_as_json(result) + "\n")


def _as_json(result: report.Result) -> str:
    return json.dumps(result.as_dict(), indent=2)


def _flat(metrics: Mapping[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            found += _flat(value, f"{prefix}{name}:")
        else:
            found.append((f"{prefix}{name}", float(value)))
    return found
