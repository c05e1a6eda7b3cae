"""Names of batches in the transaction log.

QUERY:17      micro-batch 17; QUERY is the id in the checkpoint, so a query started afresh has new batch names
job:NAME      a batch write with the option jobId
write:RANDOM  a batch write without it: a new name for each save()
"""

from __future__ import annotations

import uuid
from urllib.parse import quote

_JOB = "job:"
_WRITE = "write:"


def micro_batch(query: str, number: str) -> str:
    """A micro-batch of a streaming query."""
    return f"{query}:{number}"


def batch_write(job: str | None) -> str:
    """A batch write; None for one that is never repeated under its name."""
    return f"{_WRITE}{uuid.uuid4().hex}" if job is None else f"{_JOB}{job}"


def in_file_name(name: str) -> str:
    """A batch, or the job in it, as part of a log file name, where a dot ends it."""
    return quote(name, safe="").replace(".", "%2E")


def is_single(batch: str) -> bool:
    """Whether the batch will never be asked for again."""
    return batch.startswith(_WRITE)


def is_job(batch: str) -> bool:
    """Whether the batch has a jobId, so that it may be asked for again at any time."""
    return batch.startswith(_JOB)


def micro_batch_of(batch: str) -> tuple[str, int] | None:
    """The query and number of a micro-batch; None for a batch write or a name that is not ours."""
    query, _, number = batch.rpartition(":")
    if batch.startswith((_JOB, _WRITE)) or not (number.isascii() and number.isdecimal()):
        return None
    return query, int(number)
