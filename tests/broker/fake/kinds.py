"""The type of either cluster, for annotations."""

from __future__ import annotations

from typing import TypeAlias

from aioproducer.testing import FakeCluster, KafkaCluster

AnyCluster: TypeAlias = FakeCluster | KafkaCluster
