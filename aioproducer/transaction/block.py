"""Transaction: one transaction as a block of code."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from aioproducer.errors import KafkaError
from aioproducer.transaction.runner import TransactionRunner, closed_meanwhile
from aioproducer.transaction.state import TransactionState


class Transaction:
    """One transaction as an async context manager; returned by ``Producer.transaction()``."""

    def __init__(self, runner: TransactionRunner) -> None:
        self._runner = runner
        self._number = 0

    async def __aenter__(self) -> Self:
        await self._runner.begin()
        self._number = self._runner.number
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        runner = self._runner
        if error is None and runner.closed_over == self._number:
            raise closed_meanwhile("commit_transaction")
        states = runner.states
        is_unended = states.is_open or states.error is not None
        # A commit that the body has left behind, or that another task waits for, may still fail.
        is_committing = error is None and states.state is TransactionState.COMMITTING
        if runner.number != self._number or not (is_unended or is_committing):
            return  # the body already ended or prepared it
        if error is None:
            await runner.commit(or_abort=True)
            return
        try:
            await runner.abort()
        except KafkaError as failure:
            error.add_note(f"aborting the transaction failed too: {failure}")
