"""What an import, or a config, says that needs a package which is not installed."""

from __future__ import annotations

import importlib.util

from aioproducer.errors import ConfigError


def missing(error: ModuleNotFoundError, needed_by: str, extra: str) -> ModuleNotFoundError:
    """The error of an import with the extra that brings the package; as it is if a module of this package is missing.

    Args:
        needed_by: the module, or the name in it, that was asked for.
    """
    if error.name is None or error.name.partition(".")[0] == "aioproducer":
        return error
    return ModuleNotFoundError(
        f"{needed_by} needs {error.name}: pip install 'aioproducer[{extra}]'", name=error.name, path=error.path
    )


def check_package(needed_by: str, package: str, extra: str) -> None:
    """Refuse a config whose package is not installed; it is not imported.

    Args:
        package: its name, that of its module but for ``-``.
    Raises:
        ConfigError: it names the package, and the extra that brings it.
    """
    if importlib.util.find_spec(package.replace("-", "_")) is None:
        raise ConfigError(f"{needed_by} needs the package {package}: pip install 'aioproducer[{extra}]'")
