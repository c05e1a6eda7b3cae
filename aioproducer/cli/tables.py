"""Tables in full: to fit a terminal, rich would cut names and numbers, and show the same of two transactional ids."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

WIDEST = 1_000_000
"""Characters that no row needs."""


def print_table(console: Console, table: Table) -> None:
    """Print a table as wide as its cells; a terminal that is not so wide wraps its lines."""
    table.width = console.measure(table, options=console.options.update(max_width=WIDEST)).maximum
    console.print(table, crop=False)
