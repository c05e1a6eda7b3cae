"""Programs as separate processes: forks, Ctrl-C, and a producer that was never closed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import PATIENCE_S, new_topic
from tests.broker.readers import read

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]


@contextmanager
def script(source: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python script in a separate process, with every warning an error; killed if it outlives the block."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(source), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


FORK = """
    import asyncio, os, sys, traceback
    from aioproducer import Producer, WrongLoopError

    TOPIC = sys.argv[2]
    CALLS = [
        lambda p: p.send(TOPIC, b"child"), lambda p: p.submit(TOPIC, b"child"),
        lambda p: p.submit_nowait(TOPIC, b"child"), lambda p: p.ready(), lambda p: p.flush(),
        lambda p: p.partitions_for(TOPIC), lambda p: p.close(), lambda p: p.start(),
    ]

    async def main():
        async with Producer(bootstrap_servers=sys.argv[1]) as producer:
            await producer.send(TOPIC, b"parent 1")
            child = os.fork()
            if child == 0:
                refused = 0
                for call in CALLS:
                    try:
                        result = call(producer)
                        if result is not None:
                            result.__await__().send(None)
                    except WrongLoopError as error:
                        assert "fork" in str(error), error
                        refused += 1
                    except BaseException:
                        traceback.print_exc()
                os._exit(refused)
            _, status = os.waitpid(child, 0)
            print(len(CALLS) - os.waitstatus_to_exitcode(status))
            await producer.send(TOPIC, b"parent 2")

    asyncio.run(main())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
async def test_a_forked_child_is_refused_and_the_parent_goes_on(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    with script(FORK, kafka.bootstrap_servers, topic) as process:
        output, errors = await asyncio.to_thread(process.communicate, timeout=PATIENCE_S)
    assert (process.returncode, output.strip(), errors) == (0, "0", "")
    stored = await read(kafka, topic)
    assert [one.value for records in stored.values() for one in records] == [b"parent 1", b"parent 2"]


CHILD_WITH_ITS_OWN = """
    import asyncio, os, sys
    from aioproducer import Producer

    async def publish(value):
        async with Producer(bootstrap_servers=sys.argv[1]) as producer:
            await producer.send("own", value)

    asyncio.run(publish(b"parent"))
    if os.fork() == 0:
        asyncio.run(publish(b"child"))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
async def test_a_forked_child_can_have_a_producer_of_its_own(kafka: KafkaCluster) -> None:
    with script(CHILD_WITH_ITS_OWN, kafka.bootstrap_servers) as process:
        output, errors = await asyncio.to_thread(process.communicate, timeout=PATIENCE_S)
    assert (process.returncode, output.strip(), errors) == (0, "0", "")


INTERRUPTED = """
    import asyncio, signal, sys
    from aioproducer import Producer

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are born deaf to Ctrl-C

    async def main():
        async with Producer(bootstrap_servers=sys.argv[1]) as producer:
            await producer.send("interrupted", b"first")
            print("sending", flush=True)
            while True:
                await producer.submit("interrupted", b"value")

    asyncio.run(main())
"""


async def test_ctrl_c_ends_a_script_that_sends_without_end(kafka: KafkaCluster) -> None:
    with script(INTERRUPTED, kafka.bootstrap_servers) as process:
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == "sending\n"
        process.send_signal(signal.SIGINT)
        _, errors = await asyncio.to_thread(process.communicate, timeout=PATIENCE_S)
    assert process.returncode == -signal.SIGINT
    assert errors.strip().splitlines()[-1] == "KeyboardInterrupt"
    assert "never" not in errors


UNCLOSED = """
    import asyncio, sys
    from aioproducer import Producer

    async def main():
        producer = Producer(bootstrap_servers=sys.argv[1])
        await producer.start()
        await producer.send("unclosed", b"value")
        print("sent", flush=True)

    asyncio.run(main())
    print("over", flush=True)
"""


UNCLOSED_FOR_ALL = """
    import asyncio, sys
    from aioproducer import Producer

    producer = Producer(bootstrap_servers=sys.argv[1])

    async def main():
        await producer.start()
        await producer.send("unclosed", b"value")
        print("sent", flush=True)

    asyncio.run(main())
    print("over", flush=True)
"""


@pytest.mark.parametrize("source", [UNCLOSED, UNCLOSED_FOR_ALL], ids=["of a function", "of a module"])
async def test_a_script_that_forgets_to_close_ends_with_a_warning(kafka: KafkaCluster, source: str) -> None:
    """Even if its event loop was closed long before the producer is dropped."""
    with script(source, kafka.bootstrap_servers) as process:
        output, errors = await asyncio.to_thread(process.communicate, timeout=PATIENCE_S)
    assert (process.returncode, output) == (0, "sent\nover\n")
    assert "ResourceWarning" in errors
    assert "never closed" in errors
    assert "Traceback" not in errors.split("ResourceWarning", 1)[1]
