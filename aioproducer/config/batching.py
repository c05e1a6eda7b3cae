"""What the configs mean for batches: how large they get, how long they linger, where they may go. Pure."""

from __future__ import annotations

import random

from aioproducer._accumulator import RecordAccumulator
from aioproducer._delivery_ledger import DeliveryLedger
from aioproducer.config.producer_config import ProducerConfig

LINGER_STRETCH = 50
"""Batches of few records at full speed wait up to this many times ``linger_ms``, if that config is not set."""

JAVA_BATCH_SIZE = 16384
"""Keyless records change partition after this many bytes, however large a batch may grow, unless ``batch_size`` is
set."""


def accumulator_of(config: ProducerConfig, ledger: DeliveryLedger, rng: random.Random) -> RecordAccumulator:
    """A buffer for the records of a producer with these configs."""
    adaptive = config.partitioner_adaptive_partitioning_enable
    return RecordAccumulator(
        ledger=ledger,
        random=rng,
        batch_size=min(config.batch_size, config.max_request_size),
        sticky_size=config.batch_size if "batch_size" in config.given else min(JAVA_BATCH_SIZE, config.batch_size),
        linger_ms=config.linger_ms,
        buffer_memory=config.buffer_memory,
        delivery_timeout_ms=config.delivery_timeout_ms,
        max_request_size=config.max_request_size,
        compresses=config.compression_type != "none",
        partitioner=_partitioner(config),
        adaptive=adaptive,
        availability_timeout_ms=config.partitioner_availability_timeout_ms if adaptive else 0,
        mutes=config.max_in_flight_requests_per_connection == 1,
        longest_linger_ms=_longest_linger_ms(config),
    )


def _partitioner(config: ProducerConfig) -> str:
    """How partitions are chosen, also for records that a function of the program leaves to the built-in partitioner."""
    if isinstance(config.partitioner_class, str):
        return config.partitioner_class
    return "sticky" if config.partitioner_ignore_keys else "murmur2_random"


def _longest_linger_ms(config: ProducerConfig) -> int:
    """The limit for batches of few records at full speed; it leaves time for an attempt."""
    if "linger_ms" in config.given:
        return config.linger_ms
    return min(LINGER_STRETCH * config.linger_ms, config.delivery_timeout_ms - config.request_timeout_ms)
