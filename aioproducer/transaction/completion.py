"""CompletionWait: holds back what begins a transaction until the coordinator has completed the previous one.

Theory of operation. The coordinator answers EndTxn as soon as the decision is in its log, and completes the transaction
afterwards: it has the markers written, then notes that. With transactions V2 (KIP-890), a broker that gets the next
transaction's first batch meanwhile can't add its partition, and tries again every 20 ms
(``add.partitions.to.txn.retry.backoff.ms``). A program that sends one transaction after the other would wait that long
for most of them, although the completion takes a few milliseconds. So batches, or offsets, that would begin a
transaction soon after the end are held back, and the coordinator is asked whether it has completed, until it has.

    EndTxn answered --something is ready within SOON_MS--> a sleep --> asking --not completed--> a short sleep ...
                                                                         `--completed, or it can't tell--> it goes

The first sleep ends half as long after the end as the previous completion took, so that what a coordinator needs every
time costs few questions.

Asking only saves time: whatever comes in between, all that was held back goes, and the broker waits as before.

Source: KIP-890; kafka.server.ReplicaManager.handleProduceAppend.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aioproducer.errors import KafkaError
from aioproducer.transaction.partitions import BROKER_WAITS_MS
from aioproducer.transaction.requests import TransactionRequests

SOON_MS = BROKER_WAITS_MS
"""How long after the end of a transaction the next one's first batch is held back to ask: as long as the broker would
wait."""

QUICK_MS = BROKER_WAITS_MS
"""The longest that EndTxn may have taken: where a round trip takes longer than the broker would wait, none is spent."""

LONGEST_MS = 200
"""How long after the end batches are held back at most."""

LONGEST_EXPECTED_MS = 20
"""After a longer completion the next one is asked about as after one of this length."""

PART_OF_WAIT = 4
"""Between two questions, a sleep of a quarter of the time since the end: the wait is longer by that at most."""

ENDING = frozenset({"PrepareCommit", "PrepareAbort"})


class CompletionWait:
    """Waits for the completion of the transactions of one producer.

    Args:
        requests: of no other user: failed questions must not show up as the reason for another call's timeout.
        completed: called when batches that were held back may go.
        on_end: called when the task that asks has ended.
    """

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        requests: TransactionRequests,
        completed: Callable[[], None],
        on_end: Callable[[asyncio.Task[Any]], None],
    ) -> None:
        self.asking: asyncio.Task[None] | None = None
        """The latest task that asks."""
        self._loop = loop
        self._requests = requests
        self._completed = completed
        self._on_end = on_end
        self._ended_s: float | None = None
        """When EndTxn was answered; None if there is nothing to wait for."""
        self._took_s = 0.0
        """How long the latest completion took, at most, after the answer to EndTxn; 0 if that is not known."""

    def ended(self, began_s: float) -> None:
        """EndTxn, which was begun at this time of the loop, has been answered; with V2."""
        now_s = self._loop.time()
        self._ended_s = now_s if (now_s - began_s) * 1000 <= QUICK_MS else None

    def holds_back(self) -> bool:
        """Whether what would begin a transaction has to wait; ``completed`` tells the end of that."""
        if self._ended_s is None:
            return False
        if self.asking is None or self.asking.done():
            if (self._loop.time() - self._ended_s) * 1000 >= SOON_MS:
                self._ended_s = None
                return False
            self.asking = self._loop.create_task(self._ask(self._ended_s), name="aioproducer await completion")
            self.asking.add_done_callback(self._on_end)
        return True

    async def wait(self) -> None:
        """Wait until what begins a transaction may go."""
        if self.holds_back() and self.asking is not None:
            await asyncio.wait([self.asking])

    async def _ask(self, ended_s: float) -> None:
        try:
            async with asyncio.timeout_at(ended_s + LONGEST_MS / 1000):
                await self._ask_until_completed(ended_s)
        except (KafkaError, TimeoutError):
            self._took_s = 0.0  # the coordinator can't tell
        finally:
            self._ended_s = None
            self._completed()

    async def _ask_until_completed(self, ended_s: float) -> None:
        await asyncio.sleep(ended_s + self._took_s / 2 - self._loop.time())
        questions = 0
        while True:
            asked_s = self._loop.time()
            questions += 1
            described = await self._requests.describe(wanted=_once)
            if described.state not in ENDING:
                break
            await asyncio.sleep((self._loop.time() - ended_s) / PART_OF_WAIT)
        took_s = min(asked_s - ended_s, LONGEST_EXPECTED_MS / 1000)
        # What the first question found completed may have been so for long.
        self._took_s = took_s if questions > 1 else min(took_s, self._took_s)


def _once() -> bool:
    """No answer is worth a second attempt."""
    return False
