"""Spark beside Kafka: a local session that has Spark's own Kafka source and sink. Needs the extra ``spark``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aioproducer.spark.environment import connector_jars as connector_jars
    from aioproducer.spark.environment import java_home as java_home
    from aioproducer.spark.environment import local_session as local_session

_HOMES = {
    "connector_jars": "environment",
    "java_home": "environment",
    "local_session": "environment",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    # Each part loads what it needs when it is asked for: the environment must be had before PySpark starts Java.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name not in ("pyspark", "pyarrow"):
            raise
        raise ImportError(f"aioproducer.spark needs {error.name}: pip install 'aioproducer[spark]'") from error
