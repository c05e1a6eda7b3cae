"""The event loop of programs that create their own, such as the command line."""

from __future__ import annotations

import sys

import pytest

from aioproducer.event_loop import new_event_loop


def test_it_is_a_uvloop_where_that_is_installed() -> None:
    uvloop = pytest.importorskip("uvloop")
    loop = new_event_loop()
    assert isinstance(loop, uvloop.Loop)
    loop.close()


def test_else_it_is_asyncios_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    loop = new_event_loop()
    assert type(loop).__module__.startswith("asyncio.")
    loop.close()
