"""Wait for records that another process commits."""

from __future__ import annotations

import asyncio

from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import PATIENCE_S
from tests.broker.readers import StoredRecord, read

Records = dict[int, list[StoredRecord]]


async def read_until(cluster: KafkaCluster, topic: str, count: int, *, patience_s: float = 2 * PATIENCE_S) -> Records:
    """The committed records of a topic, once there are at least that many."""
    async with asyncio.timeout(patience_s):
        while sum(map(len, (found := await read(cluster, topic)).values())) < count:
            await asyncio.sleep(0.5)
    return found


def values(records: Records) -> list[list[bytes]]:
    return [[record.value or b"" for record in records[partition]] for partition in sorted(records)]
