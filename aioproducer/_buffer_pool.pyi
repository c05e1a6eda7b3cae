"""Memory of the records: a byte budget and the blocks that batches chain."""

from collections.abc import Callable
from typing import final

@final
class Buffer:
    """One block of record memory; supports the buffer protocol (read-only) over the bytes used so far."""

    @property
    def capacity(self) -> int:
        """Bytes charged to the pool for this block."""

    @property
    def used(self) -> int:
        """Bytes written so far."""

    @property
    def views(self) -> int:
        """Live views; the block returns to the pool only at zero."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class BufferPool:
    """The producer's memory: never more than ``total_bytes`` lent, nor held, with what is kept for reuse, at a time.

    Args:
        total_bytes: the budget, ``buffer_memory``.
        block_bytes: size of the blocks that batches chain, but for the first, which has an eighth of it, and those of
            a batch that holds two blocks already, which have four times as much; a larger record gets one block of its
            own size.
        keeps: whether blocks that come back are kept for reuse.
    """

    def __init__(self, total_bytes: int, block_bytes: int, *, keeps: bool = True) -> None: ...
    def call_on_late_return(self, method: Callable[[], object]) -> None:
        """Have something called when a block comes back because its last view died after its batch had let go of it.

        Args:
            method: a bound method, whose object is held weakly.
        """

    def keep_nothing(self) -> None:
        """Free what is kept for reuse, and from now on what comes back: nobody will take any more."""

    @property
    def total_bytes(self) -> int:
        """The budget."""

    @property
    def available_bytes(self) -> int:
        """Budget that is not lent."""

    @property
    def used_bytes(self) -> int:
        """Budget that is lent: the blocks of the live batches."""

    @property
    def block_bytes(self) -> int:
        """Size of an ordinary block."""

    @property
    def small_bytes(self) -> int:
        """Size of the block that a batch begins with, if its first record fits."""

    @property
    def large_bytes(self) -> int:
        """Size of the blocks that a batch takes when it holds two ordinary ones, while memory is plenty."""

    @property
    def idle_bytes(self) -> int:
        """Of the blocks that are kept for reuse."""
