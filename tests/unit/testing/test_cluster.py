"""KafkaCluster without a Kafka. With one: tests/broker/test_kafka_cluster.py."""

from __future__ import annotations

import asyncio
import errno
import itertools
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aioproducer.testing import ClusterError, KafkaCluster, cluster
from aioproducer.testing.command import Runtime
from aioproducer.testing.jars import KafkaJars
from aioproducer.testing.java import Java

PATIENCE_S = 30.0


class SlowCluster(KafkaCluster):
    """Starts and stops nothing, and takes until ``go`` is set."""

    def __init__(self, error: ClusterError | None = None) -> None:
        super().__init__()
        self.go = threading.Event()
        self.calls: list[str] = []
        self._error = error

    def start(self) -> None:
        self._call("start")
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        self._call("stop")

    def _call(self, name: str) -> None:
        assert self.go.wait(PATIENCE_S)
        self.calls.append(name)


async def cancelled_in_every_turn(task: asyncio.Task[object], found: SlowCluster) -> None:
    """Cancel the task as anyio does, until it has ended; the cluster goes on after some turns."""
    async with asyncio.timeout(PATIENCE_S):
        for turn in itertools.count():
            if turn == 5:
                found.go.set()
            await asyncio.sleep(0)
            if not task.cancel() and found.go.is_set():
                return


@pytest.mark.parametrize("error", [None, ClusterError("no Java")], ids=["started", "failed"])
async def test_a_start_that_is_cancelled_again_and_again_ends_with_a_stop(error: ClusterError | None) -> None:
    found = SlowCluster(error)
    entering = asyncio.create_task(found.__aenter__())
    await cancelled_in_every_turn(entering, found)
    assert entering.cancelled()
    assert found.calls == ["start", "stop"]


async def test_a_block_that_is_cancelled_again_and_again_ends_with_a_stop() -> None:
    """Even if every thread of the loop is in use."""
    threads = ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(threads)
    found = SlowCluster()
    busy = asyncio.ensure_future(asyncio.to_thread(found.go.wait, PATIENCE_S))
    leaving = asyncio.create_task(found.__aexit__(None, None, None))
    await cancelled_in_every_turn(leaving, found)
    assert leaving.cancelled()
    assert await busy
    assert found.calls == ["stop"]


async def test_an_error_of_the_start_is_raised() -> None:
    found = SlowCluster(ClusterError("no Java"))
    found.go.set()
    with pytest.raises(ClusterError, match="no Java"):
        await found.__aenter__()
    assert found.calls == ["start"]


def test_a_relative_class_path_begins_where_this_process_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not where the broker is."""
    runtimes: list[Runtime] = []
    runtime = Runtime(Java(Path("/java"), (25,)), KafkaJars("4.3.1", ()))
    monkeypatch.setattr(cluster, "prepare", lambda *_: runtime)
    monkeypatch.setattr(KafkaCluster, "_start_on", lambda _, runtime: runtimes.append(runtime))
    KafkaCluster(class_path=[Path("plugins"), Path("/opt/plugin.jar")]).start()
    assert [one.class_path for one in runtimes] == [(Path.cwd() / "plugins", Path("/opt/plugin.jar"))]


def no_space(*_: object, **__: object) -> str:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("step", ["directory", "process", "file"])
def test_a_disk_without_room_is_a_cluster_error_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, step: str
) -> None:
    """Whatever fails: the fixtures show the reason without a traceback."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    target, name = {
        "directory": (tempfile, "mkdtemp"),
        "process": (cluster, "Brokers"),
        "file": (cluster, "render"),
    }[step]
    monkeypatch.setattr(target, name, no_space)
    monkeypatch.setattr(cluster, "prepare", lambda *_: Runtime(Java(Path("/java"), (25,)), KafkaJars("4.3.1", ())))
    with pytest.raises(ClusterError, match=r"in .*: \[Errno 28\] No space left on device.*TMPDIR"):
        KafkaCluster().start()
    assert not list(tmp_path.glob("aioproducer-kafka-*"))


@pytest.mark.parametrize("is_chosen", [False, True])
def test_a_comma_in_the_directory_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_chosen: bool) -> None:
    """Brokers take it for a list, and say that a file is missing."""
    place = tmp_path / "one,two"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.setattr(cluster, "prepare", lambda *_: Runtime(Java(Path("/java"), (25,)), KafkaJars("4.3.1", ())))
    with pytest.raises(ClusterError, match=r"one,two.* has a comma.*TMPDIR"):
        KafkaCluster(directory=place / "own" if is_chosen else None).start()
    assert not list(place.iterdir())
