"""Starlette: a producer with the application's lifetime, its health for probes, and responses for its errors.

app = Starlette(routes=[..., *health_routes()], lifespan=producer_lifespan(Producer(bootstrap_servers="...")))

async def click(request: Request) -> Response:
    producer_of(request).submit_nowait("clicks", await request.body())
    return Response(status_code=202)

Works for FastAPI as well, see ``aioproducer.integrations.fastapi``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from aioproducer import (
    DeliveryErrors,
    KafkaError,
    Producer,
    ProducerHealth,
    ProducerState,
    RecordTooLargeError,
    SerializationError,
)
from aioproducer.client_logger import ClientLogger
from aioproducer.deadline import SECONDS_OR_NONE, in_seconds
from aioproducer.errors import InvalidTopicError, SendManyError, TransactionStateError, WrongLoopError
from aioproducer.extras import missing
from aioproducer.integrations import sse
from aioproducer.message_text import excerpt
from aioproducer.metadata import check_topic_name
from aioproducer.producer_internals import keep_topics

try:
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import HTTPConnection, Request
    from starlette.responses import JSONResponse, Response, StreamingResponse
    from starlette.routing import Route
except ModuleNotFoundError as _error:
    raise missing(_error, __name__, "fastapi") from None

logger: logging.Logger = logging.getLogger("aioproducer.integrations")

Lifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any] | None]]
"""The ``lifespan`` argument of applications: called with the application, it may yield state for the requests."""

ProducerLifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any]]]
"""A Lifespan that always yields state, with the producers."""

STATE = "aioproducer"
"""Attribute of an application's state that holds its producers by name."""
KEY = "aioproducer "
"""Begins the key of a producer in the state of the lifespan: one for each, even if two have the same name, as FastAPI
joins the states of an application and of its routers, and keeps only one value of a key."""
DEFAULT_NAME = "default"
_unstarted: WeakKeyDictionary[Producer, KafkaError | None] = WeakKeyDictionary()
"""Producers of running applications that have not yet started or don't know their topics yet; and the reason."""
_TO_BE_TRIED = (ProducerState.NEW, ProducerState.STARTING, ProducerState.RUNNING)

FIRST_RETRY_S = 1.0
MAX_RETRY_S = 30.0

LAST_START_S = 0.05
"""Time for the task that starts the producer to end after the producer was closed."""


def producer_lifespan(
    producer: Producer | Callable[[], Producer],
    *,
    lifespan: Lifespan | None = None,
    topics: Iterable[str] = (),
    wait_for_kafka: bool = True,
    close_timeout: float | None = None,
    name: str = DEFAULT_NAME,
) -> ProducerLifespan:
    """Make a lifespan that starts a producer with the application and closes it last, when the application ends.

    Closing sends everything requests and background tasks gave to the producer, and waits for the brokers.

    Args:
        producer: one not yet started, or a function that creates one, for applications that are started more than
            once, as in tests.
        lifespan: the application's own, which runs while the producer does; what it yields reaches the requests.
        topics: fetch the metadata of these at the start, and keep it even while they are idle, so that
            ``submit_nowait`` never finds them unknown.
        wait_for_kafka: False lets the application start while no broker can be reached. The producer keeps trying and
            logs each failure; until it has started and knows the topics, it is not ready, and until it has started,
            sending raises ``NotStartedError``.
        close_timeout: seconds that closing may take; records not acknowledged by then fail. None waits as long as
            ``delivery_timeout_ms`` lets records live; the orchestrator's grace period should be longer than that.
        name: distinguishes several producers of an application: nest their lifespans.
    Raises:
        TypeError, ValueError, InvalidTopicError: at once, for an argument that would otherwise fail only later.
        BootstrapError, AuthenticationError, MetadataTimeoutError: when the application starts, if it waits for Kafka.
        ProducerClosedError: when the application starts, if the producer was closed before.
        RuntimeError: when the application starts, if two of its producers have the same name; at a request, if one of
            them is that of a router that FastAPI includes.
        DeliveryErrors: when it ends, if records failed unobserved.
    """
    wanted = _topics(topics)
    if close_timeout is not None:
        in_seconds(close_timeout, "close_timeout", SECONDS_OR_NONE)
    if not isinstance(producer, Producer) and not callable(producer):
        raise TypeError(f"producer is a {type(producer).__name__}; {_NEEDED}")

    @asynccontextmanager
    async def running(app: Any) -> AsyncIterator[dict[str, Any]]:
        own = _made(producer)
        async with _started(own, wanted, wait_for_kafka, close_timeout):
            with _known(app, name, own):
                key = f"{KEY}{id(own)} {name}"
                if lifespan is None:
                    yield {key: own}
                else:
                    async with lifespan(app) as state:
                        joined = {**(state or {}), key: own}
                        _by_name(joined)  # to raise
                        yield joined

    return running


def producer_of(connection: HTTPConnection, name: str = DEFAULT_NAME) -> Producer:
    """The running producer of the application of a request or web socket, mounted applications included.

    Raises:
        RuntimeError: there is none with that name, or two producers have the same name.
    """
    producers = producers_of(connection)
    if name not in producers:
        raise RuntimeError(
            f"no producer {name!r} runs with this application: give it lifespan=producer_lifespan(...), and see that "
            "the server, or the test client, runs the lifespan"
        )
    return producers[name]


def producers_of(connection: HTTPConnection) -> Mapping[str, Producer]:
    """All running producers of the application, by name.

    Raises:
        RuntimeError: two have the same name.
    """
    return _by_name(connection.scope.get("state", {})) or getattr(connection.app.state, STATE, {})


def _by_name(state: Mapping[str, Any]) -> dict[str, Producer]:
    found: dict[str, Producer] = {}
    for key, value in state.items():
        if key.startswith(KEY):
            name = key.removeprefix(KEY).partition(" ")[2]
            if name in found:
                raise RuntimeError(f"two producers are named {name!r}: one needs producer_lifespan(name=...)")
            found[name] = value
    return found


# --- probes -----------------------------------------------------------------------------------------------------------


def health_routes(*, live: str = "/livez", ready: str = "/readyz") -> list[Route]:
    """Routes that answer 200 or 503 with the state of each producer as JSON.

    Args:
        live: path that answers 503 once a producer has failed for good, which only a new process can fix.
        ready: path that also answers 503 while a producer starts or closes, no broker can be reached, or calls wait for
            room in the buffer.
    """

    async def liveness(request: Request) -> Response:
        return health_response(request, lambda health: health.live)

    async def readiness(request: Request) -> Response:
        return health_response(request, lambda health: health.ready)

    return [Route(live, liveness), Route(ready, readiness)]


def health_of(producer: Producer) -> ProducerHealth:
    """``Producer.health()``, but "starting" while its lifespan tries to start it, until the topics are known."""
    health = producer.health()
    if health.state not in _TO_BE_TRIED or producer not in _unstarted:
        return health
    return replace(health, state=ProducerState.STARTING, error=health.error or _unstarted[producer])


def health_response(connection: HTTPConnection, is_well: Callable[[ProducerHealth], bool]) -> JSONResponse:
    """200 if all producers are well, 503 if one is not or none is running."""
    healths = {name: health_of(producer) for name, producer in producers_of(connection).items()}
    well = bool(healths) and all(is_well(health) for health in healths.values())
    producers = {name: {"state": health.state, "reason": health.reason} for name, health in healths.items()}
    return JSONResponse({"ok": well, "producers": producers}, 200 if well else 503)


# --- live metrics -----------------------------------------------------------------------------------------------------


def metrics_routes(
    path: str = "/producer/events",
    *,
    interval: float = 1.0,
    extra: Callable[[], Mapping[str, Any]] | None = None,
    name: str = DEFAULT_NAME,
) -> list[Route]:
    """A route that streams a producer's metrics and health as server-sent events, for ``EventSource`` in a browser.

    `sse.metrics_events` describes the events. A stream ends with its client, with the producer, and when uvicorn is
    told to stop, so that no open response delays it. It shows the producer of the process that answers.

    Args:
        interval: seconds between events.
        extra: adds the application's own counts to each event.
        name: which of several producers.
    Raises:
        TypeError, ValueError: at once, if ``interval`` is not a number, or ``extra`` is not callable.
    """
    sse.check(interval, extra)

    async def events(request: Request) -> Response:
        return metrics_response(request, interval=interval, extra=extra, name=name)

    return [Route(path, events)]


def metrics_response(
    connection: HTTPConnection,
    *,
    interval: float = 1.0,
    extra: Callable[[], Mapping[str, Any]] | None = None,
    name: str = DEFAULT_NAME,
) -> StreamingResponse:
    """The response of such a route, for routes of your own, such as those that need a login."""
    events: AsyncIterator[str] | tuple[()] = sse.metrics_events(
        producer_of(connection, name),
        interval=interval,
        extra=extra,
        ended=sse.server_is_ending,
        health=health_of,
    )
    if connection.scope.get("method") == "HEAD":  # which Starlette adds to GET: without a body, nothing would end it
        events = ()
    return StreamingResponse(events, headers=sse.HEADERS, media_type=sse.MEDIA_TYPE)


# --- errors -----------------------------------------------------------------------------------------------------------


OWN_FAULTS = (SerializationError, InvalidTopicError, TransactionStateError, WrongLoopError)
"""Errors of the program: trying again does not help."""

_WORST = (500, 413, 503)
"""If there are several errors, the first of these that one of them has is the answer."""


def add_error_handlers(app: Starlette) -> None:
    """Answer requests whose handler raised a KafkaError.

    413 if the record was too large; 500 if the call can't succeed as it is (OWN_FAULTS, or a broker refused just this
    record); else 503. If a ``send_many`` failed for several reasons, 500 goes before 413, and 413 before 503. If its
    iterable raised an HTTPException, that is answered as if the handler had raised it.

    The answer names the error's class; its ``maybe_written`` says whether the record may still be in Kafka, so that
    trying again could duplicate it. The error's text, which names brokers and topics, goes only to the log. Web sockets
    have no such answer: there the error reaches the server.

    A task group's ExceptionGroup is answered like a ``send_many`` if it has nothing but KafkaErrors, with
    ``maybe_written`` set, as other records of the group may be in Kafka; else it reaches the server. An application's
    own handler of ExceptionGroup stays.
    """
    app.add_exception_handler(KafkaError, _answer)
    if ExceptionGroup not in app.exception_handlers:
        app.add_exception_handler(ExceptionGroup, _answer_group)


async def _answer(request: Request, error: Exception) -> Response:
    if request.scope["type"] == "websocket":  # for which frameworks call this too
        raise error
    _log(request, _text(error))
    if isinstance(error, SendManyError) and isinstance(error.__cause__, HTTPException):
        raise error.__cause__ from None  # the application's handlers are asked about what this one raises
    return _told(error, _status(error), getattr(error, "maybe_written", False))


async def _answer_group(request: Request, error: Exception) -> Response:
    errors = list(_leaves(error))
    if request.scope["type"] == "websocket" or not all(isinstance(each, KafkaError) for each in errors):
        raise error
    status, decisive = min(((_status(each), each) for each in errors), key=lambda pair: _WORST.index(pair[0]))
    _log(request, f"a group of errors ({len(errors)}), the first: {_text(errors[0])}")
    return _told(decisive, status, maybe_written=True)


def _leaves(error: Exception) -> Iterator[Exception]:
    """The errors of nested groups; one with several causes that is a KafkaError by itself counts as one."""
    if isinstance(error, ExceptionGroup) and not isinstance(error, KafkaError):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def _log(request: Request, text: str) -> None:
    # Not request.url: it can't be made of every request. Paths are decoded, and may hold anything.
    logger.warning("%s %s: %s", request.method, excerpt(request.scope["path"]), excerpt(text, 1_000))


def _told(error: Exception, status: int, maybe_written: bool) -> Response:
    detail = {"error": type(error).__name__, "maybe_written": maybe_written}
    headers = {"Retry-After": "1"} if status == 503 and not maybe_written else None
    return JSONResponse({"detail": detail}, status, headers)


def _text(error: Exception) -> str:
    if isinstance(error, DeliveryErrors) and error.__cause__ is None:  # its own text only counts
        return f"{error}, the first: {error.exceptions[0]}"
    return str(error)


def _status(error: Exception) -> int:
    if isinstance(error, SendManyError):
        of_records = [own for _, own in error.result.errors] if error.result else []
        among = {_status(each) for each in (*error.exceptions, *of_records)}
        return min(among, key=_WORST.index)
    if isinstance(error, RecordTooLargeError):
        return 413
    if not isinstance(error, KafkaError) or error.record_refused:  # in a bulk call, its iterable may raise anything
        return 500
    return 500 if isinstance(error, OWN_FAULTS) and not error.retriable else 503


# --- a producer's lifetime --------------------------------------------------------------------------------------------

_NEEDED = "a Producer, or a plain function that makes one, is needed"


def _topics(topics: Iterable[str]) -> tuple[str, ...]:
    if isinstance(topics, str):  # its single letters are valid topic names, which brokers may create
        raise TypeError(f"topics is the str {topics!r}; an iterable of names is needed, such as [{topics!r}]")
    wanted = tuple(topics)
    for topic in wanted:
        if not isinstance(topic, str):
            raise TypeError(f"topics has a {type(topic).__name__}; names are needed")
        check_topic_name(topic)  # else the producer would keep trying forever with wait_for_kafka=False
    return wanted


def _made(producer: Producer | Callable[[], Producer]) -> Producer:
    made = producer if isinstance(producer, Producer) else producer()
    if hasattr(made, "start"):  # a test's stand-in is fine
        return made
    if isinstance(made, Coroutine):
        made.close()
    raise TypeError(f"the function that makes the producer has returned a {type(made).__name__}; {_NEEDED}")


@contextmanager
def _known(app: Any, name: str, producer: Producer) -> Iterator[None]:
    """Make the producer available to the application, even if a server passes no lifespan state to requests."""
    before = getattr(app.state, STATE, {})
    setattr(app.state, STATE, {**before, name: producer})
    try:
        yield
    finally:
        setattr(app.state, STATE, before)


@asynccontextmanager
async def _started(
    producer: Producer, topics: tuple[str, ...], wait_for_kafka: bool, close_timeout: float | None
) -> AsyncIterator[None]:
    starting: asyncio.Task[None] | None = None
    try:
        if wait_for_kafka or producer.health().state is ProducerState.CLOSED:  # this raises
            await _start(producer, topics)
        else:
            _unstarted[producer] = None
            starting = asyncio.create_task(_keep_starting(producer, topics), name="aioproducer start")
        yield
    except BaseException as error:
        try:
            await _close(producer, starting, close_timeout)
        except KafkaError as failure:
            error.add_note(f"closing the producer failed too: {failure}")
        raise
    await _close(producer, starting, close_timeout)


async def _start(producer: Producer, topics: tuple[str, ...]) -> None:
    await producer.start()
    await _learn(producer, topics)


async def _learn(producer: Producer, topics: tuple[str, ...]) -> None:
    """Fetch the metadata of topics, to be kept even while they are idle."""
    for topic in topics:
        await producer.partitions_for(topic)
    if isinstance(producer, Producer):  # and not a test's stand-in
        keep_topics(producer, topics)


async def _keep_starting(producer: Producer, topics: tuple[str, ...]) -> None:
    log = ClientLogger(logger, producer.client_id)
    delay_s = FIRST_RETRY_S
    while True:
        try:
            if producer.health().state is ProducerState.NEW:
                await producer.start()
            await _learn(producer, topics)
            del _unstarted[producer]
            return
        except Exception as error:  # also the program's own, from a serializer or a token provider
            if producer.health().state not in _TO_BE_TRIED:
                log.warning("%s can't start any more: %s", repr(producer), str(error))
                return
            _unstarted[producer] = error if isinstance(error, KafkaError) else None
            log.warning("%s can't start, next attempt in %g s: %s", repr(producer), delay_s, str(error))
        await asyncio.sleep(delay_s)
        delay_s = min(2 * delay_s, MAX_RETRY_S)


async def _close(producer: Producer, starting: asyncio.Task[None] | None, timeout: float | None) -> None:
    if starting is not None:
        starting.cancel()
    try:
        await producer.close(timeout)  # also ends a start whose token provider ignores that it was cancelled
    finally:
        if starting is not None:
            await asyncio.wait([starting], timeout=LAST_START_S)
            _unstarted.pop(producer, None)  # an error's traceback would keep it forever
