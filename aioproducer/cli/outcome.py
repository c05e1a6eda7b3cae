"""How a command ends: exit codes, errors as one line instead of a traceback, and output that nobody takes."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping

DONE = 0
"""Everything was done and acknowledged."""
SOME_FAILED = 1
"""It ran, but not everything succeeded."""
NOT_POSSIBLE = 2
"""Usage, configuration, input or cluster prevent a start."""
INTERRUPTED = 130
"""Ended by Ctrl-C, by shell convention: 128 + SIGINT."""


class CommandError(Exception):
    """Why a command can't do its work, in one line.

    Args:
        message: what is wrong, and what helps.
        exit_code: the process's exit code.
    """

    def __init__(self, message: str, exit_code: int = NOT_POSSIBLE) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def one_line(error: BaseException) -> str:
    """An error's text, lines joined; its type's name if it has no text."""
    lines = [line.strip() for line in str(error).splitlines()]
    return " ".join(line for line in lines if line) or type(error).__name__


def drop_output() -> None:
    """Discard unwritable output, so that Python does not try again at exit and report the error once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def require(modules: Mapping[str, str], extra: str) -> None:
    """Check that optional packages are installed, without importing them.

    Args:
        modules: module name to pip package name.
        extra: the extra of this package that installs them all.
    Raises:
        CommandError: names what is missing and the pip command.
    """
    missing = [package for module, package in modules.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise CommandError(f"{', '.join(missing)} must be installed: pip install 'aioproducer[{extra}]'")
