"""orjson: dicts, dataclasses, datetimes and UUIDs as JSON.

producer = Producer(bootstrap_servers="localhost:9092", value_serializer=OrjsonSerializer())
await producer.send("orders", {"id": 7, "item": "tea"})
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

from aioproducer.extras import missing
from aioproducer.integrations.json_values import JsonSerializer
from aioproducer.records import Value_contra

try:
    import orjson
except ModuleNotFoundError as _error:
    raise missing(_error, __name__, "orjson") from None


class OrjsonSerializer(JsonSerializer[Value_contra]):
    """JSON as orjson writes it.

    Args:
        value_type: the type of the values, such as ``dict`` or a dataclass; None for anything orjson can write. Fields
            are not checked.
        default: called with an object that orjson does not support; returns one that it does.
        option: orjson's flags, such as ``orjson.OPT_SORT_KEYS``.
    """

    @overload
    def __init__(
        self,
        value_type: type[Value_contra],
        *,
        default: Callable[[Any], Any] | None = None,
        option: int | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self, value_type: Any = None, *, default: Callable[[Any], Any] | None = None, option: int | None = None
    ) -> None: ...
    def __init__(
        self, value_type: Any = None, *, default: Callable[[Any], Any] | None = None, option: int | None = None
    ) -> None:
        super().__init__(value_type)
        self._default = default
        self._option = option

    def encode(self, value: Any) -> bytes:
        return orjson.dumps(value, self._default, self._option)

    def problems(self, value: Any, error: Exception) -> Sequence[tuple[str, str]]:
        # Its messages name types: "Type is not JSON serializable: Decimal".
        what = str(error) if isinstance(error, orjson.JSONEncodeError) else type(error).__name__
        return [("", f"{type(value).__name__} can't be encoded ({what})")]
