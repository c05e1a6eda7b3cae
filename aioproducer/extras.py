"""What an import says that needs a package which is not installed."""

from __future__ import annotations


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
