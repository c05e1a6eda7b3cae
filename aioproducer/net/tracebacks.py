"""Clears frames that errors refer to, when their variables must not live, or be seen, as long as the error is kept."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType

_WAITING = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


def clear_frames(error: BaseException, is_wanted: Callable[[FrameType], bool]) -> None:
    """Clear the frames that an error and its causes passed through, and their callers, if those frames have ended.

    Args:
        is_wanted: whether to clear a frame. Clearing a suspended generator or coroutine would end it.
    """
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        for frame in _frames(cause):
            if is_wanted(frame):
                with suppress(RuntimeError):  # it is still running
                    frame.clear()
        cause = cause.__cause__ or cause.__context__


def never_waits(frame: FrameType) -> bool:
    """Whether the frame is that of a plain function, which runs or has ended but is never suspended."""
    return not frame.f_code.co_flags & _WAITING


def _frames(error: BaseException) -> Iterator[FrameType]:
    """The frames of the traceback, then the callers of the innermost."""
    frame: FrameType | None = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        yield frame
    while frame is not None and (frame := frame.f_back) is not None:
        yield frame
