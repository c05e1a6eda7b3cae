"""``aioproducer transactions list`` and ``abort``."""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from rich.console import Console
from rich.prompt import Confirm
from rich.table import Table
from rich.text import Text

from aioproducer import ConfigError, KafkaError
from aioproducer.cli.loop import run_in_loop
from aioproducer.cli.outcome import DONE, NOT_POSSIBLE, CommandError, one_line
from aioproducer.cli.tables import print_table
from aioproducer.config.producer_config import underscored
from aioproducer.message_text import printable
from aioproducer.transactions import OPEN_STATES, TransactionClient, TransactionDescription, TransactionListing

T = TypeVar("T")


def show(configs: Mapping[str, str], *, prefix: str, states: Collection[str]) -> int:
    """Print a table of transactional ids; returns the exit code.

    Raises:
        CommandError: the cluster can't be asked.
    """
    client = _client(configs)

    async def look() -> list[tuple[TransactionListing, TransactionDescription | None]]:
        async with client:
            listed = await client.list_transactions(prefix, states=states)
            return [(each, await client.describe(each.transactional_id)) for each in listed]

    _print(_run(look()))
    return DONE


def abort(configs: Mapping[str, str], *, prefix: str, keep: Collection[str], ask: bool) -> int:
    """Abort what is open under a prefix; returns the exit code.

    Args:
        ask: ask for confirmation first.
    Raises:
        CommandError: the cluster can't be asked, or nobody confirmed.
    """
    client = _client(configs)

    async def look() -> list[TransactionListing]:
        async with client:
            found = await client.list_transactions(prefix, states=OPEN_STATES)
            return [each for each in found if each.transactional_id not in keep]

    async def end(wanted: list[TransactionListing]) -> None:
        async with client:
            for each in wanted:
                await client.fence(each.transactional_id)

    found = _run(look())
    if not found:
        print(f"no open transaction has a transactional id that starts with {prefix!r}")
        return DONE
    for each in found:
        print(printable(each.transactional_id))
    if ask and not _confirmed(f"abort {len(found)} open transaction{'' if len(found) == 1 else 's'}?"):
        raise CommandError("nothing was aborted", NOT_POSSIBLE)
    _run(end(found))
    print(f"aborted {len(found)}")
    return DONE


def _confirmed(question: str) -> bool:
    try:
        return Confirm.ask(question, default=False)
    except EOFError:  # no user to answer
        print()
        return False


def _client(configs: Mapping[str, str]) -> TransactionClient:
    try:
        return TransactionClient(**underscored(configs))
    except ConfigError as error:
        raise CommandError(one_line(error)) from error


def _run(work: Coroutine[Any, Any, T]) -> T:
    try:
        return run_in_loop(work)
    except KafkaError as error:
        raise CommandError(one_line(error)) from error


def _print(rows: list[tuple[TransactionListing, TransactionDescription | None]]) -> None:
    table = Table("transactional id", "state", "producer id", "epoch", "began", "timeout", "partitions", box=None)
    for listed, described in rows:
        row = [listed.transactional_id, listed.state, str(listed.producer_id)]
        if described is not None:
            row = [
                described.transactional_id,
                described.state,
                str(described.producer_id),
                str(described.epoch),
                _time(described.started_ms),
                f"{described.timeout_ms / 1000:g} s",
                " ".join(map(str, described.partitions)),
            ]
        table.add_row(*(Text(printable(cell)) for cell in row))
    print_table(Console(), table)


def _time(ms: int) -> str:
    """A time since the epoch; nothing for a negative number, and the number itself if no calendar has it."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(" ", "seconds") if ms >= 0 else ""
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"
