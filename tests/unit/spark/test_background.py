"""Producers in a background thread: created once, reused, closed when idle and at the end."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from aioproducer import BootstrapError, Producer
from aioproducer import producer as producer_module
from aioproducer.spark import background as background_module
from aioproducer.spark.background import Background, background, in_transaction
from aioproducer.start_count import MANY, StartCount
from aioproducer.testing.fake import FakeCluster

KEPT_S = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as fake:
        yield fake


@pytest.fixture
def there() -> Iterator[Background]:
    one = Background()
    yield one
    one.close()


@pytest.fixture
def configs(cluster: FakeCluster) -> dict[str, str]:
    return {"bootstrap.servers": cluster.bootstrap_servers}


def until(there: Background, condition: Callable[[], bool]) -> None:
    async def wait() -> None:
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0.001)

    there.run(wait())


def test_a_producer_is_reused(there: Background, configs: dict[str, str]) -> None:
    with there.inside(there.producers.borrow(configs, KEPT_S)) as first:
        assert there.run(first.send("t", b"1")).offset >= 0
    with there.inside(there.producers.borrow(configs, KEPT_S)) as second:
        assert second is first
        with there.inside(there.producers.borrow({**configs, "linger.ms": "1"}, KEPT_S)) as other:
            assert other is not first
    assert there.producers.count == 2


def test_it_is_closed_when_nobody_uses_it(there: Background, configs: dict[str, str]) -> None:
    with there.inside(there.producers.borrow(configs, 0.001)) as first:
        assert there.producers.count == 1
    until(there, lambda: there.producers.count == 0)
    with there.inside(there.producers.borrow(configs, KEPT_S)) as second:
        assert second is not first


def test_one_that_is_in_use_again_is_not_closed(there: Background, configs: dict[str, str]) -> None:
    with there.inside(there.producers.borrow(configs, 0.01)) as first:
        pass
    with there.inside(there.producers.borrow(configs, 0.01)) as second:
        there.run(asyncio.sleep(0.05))
        assert second is first or there.producers.count == 1
        assert there.run(second.send("t", b"1")).offset >= 0


def test_after_an_error_it_is_not_used_again(there: Background, configs: dict[str, str]) -> None:
    def fail() -> Producer:
        with there.inside(there.producers.borrow(configs, KEPT_S)) as producer:
            failed.append(producer)
            raise KeyError("the task")

    failed: list[Producer] = []
    with pytest.raises(KeyError, match="the task"):
        fail()
    assert there.producers.count == 0
    with there.inside(there.producers.borrow(configs, KEPT_S)) as second:
        assert second is not failed[0]


def test_a_cluster_that_is_not_there_is_an_error_of_the_task(there: Background) -> None:
    nobody = {"bootstrap.servers": "127.0.0.1:1", "max.block.ms": "100"}
    with pytest.raises(BootstrapError), there.inside(there.producers.borrow(nobody, KEPT_S)):
        pass
    assert there.producers.count == 0


def test_a_cluster_that_can_not_be_reached_yet_is_waited_for(
    there: Background, configs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that restarts only delays the task."""
    tried: list[Producer] = []
    start = Producer.start

    async def start_late(self: Producer) -> None:
        tried.append(self)
        if len(tried) < 3:
            raise BootstrapError
        await start(self)

    monkeypatch.setattr(Producer, "start", start_late)
    monkeypatch.setattr(background_module, "TRY_AGAIN_S", 0.001)
    with there.inside(there.producers.borrow(configs, KEPT_S)) as producer:
        assert there.run(producer.send("t", b"1")).offset >= 0
    assert tried == [producer] * 3


def test_nobody_is_told_that_transactions_take_many_producers(
    there: Background, configs: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each task needs its own producer, so the user could not follow the warning."""
    monkeypatch.setattr(producer_module, "_starts", StartCount())
    for number in range(MANY + 5):
        with there.inside(in_transaction({**configs, "transactional.id": f"task-{number}"})):
            pass
    assert [message for message in caplog.messages if "producers were started" in message] == []


def test_closing_ends_the_thread(configs: dict[str, str]) -> None:
    one = Background()
    with one.inside(one.producers.borrow(configs, KEPT_S)):
        pass
    one.close()
    assert not one._thread.is_alive()
    one.close()


def test_without_a_thread_there_is_no_loop_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker on a system without free threads retries with each task."""

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    loops: list[asyncio.AbstractEventLoop] = []

    def new_event_loop() -> asyncio.AbstractEventLoop:
        loops.append(asyncio.new_event_loop())
        return loops[-1]

    monkeypatch.setattr(background_module, "new_event_loop", new_event_loop)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="new thread"):
            Background()
    assert loops[0].is_closed()


def test_there_is_one_a_process() -> None:
    assert background() is background()


AT_EXIT = """
import sys
from aioproducer.spark.background import background
there = background()
with there.inside(there.producers.borrow({"bootstrap.servers": sys.argv[1]}, 60.0)) as producer:
    there.run(producer.send("t", b"1"))
print("sent")
"""


def test_the_end_of_the_process_closes_what_is_open(cluster: FakeCluster) -> None:
    """Otherwise a producer that is dropped unclosed would warn."""
    command = [sys.executable, "-X", "dev", "-c", AT_EXIT, cluster.bootstrap_servers]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "sent\n", "")


FORKED = """
import os, signal, sys
from aioproducer.spark.background import background

one = background()
child = os.fork()
if not child:
    signal.alarm(20)  # else nobody would end it
    sys.exit(7)  # runs what is registered for the end of a process
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_ends() -> None:
    """It lacks the thread in which the parent's producers could be closed."""
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "7\n", done.stderr
