"""What the broker tests share, and the event loops that they run on.

AIOPRODUCER_TEST_LOOPS lists the loops, with commas: asyncio (the default), debug, uvloop; from 3.12 on, eager too.
`test_loops.py` tests the main guarantees with the last three in any case; `make test-long` runs every test with debug
and uvloop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping

import pytest

from tests.broker.fixtures import (
    LOOPS,
    cluster_of_three,
    fragile_cluster,
    fragile_kafka,
    kafka,
    strict_kafka,
    three_brokers,
)
from tests.clean_loop import clean_loop


@pytest.hookimpl
def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {name: LOOPS[name] for name in os.environ.get("AIOPRODUCER_TEST_LOOPS", "asyncio").split(",")}


__all__ = [
    "clean_loop",
    "cluster_of_three",
    "fragile_cluster",
    "fragile_kafka",
    "kafka",
    "strict_kafka",
    "three_brokers",
]
