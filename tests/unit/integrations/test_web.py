"""The producer in FastAPI and Starlette applications, with a cluster in the test's process."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any

import anyio.from_thread
import httpx
import pytest
from fastapi import APIRouter, BackgroundTasks, Depends, FastAPI, HTTPException, WebSocket
from starlette.applications import Starlette
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from aioproducer import Delivery, DeliveryErrors, KafkaError, Producer, Record
from aioproducer.errors import (
    BootstrapError,
    InvalidTopicError,
    ProducerClosedError,
    SerializationError,
    TopicAuthorizationFailedError,
    WrongLoopError,
)
from aioproducer.integrations.fastapi import ProducerDep, health_router, producer_dependency
from aioproducer.integrations.starlette import (
    add_error_handlers,
    health_of,
    health_routes,
    producer_lifespan,
    producer_of,
)
from aioproducer.testing import FakeCluster
from tests.unit.core import messages_of
from tests.unit.waiting import until

PATIENCE_S = 30


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(1) as cluster:
        for topic in ("clicks", "orders", "audit"):
            cluster.create_topic(topic)
        yield cluster


def make(cluster: FakeCluster, **configs: Any) -> Producer:
    return Producer(bootstrap_servers=cluster.bootstrap_servers, **configs)


def values(cluster: FakeCluster, topic: str) -> list[bytes | None]:
    return [record.value for record in cluster.records(topic)]


@asynccontextmanager
async def serving(app: Any, *, with_state: bool = True) -> AsyncIterator[httpx.AsyncClient]:
    """Run an application as a server does, with or without its lifespan and its state."""
    async with app.router.lifespan_context(app) as state:

        async def served(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, "state": dict(state)} if with_state else scope, receive, send)

        transport = httpx.ASGITransport(app=served)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            yield client


def clicks(**lifespan: Any) -> FastAPI:
    app = FastAPI(lifespan=producer_lifespan(topics=["clicks"], **lifespan))
    app.include_router(health_router())
    add_error_handlers(app)

    @app.post("/clicks", status_code=202)
    async def click(page: str, producer: ProducerDep) -> None:
        producer.submit_nowait("clicks", page)

    @app.post("/orders", status_code=201)
    async def order(item: str, producer: ProducerDep) -> dict[str, int]:
        return {"offset": (await producer.send("orders", item)).offset}

    return app


# --- its life ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({"close_timeout": "20"}, TypeError, "close_timeout is a str; seconds"),
        ({"close_timeout": float("nan")}, ValueError, "close_timeout is not a number; seconds"),
        ({"topics": "clicks"}, TypeError, r"topics is the str 'clicks'; .* such as \['clicks'\]"),
        ({"topics": ["clicks", b"orders"]}, TypeError, "topics has a bytes; names are needed"),
        ({"topics": ["a b"], "wait_for_kafka": False}, InvalidTopicError, "'a b' is not a valid topic name"),
        ({"producer": None}, TypeError, "producer is a NoneType; a Producer, or a plain function"),
    ],
)
def test_wrong_arguments_are_told_before_anything_starts(
    wrong: dict[str, Any], error: type[Exception], text: str
) -> None:
    """A bad time limit that fails only at the end would lose records; the letters of a str would count as topics."""
    with pytest.raises(error, match=text):
        producer_lifespan(**{"producer": Producer(bootstrap_servers="localhost:9092"), **wrong})


@pytest.mark.parametrize("made", [None, "coroutine"])
async def test_a_function_that_makes_no_producer_is_told(cluster: FakeCluster, made: str | None) -> None:
    async def coroutine() -> Producer:
        return make(cluster)

    wrong: Any = coroutine if made else lambda: None
    with pytest.raises(TypeError, match=f"has returned a {made or 'NoneType'}; a Producer, or a plain function"):
        async with serving(clicks(producer=wrong)):
            pass


async def test_two_producers_of_the_same_name_are_an_error(cluster: FakeCluster) -> None:
    """Otherwise a handler and the application's own code would each find a different one."""
    inner = producer_lifespan(lambda: make(cluster))
    app = Starlette(lifespan=producer_lifespan(lambda: make(cluster), lifespan=inner))
    with pytest.raises(RuntimeError, match=r"two producers are named 'default': one needs producer_lifespan\(name="):
        async with serving(app):
            pass


@pytest.mark.parametrize("wait_for_kafka", [True, False])
async def test_a_closed_producer_is_told_at_the_start(cluster: FakeCluster, wait_for_kafka: bool) -> None:
    """Even without waiting for Kafka, because it would never become ready."""
    producer = make(cluster)
    await producer.close()
    with pytest.raises(ProducerClosedError, match="make a new one"):
        async with serving(clicks(producer=producer, wait_for_kafka=wait_for_kafka)):
            pass


@pytest.mark.parametrize("with_state", [True, False])
async def test_it_starts_and_ends_with_the_application(cluster: FakeCluster, with_state: bool) -> None:
    """Records that handlers submitted in the background are sent before the application ends."""
    producer = make(cluster, linger_ms=60_000, delivery_timeout_ms=120_000)
    async with serving(clicks(producer=producer), with_state=with_state) as client:
        assert (await client.post("/orders", params={"item": "tea"})).json() == {"offset": 0}
        answers = [await client.post("/clicks", params={"page": str(number)}) for number in range(20)]
        assert {answer.status_code for answer in answers} == {202}
        assert values(cluster, "clicks") == []
    assert values(cluster, "clicks") == [str(number).encode() for number in range(20)]
    assert producer.health().state == "closed"


async def test_an_application_may_run_again(cluster: FakeCluster) -> None:
    app = clicks(producer=lambda: make(cluster))
    for _ in range(2):
        async with serving(app) as client:
            await client.post("/orders", params={"item": "tea"})
    assert values(cluster, "orders") == [b"tea"] * 2


async def test_it_runs_around_the_lifespan_of_the_application(cluster: FakeCluster) -> None:
    """The application's own startup and shutdown code may publish, and its state reaches the requests."""

    @asynccontextmanager
    async def own(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        producer = app.state.aioproducer["default"]
        await producer.send("audit", b"up")
        yield {"greeting": "hello"}
        producer.submit_nowait("audit", b"down")

    app = FastAPI(lifespan=producer_lifespan(make(cluster), lifespan=own))

    @app.get("/")
    async def greet(request: Request, producer: ProducerDep) -> str:
        await producer.send("clicks", b"x")
        return str(request.state.greeting)

    async with serving(app) as client:
        assert (await client.get("/")).json() == "hello"
    assert values(cluster, "audit") == [b"up", b"down"]


async def test_two_producers(cluster: FakeCluster) -> None:
    audit = producer_lifespan(make(cluster, client_id="audit"), name="audit")
    app = FastAPI(lifespan=producer_lifespan(make(cluster), lifespan=audit))
    app.include_router(health_router())

    @app.post("/")
    async def both(
        producer: ProducerDep, auditor: Annotated[Producer, Depends(producer_dependency("audit"))]
    ) -> list[str]:
        return [repr(producer), repr(auditor)]

    async with serving(app) as client:
        first, second = (await client.post("/")).json()
        assert "audit" not in first
        assert "audit" in second
        assert set((await client.get("/readyz")).json()["producers"]) == {"default", "audit"}


async def test_a_producer_of_a_router(cluster: FakeCluster) -> None:
    """FastAPI makes one state of those of the application and its routers, in which the same key can occur but once."""
    app = FastAPI(lifespan=producer_lifespan(make(cluster)))
    router = APIRouter(lifespan=producer_lifespan(make(cluster, client_id="audit"), name="audit"))

    @router.post("/")
    async def both(
        producer: ProducerDep, auditor: Annotated[Producer, Depends(producer_dependency("audit"))]
    ) -> list[str]:
        return [producer.client_id, auditor.client_id]

    app.include_router(router)
    app.include_router(health_router())
    async with serving(app) as client:
        first, second = (await client.post("/")).json()
        assert first != second == "audit"
        assert set((await client.get("/readyz")).json()["producers"]) == {"default", "audit"}


async def test_a_router_s_producer_needs_a_name_of_its_own(cluster: FakeCluster) -> None:
    """Both start before FastAPI joins their states: requests would find one of them, perhaps of another cluster."""
    app = FastAPI(lifespan=producer_lifespan(lambda: make(cluster)))
    router = APIRouter(lifespan=producer_lifespan(lambda: make(cluster)))

    @router.post("/")
    async def handler(producer: ProducerDep) -> None:
        raise AssertionError(producer)

    app.include_router(router)
    app.include_router(health_router())
    async with serving(app) as client:
        for ask in (client.post("/"), client.get("/readyz")):
            with pytest.raises(RuntimeError, match="two producers are named 'default': one needs producer_lifespan"):
                await ask


async def test_applications_that_run_at_once_have_their_own_producers(cluster: FakeCluster) -> None:
    app = FastAPI(lifespan=producer_lifespan(lambda: make(cluster)))

    @app.post("/")
    async def name(producer: ProducerDep) -> str:
        return producer.client_id

    async with serving(app) as first, serving(app) as second:
        names = {(await client.post("/")).json() for client in (first, second, first)}
    assert len(names) == 2


async def test_a_plain_handler_is_in_another_thread(cluster: FakeCluster) -> None:
    """It can make the loop send for it."""
    app = FastAPI(lifespan=producer_lifespan(make(cluster)))

    @app.post("/{way}")
    def handler(way: str, producer: ProducerDep) -> int:
        if way == "direct":
            with pytest.raises(WrongLoopError, match="run_coroutine_threadsafe"):
                producer.submit_nowait("clicks", "direct")
        if way == "by anyio":
            return anyio.from_thread.run(producer.send, "clicks", way).offset
        assert producer.loop is not None
        return asyncio.run_coroutine_threadsafe(producer.send("clicks", way), producer.loop).result().offset

    async with serving(app) as client:
        for way in ("direct", "by the loop", "by anyio"):
            assert (await client.post(f"/{way}")).status_code == 200
    assert values(cluster, "clicks") == [b"direct", b"by the loop", b"by anyio"]


async def test_a_plain_handler_before_the_start() -> None:
    """There is no ``producer.loop`` yet; by anyio's way it gets the same answer as others."""
    app = FastAPI(lifespan=producer_lifespan(Producer(bootstrap_servers="127.0.0.1:1"), wait_for_kafka=False))
    add_error_handlers(app)

    @app.post("/")
    def handler(producer: ProducerDep) -> None:
        anyio.from_thread.run(producer.send, "clicks", "early")

    async with serving(app) as client:
        answer = await client.post("/")
    assert (answer.status_code, answer.json()["detail"]["error"]) == (503, "NotStartedError")


@pytest.mark.parametrize("name", ["default", "audit"])
async def test_a_test_gives_handlers_something_else(name: str) -> None:
    """With FastAPI's dependency overrides, and without a lifespan."""
    app = FastAPI()

    @app.post("/default")
    async def default(producer: ProducerDep) -> None:
        producer.submit_nowait("orders", "tea")

    @app.post("/audit")
    async def audit(auditor: Annotated[Producer, Depends(producer_dependency("audit"))]) -> None:
        auditor.submit_nowait("orders", "tea")

    class Recorder:
        def __init__(self) -> None:
            self.sent: list[tuple[str, str]] = []

        def submit_nowait(self, topic: str, value: str) -> None:
            self.sent.append((topic, value))

    recorder = Recorder()
    app.dependency_overrides[producer_dependency(name)] = lambda: recorder
    async with serving(app, with_state=False) as client:
        assert (await client.post(f"/{name}")).status_code == 200
    assert recorder.sent == [("orders", "tea")]
    assert producer_dependency() is producer_dependency("default")


@pytest.mark.parametrize("wait_for_kafka", [True, False])
async def test_its_topics_stay_known_while_they_are_idle(cluster: FakeCluster, wait_for_kafka: bool) -> None:
    """Or the first request after some quiet minutes would be answered with 503."""
    producer = make(cluster, metadata_max_age_ms=10, retry_backoff_ms=1)
    async with serving(clicks(producer=producer, wait_for_kafka=wait_for_kafka)) as client:
        await until(lambda: health_of(producer).ready)
        await producer.partitions_for("idle")
        metadata = producer._engine._metadata  # type: ignore[union-attr]
        for use in metadata._schedule._topics.values():
            use.expires_ms = 0
        await until(lambda: "idle" not in metadata.cluster.topics)
        assert (await client.post("/clicks", params={"page": "home"})).status_code == 202


async def test_without_its_lifespan() -> None:
    """The error says what is missing."""
    app = FastAPI()

    @app.get("/")
    async def handler(producer: ProducerDep) -> None:
        raise AssertionError(producer)

    async with serving(app, with_state=False) as client:
        with pytest.raises(RuntimeError, match="lifespan=producer_lifespan"):
            await client.get("/")


async def test_a_mounted_application(cluster: FakeCluster) -> None:
    async def handler(request: Request) -> Response:
        metadata = await producer_of(request).send("clicks", await request.body())
        return PlainTextResponse(str(metadata.offset))

    inner = Starlette(routes=[Route("/", handler, methods=["POST"])])
    app = Starlette(routes=[Mount("/inner", inner)], lifespan=producer_lifespan(make(cluster)))
    async with serving(app) as client:
        assert (await client.post("/inner/", content=b"one")).text == "0"
    assert values(cluster, "clicks") == [b"one"]


async def test_a_web_socket(cluster: FakeCluster) -> None:
    app = FastAPI(lifespan=producer_lifespan(make(cluster)))

    @app.websocket("/")
    async def talk(socket: WebSocket, producer: ProducerDep) -> None:
        await socket.accept()
        await producer.send("clicks", await socket.receive_text())
        await socket.close()

    assert await talking(app, "said") == ["websocket.accept", "websocket.close"]
    assert values(cluster, "clicks") == [b"said"]


async def test_a_web_socket_whose_record_fails(cluster: FakeCluster) -> None:
    """There is no response to give: the error reaches the server, which closes the connection."""
    app = FastAPI(lifespan=producer_lifespan(make(cluster)))
    add_error_handlers(app)
    cluster.faults.fail("Produce", 29)

    @app.websocket("/")
    async def talk(socket: WebSocket, producer: ProducerDep) -> None:
        await socket.accept()
        await producer.send("clicks", await socket.receive_text())

    with pytest.raises(TopicAuthorizationFailedError):
        await talking(app, "said")


async def talking(app: Any, text: str) -> list[str]:
    """Say this over a web socket; returns the types of the application's messages."""
    incoming = [{"type": "websocket.connect"}, {"type": "websocket.receive", "text": text}]
    sent: list[str] = []

    async def receive() -> dict[str, Any]:
        return incoming.pop(0)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    async with app.router.lifespan_context(app) as state:
        scope = {
            "type": "websocket",
            "path": "/",
            "headers": [],
            "query_string": b"",
            "state": state,
            "subprotocols": [],
        }
        await app(scope, receive, send)
    return sent


# --- in the background ------------------------------------------------------------------------------------------------


async def test_a_record_outlives_a_request_that_is_cancelled(cluster: FakeCluster) -> None:
    """Middleware and disconnecting clients cancel handlers and background tasks, never a record that was submitted."""
    reached = asyncio.Event()
    limits: list[asyncio.Timeout] = []

    class Hurry:
        def __init__(self, app: ASGIApp) -> None:
            self._app = app

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            try:
                async with asyncio.timeout(PATIENCE_S) as limit:
                    limits.append(limit)
                    await self._app(scope, receive, send)
            except TimeoutError:
                await JSONResponse("too late", 504)(scope, receive, send)

    app = FastAPI(lifespan=producer_lifespan(make(cluster), topics=["clicks"]), middleware=[Middleware(Hurry)])

    @app.post("/")
    async def handler(producer: ProducerDep, tasks: BackgroundTasks) -> None:
        producer.submit_nowait("clicks", b"by the handler")
        reached.set()
        await asyncio.Event().wait()

    async with serving(app) as client:
        request = asyncio.create_task(client.post("/"))
        await reached.wait()
        limits[-1].reschedule(0)  # over at once
        assert (await request).status_code == 504
        reached.clear()
        request = asyncio.create_task(client.post("/"))
        await reached.wait()
        request.cancel()
        await asyncio.wait([request])
    assert values(cluster, "clicks") == [b"by the handler"] * 2


async def test_a_record_outlives_a_request_that_starlettes_middleware_gives_up(cluster: FakeCluster) -> None:
    """It runs the application in a task group, which cancels the handler when something else in it has failed."""

    limits: list[asyncio.Timeout] = []

    class Hurry(BaseHTTPMiddleware):
        async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
            async with asyncio.timeout(PATIENCE_S) as limit:
                limits.append(limit)
                return await call_next(request)

    app = FastAPI(lifespan=producer_lifespan(make(cluster), topics=["clicks"]), middleware=[Middleware(Hurry)])

    @app.post("/")
    async def handler(producer: ProducerDep) -> None:
        producer.submit_nowait("clicks", b"by the handler")
        limits[0].reschedule(0)  # over at once
        await asyncio.Event().wait()

    async with serving(app) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.post("/"), PATIENCE_S)
    assert values(cluster, "clicks") == [b"by the handler"]


@pytest.mark.parametrize("call", ["send", "submit", "send_many"])
async def test_the_producer_s_own_calls_are_background_tasks(cluster: FakeCluster, call: str) -> None:
    """Starlette awaits coroutine functions; others are called in a thread, where their result is not awaited."""
    app = FastAPI(lifespan=producer_lifespan(make(cluster), topics=["clicks"]))

    @app.post("/")
    async def handler(producer: ProducerDep, tasks: BackgroundTasks) -> None:
        tasks.add_task(getattr(producer, call), "clicks", [b"x"] if call == "send_many" else b"x")

    async with serving(app) as client:
        assert (await client.post("/")).status_code == 200
    assert values(cluster, "clicks") == [b"x"]


async def test_what_failed_in_the_background_is_told_at_the_end(cluster: FakeCluster) -> None:
    told: list[tuple[KafkaError, int]] = []
    producer = make(cluster, on_error=lambda error, records: told.append((error, records)))
    cluster.faults.fail("Produce", 29)
    with pytest.raises(DeliveryErrors):
        async with serving(clicks(producer=producer)) as client:
            assert (await client.post("/clicks", params={"page": "lost"})).status_code == 202
    assert [(error.name, records) for error, records in told] == [("TOPIC_AUTHORIZATION_FAILED", 1)]  # type: ignore[attr-defined]


async def test_the_end_takes_as_long_as_it_may(cluster: FakeCluster) -> None:
    """With close_timeout an application ends although no broker answers; lost records count as failed."""
    cluster.faults.swallow("Produce", times=None)
    producer = make(cluster)
    async with serving(clicks(producer=producer, close_timeout=0.05)) as client:
        await client.post("/clicks", params={"page": "lost"})
    assert producer.metrics()["producer-metrics"]["record-error-total"] == 1


# --- without Kafka ----------------------------------------------------------------------------------------------------


async def test_it_does_not_start_without_kafka(cluster: FakeCluster) -> None:
    cluster.stop_broker(1)
    with pytest.raises(BootstrapError):
        async with serving(clicks(producer=make(cluster, max_block_ms=100))):
            pass


async def test_it_starts_later(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """With wait_for_kafka=False the application runs, says that it is not ready, and becomes so by itself."""
    monkeypatch.setattr("aioproducer.integrations.starlette.FIRST_RETRY_S", 0.01)
    cluster.stop_broker(1)
    app = clicks(producer=make(cluster, max_block_ms=100), wait_for_kafka=False)
    async with serving(app) as client:
        assert (await client.get("/livez")).status_code == 200
        assert (await client.get("/readyz")).status_code == 503
        answer = await client.post("/clicks", params={"page": "early"})
        assert (answer.status_code, answer.json()) == (
            503,
            {"detail": {"error": "NotStartedError", "maybe_written": False}},
        )
        cluster.start_broker(1)
        async with asyncio.timeout(PATIENCE_S):
            while (await client.get("/readyz")).status_code != 200:
                await asyncio.sleep(0.01)
        assert (await client.post("/clicks", params={"page": "late"})).status_code == 202
    assert values(cluster, "clicks") == [b"late"]


async def test_it_starts_later_whatever_has_failed_at_first(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """start() may raise an error of the program's own code: of a serializer or a token provider."""
    monkeypatch.setattr("aioproducer.integrations.starlette.FIRST_RETRY_S", 0.01)
    failures = [OSError("no schemas yet")]

    class LateProducer(Producer):
        async def start(self) -> None:
            if failures:
                raise failures.pop()
            await super().start()

    producer = LateProducer(bootstrap_servers=cluster.bootstrap_servers)
    async with serving(clicks(producer=producer, wait_for_kafka=False)):
        await until(lambda: producer.health().ready)
    assert "can't start, next attempt in 0.01 s: no schemas yet" in caplog.text


async def test_it_is_ready_once_its_topics_are_known() -> None:
    """So that requests that arrive once the probe succeeds don't have their submit_nowait refused."""
    async with FakeCluster(1, auto_create_topics=False) as cluster:
        app = FastAPI(lifespan=producer_lifespan(make(cluster), topics=["later"], wait_for_kafka=False))
        app.include_router(health_router())
        async with serving(app) as client:
            producer = app.state.aioproducer["default"]
            await until(lambda: producer.health().state == "running")
            probe = await client.get("/readyz")
            assert probe.status_code == 503
            assert probe.json()["producers"]["default"] == {"state": "starting", "reason": "the producer is starting"}
            assert (await client.get("/livez")).status_code == 200
            cluster.create_topic("later")
            async with asyncio.timeout(PATIENCE_S):
                while (await client.get("/readyz")).status_code == 503:
                    await asyncio.sleep(0.001)
            producer.submit_nowait("later", b"x")
        assert values(cluster, "later") == [b"x"]


async def test_a_probe_says_why_it_has_not_started(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A producer whose start is being retried counts as starting, and the probe shows the error."""
    monkeypatch.setattr("aioproducer.integrations.starlette.FIRST_RETRY_S", PATIENCE_S)
    cluster.stop_broker(1)
    async with serving(clicks(producer=make(cluster), wait_for_kafka=False)) as client:
        await until(lambda: "can't start" in caplog.text)
        told = (await client.get("/readyz")).json()["producers"]["default"]
        assert told["state"] == "starting"
        assert told["reason"].startswith("the producer is starting: no bootstrap server could be used")
        assert cluster.bootstrap_servers in told["reason"]
        assert "\n" not in told["reason"]
        (line,) = messages_of(caplog, "aioproducer.integrations")  # which names the producer
        assert cluster.bootstrap_servers in line
        assert "\n" not in line
        assert (await client.get("/livez")).status_code == 200


async def test_a_probe_says_which_topic_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioproducer.integrations.starlette.FIRST_RETRY_S", PATIENCE_S)
    async with FakeCluster(1, auto_create_topics=False) as cluster:
        app = clicks(producer=make(cluster, max_block_ms=500), wait_for_kafka=False)
        async with serving(app) as client:
            async with asyncio.timeout(PATIENCE_S):
                while "clicks" not in (await client.get("/readyz")).text:
                    await asyncio.sleep(0.001)


async def test_a_producer_that_can_t_start_any_more_is_not_tried_again(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It would be retried for as long as the application runs, with a log line each time."""
    monkeypatch.setattr("aioproducer.integrations.starlette.FIRST_RETRY_S", 0.001)
    cluster.stop_broker(1)
    producer = make(cluster, max_block_ms=10)
    async with serving(clicks(producer=producer, wait_for_kafka=False)):
        await until(lambda: "can't start, next attempt" in caplog.text)
        await producer.close()
        await until(lambda: not any(task.get_name() == "aioproducer start" for task in asyncio.all_tasks()))
    assert "can't start any more: the producer was closed" in caplog.text


async def test_it_ends_before_it_has_started(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.stop_broker(1)
    producer = make(cluster)
    async with serving(clicks(producer=producer, wait_for_kafka=False)):
        await until(lambda: "can't start" in caplog.text)
    assert producer.health().state == "closed"
    caplog.clear()
    gone = weakref.ref(producer)
    del producer
    gc.collect()
    assert gone() is None


async def test_it_ends_though_a_token_provider_ignores_that(cluster: FakeCluster) -> None:
    """The cancellation of a start that it swallows must not keep the server from shutting down."""
    asked, enough = asyncio.Event(), asyncio.Event()

    async def provider() -> str:
        asked.set()
        while not enough.is_set():
            with suppress(asyncio.CancelledError):
                await enough.wait()
        return "token"

    producer = make(
        cluster,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=provider,
    )
    async with asyncio.timeout(PATIENCE_S):
        async with serving(clicks(producer=producer, wait_for_kafka=False, close_timeout=0.1)):
            await asked.wait()
        assert producer.health().state == "closed"
        enough.set()
        while any(task.get_name().startswith("aioproducer") for task in asyncio.all_tasks()):
            await asyncio.sleep(0)


# --- probes and errors ------------------------------------------------------------------------------------------------


async def test_a_lost_cluster_ends_readiness_but_not_life(cluster: FakeCluster) -> None:
    app = Starlette(routes=health_routes(live="/live", ready="/ready"), lifespan=producer_lifespan(make(cluster)))
    async with serving(app) as client:
        answers = [await client.get("/live"), await client.get("/ready")]
        assert [answer.status_code for answer in answers] == [200, 200]
        assert answers[1].json() == {"ok": True, "producers": {"default": {"state": "running", "reason": ""}}}
        cluster.stop_broker(1)
        async with asyncio.timeout(PATIENCE_S):
            while (await client.get("/ready")).status_code == 200:
                await asyncio.sleep(0.001)
        assert "no broker can be reached" in (await client.get("/ready")).json()["producers"]["default"]["reason"]
        assert (await client.get("/live")).status_code == 200


@pytest.mark.parametrize("framework", ["fastapi", "starlette"])
async def test_load_balancers_may_ask_for_the_head_alone(cluster: FakeCluster, framework: str) -> None:
    lifespan = producer_lifespan(make(cluster))
    if framework == "fastapi":
        app: Starlette = FastAPI(lifespan=lifespan)
        app.include_router(health_router())  # type: ignore[attr-defined]
        assert list(app.openapi()["paths"]["/readyz"]) == ["get"]  # type: ignore[attr-defined]
    else:
        app = Starlette(lifespan=lifespan, routes=health_routes())
    async with serving(app) as client:
        assert [(await client.head(path)).status_code for path in ("/livez", "/readyz")] == [200, 200]
        cluster.stop_broker(1)
        async with asyncio.timeout(PATIENCE_S):
            while (await client.head("/readyz")).status_code != 503:
                await asyncio.sleep(0.001)
        assert (await client.head("/livez")).status_code == 200


async def test_a_failed_producer_is_not_live(cluster: FakeCluster) -> None:
    cluster.faults.fail("Produce", 31)
    app = clicks(producer=make(cluster))
    async with serving(app) as client:
        order = await client.post("/orders", params={"item": "tea"})
        assert (order.status_code, order.json()["detail"]["maybe_written"]) == (503, False)
        assert order.headers["Retry-After"] == "1"
        assert (await client.get("/livez")).status_code == 503
        assert (await client.get("/livez")).json()["producers"]["default"]["state"] == "failed"


async def pays(producer: Producer, cluster: FakeCluster) -> None:
    cluster.faults.swallow("EndTxn", when="after", times=None)
    async with producer.transaction():
        await producer.submit("orders", b"tea")


async def flushes(producer: Producer, cluster: FakeCluster) -> None:
    cluster.faults.swallow("Produce", when="after", times=1)
    producer.submit_nowait("orders", b"tea")
    await producer.flush(0.05)


async def sends_several(producer: Producer, cluster: FakeCluster) -> None:
    await producer.send_many("orders", [b"tea", 5])


@pytest.mark.parametrize(
    ("topic", "value", "error"), [("orders", 5, "SerializationError"), ("no topic!", b"tea", "InvalidTopicError")]
)
async def test_what_only_the_program_can_mend_is_not_to_be_tried_again(
    cluster: FakeCluster, topic: str, value: Any, error: str
) -> None:
    app = FastAPI(lifespan=producer_lifespan(make(cluster)))
    add_error_handlers(app)

    @app.post("/orders")
    async def order(producer: ProducerDep) -> None:
        await producer.send(topic, value)

    async with serving(app) as client:
        answer = await client.post("/orders")
        assert (answer.status_code, answer.json()["detail"]) == (500, {"error": error, "maybe_written": False})
        assert "Retry-After" not in answer.headers


def broken() -> Iterator[bytes]:
    raise ValueError("a bug")
    yield b"tea"


@pytest.mark.parametrize(
    ("records", "status"),
    [
        (lambda: ["x" * 2_000], 413),
        (lambda: [5], 500),
        (lambda: ["x" * 2_000, 5], 500),
        (broken, 500),
        (lambda: [Record("tea", timestamp_ms=1), "tea"], 500),
        (lambda: ["tea"], 503),
    ],
    ids=["too large", "not encodable", "both", "an iterable that raises", "too old", "no permission"],
)
async def test_the_worst_record_of_a_bulk_call_decides(
    cluster: FakeCluster, records: Callable[[], Any], status: int
) -> None:
    cluster.alter_configs("orders", {"message.timestamp.before.max.ms": 3_600_000})
    if status == 503:
        cluster.faults.fail("Produce", 29)
    app = FastAPI(lifespan=producer_lifespan(make(cluster, max_request_size=1_000), topics=["orders"]))
    add_error_handlers(app)

    @app.post("/orders")
    async def order(producer: ProducerDep) -> None:
        await producer.send_many("orders", records())

    async with serving(app) as client:
        answer = await client.post("/orders")
    detail = {"error": "SendManyError", "maybe_written": False}
    assert (answer.status_code, answer.json()["detail"]) == (status, detail)
    assert ("Retry-After" in answer.headers) is (status == 503)


async def result_of(send: Awaitable[object]) -> None:
    await send


GROUPS: dict[str, tuple[list[Any], int, str]] = {
    "no permission": (["tea", "tea"], 503, "TopicAuthorizationFailedError"),
    "one too large": (["tea", "x" * 2_000], 413, "RecordTooLargeError"),
    "one not encodable": (["x" * 2_000, 5], 500, "SerializationError"),
}


@pytest.mark.parametrize("case", GROUPS)
async def test_the_worst_error_of_a_task_group_decides(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    """It is not to be tried again: other records of the group may be in Kafka."""
    records, status, error = GROUPS[case]
    cluster.faults.fail("Produce", 29)
    app = FastAPI(lifespan=producer_lifespan(make(cluster, max_request_size=1_000), topics=["orders"]))
    add_error_handlers(app)

    @app.post("/orders")
    async def order(producer: ProducerDep) -> None:
        sends = [asyncio.create_task(producer.send("orders", value)) for value in records]
        await asyncio.wait(sends)  # so that none is cancelled because another has failed
        async with asyncio.TaskGroup(), asyncio.TaskGroup() as group:
            for each in sends:
                group.create_task(result_of(each))

    async with serving(app) as client:
        answer = await client.post("/orders")
    assert (answer.status_code, answer.json()["detail"]) == (status, {"error": error, "maybe_written": True})
    assert "Retry-After" not in answer.headers
    (line,) = [record.getMessage() for record in caplog.records if record.name == "aioproducer.integrations"]
    assert line.startswith("POST /orders: a group of errors (2), the first: ")


async def test_a_task_group_with_another_error_reaches_the_server(cluster: FakeCluster) -> None:
    app = FastAPI(lifespan=producer_lifespan(make(cluster)))
    add_error_handlers(app)

    @app.post("/orders")
    async def order(producer: ProducerDep) -> None:
        raise ExceptionGroup("of a task group", [SerializationError("one"), ExceptionGroup("", [KeyError("two")])])

    async with serving(app) as client:
        with pytest.raises(ExceptionGroup, match="of a task group"):
            await client.post("/orders")


async def test_an_applications_own_answer_to_groups_stays(cluster: FakeCluster) -> None:
    app = FastAPI(lifespan=producer_lifespan(make(cluster)))

    @app.exception_handler(ExceptionGroup)
    async def handle(request: Request, error: Exception) -> Response:
        return PlainTextResponse("several things failed", 418)

    add_error_handlers(app)

    @app.post("/orders")
    async def order(producer: ProducerDep) -> None:
        raise ExceptionGroup("of a task group", [SerializationError("one")])

    async with serving(app) as client:
        answer = await client.post("/orders")
    assert (answer.status_code, answer.text) == (418, "several things failed")


class Refused(HTTPException):
    """One of the application's own."""


@pytest.mark.parametrize("error", [HTTPException, StarletteHTTPException, Refused])
@pytest.mark.parametrize("has_handler", [False, True])
async def test_an_answer_that_an_iterable_has_chosen(
    cluster: FakeCluster, error: type[StarletteHTTPException], has_handler: bool
) -> None:
    """As when a handler raises it. The records before it are sent."""
    app = FastAPI(lifespan=producer_lifespan(make(cluster)))
    add_error_handlers(app)

    async def handle(request: Request, error: Exception) -> Response:
        return PlainTextResponse(f"not so: {error}", 422)

    if has_handler:
        app.add_exception_handler(error, handle)

    @app.post("/orders")
    async def order(request: Request, producer: ProducerDep) -> None:
        async def lines() -> AsyncIterator[bytes]:
            for line in (await request.body()).splitlines():
                if len(line) > 5:
                    raise error(413, "a line is too long", {"X-Longest": "5"})
                yield line

        await producer.send_many("orders", lines())

    async with serving(app) as client:
        answer = await client.post("/orders", content=b"tea\ncoffee\nmilk")
    assert values(cluster, "orders") == [b"tea"]
    if has_handler:
        assert (answer.status_code, answer.text) == (422, "not so: 413: a line is too long")
    else:
        assert (answer.status_code, answer.json()) == (413, {"detail": "a line is too long"})
        assert answer.headers["X-Longest"] == "5"


async def test_the_log_has_the_reason_why_a_bulk_call_failed(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Not only how many records were not delivered."""
    cluster.faults.fail("Produce", 29)
    app = FastAPI(lifespan=producer_lifespan(make(cluster)))
    add_error_handlers(app)

    @app.post("/orders")
    async def order(producer: ProducerDep) -> None:
        await producer.send_many("orders", ["tea"])

    async with serving(app) as client:
        await client.post("/orders")
    (line,) = [record.getMessage() for record in caplog.records if record.name == "aioproducer.integrations"]
    assert "1 of 1 records were not delivered" in line
    assert "orders-0: node 1" in line
    assert "TOPIC_AUTHORIZATION_FAILED" in line


def parsed(item: str) -> bytes:
    raise ValueError(f"not an order: {item}")


async def test_an_error_of_an_iterable_can_not_write_into_the_log(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """It may quote what a client has sent."""
    app = FastAPI(lifespan=producer_lifespan(make(cluster)))
    add_error_handlers(app)

    @app.post("/orders")
    async def order(item: str, producer: ProducerDep) -> None:
        await producer.send_many("orders", map(parsed, [item]))

    async with serving(app) as client:
        await client.post("/orders", params={"item": "\x1b[2J\nERROR all is lost"})
    (line,) = [record.getMessage() for record in caplog.records if record.name == "aioproducer.integrations"]
    assert "stopped after 0 records: ValueError: not an order: " in line
    assert line.count("all is lost") == 1
    assert line.isprintable()


async def test_only_the_record_that_a_broker_refuses_is_not_to_be_tried_again(cluster: FakeCluster) -> None:
    """The others of its batch fail with it, and would be taken without it."""
    cluster.alter_configs("orders", {"message.timestamp.before.max.ms": 3_600_000})
    app = FastAPI(lifespan=producer_lifespan(make(cluster, linger_ms=10), topics=["orders"]))
    add_error_handlers(app)
    submitted: list[Delivery] = []

    @app.post("/submit")
    async def submit(producer: ProducerDep) -> None:
        submitted.append(producer.submit_nowait("orders", b"tea"))
        submitted.append(producer.submit_nowait("orders", b"tea", timestamp_ms=1))
        submitted.append(producer.submit_nowait("orders", b"tea"))

    @app.get("/result")
    async def result(number: int) -> None:
        await submitted[number]

    @app.post("/alone")
    async def alone(producer: ProducerDep) -> None:
        await producer.send("orders", b"tea", timestamp_ms=1)

    async with serving(app) as client:
        await client.post("/submit")
        answers = [await client.get("/result", params={"number": number}) for number in range(3)]
        answers.append(await client.post("/alone"))
    assert [answer.status_code for answer in answers] == [503, 500, 503, 500]
    assert ["Retry-After" in answer.headers for answer in answers] == [True, False, True, False]


@pytest.mark.parametrize(
    ("handler", "error", "configs", "status"),
    [
        (pays, "TransactionTimeoutError", {"transactional_id": "shop", "max_block_ms": 500}, 503),
        (flushes, "FlushTimeoutError", {}, 503),
        (sends_several, "SendManyError", {}, 500),
    ],
)
async def test_what_may_be_in_kafka_is_not_to_be_tried_again(
    cluster: FakeCluster,
    handler: Callable[[Producer, FakeCluster], Awaitable[None]],
    error: str,
    status: int,
    configs: dict[str, Any],
) -> None:
    app = FastAPI(lifespan=producer_lifespan(make(cluster, **configs), topics=["orders"], close_timeout=0.1))
    add_error_handlers(app)

    @app.post("/orders")
    async def order(producer: ProducerDep) -> None:
        await handler(producer, cluster)

    async with serving(app) as client:
        answer = await client.post("/orders")
        assert (answer.status_code, answer.json()["detail"]) == (status, {"error": error, "maybe_written": True})
        assert "Retry-After" not in answer.headers
        cluster.faults.clear()
    assert values(cluster, "orders") == [b"tea"]


async def test_a_record_that_is_too_large(cluster: FakeCluster) -> None:
    app = clicks(producer=make(cluster, max_request_size=1_000))
    async with serving(app) as client:
        answer = await client.post("/orders", params={"item": "x" * 2_000})
    assert (answer.status_code, answer.json()["detail"]["error"]) == (413, "RecordTooLargeError")


async def test_an_answer_shows_no_address(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    """Clients learn the kind of error; brokers and topics are only in the log."""
    cluster.faults.fail("Produce", 29)
    async with serving(clicks(producer=make(cluster))) as client:
        answer = await client.post("/orders", params={"item": "tea"})
    assert answer.json() == {"detail": {"error": "TopicAuthorizationFailedError", "maybe_written": False}}
    assert "orders-0" in caplog.text


@pytest.mark.parametrize(
    ("path", "query"),
    [("/orders/\x1b[2J\x1b]0;owned\x07", b""), ("/orders/a\nERROR all is lost", b""), ("/orders/tea", b"\xff")],
    ids=["escapes", "line break", "query that is not UTF-8"],
)
async def test_a_client_can_not_write_into_the_log(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture, path: str, query: bytes
) -> None:
    """Servers decode the path; a line about the failure has one line, and nothing that a terminal would obey."""
    cluster.faults.fail("Produce", 29)
    app = FastAPI(lifespan=producer_lifespan(make(cluster)))
    add_error_handlers(app)

    @app.get("/orders/{item}")
    async def order(item: str, producer: ProducerDep) -> None:
        await producer.send("orders", item)

    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async with app.router.lifespan_context(app) as state:
        scope = {"type": "http", "method": "GET", "path": path, "query_string": query, "headers": [], "state": state}
        await app(scope, receive, send)
    assert statuses == [503]
    (line,) = [record.getMessage() for record in caplog.records if record.name == "aioproducer.integrations"]
    assert line.startswith("GET /orders/")
    assert line.isprintable()
