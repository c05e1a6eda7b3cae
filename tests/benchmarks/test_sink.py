"""The sink answers like a broker, and counts what a broker would store."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from aioproducer.protocol.api_versions import ApiVersionsRequest
from aioproducer.protocol.header import decode_response, encode_request
from aioproducer.protocol.init_producer_id import InitProducerIdRequest
from aioproducer.protocol.metadata import MetadataRequest, MetadataRequestTopic
from aioproducer.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from benchmarks.sink import Counts, Sink, running_sink

UNKNOWN_TOPIC_OR_PARTITION = 3
UNSUPPORTED_VERSION = 35
HEADER = struct.Struct(">qiibIhiqqqhii")


def batch(records: int, *, codec: int = 0, sequence: int = 0, producer_id: int = 7, magic: int = 2) -> bytes:
    """A record batch as far as the sink reads it: the header, then padding."""
    body = b"x" * 40
    size = HEADER.size - 12 + len(body)
    return HEADER.pack(0, size, -1, magic, 0, codec, records - 1, 0, 0, producer_id, 0, sequence, records) + body


class Wire:
    """A connection to a sink."""

    def __init__(self, sink: Sink) -> None:
        host, _, port = sink.bootstrap.partition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=10)
        self.file = self.socket.makefile("rb")

    def ask(self, request: Any, version: int) -> Any:
        self.socket.sendall(encode_request(request, version, 42, "test"))
        frame = self.answer()
        assert frame[:4] == struct.pack(">i", 42)
        return decode_response(type(request), version, frame)

    def answer(self) -> bytes:
        return self.file.read(struct.unpack(">i", self.file.read(4))[0])

    def topic_id(self, topic: str) -> bytes:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        return bytes(self.ask(asked, 12).topics[0].topic_id)

    def produce(self, version: int, records: bytes, *, partition: int = 0, acks: int = -1) -> Any:
        data = PartitionProduceData(index=partition, records=records)
        names = {"topic_id": self.topic_id("orders")} if version >= 13 else {"name": "orders"}
        topic = TopicProduceData(partition_data=[data], **names)
        request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic])
        if acks == 0:
            self.socket.sendall(encode_request(request, version, 42, "test"))
            return None
        return self.ask(request, version).responses[0].partition_responses[0]


@contextmanager
def connected(**options: int) -> Iterator[tuple[Sink, Wire]]:
    with running_sink(**options) as sink:
        wire = Wire(sink)
        with wire.socket, wire.file:
            yield sink, wire


def counts(sink: Sink) -> Counts:
    assert sink.counts is not None
    return sink.counts


@pytest.mark.parametrize("version", range(5))
def test_api_versions_offers_what_librdkafka_wants_before_it_writes_batches_of_format_2(version: int) -> None:
    with connected() as (_, wire):
        offered = {
            api.api_key: (api.min_version, api.max_version) for api in wire.ask(ApiVersionsRequest(), version).api_keys
        }
    assert offered[0][1] == 13
    assert offered[1][0] <= 4 <= offered[1][1]
    assert offered[10][0] == 0
    assert {3, 18, 22} <= offered.keys()


def test_an_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    with connected() as (_, wire):
        frame = bytearray(encode_request(ApiVersionsRequest(), 4, 42, "test"))
        frame[6:8] = struct.pack(">h", 9)
        wire.socket.sendall(frame)
        answer = decode_response(ApiVersionsRequest, 0, wire.answer())
    assert answer.error_code == UNSUPPORTED_VERSION
    assert [(api.api_key, api.max_version) for api in answer.api_keys] == [(18, 4)]


@pytest.mark.parametrize("version", range(4, 14))
def test_metadata_gives_every_topic_six_partitions_on_one_node(version: int) -> None:
    with connected() as (sink, wire):
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="orders"), MetadataRequestTopic(name="users")])
        answer = wire.ask(asked, version)
        everything = wire.ask(MetadataRequest(topics=None), version)
    (node,) = answer.brokers
    assert f"{node.host}:{node.port}" == sink.bootstrap
    assert [topic.name for topic in answer.topics] == ["orders", "users"]
    assert everything.topics == answer.topics
    for topic in answer.topics:
        assert topic.error_code == 0
        assert [partition.partition_index for partition in topic.partitions] == list(range(6))
        assert {partition.leader_id for partition in topic.partitions} == {node.node_id}
        assert {tuple(partition.isr_nodes) for partition in topic.partitions} == {(node.node_id,)}


def test_metadata_finds_topics_by_id_and_knows_no_others() -> None:
    with connected() as (_, wire):
        known = wire.topic_id("orders")
        ids = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in (known, b"?" * 16)]
        found, unknown = wire.ask(MetadataRequest(topics=ids), 12).topics
    assert (found.name, found.error_code) == ("orders", 0)
    assert (unknown.name, unknown.error_code) == (None, UNKNOWN_TOPIC_OR_PARTITION)


@pytest.mark.parametrize("version", range(6))
def test_every_producer_gets_an_id_of_its_own(version: int) -> None:
    with connected() as (_, wire):
        first, second = (
            wire.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), version)
            for _ in range(2)
        )
    assert first.error_code == 0
    assert first.producer_epoch == 0
    assert 0 <= first.producer_id < second.producer_id


@pytest.mark.parametrize("version", range(3, 14))
def test_records_are_counted_by_codec_and_get_offsets(version: int) -> None:
    with connected() as (sink, wire):
        first = wire.produce(version, batch(30))
        second = wire.produce(version, batch(12, codec=3, sequence=30))
        elsewhere = wire.produce(version, batch(5, codec=4), partition=5)
    assert [(answer.error_code, answer.base_offset) for answer in (first, second, elsewhere)] == [
        (0, 0),
        (0, 30),
        (0, 0),
    ]
    seen = counts(sink)
    assert (seen.records, seen.batches) == (47, 3)
    assert seen.records_by_codec == {"none": 30, "lz4": 12, "zstd": 5}
    assert (seen.old_format, seen.sequence_errors, seen.broken_frames) == (0, 0, 0)
    assert seen.record_bytes == 3 * len(batch(1))


def test_acks_0_is_counted_and_not_answered() -> None:
    with connected() as (sink, wire):
        wire.produce(9, batch(30), acks=0)
        wire.produce(9, batch(1, sequence=30))
    assert counts(sink).records == 31


def test_a_partition_that_is_not_there_is_refused() -> None:
    with connected() as (sink, wire):
        answer = wire.produce(9, batch(3), partition=6)
    assert answer.error_code == UNKNOWN_TOPIC_OR_PARTITION
    assert counts(sink).records == 0


def test_a_gap_in_the_sequences_is_seen() -> None:
    with connected() as (sink, wire):
        wire.produce(9, batch(10))
        wire.produce(9, batch(10, sequence=11))
    assert counts(sink).sequence_errors == 1
    assert "sequence_errors = 1" in counts(sink).problems("none", 20)


def test_sequences_wrap_around() -> None:
    with connected() as (sink, wire):
        wire.produce(9, batch(2**31 - 5, codec=0))
        wire.produce(9, batch(10, sequence=2**31 - 5))
        wire.produce(9, batch(10, sequence=5))
    assert counts(sink).sequence_errors == 0


def test_a_new_producer_starts_at_sequence_0() -> None:
    with connected() as (sink, wire):
        wire.produce(9, batch(10, producer_id=7))
        wire.produce(9, batch(10, producer_id=8))
    assert counts(sink).sequence_errors == 0


@pytest.mark.parametrize("records", [batch(4, magic=1), batch(4)[:-1], b"short"])
def test_what_is_not_a_batch_of_format_2_is_seen(records: bytes) -> None:
    with connected() as (sink, wire):
        wire.produce(9, records)
    assert (counts(sink).records, counts(sink).old_format) == (0, 1)


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(struct.pack(">i", -1), id="negative size"),
        pytest.param(struct.pack(">i", 4) + b"\0\0\0\3", id="header cut off"),
        pytest.param(struct.pack(">ihhih", 10, 1, 12, 1, -1), id="an API that is only offered"),
        pytest.param(struct.pack(">ihhihi", 14, 3, 4, 1, -1, 2**31 - 1), id="a count beyond the frame"),
    ],
)
def test_a_broken_request_ends_its_connection_only(frame: bytes) -> None:
    with connected() as (sink, wire):
        other = Wire(sink)
        with other.socket, other.file:
            other.socket.sendall(frame)
            assert other.file.read() == b""
        wire.produce(9, batch(1))
    assert (counts(sink).broken_frames, counts(sink).records) == (1, 1)


def test_a_client_that_leaves_before_its_answers_has_broken_nothing() -> None:
    frame = encode_request(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), 12, 42, "test")
    with connected() as (sink, wire):
        other = Wire(sink)
        other.socket.sendall(frame * 300)
        other.file.close()
        other.socket.close()
        wire.produce(9, batch(1))
    assert (counts(sink).broken_frames, counts(sink).records) == (0, 1)


def test_requests_arriving_in_pieces_and_together_are_all_answered() -> None:
    frame = encode_request(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), 12, 42, "test")
    with connected() as (sink, wire):
        for byte in frame:
            wire.socket.sendall(bytes([byte]))
        first = wire.answer()
        wire.socket.sendall(frame * 300)
        assert {wire.answer() for _ in range(300)} == {first}
    assert counts(sink).requests == 301


def test_late_answers_come_in_order_and_hold_up_no_request() -> None:
    """Also while a client leaves that some are meant for."""
    delay_s, asked = 0.05, MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
    with connected(answer_delay_ms=round(delay_s * 1000)) as (sink, wire):
        other = Wire(sink)
        began_s = time.monotonic()
        for number in range(300):
            other.socket.sendall(encode_request(asked, 12, number, "test"))
            wire.socket.sendall(encode_request(asked, 12, number, "test"))
        other.file.close()
        other.socket.close()
        assert [int.from_bytes(wire.answer()[:4]) for _ in range(300)] == list(range(300))
        assert time.monotonic() - began_s >= delay_s
    assert counts(sink).broken_frames == 0


def test_a_few_batches_left_uncompressed_are_no_problem_but_another_codec_is() -> None:
    def seen(**by_codec: int) -> list[str]:
        records = sum(by_codec.values())
        return Counts(records, 1, 1, 1, 1, by_codec, 0, 0, 0, 0, 0.0).problems("lz4", records)

    assert seen(lz4=1000) == []
    assert seen(lz4=995, none=5) == []
    assert seen(lz4=900, none=100) != []
    assert seen(lz4=999, zstd=1) != []
