"""The console script ``aioproducer``; its commands stand in ``app``."""

from __future__ import annotations

import errno
import importlib.util
import io
import os
import sys

_NEEDED = ("typer", "rich")


def main() -> None:
    """Run the command line; exit code 2 and the way to install it when its extra is missing."""
    _fill_standard_streams()
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        message = f"aioproducer: the command line needs {' and '.join(missing)}: pip install 'aioproducer[cli]'"
        print(message, file=sys.stderr)
        raise SystemExit(2)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # bars, and names of files, in a terminal that has no such letters
    try:
        from aioproducer.cli.app import app

        try:
            app(prog_name="aioproducer")
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except KeyboardInterrupt:  # while the commands were imported: a command tells of it itself
        print("aioproducer: interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    except OSError as error:
        _drop_output()
        if error.errno != errno.EPIPE:  # else who reads has enough, as `head` has
            where = f"{error.filename}: " if error.filename is not None else ""
            print(f"aioproducer: {where}{error.strerror or error}", file=sys.stderr)
        raise SystemExit(1) from None


def _fill_standard_streams() -> None:
    """Give what stands in for a closed standard stream its number, which a socket of the loop would get else.

    libuv ends the process, with a core dump, when it has to close one of these three. Standard input is opened for
    writing, so that to read from it fails as it did.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_WRONLY)  # the lowest number that is free


def _drop_output() -> None:
    """What can't be written is not tried again by Python at its end, which would tell of it once more."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
