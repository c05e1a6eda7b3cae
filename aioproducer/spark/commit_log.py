"""CommitLog: the transactions of a batch to commit, recorded before the first of them is committed.

Three kinds of files, each written whole:

    NUMBER.ID.claim   the highest claim owns the log. Each batch begins with a claim, and no two share a number.
    BATCH.ID.winners  what will be committed; from here on the batch must become visible, and never be written again.
                      Removed if nothing of it turns out to be committable. ID is new each time: a driver that was
                      taken for dead must not overwrite what the next one has recorded.
    BATCH.committed   everything is committed; written before the winners are removed, and overrides them. It has the
                      number of the batch's rows, and their topic; it is empty if that is not known. Jobs are never
                      forgotten, and have theirs in directories of their own, jobs/HASH, so that listings stay short

So after a crash at any point the log says whether the batch must be finished, is finished, or must be written.

A driver claims, then reads the records; it records, then reads the claims. So of two drivers at least one sees the
other, and the one with the lower claim gives way. This requires a directory with read-after-write consistency, as
local disks, HDFS and object stores have.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from urllib.parse import unquote

from aioproducer.records import PreparedTransaction
from aioproducer.spark.batch_names import in_file_name, is_job, is_single, micro_batch_of
from aioproducer.spark.errors import SparkWriteError
from aioproducer.spark.storage import Storage

logger: logging.Logger = logging.getLogger("aioproducer.spark")

WINNERS = ".winners"
COMMITTED = ".committed"
CLAIM = ".claim"
JOBS = "jobs"

_CLAIM_NAME = re.compile(r"[0-9]{12}\.[0-9a-f]{8}\.claim")
_RECORD_NAME = re.compile(r"[^.]+\.[0-9a-f]{8}\.winners")

KEPT = 100
"""How many micro-batches of a query stay in the log; Spark replays only the last one."""


def claim_number(claim: str) -> int:
    """The number of a claim; 0 for none."""
    return int(claim.partition(".")[0] or 0)


def new_id() -> str:
    """A unique id for a record or a claim."""
    return uuid.uuid4().hex[:8]


@dataclass(frozen=True, slots=True)
class Winners:
    """All transactions of one batch to commit.

    Args:
        batch: names it in the log.
        statement: file of the batch's audit statement; empty for none.
        stated: content of that file, for a driver that finds it missing.
        claim: of the driver that recorded it.
        record: distinguishes the records of several drivers for the same batch.
        rows: of the batch; None if unknown.
        topic: of all rows; empty if they have it themselves.
    """

    batch: str
    transactions: tuple[PreparedTransaction, ...]
    statement: str = ""
    stated: str = ""
    claim: str = ""
    record: str = field(default_factory=new_id)
    rows: int | None = None
    topic: str = ""


class CommitLog:
    """The log of batches to commit, of one query or of batch writes."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    @property
    def place(self) -> str:
        """Its location, for messages."""
        return self._storage.path("")

    def claim(self) -> str:
        """Take the log over: records of a former owner no longer count, see ``is_claimed_by``."""
        while True:
            number = 1 + claim_number(self._newest_claim())
            claim = f"{number:012}.{new_id()}"
            self._storage.write(claim + CLAIM, b"")
            # Numbers go into task ids, so no two drivers may share one; of two at once, at least one sees the other.
            if [claim_number(one) for one in _claims(self._storage.names())].count(number) <= 1:
                return claim

    def is_claimed_by(self, claim: str) -> bool:
        """Whether nobody else has taken the log over since."""
        return self._newest_claim() <= claim

    def _newest_claim(self) -> str:
        return max(_claims(self._storage.names()), default="")

    def place_of(self, winners: Winners) -> str:
        """Where the winners of a batch are recorded, for messages."""
        return self._storage.path(_record_name(winners))

    def record(self, winners: Winners) -> None:
        """Record the winners; when this returns they survive a crash."""
        said = asdict(winners)
        name = _record_name(winners)
        del said["batch"], said["record"]
        if winners.rows is None:
            del said["rows"]
        self._storage.write(name, json.dumps(said, indent=1).encode())

    def finish(self, batch: str, rows: int | None = None, topic: str = "") -> None:
        """Note that all winners of a batch are committed, how many rows it has, and their topic."""
        if not self.is_committed(batch):
            # HDFS removes a file before it replaces it, and a crash in between would leave the batch to be written.
            said = b"" if rows is None else json.dumps({"rows": rows, "topic": topic}).encode()
            self._ends(batch).write(_committed_name(batch), said)
        self.tidy(batch)

    def _ends(self, batch: str) -> Storage:
        """Where it is noted that a batch is committed."""
        if not is_job(batch):
            return self._storage
        # A directory of HDFS can't have more than a million files.
        return self._storage.under(f"{JOBS}/{hashlib.sha256(batch.encode()).hexdigest()[:3]}")

    def rows(self, batch: str) -> int | None:
        """The number of rows of a finished batch; None if it is not known."""
        rows = self._noted(batch).get("rows")
        return rows if type(rows) is int else None

    def topic(self, batch: str) -> str:
        """The topic of a finished batch; empty if it is not known, or not the same for all rows."""
        topic = self._noted(batch).get("topic")
        return topic if isinstance(topic, str) else ""

    def _noted(self, batch: str) -> dict[str, object]:
        try:
            noted = json.loads(self._ends(batch).read(_committed_name(batch)))
        except (FileNotFoundError, ValueError, RecursionError):
            return {}
        return noted if isinstance(noted, dict) else {}

    def place_of_end(self, batch: str) -> str:
        """Where it is noted that a batch is committed, for messages."""
        return self._ends(batch).path(_committed_name(batch))

    def withdraw(self, winners: Winners) -> None:
        """Remove this record, but not other drivers' records of the same batch."""
        self._storage.remove(_record_name(winners))

    def give_up(self, winners: Winners) -> None:
        """Note that a batch must be written again, because none of its winners can be committed.

        Older records of the same batch are removed first, because this one decides whether they count.
        """
        for name in _records(self._storage.names()):
            if _batch_of(name) == winners.batch and (older := self._read(name)) and older.claim < winners.claim:
                self.withdraw(older)
        self.withdraw(winners)

    def committed(self) -> frozenset[str]:
        """Finished batches that are still in the log, without jobs."""
        return frozenset(_committed(self._storage.names()))

    def is_committed(self, batch: str) -> bool:
        """Whether a batch is finished, and still in the log."""
        return _committed_name(batch) in self._ends(batch).names()

    def unfinished(self) -> list[Winners]:
        """Recorded batches not known to be finished; for each, the record under the highest claim.

        A driver records a batch anew, if only to finish it, once it knows whether older records of it count.
        """
        names = self._storage.names()
        done = self._done(names)
        found = [record for name in _records(names) if _batch_of(name) not in done and (record := self._read(name))]
        newest: dict[str, str] = {}
        for record in found:
            newest[record.batch] = max(record.claim, newest.get(record.batch, ""))
        return [record for record in found if record.claim == newest[record.batch]]

    def tidy(self, keep: str = "") -> None:
        """Remove what is no longer needed: old claims, winners of finished batches, then old batches themselves.

        Never a batch whose winners are still there: they would be taken for unfinished.

        Args:
            keep: a micro-batch to keep, however old.
        """
        try:
            names = self._storage.names()
            done = self._done(names)
            for claim in sorted(_claims(names))[:-1]:
                self._storage.remove(claim + CLAIM)
            for name in _records(names):
                if _batch_of(name) in done:
                    self._storage.remove(name)
            for batch in _old(done, keep):
                self._storage.remove(_committed_name(batch))
        except OSError as error:
            # Commits are not affected, and the next batch tries again.
            logger.warning("old files of the transaction log can't be removed: %s", str(error))

    def _done(self, names: Sequence[str]) -> set[str]:
        """Finished batches; of jobs, those that still have records."""
        jobs = {batch for batch in map(_batch_of, _records(names)) if is_job(batch)}
        return {*_committed(names), *filter(self.is_committed, jobs)}

    def _read(self, name: str) -> Winners | None:
        """Read a record; None if its driver has removed it meanwhile."""
        try:
            said = json.loads(self._storage.read(name))
            transactions = tuple(_transaction(one) for one in said.pop("transactions"))
            _check_types(said, {"rows": int}, str)
            _check_file_name(said.get("statement", ""))
            return Winners(_batch_of(name), transactions, **said, record=name.split(".")[-2])
        except FileNotFoundError:
            return None
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise SparkWriteError(f"{self._storage.path(name)} is not a transaction log's record: {error!r}") from error


def _transaction(said: Mapping[str, object]) -> PreparedTransaction:
    _check_types(said, {"transactional_id": str, "is_empty": bool}, int)
    return PreparedTransaction(**said)  # type: ignore[arg-type]


def _check_types(said: Mapping[str, object], kinds: Mapping[str, type], otherwise: type) -> None:
    """Check field types: JSON from a file may hold anything."""
    for name, value in said.items():
        if type(value) is not kinds.get(name, otherwise):
            raise TypeError(f"{name} is a {type(value).__name__}")


def _check_file_name(name: str) -> None:
    """The file is written, or removed: whoever can write the log must not choose a place for that."""
    if "/" in name:
        raise ValueError(f"{name!r} is no name of a file")


def _committed_name(batch: str) -> str:
    return in_file_name(batch) + COMMITTED


def _record_name(winners: Winners) -> str:
    return f"{in_file_name(winners.batch)}.{winners.record}{WINNERS}"


def _batch_of(name: str) -> str:
    return unquote(name.split(".")[0])


def _records(names: Sequence[str]) -> list[str]:
    return [name for name in names if _RECORD_NAME.fullmatch(name)]


def _claims(names: Sequence[str]) -> list[str]:
    return [name.removesuffix(CLAIM) for name in names if _CLAIM_NAME.fullmatch(name)]


def _committed(names: Sequence[str]) -> list[str]:
    return [_batch_of(name) for name in names if name.endswith(COMMITTED)]


def _old(batches: set[str], keep: str) -> set[str]:
    """Batches no longer needed; never jobs, which a scheduler may repeat at any time."""
    numbered = {batch: place for batch in batches if (place := micro_batch_of(batch)) is not None}
    newest: dict[str, int] = {}
    for query, number in numbered.values():
        newest[query] = max(number, newest.get(query, 0))
    old = {batch for batch, (query, number) in numbered.items() if number <= newest[query] - KEPT}
    return old - {keep} | {batch for batch in batches if is_single(batch)}
