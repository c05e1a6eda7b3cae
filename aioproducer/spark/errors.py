"""Errors of a write from Spark. The failure of a single record is an error of ``aioproducer.errors``."""

from __future__ import annotations


class SchemaError(ValueError):
    """The DataFrame's columns can't become records; raised while Spark plans the query, before anything is sent."""


class SparkWriteError(RuntimeError):
    """A task could not write all its rows, or the driver could not end what the tasks had written."""


class TakenOverError(SparkWriteError):
    """Another driver has begun to write with the same transaction log."""
