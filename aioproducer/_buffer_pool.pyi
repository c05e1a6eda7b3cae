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
    """The producer's memory: lends at most ``total_bytes``, and holds no more, blocks kept for reuse included.

    Args:
        total_bytes: the budget, ``buffer_memory``.
        block_bytes: size of an ordinary block. A batch's first block has an eighth of it, a fourth or a half, whichever
            its record fits into; a batch that holds two ordinary ones gets blocks of four times the size; where many
            batches share what is left, blocks have down to a sixteenth; a larger record gets one of its own size.
        keeps: whether returned blocks are kept for reuse.
    """

    def __init__(self, total_bytes: int, block_bytes: int, *, keeps: bool = True) -> None: ...
    def call_on_late_return(self, method: Callable[[], object]) -> None:
        """Set the callback for blocks that return late: their last view died after the batch had let go.

        Args:
            method: a bound method; its object is held weakly.
        """

    def keep_nothing(self) -> None:
        """Free the blocks kept for reuse, and from now on every returned one: nothing will be taken any more."""

    @property
    def total_bytes(self) -> int:
        """The budget."""

    @property
    def available_bytes(self) -> int:
        """Budget not lent."""

    @property
    def used_bytes(self) -> int:
        """Budget lent: the blocks of the live batches."""

    @property
    def block_bytes(self) -> int:
        """Size of an ordinary block."""

    @property
    def idle_bytes(self) -> int:
        """Bytes of the blocks kept for reuse."""
