"""A web application that publishes, and a page that shows its producer live.

BOOTSTRAP_SERVERS=host:port uvicorn --app-dir examples/live_metrics app:app, then open http://localhost:8000
"""

import os
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query
from fastapi.staticfiles import StaticFiles

from aioproducer import KafkaError, Producer, RecordMetadata
from aioproducer.integrations import fastapi as kafka


class Outcomes:
    """An interceptor that counts how all records ended; the producer's metrics count requests."""

    def __init__(self) -> None:
        self.acked = self.failed = 0

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: KafkaError | None, headers: object) -> None:
        self.acked += error is None
        self.failed += error is not None


outcomes = Outcomes()


def make_producer() -> Producer:
    """Metrics over the last 3 seconds instead of 60, for live viewing."""
    servers = os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")
    return Producer(
        bootstrap_servers=servers, interceptors=[outcomes], metrics_num_samples=3, metrics_sample_window_ms=1_000
    )


app = FastAPI(lifespan=kafka.producer_lifespan(make_producer, topics=["events"], wait_for_kafka=False))
app.include_router(kafka.health_router())
app.include_router(kafka.metrics_router("/metrics", interval=0.5, extra=lambda: {"outcomes": vars(outcomes)}))
kafka.add_error_handlers(app)


@app.post("/orders", status_code=201)
async def order(item: str, producer: kafka.ProducerDep) -> dict[str, Any]:
    """Answers when the brokers have the order."""
    metadata = await producer.send("orders", item)
    return {"partition": metadata.partition, "offset": metadata.offset}


@app.post("/events", status_code=202)
async def events(count: Annotated[int, Query(ge=1, le=10_000)], producer: kafka.ProducerDep) -> None:
    """Answers at once; the records go out in the background."""
    for number in range(count):
        producer.submit_nowait("events", f"event {number}")


app.mount("/", StaticFiles(directory=Path(__file__).parent / "page", html=True))
