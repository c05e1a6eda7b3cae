"""A Kafka cluster without Kafka: a pure model, and that model on TCP inside the test's process.

``ClusterModel`` has no loop, no I/O and no clock: a simulation drives it. ``FakeCluster`` puts it on sockets.
"""

from __future__ import annotations

from aioproducer.testing.fake.cluster import FakeCluster
from aioproducer.testing.fake.faults import Effect, Fault, FaultScript
from aioproducer.testing.fake.frames import RequestFrame
from aioproducer.testing.fake.model import ClusterModel
from aioproducer.testing.fake.partition_log import LogRecord, TransactionMarker
from aioproducer.testing.fake.session import Answer, Session

__all__ = [
    "Answer",
    "ClusterModel",
    "Effect",
    "FakeCluster",
    "Fault",
    "FaultScript",
    "LogRecord",
    "RequestFrame",
    "Session",
    "TransactionMarker",
]
