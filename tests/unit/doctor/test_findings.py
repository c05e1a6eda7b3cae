"""The doctor's findings as data."""

from __future__ import annotations

import pytest

from aioproducer.doctor.findings import Finding, Report, Status, Step, said_by
from aioproducer.errors import ConnectionLostError, TlsError
from aioproducer.net import tls_errors


def finding(status: Status, message: str = "so it is") -> Finding:
    return Finding(Step.TCP, "kafka:9092", status, message)


@pytest.mark.parametrize(
    ("found", "status"),
    [
        ([], Status.OK),
        ([Status.OK, Status.NOTE], Status.OK),
        ([Status.WARNING, Status.OK], Status.WARNING),
        ([Status.FAILED, Status.WARNING, Status.OK], Status.FAILED),
    ],
)
def test_a_report_is_as_bad_as_its_worst(found: list[Status], status: Status) -> None:
    report = Report([finding(each) for each in found])
    assert report.status is status
    assert report.as_dict()["status"] == str(status)


def test_failures_come_before_warnings() -> None:
    report = Report([finding(Status.WARNING, "a"), finding(Status.OK, "b"), finding(Status.FAILED, "c")])
    assert [each.message for each in report.problems] == ["c", "a"]


@pytest.mark.parametrize("text", [*tls_errors._OWN_REASONS.values(), *tls_errors._ALERTS.values()])
def test_messages_of_tls_end_with_their_remedy(text: str) -> None:
    """All except one, for which nothing can be done from here but checking a log."""
    message, remedy = said_by(TlsError(f"kafka:9093: {text}"))
    assert message.startswith("kafka:9093: ")
    assert remedy
    assert message + remedy != ""
    assert remedy in text


def test_what_says_no_remedy_has_none() -> None:
    assert said_by(ConnectionLostError("the line is dead")) == ("the line is dead", "")
    assert said_by(TimeoutError()) == ("TimeoutError", "")
