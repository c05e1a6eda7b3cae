"""ProducerIdRequest: asks the cluster for a producer id until it has one."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

from aioproducer.backoff import ExponentialBackoff
from aioproducer.config import ProducerConfig
from aioproducer.errors import (
    AuthenticationError,
    KafkaError,
    ProducerClosedError,
    ProducerFailedError,
    ProtocolError,
    UnsupportedVersionError,
    broker_error,
    error_class,
)
from aioproducer.net.client import NetworkClient
from aioproducer.protocol.init_producer_id import InitProducerIdRequest
from aioproducer.transaction_manager import TransactionManager

logger = logging.getLogger("aioproducer.producer_id")

NO_TRANSACTION_TIMEOUT_MS = 0x7FFFFFFF


class ProducerIdRequest:
    """Fetches the producer id of an idempotent producer, from any broker; batches wait for it in the accumulator.

    Errors that may pass are tried again with back-off for as long as the producer lives: the batches have their own
    delivery timeout. Source: KIP-98.

    Args:
        on_done: called when the id is there, and when the request ended without it: whoever needs it asks again.
        on_fatal: gets the error that no repetition helps against.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        loop: asyncio.AbstractEventLoop,
        client: NetworkClient,
        transactions: TransactionManager,
        rng: random.Random,
        on_done: Callable[[], None],
        on_fatal: Callable[[KafkaError], None],
    ) -> None:
        self._request_timeout_ms = config.request_timeout_ms
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._loop = loop
        self._client = client
        self._transactions = transactions
        self._rng = rng
        self._on_done = on_done
        self._on_fatal = on_fatal
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Ask in the background, unless a request is under way."""
        if self.task is None or self.task.done():
            self.task = self._loop.create_task(self._run(), name="aioproducer producer id")
            self.task.add_done_callback(lambda _: self._on_done())

    async def _run(self) -> None:
        attempts = 0
        while True:
            try:
                producer_id, epoch = await self._ask()
            except ProducerClosedError:
                return
            except KafkaError as error:
                if not _may_pass(error):
                    self._on_fatal(_with_remedy(error))
                    return
                logger.info("InitProducerId will be repeated: %s", error)
            except Exception as error:
                told = f"the request for a producer id ended by an internal error: {error!r}"
                self._on_fatal(ProducerFailedError(told, cause=error))
                return
            else:
                self._transactions.set_producer_id(producer_id, epoch)
                return
            await asyncio.sleep(self._backoff.delay_ms(attempts, self._rng) / 1000)
            attempts += 1

    async def _ask(self) -> tuple[int, int]:
        deadline_ms = int(self._loop.time() * 1000) + self._request_timeout_ms
        connection = await self._client.any_ready_connection(deadline_ms)
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=NO_TRANSACTION_TIMEOUT_MS)
        response = await connection.request(request, timeout_ms=self._request_timeout_ms)
        if response.error_code:
            name = error_class(response.error_code).name
            raise broker_error(response.error_code, f"{connection} refused a producer id with {name}")
        return response.producer_id, response.producer_epoch


def _may_pass(error: KafkaError) -> bool:
    """Bytes that make no sense cost the broker its connection, and the next one may do better."""
    return (error.retriable or isinstance(error, ProtocolError)) and not isinstance(error, AuthenticationError)


def _with_remedy(error: KafkaError) -> KafkaError:
    if isinstance(error, UnsupportedVersionError):
        return UnsupportedVersionError(f"{error}; a broker that knows no producer ids needs enable_idempotence=False")
    return error
