"""What tools that report errors, such as Sentry, would show of them."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path

from aioproducer import BootstrapError

_TESTS = str(Path(__file__).parent.parent)


def shown_by_tools(error: BaseException) -> list[str]:
    """The text of the local variables in the frames that an error and its causes keep, without those of tests."""
    return [repr(value) for value in _locals_of(error)]


def _locals_of(error: BaseException | None) -> Iterator[object]:
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if not frame.f_code.co_filename.startswith(_TESTS):
                yield from frame.f_locals.values()
        if isinstance(error, BootstrapError):
            for _, cause in error.failures:
                yield from _locals_of(cause)
        error = error.__cause__ or error.__context__
