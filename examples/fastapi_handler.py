"""A web application that publishes: one producer for all requests, started and closed with the application.

BOOTSTRAP_SERVERS=host:port uvicorn examples.fastapi_handler:app
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException

from aioproducer import Delivery, KafkaError, Producer

# Making a producer does nothing yet, so it may stand here; it connects in start(), in the loop of the application.
producer = Producer(bootstrap_servers=os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092"))


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with producer:  # closing sends what is still in the buffer
        await producer.partitions_for("clicks")  # submit_nowait() does not wait for the topic
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{customer}", status_code=201)
async def order(customer: str, item: str) -> dict[str, Any]:
    """Answers when the brokers have the order."""
    try:
        metadata = await producer.send("orders", item, key=customer)
    except KafkaError as error:
        # maybe_written: whether the order can be in Kafka all the same, so that trying again could double it.
        raise HTTPException(503, {"error": str(error), "maybe_written": error.maybe_written}) from error
    return {"partition": metadata.partition, "offset": metadata.offset}


@app.post("/clicks/{page}", status_code=202)
async def click(page: str) -> None:
    """Answers at once; the record goes out in the background, in a batch with others."""
    try:
        producer.submit_nowait("clicks", page).add_done_callback(note_lost)
    except KafkaError as error:  # the buffer is full, say; nothing was sent
        raise HTTPException(503, str(error)) from error


def note_lost(delivery: Delivery) -> None:
    if error := delivery.exception():
        print(f"a click was lost: {error}")
