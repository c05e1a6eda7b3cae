"""Talking to the cluster model without sockets: requests go in as bytes, answers come out as bytes."""

from __future__ import annotations

import random
from typing import Any

from aioproducer.protocol.header import decode_response, encode_request
from aioproducer.protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from aioproducer.protocol.schema import R, Request
from aioproducer.testing.fake import Answer, ClusterModel, Session
from tests.reference import record_batch as reference
from tests.reference.record_batch import PlainRecord

NOW_MS = 1_700_000_000_000


def model(brokers: int = 3, **options: Any) -> ClusterModel:
    """A cluster with one topic, "orders", of two partitions."""
    cluster = ClusterModel(brokers=brokers, rng=random.Random(1), **options)
    cluster.create_topic("orders", 2)
    return cluster


def leader_session(cluster: ClusterModel, topic: str = "orders", partition: int = 0) -> Session:
    """A connection to the leader of a partition."""
    leader = cluster.leader_of(topic, partition)
    assert leader is not None
    return Session(cluster, leader)


def send(session: Session, request: Request[Any], version: int | None = None, *, now_ms: int = NOW_MS) -> Answer:
    """Send one request and return the broker's reaction."""
    frame = encode_request(request, request.MAX_VERSION if version is None else version, 7, "tests")
    (received,) = session.feed(frame)
    return session.apply(received, now_ms)


def ask(session: Session, request: Request[R], version: int | None = None, *, now_ms: int = NOW_MS) -> R:
    """Send one request and read the answer."""
    answer = send(session, request, version, now_ms=now_ms)
    assert answer.frame is not None
    assert int.from_bytes(answer.frame[4:8], "big") == 7
    return decode_response(type(request), request.MAX_VERSION if version is None else version, answer.frame[4:])


def batch(*values: bytes, producer: tuple[int, int, int] = (-1, -1, -1), **options: Any) -> bytes:
    """A record batch; ``producer`` is its id, epoch and base sequence."""
    records = [PlainRecord(NOW_MS + number, b"k", value) for number, value in enumerate(values or (b"v",))]
    producer_id, epoch, sequence = producer
    return reference.encoded(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **options)


def produce_request(
    cluster: ClusterModel, records: bytes | None, topic: str = "orders", partition: int = 0, *, acks: int = -1
) -> ProduceRequest:
    """A request with one batch, which can be sent in every version."""
    known = cluster.topics.get(topic)
    data = TopicProduceData(
        name=topic,
        topic_id=known.topic_id if known else bytes(range(16)),
        partition_data=[PartitionProduceData(index=partition, records=records)],
    )
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data])


def produce(
    cluster: ClusterModel,
    records: bytes | None,
    topic: str = "orders",
    partition: int = 0,
    *,
    version: int = 13,
    acks: int = -1,
    now_ms: int = NOW_MS,
    session: Session | None = None,
) -> PartitionProduceResponse:
    """Send one batch to its leader and return its result."""
    session = session or leader_session(cluster, topic, partition)
    request = produce_request(cluster, records, topic, partition, acks=acks)
    (answered,) = ask(session, request, version, now_ms=now_ms).responses
    (result,) = answered.partition_responses
    return result
