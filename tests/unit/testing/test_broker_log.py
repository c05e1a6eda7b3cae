"""Why a broker ended, from its log."""

from __future__ import annotations

from pathlib import Path

import pytest

from aioproducer.testing import broker_log

BAD_CONFIG = """\
10:05:54.700 INFO KafkaRaftServer - starting
10:05:54.713 ERROR Kafka$ - Exiting Kafka due to fatal exception
org.apache.kafka.common.config.ConfigException: Invalid value abc for num.io.threads
\tat org.apache.kafka.common.config.ConfigDef.parseType(ConfigDef.java:787)
Caused by: java.lang.NumberFormatException: For input string: "abc"
\tat java.base/java.lang.NumberFormatException.forInputString(Unknown Source)
"""


def test_the_errors_are_named_without_their_stack_traces() -> None:
    assert broker_log.reasons(BAD_CONFIG) == [
        "10:05:54.713 ERROR Kafka$ - Exiting Kafka due to fatal exception",
        "org.apache.kafka.common.config.ConfigException: Invalid value abc for num.io.threads",
        'Caused by: java.lang.NumberFormatException: For input string: "abc"',
    ]


@pytest.mark.parametrize(
    "line",
    [
        "Unrecognized VM option 'NoSuch'",
        "Error: Could not find or load main class kafka.Kafka",
        "Terminating due to java.lang.OutOfMemoryError: Java heap space",
    ],
)
def test_what_the_jvm_itself_complains_of_is_a_reason(line: str) -> None:
    assert broker_log.reasons(f"INFO fine\n{line}\n") == [line]


def test_the_description_has_the_reasons_first_and_the_end_of_the_log() -> None:
    noise = "".join(f"INFO line {number}\n" for number in range(100))
    found = broker_log.describe(BAD_CONFIG + noise)
    assert found.index("Invalid value abc") < found.index("The end of its log:")
    assert "INFO line 99" in found
    assert "INFO line 69" not in found


def test_an_empty_log_is_said_to_be_empty() -> None:
    assert broker_log.describe("") == "\nThe end of its log: (empty)"


def test_a_taken_port_is_recognised() -> None:
    assert broker_log.port_was_taken("java.net.BindException: Address already in use")
    assert not broker_log.port_was_taken(BAD_CONFIG)


def test_a_broker_is_up_when_it_says_so() -> None:
    assert broker_log.has_started("08:09 INFO KafkaRaftServer - [KafkaRaftServer nodeId=1] Kafka Server started\n")
    assert not broker_log.has_started(BAD_CONFIG)


def test_only_what_was_written_since_a_start_is_read(tmp_path: Path) -> None:
    path = tmp_path / "broker.log"
    assert broker_log.read_log(path) == ""
    path.write_bytes("früher\n".encode())
    begin = path.stat().st_size
    path.write_bytes("früher\nnow\n".encode())
    assert broker_log.read_log(path, begin) == "now\n"
    assert broker_log.read_log(path) == "früher\nnow\n"


def test_of_a_huge_log_the_end_is_read(tmp_path: Path) -> None:
    path = tmp_path / "broker.log"
    path.write_bytes(b"x" * broker_log.MAX_READ_BYTES + b"end")
    found = broker_log.read_log(path)
    assert len(found) == broker_log.MAX_READ_BYTES
    assert found.endswith("xend")
