"""The FIFO of requests in flight."""

from __future__ import annotations

from typing import Any

import pytest

from aioproducer.errors import ProtocolError
from aioproducer.net.in_flight import InFlightRequest, InFlightRequests


def nobody(_: Any) -> None:
    raise AssertionError("the queue itself tells nobody")


def request(correlation_id: int, *, deadline_ms: int = 100) -> InFlightRequest:
    return InFlightRequest(correlation_id, 3, 13, 0, deadline_ms, nobody, nobody)


def queue(*requests: InFlightRequest) -> InFlightRequests:
    in_flight = InFlightRequests()
    for each in requests:
        in_flight.add(each)
    return in_flight


def test_answers_take_requests_out_in_order() -> None:
    in_flight = queue(request(7), request(8), request(9))
    assert [in_flight.complete(number).correlation_id for number in (7, 8, 9)] == [7, 8, 9]
    assert len(in_flight) == 0


def test_an_answer_to_another_than_the_oldest_is_refused_and_changes_nothing() -> None:
    in_flight = queue(request(7), request(8))
    with pytest.raises(ProtocolError, match=r"correlation id 8, but the oldest request \(API key 3\) has 7"):
        in_flight.complete(8)
    assert len(in_flight) == 2
    assert in_flight.complete(7).correlation_id == 7


def test_an_answer_to_nothing_is_refused() -> None:
    with pytest.raises(ProtocolError, match="no request waits"):
        queue().complete(1)


def test_answers_to_requests_that_expect_none_are_dropped_in_their_order() -> None:
    in_flight = queue(request(1))
    in_flight.expect_none(2)
    in_flight.expect_none(3)
    in_flight.add(request(4))
    in_flight.expect_none(5)
    with pytest.raises(ProtocolError, match="2, but the oldest request"):
        in_flight.complete(2)  # before that of its predecessor
    answered = [in_flight.complete(number) for number in (1, 2, 3, 4, 5)]
    assert [each and each.correlation_id for each in answered] == [1, None, None, 4, None]


@pytest.mark.parametrize("number", [2, 3, 5])
def test_a_second_answer_to_a_request_that_expects_none_is_refused(number: int) -> None:
    in_flight = queue()
    for each in (2, 3):
        in_flight.expect_none(each)
    assert in_flight.complete(3) is None
    with pytest.raises(ProtocolError, match=f"correlation id {number}, but no request waits"):
        in_flight.complete(number)


def test_an_answer_without_need_that_comes_after_a_later_one_is_refused() -> None:
    """Answers come in the order of their requests."""
    in_flight = queue(request(3))
    in_flight.expect_none(2)
    in_flight.complete(3)
    with pytest.raises(ProtocolError, match="correlation id 2, but no request waits"):
        in_flight.complete(2)


def test_a_broker_that_answers_without_need_is_expected_to_go_on_with_it() -> None:
    in_flight = queue()
    in_flight.expect_none(1)
    assert not in_flight.unexpected_is_due  # most brokers do not answer
    in_flight.expect_none(2)
    in_flight.complete(1)
    assert in_flight.unexpected_is_due
    in_flight.complete(2)
    assert not in_flight.unexpected_is_due


def test_put_back_makes_it_the_oldest_again() -> None:
    in_flight = queue(request(7), request(8))
    in_flight.put_back(in_flight.complete(7))
    assert [each.correlation_id for each in in_flight.drain_all()] == [7, 8]


def test_how_long_the_oldest_has_waited() -> None:
    sent = [InFlightRequest(number, 3, 13, 10 * number, 100, nobody, nobody) for number in (1, 2)]
    in_flight = queue(*sent)
    assert in_flight.oldest_sent_ms() == 10
    in_flight.complete(1)
    assert in_flight.oldest_sent_ms() == 20
    in_flight.complete(2)
    assert in_flight.oldest_sent_ms() is None


def test_deadlines_are_looked_at_one_by_one() -> None:
    in_flight = queue(request(1, deadline_ms=300), request(2, deadline_ms=100), request(3, deadline_ms=200))
    assert in_flight.next_deadline_ms() == 100
    assert in_flight.expired(99) == []
    assert [each.correlation_id for each in in_flight.expired(200)] == [2, 3]
    assert len(in_flight) == 3


def test_throttling_moves_all_deadlines() -> None:
    in_flight = queue(request(1, deadline_ms=100), request(2, deadline_ms=200))
    in_flight.extend(50, longest_ms=1_000)
    assert in_flight.expired(149) == []
    assert in_flight.next_deadline_ms() == 150
    assert len(in_flight.expired(250)) == 2


def test_throttling_moves_no_deadline_past_what_is_wanted() -> None:
    """A deadline is limited by the owner, or by the time since the request was sent; a later one stays as it is."""
    others = request(1, deadline_ms=100), request(2, deadline_ms=900)
    knowing = request(3, deadline_ms=100)
    knowing.latest_ms = lambda: 400
    in_flight = queue(*others, knowing)
    for _ in range(2):
        in_flight.extend(10**9, longest_ms=500)
        assert [each.deadline_ms for each in (*others, knowing)] == [500, 900, 400]


def test_drain_all_empties_it_oldest_first() -> None:
    in_flight = queue(request(1), request(2))
    assert [each.correlation_id for each in in_flight.drain_all()] == [1, 2]
    assert in_flight.drain_all() == []
    assert in_flight.next_deadline_ms() is None
