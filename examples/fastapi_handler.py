"""A web application that publishes: one producer for all requests, started and closed with the application.

BOOTSTRAP_SERVERS=host:port uvicorn --app-dir examples fastapi_handler:app
"""

import os
from typing import Any

from fastapi import FastAPI

from aioproducer import Producer
from aioproducer.integrations.fastapi import ProducerDep, add_error_handlers, health_router, producer_lifespan


def make_producer() -> Producer:
    """A new producer for each start of the application."""
    return Producer(bootstrap_servers=os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092"))


# Shutdown sends what is still in the buffer. submit_nowait() does not wait for a topic, so name them here.
app = FastAPI(lifespan=producer_lifespan(make_producer, topics=["clicks"]))
app.include_router(health_router())  # /livez and /readyz
add_error_handlers(app)  # 503, with maybe_written: whether the record may be in Kafka nevertheless


@app.post("/orders/{customer}", status_code=201)
async def order(customer: str, item: str, producer: ProducerDep) -> dict[str, Any]:
    """Answers when the brokers have the order."""
    metadata = await producer.send("orders", item, key=customer)
    return {"partition": metadata.partition, "offset": metadata.offset}


@app.post("/clicks/{page}", status_code=202)
async def click(page: str, producer: ProducerDep) -> None:
    """Answers at once; the record goes out in the background, in a batch with others.

    It belongs to the producer, not to the request. If it fails later, the log and ``on_error`` say so.
    """
    producer.submit_nowait("clicks", page)
