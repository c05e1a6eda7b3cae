"""Frames that errors lead to: emptied, where what they hold must not live, or be seen, as long as the error is kept."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType

_WAITING = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


def clear_frames(error: BaseException, is_wanted: Callable[[FrameType], bool]) -> None:
    """Empty frames that an error and its causes came through, or that had called those, as far as they have ended.

    Args:
        is_wanted: whether to empty a frame. One that waits for somebody to go on with it would be ended by that.
    """
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        for frame in _frames(cause):
            if is_wanted(frame):
                with suppress(RuntimeError):  # it still runs
                    frame.clear()
        cause = cause.__cause__ or cause.__context__


def never_waits(frame: FrameType) -> bool:
    """Whether it is that of a plain function, which runs or has ended."""
    return not frame.f_code.co_flags & _WAITING


def _frames(error: BaseException) -> Iterator[FrameType]:
    """Those of the traceback, then the callers of the innermost."""
    frame: FrameType | None = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        yield frame
    while frame is not None and (frame := frame.f_back) is not None:
        yield frame
