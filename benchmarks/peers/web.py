"""The same web application with each of the clients, and without Kafka; `benchmarks.web_app` serves it."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from fastapi import FastAPI, Request
from pydantic import BaseModel

from aioproducer import BufferExhaustedError, Producer
from aioproducer.integrations.fastapi import producer_lifespan, producer_of
from benchmarks import payloads
from benchmarks.payloads import KeyValue
from benchmarks.peers.base import Settings

PAUSE_S = 0.005
"""Interval between checks of how many background events are due."""


class Event(BaseModel):
    """The body of a request."""

    customer: str
    text: str


class WebApp(ABC):
    """The application; a subclass per client creates the producer and the endpoint that waits for Kafka.

    ``POST /events`` answers when Kafka has the event; ``GET /other`` does not use Kafka. ``POST /background`` starts
    publishing at a rate, ``GET /background`` returns the number of events so far, ``DELETE`` stops it.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.events = 0
        self._task: asyncio.Task[None] | None = None
        self._ending = False
        self.app = FastAPI(lifespan=self.lifespan())
        self.add_events()
        self.app.get("/other")(self._other)
        self.app.post("/background")(self._begin)
        self.app.get("/background")(self._look)
        self.app.delete("/background")(self._end)

    @abstractmethod
    def lifespan(self) -> Any:
        """A context that starts and closes the producer; closing sends everything passed to it."""

    @abstractmethod
    def add_events(self) -> None:
        """Add ``POST /events``, following the client's documentation."""

    @abstractmethod
    async def publish(self, records: list[KeyValue]) -> None:
        """Pass records on, waiting only for room."""

    async def _other(self) -> dict[str, int]:
        return {"answer": 42}

    async def _begin(self, rate: int) -> None:
        self._task = asyncio.create_task(self._publish_steadily(rate))

    async def _look(self) -> dict[str, int]:
        return {"events": self.events}

    async def _end(self) -> dict[str, int]:
        self._ending = True
        if self._task is not None:
            await self._task
        return {"events": self.events}

    async def _publish_steadily(self, rate: int) -> None:
        records: Iterator[KeyValue] = payloads.stream(payloads.pool(100), sys.maxsize)
        began = time.perf_counter()
        while not self._ending:
            due = int((time.perf_counter() - began) * rate) - self.events
            if due > 0:
                await self.publish(list(itertools.islice(records, due)))
                self.events += due
            await asyncio.sleep(PAUSE_S)


class WithoutKafka(WebApp):
    """The same without a producer: the baseline."""

    def lifespan(self) -> None:
        return None

    def add_events(self) -> None:
        @self.app.post("/events", status_code=201)
        async def add(event: Event) -> dict[str, int]:
            event.model_dump_json().encode()
            return {"partition": 0, "offset": 0}

    async def publish(self, records: list[KeyValue]) -> None:
        raise NotImplementedError("there is nothing to publish to")


class Aioproducer(WebApp):
    """``await producer.send``; ``submit_nowait`` in the background."""

    def lifespan(self) -> Any:
        from benchmarks.peers.aioproducer import producer_for

        self.producer: Producer = producer_for(self.settings)
        return producer_lifespan(self.producer, topics=[self.settings.topic])

    def add_events(self) -> None:
        topic = self.settings.topic

        @self.app.post("/events", status_code=201)
        async def add(event: Event, request: Request) -> dict[str, int]:
            send = producer_of(request).send
            metadata = await send(topic, event.model_dump_json().encode(), key=event.customer.encode())
            return {"partition": metadata.partition, "offset": metadata.offset}

    async def publish(self, records: list[KeyValue]) -> None:
        submit, topic = self.producer.submit_nowait, self.settings.topic
        for key, value in records:
            while True:
                try:
                    submit(topic, value, key=key)
                    break
                except BufferExhaustedError:
                    await self.producer.ready()


class Aiokafka(WebApp):
    """``await producer.send_and_wait``; ``await producer.send`` in the background."""

    def lifespan(self) -> Any:
        from benchmarks.peers.aiokafka import producer_for

        @asynccontextmanager
        async def running(_: FastAPI) -> AsyncIterator[None]:
            self.producer = producer_for(self.settings)
            async with self.producer:
                yield

        return running

    def add_events(self) -> None:
        topic = self.settings.topic

        @self.app.post("/events", status_code=201)
        async def add(event: Event) -> dict[str, int]:
            metadata = await self.producer.send_and_wait(
                topic, event.model_dump_json().encode(), key=event.customer.encode()
            )
            return {"partition": metadata.partition, "offset": metadata.offset}

    async def publish(self, records: list[KeyValue]) -> None:
        send, topic = self.producer.send, self.settings.topic
        for key, value in records:
            await send(topic, value, key)


class ConfluentAio(WebApp):
    """``await (await producer.produce())``; only ``await producer.produce()`` in the background."""

    options: ClassVar[dict[str, Any]] = {}

    def lifespan(self) -> Any:
        from confluent_kafka.aio import AIOProducer

        from benchmarks.peers.confluent import config

        @asynccontextmanager
        async def running(_: FastAPI) -> AsyncIterator[None]:
            self.producer = AIOProducer(config(self.settings), **self.options)
            async with self.polling():
                yield
            await self.producer.close()

        return running

    @asynccontextmanager
    async def polling(self) -> AsyncIterator[None]:
        """Handle delivery reports; the client's own next batch does so."""
        yield

    def add_events(self) -> None:
        topic = self.settings.topic

        @self.app.post("/events", status_code=201)
        async def add(event: Event) -> dict[str, int]:
            delivery = await self.producer.produce(topic, event.model_dump_json().encode(), key=event.customer.encode())
            message = await delivery
            return {"partition": message.partition(), "offset": message.offset()}

    async def publish(self, records: list[KeyValue]) -> None:
        produce, topic = self.producer.produce, self.settings.topic
        for key, value in records:
            await produce(topic, value, key)


class TunedConfluentAio(ConfluentAio):
    """The same with batches that suit 64 waiting requests, and a task that polls, without which they would wait."""

    options: ClassVar[dict[str, Any]] = {"batch_size": 8, "buffer_timeout": 0.01}

    @asynccontextmanager
    async def polling(self) -> AsyncIterator[None]:
        ending = False

        async def poll() -> None:
            while not ending:
                await self.producer.poll(0.1)

        task = asyncio.create_task(poll())
        yield
        ending = True
        await task
