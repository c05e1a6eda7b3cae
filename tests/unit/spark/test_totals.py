"""The totals of a write, without a Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aioproducer.errors import ConfigError
from aioproducer.spark import WriteTotals


def test_spark_connect_has_no_totals() -> None:
    """Its session has no sparkContext: Spark's own error says nothing of what to do."""
    session: Any = SimpleNamespace()
    with pytest.raises(ConfigError, match="Spark Connect does not have; the driver's log has"):
        WriteTotals(session)
