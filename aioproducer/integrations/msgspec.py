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

_AT = " - at `"
"""Before the path, at the end of a message; a value that the message quotes may contain it too."""
_EXPECTED = re.compile(r"Expected `[\w |]+`(?:, got `\w+`)?|Object missing required field `[^`]+`")


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
        if not isinstance(error, msgspec.ValidationError):
            return [("", f"{type(value).__name__} can't be encoded ({type(error).__name__})")]
        own, cause = str(error), error.__cause__
        if cause is not None:  # raised by the type's own code: may contain anything, and comes before the path
            return [(_path(own.removeprefix(str(cause))), "refused")]
        # Show only messages known to name types and fields: others quote the value, and end with a quote or the path.
        path = _path(own) if own.endswith("`") else ""
        known = _EXPECTED.match(own)
        return [(path, known[0] if known and known.end() in (len(own), own.rfind(_AT)) else "refused")]


def _path(message: str) -> str:
    """What a message has after its last _AT, without the quotes inside, where it names a key: "key` in `$"."""
    _, at, path = message.rpartition(_AT)
    return path.replace("`", "") if at else ""
