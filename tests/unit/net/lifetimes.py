"""Whether something goes by itself, without the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import weakref


async def goes_by_itself(gone: weakref.ref[object]) -> bool:
    """Give the loop some turns without the garbage collector, and tell whether the object is gone then."""
    gc.disable()
    try:
        for _ in range(3):
            await asyncio.sleep(0)
        return gone() is None
    finally:
        gc.enable()
