"""A request that any broker can answer: the first answer counts, and nobody waits long for a silent broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from aioproducer.errors import KafkaError
from aioproducer.net.client import NetworkClient
from aioproducer.net.connection import Connection
from aioproducer.net.nodes import SLOW_MS, held_up
from aioproducer.protocol.schema import Request

MAX_ASKED = 3
"""The most brokers asked at the same time while none of them answers."""

T = TypeVar("T")


async def first_answer(
    client: NetworkClient,
    request: Request[Any],
    *,
    deadline_ms: int,
    read: Callable[[Connection, bytes], T],
) -> T:
    """Ask the least loaded broker, and each second another one, until one has answered.

    The others' answers are not awaited, so it must not matter how many of them carry out the request. If no other
    connection can take the request without queueing behind a silent broker, a new one is made.

    Args:
        deadline_ms: how long to wait for the first broker that can take the request.
        read: makes the result from a frame; an error that it raises counts like a lost answer.
    Raises:
        KafkaError: of the last broker that was asked, once none is left that may still answer; or there was none to
            ask (``NetworkClient.any_ready_connection``).
    """
    loop = asyncio.get_running_loop()
    connection: Connection | None = await client.any_ready_connection(deadline_ms)
    tried: list[Connection] = []
    asked: dict[Connection, asyncio.Future[bytes]] = {}
    attempts: list[asyncio.Task[None]] = []
    try:
        while True:
            if connection is not None:
                tried.append(connection)
                # At once: in another turn another request may have taken the place on the connection.
                asked[connection] = connection.exchange(request, connection.version(type(request)))
            attempts = [attempt for attempt in attempts if not attempt.done()]
            awaited: list[asyncio.Future[Any]] = [*asked.values(), *attempts]
            await asyncio.wait(awaited, timeout=SLOW_MS / 1000, return_when=asyncio.FIRST_COMPLETED)
            for each, answer in list(asked.items()):
                if answer.done():
                    del asked[each]
                    try:
                        return read(each, answer.result())
                    except KafkaError:
                        if not asked:
                            raise
            connection = None
            if len(asked) < MAX_ASKED:
                now_ms = int(loop.time() * 1000)
                connection = client.least_loaded(now_ms, but_not=tried)
                if connection is None or held_up(connection, now_ms):
                    attempt = client.connect_somewhere(now_ms)
                    if attempt is not None:
                        attempts.append(attempt)
    finally:
        for answer in asked.values():
            answer.cancel()  # also marks an error as seen, of one that failed in the turn of another's answer
