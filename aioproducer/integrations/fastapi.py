"""FastAPI: a producer with the application's lifetime, and a dependency that passes it to handlers.

app = FastAPI(lifespan=producer_lifespan(Producer(bootstrap_servers="localhost:9092"), topics=["clicks"]))
app.include_router(health_router())
add_error_handlers(app)

@app.post("/orders")
async def order(item: Item, producer: ProducerDep) -> Answer:
    metadata = await producer.send("orders", item.model_dump_json())  # answers when the brokers have it
    ...

@app.post("/clicks", status_code=202)
async def click(page: str, producer: ProducerDep) -> None:
    producer.submit_nowait("clicks", page)  # in the background: the record belongs to the producer, not to the request
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Annotated, Any, TypeAlias

from aioproducer import Producer
from aioproducer.extras import missing
from aioproducer.integrations import sse
from aioproducer.integrations.starlette import (
    DEFAULT_NAME,
    Lifespan,
    add_error_handlers,
    health_response,
    metrics_response,
    producer_lifespan,
    producer_of,
)

try:
    from fastapi import APIRouter, Depends
    from starlette.requests import HTTPConnection
    from starlette.responses import JSONResponse, StreamingResponse
except ModuleNotFoundError as _error:
    raise missing(_error, __name__, "fastapi") from None

__all__ = [
    "Lifespan",
    "ProducerDep",
    "add_error_handlers",
    "health_router",
    "metrics_response",
    "metrics_router",
    "producer_dependency",
    "producer_lifespan",
    "producer_of",
]


def producer_dependency(name: str = DEFAULT_NAME) -> Callable[[HTTPConnection], Awaitable[Producer]]:
    """A dependency for one of several producers: ``Annotated[Producer, Depends(producer_dependency("audit"))]``.

    Returns the same object for the same name, and for no name the one in ``ProducerDep``, so that
    ``app.dependency_overrides[producer_dependency()]`` replaces what handlers get.
    """
    return _dependency(name)


@cache
def _dependency(name: str) -> Callable[[HTTPConnection], Awaitable[Producer]]:
    async def dependency(connection: HTTPConnection) -> Producer:
        # A coroutine: FastAPI would run a plain function in a thread for each request.
        return producer_of(connection, name)

    return dependency


ProducerDep: TypeAlias = Annotated[Producer, Depends(producer_dependency())]
"""The application's producer as a parameter of a handler."""


def health_router(*, live: str = "/livez", ready: str = "/readyz") -> APIRouter:
    """The probes of ``aioproducer.integrations.starlette.health_routes``, shown in the application's schema."""
    router = APIRouter(tags=["health"])

    @router.head(live, include_in_schema=False)
    @router.get(live, summary="Whether the producers can still recover", responses={503: {}})
    async def liveness(connection: HTTPConnection) -> JSONResponse:
        return health_response(connection, lambda health: health.live)

    @router.head(ready, include_in_schema=False)
    @router.get(ready, summary="Whether records would go on their way at once", responses={503: {}})
    async def readiness(connection: HTTPConnection) -> JSONResponse:
        return health_response(connection, lambda health: health.ready)

    return router


def metrics_router(
    path: str = "/producer/events",
    *,
    interval: float = 1.0,
    extra: Callable[[], Mapping[str, Any]] | None = None,
    name: str = DEFAULT_NAME,
) -> APIRouter:
    """The live metrics of ``aioproducer.integrations.starlette.metrics_routes``, shown in the application's schema."""
    sse.check(interval, extra)
    router = APIRouter(tags=["metrics"])

    @router.get(
        path, summary="The producer's metrics and health as server-sent events", response_class=StreamingResponse
    )
    async def events(connection: HTTPConnection) -> StreamingResponse:
        return metrics_response(connection, interval=interval, extra=extra, name=name)

    return router
