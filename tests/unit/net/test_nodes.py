"""Which nodes exist, which one is asked, and which one is connected to next."""

from __future__ import annotations

import random
from typing import Any

import pytest

from aioproducer.cluster import Broker
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import ConnectionLostError, KafkaError, RequestTimedOutError, SaslAuthenticationFailedError
from aioproducer.net.node import Node, ReconnectPolicy
from aioproducer.net.nodes import SLOW_MS, Nodes, held_up
from tests.unit.net.stand_in import StandIn

LOST = ConnectionLostError("lost")


class Attempt:
    """The task of a connection attempt."""

    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


def nodes_of(*node_ids: int) -> Nodes:
    config, rng = ProducerConfig.parse({"bootstrap_servers": "unused:1"}), random.Random(1)
    nodes = Nodes(ReconnectPolicy(config, rng), rng)
    nodes.update(brokers(*node_ids))
    return nodes


def brokers(*node_ids: int, host: str = "host") -> dict[int, Broker]:
    return {node_id: Broker(node_id, host, node_id) for node_id in node_ids}


def connect(nodes: Nodes, node_id: int, **state: Any) -> Any:
    connection: Any = StandIn(node_id, host="host", **state)
    nodes.by_id[node_id].connected(connection)
    return connection


def attempt(nodes: Nodes, node_id: int, now_ms: int = 0) -> Attempt:
    task: Any = Attempt()
    nodes.by_id[node_id].attempted(task, now_ms)
    return task  # type: ignore[no-any-return]


# --- which there are --------------------------------------------------------------------------------------------------


def test_a_node_that_is_gone_stays_until_its_connection_has_ended() -> None:
    nodes = nodes_of(1, 2)
    connection, task = connect(nodes, 1), attempt(nodes, 2)
    nodes.update({})
    assert list(nodes.by_id) == [1]
    assert connection.retiring
    assert task.cancelled
    assert nodes.disconnected(connection, None, 0) is not None
    assert nodes.by_id == {}


def test_a_node_that_is_back_before_its_connection_has_ended_stays() -> None:
    nodes = nodes_of(1)
    connection = connect(nodes, 1)
    nodes.update({})
    nodes.update(brokers(1))
    nodes.disconnected(connection, None, 0)
    assert nodes.to_connect(0) is nodes.by_id[1]


def test_a_node_that_has_moved_is_left_at_its_former_address() -> None:
    nodes = nodes_of(1, 2)
    connection, task = connect(nodes, 1), attempt(nodes, 2)
    nodes.update(brokers(1, 2))
    assert not connection.retiring
    assert not task.cancelled
    nodes.update(brokers(1, 2, host="elsewhere"))
    assert connection.retiring
    assert task.cancelled
    assert str(nodes.by_id[1]) == "node 1 (elsewhere:1)"


def put_off(nodes: Nodes, times: int) -> int:
    """That many attempts at node 1 fail, at time 0; returns how long it is then left alone."""
    for _ in range(times):
        fail(nodes, 1, LOST, 0)
    return nodes.by_id[1].retry_at_ms


def test_a_node_is_left_alone_for_longer_with_each_failure_until_one_attempt_succeeds() -> None:
    """The limit of the next attempt grows and shrinks with it."""
    nodes = nodes_of(1)
    node = nodes.by_id[1]
    assert 40 <= put_off(nodes, 1) <= 60
    assert 640 <= put_off(nodes, 4) <= 960
    assert node.limit_ms() > 20_000
    assert node.error is LOST
    nodes.disconnected(connect(nodes, 1), None, 0)
    assert node.error is None
    assert node.limit_ms() <= 12_000
    assert 40 <= put_off(nodes, 1) <= 60


def test_a_node_that_has_moved_has_no_failures_at_its_new_address() -> None:
    nodes = nodes_of(1)
    node = nodes.by_id[1]
    node.last_address = "10.0.0.1"
    assert put_off(nodes, 5) >= 640
    nodes.update(brokers(1, host="elsewhere"))
    assert (node.error, node.last_address, node.out_of_reach) == (None, None, False)
    assert node.connectable(0)
    assert node.limit_ms() <= 12_000
    assert 40 <= put_off(nodes, 1) <= 60


def test_a_refusal_has_to_last() -> None:
    """A broker that has just started may refuse a good login, e.g. because too many clients come back at once."""
    nodes = nodes_of(1)
    node = nodes.by_id[1]
    refusal = SaslAuthenticationFailedError("too many connects")
    fail(nodes, 1, refusal, 1_000)
    fail(nodes, 1, refusal, 5_999)
    assert node.authentication_error is None
    assert not nodes.refused
    fail(nodes, 1, refusal, 6_000)
    assert node.authentication_error is refusal
    assert nodes.refused
    fail(nodes, 1, LOST, 6_100)
    assert node.authentication_error is None
    fail(nodes, 1, refusal, 6_200)
    assert node.authentication_error is refusal
    connect(nodes, 1)
    assert node.authentication_error is None
    nodes.disconnected(node.connection, LOST, 7_000)  # type: ignore[arg-type]
    fail(nodes, 1, refusal, 8_000)
    assert node.authentication_error is None
    fail(nodes, 1, refusal, 13_000)
    nodes.update(brokers(1, host="elsewhere"))
    fail(nodes, 1, refusal, 13_500)
    assert node.authentication_error is None


def test_the_bootstrap_connection_becomes_that_of_the_node_at_its_address() -> None:
    nodes = nodes_of()
    connection: Any = StandIn(-1, host="host", port=2)
    nodes.replace_bootstrap(connection)
    nodes.update(brokers(1, 2))
    assert nodes.bootstrap is None
    assert nodes.by_id[2].connection is connection
    assert connection.node_id == 2


def test_the_bootstrap_connection_takes_the_place_of_no_other() -> None:
    nodes = nodes_of(2)
    own = connect(nodes, 2)
    bootstrap: Any = StandIn(-1, host="host", port=2)
    nodes.replace_bootstrap(bootstrap)
    nodes.update(brokers(2))
    assert nodes.by_id[2].connection is own
    assert (nodes.bootstrap, bootstrap.node_id) == (bootstrap, -1)


def test_the_bootstrap_connection_belongs_to_one_node_alone() -> None:
    """Also where a proxy's address stands for several."""
    nodes = nodes_of()
    bootstrap: Any = StandIn(-1, host="proxy", port=9)
    nodes.replace_bootstrap(bootstrap)
    nodes.update({node_id: Broker(node_id, "proxy", 9) for node_id in (1, 2)})
    assert [node.connection for node in nodes.by_id.values()] == [bootstrap, None]
    assert bootstrap.node_id == 1


def test_the_bootstrap_connection_goes_once_a_node_is_connected() -> None:
    nodes = nodes_of(1, 2)
    connection: Any = StandIn(-1)
    nodes.replace_bootstrap(connection)
    nodes.retire_bootstrap()
    assert nodes.bootstrap is connection
    connect(nodes, 1)
    nodes.retire_bootstrap()
    assert nodes.bootstrap is None
    assert connection.retiring


def test_a_second_bootstrap_connection_retires_the_first() -> None:
    nodes = nodes_of()
    first: Any = StandIn(-1)
    second: Any = StandIn(-2)
    nodes.replace_bootstrap(first)
    nodes.replace_bootstrap(second)
    assert (first.retiring, second.retiring) == (True, False)
    nodes.disconnected(first, None, 0)
    assert nodes.bootstrap is second
    nodes.disconnected(second, LOST, 0)
    assert nodes.bootstrap is None


def test_a_lost_connection_puts_its_node_off_and_one_that_ended_on_purpose_does_not() -> None:
    nodes = nodes_of(1)
    for error, again in ((None, True), (LOST, False)):
        node = nodes.disconnected(connect(nodes, 1), error, 0)
        assert node is nodes.by_id[1]
        assert node.connectable(0) is again
    stranger: Any = StandIn(1)
    assert nodes.disconnected(stranger, LOST, 0) is None


# --- which to ask -----------------------------------------------------------------------------------------------------


def test_the_least_loaded_is_asked_and_one_that_is_held_up_last() -> None:
    nodes = nodes_of(1, 2, 3)
    held = connect(nodes, 1, in_flight_count=1, unanswered_since_ms=0)
    busy = connect(nodes, 2, in_flight_count=4, unanswered_since_ms=SLOW_MS)
    assert nodes.least_loaded(SLOW_MS) is busy
    assert nodes.least_loaded(SLOW_MS - 1) is held
    free = connect(nodes, 3)
    assert nodes.least_loaded(SLOW_MS) is free
    assert nodes.least_loaded(SLOW_MS, but_not=[free, busy]) is held
    assert nodes.least_loaded(SLOW_MS, but_not=[free, busy, held]) is None


def test_the_bootstrap_connection_comes_last_of_those_that_are_equal() -> None:
    nodes = nodes_of(1)
    bootstrap: Any = StandIn(-1)
    nodes.replace_bootstrap(bootstrap)
    assert nodes.least_loaded(0) is bootstrap
    connection = connect(nodes, 1)
    assert nodes.least_loaded(0) is connection
    connection.in_flight_count = 1
    assert nodes.least_loaded(0) is bootstrap


def test_a_broker_that_throttles_does_not_hold_up() -> None:
    connection: Any = StandIn(1)
    assert not held_up(connection, SLOW_MS)
    connection.unanswered_since_ms = 0
    assert held_up(connection, SLOW_MS)
    assert not held_up(connection, SLOW_MS - 1)
    connection.throttled_until_ms = SLOW_MS + 1
    assert not held_up(connection, SLOW_MS)
    assert held_up(connection, SLOW_MS + 1)


def test_a_connection_that_can_not_send_is_not_asked() -> None:
    nodes = nodes_of(1)
    connection = connect(nodes, 1, throttled_until_ms=10)
    assert nodes.least_loaded(9) is None
    assert nodes.least_loaded(10) is connection


def test_of_nodes_that_are_equal_any_is_asked_and_any_is_connected_to() -> None:
    """Else all producers of a cluster would turn to the same broker."""
    nodes = nodes_of(1, 2, 3)
    assert {nodes.to_connect(0) for _ in range(50)} == set(nodes.by_id.values())
    connections = {connect(nodes, node_id) for node_id in (1, 2, 3)}
    assert {nodes.least_loaded(0) for _ in range(50)} == connections


def test_serving_prefers_the_node_that_is_named_and_passes_over_those_that_do_not_know_the_api() -> None:
    nodes = nodes_of(1, 2, 3)
    busy, free = connect(nodes, 1, in_flight_count=2), connect(nodes, 2, in_flight_count=1)
    connect(nodes, 3, apis=set())
    assert nodes.serving(3) is free
    assert nodes.serving(3, rather=1) is busy
    assert nodes.serving(3, rather=3) is free
    busy.retiring = free.closed = True
    assert nodes.serving(3) is None


# --- which to connect to ----------------------------------------------------------------------------------------------


def test_the_node_that_was_left_alone_for_longest_is_next() -> None:
    nodes = nodes_of(1, 2, 3)
    for node_id, at_ms in ((1, 3), (2, 2), (3, 4)):
        attempt(nodes, node_id, at_ms)
        nodes.by_id[node_id].failed(LOST, at_ms)
    assert nodes.to_connect(10) is None
    assert nodes.to_connect(10**9) is nodes.by_id[2]


def test_a_young_attempt_is_waited_for() -> None:
    nodes = nodes_of(1, 2)
    attempt(nodes, 1)
    assert nodes.to_connect(SLOW_MS - 1) is None
    assert nodes.next_look_ms(1) == SLOW_MS
    assert nodes.to_connect(SLOW_MS) is nodes.by_id[2]


def test_an_attempt_that_has_failed_is_not_waited_for() -> None:
    nodes = nodes_of(1, 2)
    fail(nodes, 1, LOST, 0)
    assert nodes.to_connect(0) is nodes.by_id[2]


def test_the_next_look_is_when_something_may_have_become_usable() -> None:
    nodes = nodes_of(1, 2)
    assert nodes.next_look_ms(0) is None
    connect(nodes, 2, throttled_until_ms=30)
    retry_ms = put_off(nodes, 1)
    assert nodes.next_look_ms(0) == 30
    assert nodes.next_look_ms(30) == retry_ms > 30
    assert nodes.next_look_ms(retry_ms) is None
    attempt(nodes, 1)
    assert nodes.next_look_ms(30) == SLOW_MS
    connect(nodes, 1)
    assert nodes.next_look_ms(30) is None


def test_a_connection_that_is_closed_needs_no_second_one() -> None:
    nodes = nodes_of(1)
    connect(nodes, 1, unanswered_since_ms=0, closed=True)
    assert nodes.to_connect(SLOW_MS) is None
    assert nodes.asides == {}


def test_a_second_connection_is_for_a_node_that_is_held_up() -> None:
    nodes = nodes_of(1)
    own = connect(nodes, 1, unanswered_since_ms=0)
    assert nodes.next_look_ms(0) == SLOW_MS
    assert nodes.to_connect(SLOW_MS - 1) is None
    aside = nodes.to_connect(SLOW_MS)
    assert aside is nodes.asides[1]
    assert nodes.least_loaded(SLOW_MS) is own
    second: Any = StandIn(1)
    aside.connected(second)
    assert nodes.to_connect(SLOW_MS) is None
    assert nodes.least_loaded(SLOW_MS, but_not=[own]) is second
    assert nodes.disconnected(second, LOST, SLOW_MS) is None
    assert aside.error is LOST
    assert nodes.by_id[1].connection is own


@pytest.mark.parametrize("end", ["lost", "gone", "moved", "ended", "cancelled"])
def test_a_second_connection_goes_with_the_first(end: str) -> None:
    nodes = nodes_of(1)
    own = connect(nodes, 1, unanswered_since_ms=0)
    aside = nodes.to_connect(SLOW_MS)
    assert aside is not None
    second: Any = StandIn(1)
    aside.connected(second)
    if end == "lost":
        nodes.disconnected(own, LOST, 0)
    elif end == "gone":
        nodes.update({})
    elif end == "moved":
        nodes.update(brokers(1, host="elsewhere"))
    elif end == "ended":
        nodes.end_aside(1)
    else:
        nodes.cancel_attempts()
    assert second.retiring
    assert nodes.asides == {}


def test_all_attempts_are_cancelled() -> None:
    nodes = nodes_of(1, 2)
    tasks = [attempt(nodes, node_id) for node_id in (1, 2)]
    nodes.cancel_attempts()
    assert all(task.cancelled for task in tasks)
    assert not any(node.connecting for node in nodes.by_id.values())


def test_exhausted_is_when_nothing_is_left_to_try() -> None:
    nodes = nodes_of()
    assert nodes.exhausted(0)
    bootstrap: Any = StandIn(-1)
    nodes.replace_bootstrap(bootstrap)
    assert not nodes.exhausted(0)
    bootstrap.closed = True
    assert nodes.exhausted(0)
    nodes.update(brokers(1))
    assert not nodes.exhausted(0)
    attempt(nodes, 1)
    assert not nodes.exhausted(0)
    nodes.by_id[1].failed(LOST, 0)
    assert nodes.exhausted(0)
    assert not nodes.exhausted(10**9)
    connect(nodes, 1)
    assert not nodes.exhausted(0)


def test_all_have_failed_even_while_some_are_tried_again() -> None:
    nodes = nodes_of(1, 2)
    assert not nodes.all_failed
    fail(nodes, 1, LOST, 0)
    assert not nodes.all_failed
    fail(nodes, 2, LOST, 0)
    assert nodes.all_failed
    attempt(nodes, 1)
    assert nodes.all_failed
    assert not nodes.exhausted(0)
    connection = connect(nodes, 1)
    assert not nodes.all_failed
    nodes.disconnected(connection, None, 0)  # on purpose
    assert not nodes.all_failed
    nodes.disconnected(connect(nodes, 1), LOST, 0)  # by the broker, which may take the next
    assert not nodes.all_failed
    nodes.disconnected(connect(nodes, 1), RequestTimedOutError("silent"), 0)
    assert nodes.all_failed
    nodes.disconnected(connect(nodes, 1), LOST, 0)
    fail(nodes, 1, LOST, 0)
    assert nodes.all_failed
    bootstrap: Any = StandIn(-1)
    nodes.replace_bootstrap(bootstrap)
    assert not nodes.all_failed
    bootstrap.closed = True
    assert nodes.all_failed


# --- why none can be reached ------------------------------------------------------------------------------------------


def fail(nodes: Nodes, node_id: int, error: KafkaError, now_ms: int) -> None:
    attempt(nodes, node_id, now_ms)
    nodes.by_id[node_id].failed(error, now_ms)


def test_the_newest_failure_tells_why_no_broker_can_be_reached() -> None:
    nodes = nodes_of(1, 2, 3)
    assert nodes.unreachable is None
    assert str(nodes.newest_failure()) == "no broker is known"
    fail(nodes, 1, ConnectionLostError("one"), 2)
    fail(nodes, 2, ConnectionLostError("two"), 1)
    told = nodes.unreachable
    assert isinstance(told, ConnectionLostError)
    assert str(told) == "no broker can be reached: one"
    assert told.__cause__ is nodes.by_id[1].error
    assert not told.maybe_written
    refused = SaslAuthenticationFailedError("no")
    fail(nodes, 2, refused, 3)
    told = nodes.unreachable
    assert type(told) is SaslAuthenticationFailedError
    assert told is not refused
    connect(nodes, 3)
    assert nodes.unreachable is None


def test_a_broker_whose_idle_connection_was_closed_can_be_reached() -> None:
    """Another one has ended its connection, and is tried again only for the next record."""
    nodes = nodes_of(1, 2)
    idle = connect(nodes, 2)
    nodes.disconnected(connect(nodes, 1), LOST, 0)
    nodes.disconnected(idle, None, 0)
    assert nodes.unreachable is None
    fail(nodes, 2, LOST, 1)
    assert str(nodes.unreachable) == "no broker can be reached: lost"
    nodes.disconnected(connect(nodes, 2), None, 1)
    nodes.update(brokers(1, 2, host="elsewhere"))
    fail(nodes, 1, LOST, 2)
    assert nodes.unreachable is not None


def test_why_none_can_be_reached_while_another_thread_goes_on() -> None:
    """Between any two steps of a probe's thread, the loop's may find another broker, or forget a failure."""
    nodes = nodes_of(1, 2)
    policy = ReconnectPolicy(ProducerConfig.parse({"bootstrap_servers": "unused:1"}), random.Random(1))

    class Changing(Node):
        reads = 0

        @property
        def error(self) -> KafkaError | None:  # type: ignore[override]
            self.reads += 1
            nodes.by_id[len(nodes.by_id) + 1] = Node(Broker(9, "host", 9), policy)
            return LOST if self.reads <= 2 else None

        @error.setter
        def error(self, error: KafkaError | None) -> None:
            pass

    nodes.by_id[1] = Changing(Broker(1, "host", 1), policy)
    assert str(nodes.unreachable) == "no broker can be reached: lost"
