"""ForkWatch: tells objects that their process is now a forked child of the one that made them."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class ForkWatch(Generic[T]):
    """Objects of one kind, held weakly, and what to do with each in a forked child.

    The first object registers the fork hook: importing a module registers nothing.
    """

    def __init__(self, in_child: Callable[[T], object]) -> None:
        self._in_child = in_child
        self._objects: weakref.WeakSet[T] = weakref.WeakSet()
        self._is_registered = False

    def __len__(self) -> int:
        return len(self._objects)

    def add(self, one: T) -> None:
        """Tell this object after a fork."""
        self._objects.add(one)
        if not self._is_registered and hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._tell)
            self._is_registered = True

    def discard(self, one: T) -> None:
        """Stop telling this object; one that was never added is no error."""
        self._objects.discard(one)

    def _tell(self) -> None:
        for one in list(self._objects):
            self._in_child(one)
