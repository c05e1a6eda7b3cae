"""How the configs affect batches."""

from __future__ import annotations

import random
from typing import Any

import pytest

from aioproducer._accumulator import RecordAccumulator
from aioproducer._delivery_ledger import DeliveryLedger
from aioproducer._produce import fixed_bytes
from aioproducer.config.batching import accumulator_of
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.partitioners import BUILT_IN, consistent, murmur2, murmur2_random
from tests.unit.core import UNLIMITED, add_topic, drain, drain_all, put


def accumulator_with(**configs: object) -> RecordAccumulator:
    config = ProducerConfig.parse({"bootstrap_servers": "unused:1", **configs})
    return accumulator_of(config, DeliveryLedger(), random.Random(1))


@pytest.mark.parametrize(("configs", "longest_ms"), [({}, 250), ({"linger_ms": 5}, 5), ({"linger_ms": "0"}, 0)])
def test_a_linger_that_was_asked_for_is_meant_as_it_is(configs: dict[str, object], longest_ms: int) -> None:
    """Only the default is extended at full speed."""
    assert accumulator_with(**configs).longest_linger_ms == longest_ms


def test_two_full_batches_fit_into_one_request() -> None:
    """With the defaults, and the longest names. Else a distant broker would get requests that are half empty."""
    config = ProducerConfig.parse({"bootstrap_servers": "unused:1"})
    accumulator = accumulator_with()
    for topic in [add_topic(accumulator, letter * 249) for letter in "ab"]:
        put(accumulator, topic, bytes(config.batch_size - 100))
        put(accumulator, topic, bytes(100))
    batches = drain(accumulator, max_bytes=config.max_request_size - fixed_bytes(b"c" * 249, b"t" * 249))
    assert [batch.record_count for batch in batches] == [1, 1]


def test_what_lingers_at_full_speed_can_still_be_sent_in_time() -> None:
    accumulator = accumulator_with(delivery_timeout_ms=100, request_timeout_ms=60)
    assert accumulator.longest_linger_ms == 40


@pytest.mark.parametrize("adaptive", [True, False])
def test_only_adaptive_partitioning_leaves_brokers_out(adaptive: bool) -> None:
    """As in Java, ``partitioner_availability_timeout_ms`` has no effect if partitions get equal shares."""
    accumulator = accumulator_with(
        partitioner_adaptive_partitioning_enable=adaptive, partitioner_availability_timeout_ms=50, batch_size=1_000
    )
    topic = add_topic(accumulator, leaders=[1, 2])
    accumulator.node_stalled(2, 0)
    for _ in range(40):
        put(accumulator, topic, bytes(2_000), partition=-1, now_ms=1_000)
    chosen = {batch.partition for node_id in (1, 2) for batch in drain_all(accumulator, node_id, now_ms=1_000)}
    assert chosen == ({0} if adaptive else {0, 1})


@pytest.mark.parametrize(
    ("configs", "key", "function"),
    [
        ({}, b"key", murmur2),
        ({"partitioner_class": consistent}, b"key", consistent),
        ({"partitioner_class": consistent, "partitioner_ignore_keys": True}, b"key", consistent),
        ({"partitioner_class": lambda *_: BUILT_IN}, b"key", murmur2),
        ({"partitioner_class": murmur2}, None, murmur2),
    ],
)
def test_how_partitions_are_chosen(configs: dict[str, object], key: bytes | None, function: Any) -> None:
    accumulator = accumulator_with(**configs)
    topic = add_topic(accumulator, leaders=[1] * 1_000)
    put(accumulator, topic, key=key, partition=-1)
    (batch,) = drain_all(accumulator)
    assert batch.partition == function("orders", key, None, range(1_000))


@pytest.mark.parametrize("configs", [{}, {"partitioner_class": murmur2_random}])
def test_keys_can_be_ignored(configs: dict[str, object]) -> None:
    accumulator = accumulator_with(partitioner_ignore_keys=True, **configs)
    topic = add_topic(accumulator, leaders=[1] * 1_000)
    for number in range(20):
        put(accumulator, topic, key=b"key-%d" % number, partition=-1)
    assert [batch.record_count for batch in drain_all(accumulator)] == [20]


@pytest.mark.parametrize(("in_flight", "idempotent", "mutes"), [(1, False, True), (1, True, True), (2, True, False)])
def test_what_keeps_a_partition_to_one_batch_at_a_time(in_flight: int, idempotent: bool, mutes: bool) -> None:
    """A limit of one request in flight does, also while the partition moves from one broker to another."""
    accumulator = accumulator_with(
        max_in_flight_requests_per_connection=in_flight, enable_idempotence=idempotent, batch_size=200
    )
    topic = add_topic(accumulator)
    for _ in range(2):
        put(accumulator, topic, bytes(100))
    accumulator.close_all()
    assert len(drain(accumulator)) == 1
    assert len(drain(accumulator)) == (0 if mutes else 1)


@pytest.mark.parametrize(("batch_size", "bytes_of_one"), [(1_000, 1_000), (3_000, 2_000)])
def test_a_batch_fits_into_a_request(batch_size: int, bytes_of_one: int) -> None:
    assert accumulator_with(batch_size=batch_size, max_request_size=2_000).batch_size == bytes_of_one


@pytest.mark.parametrize(
    ("configs", "change_bytes"), [({}, 2 * 16_384), ({"batch_size": 5_000}, 5_000), ({"batch_size": 100_000}, 100_000)]
)
def test_when_records_without_a_key_change_partition(configs: dict[str, object], change_bytes: int) -> None:
    """After Java's batch size, or twice that in the midst of a batch, unless ``batch_size`` was asked for."""
    accumulator = accumulator_with(**configs)
    topic = add_topic(accumulator, leaders=[1] * 1_000)
    for _ in range(250):
        put(accumulator, topic, bytes(1_000), partition=-1)
    sizes = sorted(batch.size_bytes for batch in drain_all(accumulator))
    assert len(sizes) > 2
    assert all(abs(size - change_bytes) < 1_100 for size in sizes[1:]), sizes  # the last partition may have fewer


@pytest.mark.parametrize("compression_type", ["none", "gzip"])
def test_batches_wait_for_a_codec_if_there_is_one(compression_type: str) -> None:
    accumulator = accumulator_with(compression_type=compression_type)
    put(accumulator, add_topic(accumulator))
    accumulator.close_all()
    _, unsealed = accumulator.drain(1, UNLIMITED, 0, lambda _: True, 0)
    assert len(unsealed) == (compression_type != "none")
