"""The requests of one connection that wait for their answers, oldest first."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from aioproducer.errors import KafkaError, ProtocolError


@dataclass(slots=True)
class InFlightRequest:
    """A request that was handed to the transport and has not been answered.

    Args:
        version: that of the request and its answer; -1 if the owner of ``on_response`` knows it itself.
        deadline_ms: when an answer counts as missing; both times are loop-monotonic milliseconds.
        on_response: gets the frame without its size.
        on_error: called once, instead of ``on_response``, with the reason why there is no answer.
        latest_ms: returns the time until which a throttling broker may delay it; None leaves that to ``extend``.
    """

    correlation_id: int
    api_key: int
    version: int
    sent_ms: int
    deadline_ms: int
    on_response: Callable[[bytes], None]
    on_error: Callable[[KafkaError], None]
    latest_ms: Callable[[], int] | None = None


class InFlightRequests:
    """First in, first out: a broker answers the requests of a connection in order.

    Always: an entry leaves by ``complete`` or by ``drain_all``, and gets exactly one of its two callbacks.
    """

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[InFlightRequest] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, request: InFlightRequest) -> None:
        """Add a request behind the others."""
        self._queue.append(request)

    def complete(self, correlation_id: int) -> InFlightRequest:
        """Take out the request to which an answer belongs.

        Raises:
            ProtocolError: it is not the oldest, so the answers can no longer be told apart; the connection is broken.
        """
        if not self._queue:
            raise ProtocolError(f"an answer with correlation id {correlation_id}, but no request waits for one")
        oldest = self._queue[0]
        if oldest.correlation_id != correlation_id:
            raise ProtocolError(
                f"an answer with correlation id {correlation_id}, but the oldest request "
                f"(API key {oldest.api_key}) has {oldest.correlation_id}"
            )
        return self._queue.popleft()

    def put_back(self, request: InFlightRequest) -> None:
        """Undo a ``complete``: the answer was malformed, so the request still has none."""
        self._queue.appendleft(request)

    def oldest_sent_ms(self) -> int | None:
        """When the next request to be answered was sent; None if nothing is in flight."""
        return self._queue[0].sent_ms if self._queue else None

    def next_deadline_ms(self) -> int | None:
        """The earliest deadline; None if nothing is in flight. Time limits differ, so it may not be the oldest's."""
        return min((request.deadline_ms for request in self._queue), default=None)

    def expired(self, now_ms: int) -> list[InFlightRequest]:
        """The requests whose deadline has passed; they stay in flight."""
        return [request for request in self._queue if request.deadline_ms <= now_ms]

    def extend(self, by_ms: int, *, longest_ms: int) -> None:
        """Give every request more time: a throttling broker delays its answers on purpose, perhaps for days.

        Args:
            longest_ms: limit counted from when it was sent, for a request without ``latest_ms``.
        """
        for request in self._queue:
            latest_ms = request.sent_ms + longest_ms if request.latest_ms is None else request.latest_ms()
            request.deadline_ms = max(request.deadline_ms, min(request.deadline_ms + by_ms, latest_ms))

    def drain_all(self) -> list[InFlightRequest]:
        """Take out all requests, oldest first: the connection has ended."""
        requests = list(self._queue)
        self._queue.clear()
        return requests
