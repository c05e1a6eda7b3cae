"""msgspec: structs, and any other type it supports, as JSON or MessagePack.

producer = Producer(bootstrap_servers="localhost:9092", value_serializer=MsgspecSerializer(Order))
await producer.send("orders", Order(id=7, item="tea"))
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

from aioproducer.extras import missing
from aioproducer.integrations.json_values import JsonSerializer
from aioproducer.records import Value_contra

try:
    import msgspec
except ModuleNotFoundError as _error:
    raise missing(_error, __name__, "msgspec") from None

_EXPECTED = re.compile(r"(Expected `[\w |]+`(?:, got `\w+`)?|Object missing required field `\w+`)(?: - at `(.*)`)?")
_PATH = re.compile(r" - at `(.*)`$", re.DOTALL)


class MsgspecSerializer(JsonSerializer[Value_contra]):
    """JSON, or MessagePack, as msgspec writes it, with one encoder for all values.

    Args:
        value_type: a Struct, a union of them, a dataclass, or any other type; None for anything msgspec can write.
        validate: converts values to ``value_type`` first, so that dicts and the like are accepted; values that do not
            convert are refused. Either way, values of that type are accepted unchecked: msgspec does not check a
            struct's fields again.
        format: ``json`` or ``msgpack``.
        encoder: arguments of msgspec's Encoder, such as ``enc_hook`` or ``decimal_format``.
    """

    @overload
    def __init__(
        self, value_type: type[Value_contra], *, validate: Literal[False] = False, format: str = "json", **encoder: Any
    ) -> None: ...
    @overload
    def __init__(
        self, value_type: Any = None, *, validate: bool = False, format: str = "json", **encoder: Any
    ) -> None: ...
    def __init__(self, value_type: Any = None, *, validate: bool = False, format: str = "json", **encoder: Any) -> None:
        if format not in ("json", "msgpack"):
            raise ValueError(f"format={format!r} is not known; allowed: json, msgpack")
        if validate and value_type is None:
            raise TypeError("validate=True needs a type")
        super().__init__(None if validate else value_type)
        self._converts_to = value_type if validate else None
        module = msgspec.json if format == "json" else msgspec.msgpack
        self._encode: Callable[[Any], bytes] = module.Encoder(**encoder).encode

    def encode(self, value: Any) -> bytes:
        if self._converts_to is not None:
            value = msgspec.convert(value, self._converts_to, from_attributes=True)
        return self._encode(value)

    def problems(self, value: Any, error: Exception) -> Sequence[tuple[str, str]]:
        # Show only messages known to name types: others quote the value.
        text = str(error)
        expected = _EXPECTED.fullmatch(text)
        if expected is not None:
            return [(_plain(expected[2]), expected[1])]
        if isinstance(error, msgspec.ValidationError):
            path = _PATH.search(text)
            return [(_plain(path and path[1]), "refused")]
        return [("", f"{type(value).__name__} can't be encoded ({type(error).__name__})")]


def _plain(path: str | None) -> str:
    """A path without its quotes, which are inside it where it names a key: "key` in `$"."""
    return (path or "").replace("`", "")
