"""Compiled declarations: round trips in every version, refusals, pauses, and decoders with hostile bytes."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import random
import re
import struct
import tracemalloc
import typing
from collections.abc import Iterator
from types import NoneType
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import aioproducer.protocol
from aioproducer.errors import ProtocolError, UnsupportedVersionError
from aioproducer.protocol.api_versions import ApiVersionsResponse
from aioproducer.protocol.end_txn import EndTxnRequest
from aioproducer.protocol.find_coordinator import FindCoordinatorRequest
from aioproducer.protocol.init_producer_id import InitProducerIdRequest
from aioproducer.protocol.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aioproducer.protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from aioproducer.protocol.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from aioproducer.protocol.schema import Int8, Int16, Int32, Int64, Message, Request, Struct, Uuid
from aioproducer.protocol.txn_offset_commit import TxnOffsetCommitRequest

for module in pkgutil.iter_modules(aioproducer.protocol.__path__):
    importlib.import_module(f"aioproducer.protocol.{module.name}")


def subclasses(base: type[Struct]) -> Iterator[type[Struct]]:
    for cls in base.__subclasses__():
        yield cls
        yield from subclasses(cls)


MESSAGES = sorted(
    # Classes that write themselves in another version than asked, as a broker may, have no schema.
    {cls for cls in subclasses(Message) if cls is not Request and "encode" not in vars(cls)},
    key=lambda cls: cls.__name__,
)
STRUCTS = sorted({cls for cls in subclasses(Struct) if cls not in (Message, Request)}, key=lambda cls: cls.__name__)

each_message = pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
in_few_examples = settings(max_examples=25)

NUMBERS = {Int8: 8, Int16: 16, Int32: 32, Int64: 64}


def values_of(hint: Any, version: int, nullable: bool) -> st.SearchStrategy[Any]:
    """Random values of an annotation."""
    arguments = typing.get_args(hint)
    if NoneType in arguments:
        (inner,) = (each for each in arguments if each is not NoneType)
        values = values_of(inner, version, nullable)
        return st.none() | values if nullable else values
    if hint in NUMBERS:
        limit = 2 ** (NUMBERS[hint] - 1)
        return st.integers(-limit, limit - 1)
    if hint == Uuid:
        return st.binary(min_size=16, max_size=16)
    if typing.get_origin(hint) is list:
        return st.lists(values_of(arguments[0], version, nullable=False), max_size=3)
    simple = {str: st.text(max_size=200), bytes: st.binary(max_size=200), bool: st.booleans()}
    return simple[hint] if hint in simple else structs(hint, version)


def structs(cls: type[Struct], version: int) -> st.SearchStrategy[Any]:
    """Random structs with the fields that a version has."""
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = {}
    for each in dataclasses.fields(cls):
        rules = each.metadata.get("rules")
        if rules is None or rules.cover(version):
            nullable = rules is None or version >= rules.nullable_since
            fields[each.name] = values_of(hints[each.name], version, nullable)
    return st.builds(cls, **fields)


@st.composite
def encoded(draw: st.DrawFn, cls: type[Message]) -> tuple[Message, int, bytes]:
    version = draw(st.integers(cls.MIN_VERSION, cls.MAX_VERSION))
    message = draw(structs(cls, version))
    # Error 35 is answered in version 0 whatever was asked; test_api_versions.py tests that.
    assume(not (isinstance(message, ApiVersionsResponse) and message.error_code == 35))
    return message, version, message.encode(version)


def drained(steps: typing.Generator[None, None, Message]) -> tuple[Message, int]:
    """The message, and the number of pauses."""
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value, pauses
        pauses += 1


def large_metadata(topics: int, partitions: int) -> MetadataResponse:
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host="b1", port=9092)],
        topics=[
            MetadataResponseTopic(
                name=f"topic-{topic}",
                partitions=[
                    MetadataResponsePartition(partition_index=index, leader_id=1, replica_nodes=[1, 2], isr_nodes=[1])
                    for index in range(partitions)
                ],
            )
            for topic in range(topics)
        ],
    )


# --- declarations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", STRUCTS, ids=lambda cls: cls.__name__)
def test_fields_that_may_be_absent_have_defaults(cls: type[Struct]) -> None:
    """A version without the field, or a tag that was not sent, must leave a value behind."""
    for each in dataclasses.fields(cls):
        rules = each.metadata.get("rules")
        if rules and (rules.tag is not None or rules.since > 0 or rules.until < 0x7FFF):
            missing = (each.default, each.default_factory) == (dataclasses.MISSING, dataclasses.MISSING)
            assert not missing, each.name


@pytest.mark.parametrize("cls", STRUCTS, ids=lambda cls: cls.__name__)
def test_every_class_says_what_it_is(cls: type[Struct]) -> None:
    """dataclasses would otherwise put the signature there."""
    assert cls.__doc__
    assert not cls.__doc__.startswith(f"{cls.__name__}(")


@pytest.mark.parametrize(
    "message",
    [
        ProduceRequest(
            acks=1,
            timeout_ms=1,
            topic_data=[TopicProduceData(partition_data=[PartitionProduceData(index=0, records=b"SECRET")])],
        ),
        SaslAuthenticateRequest(auth_bytes=b"SECRET"),
        SaslAuthenticateResponse(auth_bytes=b"SECRET"),
    ],
)
def test_payloads_and_secrets_stay_out_of_the_repr(message: Message) -> None:
    """A logged message can't leak them."""
    assert "SECRET" not in repr(message)


@each_message
def test_every_field_has_a_wire_type(cls: type[Message]) -> None:
    """All versions can be compiled, each only once."""
    for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
        assert cls._codec(version) is cls._codec(version)


@each_message
def test_other_versions_are_a_callers_error(cls: type[Message]) -> None:
    """An unsupported version is neither written nor read."""
    for version in cls.MIN_VERSION - 1, cls.MAX_VERSION + 1:
        with pytest.raises(ValueError, match="is spoken in"):
            cls.decode(b"", version)
        with pytest.raises(ValueError, match="is spoken in"):
            cls.encode(object.__new__(cls), version)


# --- round trips ------------------------------------------------------------------------------------------------------


@each_message
@given(data=st.data())
@in_few_examples
def test_round_trip(cls: type[Message], data: st.DataObject) -> None:
    """Messages are read back as written, in one go and in steps, in every version."""
    message, version, body = data.draw(encoded(cls))
    assert cls.decode(body, version) == message
    assert cls.decode(memoryview(body), version) == message
    assert drained(cls.decode_in_steps(body, version, budget_bytes=1))[0] == message


def test_values_of_other_versions_are_left_at_their_defaults() -> None:
    """An ignorable field is dropped by a version that does not have it."""
    partition = PartitionProduceResponse(index=1, base_offset=5, log_start_offset=3, error_message="no")
    answer = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[partition])])
    (topic,) = ProduceResponse.decode(answer.encode(3), 3).responses
    assert topic.partition_responses == [PartitionProduceResponse(index=1, base_offset=5)]


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1, producer_id=7, producer_epoch=1), 2),
        (FindCoordinatorRequest(key="t", key_type=1), 0),
        (FindCoordinatorRequest(coordinator_keys=["a", "b"], key_type=1), 3),
        (MetadataRequest(topics=None, include_topic_authorized_operations=True), 7),
        (
            TxnOffsetCommitRequest(
                transactional_id="t", group_id="g", producer_id=1, producer_epoch=0, member_id="m", topics=[]
            ),
            2,
        ),
    ],
)
def test_a_version_that_would_lose_what_was_asked_is_refused(message: Message, version: int) -> None:
    """Fields that matter must not get lost: the broker would act on half of the request."""
    with pytest.raises(UnsupportedVersionError, match=f"in version {version}"):
        message.encode(version)


@pytest.mark.parametrize(
    "message",
    [
        EndTxnRequest(transactional_id="t", producer_id=2**63, producer_epoch=0, committed=True),
        EndTxnRequest(transactional_id="t", producer_id=0, producer_epoch=40_000, committed=True),
        EndTxnRequest(transactional_id="x" * 32_768, producer_id=0, producer_epoch=0, committed=True),
        EndTxnRequest(transactional_id="\ud800", producer_id=0, producer_epoch=0, committed=True),
        EndTxnRequest(transactional_id=typing.cast(str, None), producer_id=0, producer_epoch=0, committed=True),
        EndTxnRequest(transactional_id=typing.cast(str, 5), producer_id=0, producer_epoch=0, committed=True),
        EndTxnRequest(transactional_id="t", producer_id=typing.cast(int, "1"), producer_epoch=0, committed=True),
    ],
)
def test_values_that_do_not_fit(message: Message) -> None:
    """A value of the wrong type or size is refused as a ProtocolError that names message and version."""
    with pytest.raises(ProtocolError, match="EndTxnRequest can't be written in version 2"):
        message.encode(2)


def test_null_before_the_version_that_allows_it() -> None:
    """Kafka made some fields nullable later than others."""
    by_id = MetadataRequest(topics=[MetadataRequestTopic(topic_id=bytes(range(16)), name=None)])
    assert MetadataRequest.decode(by_id.encode(12), 12) == by_id
    with pytest.raises(ProtocolError, match="null"):
        by_id.encode(9)


# --- pauses -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [8, 12])
@pytest.mark.parametrize("shape", [(300, 10), (1, 3_000)], ids=["many topics", "many partitions"])
def test_steps_are_short(version: int, shape: tuple[int, int]) -> None:
    """A huge answer is read with a pause after each budget, even within one huge topic."""
    message = large_metadata(*shape)
    body = message.encode(version)
    read, pauses = drained(MetadataResponse.decode_in_steps(body, version, budget_bytes=1_000))
    assert read == message
    assert len(body) // 1_100 <= pauses <= len(body) // 1_000


def test_small_messages_need_no_pause() -> None:
    """Below the budget the reader runs through."""
    body = large_metadata(1, 3).encode(12)
    assert drained(MetadataResponse.decode_in_steps(body, 12))[1] == 0


def test_steps_can_be_given_up() -> None:
    """Closing the reader in the middle is no error."""
    steps = MetadataResponse.decode_in_steps(large_metadata(10, 10).encode(12), 12, budget_bytes=100)
    next(steps)
    steps.close()


# --- hostile bytes ----------------------------------------------------------------------------------------------------


PYTHONS_WORDS = re.compile("requires a buffer|out of range")
"""Python's own messages about short data, which would not help a user to diagnose a cluster."""


def read_or_refused(cls: type[Message], body: bytes, version: int) -> Message | None:
    """The message, or None for a ProtocolError; both readers must agree."""
    try:
        message = cls.decode(body, version)
    except ProtocolError as error:
        told = str(error)
        with pytest.raises(ProtocolError):
            drained(cls.decode_in_steps(body, version, budget_bytes=1))
        assert not PYTHONS_WORDS.search(told)
        return None
    assert drained(cls.decode_in_steps(body, version, budget_bytes=1))[0] == message
    return message


@each_message
@given(data=st.data())
@in_few_examples
def test_a_body_of_the_wrong_length_is_refused(cls: type[Message], data: st.DataObject) -> None:
    """One that ends early is refused wherever it ends, and so is a request with a byte too many."""
    message, version, body = data.draw(encoded(cls))
    for end in range(len(body)):
        with pytest.raises(ProtocolError, match=cls.__name__):
            cls.decode(body[:end], version)
    if not issubclass(cls, Request):
        assert cls.decode(body + b"\0", version) == message
        assert drained(cls.decode_in_steps(body + b"\0", version, budget_bytes=1))[0] == message
        return
    with pytest.raises(ProtocolError, match="after the end"):
        cls.decode(body + b"\0", version)


@each_message
@given(data=st.data())
@in_few_examples
def test_random_bytes(cls: type[Message], data: st.DataObject) -> None:
    """Any bytes are a message or a ProtocolError."""
    version = data.draw(st.integers(cls.MIN_VERSION, cls.MAX_VERSION))
    read_or_refused(cls, data.draw(st.binary(max_size=300)), version)


@each_message
@given(data=st.data())
@in_few_examples
def test_a_damaged_body_is_a_message_or_a_protocol_error(cls: type[Message], data: st.DataObject) -> None:
    """A valid body with some bytes changed is a message or a ProtocolError."""
    _, version, body = data.draw(encoded(cls))
    if body:
        damaged = bytearray(body)
        for at in data.draw(st.lists(st.integers(0, len(body) - 1), min_size=1, max_size=4)):
            damaged[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
        read_or_refused(cls, bytes(damaged), version)


@each_message
def test_noise_costs_no_more_memory_than_its_size(cls: type[Message]) -> None:
    """Large random data, in which counts and lengths are sometimes plausible, costs no more memory than its size."""
    rng = random.Random(5)
    noise = [bytes(rng.choice([0, 1, 2, 3, rng.randrange(256)]) for _ in range(2_000)) for _ in range(20)]
    for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
        read_or_refused(cls, b"", version)
        tracemalloc.start()
        try:
            for each in noise:
                read_or_refused(cls, each, version)
            assert tracemalloc.get_traced_memory()[1] < 3_000_000
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("version", [4, 13])
@pytest.mark.parametrize("claimed", [2**31 - 2, 100_000, 101])
def test_claimed_counts_cost_nothing(version: int, claimed: int) -> None:
    """A count beyond the bytes that are left is refused before the first element."""
    count = struct.pack(">i", claimed) if version == 4 else bytes.fromhex("ffffffff07")
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="bytes are left"):
            MetadataResponse.decode(bytes(4) + count + bytes(100), version)
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()
