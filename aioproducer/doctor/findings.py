"""The doctor's findings: each step with its status, what is wrong, and what to do. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """The status of a step."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing, or could not be checked; nothing is wrong."""
    WARNING = "warning"
    """A producer works, but not as intended, or not for long."""
    FAILED = "failed"
    """A producer can't work."""


class Step(StrEnum):
    """What is checked."""

    CONFIG = "config"
    DNS = "dns"
    TCP = "tcp"
    TLS = "tls"
    LOGIN = "login"
    VERSIONS = "versions"
    CLUSTER = "cluster"
    LISTENER = "listener"
    """The address advertised by a broker, which a producer will use."""
    TOPIC = "topic"
    TRANSACTIONS = "transactions"
    WRITE = "write"
    CLOCK = "clock"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    step: Step
    where: str
    """The address, topic or config it is about; empty if it is about everything."""
    status: Status
    message: str
    """What was found."""
    advice: str = ""
    """What to do; empty if nothing is needed."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The same for programs, in JSON-compatible values."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "step": str(self.step),
            "where": self.where,
            "status": str(self.status),
            "message": self.message,
            "advice": self.advice,
            "facts": dict(self.facts),
        }


_BAD = (Status.WARNING, Status.FAILED)


@dataclass(frozen=True, slots=True)
class Report:
    """All findings, in the order of the checks."""

    findings: Sequence[Finding]

    @property
    def status(self) -> Status:
        """FAILED if anything failed, WARNING if there is a warning, else OK."""
        found = {each.status for each in self.findings}
        return next((each for each in reversed(_BAD) if each in found), Status.OK)

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The failures, then the warnings."""
        return tuple(each for status in reversed(_BAD) for each in self.findings if each.status is status)

    def of(self, step: Step) -> tuple[Finding, ...]:
        """The findings of one step."""
        return tuple(each for each in self.findings if each.step is step)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"status": str(self.status), "findings": [each.as_dict() for each in self.findings]}


_REMEDY = re.compile(r"[:;,] (?=(?:set|look at|use|name|renew|install|give) )")


def said_by(error: BaseException) -> tuple[str, str]:
    """The problem and the remedy (may be empty) in an error of this package.

    Its messages end with their remedy: ``...: set security_protocol=SSL``.
    """
    text = str(error) or type(error).__name__
    found = _REMEDY.search(text)
    return (text[: found.start()], text[found.end() :]) if found else (text, "")
