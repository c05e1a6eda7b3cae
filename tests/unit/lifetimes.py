"""Whether an object is freed by reference counting alone."""

from __future__ import annotations

import asyncio
import gc
import weakref


async def goes_by_itself(gone: weakref.ref[object]) -> bool:
    """Run the loop for some turns with the garbage collector off, and return whether the object is gone."""
    gc.disable()
    try:
        for _ in range(3):
            await asyncio.sleep(0)
        return gone() is None
    finally:
        gc.enable()
