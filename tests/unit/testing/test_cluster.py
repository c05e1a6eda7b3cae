"""KafkaCluster in a coroutine that is cancelled, without a Kafka. Real ones: tests/broker/test_kafka_cluster.py."""

from __future__ import annotations

import asyncio
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from aioproducer.testing import ClusterError, KafkaCluster

PATIENCE_S = 30.0

pytestmark = pytest.mark.usefixtures("clean_loop")


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


async def cancelled_in_every_turn(task: asyncio.Task[object], cluster: SlowCluster) -> None:
    """Cancel the task as anyio does, until it has ended; the cluster goes on after some turns."""
    async with asyncio.timeout(PATIENCE_S):
        for turn in itertools.count():
            if turn == 5:
                cluster.go.set()
            await asyncio.sleep(0)
            if not task.cancel() and cluster.go.is_set():
                return


@pytest.mark.parametrize("error", [None, ClusterError("no Java")], ids=["started", "failed"])
async def test_a_start_that_is_cancelled_again_and_again_ends_with_a_stop(error: ClusterError | None) -> None:
    cluster = SlowCluster(error)
    entering = asyncio.create_task(cluster.__aenter__())
    await cancelled_in_every_turn(entering, cluster)
    assert entering.cancelled()
    assert cluster.calls == ["start", "stop"]


async def test_a_block_that_is_cancelled_again_and_again_ends_with_a_stop() -> None:
    """Even if every thread of the loop is in use."""
    threads = ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(threads)
    cluster = SlowCluster()
    busy = asyncio.ensure_future(asyncio.to_thread(cluster.go.wait, PATIENCE_S))
    leaving = asyncio.create_task(cluster.__aexit__(None, None, None))
    await cancelled_in_every_turn(leaving, cluster)
    assert leaving.cancelled()
    assert await busy
    assert cluster.calls == ["stop"]


async def test_an_error_of_the_start_is_raised() -> None:
    cluster = SlowCluster(ClusterError("no Java"))
    cluster.go.set()
    with pytest.raises(ClusterError, match="no Java"):
        await cluster.__aenter__()
    assert cluster.calls == ["start"]
