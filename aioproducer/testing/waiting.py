"""Waits for a cluster by polling: it does not announce changes."""

from __future__ import annotations

import time
from collections.abc import Callable

from aioproducer.testing.errors import ClusterError

POLL_S = 0.02


def wait_until(missing: Callable[[], str], timeout_s: float, what: str) -> None:
    """Call ``missing`` until it returns an empty text.

    Args:
        missing: says what is still wrong.
    Raises:
        ClusterError: something is still wrong after ``timeout_s`` seconds; the message has ``what`` and the last text.
    """
    deadline = time.monotonic() + timeout_s
    while wrong := missing():
        if time.monotonic() > deadline:
            raise ClusterError(f"{what}: not within {timeout_s:g} s; {wrong}")
        time.sleep(POLL_S)
