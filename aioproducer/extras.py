"""The error for an import or a config whose package is not installed."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from aioproducer.errors import ConfigError

ModuleGetattr: TypeAlias = Callable[[str], Any]
"""A module's ``__getattr__``."""


def on_demand(package: str, homes: Mapping[str, str], extra: str | None = None) -> ModuleGetattr:
    """The ``__getattr__`` of a package whose names are imported on first use.

    Args:
        homes: the module of each name, relative to the package.
        extra: installs what these modules need.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        except ModuleNotFoundError as error:
            if extra is None:
                raise
            raise missing(error, f"{package}.{name}", extra) from None

    return get


def missing(error: ModuleNotFoundError, needed_by: str, extra: str) -> ModuleNotFoundError:
    """The error of an import, naming the extra to install; unchanged if a module of this package is missing.

    Args:
        needed_by: the module, or the name in it, that was imported.
    """
    if error.name is None or error.name.partition(".")[0] == "aioproducer":
        return error
    return ModuleNotFoundError(
        f"{needed_by} needs {error.name}: pip install 'aioproducer[{extra}]'", name=error.name, path=error.path
    )


def check_package(needed_by: str, package: str, extra: str) -> None:
    """Refuse a config whose package is not installed, without importing the package.

    Args:
        package: its name; the module's name is the same but for ``-``.
    Raises:
        ConfigError: names the package, and the extra that installs it.
    """
    if importlib.util.find_spec(package.replace("-", "_")) is None:
        raise ConfigError(f"{needed_by} needs the package {package}: pip install 'aioproducer[{extra}]'")
