"""Config values: types that take Python values or Java's strings, and ranges on top of them.

A parser returns the typed value or raises ValueError, whose text, if any, is a hint: the caller adds the name, the
value and the allowed values.
"""

from __future__ import annotations

import inspect
import math
import operator
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from aioproducer.serializers import JAVA_CLASSES, BindableSerializer, SerializerObject


@dataclass(frozen=True, slots=True)
class ConfigType:
    """A kind of value."""

    name: str
    """The name in documentation and errors."""
    annotation: str
    """The type annotation of the attribute of ProducerConfig."""
    accepts: str
    """The type annotation of the keyword of Producer: Python values, or Java's strings."""
    parse: Callable[[object], Any]
    secret: bool = False
    """Whether values must not be shown."""


class Valid(Protocol):
    """A condition on a value of the right type; its ``str`` describes it."""

    def __call__(self, value: Any) -> Any:
        """The value in its normal form; raises ValueError if it is not allowed."""


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from ``minimum`` to ``maximum``, and the single number ``also``."""

    minimum: float
    maximum: float | None = None
    also: float | None = None

    def __call__(self, value: float) -> float:
        above = self.maximum is not None and value > self.maximum
        if (value < self.minimum or above) and value != self.also:
            raise ValueError
        return value

    def __str__(self) -> str:
        text = f"at least {self.minimum}" if self.maximum is None else f"{self.minimum} to {self.maximum}"
        return text if self.also is None else f"{text}, or {self.also}"


class OneOf:
    """One of some words, in exactly this case or in any."""

    def __init__(self, *words: str, any_case: bool = False) -> None:
        self._words = words
        self._any_case = any_case

    def __call__(self, value: str) -> str:
        for word in self._words:
            if value == word or (self._any_case and value.lower() == word.lower()):
                return word
        raise ValueError

    def __str__(self) -> str:
        return f"one of {', '.join(self._words)}"


@dataclass(frozen=True, slots=True)
class Utf8Length:
    """Strings limited by their UTF-8 length in bytes."""

    minimum: int
    maximum: int

    def __call__(self, value: str) -> str:
        if not self.minimum <= len(value.encode()) <= self.maximum:
            raise ValueError
        return value

    def __str__(self) -> str:
        return f"{f'{self.minimum} to' if self.minimum else 'at most'} {self.maximum} bytes as UTF-8"


# --- plain types ------------------------------------------------------------------------------------------------------


def _integer(bits: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        if isinstance(value, str):
            if not re.fullmatch(r"[+-]?[0-9]{1,20}", value.strip()):
                raise ValueError
            number = int(value)
        elif isinstance(value, bool) or not hasattr(value, "__index__"):
            raise ValueError
        else:
            number = operator.index(value)
        if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
            raise ValueError
        return number

    return parse


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    words = {"true": True, "false": False}
    word = value.strip().lower() if isinstance(value, str) else ""
    if word not in words:
        raise ValueError
    return words[word]


def _password(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    text = str.__str__(value)  # an enum's member, or a str that hides itself, would be formatted as something else
    text.encode()  # a lone surrogate could not be sent: UnicodeEncodeError is a ValueError
    return text


def _string(value: object) -> str:
    return _password(value).strip()


def _path(value: object) -> str:
    return _password(os.fspath(value)) if isinstance(value, os.PathLike) else _string(value)


def _list(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        value = value.split(",") if value.strip() else ()
    if not isinstance(value, (list, tuple)):
        raise ValueError
    words = tuple(_string(word) for word in value)
    if "" in words:
        raise ValueError("it has an empty entry")
    return words


_INTEGERS = "SupportsIndex | str"
_LISTS = "list[str] | tuple[str, ...] | str"

INT = ConfigType("32-bit integer", "int", _INTEGERS, _integer(32))
LONG = ConfigType("64-bit integer", "int", _INTEGERS, _integer(64))
NUMBER = ConfigType("number", "float", "float | str", _number)
BOOLEAN = ConfigType("true or false", "bool", "bool | str", _boolean)
STRING = ConfigType("string", "str", "str", _string)
URL = ConfigType("string", "str", "str", _string)
"""Its possibly secret parts are not shown: user, query and fragment."""
PATH = ConfigType("path of a file", "str", "os.PathLike[str] | str", _path)
PASSWORD = ConfigType("secret string", "str", "str", _password, secret=True)
LIST = ConfigType("list of strings, or one comma-separated string", "tuple[str, ...]", _LISTS, _list)


# --- types of one config ----------------------------------------------------------------------------------------------


def _acks(value: object) -> int:
    if isinstance(value, str) and value.strip() == "all":
        return -1
    number = INT.parse(value)
    if number not in (-1, 0, 1):
        raise ValueError
    return int(number)


_DEFAULT_PORT = 9092
"""The default port of other clients."""
_SERVER = re.compile(r"(?:\w+://)?(?:\[(?P<ipv6>[\w:.%-]+)\]|(?P<host>[^\s:/\[\]]+)):(?P<port>[0-9]{1,5})", re.A)


def _servers(value: object) -> tuple[tuple[str, int], ...]:
    servers: list[tuple[str, int]] = []
    if has_user(value):
        raise ValueError("an address can't contain a user: give sasl_username and sasl_password")
    for entry in _list(value):
        server = _server(entry)
        if (server[0].lower(), server[1]) in [(host.lower(), port) for host, port in servers]:
            raise ValueError(f"{entry!r} is listed twice")
        servers.append(server)
    if not servers:
        raise ValueError("it is empty")
    return tuple(servers)


def has_user(servers: object) -> bool:
    """Whether addresses look like URLs with a user, and so perhaps a password, which must not be shown."""
    return "@" in str(servers)


def with_ports(servers: Iterable[str]) -> list[str]:
    """Addresses as other clients accept them: the port is optional."""
    return [_with_port(str.strip(entry)) for entry in servers]


def _with_port(entry: str) -> str:
    host = entry.rpartition("://")[2]
    bare = host.rpartition("]")[2] if host.startswith("[") else host
    return entry if ":" in bare or not entry else f"{entry}:{_DEFAULT_PORT}"


def _server(entry: str) -> tuple[str, int]:
    match = _SERVER.fullmatch(entry)
    if match is None:
        raise ValueError(f"{entry!r} is not host:port")
    port = int(match["port"])
    if not 1 <= port <= 65535:
        raise ValueError(f"{entry!r} has a port out of range")
    return match["ipv6"] or match["host"], port


_SERIALIZERS_BY_NAME = {**JAVA_CLASSES, **{name.rpartition(".")[2]: each for name, each in JAVA_CLASSES.items()}}


def _serializer(value: object) -> object:
    if isinstance(value, str):
        if value.strip() not in _SERIALIZERS_BY_NAME:
            raise ValueError("JVM classes can't run here")
        return _SERIALIZERS_BY_NAME[value.strip()]
    if isinstance(value, type) and hasattr(value, "serialize"):
        raise ValueError("it is a class: give an instance of it")
    if isinstance(value, (SerializerObject, BindableSerializer)):
        return value
    return _taking(value, 1)


_RETRIEVERS = ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "JwtBearerJwtRetriever", "FileJwtRetriever")
_RETRIEVERS_PACKAGE = "org.apache.kafka.common.security.oauthbearer."


def _retriever(value: object) -> str:
    name = value.strip().removeprefix(_RETRIEVERS_PACKAGE) if isinstance(value, str) else ""
    if name not in _RETRIEVERS:
        raise ValueError("for others, use sasl_oauth_token_provider")
    return name


UNIFORM_STICKY = "uniform sticky"
"""Java's partitioner of that name: the built-in one with ``partitioner_ignore_keys``."""

_JAVA_PARTITIONERS = {
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": "round_robin",
    # Removed in 4.0, but files of older programs name them.
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": None,
    "org.apache.kafka.clients.producer.UniformStickyPartitioner": UNIFORM_STICKY,
}
_PARTITIONERS = {
    "round_robin": "round_robin",
    **_JAVA_PARTITIONERS,
    **{name.rpartition(".")[2]: each for name, each in _JAVA_PARTITIONERS.items()},
}


def _partitioner(value: object) -> object:
    if isinstance(value, str):
        if value.strip() not in _PARTITIONERS:
            raise ValueError("leave it out for Kafka's built-in partitioner")
        return _PARTITIONERS[value.strip()]
    if is_async(_taking(value, 4)):
        raise ValueError("it is async, but partitioners are not awaited: give a plain function")
    return value


def _taking(value: object, arguments: int) -> object:
    if not callable(value):
        raise ValueError
    if not takes(value, arguments):
        raise ValueError("it takes other arguments")
    return value


def takes(function: object, arguments: int) -> bool:
    """Whether it can be called with so many arguments by position; True for a compiled function that does not tell."""
    if not callable(function):
        return False
    try:
        signature = inspect.signature(function, follow_wrapped=False)  # a wrapper adapts what it wraps
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        return False
    return True


def is_async(function: object) -> bool:
    """Whether calling it only makes a coroutine: an async function, or an object whose ``__call__`` is one."""
    return any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))


def _error_handler(value: object) -> object:
    handler = _taking(value, 2)
    if is_async(handler):
        raise ValueError("it is async, but on_error is not awaited: give a plain function, which may create a task")
    return handler


INTERCEPTOR_METHODS = (
    "on_send",
    "on_acknowledgement",
    "on_start",
    "on_cluster",
    "on_bulk_begin",
    "on_bulk_end",
    "on_transaction_begin",
    "on_transaction_end",
    "close",
)


def _provider(value: object) -> object:
    return _taking(value, 0)


def _interceptors(value: object) -> tuple[object, ...]:
    if isinstance(value, str) and not value.strip():
        return ()
    if not isinstance(value, (list, tuple)):
        raise ValueError
    for interceptor in value:
        methods = [getattr(interceptor, name, None) for name in ("on_send", "on_acknowledgement")]
        if isinstance(interceptor, type) or not any(map(callable, methods)):
            raise ValueError(f"{interceptor!r} is not an interceptor")
        for method in filter(callable, (getattr(interceptor, name, None) for name in INTERCEPTOR_METHODS)):
            if is_async(method):
                name = getattr(method, "__qualname__", repr(method))
                raise ValueError(f"{name} is async, but interceptors are not awaited: give a plain method")
    return tuple(value)


def _ssl_context(value: object) -> object:
    if not hasattr(value, "wrap_bio"):
        raise ValueError
    return value


ACKS = ConfigType("all, -1, 0 or 1", "int", _INTEGERS, _acks)
SERVERS = ConfigType(
    "host:port or [IPv6]:port with a port from 1 to 65535, several as a list or with commas, without duplicates",
    "tuple[tuple[str, int], ...]",
    _LISTS,
    _servers,
)
SERIALIZER = ConfigType(
    "function of the value, object with serialize(topic, headers, value), or the name of one of Kafka's serializer "
    "classes: " + ", ".join(name.rpartition(".")[2] for name in JAVA_CLASSES),
    "Serializer",
    "Serializer | str",
    _serializer,
)
JWT_RETRIEVER = ConfigType(f"one of Kafka's {', '.join(_RETRIEVERS)}", "str", "str", _retriever)
PARTITIONER = ConfigType(
    "function of (topic, key, value, partitions), round_robin, or the name of one of Kafka's partitioner classes: "
    + ", ".join(name.rpartition(".")[2] for name in _JAVA_PARTITIONERS),
    "Callable[..., int | BuiltIn] | str",
    "Partitioner | str",
    _partitioner,
)
INTERCEPTORS = ConfigType(
    "list of objects with on_send or on_acknowledgement",
    "tuple[Any, ...]",
    'list[Any] | tuple[Any, ...] | Literal[""]',
    _interceptors,
)
ERROR_HANDLER = ConfigType(
    "function of (error, records)",
    "Callable[[Any, Any], object]",
    "Callable[[KafkaError, int], object]",
    _error_handler,
)
TOKEN_PROVIDER = ConfigType(
    "async function without arguments",
    "Callable[[], Awaitable[Any]]",
    "Callable[[], Awaitable[OAuthToken | str]]",
    _provider,
    secret=True,  # a token may be given in its place
)
CREDENTIALS_PROVIDER = ConfigType(
    "async function without arguments",
    "Callable[[], Awaitable[Any]]",
    "Callable[[], Awaitable[tuple[str, str]]]",
    _provider,
    secret=True,  # a password may be given in its place
)
SSL_CONTEXT = ConfigType("ssl.SSLContext", "ssl.SSLContext", "ssl.SSLContext", _ssl_context)
