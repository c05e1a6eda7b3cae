"""Text for messages and logs, in a form that is safe to show and not too long."""

from __future__ import annotations

from collections.abc import Sequence


def excerpt(text: str, length: int = 300) -> str:
    """Foreign text in a form fit for a message: one line, no control characters, and not too long."""
    shown = printable(" ".join(text[: 4 * length].split()))
    return shown if len(shown) <= length else f"{shown[:length]}..."


def listed(values: Sequence[object], most: int = 10) -> str:
    """The first values, and how many more there are."""
    more = f" and {len(values) - most} more" if len(values) > most else ""
    return ", ".join(map(str, values[:most])) + more


def printable(text: str) -> str:
    """A text without characters that a terminal would interpret."""
    return text if text.isprintable() else "".join(each if each.isprintable() else "?" for each in text)


def host_port(host: str, port: int) -> str:
    """An address as ``bootstrap_servers`` takes it: without brackets, the port would pass for a part of IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
