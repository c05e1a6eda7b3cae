"""TopicWaiters: the callers that wait until a topic is known, or one of its partitions."""

from __future__ import annotations

import asyncio
import copy
from functools import partial

from aioproducer.cluster import ClusterTopic
from aioproducer.errors import KafkaError
from aioproducer.patient_timer import PatientTimer


class TopicWaiters:
    """Futures by topic; each caller checks again by itself what it has got when its own is done."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[str, dict[asyncio.Future[bool], int | None]] = {}
        """By topic: each caller's future, and the partition that it needs; None: any."""

    def __contains__(self, topic: str) -> bool:
        """Whether somebody waits for a topic."""
        return topic in self._waiting

    def partitions_needed(self, topic: str) -> int:
        """How many partitions a topic must have for nobody to go on waiting; 0 if nobody waits."""
        return max(((partition or 0) + 1 for partition in self._waiting.get(topic, {}).values()), default=0)

    async def answer(self, topic: str, partition: int | None, deadline_ms: int) -> bool:
        """Wait for an answer that has the topic or refuses it; False if the deadline came first.

        Raises:
            KafkaError: the wait was ended by ``fail``.
        """
        waiter: asyncio.Future[bool] = self._loop.create_future()
        waiting = self._waiting.setdefault(topic, {})
        waiting[waiter] = partition
        timer = PatientTimer(self._loop, deadline_ms, partial(_settle, waiter, False))
        try:
            return await waiter
        finally:
            timer.cancel()
            del waiting[waiter]
            if not waiting:
                del self._waiting[topic]

    def settle(self, topic: ClusterTopic, *, is_refused: bool) -> None:
        """Wake those who have what they wait for, or will not get it."""
        for waiter, partition in self._waiting.get(topic.name, {}).items():
            if is_refused or (partition or 0) < len(topic.partitions):
                _settle(waiter, True)

    def fail(self, error: KafkaError) -> None:
        """End every wait, each with an error of its own."""
        for waiting in self._waiting.values():
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_exception(copy.copy(error))


def _settle(waiter: asyncio.Future[bool], answered: bool) -> None:
    if not waiter.done():
        waiter.set_result(answered)
