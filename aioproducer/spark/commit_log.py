"""CommitLog: which transactions of a batch are to be committed, written down before the first of them is.

Two kinds of files, each written whole:

    BATCH.ID.winners  what is going to be committed; from here on the batch must become visible, and never be written
                      again. Removed when it turns out that nothing of it can be committed. ID is another one each time:
                      a driver that was taken for dead must not write over what the next one has recorded.
    BATCH.committed   everything is; written before the winners are removed, and wins over them

So after a crash at any point the log says whether the batch has to be finished, is finished, or has to be written.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from urllib.parse import quote, unquote

from aioproducer.records import PreparedTransaction
from aioproducer.spark.batch_names import is_single, micro_batch_of
from aioproducer.spark.storage import Storage

logger: logging.Logger = logging.getLogger("aioproducer.spark")

WINNERS = ".winners"
COMMITTED = ".committed"

KEPT = 100
"""How many micro-batches of a query stay in the log; Spark replays the last one only."""


@dataclass(frozen=True, slots=True)
class Winners:
    """All transactions of one batch that are to be committed.

    Args:
        batch: names it in the log.
        statement: file of what an audit is told of the batch; empty for none.
        stated: what is in that file, for a driver that finds it missing.
        record: tells apart what several drivers have recorded of the same batch.
    """

    batch: str
    transactions: tuple[PreparedTransaction, ...]
    statement: str = ""
    stated: str = ""
    record: str = field(default_factory=lambda: uuid.uuid4().hex[:8])


class CommitLog:
    """The batches of one query, or of batch writes, that were to be committed."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def place_of(self, winners: Winners) -> str:
        """Where the winners of a batch stand, for people."""
        return self._storage.path(_record_name(winners))

    def record(self, winners: Winners) -> None:
        """Write the winners down; when this returns they survive a crash."""
        transactions = [asdict(one) for one in winners.transactions]
        said = {"statement": winners.statement, "stated": winners.stated, "transactions": transactions}
        self._storage.write(_record_name(winners), json.dumps(said, indent=1).encode())

    def finish(self, batch: str) -> None:
        """Note that all winners of a batch are committed."""
        self._storage.write(_quoted(batch) + COMMITTED, b"")
        self.tidy(batch)

    def withdraw(self, winners: Winners) -> None:
        """Note that a batch will have to be written again, because none of its winners can be committed."""
        self._storage.remove(_record_name(winners))

    def committed(self) -> frozenset[str]:
        """Batches that are finished, as far as the log remembers."""
        return frozenset(_committed(self._storage.names()))

    def unfinished(self) -> list[Winners]:
        """What was recorded and is not known to be finished."""
        names = self._storage.names()
        done = set(_committed(names))
        return [self._read(name) for name in _records(names) if _batch_of(name) not in done]

    def tidy(self, keep: str = "") -> None:
        """Remove what nobody will ask for: the winners of finished batches, and then old batches themselves.

        Never a batch whose winners are there: they would be taken for unfinished.

        Args:
            keep: a micro-batch that stays however old it is.
        """
        try:
            names = self._storage.names()
            done = set(_committed(names))
            for name in _records(names):
                if _batch_of(name) in done:
                    self._storage.remove(name)
            for batch in _old(done, keep):
                self._storage.remove(_quoted(batch) + COMMITTED)
        except OSError as error:
            # What is committed stays so, and the next batch does this again.
            logger.warning("old files of the transaction log can't be removed: %s", error)

    def _read(self, name: str) -> Winners:
        said = json.loads(self._storage.read(name))
        transactions = tuple(PreparedTransaction(**one) for one in said["transactions"])
        return Winners(_batch_of(name), transactions, said["statement"], said["stated"], name.split(".")[-2])


def _quoted(batch: str) -> str:
    return quote(batch, safe="").replace(".", "%2E")


def _record_name(winners: Winners) -> str:
    return f"{_quoted(winners.batch)}.{winners.record}{WINNERS}"


def _batch_of(name: str) -> str:
    return unquote(name.split(".")[0])


def _records(names: Sequence[str]) -> list[str]:
    return [name for name in names if name.endswith(WINNERS)]


def _committed(names: Sequence[str]) -> list[str]:
    return [_batch_of(name) for name in names if name.endswith(COMMITTED)]


def _old(batches: set[str], keep: str) -> set[str]:
    """Batches that nobody will ask for; jobs are never among them, for a scheduler may repeat them at any time."""
    numbered = {batch: place for batch in batches if (place := micro_batch_of(batch)) is not None}
    newest: dict[str, int] = {}
    for query, number in numbered.values():
        newest[query] = max(number, newest.get(query, 0))
    old = {batch for batch, (query, number) in numbered.items() if number <= newest[query] - KEPT}
    return old - {keep} | {batch for batch in batches if is_single(batch)}
