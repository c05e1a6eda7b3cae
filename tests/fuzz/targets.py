"""Every reader of untrusted bytes, with the errors that it may raise and the checks of its result.

The first bytes of an input choose the variant (API, version, codec, ...), the rest is what is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import re
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from crc32c import crc32c

from aioproducer import _produce, _record_batch, compression
from aioproducer.compression import Codec
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.config.properties import parse_properties
from aioproducer.errors import BrokerError, ConfigError, KafkaError, ProtocolError
from aioproducer.metrics import ProducerMetrics
from aioproducer.net.connection import Connection
from aioproducer.protocol import header
from aioproducer.protocol.produce import ProduceRequest
from aioproducer.protocol.produce import ProduceResponse as SchemaProduceResponse
from aioproducer.protocol.schema import Request
from aioproducer.testing.fake import batches
from tests.fuzz import security_targets
from tests.fuzz.target import Target
from tests.fuzz.transport import SilentTransport

GOLDEN = Path(__file__).parents[1] / "golden"
LIMIT_BYTES = 1 << 16
"""The limit for decompressed data; in reality it is the size of a batch."""
APIS = (
    "AddOffsetsToTxn", "AddPartitionsToTxn", "ApiVersions", "EndTxn", "FindCoordinator", "GetTelemetrySubscriptions",
    "InitProducerId", "Metadata", "Produce", "PushTelemetry", "SaslAuthenticate", "SaslHandshake", "TxnOffsetCommit",
    "DescribeTransactions", "ListTransactions", "DescribeConfigs", "ListOffsets",
)  # fmt: skip
"""Inputs choose an API by its index here: add new ones at the end."""
BATCH_HEADER_BYTES = 61
MAX_OFFSET = 0x7FFFFFFF00000000
"""The largest base offset that leaves room for those of a batch's records."""
NOW_MS = 1_700_000_000_000


# --- protocol ---------------------------------------------------------------------------------------------------------


def module_name(api: str) -> str:
    """Where an API's messages are declared."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", api).lower()


@cache
def request_class(api: str) -> type[Request[Any]]:
    """The class of an API's requests."""
    module = importlib.import_module(f"aioproducer.protocol.{module_name(api)}")
    found: type[Request[Any]] = getattr(module, f"{api}Request")
    return found


def version_of(request: type[Request[Any]], byte: int) -> int:
    """A version for any byte; supported versions stand for themselves."""
    versions = request.MAX_VERSION - request.MIN_VERSION + 1
    return request.MIN_VERSION + (byte - request.MIN_VERSION) % versions


def read_response(data: bytes) -> None:
    """Any response: reading in steps gives the same result, and so does writing and reading it again."""
    if len(data) < 2:
        return
    request = request_class(APIS[data[0] % len(APIS)])
    version, body = version_of(request, data[1]), data[2:]
    try:
        whole = request.RESPONSE.decode(body, version)
    except ProtocolError:
        whole = None
    try:
        in_steps = exhausted(request.RESPONSE.decode_in_steps(body, version, budget_bytes=16))
    except ProtocolError:
        assert whole is None
        raise
    assert whole == in_steps
    if whole is not None and request is not request_class("ApiVersions"):  # whose answer may be in version 0
        assert request.RESPONSE.decode(whole.encode(version), version) == whole


def exhausted(steps: Iterator[None]) -> object:
    """A generator's return value."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def read_produce_response(data: bytes) -> None:
    """The compiled decoder accepts and refuses the same as the schema's, with the same results."""
    if not data:
        return
    version, frame = version_of(ProduceRequest, data[0]), data[1:]
    try:
        schema = header.decode_response(ProduceRequest, version, frame)
    except ProtocolError:
        schema = None
    if schema is not None and any(
        one.base_offset > MAX_OFFSET for topic in schema.responses for one in topic.partition_responses
    ):
        schema = None  # only the compiled decoder looks at that
    try:
        compiled = _produce.decode_produce_response(version, frame)
    except ProtocolError:
        assert schema is None, "only the schema takes it"
        raise
    assert schema is not None, "only the compiled decoder takes it"
    assert summary(compiled) == schema_summary(schema, version)


def summary(response: _produce.ProduceResponse) -> list[tuple[object, ...]]:
    """The values that a sender uses."""
    return [
        *(
            (one.topic, one.partition, one.error_code, one.base_offset, one.log_append_time_ms, one.leader_id,
             one.leader_epoch, one.error_message)
            for one in response.partitions
        ),
        (response.throttle_time_ms, sorted(map(repr, response.node_endpoints))),
    ]  # fmt: skip


def schema_summary(response: SchemaProduceResponse, version: int) -> list[tuple[object, ...]]:
    """The same values from the schema's class."""
    return [
        *(
            (topic.topic_id if version >= 13 else topic.name, one.index, one.error_code, one.base_offset,
             one.log_append_time_ms, one.current_leader.leader_id, one.current_leader.leader_epoch, one.error_message)
            for topic in response.responses
            for one in topic.partition_responses
        ),
        (
            response.throttle_time_ms,
            sorted(repr((one.node_id, one.host, one.port, one.rack)) for one in response.node_endpoints),
        ),
    ]  # fmt: skip


def read_header(data: bytes) -> None:
    """A response's header, of both kinds."""
    if data:
        _, at = header.read_response_header(data[1:], bool(data[0] & 1))
        assert 4 <= at <= len(data) - 1


def read_frames(data: bytes) -> None:
    """A stream of answers, read by a connection: only the connection ends with an error."""
    asyncio.run(read_stream(data))


async def read_stream(data: bytes) -> None:
    """Feed a connection these bytes; its requests are answered or fail, its task ends without an error."""
    loop = asyncio.get_running_loop()
    errors: list[object] = []
    loop.set_exception_handler(lambda _, context: errors.append(context))
    reader = asyncio.StreamReader()
    transport = SilentTransport()
    writer = asyncio.StreamWriter(transport, asyncio.StreamReaderProtocol(reader), reader, loop)
    connection = Connection(
        reader, writer, transport=transport, node_id=1, host="host", address="127.0.0.1", port=9092, config=CONFIG,
        loop=loop, on_internal_error=errors.append, metrics=ProducerMetrics(),
    )  # fmt: skip
    answers: list[asyncio.Future[object]] = [loop.create_future() for _ in range(3)]
    for number, answer in enumerate(answers):
        connection.send_frame([bytes(4)], number, 0, 10_000, answer.set_result, answer.set_result)
    for start in range(0, len(data), 7):  # in pieces, as a network would
        reader.feed_data(data[start : start + 7])
        await asyncio.sleep(0)
    reader.feed_eof()
    ended = await asyncio.wait_for(asyncio.gather(*answers), 10)
    assert all(isinstance(one, bytes | KafkaError) for one in ended)
    connection.abort()
    await connection.wait_closed()
    assert not errors, errors


CONFIG = ProducerConfig.parse({"bootstrap_servers": "host:9092"})


def responses() -> Iterator[dict[str, Any]]:
    """Responses made by Kafka's own classes."""
    yield from json.loads((GOLDEN / "responses.json").read_text())["responses"]


def response_seeds() -> Iterator[bytes]:
    for one in responses():
        if one["api"] in APIS:
            yield bytes([APIS.index(one["api"]), one["version"]]) + bytes.fromhex(one["body_hex"])


def produce_response_seeds() -> Iterator[bytes]:
    for one in responses():
        if one["api"] == "Produce":
            yield bytes([one["version"]]) + bytes.fromhex(one["header_hex"] + one["body_hex"])


def header_seeds() -> Iterator[bytes]:
    for one in responses():
        yield bytes([one["header_version"]]) + bytes.fromhex(one["header_hex"])


def frame_seeds() -> Iterator[bytes]:
    for size in 4, 5, 100:
        yield b"".join(struct.pack(">ii", size, number) + bytes(size - 4) for number in range(3))
    yield struct.pack(">i", 3)
    yield struct.pack(">i", -1)
    yield struct.pack(">i", 0x7FFFFFFF)


# --- records ----------------------------------------------------------------------------------------------------------


def read_records(data: bytes) -> None:
    """The records section of a batch that is to be split."""
    if len(data) < 4:
        return
    (count,) = struct.unpack_from(">i", data)
    records = _record_batch.split_records(data[4:], count)
    assert len(records) == max(count, 0)


def read_batch(data: bytes) -> None:
    """A batch as read by the fake cluster; its checksum is corrected, or nothing after it would be read."""
    if len(data) > BATCH_HEADER_BYTES:
        data = b"".join((data[:17], crc32c(data[21:]).to_bytes(4, "big"), data[21:]))
    batches.check_frame(data, 9)
    batches.read_batch(data, batches.BatchLimits(), NOW_MS)


def golden_batches() -> Iterator[tuple[dict[str, Any], bytes]]:
    for one in json.loads((GOLDEN / "manifest.json").read_text())["batches"]:
        data = (GOLDEN / one["file"]).read_bytes()
        if len(data) < 2_000:
            yield one, data


def record_seeds() -> Iterator[bytes]:
    for one, data in golden_batches():
        if one["codec"] == "none":
            yield data[57:]  # the count and the records after it


def batch_seeds() -> Iterator[bytes]:
    for _, data in golden_batches():
        yield data


# --- compression ------------------------------------------------------------------------------------------------------

CODECS: tuple[Codec, ...] = tuple(compression.codec_by_attribute(bits) for bits in range(5))


def decompress(data: bytes) -> None:
    """Each codec, within a limit."""
    if data:
        assert len(CODECS[data[0] % len(CODECS)].decompress(data[1:], LIMIT_BYTES)) <= LIMIT_BYTES


def compressed_seeds() -> Iterator[bytes]:
    for codec in CODECS:
        for plain in b"", b"short", bytes(range(256)) * 3, bytes(LIMIT_BYTES), bytes(LIMIT_BYTES + 1):
            yield bytes([codec.attribute]) + codec.compress(plain)


# --- configs ----------------------------------------------------------------------------------------------------------


def read_properties(data: bytes) -> None:
    """A .properties file, and the configs in it."""
    values = parse_properties(data.decode("latin-1"))
    assert all(isinstance(name, str) and isinstance(value, str) for name, value in values.items())
    with contextlib.suppress(ConfigError):
        repr(ProducerConfig.parse_dotted(values))


def property_seeds() -> Iterator[bytes]:
    for one in json.loads((GOLDEN / "properties.json").read_text())["cases"]:
        yield one["text"].encode("latin-1", "replace")
    for one in json.loads((GOLDEN / "producer_config.json").read_text())["configs"]:
        yield f"bootstrap.servers=host:9092\n{one['name']}={one['default']}".encode("latin-1", "replace")
    yield b"bootstrap.servers=a:1,[::1]:2\nacks=all\ncompression.type=zstd\nlinger.ms=5\n"


TARGETS = (
    Target("responses", read_response, (ProtocolError,), response_seeds),
    Target("produce-response", read_produce_response, (ProtocolError,), produce_response_seeds),
    Target("response-header", read_header, (ProtocolError,), header_seeds),
    Target("frames", read_frames, (), frame_seeds, share=0.05),
    Target("records", read_records, (ProtocolError,), record_seeds),
    # Two decompressors reserve memory up to their limit, but touch only what they need.
    Target("record-batch", read_batch, (BrokerError, batches.RefusedRecordsError), batch_seeds,
           lambda size: batches.MAX_SECTION_BYTES + 2_000 * size),
    Target("decompress", decompress, (ProtocolError,), compressed_seeds, lambda size: 4 * LIMIT_BYTES + 8 * size),
    Target("properties", read_properties, (ValueError,), property_seeds, share=0.2),
    *security_targets.TARGETS,
)  # fmt: skip


def target(name: str) -> Target:
    """The target with this name."""
    return next(one for one in TARGETS if one.name == name)
