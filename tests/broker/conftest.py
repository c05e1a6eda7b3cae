"""What the broker tests share."""

from __future__ import annotations

from tests.broker.fixtures import (
    clean_loop,
    cluster_of_three,
    fragile_cluster,
    fragile_kafka,
    kafka,
    strict_kafka,
    three_brokers,
)

__all__ = [
    "clean_loop",
    "cluster_of_three",
    "fragile_cluster",
    "fragile_kafka",
    "kafka",
    "strict_kafka",
    "three_brokers",
]
