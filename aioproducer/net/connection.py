"""One connection to one broker: frames out, frames in, and the requests between them.

``open_connection`` brings it up (TCP, TLS, login, ApiVersions) and calls ``go_live``. A reader task reads the answers
and hands each to its request, and ``Deadlines`` notices late ones. A connection ends once, by ``abort``: when the
broker closes it, breaks the protocol or stays silent past a deadline, or when this side has no more use for it. The
requests then in flight get an error, and ``on_close`` tells the owner.

It always ends with ``transport.abort()``: ``close()`` would still flush the transport's buffer, so a request already
reported as failed could reach the broker later.
"""

from __future__ import annotations

import asyncio
import copy
import os
import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from aioproducer._counts import Traffic
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.error_codes import Code
from aioproducer.errors import (
    AuthenticationError,
    ConnectionLostError,
    KafkaError,
    ProtocolError,
    RequestTimedOutError,
    TlsError,
    broker_error,
)
from aioproducer.message_text import host_port
from aioproducer.metrics import ProducerMetrics
from aioproducer.net import apis
from aioproducer.net.deadlines import Deadlines
from aioproducer.net.in_flight import InFlightRequest, InFlightRequests
from aioproducer.net.session import Session
from aioproducer.net.tls_errors import HTTP, NOT_KAFKA, ONLY_TLS, alert_error, is_tls
from aioproducer.net.tracebacks import clear_frames, never_waits
from aioproducer.net.versions import ApiRanges
from aioproducer.net.write_buffer import WriteBuffer
from aioproducer.protocol import header
from aioproducer.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aioproducer.protocol.schema import Message, Request
from aioproducer.version import VERSION

SOFTWARE_NAME = "aioproducer"

MAX_FRAME_BYTES = 100 * 1024 * 1024
"""The largest answer accepted; real answers to a producer are far smaller."""

MAX_OPENING_BYTES = 512 * 1024
"""The same until a connection is ready, while the peer is unknown: versions and logins, each read in one step.
Kafka's brokers accept the same from a client then (``sasl.server.max.receive.size``)."""

MAX_CORRELATION_ID = 2147483639
"""Kafka reserves higher numbers for SASL."""

ATTEMPTS_BELIEVED = 5
"""After so many attempts, a broker that says that another one is in charge may not be the one that it should be."""

FIRST_API_VERSIONS = 4
"""The version of ApiVersions in which a broker is asked of which nothing is known. Only in a newer one it can be told
which broker it is taken for, and each broker that does not know that one costs a round trip.
"""

_SIZE = struct.Struct(">i")

R = TypeVar("R", bound=Message)


def not_written(error: KafkaError) -> KafkaError:
    """Mark an error after which it is certain that nothing was handed to a transport."""
    error.maybe_written = False
    return error


def hung_up(error: BaseException) -> bool:
    """Whether a connection was up and the other side ended it without saying why."""
    if isinstance(error, AuthenticationError):
        return False
    cause = error.__cause__ or error
    return isinstance(cause, (ConnectionLostError, ConnectionError, ssl.SSLError)) and not isinstance(
        cause, ConnectionRefusedError
    )


def _common(told: ApiVersionsResponse) -> int:
    """The newest version of ApiVersions itself that both sides speak; 0 if the broker does not name its own."""
    known = [api.max_version for api in told.api_keys if api.api_key == ApiVersionsRequest.API_KEY]
    return max(min(known[0], ApiVersionsRequest.MAX_VERSION), 0) if known else 0


def ignore(*_: object) -> None:
    """A callback that does nothing."""


def abort(writer: asyncio.StreamWriter, transport: asyncio.WriteTransport) -> None:
    """Drop a connection at once, along with any TLS layer above the socket's transport.

    Both have to be aborted: a loop may consider TLS open although its socket is gone.
    """
    writer.transport.abort()
    transport.abort()


def drop_unsent(transport: asyncio.WriteTransport) -> None:
    """Have the system drop what it has not sent when the connection ends; else it goes on sending that for minutes."""
    sock = transport.get_extra_info("socket")
    if sock is None or transport.is_closing():
        return
    with suppress(OSError):  # macOS refuses once the peer has reset the connection
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("hh" if os.name == "nt" else "ii", 1, 0))


class Connection:
    """A connection to a broker whose API versions are known; made by ``open_connection``.

    Always: ``in_flight_count`` counts requests that were written but not answered or, if they expect no answer, have
    not left for the socket. After the end nothing is in flight, no timer runs, and the tasks end in the same turns of
    the loop as the transport.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        transport: asyncio.WriteTransport,
        node_id: int,
        host: str,
        address: str,
        port: int,
        config: ProducerConfig,
        loop: asyncio.AbstractEventLoop,
        on_internal_error: Callable[[BaseException], None],
        metrics: ProducerMetrics,
    ) -> None:
        self.node_id: int = node_id
        self.host = host
        self.address = address
        self.port = port
        self.client_id: str = config.client_id
        self.metrics: ProducerMetrics = metrics
        self.traffic: Traffic = self.metrics.traffic(node_id)
        self.throttled_until_ms: int = 0
        self.retiring: bool = False
        self.in_charge: bool = False
        """Whether the broker has accepted something lately that only a leader or coordinator accepts."""
        self.last_used_ms: int = int(loop.time() * 1000)
        self.api_versions: ApiVersionsResponse = ApiVersionsResponse(api_keys=[])
        self._ranges = ApiRanges()
        self._reader = reader
        self._writer = writer
        self._transport = transport  # the socket's own; with TLS the writer has another one above it
        self._loop = loop
        self._request_timeout_ms = config.request_timeout_ms
        self._sends_again = config.acks != 0
        self._longest_ms = config.delivery_timeout_ms
        self._max_in_flight = config.max_in_flight_requests_per_connection
        self._on_close: Callable[[Connection, KafkaError | None], None] = ignore
        self._on_capacity: Callable[[Connection], None] = ignore
        self._on_internal_error = on_internal_error
        self._in_flight = InFlightRequests()
        self._deadlines = Deadlines(loop, self._in_flight, self._time_out)
        self._write_buffer = WriteBuffer(
            loop,
            writer,
            transport,
            deadlines=self._deadlines,
            on_empty=self._all_written,
            on_cancelled=self._drain_cancelled,
        )
        self._ready = False
        self.session: Session = Session()
        self._bare_answer: asyncio.Future[bytes] | None = None
        self._correlation_id = 0
        self._ended = False
        self._ended_by: KafkaError | None = None
        self._reader_task = loop.create_task(self._read(), name=f"aioproducer reader of {self}")
        self._reader_task.add_done_callback(self._reader_ended)

    def __str__(self) -> str:
        return f"node {self.node_id} ({host_port(self.host, self.port)})"

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.in_flight_count} in flight"
        return f"<Connection to {self}, {state}>"

    # --- life cycle ---------------------------------------------------------------------------------------------------

    def go_live(
        self,
        on_close: Callable[[Connection, KafkaError | None], None],
        on_capacity: Callable[[Connection], None],
    ) -> None:
        """Hand the connection to its owner, whose callbacks report its end and room for requests from now on.

        Raises:
            KafkaError: it ended before: after the last answer, or because its session was over; no callback was called.
        """
        self._check_open()
        self._on_close = on_close
        self._on_capacity = on_capacity
        self._ready = True

    def _check_open(self) -> None:
        if self._ended:
            error = self._ended_by or ConnectionLostError(f"{self}: the connection was closed on this side")
            raise not_written(copy.copy(error))

    def belongs_to(self, node_id: int) -> None:
        """Set the node id, once it is known which node this connects to."""
        self.node_id = node_id
        self.traffic = self.metrics.traffic(node_id)

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more. Also true while the transport is closing and has not reported it."""
        return self._ended or self._writer.transport.is_closing() or self._transport.is_closing()

    @property
    def ended(self) -> bool:
        """Whether ``on_close`` was called, or would have been had it been set by then."""
        return self._ended

    def abort(self, error: KafkaError | None = None) -> None:
        """End the connection now; each request in flight gets its own copy of the error, ``maybe_written``.

        Args:
            error: None means that this side closed it on purpose.
        """
        told = error or ConnectionLostError(f"{self}: the connection was closed on this side")
        self._end(error, lambda request: told)

    @property
    def is_writing(self) -> bool:
        """Whether requests that expect no answer still wait in the transport."""
        return self._write_buffer.requests > 0

    @property
    def unexpected_is_due(self) -> bool:
        """Whether a request that expects no answer will be answered all the same."""
        return self._in_flight.unexpected_is_due

    def close_when_idle(self) -> None:
        """Take no more requests, and end as soon as nothing is in flight."""
        self.retiring = True
        self._close_if_retired()

    def doubt(self, attempts: int) -> None:
        """The broker has refused the latest of so many attempts, as it does not lead, or coordinate, what it should.

        It may be another one: a name may lead to the broker's former address for a while, which is another broker's
        now. So now and then, a connection on which it was in charge of nothing is made anew.
        """
        if attempts % ATTEMPTS_BELIEVED:
            return
        if self.in_charge:
            self.in_charge = False
        else:
            self.close_when_idle()

    async def wait_closed(self) -> None:
        """Wait until the tasks of an aborted connection have ended."""
        tasks = [task for task in (self._reader_task, self._write_buffer.task, self.session.task) if task is not None]
        await asyncio.wait(tasks)

    def add_ended_callback(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` when the reader has ended, which is the last step of a connection's end."""
        self._reader_task.add_done_callback(lambda _: callback())

    def _end(self, error: KafkaError | None, reason: Callable[[InFlightRequest], KafkaError]) -> None:
        if self._ended:
            return
        self._ended = True
        self._ended_by = error
        self._deadlines.end()
        self.session.end(asyncio.current_task(self._loop))
        self._write_buffer.end()
        requests = self._in_flight.drain_all()
        abort(self._writer, self._transport)
        if self._bare_answer is not None and not self._bare_answer.done():
            unanswered = copy.copy(error or ConnectionLostError(f"{self}: closed on this side"))
            unanswered.maybe_written = True
            self._bare_answer.set_exception(unanswered)
        # The owner first: a request's error handler must not find this connection still in use.
        self._guarded(self._on_close, self, error)
        for request in requests:
            own = copy.copy(reason(request))
            own.maybe_written = True
            self._guarded(request.on_error, own)

    def _guarded(self, callback: Callable[..., None], *args: object) -> None:
        try:
            callback(*args)
        except Exception as error:
            self._on_internal_error(error)

    def _close_if_retired(self) -> None:
        if self.retiring and not self.in_flight_count:
            self.abort()

    # --- versions -----------------------------------------------------------------------------------------------------

    async def negotiate(self, *, first_version: int | None = None, cluster_id: str | None = None) -> None:
        """Ask the broker which versions it speaks; if it does not know our ApiVersions version, ask again in its own.

        Args:
            first_version: the request's first version; before a login 0, which all brokers accept then. None means the
                newest that both sides speak; if the broker was not asked yet, the newest if there is a ``cluster_id``.
            cluster_id: the cluster for which the connection is meant; None if it is meant for whoever is there.
        Raises:
            KafkaError: the broker refused, or the connection broke.
        Source: KIP-35, KIP-511, KIP-1242.
        """
        if first_version is None and self.knows_versions:
            first_version = _common(self.api_versions)
        elif first_version is None:
            first_version = FIRST_API_VERSIONS if cluster_id is None else ApiVersionsRequest.MAX_VERSION
        response = await self._ask_versions(first_version, cluster_id)
        if response.error_code == Code.UNSUPPORTED_VERSION:
            response = await self._ask_versions(_common(response), cluster_id)
        if response.error_code == Code.REBOOTSTRAP_REQUIRED and cluster_id is not None:
            told = f"{self} is another broker, or not one of the cluster {cluster_id}"
            raise not_written(broker_error(response.error_code, told))
        if response.error_code:
            raise not_written(broker_error(response.error_code, f"{self} refused ApiVersions"))
        self.api_versions = response
        self._ranges = ApiRanges(response)

    async def _ask_versions(self, version: int, cluster_id: str | None) -> ApiVersionsResponse:
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME,
            client_software_version=VERSION,
            cluster_id=cluster_id,
            node_id=-1 if cluster_id is None else self.node_id,
        )
        return await self.request(request, version=version)

    @property
    def knows_versions(self) -> bool:
        """Whether the broker has said which versions it speaks."""
        return bool(self.api_versions.api_keys)

    @property
    def knows_who_it_is(self) -> bool:
        """Whether the broker can be told which one it is taken for, and refuses if it is another one."""
        return _common(self.api_versions) > FIRST_API_VERSIONS

    def api_range(self, api_key: int) -> tuple[int, int] | None:
        """The versions (first, last) of an API that the broker speaks; None if it does not know the API."""
        return self._ranges.range_of(api_key)

    def version(self, request: type[Request[Any]]) -> int:
        """The newest version of a request that both sides speak.

        Raises:
            UnsupportedVersionError: there is none; this concerns only this request.
        """
        return self._ranges.newest(request, self)

    # --- requests -----------------------------------------------------------------------------------------------------

    @property
    def in_flight_count(self) -> int:
        """Requests that wait for an answer, or that expect none but have not left for the socket."""
        return len(self._in_flight) + self._write_buffer.requests

    @property
    def unanswered_since_ms(self) -> int | None:
        """When the oldest request that waits for an answer was sent; None if there is none."""
        return self._in_flight.oldest_sent_ms()

    def can_send(self, now_ms: int) -> bool:
        """Whether a request may go out: open, not throttled, and fewer in flight than allowed."""
        return (
            self.in_flight_count < self._max_in_flight
            and self.throttled_until_ms <= now_ms
            and not self.retiring
            and not self.closed
            and self.session.takes_requests(now_ms)
        )

    def next_correlation_id(self) -> int:
        """A number for the next request of this connection."""
        self._correlation_id = self._correlation_id + 1 if self._correlation_id < MAX_CORRELATION_ID else 0
        return self._correlation_id

    def send_frame(
        self,
        buffers: list[bytes | memoryview],
        correlation_id: int,
        api_key: int,
        timeout_ms: int,
        on_response: Callable[[bytes], None] | None,
        on_error: Callable[[KafkaError], None],
        latest_ms: Callable[[], int] | None = None,
    ) -> int:
        """Write one request; returns at once, with the number of bytes that the transport took.

        Args:
            buffers: the whole frame with its size; no byte of it may change any more. The list is emptied.
            on_response: gets the answer's frame without its size, in the turn of the loop that read it. It may raise
                ProtocolError before it acts on anything: then the connection ends and ``on_error`` is called. None if
                no answer is expected (``acks=0``; one that comes is dropped): the request is in flight until the
                transport has no bytes left, which has to happen within ``timeout_ms``.
            on_error: called once, instead of ``on_response``, with how the connection ended; in a later turn of the
                loop if the connection was already closed, and only then not ``maybe_written``.
            latest_ms: returns the time until which a throttling broker may delay it; None: ``delivery_timeout_ms``.
        """
        if self.closed:
            error = not_written(ConnectionLostError(f"{self}: the connection was closed before the request was sent"))
            self._loop.call_soon(on_error, error)
            return 0
        now_ms = self._now_ms()
        if not self.session.is_paused:
            self.last_used_ms = now_ms
        if on_response is not None:
            # Only a login is sent during a throttle, and the broker does not read it before the end of that.
            deadline_ms = max(now_ms, self.throttled_until_ms) + timeout_ms
            self._in_flight.add(
                InFlightRequest(correlation_id, api_key, -1, now_ms, deadline_ms, on_response, on_error, latest_ms)
            )
            self._deadlines.watch(deadline_ms)
        try:
            self._writer.writelines(buffers)
        except Exception as failure:
            self._write_failed(failure, on_error if on_response is None else None)
            return 0
        else:
            size_bytes: int = _SIZE.size + _SIZE.unpack_from(buffers[0])[0]
            self.traffic.sent(size_bytes, now_ms)
            if on_response is None:
                self._in_flight.expect_none(correlation_id)
                self._write_buffer.count_until_empty(now_ms + timeout_ms, self)
            return size_bytes
        finally:
            # A socket error keeps the frames of this call alive, and the node keeps the error. Buffers held by those
            # frames would be batch memory that never comes back.
            buffers.clear()

    def _write_failed(self, failure: Exception, on_error: Callable[[KafkaError], None] | None) -> None:
        """The transport did not accept the bytes: out of memory, or wrong types because of a bug."""
        error = ConnectionLostError(f"{self}: a request could not be written: {failure}")
        error.__cause__ = failure
        self._on_internal_error(failure)
        self.abort(error)
        if on_error is not None:
            self._guarded(on_error, copy.copy(error))

    def exchange(self, message: Request[Any], version: int) -> asyncio.Future[bytes]:
        """Send a request and return a future for its answer's frame, header included.

        Cancelling the future leaves the request in flight; only the throttle time of its answer is honoured.
        """
        answer: asyncio.Future[bytes] = self._loop.create_future()

        def on_response(frame: bytes) -> None:
            self._honour_throttle(message, version, frame)
            if not answer.done():
                answer.set_result(frame)

        def on_error(error: KafkaError) -> None:
            if not answer.done():
                answer.set_exception(error)

        correlation_id = self.next_correlation_id()
        frame = header.encode_request(message, version, correlation_id, self.client_id)
        self.send_frame([frame], correlation_id, message.API_KEY, self._request_timeout_ms, on_response, on_error)
        return answer

    async def request(self, message: Request[R], *, version: int | None = None) -> R:
        """Send a request and wait for its answer. For every API but Produce.

        Cancelling the wait leaves the request in flight; its answer is dropped.

        Args:
            version: None means the newest that both sides speak.
        Raises:
            UnsupportedVersionError: the broker does not speak a suitable version of the API; nothing was sent.
            KafkaError: the connection ended first.
            ProtocolError: the answer is malformed; the connection ends.
        """
        if version is None:
            version = self.version(type(message))
        return self.decoded(message, version, await self.exchange(message, version))

    def decoded(self, message: Request[R], version: int, frame: bytes) -> R:
        """Decode the answer to a request sent by ``exchange``.

        Raises:
            ProtocolError: it is malformed; the connection ends. ``maybe_written``, as the request was answered.
        """
        try:
            return header.decode_response(type(message), version, frame)
        except ProtocolError as error:
            raise self.nonsense(str(error)) from error

    def nonsense(self, what: str) -> ProtocolError:
        """End the connection because of an impossible answer; returns the error for the caller.

        Args:
            what: names the API and what is wrong with its answer.
        """
        self.break_off(ProtocolError(what))
        return ProtocolError(f"{self}: {what}", maybe_written=True)

    def break_off(self, error: ProtocolError) -> None:
        """End a connection whose peer broke the protocol; requests in flight may be retried elsewhere."""
        lost = ConnectionLostError(f"{self} broke the protocol: {error}")
        lost.__cause__ = error
        self.abort(lost)

    def _all_written(self) -> None:
        """Requests that expect no answer have left, and no longer count as in flight."""
        self._on_capacity(self)
        self._close_if_retired()

    def _drain_cancelled(self) -> None:
        self.abort(ConnectionLostError(f"{self}: the task that watches the write buffer was cancelled"))

    # --- logging in ---------------------------------------------------------------------------------------------------

    def begin_login(self) -> None:
        """Accept only the login's requests until ``logged_in``; requests in flight go on."""
        self.session.is_paused = True

    def logged_in(self, session_ends_ms: int | None) -> None:
        """Accept requests again until the session ends: after that, the broker closes the connection at any request."""
        self.session.begin(session_ends_ms)
        if not self._ended:
            self._on_capacity(self)
            self._close_if_retired()

    def send_bare(self, token: bytes) -> None:
        """Send bytes preceded only by their size. Nothing else may be in flight.

        Raises:
            KafkaError: the connection ended before.
        """
        self._check_open()
        self._writer.write(_SIZE.pack(len(token)) + token)

    async def exchange_bare(self, token: bytes) -> bytes:
        """Send bytes preceded only by their size, and wait for an answer in the same form.

        Brokers before 1.0 expect SASL tokens like this. Nothing else may be in flight.

        Raises:
            KafkaError: the connection ended; not ``maybe_written`` if it did before the token was sent.
        """
        answer: asyncio.Future[bytes] = self._loop.create_future()
        self.send_bare(token)
        del token  # an error would keep it, with this frame
        self._bare_answer = answer
        try:
            async with asyncio.timeout(self._request_timeout_ms / 1000):
                return await answer
        except TimeoutError:
            raise RequestTimedOutError(f"{self} left a SASL token unanswered (request_timeout_ms)") from None
        finally:
            self._bare_answer = None

    # --- throttling ---------------------------------------------------------------------------------------------------

    def _honour_throttle(self, message: Request[Any], version: int, frame: bytes) -> None:
        """Observe the throttle time of an answer if this version leaves that to the client (KIP-219)."""
        if apis.throttled_by_client(message.API_KEY, version):
            with suppress(ProtocolError):  # the reader of the answer reports it
                throttle_time_ms = header.throttle_time_ms(type(message), version, frame)
                if throttle_time_ms > 0:
                    self.throttle(self._now_ms() + throttle_time_ms)

    def throttle(self, until_ms: int) -> None:
        """Send nothing before ``until_ms``; requests in flight get that much more time, while still wanted."""
        if until_ms > self.throttled_until_ms:
            more_ms = max(until_ms - max(self.throttled_until_ms, self._now_ms()), 0)
            self._in_flight.extend(more_ms, longest_ms=self._longest_ms)
            self.throttled_until_ms = until_ms

    # --- deadlines ----------------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _time_out(self, late: set[int], now_ms: int) -> None:
        def reason(request: InFlightRequest) -> KafkaError:
            waited = f"{self}: {apis.name(request.api_key)} was unanswered for {now_ms - request.sent_ms} ms"
            if request.correlation_id in late:
                return RequestTimedOutError(f"{waited} (request_timeout_ms)")
            return ConnectionLostError(f"{waited} when the connection was closed, because another request timed out")

        if self._sends_again:
            drop_unsent(self._transport)
        what = "left a request unanswered" if late else "took no bytes"
        self._end(RequestTimedOutError(f"{self} {what} for too long (request_timeout_ms)"), reason)

    # --- reading ------------------------------------------------------------------------------------------------------

    def _reader_ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():  # perhaps before its first step
            self.abort(ConnectionLostError(f"{self}: the reader of the connection was cancelled"))

    async def _read(self) -> None:
        try:
            while not self._ended:
                head = await self._reader.readexactly(4)
                size = _SIZE.unpack(head)[0]
                least = 4 if self._bare_answer is None else 0
                most = MAX_FRAME_BYTES if self._ready else MAX_OPENING_BYTES
                if not least <= size <= most:
                    raise self._foreign(head, f"an answer of {size} bytes (allowed: {least} to {most})")
                self._dispatch(await self._reader.readexactly(size))
        except asyncio.IncompleteReadError:
            self.abort(ConnectionLostError(f"{self} closed the connection"))
        except ProtocolError as error:
            self.break_off(error)
        except TlsError as error:
            self.abort(error)
        except OSError as error:
            self.abort(self._broken(error))
        except Exception as error:
            lost = ConnectionLostError(f"{self}: the connection was given up after an internal error: {error!r}")
            lost.__cause__ = error
            self._on_internal_error(error)
            self.abort(lost)

    def _foreign(self, head: bytes, what: str) -> KafkaError:
        """The error for a size that no answer has: the peer may not be a Kafka broker."""
        if not self._ready and is_tls(head):
            return not_written(TlsError(f"{host_port(self.host, self.port)}: {ONLY_TLS}"))
        if head == b"HTTP":
            return ProtocolError(HTTP)
        return ProtocolError(what if self._ready else f"{what}, so {NOT_KAFKA}")

    def _broken(self, error: OSError) -> KafkaError:
        """The error for a broken connection. With TLS 1.3 a broker rejects this client's side only now."""
        if not self._ready and isinstance(error, ssl.SSLError) and (alert := alert_error(error, str(self))):
            alert.__cause__ = error
            return alert
        # The stream and the node keep the error. After a failed write its frames are asyncio's, and from Python 3.15
        # on one of them holds the last buffer: a batch's memory would not come back before the error is released.
        clear_frames(error, never_waits)
        lost = ConnectionLostError(f"{self}: {error}")
        lost.__cause__ = error
        return lost

    def _dispatch(self, frame: bytes) -> None:
        if self._bare_answer is not None:
            if not self._bare_answer.done():
                self._bare_answer.set_result(frame)
            return
        now_ms = self._now_ms()
        if not self.session.is_paused:  # a login alone does not keep an idle connection open
            self.last_used_ms = now_ms
        self.traffic.received(_SIZE.size + len(frame), now_ms)
        request = self._in_flight.complete(_SIZE.unpack_from(frame)[0])
        if request is not None:
            try:
                request.on_response(frame)
            except ProtocolError:
                self._in_flight.put_back(request)
                raise
        self._on_capacity(self)
        self._close_if_retired()
