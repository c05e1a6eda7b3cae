"""What ``clean_loop`` does about tests that hang, in a session of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import asyncio
import pytest
import uvloop
from tests import clean_loop as checks
from tests.clean_loop import clean_loop

checks.HANGING_S = 1.0
ended = []

@pytest.fixture
def other():
    yield
    ended.append("other")

@pytest.fixture
async def producer(request):
    yield
    ended.append("producer")
    if request.node.originalname != "test_body":
        await asyncio.Event().wait()

async def test_body(clean_loop, other, producer):
    await asyncio.Event().wait()

async def test_teardown(clean_loop, other, producer):
    pass

async def test_both(clean_loop, other, producer):
    await asyncio.Event().wait()

async def test_next(clean_loop, other):
    assert ended == ["producer", "other"] * 3
"""

LOOP = """
import {module}

def pytest_asyncio_loop_factories():
    return {{"loop": {module}.new_event_loop}}
"""


@pytest.mark.parametrize("module", ["asyncio", "uvloop"])
def test_a_test_that_hangs_fails_alone(module: str, tmp_path: Path) -> None:
    """Wherever it hangs: its other fixtures are torn down, and the next test is as always."""
    path = tmp_path / "test_hanging.py"
    path.write_text(TESTS)
    (tmp_path / "conftest.py").write_text(LOOP.format(module=module))
    options = ["-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "-W", "default"]
    command = [sys.executable, "-m", "pytest", *options, str(path)]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "2 failed, 2 passed, 2 errors" in finished.stdout, finished.stdout
