"""EpochInquiry: finds out why a broker refuses the epoch of the producer in the middle of a transaction.

Theory of operation. A transaction that is younger than ``transaction_timeout_ms`` and not prepared can only have been
ended by a newer producer. Other refusals do not say why: a leader knows a newer epoch, or the coordinator does not have
our producer id. InitProducerId under our own id and epoch can tell. It is refused if a newer producer has the
transactional id, which ends this one. Otherwise the coordinator aborted the transaction because it took too long, and
returns the epoch that it created for that (KIP-588; brokers with V2 do this, older ones fence the producer here too),
or it had forgotten the transactional id after ``transactional.id.expiration.ms`` without a transaction, and returns a
new producer id. All who were refused wait for one answer: with it the id changes, and a second question under the old
one would be refused.

Source: KIP-360, KIP-588, KIP-890.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aioproducer.error_codes import Code
from aioproducer.errors import (
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    KafkaError,
    ProducerFencedError,
    UnsupportedVersionError,
)
from aioproducer.transaction.fate import TransactionFate


class EpochInquiry:
    """The questions of one producer, one at a time.

    Args:
        fate: returns that of the current transaction.
        initialize: InitProducerId under the producer's own id and epoch, whose answer the producer takes over.
        fatal: called with why the producer can't go on.
        spoil: called with why the transaction can only be aborted.
        on_end: called when the task that asks has ended.
    """

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        transactional_id: str,
        transaction_timeout_ms: int,
        fate: Callable[[], TransactionFate],
        initialize: Callable[[], Awaitable[object]],
        fatal: Callable[[KafkaError], None],
        spoil: Callable[[KafkaError], None],
        on_end: Callable[[asyncio.Task[Any]], None],
    ) -> None:
        self.asking: asyncio.Task[None] | None = None
        """The latest task that asks."""
        self._loop = loop
        self._transactional_id = transactional_id
        self._transaction_timeout_ms = transaction_timeout_ms
        self._fate = fate
        self._initialize = initialize
        self._fatal = fatal
        self._spoil = spoil
        self._on_end = on_end

    def begin(self, refusal: KafkaError) -> asyncio.Task[None]:
        """Ask, unless a question is under way; its task ends when the answer has taken effect."""
        if self.asking is None or self.asking.done():
            self.asking = self._loop.create_task(self._ask(refusal), name="aioproducer ask for epoch")
            self.asking.add_done_callback(self._on_end)
        return self.asking

    async def _ask(self, refusal: KafkaError) -> None:
        await asyncio.sleep(0)  # an eager task would end batches that its creator is still working on
        if self._can_only_be_fenced(refusal):
            self._fatal(self._fenced(refusal))
            return
        try:
            await self._initialize()
        except UnsupportedVersionError:
            if refusal.code == Code.INVALID_PRODUCER_ID_MAPPING:
                self._fatal(refusal)
            else:
                self._spoil(refusal)
        except KafkaError as error:
            self._fatal(error)
        else:
            self._fate().ended_by_broker = True
            self._spoil(self._ended(refusal))

    def _can_only_be_fenced(self, refusal: KafkaError) -> bool:
        """Whether the coordinator can't have aborted the transaction for its age.

        Then it must not be asked: a newer producer that is just starting, and waits for this transaction to be aborted,
        would lose the transactional id again. Another process may have ended a prepared transaction.
        """
        codes = (Code.INVALID_PRODUCER_EPOCH, Code.INVALID_TXN_STATE)
        if not isinstance(refusal, ProducerFencedError) and refusal.code not in codes:
            return False
        fate = self._fate()
        age_ms = int(self._loop.time() * 1000) - fate.began_ms
        return not fate.prepared and age_ms < self._transaction_timeout_ms

    # --- what the program is told -------------------------------------------------------------------------------------

    def _fenced(self, refusal: KafkaError) -> ProducerFencedError:
        told = ProducerFencedError(
            f"a newer producer has the transactional id {self._transactional_id!r}: the transaction was ended "
            f"although it was open for less than transaction_timeout_ms={self._transaction_timeout_ms}"
        )
        told.__cause__ = refusal
        return told

    def _ended(self, refusal: KafkaError) -> KafkaError:
        """Why the coordinator ended the transaction, given that no newer producer has the transactional id."""
        told: KafkaError
        if refusal.code == Code.INVALID_PRODUCER_ID_MAPPING:
            told = InvalidProducerIdMappingError(
                f"the coordinator had forgotten {self._transactional_id!r}, which had no transaction for longer "
                f"than the cluster's transactional.id.expiration.ms; the next one has a new producer id"
            )
        else:
            told = InvalidProducerEpochError(
                f"the coordinator aborted the transaction of {self._transactional_id!r}, because it was open for "
                f"longer than transaction_timeout_ms={self._transaction_timeout_ms}"
            )
        told.__cause__ = refusal
        return told
