"""Runs this producer's ways of sending under an observing program, such as ``perf record``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from benchmarks.peers import PUBLISHERS, Client
from benchmarks.plan import Case, Effort
from benchmarks.runner import job_for, problems, work
from benchmarks.servers import SinkServer
from benchmarks.worker import Outcome

CLIENTS: Final = tuple(client for client in PUBLISHERS if client.package == "aioproducer")


def way(client: str) -> str:
    """Return a client's name as a way of sending."""
    return client.removeprefix("aioproducer ")


def run_under(
    command: Sequence[str], client: Client, case: Case, effort: Effort, records: int | None = None
) -> Outcome | str:
    """Send to a sink under the command; a string describes a problem of the run.

    Args:
        records: in the measured section; None leaves the number to the effort.
    """
    with SinkServer().visit(case.codec) as visit:
        job = job_for(case, client, visit, effort)
        if records is not None:
            job = dataclasses.replace(job, records=records)
        done = work(job, under=command)
        visit.sent = done.sent if isinstance(done, Outcome) else None
    if not isinstance(done, Outcome):
        return done
    return "; ".join(problems(job, done) + visit.problems) or done
