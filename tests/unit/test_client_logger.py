"""Log lines that say which producer they are about."""

from __future__ import annotations

import logging

import pytest

from aioproducer import Producer, Record
from aioproducer.client_logger import ClientLogger
from aioproducer.errors import BootstrapError, KafkaError
from aioproducer.testing import FakeCluster

logger = logging.getLogger("aioproducer.test")


def test_a_line_names_the_producer(caplog: pytest.LogCaptureFixture) -> None:
    """In the text and as an attribute; the format string is the same for all producers."""
    for client_id in ("producer-1", "100%s"):
        ClientLogger(logger, client_id).warning("%d records", 5, extra={"more": 1})
    assert [entry.getMessage() for entry in caplog.records] == ["[producer-1] 5 records", "[100%s] 5 records"]
    assert {entry.msg for entry in caplog.records} == {"[%s] %d records"}
    assert [(vars(entry)["kafka_client_id"], vars(entry)["more"]) for entry in caplog.records] == [
        ("producer-1", 1),
        ("100%s", 1),
    ]


def test_the_line_is_that_of_its_caller(caplog: pytest.LogCaptureFixture) -> None:
    """File, function and traceback are those of the code that logs."""
    try:
        raise ValueError("of the test")
    except ValueError:
        ClientLogger(logger, "a").exception("failed")
    (entry,) = caplog.records
    assert (entry.filename, entry.funcName) == ("test_client_logger.py", "test_the_line_is_that_of_its_caller")
    assert "ValueError: of the test" in caplog.text


def test_a_client_id_can_not_forge_lines(caplog: pytest.LogCaptureFixture) -> None:
    """Any text is a client id."""
    ClientLogger(logger, "a\nERROR \x1b[1m").warning("told")
    assert [entry.getMessage() for entry in caplog.records] == ["[a ERROR ?[1m] told"]


def test_a_text_of_several_lines_is_logged_as_one(caplog: pytest.LogCaptureFixture) -> None:
    """Tools read logs line by line, and only the first would name the producer."""
    error = BootstrapError([("a:9092", KafkaError("one")), ("b:9092", KafkaError("two"))])
    assert "\n" in str(error)
    ClientLogger(logger, "a").warning("%s after %d attempts: %s", "it failed", 2, str(error))
    assert [entry.getMessage() for entry in caplog.records] == [
        "[a] it failed after 2 attempts: no bootstrap server could be used (bootstrap_servers): "
        "a:9092: KafkaError: one; b:9092: KafkaError: two"
    ]


@pytest.mark.parametrize(("text", "line"), [("\n", ""), ("one\n", "one"), ("\n a  b \r\n\tc\nd", "a b c; d"), (7, 7)])
def test_line_ends_in_an_argument(text: object, line: object, caplog: pytest.LogCaptureFixture) -> None:
    ClientLogger(logger, "a").warning("%s.", text)
    assert [entry.getMessage() for entry in caplog.records] == [f"[a] {line}."]


def test_the_level_is_the_loggers(caplog: pytest.LogCaptureFixture) -> None:
    """Lines below it cost nothing."""
    caplog.set_level(logging.WARNING, logger.name)

    class Unused:
        def __str__(self) -> str:
            raise AssertionError

    ClientLogger(logger, "a").info("%s", Unused())
    assert not caplog.records


async def test_two_producers(caplog: pytest.LogCaptureFixture) -> None:
    """Of two producers in a process, the one that is in trouble is named."""

    class Broken:
        def on_send(self, record: Record) -> Record:
            return record

        def on_start(self, client_id: str) -> None:
            raise RuntimeError(client_id)

    with FakeCluster() as cluster:
        for client_id, interceptors in (("good", []), ("bad", [Broken()])):
            async with Producer(
                bootstrap_servers=cluster.bootstrap_servers, client_id=client_id, interceptor_classes=interceptors
            ):
                pass
    assert [entry.getMessage() for entry in caplog.records] == ["[bad] interceptor Broken.on_start raised"]
