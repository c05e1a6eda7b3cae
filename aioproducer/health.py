"""Health: what a producer reports to its operators, such as an orchestrator's probes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from aioproducer.errors import KafkaError


class ProducerState(StrEnum):
    """The stage of a producer's life."""

    NEW = "new"
    """Not started, or the last start failed."""
    STARTING = "starting"
    RUNNING = "running"
    FAILED = "failed"
    """It can do nothing more; a new producer is needed."""
    CLOSING = "closing"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class ProducerHealth:
    """The state of a producer, and what keeps it from sending."""

    state: ProducerState
    error: KafkaError | None = None
    """Why it has failed; while it runs, why no broker can be reached."""
    waiting: int = 0
    """Calls that wait for room in the buffer."""
    pending: int = 0
    """Admitted records that have not ended."""
    given_up: int = 0
    """Records that failed because ``close(timeout)`` did not wait for them, or because the producer failed."""

    @property
    def live(self) -> bool:
        """False once only a new producer or process can help."""
        return self.state is not ProducerState.FAILED

    @property
    def ready(self) -> bool:
        """Whether a record submitted now could be sent at once."""
        return self.state is ProducerState.RUNNING and self.error is None and not self.waiting

    @property
    def reason(self) -> str:
        """Why it is not ready, in one line; empty if it is."""
        if self.error is not None:
            return " ".join(f"the producer is {self.state}: {self.error}".split())
        if self.state is not ProducerState.RUNNING:
            return f"the producer is {self.state}"
        if self.waiting:
            return f"the buffer is full, {self.waiting:,} calls wait for room (buffer_memory)"
        return ""
