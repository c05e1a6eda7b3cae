"""CommitLog: which transactions of a batch are to be committed, written down before the first of them is.

Two files a batch, each written whole:

    BATCH.winners     what is going to be committed; from here on the batch must become visible, and never be
                      written again. Removed when it turns out that nothing of it can be committed.
    BATCH.committed   everything is; written before BATCH.winners is removed, and wins over it

So after a crash at any point the log says whether the batch has to be finished, is finished, or has to be written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from urllib.parse import quote, unquote

from aioproducer.records import PreparedTransaction
from aioproducer.spark.storage import Storage

WINNERS = ".winners"
COMMITTED = ".committed"

KEPT = 100
"""How many finished batches stay in the log; Spark replays the last one only."""


@dataclass(frozen=True, slots=True)
class Winners:
    """All transactions of one batch that are to be committed.

    Args:
        batch: names it in the log; of a stream the number of the micro-batch.
    """

    batch: str
    transactions: tuple[PreparedTransaction, ...]


class CommitLog:
    """The batches of one query that were to be committed."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def name_of_record(self, batch: str) -> str:
        """Where the winners of a batch stand, for people."""
        return self._storage.path(_name(batch, WINNERS))

    def record(self, winners: Winners) -> None:
        """Write the winners down; when this returns they survive a crash."""
        text = json.dumps([asdict(one) for one in winners.transactions], indent=1)
        self._storage.write(_name(winners.batch, WINNERS), text.encode())

    def finish(self, batch: str, keep: Iterable[str] = ()) -> None:
        """Note that all winners of a batch are committed.

        Args:
            keep: batches that stay in the log however old they are.
        """
        self._storage.write(_name(batch, COMMITTED), b"")
        self._storage.remove(_name(batch, WINNERS))
        self._forget_old({batch, *keep})

    def withdraw(self, batch: str) -> None:
        """Note that a batch will have to be written again, because none of its winners can be committed."""
        self._storage.remove(_name(batch, WINNERS))

    def committed(self) -> frozenset[str]:
        """Batches that are finished, as far as the log remembers."""
        return frozenset(_batches(self._storage.names(), COMMITTED))

    def unfinished(self) -> list[Winners]:
        """Batches that were recorded and are not known to be finished."""
        names = self._storage.names()
        done = set(_batches(names, COMMITTED))
        return [self._read(batch) for batch in _batches(names, WINNERS) if batch not in done]

    def _read(self, batch: str) -> Winners:
        listed = json.loads(self._storage.read(_name(batch, WINNERS)))
        return Winners(batch, tuple(PreparedTransaction(**one) for one in listed))

    def _forget_old(self, keep: set[str]) -> None:
        done = sorted(_batches(self._storage.names(), COMMITTED), key=_age)
        for batch in done[:-KEPT]:
            if batch not in keep:
                self._storage.remove(_name(batch, COMMITTED))


def _name(batch: str, kind: str) -> str:
    return quote(batch, safe="") + kind


def _batches(names: Sequence[str], kind: str) -> list[str]:
    return [unquote(name.removesuffix(kind)) for name in names if name.endswith(kind)]


def _age(batch: str) -> tuple[int, str]:
    """Micro-batches by number. Other names have no order, and are kept longest."""
    return (int(batch), "") if batch.isdigit() else (2**63, batch)
