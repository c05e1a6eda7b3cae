"""ConfigDef: one entry of the config table."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from aioproducer.config.values import PATH, SERVERS, URL, ConfigType, OneOf, Valid, has_user
from aioproducer.errors import ConfigError

REQUIRED: Any = object()
"""Stands for the default of a config that has none."""

_MAX_SHOWN = 300
_STRIPPED = ("_password", "_passphrase", "_secret")
"""Name endings of one-line secrets, whose values are stripped, as in Java: read from a file or the environment, they
often end with a newline."""
_CONTENT = re.compile(r"(?s:.*)-----BEGIN |\s*eyJ[\w-]+\.eyJ[\w-]+\.")
_SECRET_PARTS = re.compile(r"(?<=//)[^/?#]*(?=@)|(?<=[?#]).+", re.DOTALL)
"""Parts of a URL."""
_UNITS = {"_ms": "ms", "_seconds": "s", "_bytes": "bytes", "_memory": "bytes", "_size": "bytes"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigDef:
    """One config."""

    name: str
    """Java's name with ``_`` for ``.``, or our own."""
    type: ConfigType
    default: Any
    valid: Valid | None = None
    importance: Literal["high", "medium", "low"]
    doc: str
    departs: str = ""
    """Why the default differs from Java's; empty if it does not."""
    alias: str = ""
    """A second name."""
    in_java: bool = True
    supported: bool = True
    """False: known and checked, but any value other than the default is refused for now."""

    @property
    def java_name(self) -> str:
        """The name in Java; "" if Java has no such config."""
        return self.name.replace("_", ".") if self.in_java else ""

    @property
    def nullable(self) -> bool:
        """Whether None is a value."""
        return self.default is None

    @property
    def secret(self) -> bool:
        """Whether the value must not be shown."""
        return self.type.secret

    @property
    def unit(self) -> str:
        """The unit of the number: ms, s, bytes or ""."""
        return next((unit for end, unit in _UNITS.items() if self.name.endswith(end)), "")

    @property
    def allowed(self) -> str:
        """The allowed values in words."""
        if isinstance(self.valid, OneOf):
            return str(self.valid)
        unit = f" ({self.unit})" if self.unit else ""
        return f"{self.type.name}{unit}" + (f", {self.valid}" if self.valid else "")

    def parse(self, value: object) -> Any:
        """The typed value of a Python value or a Java string.

        Raises:
            ConfigError: names the config, the value (unless secret) and the allowed values.
        """
        if value is None and (self.nullable or self.default == ""):
            return self.default
        if self.type is PATH:
            check_path(self.name, value)
        try:
            typed = self.type.parse(value)
            if self.in_java and self.name.endswith(_STRIPPED):
                typed = typed.strip()
            return self.valid(typed) if self.valid else typed
        except (ValueError, TypeError, OverflowError) as error:
            # A UnicodeEncodeError would show the value, and a secret's hint might.
            hint = f" ({error})" if type(error) is ValueError and str(error) and not self.secret else ""
            raise ConfigError(f"{self.name}={self.show(value)} is refused{hint}; allowed: {self.allowed}") from None

    def show(self, value: object) -> str:
        """A value as messages show it."""
        if self.type is URL and isinstance(value, str):
            value = _SECRET_PARTS.sub("[hidden]", value)
        hidden = (
            self.secret
            or (self.type is URL and not isinstance(value, str))
            or (self.type is SERVERS and has_user(value))
        )
        shown = "[hidden]" if hidden and value is not None else repr(value)
        return shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}..."


def check_mapping(configs: object) -> None:
    """Refuse anything but a mapping of config names to values; it may be a password, so it is never shown.

    Raises:
        ConfigError: names only the type.
    """
    if not isinstance(configs, Mapping):
        raise ConfigError(f"configs are a mapping of names to values, not {type(configs).__name__}")


def check_path(name: str, value: object) -> None:
    """Refuse a file's content given as its path: a PEM key, a JSON web token, or bytes such as a NUL.

    Raises:
        ConfigError: does not show the value, as an error about a missing file would.
    """
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, str) and (_CONTENT.match(value) or "\0" in value):
        raise ConfigError(f"{name}=[hidden] is refused: it is what a file holds; give the file's path")
