"""What a log knows a batch by.

QUERY:17      micro-batch 17; QUERY is the id in the checkpoint, so a query that begins anew has batches of its own
job:NAME      a batch write with the option jobId
write:RANDOM  a batch write without: each call of save() is another one
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
    """A batch write; None for one that is never done again under its name."""
    return f"{_WRITE}{uuid.uuid4().hex}" if job is None else f"{_JOB}{job}"


def in_file_name(name: str) -> str:
    """A batch, or the job in it, as it stands in the names of files of the log, where a dot ends it."""
    return quote(name, safe="").replace(".", "%2E")


def is_single(batch: str) -> bool:
    """Whether nobody will ask for the batch again."""
    return batch.startswith(_WRITE)


def micro_batch_of(batch: str) -> tuple[str, int] | None:
    """The query and the number of a micro-batch; None for a batch write, and for a name that is none of ours."""
    query, _, number = batch.rpartition(":")
    if batch.startswith((_JOB, _WRITE)) or not (number.isascii() and number.isdecimal()):
        return None
    return query, int(number)
