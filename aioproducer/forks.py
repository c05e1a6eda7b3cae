"""ForkWatch: tells objects that their process is now a child of the one that made them."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class ForkWatch(Generic[T]):
    """Objects of one kind, which it does not keep alive, and what each has to do in a forked child.

    The interpreter hears of it with the first object: importing a module registers nothing.
    """

    def __init__(self, in_child: Callable[[T], object]) -> None:
        self._in_child = in_child
        self._objects: weakref.WeakSet[T] = weakref.WeakSet()
        self._is_registered = False

    def __len__(self) -> int:
        return len(self._objects)

    def add(self, one: T) -> None:
        """Have this one told."""
        self._objects.add(one)
        if not self._is_registered and hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._tell)
            self._is_registered = True

    def discard(self, one: T) -> None:
        """It need not be told any more; one that is not there is no error."""
        self._objects.discard(one)

    def _tell(self) -> None:
        for one in list(self._objects):
            self._in_child(one)
