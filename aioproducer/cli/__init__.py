"""The console script ``aioproducer``: ``produce``, ``audit``, ``transactions``, ``demo``, ``demo-spark``."""

from __future__ import annotations

import importlib.util
import sys

_NEEDED = ("typer", "rich")


def main() -> None:
    """Run the command line; exit code 2 and the way to install it when its extra is missing."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        message = f"aioproducer: the command line needs {' and '.join(missing)}: pip install 'aioproducer[cli]'"
        print(message, file=sys.stderr)
        raise SystemExit(2)
    try:
        from aioproducer.cli.app import app

        app(prog_name="aioproducer")
    except KeyboardInterrupt:
        raise SystemExit(130) from None
