"""The application that ``test_web_shutdown.py`` serves: it accepts events and publishes them in the background."""

import os

from fastapi import FastAPI

from aioproducer import Producer
from aioproducer.integrations.fastapi import ProducerDep, add_error_handlers, health_router, producer_lifespan

TOPIC = os.environ["TOPIC"]

app = FastAPI(
    lifespan=producer_lifespan(
        lambda: Producer(bootstrap_servers=os.environ["BOOTSTRAP_SERVERS"], linger_ms=50), topics=[TOPIC]
    )
)
app.include_router(health_router())
add_error_handlers(app)


@app.post("/events/{event}", status_code=202)
async def publish(event: str, producer: ProducerDep) -> None:
    producer.submit_nowait(TOPIC, event)
