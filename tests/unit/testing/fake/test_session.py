"""A connection to the model: framing, versions, and what happens when the broker stops."""

from __future__ import annotations

import random
import struct

import pytest

from aioproducer.protocol.api_versions import ApiVersionsRequest
from aioproducer.protocol.header import decode_response, encode_request
from aioproducer.protocol.init_producer_id import InitProducerIdRequest
from aioproducer.protocol.metadata import MetadataRequest, MetadataRequestTopic
from aioproducer.testing.fake.frames import MAX_FRAME_BYTES
from aioproducer.testing.fake.session import Session
from tests.unit.testing.fake.talk import NOW_MS, ask, batch, leader_session, model, produce, produce_request, send

HELLO = ApiVersionsRequest(client_software_name="tests", client_software_version="1")


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_requests_come_in_pieces_of_any_size(size: int) -> None:
    cluster = model()
    session = leader_session(cluster)
    data = encode_request(HELLO, 4, 1, "me") + encode_request(produce_request(cluster, batch(b"a")), 13, 2, None)
    found = [frame for at in range(0, len(data), size) for frame in session.feed(data[at : at + size])]
    assert [(one.api_name, one.version, one.correlation_id, one.client_id) for one in found] == [
        ("ApiVersions", 4, 1, "me"),
        ("Produce", 13, 2, None),
    ]
    assert sum(one.size_bytes for one in found) == len(data)
    assert session.broken is None


@pytest.mark.parametrize(
    "bad",
    [
        struct.pack(">i", -1),
        struct.pack(">i", MAX_FRAME_BYTES + 1),
        struct.pack(">i", 0),
        struct.pack(">ihhih", 10, 0, 13, 1, 500),
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        encode_request(HELLO, 4, 1, "me")[:-1] + b"\x05",
        struct.pack(">ihhih", 10, 0, 2, 1, -1),
        struct.pack(">ihhih", 10, 0, 14, 1, -1),
    ],
)
def test_nonsense_breaks_the_stream_after_the_good_requests(bad: bytes) -> None:
    session = Session(model(), 1)
    good = encode_request(HELLO, 0, 1, "me")
    assert len(session.feed(good + bad)) == 1
    assert session.broken
    assert session.feed(good) == []


def test_random_bytes_never_do_worse_than_break_the_stream() -> None:
    rng = random.Random(3)
    cluster = model()
    good = encode_request(produce_request(cluster, batch(b"a", b"b")), 13, 1, "me")
    for _ in range(500):
        data = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(4, len(data))] = rng.randrange(256)
        session = leader_session(cluster)
        for frame in session.feed(data):
            session.apply(frame, NOW_MS)


class TestApiVersions:
    def test_ranges_and_features(self) -> None:
        answer = ask(Session(model(), 1), HELLO, 4)
        ranges = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
        assert ranges[0] == (0, 13)
        assert ("transaction.version", 2) in [(one.name, one.max_version_level) for one in answer.finalized_features]
        assert answer.finalized_features_epoch > 0

    def test_levels_that_begin_at_zero_are_left_out_before_version_4(self) -> None:
        names = [
            [one.name for one in ask(Session(model(), 1), HELLO, version).supported_features] for version in (3, 4)
        ]
        assert [("transaction.version" in one) for one in names] == [False, True]

    def test_an_older_transaction_version(self) -> None:
        answer = ask(Session(model(transaction_version=1), 1), HELLO, 4)
        assert ("transaction.version", 1) in [(one.name, one.max_version_level) for one in answer.finalized_features]

    def test_an_unknown_version_is_answered_in_version_0(self) -> None:
        session = Session(model(version="2.1"), 1)
        (frame,) = session.feed(encode_request(HELLO, 4, 9, "me"))
        answer = session.apply(frame, NOW_MS)
        assert answer.frame is not None
        decoded = decode_response(ApiVersionsRequest, 4, answer.frame[4:])
        assert decoded.error_code == 35
        assert [(one.api_key, one.min_version, one.max_version) for one in decoded.api_keys] == [(18, 0, 2)]

    def test_software_names_have_a_form(self) -> None:
        bad = ApiVersionsRequest(client_software_name="-x", client_software_version="1")
        assert ask(Session(model(), 1), bad, 4).error_code == 42


def topics_of(*names: str, **options: bool) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **options)


class TestMetadata:
    @pytest.mark.parametrize("version", range(4, 14))
    def test_every_version(self, version: int) -> None:
        cluster = model()
        answer = ask(Session(cluster, 1), topics_of("orders"), version)
        assert [one.node_id for one in answer.brokers] == [1, 2, 3]
        (topic,) = answer.topics
        assert [one.leader_id for one in topic.partitions] == [cluster.leader_of("orders", each) for each in (0, 1)]
        assert all(len(one.isr_nodes) == 3 for one in topic.partitions)

    def test_none_means_all_topics_and_an_empty_list_none(self) -> None:
        session = Session(model(), 1)
        assert [one.name for one in ask(session, MetadataRequest(topics=None)).topics] == ["orders"]
        assert ask(session, MetadataRequest(topics=[])).topics == []

    def test_by_id(self) -> None:
        cluster = model()
        known = MetadataRequestTopic(name=None, topic_id=cluster.topic("orders").topic_id)
        unknown = MetadataRequestTopic(name=None, topic_id=bytes(range(16)))
        found, missing = ask(Session(cluster, 1), MetadataRequest(topics=[known, unknown])).topics
        assert (found.name, found.error_code) == ("orders", 0)
        assert (missing.name, missing.error_code) == (None, 100)

    def test_a_missing_topic_is_there_the_next_time(self) -> None:
        session = Session(model(default_partitions=3), 1)
        assert ask(session, topics_of("new")).topics[0].error_code == 3
        assert len(ask(session, topics_of("new")).topics[0].partitions) == 3

    @pytest.mark.parametrize(("broker", "client"), [(False, True), (True, False)])
    def test_both_sides_must_want_a_topic(self, broker: bool, client: bool) -> None:
        session = Session(model(auto_create_topics=broker), 1)
        for _ in range(2):
            answer = ask(session, topics_of("new", allow_auto_topic_creation=client))
            assert answer.topics[0].error_code == 3

    def test_a_name_must_be_possible(self) -> None:
        assert ask(Session(model(), 1), topics_of("no/slash")).topics[0].error_code == 17

    def test_a_name_whose_metrics_are_taken_gets_no_topic(self) -> None:
        """The broker does not know the reason, so it gives the same answer each time, like Kafka 4.3.1."""
        cluster = model()
        cluster.create_topic("a.b")
        for _ in range(2):
            assert ask(Session(cluster, 1), topics_of("a_b")).topics[0].error_code == 3

    def test_without_a_leader(self) -> None:
        cluster = model()
        cluster.remove_leader("orders", 0)
        first, second = ask(Session(cluster, 1), topics_of("orders")).topics[0].partitions
        assert (first.error_code, first.leader_id) == (5, -1)
        assert second.error_code == 0


class TestBrokersComeAndGo:
    def test_a_stopped_broker_takes_its_connections_with_it(self) -> None:
        cluster = model()
        session = leader_session(cluster)
        (frame,) = session.feed(encode_request(HELLO, 0, 1, None))
        cluster.stop_broker(session.node_id)
        assert session.closed
        assert session.apply(frame, NOW_MS).close
        with pytest.raises(ConnectionRefusedError):
            Session(cluster, session.node_id)

    def test_the_next_replica_leads(self) -> None:
        cluster = model()
        old = cluster.leader_of("orders")
        assert old is not None
        cluster.stop_broker(old)
        assert cluster.leader_of("orders") not in (old, None)
        assert produce(cluster, batch(b"a")).error_code == 0
        assert old not in cluster.partition("orders", 0).isr
        cluster.start_broker(old)
        assert old in cluster.partition("orders", 0).isr

    def test_nobody_leads_until_the_election(self) -> None:
        cluster = model()
        old = cluster.leader_of("orders")
        assert old is not None
        cluster.stop_broker(old, elect=False)
        assert cluster.leader_of("orders") is None
        cluster.elect_leaders()
        assert cluster.leader_of("orders") is not None

    def test_the_last_replica_stays_in_sync_and_leads_again(self) -> None:
        cluster = model(1)
        cluster.stop_broker(1)
        assert cluster.leader_of("orders") is None
        cluster.start_broker(1)
        assert cluster.leader_of("orders") == 1


def test_producer_ids_are_never_given_twice() -> None:
    cluster = model()
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
    given = [ask(Session(cluster, node), request).producer_id for node in (1, 2, 1, 3, 2)]
    assert len(set(given)) == 5


def test_one_seed_makes_one_cluster() -> None:
    """Ids and leaders depend only on the generator."""
    first, second = model(), model()
    assert first.topic("orders").topic_id == second.topic("orders").topic_id
    assert first.cluster_id == second.cluster_id
    assert send(Session(first, 1), topics_of("orders")) == send(Session(second, 1), topics_of("orders"))
