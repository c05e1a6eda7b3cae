"""The suite counts what each client sends, and rejects a run with lost, duplicated or failed records."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aioproducer.protocol.metadata import MetadataRequest
from aioproducer.testing import ExistingCluster
from benchmarks import bench_serializers, payloads, report
from benchmarks.__main__ import BENCHES, main
from benchmarks.bench_transactions import BENCH as TRANSACTIONS
from benchmarks.peers import (
    METRICS_PUBLISHERS,
    PUBLISHERS,
    SENDERS,
    TOPIC_PUBLISHERS,
    TRANSACTION_SENDERS,
    WEB_CLIENTS,
    Client,
)
from benchmarks.plan import CPU, RATE, RECORD_CASES, Bench, Case, Effort
from benchmarks.runner import Run, job_for, planned, run_bench, run_once, work
from benchmarks.servers import Server, SinkServer, Visit, broker
from benchmarks.sink import running_sink
from benchmarks.worker import Outcome, Ticker

TINY = Effort(repeats=1, share=0.0, seconds=0.2)
"""The minimum: 2,000 records for the warm-up and 2,000 to measure."""


def available(clients: tuple[Client, ...]) -> list[object]:
    """The clients, those that are not installed marked to be skipped."""
    skip = pytest.mark.skip
    return [
        pytest.param(client, id=client.name, marks=[skip(reason=reason)] if (reason := client.missing()) else [])
        for client in clients
    ]


def run(client: Client, case: Case, server: Server | None = None) -> Run:
    return run_once(Run("bench", case.name, client.name, 0), case, client, server or SinkServer(), TINY)


def is_long(client: Client, case: Case) -> bool:
    return case is not RECORD_CASES[-1] or client.name in ("java", "franz-go")


def clients_and_cases() -> list[object]:
    """Our client with every case, the others with one; the rest, Java's and Go's take minutes: only in the long run."""
    skip, slow = pytest.mark.skip, pytest.mark.slow
    return [
        pytest.param(
            client,
            case,
            id=f"{client.name}-{case.name}",
            marks=[
                *([skip(reason=reason)] if (reason := client.missing()) else []),
                *([] if client.name.startswith("aioproducer") else [slow] if is_long(client, case) else []),
            ],
        )
        for client in PUBLISHERS
        for case in RECORD_CASES
    ]


@pytest.mark.parametrize(("client", "case"), clients_and_cases())
def test_every_client_sends_what_the_case_says(client: Client, case: Case) -> None:
    done = run(client, case)
    assert done.problems == []
    assert done.figures.keys() == {
        "cpu_seconds_per_million",
        "records_per_second",
        "peak_rss_bytes",
        "server_cpu_seconds_per_million",
    }
    assert all(value > 0 for value in done.figures.values())


@pytest.mark.parametrize("pattern", ["tasks", "gather"])
@pytest.mark.parametrize("client", available(tuple(one for one in SENDERS if one.name != "confluent-aio")))
def test_every_client_is_waited_for_by_many_tasks(client: Client, pattern: str) -> None:
    done = run(client, Case("web", 100, "none", pattern=pattern, tasks=20))  # type: ignore[arg-type]
    assert done.problems == []
    assert 0 < done.figures["p50_ms"] <= done.figures["p99_ms"] <= done.figures["p99_9_ms"]


SEND = next(client for client in SENDERS if client.name == "aioproducer send")


def test_records_at_a_steady_rate_are_timed_from_when_they_are_due() -> None:
    done = run(SEND, Case("latency", 100, "none", pattern="paced", rate=100))
    assert done.problems == []
    assert 0 < done.figures["p50_ms"] <= done.figures["p99_ms"]


def test_starting_is_timed_to_the_first_acknowledgement() -> None:
    done = run(SEND, Case("start", 100, "none", pattern="start"))
    assert done.problems == []
    assert done.figures["p50_ms"] > 0


def web_clients(unused: str) -> list[object]:
    """The clients of one of the benches; all except our own take seconds, so only the long run has them."""
    marks = {"aioproducer": []}
    clients = [client for client in WEB_CLIENTS if client.name != unused and client.missing() is None]
    return [pytest.param(one, id=one.name, marks=marks.get(one.name, [pytest.mark.slow])) for one in clients]


@pytest.mark.parametrize("client", web_clients("confluent-aio"))
def test_a_web_application_answers_when_its_record_is_acknowledged(client: Client) -> None:
    """The sink has as many records as there were answers, including the warm-up."""
    case = Case("web", 100, "none", linger_ms=0, pattern="requests", tasks=4, gc_frozen=True)
    with running_sink() as sink:
        job = job_for(case, client, Visit(sink.bootstrap, "bench", "none"), TINY)
        done = work(job)
    assert isinstance(done, Outcome), done
    assert sink.counts is not None
    assert sink.counts.problems("none", done.sent) == []
    assert (done.failed, done.events) == (0, 0)
    assert done.records > 0
    assert (done.sent > done.records) == (client.name != "without Kafka")
    assert 0 < done.latencies_ms["p50"] <= done.latencies_ms["p99"]


@pytest.mark.parametrize("client", web_clients("confluent-aio tuned"))
def test_a_web_application_publishes_in_the_background(client: Client) -> None:
    """At the given rate, and no record is lost at shutdown."""
    case = Case("web", 100, "none", pattern="beside", tasks=4, rate=500, http="h11")
    with running_sink() as sink:
        job = job_for(case, client, Visit(sink.bootstrap, "bench", "none"), TINY)
        done = work(job)
    assert isinstance(done, Outcome), done
    assert sink.counts is not None
    assert sink.counts.problems("none", done.sent) == []
    assert done.failed == 0
    assert done.records > 0
    assert (done.sent > 0) == (done.events > 0) == (client.name != "without Kafka")
    assert done.events <= done.sent


def test_a_ticker_tells_how_long_the_loop_was_held() -> None:
    done = run(client_named("aioproducer submit"), Case("loop", 100, "none", ticker=True))
    assert done.problems == []
    assert 0 <= done.figures["gap_p99_9_ms"] <= done.figures["gap_max_ms"]


async def gaps_of_a_held_loop(seconds: float, clock: Callable[[], float]) -> dict[str, float]:
    """The gaps that a ticker reports for a loop that was blocked this long, by this clock."""
    ticker = Ticker()
    async with ticker:
        await asyncio.sleep(0)
        began = clock()
        while clock() - began < seconds:
            pass
    return ticker.gaps_ms()


async def test_a_ticker_counts_a_loop_that_was_held_to_the_end() -> None:
    gaps = await gaps_of_a_held_loop(0.02, time.perf_counter)
    assert gaps["max"] >= 19


@pytest.mark.skipif(not Path("/proc/thread-self/schedstat").exists(), reason="this system does not tell the wait")
async def test_a_ticker_tells_apart_what_its_thread_waited_for_a_processor() -> None:
    """Another program is busy on the only processor that both may use."""
    rival = None
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        rival = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "print(flush=True)\nwhile True: pass", stdout=asyncio.subprocess.PIPE
        )
        assert rival.stdout is not None
        await rival.stdout.readline()
        gaps = await gaps_of_a_held_loop(0.05, time.process_time)
    finally:
        os.sched_setaffinity(0, allowed)
        if rival is not None:
            rival.kill()
            await rival.wait()
    assert 45 <= gaps["running_max"] <= gaps["max"] - 5


def test_a_topic_has_as_many_partitions_as_the_case_says() -> None:
    done = run(client_named("aioproducer submit"), Case("partitions", 100, "none", partitions=40))
    assert done.problems == []


@pytest.mark.parametrize("client", available(TOPIC_PUBLISHERS))
def test_records_go_to_as_many_topics_as_the_case_says(client: Client) -> None:
    case = Case("topics", 100, "none", partitions=1, topics=70)
    with running_sink(1) as sink:
        job = job_for(case, client, Visit(sink.bootstrap, "bench", "none"), TINY)
        assert isinstance(work(job), Outcome)
    assert sink.counts is not None
    assert sink.counts.batches >= 70
    assert sink.counts.problems("none", job.warmup_records + job.records) == []


@pytest.mark.parametrize("client", available(METRICS_PUBLISHERS))
def test_metrics_are_read_while_records_go(client: Client) -> None:
    """And pushed by the client that pushes metrics, at the latest when it is closed."""
    case = Case("metrics", 100, "none")
    with running_sink(6, metrics_interval_ms=1_000) as sink:
        job = job_for(case, client, Visit(sink.bootstrap, "bench", "none"), TINY)
        assert isinstance(work(job), Outcome)
    assert sink.counts is not None
    assert (sink.counts.pushes > 0) == (client.name == "pushed each second")
    assert sink.counts.problems("none", job.warmup_records + job.records) == []


class Forgetful(Server):
    """A sink that has one record fewer than it received."""

    reaped = True
    warms_up = False

    def describe(self) -> str:
        return "forgetful"

    @contextlib.contextmanager
    def visit(self, codec: str, partitions: int = 6, payload_bytes: int = 0) -> Iterator[Visit]:
        with running_sink() as sink:
            visit = Visit(sink.bootstrap, "bench", codec)
            yield visit
        assert sink.counts is not None
        assert visit.sent is not None
        visit.problems = sink.counts.problems(codec, visit.sent + 1)


def client_named(name: str) -> Client:
    (found,) = (client for client in PUBLISHERS if client.name == name)
    return found


def test_a_run_whose_records_are_not_all_there_does_not_count() -> None:
    done = run(client_named("confluent"), RECORD_CASES[0], Forgetful())
    assert (
        done.problems
        == ["the sink counted 4000 records, not 4001", "the records came as {'none': 4000}, not as none"][:1]
    )
    bench = bench_of(RECORD_CASES[:1])
    part = report.section(bench, list(bench.clients), "here", [done])
    assert part.grids == []
    assert "1 runs, 0 verified" in part.verified()


def test_a_client_that_comes_to_no_end_is_told_with_its_error() -> None:
    done = run(client_named("confluent"), Case("no such codec", 100, "rot13"))
    assert done.figures == {}
    assert len(done.problems) == 1
    assert "rot13" in done.problems[0]


@pytest.mark.broker
def test_a_broker_is_counted_by_the_end_offsets_of_a_topic_of_the_run() -> None:
    with broker(None) as server:
        done = run(client_named("confluent"), RECORD_CASES[0], server)
        assert done.problems == []
        assert done.figures["server_cpu_seconds_per_million"] >= 0
        with server.visit("none") as visit:
            assert topics(visit.bootstrap) == {visit.topic}
            visit.sent = 1
        assert visit.problems == ["the broker has 0 records, not 1"]
        assert topics(visit.bootstrap) == set()
        for client in TRANSACTION_SENDERS:
            if client.missing() is None:
                done = run(client, TRANSACTIONS.cases[0], server)
                assert done.problems == []
                assert 0 < done.figures["p50_ms"] <= done.figures["p99_ms"]


def topics(bootstrap: str) -> set[str]:
    """The existing topics of the benchmarks."""
    everything = ExistingCluster(bootstrap).ask(MetadataRequest(topics=None)).topics
    return {str(topic.name) for topic in everything if str(topic.name).startswith("aioproducer-bench")}


def bench_of(cases: tuple[Case, ...], *names: str) -> Bench:
    clients = tuple(client_named(name) for name in names or ("confluent", "aiokafka"))
    return Bench("cost", "What does it cost?", "sink", cases, clients, (CPU, RATE))


def test_clients_take_turns_in_every_repeat() -> None:
    """In varying orders, which are the same in every plan."""
    names = ("confluent", "aiokafka", "kafka-python", "confluent batch")
    bench = bench_of(RECORD_CASES[:2], *names)
    order = [(repeat, case.name, client.name) for repeat, case, client in planned(bench, list(bench.clients), 2)]
    rounds = [order[at : at + len(names)] for at in range(0, len(order), len(names))]
    for (repeat, case), one in zip(((r, c.name) for r in range(2) for c in bench.cases), rounds, strict=True):
        assert sorted(one) == sorted((repeat, case, name) for name in names)
    assert len({tuple(name for *_, name in one) for one in rounds}) > 1
    assert order == [
        (repeat, case.name, client.name) for repeat, case, client in planned(bench, list(bench.clients), 2)
    ]


def test_what_begins_is_told_before_it_runs() -> None:
    bench = bench_of(RECORD_CASES[:1], "confluent")
    told: list[str] = []
    (done,) = run_bench(bench, list(bench.clients), SinkServer(), TINY, told.append)
    assert done.problems == []
    assert told == ["cost: 100 B none, confluent, 1 of 1"]


def test_cells_hold_median_spread_and_ratio_to_the_first_client() -> None:
    bench = bench_of(RECORD_CASES[:2])
    figures = {"confluent": (2.0, 1.0, 4.0), "aiokafka": (9.0, 8.0, 10.0)}
    runs = [
        Run("cost", "100 B none", name, repeat, {"cpu_seconds_per_million": value, "records_per_second": 1e6 / value})
        for name, values in figures.items()
        for repeat, value in enumerate(values)
    ]
    runs.append(Run("cost", "100 B none", "aiokafka", 3, {"cpu_seconds_per_million": 99.0}, ["1 records failed"]))
    part = report.section(bench, list(bench.clients), "here", runs)
    cpu, rate = part.grids
    assert [cell and cell.text("**") for cell in cpu.rows["confluent"]] == ["**2.00** (1.00-4.00)", None]
    assert [cell and cell.text("**") for cell in cpu.rows["aiokafka"]] == ["**9.00** (8.00-10.0) 4.50x", None]
    assert [cell and cell.text() for cell in rate.rows["aiokafka"]] == ["111 (100-125) 0.22x", None]
    assert "7 runs, 6 verified" in part.verified()


def test_the_document_has_tables_versions_and_a_picture(tmp_path: Path) -> None:
    bench = bench_of(RECORD_CASES[:1])
    runs = [Run("cost", "100 B none", name, 0, {"cpu_seconds_per_million": 2.0}) for name in ("confluent", "aiokafka")]
    part = report.section(bench, [client_named("confluent")], "here", runs)
    paths = report.write([part], ["aiokafka can't be imported"], "make bench", tmp_path)
    text = (tmp_path / "benchmarks.md").read_text()
    assert "| client | 100 B none |\n| --- | --- |\n| confluent | **2.00** |" in text
    assert "| librdkafka | " in text
    assert "Skipped: aiokafka can't be imported" in text
    assert "![client CPU seconds per million records](benchmarks-cost.svg)" in text
    assert [path.name for path in paths] == ["benchmarks.md", "benchmarks-cost.svg"]
    assert (tmp_path / "benchmarks-cost.svg").read_text().lstrip().startswith("<?xml")


def test_the_page_begins_as_the_next_run_will_write_it() -> None:
    """Text written by hand would be overwritten; text about one table is generated with it."""
    page = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text()
    said = re.search(r"Written by `(.+?)` on ([0-9-]+);", page)
    assert said
    introduction = report.INTRODUCTION.format(command=said[1], today=said[2])
    assert page.startswith(introduction + "\n| what | version |\n")


def test_a_section_takes_the_place_of_its_own(tmp_path: Path) -> None:
    bench = bench_of(RECORD_CASES[:1])
    document = tmp_path / "benchmarks.md"
    document.write_text(
        "# Benchmarks\n\nMade before.\n\n## First?\n\nkept\n\n## What does it cost?\n\nold\n\n## Last?\n"
    )
    run = Run("cost", "100 B none", "confluent", 0, {"cpu_seconds_per_million": 2.0})
    part = report.section(bench, [client_named("confluent")], "here", [run])
    new = report.section(replace(bench, slug="new", question="New?"), [client_named("confluent")], "here", [run])
    paths = report.update([part, new], "python -m benchmarks --only cost", tmp_path)
    text = document.read_text()
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "# Benchmarks",
        "## First?",
        "## What does it cost?",
        "## Last?",
        "## New?",
    ]
    assert "Made before.\n\n## First?\n\nkept\n\n## What" in text
    assert "old" not in text
    assert text.count("by `python -m benchmarks --only cost`") == text.count("**2.00**") == 2
    assert [path.name for path in paths] == ["benchmarks.md", "benchmarks-cost.svg", "benchmarks-new.svg"]
    before = text
    report.update([part, new], "python -m benchmarks --only cost", tmp_path)
    assert document.read_text() == before


def test_the_command_runs_a_chosen_bench_and_writes_its_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["--quick", "--only", "client-cost", "--clients", "confluent", "--output", str(tmp_path)])
    assert code == 0
    assert "1 runs, 1 verified" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {
        "benchmarks.md",
        "benchmarks.json",
        "benchmarks-client-cost.svg",
    }
    (runs,) = json.loads((tmp_path / "benchmarks.json").read_text())
    assert [one["case"] for one in runs] == ["100 B none"]


def test_the_short_plan_is_short() -> None:
    """A run takes about a second, and the whole plan is to take a minute; a bench without a place in it is left out."""
    short = [bench.shortened() for bench in BENCHES if bench.quick]
    assert 2 < len(short) < len(BENCHES)
    assert sum(len(bench.cases) * len(bench.clients) for bench in short) <= 50
    for bench in BENCHES:
        assert bench.shortened().cases, "--quick --only has something to run"


def test_the_module_explains_itself() -> None:
    done = subprocess.run([sys.executable, "-m", "benchmarks", "--help"], capture_output=True, text=True, check=True)
    assert "--quick" in done.stdout


@pytest.mark.parametrize("value_bytes", [100, 1_024])
def test_payloads_are_json_of_the_asked_size_and_the_same_each_time(value_bytes: int) -> None:
    pool = payloads.pool(value_bytes, records=500)
    assert pool == payloads.pool(value_bytes, records=500)
    assert {len(value) for _, value in pool} == {value_bytes}
    assert {len(key) for key, _ in pool} == {payloads.KEY_BYTES}
    assert len(set(pool)) == 500
    assert all(json.loads(value)["text"] for _, value in pool)


def test_a_stream_goes_round_the_pool() -> None:
    assert list(payloads.stream([(b"a", b"1"), (b"b", b"2")], 5)) == [
        (b"a", b"1"),
        (b"b", b"2"),
        (b"a", b"1"),
        (b"b", b"2"),
        (b"a", b"1"),
    ]


def test_a_value_too_small_for_its_fields_is_refused() -> None:
    with pytest.raises(ValueError, match="at least"):
        payloads.pool(20)


def test_the_cost_of_serializers_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_serializers.main(["--records", "10"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines if "send_many" in line] == [
        "bytes, send_many", "OrjsonSerializer, send_many", "Avro, send_many",
    ]  # fmt: skip
