"""Errors without the frames that they passed: these keep variables, and tools that report errors show them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def raises_bare(kind: type[Exception]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """For a function that takes or reads secrets: its errors of this kind keep no frame that has them in a variable.

    The traceback ends where the function was called.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return function(*args, **kwargs)
            except kind as error:
                del args, kwargs
                _strip(error)
                raise

        return call

    return decorate


def _strip(error: BaseException) -> None:
    """Drop the frames so far, those of the error's cause, and an error that it replaces."""
    error.__traceback__ = None
    if error.__cause__ is not None:
        _strip(error.__cause__)
    if error.__suppress_context__:
        error.__context__ = None


def strip_all(error: BaseException) -> None:
    """Drop the frames of an error and of all errors that it came from, whoever raised them."""
    left, seen = [error], set()
    while left:
        one = left.pop()
        seen.add(id(one))
        one.__traceback__ = None
        left += [other for other in (one.__cause__, one.__context__) if other is not None and id(other) not in seen]
