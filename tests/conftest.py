"""What holds for every test."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
TOGETHER = ("spark",)
"""Folders whose tests share what takes long to start, and are for one process; of the others each file is."""

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # Started in the background by a shell: the programs that tests interrupt would inherit that, and never hear Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say which tests go to the same process of pytest-xdist."""
    for item in items:
        name = item.path.relative_to(TESTS).as_posix()
        group = next((folder for folder in TOGETHER if name.startswith(f"{folder}/")), name)
        item.add_marker(pytest.mark.xdist_group(group))
