"""A program for test_crashes: writes 300 records in a transaction, and says when it has reached a state.

python writer.py BOOTSTRAP TRANSACTIONAL_ID TOPIC STATE
"""

from __future__ import annotations

import asyncio
import sys

from aioproducer import Producer


def say(state: str) -> None:
    print(state, flush=True)


async def stay() -> None:
    await asyncio.get_running_loop().create_future()


async def main(bootstrap: str, name: str, topic: str, state: str) -> None:
    async with Producer(bootstrap_servers=bootstrap, transactional_id=name, linger_ms=0) as producer:
        await producer.partitions_for(topic)
        await producer.begin_transaction()
        if state == "open":
            await producer.send(topic, b"0", partition=0)
            say(state)
            await stay()
        for number in range(300):
            await producer.submit(topic, b"%d" % number, partition=number % 3)
            if state == "mid-produce" and number == 150:
                say(state)
        if state in ("flushed", "committed"):
            await producer.flush()
        if state == "prepared":
            await producer.prepare_transaction()
        if state == "committing":
            commit = asyncio.ensure_future(producer.commit_transaction())
            say(state)
            await commit
        elif state == "aborting":
            abort = asyncio.ensure_future(producer.abort_transaction())
            say(state)
            await abort
        elif state == "committed":
            await producer.commit_transaction()
        say(state)
        await stay()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
