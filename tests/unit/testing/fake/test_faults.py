"""Fault scripts: what each of them does to a request, and how often."""

from __future__ import annotations

import math
from typing import Any

import pytest

from aioproducer.errors import BrokerError, KafkaError, NotLeaderOrFollowerError
from aioproducer.protocol.init_producer_id import InitProducerIdRequest
from aioproducer.protocol.metadata import MetadataRequest, MetadataRequestTopic
from aioproducer.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from aioproducer.testing.fake.session import Session
from tests.unit.testing.fake.talk import ask, batch, leader_session, model, produce, produce_request, send

INIT = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
ORDERS = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])


def offsets_code(session: Session, topic: str, partition: int) -> int:
    """What a broker answers to a position of a group in one partition."""
    position = TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=7)
    request = TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id="readers",
        producer_id=0,
        producer_epoch=0,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[position])],
    )
    return ask(session, request).topics[0].partitions[0].error_code


class TestFail:
    @pytest.mark.parametrize("error", ["NOT_LEADER_OR_FOLLOWER", "not_leader_or_follower", 6, NotLeaderOrFollowerError])
    def test_so_often_and_then_no_more(self, error: object) -> None:
        cluster = model()
        fault = cluster.faults.fail("Produce", error, times=2)  # type: ignore[arg-type]
        assert [produce(cluster, batch(b"a")).error_code for _ in range(3)] == [6, 6, 0]
        assert fault.struck == 2
        assert cluster.faults.pending == ()
        assert len(cluster.records("orders")) == 1

    def test_after_the_batch_was_written(self) -> None:
        cluster = model()
        cluster.faults.fail("Produce", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", apply=True)
        assert produce(cluster, batch(b"a")).error_code == 20
        assert len(cluster.records("orders")) == 1

    def test_a_batch_that_is_refused_anyway_keeps_its_own_error(self) -> None:
        cluster = model()
        cluster.faults.fail("Produce", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", apply=True)
        assert produce(cluster, b"").error_code == 87

    def test_one_partition_alone(self) -> None:
        cluster = model()
        cluster.faults.fail("Produce", "KAFKA_STORAGE_ERROR", topic="orders", partition=1, times=None)
        cluster.create_topic("audit", 2)
        assert [produce(cluster, batch(b"a"), partition=each).error_code for each in (0, 1, 1)] == [0, 56, 56]
        assert produce(cluster, batch(b"a"), "audit", partition=1).error_code == 0

    def test_offsets_of_one_partition_alone(self) -> None:
        cluster = model()
        cluster.faults.fail("TxnOffsetCommit", "UNSTABLE_OFFSET_COMMIT", topic="orders", partition=1)
        session = Session(cluster, 1)
        others = offsets_code(session, "orders", 0), offsets_code(session, "audit", 1)
        struck = offsets_code(session, "orders", 1), offsets_code(session, "orders", 1)
        assert [code == 88 for code in others + struck] == [False, False, True, False]

    def test_one_broker_alone(self) -> None:
        cluster = model()
        fault = cluster.faults.fail("InitProducerId", "COORDINATOR_LOAD_IN_PROGRESS", node=2, times=None)
        assert [ask(Session(cluster, node), INIT).error_code for node in (1, 2)] == [0, 14]
        fault.cancel()
        assert cluster.faults.pending == ()
        assert ask(Session(cluster, 2), INIT).error_code == 0

    def test_the_first_ones_are_let_pass(self) -> None:
        cluster = model()
        cluster.faults.fail("InitProducerId", "COORDINATOR_LOAD_IN_PROGRESS", skip=1)
        assert [ask(Session(cluster, 1), INIT).error_code for _ in range(3)] == [0, 14, 0]

    def test_the_message_is_told(self) -> None:
        cluster = model()
        cluster.faults.fail("Produce", "POLICY_VIOLATION", message="not on Sundays")
        assert produce(cluster, batch(b"a")).error_message == "not on Sundays"

    def test_what_the_code_says_is_not_told_again(self) -> None:
        """Neither does Kafka: a program's error would have it twice."""
        cluster = model()
        cluster.faults.fail("Produce", "POLICY_VIOLATION")
        assert produce(cluster, batch(b"a")).error_message is None

    def test_metadata_of_a_topic(self) -> None:
        cluster = model()
        cluster.faults.fail("Metadata", "TOPIC_AUTHORIZATION_FAILED", topic="orders")
        assert ask(Session(cluster, 1), ORDERS).topics[0].error_code == 29

    def test_metadata_of_a_partition(self) -> None:
        cluster = model()
        cluster.faults.fail("Metadata", "LEADER_NOT_AVAILABLE", topic="orders", partition=1)
        first, second = ask(Session(cluster, 1), ORDERS).topics[0].partitions
        assert (first.error_code, second.error_code, second.leader_id) == (0, 5, -1)

    def test_metadata_asks_for_a_new_bootstrap(self) -> None:
        cluster = model()
        cluster.faults.fail("Metadata", "REBOOTSTRAP_REQUIRED")
        answer = ask(Session(cluster, 1), ORDERS)
        assert (answer.error_code, answer.brokers) == (129, [])

    def test_names_are_checked(self) -> None:
        with pytest.raises(ValueError, match="NO_SUCH_ERROR"):
            model().faults.fail("Produce", "NO_SUCH_ERROR")
        with pytest.raises(ValueError, match="Consume"):
            model().faults.fail("Consume", "UNKNOWN_SERVER_ERROR")
        for number in (0, 32_768, -32_769):
            with pytest.raises(ValueError, match=f"error={number}: no error has this number"):
                model().faults.fail("Metadata", number)
        for no_code in (BrokerError, KafkaError):
            with pytest.raises(ValueError, match="no error of Kafka"):
                model().faults.fail("Produce", no_code)  # type: ignore[arg-type]

    def test_so_are_the_ways_to_go_wrong(self) -> None:
        """An unknown word would count as the default, and a test with it would prove nothing."""
        with pytest.raises(ValueError, match="when='afterwards': before or after"):
            model().faults.drop("Produce", when="afterwards")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="when='never': before or after"):
            model().faults.swallow("Produce", when="never")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="how='truncate': garbage, correlation_id or truncated"):
            model().faults.garble("Produce", how="truncate")  # type: ignore[arg-type]
        for duration_ms in (-1, 1 << 31, math.nan):
            with pytest.raises(ValueError, match=f"duration_ms={duration_ms}: 0 to 2147483647"):
                model().faults.throttle("Produce", duration_ms)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="skip=-1: at least 0"):
            model().faults.drop("Produce", skip=-1)
        with pytest.raises(ValueError, match="times=0: at least 1, or None"):
            model().faults.drop("Produce", times=0)

    @pytest.mark.parametrize(
        ("where", "told"),
        [
            ({"node": 4}, "node=4: the brokers are 1, 2, 3"),
            ({"node": "1"}, "node='1': the brokers are 1, 2, 3"),
            ({"partition": "0"}, "partition='0': a number from 0 on"),
            ({"partition": -1}, "partition=-1: a number from 0 on"),
            ({"topic": b"orders"}, "topic=b'orders': a str"),
        ],
    )
    def test_so_is_a_place_where_nothing_can_happen(self, where: dict[str, Any], told: str) -> None:
        faults = model().faults
        for add in (faults.drop, faults.swallow, faults.garble):
            with pytest.raises(ValueError, match=told):
                add("Produce", **where)
        for add_for_a_time in (faults.delay, faults.throttle):
            with pytest.raises(ValueError, match=told):
                add_for_a_time("Produce", 1, **where)
        with pytest.raises(ValueError, match=told):
            faults.fail("Produce", 6, **where)
        assert faults.pending == ()


class TestWithoutAnAnswer:
    @pytest.mark.parametrize(("when", "written"), [("before", 0), ("after", 1)])
    def test_dropped(self, when: object, written: int) -> None:
        cluster = model()
        session = leader_session(cluster)
        cluster.faults.drop("Produce", when=when)  # type: ignore[arg-type]
        answer = send(session, produce_request(cluster, batch(b"a")))
        assert (answer.frame, answer.close, session.closed) == (None, True, True)
        assert len(cluster.records("orders")) == written

    @pytest.mark.parametrize("version", [12, 13])  # with the topic's name, and with its id
    def test_only_requests_with_this_topic_and_partition(self, version: int) -> None:
        cluster = model()
        cluster.create_topic("audit", 2)
        fault = cluster.faults.drop("Produce", topic="orders", partition=1)
        for topic, partition in (("audit", 1), ("orders", 0)):
            produce(cluster, batch(b"a"), topic, partition, version=version)
        request = produce_request(cluster, batch(b"a"), partition=1)
        assert send(leader_session(cluster, partition=1), request, version).frame is None
        assert fault.struck == 1

    @pytest.mark.parametrize("target", [{"topic": "orders"}, {"partition": 1}])
    def test_a_topic_or_a_partition_alone_is_enough(self, target: dict[str, Any]) -> None:
        cluster = model()
        cluster.create_topic("audit", 2)
        fault = cluster.faults.drop("Produce", times=None, **target)
        struck = []
        for topic, partition in (("audit", 0), ("orders", 1)):
            session = leader_session(cluster, topic, partition)
            struck.append(send(session, produce_request(cluster, batch(b"a"), topic, partition)).close)
        assert (struck, fault.struck) == ([False, True], 1)

    def test_one_of_several_topics_is_enough(self) -> None:
        cluster = model()
        cluster.faults.drop("Metadata", topic="orders")
        both = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in ("audit", "orders")])
        assert send(Session(cluster, 1), both).close

    @pytest.mark.parametrize(("when", "written"), [("before", 0), ("after", 1)])
    def test_swallowed(self, when: object, written: int) -> None:
        """The connection stays open, but does not answer later requests either, because answers keep their order."""
        cluster = model()
        session = leader_session(cluster)
        cluster.faults.swallow("Produce", when=when)  # type: ignore[arg-type]
        answer = send(session, produce_request(cluster, batch(b"a")))
        assert (answer.frame, answer.close) == (None, False)
        assert send(session, produce_request(cluster, batch(b"a"))).frame is None
        assert len(cluster.records("orders")) == written


class TestOtherwise:
    def test_delayed(self) -> None:
        cluster = model()
        cluster.faults.delay("Produce", 300)
        answer = send(leader_session(cluster), produce_request(cluster, batch(b"a")))
        assert (answer.delay_ms, answer.frame is not None) == (300, True)

    def test_another_correlation_id(self) -> None:
        cluster = model()
        cluster.faults.garble("Metadata", how="correlation_id")
        frames = [send(Session(cluster, 1), ORDERS).frame for _ in range(2)]
        assert frames[0] is not None
        assert frames[1] is not None
        assert frames[0][4:8] != frames[1][4:8]
        assert frames[0][8:] == frames[1][8:]

    def test_garbage(self) -> None:
        cluster = model()
        cluster.faults.garble("Metadata")
        frame = send(Session(cluster, 1), ORDERS).frame
        assert frame is not None
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4

    def test_garbage_too_short_for_a_correlation_id_stays_as_it_is(self) -> None:
        cluster = model()
        cluster.faults.garble("Metadata", times=None)
        cluster.faults.garble("Metadata", how="correlation_id", times=None)
        frames = [send(Session(cluster, 1), ORDERS).frame for _ in range(500)]
        assert all(frame is not None and int.from_bytes(frame[:4], "big") == len(frame) - 4 for frame in frames)
        assert min(len(frame or b"") for frame in frames) < 8

    def test_cut_off(self) -> None:
        cluster = model()
        cluster.faults.garble("Metadata", how="truncated")
        whole = send(Session(model(), 1), ORDERS).frame
        answer = send(Session(cluster, 1), ORDERS)
        assert whole is not None
        assert answer.frame is not None
        assert answer.close
        assert whole.startswith(answer.frame)
        assert len(answer.frame) < len(whole)

    def test_throttled_clients_are_told_and_not_heard_meanwhile(self) -> None:
        cluster = model()
        session = leader_session(cluster)
        fault = cluster.faults.throttle("Produce", 200)
        answer = send(session, produce_request(cluster, batch(b"a")), now_ms=1_700_000_000_000)
        assert answer.delay_ms == 0
        assert len(cluster.records("orders")) == 1
        fault.cancel()
        assert send(session, ORDERS, now_ms=1_700_000_000_050).delay_ms == 150
        assert send(session, ORDERS, now_ms=1_700_000_000_200).delay_ms == 0

    def test_the_time_is_in_the_answer(self) -> None:
        cluster = model()
        cluster.faults.throttle("InitProducerId", 200)
        assert ask(Session(cluster, 1), INIT).throttle_time_ms == 200

    def test_old_clients_just_wait(self) -> None:
        """KIP-219."""
        cluster = model()
        cluster.faults.throttle("Produce", 200)
        answer = send(leader_session(cluster), produce_request(cluster, batch(b"a")), 5)
        assert answer.delay_ms == 200

    def test_throttled_clients_of_the_next_version_are_told(self) -> None:
        cluster = model()
        cluster.faults.throttle("Produce", 200)
        session = leader_session(cluster)
        assert send(session, produce_request(cluster, batch(b"a")), 6).delay_ms == 0
        assert send(session, produce_request(cluster, batch(b"a")), 6).delay_ms == 200

    def test_several_strike_together(self) -> None:
        cluster = model()
        cluster.faults.delay("InitProducerId", 30)
        cluster.faults.fail("InitProducerId", "COORDINATOR_LOAD_IN_PROGRESS")
        assert send(Session(cluster, 1), INIT).delay_ms == 30

    def test_the_longest_of_several_counts(self) -> None:
        cluster = model()
        for duration_ms in (30, 50, 40):
            cluster.faults.delay("Produce", duration_ms)
            cluster.faults.throttle("Produce", 4 * duration_ms, times=1)
        session = leader_session(cluster)
        answer = send(session, produce_request(cluster, batch(b"a")), now_ms=1_700_000_000_000)
        assert answer.delay_ms == 50
        # The throttle begins with the delayed answer.
        assert send(session, ORDERS, now_ms=1_700_000_000_100).delay_ms == 150

    def test_clear_ends_all(self) -> None:
        cluster = model()
        cluster.faults.fail("Produce", 6, times=None)
        cluster.faults.drop()
        cluster.faults.clear()
        assert produce(cluster, batch(b"a")).error_code == 0
