"""Kafka for tests, with only pip: the real one, ``KafkaCluster``, and one inside the process, ``FakeCluster``.

pytest finds the plugin (``aioproducer.testing.plugin``) by itself once the package is installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.extras import ModuleGetattr, on_demand

if TYPE_CHECKING:
    from aioproducer.testing.access_admin import AccessAdmin as AccessAdmin
    from aioproducer.testing.admin import ExistingCluster as ExistingCluster
    from aioproducer.testing.admin import TopicAdmin as TopicAdmin
    from aioproducer.testing.certificates import Certificate as Certificate
    from aioproducer.testing.certificates import CertificateAuthority as CertificateAuthority
    from aioproducer.testing.cluster import KafkaCluster as KafkaCluster
    from aioproducer.testing.errors import BrokerStartError as BrokerStartError
    from aioproducer.testing.errors import ClusterError as ClusterError
    from aioproducer.testing.errors import DownloadError as DownloadError
    from aioproducer.testing.errors import JavaNotFoundError as JavaNotFoundError
    from aioproducer.testing.fake.cluster import FakeCluster as FakeCluster
    from aioproducer.testing.fake.faults import Fault as Fault
    from aioproducer.testing.fake.faults import FaultScript as FaultScript
    from aioproducer.testing.fake.groups import CommittedOffset as CommittedOffset
    from aioproducer.testing.fake.partition_log import LogRecord as LogRecord
    from aioproducer.testing.listeners import Listener as Listener
    from aioproducer.testing.log_dump import DumpedBatch as DumpedBatch
    from aioproducer.testing.log_dump import LogDump as LogDump
    from aioproducer.testing.schema_registry import FakeSchemaRegistry as FakeSchemaRegistry
    from aioproducer.testing.tokens import unsecured_token as unsecured_token

_HOMES = {
    "AccessAdmin": "access_admin",
    "Certificate": "certificates",
    "CertificateAuthority": "certificates",
    "Listener": "listeners",
    "unsecured_token": "tokens",
    "ExistingCluster": "admin",
    "TopicAdmin": "admin",
    "KafkaCluster": "cluster",
    "BrokerStartError": "errors",
    "ClusterError": "errors",
    "DownloadError": "errors",
    "JavaNotFoundError": "errors",
    "FakeCluster": "fake.cluster",
    "FakeSchemaRegistry": "schema_registry",
    "Fault": "fake.faults",
    "FaultScript": "fake.faults",
    "LogRecord": "fake.partition_log",
    "CommittedOffset": "fake.groups",
    "DumpedBatch": "log_dump",
    "LogDump": "log_dump",
}

__all__ = sorted(_HOMES)


# pytest imports this package in every session where it is installed; few of them need these parts.
__getattr__: ModuleGetattr = on_demand(__name__, _HOMES)
