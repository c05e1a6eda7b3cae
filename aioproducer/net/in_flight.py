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

    Some brokers, such as Azure Event Hubs, also answer requests that expect no answer (``acks=0``). Such answers are
    recognised by their place in the order.

    Always: an entry leaves by ``complete`` or by ``drain_all``, and gets exactly one of its two callbacks.
    """

    __slots__ = ("_answered", "_answers_all", "_expects_none", "_queue")

    def __init__(self) -> None:
        self._queue: deque[InFlightRequest] = deque()
        self._answered = -1
        self._answers_all = False
        self._expects_none = -1

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, request: InFlightRequest) -> None:
        """Add a request behind the others."""
        self._queue.append(request)

    def expect_none(self, correlation_id: int) -> None:
        """A request was sent that expects no answer."""
        self._expects_none = correlation_id

    @property
    def unexpected_is_due(self) -> bool:
        """Whether the last request that expects no answer will be answered, as others were, and has not been yet."""
        return self._answers_all and self._answered < self._expects_none

    def complete(self, correlation_id: int) -> InFlightRequest | None:
        """Take out the request to which an answer belongs; None if it is one that expects no answer.

        Raises:
            ProtocolError: it is not the oldest, so the answers can no longer be told apart; the connection is broken.
        """
        oldest = self._queue[0] if self._queue else None
        if oldest is not None and oldest.correlation_id == correlation_id:
            self._answered = correlation_id
            return self._queue.popleft()
        if self._answered < correlation_id <= self._expects_none and (
            oldest is None or correlation_id < oldest.correlation_id
        ):
            self._answered = correlation_id
            self._answers_all = True
            return None
        if oldest is None:
            raise ProtocolError(f"an answer with correlation id {correlation_id}, but no request waits for one")
        raise ProtocolError(
            f"an answer with correlation id {correlation_id}, but the oldest request "
            f"(API key {oldest.api_key}) has {oldest.correlation_id}"
        )

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
