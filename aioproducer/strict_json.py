"""What JSON can't hold."""

from __future__ import annotations

import math
from typing import Any


def without_nan(value: Any) -> Any:
    """The value with null for NaN and infinity, also within objects and arrays."""
    if isinstance(value, dict):
        return {name: without_nan(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
