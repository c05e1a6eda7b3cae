"""TransactionFate: what may have become of one transaction. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class TransactionFate:
    """What is known of how the current transaction ends; each transaction has its own."""

    began_ms: int = 0
    commit_asked: bool = False
    """EndTxn(commit) may have been sent, and was not refused."""
    maybe_committed: bool = False
    """An EndTxn(commit) that failed may have been carried out all the same."""
    prepared: bool = False
    """Another process may end it."""
    ended_by_broker: bool = False
    """The coordinator has aborted it by itself."""

    @property
    def in_doubt(self) -> bool:
        """Whether it may have been committed, here or by another process that has the prepared one."""
        return self.commit_asked or self.maybe_committed or self.prepared
