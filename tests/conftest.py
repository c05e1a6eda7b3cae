"""Settings for all tests."""

from __future__ import annotations

import gc
import signal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from aioproducer import producer
from aioproducer.start_count import StartCount

if TYPE_CHECKING:
    from xdist.scheduler import Scheduling

TOGETHER = "tests/spark/"
"""The tests of this folder share a Spark session, so they run in one process; otherwise each file does."""

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # Shells start background jobs with SIGINT ignored; programs that tests interrupt would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A machine that stalls for a moment must not fail an example. This is Hypothesis's default if CI is set.
settings.register_profile("untimed", parent=settings(), deadline=None)
settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def _producers_are_counted_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests start more producers than programs do; the warning about that counts those of each test separately."""
    monkeypatch.setattr(producer, "_starts", StartCount())


def pytest_collection_finish() -> None:
    """Thousands of tests, and all that they import, need not be scanned each time that garbage is collected."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    """Which tests go to the same process of pytest-xdist."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduler(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return TOGETHER if nodeid.startswith(TOGETHER) else super()._split_scope(nodeid)

    return Scheduler(config, log)
