"""The Spark demo's end when Spark fails."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest
from py4j.protocol import Py4JError

from aioproducer.cli.demo import spark
from aioproducer.cli.outcome import CommandError

FAILED = """An error occurred while calling o57.csv.
: java.net.ConnectException: Call From here to 127.0.0.1:9 failed on connection exception
\tat java.base/java.lang.reflect.Constructor.newInstance(Constructor.java:500)
Caused by: java.net.ConnectException: Connection refused
\tat java.base/sun.nio.ch.Net.pollConnect(Native Method)
"""


def test_an_error_of_the_jvm_is_told_by_its_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first line only says which call failed."""

    def fail(*_: object) -> NoReturn:
        raise Py4JError(FAILED)

    monkeypatch.setattr(spark, "_start_kafka", fail)
    with pytest.raises(CommandError) as raised:
        spark.run(bootstrap=None, output=tmp_path)
    assert str(raised.value) == (f"Spark failed: ConnectException: Connection refused; {tmp_path}/spark.log has more")
