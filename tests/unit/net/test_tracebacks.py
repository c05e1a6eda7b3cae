"""The frames of errors are cleared, except those that are still in use."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Generator
from types import FrameType

import pytest

from aioproducer.net.tracebacks import clear_frames, never_waits


class Held:
    """An object that a frame holds."""


def everything(frame: FrameType) -> bool:
    return True


def fail(kept: list[weakref.ref[Held]]) -> None:
    held = Held()
    kept.append(weakref.ref(held))
    raise OSError("lost")


def fail_for_another_reason(kept: list[weakref.ref[Held]]) -> None:
    held = Held()
    kept.append(weakref.ref(held))
    try:
        fail(kept)
    except OSError as error:
        raise ValueError("no") from error


def fail_silently(kept: list[weakref.ref[Held]], errors: list[BaseException]) -> None:
    held = Held()
    kept.append(weakref.ref(held))
    try:
        fail(kept)
    except OSError as error:
        errors.append(error)


def left(kept: list[weakref.ref[Held]]) -> int:
    gc.collect()
    return sum(one() is not None for one in kept)


def test_the_frames_of_an_error_and_its_causes() -> None:
    kept: list[weakref.ref[Held]] = []
    with pytest.raises(ValueError, match="no") as caught:
        fail_for_another_reason(kept)
    assert left(kept) == 2
    clear_frames(caught.value, everything)
    assert left(kept) == 0


def test_the_frames_that_had_called_them() -> None:
    """Those that the error did not pass through, because one of them stored it."""

    def call() -> None:
        held = Held()
        kept.append(weakref.ref(held))
        fail_silently(kept, errors)

    kept: list[weakref.ref[Held]] = []
    errors: list[BaseException] = []
    call()
    (error,) = errors
    assert left(kept) == 3
    clear_frames(error, never_waits)
    assert left(kept) == 0


def test_only_frames_that_are_wanted() -> None:
    kept: list[weakref.ref[Held]] = []
    with pytest.raises(ValueError, match="no") as caught:
        fail_for_another_reason(kept)
    clear_frames(caught.value, lambda frame: frame.f_code is fail.__code__)
    assert left(kept) == 1


def test_frames_that_run_or_wait_stay_as_they_are() -> None:
    def wait() -> Generator[str, None, None]:
        try:
            raise OSError("lost")
        except OSError as error:
            errors.append(error)
        yield "first"
        yield "second"

    errors: list[BaseException] = []
    waiting = wait()
    assert next(waiting) == "first"
    clear_frames(errors[0], never_waits)
    assert list(waiting) == ["second"]
    assert errors


def test_errors_that_are_each_others_causes() -> None:
    one, other = OSError("one"), OSError("other")
    one.__cause__, other.__cause__ = other, one
    looked: list[FrameType] = []
    clear_frames(one, lambda frame: not looked.append(frame))
    assert looked == []
