"""Produce requests and answers of the compiled core against Kafka's bytes and against the schema."""

from __future__ import annotations

import base64
import json
import re
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aioproducer import _produce
from aioproducer._accumulator import RecordAccumulator
from aioproducer._produce import decode_produce_response, encode_produce_request, match_answers, topic_names
from aioproducer._producer_batch import ProducerBatch, TopicQueues
from aioproducer.compression import codec_by_attribute
from aioproducer.errors import ProtocolError
from aioproducer.protocol import produce as schema
from aioproducer.protocol.header import decode_response, encode_request
from tests.reference import record_batch as reference
from tests.unit.core import TOPIC_ID, batch_bytes, drain_all, make_accumulator, put, without_allocation

GOLDEN = Path(__file__).parents[1] / "golden"
VERSIONS = range(schema.ProduceRequest.MIN_VERSION, schema.ProduceRequest.MAX_VERSION + 1)
HEADER_BYTES = 61
TRANSACTIONAL = 0x10


def golden(kind: str) -> list[Any]:
    entries = json.loads((GOLDEN / f"{kind}s.json").read_text())[f"{kind}s"]
    return [
        pytest.param(entry, id=f"{entry['name']}-v{entry['version']}") for entry in entries if entry["api"] == "Produce"
    ]


def uuid(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")


class Place(NamedTuple):
    """Where a batch goes, and how large the values of its records are."""

    topic: str
    partition: int
    sizes: Sequence[int] = (1,)


def batches_at(places: Sequence[Place], *, ids: Mapping[str, bytes] | None = None) -> list[ProducerBatch]:
    """One batch per place, in this order."""
    accumulator = make_accumulator(batch_size=4 << 20, buffer_memory=64 << 20)
    for name in {place.topic for place in places}:
        count = 1 + max(place.partition for place in places if place.topic == name)
        accumulator.update_topic(name, TOPIC_ID if ids is None else ids[name], [(1, 0)] * count)
    for name, partition, sizes in places:
        topic = accumulator.topic(name)
        assert topic is not None
        for size in sizes:
            put(accumulator, topic, bytes(size), partition=partition)
    found = {(batch.topic, batch.partition): batch for batch in drain_all(accumulator)}
    return [found[place.topic, place.partition] for place in places]


def kafkas_batch(topic: TopicQueues, accumulator: RecordAccumulator, partition: int, data: bytes) -> ProducerBatch:
    """One of Kafka's own batches, rebuilt from its records; compressed ones keep Kafka's compressed bytes."""
    told = reference.decoded(data)
    codec_bits = told.attributes & 7
    section = codec_by_attribute(codec_bits).decompress(told.section, 1 << 20) if codec_bits else told.section
    for record in reference.records_of(section, told.records_count, told.base_timestamp):
        put(
            accumulator,
            topic,
            record.value,
            key=record.key,
            headers=list(record.headers) or None,
            timestamp_ms=record.timestamp_ms,
            partition=partition,
        )
    (batch,) = drain_all(accumulator)
    if codec_bits:
        batch.seal(told.section, codec_bits)
    batch.set_producer_state(
        told.producer_id, told.producer_epoch, told.base_sequence, bool(told.attributes & TRANSACTIONAL)
    )
    return batch


def as_schema(
    transactional_id: str | None, acks: int, timeout_ms: int, batches: Sequence[ProducerBatch]
) -> schema.ProduceRequest:
    """The same request for the schema's encoder: partitions in order, grouped by topics in order of first mention."""
    topics: dict[str, list[ProducerBatch]] = {}
    for batch in batches:
        topics.setdefault(batch.topic, []).append(batch)
    return schema.ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            schema.TopicProduceData(
                name=name,
                topic_id=group[0].topic_id,
                partition_data=[
                    schema.PartitionProduceData(index=batch.partition, records=batch_bytes(batch)) for batch in group
                ],
            )
            for name, group in topics.items()
        ],
    )


# --- requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", golden("request"))
def test_request_is_kafkas(entry: dict[str, Any]) -> None:
    """Every golden request comes out byte for byte, frame size and header included."""
    fields = entry["fields"]
    contents = iter(re.findall(r"\w+\.bin", entry["note"]))
    accumulator = make_accumulator(batch_size=1 << 20, compresses=True)
    batches = []
    for number, told in enumerate(fields["topicData"]):
        name = told.get("name", f"topic {number}")
        accumulator.update_topic(name, uuid(told.get("topicId", "")), [(1, 0)] * 10)
        topic = accumulator.topic(name)
        assert topic is not None
        for partition in told["partitionData"]:
            data = (GOLDEN / next(contents)).read_bytes()
            batches.append(kafkas_batch(topic, accumulator, partition["index"], data))
    transactional_id = fields["transactionalId"]
    buffers = encode_produce_request(
        entry["version"],
        entry["correlation_id"],
        entry["client_id"].encode(),
        None if transactional_id is None else transactional_id.encode(),
        fields["acks"],
        fields["timeoutMs"],
        batches,
    )
    assert b"".join(buffers) == bytes.fromhex(entry["frame_hex"])
    assert next(contents, None) is None


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=100)
int32s = st.integers(-(2**31), 2**31 - 1)


@st.composite
def batch_lists(draw: st.DrawFn) -> list[ProducerBatch]:
    """Batches of some partitions of some topics, not always grouped by topic."""
    ids = dict(draw(st.lists(st.tuples(names, st.binary(min_size=16, max_size=16)), min_size=1, max_size=4)))
    sizes = st.lists(st.one_of(st.integers(0, 300), st.integers(0, 40_000)), min_size=1, max_size=4)
    places = st.builds(Place, st.sampled_from(sorted(ids)), st.integers(0, 200), sizes)
    some = draw(st.lists(places, min_size=1, max_size=8, unique_by=lambda place: place[:2]))
    return batches_at(some, ids=ids)


@settings(max_examples=150)
@given(
    st.sampled_from(VERSIONS),
    int32s,
    st.one_of(st.none(), names),
    st.one_of(st.none(), names),
    st.sampled_from([-1, 0, 1]),
    int32s,
    batch_lists(),
)
def test_request_is_the_schemas(
    version: int,
    correlation_id: int,
    client_id: str | None,
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
    batches: list[ProducerBatch],
) -> None:
    """Any request equals that of the schema's encoder for the same fields."""
    message = as_schema(transactional_id, acks, timeout_ms, batches)
    buffers = encode_produce_request(
        version,
        correlation_id,
        None if client_id is None else client_id.encode(),
        None if transactional_id is None else transactional_id.encode(),
        acks,
        timeout_ms,
        batches,
    )
    assert b"".join(buffers) == encode_request(message, version, correlation_id, client_id)


@pytest.mark.parametrize("version", VERSIONS)
def test_large_batches_are_not_copied(version: int) -> None:
    """None of their records are copied, and the rest of the request is small."""
    batches = batches_at([Place(name, partition, (20_000,)) for name in ("orders", "audit") for partition in (0, 1)])
    blocks = [part.obj for batch in batches for part in batch.payload() if isinstance(part, memoryview)]
    buffers = encode_produce_request(version, 5, b"client", None, -1, 30_000, batches)
    assert [part.obj for part in buffers if isinstance(part, memoryview)] == blocks
    assert sum(len(part) for part in buffers if isinstance(part, bytes)) < 600
    assert b"".join(buffers) == encode_request(as_schema(None, -1, 30_000, batches), version, 5, "client")


@pytest.mark.parametrize("version", VERSIONS)
def test_small_batches_share_buffers(version: int) -> None:
    """Small batches are copied, so that a request of many partitions has few buffers; large ones are not."""
    batches = batches_at([Place("t", at, (4088 if at in (3, 5) else 4087,)) for at in range(8)])
    assert {batch.size_bytes for batch in batches} == {4096, 4097}
    buffers = encode_produce_request(version, 1, b"c", None, 1, 2, batches)
    large = [batch.payload() for batch in batches if batch.partition in (3, 5)]
    assert [part for part in buffers if isinstance(part, memoryview)] == [part for parts in large for part in parts]
    assert len(buffers) == 3 + sum(len(parts) for parts in large)
    assert b"".join(buffers) == encode_request(as_schema(None, 1, 2, batches), version, 1, "c")


def test_small_blocks_of_a_large_batch_are_copied() -> None:
    """A batch begins with a small block, which would otherwise be a separate buffer in each request."""
    batches = batches_at([Place("t", at, (1000, 5000)) for at in range(8)])
    buffers = encode_produce_request(13, 1, b"c", None, 1, 2, batches)
    second = [batch.payload()[1] for batch in batches]
    assert [part for part in buffers if isinstance(part, memoryview)] == second
    assert len(buffers) == 1 + 2 * len(batches)
    assert b"".join(buffers) == encode_request(as_schema(None, 1, 2, batches), 13, 1, "c")


def test_small_batches_do_not_share_too_large_a_buffer() -> None:
    """A request of thousands of partitions needs no contiguous memory of its own size."""
    batches = batches_at([Place("t", partition, (1000,)) for partition in range(500)])
    buffers = encode_produce_request(13, 1, b"c", None, 1, 2, batches)
    assert len(buffers) == 9
    assert max(len(part) for part in buffers) < 70_000
    assert b"".join(buffers) == encode_request(as_schema(None, 1, 2, batches), 13, 1, "c")


def test_no_memory_for_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever allocation fails: the caller learns of it, and the request can be made later."""
    batches = batches_at([Place("t", partition, (1000,)) for partition in range(3)])
    lost: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)

    def request_without(allocation: int) -> list[Any] | None:
        try:
            return without_allocation(allocation, lambda: encode_produce_request(13, 1, b"c", None, 1, 2, batches))
        except MemoryError:
            return None

    allocation = 1
    while (buffers := request_without(allocation)) is None:
        allocation += 1
    assert allocation > 1
    assert lost == []
    assert b"".join(buffers) == encode_request(as_schema(None, 1, 2, batches), 13, 1, "c")


def test_batches_come_into_the_order_of_the_request() -> None:
    """The list that was encoded is in the order in which a broker answers."""
    batches = batches_at([Place(name, number) for number, name in enumerate("abacb")])
    encode_produce_request(9, 1, b"c", None, 1, 2, batches)
    assert [(batch.topic, batch.partition) for batch in batches] == [("a", 0), ("a", 2), ("b", 1), ("b", 4), ("c", 3)]


@pytest.mark.parametrize("edge", [127, 16383])
def test_compact_lengths_at_varint_edges(edge: int) -> None:
    """The length of a batch is right where its varint grows."""
    wire_sizes = set()
    for size in range(edge - HEADER_BYTES - 25, edge - HEADER_BYTES + 5):
        batches = batches_at([Place("t" * 127, 0, (1, size))])
        wire_sizes.add(batches[0].wire_bytes)
        for version in 8, 9, 13:
            buffers = encode_produce_request(version, 1, b"c", None, 1, 2, batches)
            assert b"".join(buffers) == encode_request(as_schema(None, 1, 2, batches), version, 1, "c")
    assert wire_sizes >= {edge - 1, edge}


# --- answers ----------------------------------------------------------------------------------------------------------


def answer_of(places: Sequence[tuple[str, int]]) -> list[_produce.PartitionProduceResponse]:
    """Decoded answers for these partitions; the offset is the index in the list."""
    body = struct.pack(">ii", 7, len(places))
    for offset, (name, partition) in enumerate(places):
        body += struct.pack(">h", len(name)) + name.encode()
        body += struct.pack(">iihqq", 1, partition, 0, offset, -1)
    return decode_produce_response(3, body + bytes(4)).partitions


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), unique=True, min_size=1, max_size=12).flatmap(
        lambda places: st.tuples(st.just(places), st.permutations(places))
    )
)
def test_answers_in_any_order(drawn: tuple[list[tuple[str, int]], list[tuple[str, int]]]) -> None:
    """Each batch gets its partition's answer, in any order; a missing one is an error, extra ones are ignored."""
    asked, answered = drawn
    batches = batches_at([Place(name, partition) for name, partition in asked])
    names = topic_names(batches, 12)
    for told in (asked, answered, [*answered, ("b", 9)]):
        found = match_answers(answer_of(told), batches, names)
        assert [(one.topic, one.partition) for one in found] == asked
        assert [told[one.base_offset] for one in found] == asked
    with pytest.raises(KeyError):
        match_answers(answer_of(answered[1:]), batches, names)
    with pytest.raises(KeyError):
        match_answers(answer_of([*answered[1:], ("b", 9)]), batches, names)


@pytest.mark.parametrize("again", [0, 1, 2])
def test_answers_twice_about_one_partition(again: int) -> None:
    """One may say that the batch was written, the other that it was not: they are an error unless they agree."""
    places = [("a", 0), ("a", 1), ("b", 0)]
    batches = batches_at([Place(name, partition) for name, partition in places])
    names = topic_names(batches, 12)
    for told in ([*places, places[again]], [places[again], *places[::-1]]):
        with pytest.raises(ProtocolError, match=f"of partition {places[again][1]} of one topic in two ways"):
            match_answers(answer_of(told), batches, names)
    answers = answer_of(places)
    assert match_answers([*answers, answer_of(places)[again]], batches, names) == answers


def test_answers_by_topic_id() -> None:
    """Topics are named as in the request."""
    answers = answer_of([("one", 0), ("two", 0)])
    batches = batches_at([Place("second", 0), Place("first", 0)])
    assert match_answers(answers, batches, ["two", "one"]) == answers[::-1]


def told(response: _produce.ProduceResponse) -> dict[str, Any]:
    """A decoded answer as plain values."""
    names = (
        "topic",
        "partition",
        "error_code",
        "base_offset",
        "log_append_time_ms",
        "log_start_offset",
        "record_errors",
        "error_message",
        "leader_id",
        "leader_epoch",
    )
    return {
        "partitions": [{name: getattr(each, name) for name in names} for each in response.partitions],
        "throttle_time_ms": response.throttle_time_ms,
        "node_endpoints": response.node_endpoints,
    }


def expected(response: schema.ProduceResponse, version: int) -> dict[str, Any]:
    """The same values from a message of the schema."""
    return {
        "partitions": [
            {
                "topic": topic.topic_id if version >= 13 else topic.name,
                "partition": each.index,
                "error_code": each.error_code,
                "base_offset": each.base_offset,
                "log_append_time_ms": each.log_append_time_ms,
                "log_start_offset": each.log_start_offset,
                "record_errors": (
                    [(error.batch_index, error.batch_index_error_message) for error in each.record_errors] or None
                )
                if version >= 8
                else None,
                "error_message": each.error_message,
                "leader_id": each.current_leader.leader_id,
                "leader_epoch": each.current_leader.leader_epoch,
            }
            for topic in response.responses
            for each in topic.partition_responses
        ],
        "throttle_time_ms": response.throttle_time_ms,
        "node_endpoints": [(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints],
    }


@pytest.mark.parametrize("entry", golden("response"))
def test_answer_of_kafka(entry: dict[str, Any]) -> None:
    """Every golden answer is decoded to its fields."""
    fields, version = entry["fields"], entry["version"]
    response = decode_produce_response(version, bytes.fromhex(entry["frame_hex"])[4:])
    assert told(response) == {
        "partitions": [
            {
                "topic": uuid(topic["topicId"]) if version >= 13 else topic["name"],
                "partition": each["index"],
                "error_code": each["errorCode"],
                "base_offset": each["baseOffset"],
                "log_append_time_ms": each["logAppendTimeMs"],
                "log_start_offset": each.get("logStartOffset", -1),
                "record_errors": (
                    [(error["batchIndex"], error["batchIndexErrorMessage"]) for error in each["recordErrors"]] or None
                )
                if version >= 8
                else None,
                "error_message": each.get("errorMessage"),
                "leader_id": each.get("currentLeader", {}).get("leaderId", -1),
                "leader_epoch": each.get("currentLeader", {}).get("leaderEpoch", -1),
            }
            for topic in fields["responses"]
            for each in topic["partitionResponses"]
        ],
        "throttle_time_ms": fields["throttleTimeMs"],
        "node_endpoints": [
            (node["nodeId"], node["host"], node["port"], node["rack"]) for node in fields.get("nodeEndpoints", [])
        ],
    }


int16s = st.integers(-(2**15), 2**15 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
offsets = st.integers(-(2**63), 2**63 - 2**32)
messages = st.one_of(st.none(), names)
partition_answers = st.builds(
    schema.PartitionProduceResponse,
    index=int32s,
    error_code=int16s,
    base_offset=offsets,
    log_append_time_ms=int64s,
    log_start_offset=int64s,
    record_errors=st.lists(
        st.builds(schema.BatchIndexAndErrorMessage, batch_index=int32s, batch_index_error_message=messages), max_size=3
    ),
    error_message=messages,
    current_leader=st.builds(schema.LeaderIdAndEpoch, leader_id=int32s, leader_epoch=int32s),
)
answers = st.builds(
    schema.ProduceResponse,
    responses=st.lists(
        st.builds(
            schema.TopicProduceResponse,
            name=names,
            topic_id=st.binary(min_size=16, max_size=16),
            partition_responses=st.lists(partition_answers, max_size=3),
        ),
        max_size=3,
    ),
    throttle_time_ms=int32s,
    node_endpoints=st.lists(
        st.builds(schema.NodeEndpoint, node_id=int32s, host=names, port=int32s, rack=messages), max_size=3
    ),
)


def frame_of(response: schema.ProduceResponse, version: int, header_tags: bytes = b"\0") -> bytes:
    return struct.pack(">i", 77) + (header_tags if version >= 9 else b"") + response.encode(version)


@settings(max_examples=150)
@given(st.sampled_from(VERSIONS), answers)
def test_answer_is_the_schemas(version: int, response: schema.ProduceResponse) -> None:
    """Any answer is decoded as by the schema's decoder; fields that the version lacks keep their defaults."""
    frame = frame_of(response, version)
    read = schema.ProduceResponse.decode(response.encode(version), version)
    assert told(decode_produce_response(version, frame)) == expected(read, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_offset_that_leaves_none_for_the_next_records_is_refused(version: int) -> None:
    answer = schema.PartitionProduceResponse(index=0, base_offset=2**63 - 1, log_append_time_ms=-1)
    topic = schema.TopicProduceResponse(name="orders" if version < 13 else "", partition_responses=[answer])
    frame = frame_of(schema.ProduceResponse(responses=[topic]), version)
    with pytest.raises(ProtocolError, match="offset 9223372036854775807"):
        decode_produce_response(version, frame)


def sample(version: int) -> bytes:
    """An answer with something in every field."""
    leader = schema.LeaderIdAndEpoch(leader_id=7, leader_epoch=12) if version >= 10 else schema.LeaderIdAndEpoch()
    errors = [schema.BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="bad")] if version >= 8 else []
    return frame_of(
        schema.ProduceResponse(
            responses=[
                schema.TopicProduceResponse(
                    name="orders" if version < 13 else "",
                    topic_id=TOPIC_ID if version >= 13 else bytes(16),
                    partition_responses=[
                        schema.PartitionProduceResponse(
                            index=index,
                            error_code=6,
                            base_offset=5,
                            log_append_time_ms=9,
                            log_start_offset=3,
                            record_errors=errors,
                            error_message="text" if version >= 8 else None,
                            current_leader=leader,
                        )
                        for index in range(2)
                    ],
                )
            ],
            throttle_time_ms=250,
            node_endpoints=[schema.NodeEndpoint(node_id=7, host="b7", port=9092, rack="r")] if version >= 10 else [],
        ),
        version,
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_answer_cut_short(version: int) -> None:
    """An answer that ends too early is refused, wherever it ends; one that goes on is not."""
    frame = sample(version)
    assert len(decode_produce_response(version, frame).partitions) == 2
    for size in range(len(frame)):
        with pytest.raises(ProtocolError):
            decode_produce_response(version, frame[:size])
    assert len(decode_produce_response(version, frame + b"\0").partitions) == 2


def both(version: int, frame: bytes) -> None:
    """The core refuses what the schema refuses, and decodes the rest alike."""
    try:
        response = told(decode_produce_response(version, frame))
    except ProtocolError:
        response = None
    try:
        answer = decode_response(schema.ProduceRequest, version, frame)
    except ProtocolError:
        assert response is None
    else:
        assert response == expected(answer, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_any_byte_wrong(version: int) -> None:
    """A wrong byte anywhere is refused, or changes a value, just as with the schema's decoder."""
    frame = sample(version)
    for at in range(len(frame)):
        for byte in (0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF):
            both(version, frame[:at] + bytes([byte]) + frame[at + 1 :])


@settings(max_examples=300)
@given(st.sampled_from(VERSIONS), st.binary(max_size=80))
@example(9, b"\0\0\0\1\0\xff\xff\xff\xff\x0f")
@example(9, b"\0\0\0\1\xff\xff\xff\xff\x0f")
@example(3, b"\0\0\0\1\x7f\xff\xff\xff")
@example(3, b"\0\0\0\1\xff\xff\xff\xff\0\0\0\0")
@example(3, b"\0\0\0\1\0\0\0\1\xff\xff\0\0\0\0\0\0\0\0")
@example(12, b"\0\0\0\1\0\1\0\0\0\0\1\0\x0c\2\0\0\0\1\0\0\0\0\1\0\0")
def test_random_answers(version: int, frame: bytes) -> None:
    """Random bytes cause only ProtocolError."""
    both(version, frame)


@pytest.mark.parametrize("length", [-(2**15), -2, 2**15 - 1])
def test_wrong_lengths_of_text(length: int) -> None:
    """Only -1 is null; any other negative length is refused, as is one beyond the end."""
    frame = sample(8)
    at = frame.index(b"\0\4text")
    both(8, frame[:at] + length.to_bytes(2, signed=True) + frame[at + 2 :])
    both(8, frame[:at] + length.to_bytes(2, signed=True) + frame[at + 6 :])


@settings(max_examples=200)
@given(st.sampled_from(VERSIONS), st.data())
def test_damaged_answers(version: int, data: st.DataObject) -> None:
    """Answers with pieces cut out, duplicated or replaced cause only ProtocolError."""
    frame = sample(version)
    start = data.draw(st.integers(0, len(frame)))
    stop = data.draw(st.integers(start, min(len(frame), start + 8)))
    both(version, frame[:start] + data.draw(st.binary(max_size=8)) + frame[stop:])


@pytest.mark.parametrize("version", [9, 12, 13])
def test_unknown_tags_are_skipped(version: int) -> None:
    """Tags of a newer broker in the header, a partition, a topic and the body are skipped (KIP-482)."""
    tag = b"\x01\x63\x03abc"
    topic = TOPIC_ID if version >= 13 else b"\x02t"
    partition = struct.pack(">ihqqq", 4, 0, 5, -1, 0) + b"\x01\x00"
    body = b"\x02" + topic + b"\x02" + partition + tag + tag + struct.pack(">i", 0) + tag
    response = decode_produce_response(version, struct.pack(">i", 1) + tag + body)
    assert [(each.partition, each.base_offset) for each in response.partitions] == [(4, 5)]


def test_tags_of_version_10_mean_nothing_in_9() -> None:
    """In version 9 the tags of leader hints and endpoints have no meaning."""
    frame = sample(10)
    both(9, frame)
    response = decode_produce_response(9, frame)
    assert response.node_endpoints == []
    assert {each.leader_id for each in response.partitions} == {-1}


@pytest.mark.parametrize("tags", [b"\x02\x00\x00\x00\x00", b"\x02\x63\x00\x63\x00", b"\x02\x63\x00\x62\x00"])
def test_tags_ascend(tags: bytes) -> None:
    """A duplicate tag, or one after a higher one, is refused, in the header and in each struct."""
    partition = struct.pack(">ihqqq", 4, 0, 5, -1, 0) + b"\x01\x00"
    for place in range(4):
        header, each, topic, body = (tags if place == number else b"\0" for number in range(4))
        frame = struct.pack(">i", 1) + header + b"\x02\x02t\x02" + partition + each + topic + bytes(4) + body
        both(9, frame)
        with pytest.raises(ProtocolError):
            decode_produce_response(9, frame)


def test_wrong_size_of_a_known_tag() -> None:
    """A leader hint or an endpoint list that does not have its declared length is refused."""
    partition = struct.pack(">ihqqq", 4, 6, 5, -1, 0) + b"\x01\x00"
    hint = struct.pack(">ii", 7, 12) + b"\0"
    for size, extra in (9, b""), (10, b"\0"), (8, b""):
        body = b"\x02\x02t\x02" + partition + b"\x01\x00" + bytes([size]) + hint + extra + b"\0" + bytes(4) + b"\0"
        frame = struct.pack(">i", 1) + b"\0" + body
        if size == 9:
            assert decode_produce_response(12, frame).partitions[0].leader_id == 7
        else:
            with pytest.raises(ProtocolError):
                decode_produce_response(12, frame)


@pytest.mark.parametrize("wrong", [None, "text", bytearray(8)])
def test_answer_is_bytes(wrong: Any) -> None:
    """Anything but bytes is a programming error, and raises one."""
    with pytest.raises(TypeError):
        decode_produce_response(9, wrong)
