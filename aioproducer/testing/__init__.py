"""A real Apache Kafka for tests, with nothing but pip: ``KafkaCluster``, and a pytest plugin with its fixtures.

The plugin (``aioproducer.testing.plugin``) is found by pytest itself once the package is installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aioproducer.testing.admin import ExistingCluster as ExistingCluster
    from aioproducer.testing.admin import TopicAdmin as TopicAdmin
    from aioproducer.testing.cluster import KafkaCluster as KafkaCluster
    from aioproducer.testing.errors import BrokerStartError as BrokerStartError
    from aioproducer.testing.errors import ClusterError as ClusterError
    from aioproducer.testing.errors import DownloadError as DownloadError
    from aioproducer.testing.errors import JavaNotFoundError as JavaNotFoundError
    from aioproducer.testing.log_dump import DumpedBatch as DumpedBatch
    from aioproducer.testing.log_dump import LogDump as LogDump

_HOMES = {
    "ExistingCluster": "admin",
    "TopicAdmin": "admin",
    "KafkaCluster": "cluster",
    "BrokerStartError": "errors",
    "ClusterError": "errors",
    "DownloadError": "errors",
    "JavaNotFoundError": "errors",
    "DumpedBatch": "log_dump",
    "LogDump": "log_dump",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    # pytest imports this package in every session that has it installed, also where no test needs a broker.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
