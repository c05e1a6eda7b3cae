"""The console script ``aioproducer``; its commands are in ``app``."""

from __future__ import annotations

import errno
import importlib.util
import io
import os
import sys

from aioproducer.cli.outcome import drop_output

_NEEDED = ("typer", "rich")


def main() -> None:
    """Run the command line; if its extra is missing, say how to install it and exit with code 2."""
    _fill_standard_streams()
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        message = f"aioproducer: the command line needs {' and '.join(missing)}: pip install 'aioproducer[cli]'"
        print(message, file=sys.stderr)
        raise SystemExit(2)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # bars and file names in a terminal that lacks such characters
    if os.environ.get("COLUMNS") == "0":
        del os.environ["COLUMNS"]  # the width is not known; rich would print nothing
    try:
        from aioproducer.cli.app import app

        try:
            app(prog_name="aioproducer")
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:  # while importing the commands; a running command reports it itself
        print("aioproducer: interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    except OSError as error:
        drop_output()
        if error.errno != errno.EPIPE:  # else the reader has had enough, like `head`
            where = f"{error.filename}: " if error.filename is not None else ""
            print(f"aioproducer: {where}{error.strerror or error}", file=sys.stderr)
        raise SystemExit(1) from None


def _fill_standard_streams() -> None:
    """Substitute the closed standard streams: their descriptors, and Python's objects for them.

    A socket of the loop would get the descriptor otherwise, and libuv aborts the process with a core dump when it has
    to close one of these three. Standard input's is opened for writing, so that reading from it still fails.

    Python's object would be None: ``input`` can't read from that, nor can anything flush it, and ``print`` takes it for
    standard output.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_WRONLY)  # the lowest free descriptor
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8", errors="backslashreplace"))  # noqa: SIM115
