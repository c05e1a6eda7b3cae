"""ProducerIdRequest: asks the cluster for a producer id until it has one."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

from aioproducer.backoff import ExponentialBackoff
from aioproducer.client_logger import ClientLogger
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.error_codes import Code
from aioproducer.errors import (
    AuthenticationError,
    BrokerError,
    ClusterAuthorizationFailedError,
    KafkaError,
    ProducerClosedError,
    ProducerFailedError,
    ProtocolError,
    UnsupportedVersionError,
    broker_error,
    error_class,
)
from aioproducer.log_limit import WARN_EVERY_MS, LogLimit
from aioproducer.net.client import NetworkClient
from aioproducer.net.connection import Connection
from aioproducer.net.first_answer import first_answer
from aioproducer.protocol.init_producer_id import InitProducerIdRequest
from aioproducer.transaction.manager import TransactionManager, is_identity

logger: logging.Logger = logging.getLogger("aioproducer.producer_id")

NO_TRANSACTION_TIMEOUT_MS = 0x7FFFFFFF
REQUEST = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=NO_TRANSACTION_TIMEOUT_MS)


class ProducerIdRequest:
    """Fetches the producer id of an idempotent producer, from any broker; batches wait for it in the accumulator.

    Transient errors are retried with back-off as long as the producer lives: the batches have their own delivery
    timeout. If the user may not have one, or logins have been refused for some seconds, the batches that wait fail;
    those that come later ask again, after the back-off. Source: KIP-98.

    Args:
        on_refused: called if the user may not have a producer id or not log in; gets the error for what waits for one.
        on_done: called when the request ended, with an id or without: then those that need one ask again.
        on_fatal: gets an error that retrying can't cure.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        loop: asyncio.AbstractEventLoop,
        client: NetworkClient,
        sequences: TransactionManager,
        rng: random.Random,
        on_refused: Callable[[KafkaError], None],
        on_done: Callable[[], None],
        on_fatal: Callable[[KafkaError], None],
    ) -> None:
        self._logger = ClientLogger(logger, config.client_id)
        self._request_timeout_ms = config.request_timeout_ms
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._loop = loop
        self._client = client
        self._sequences = sequences
        self._rng = rng
        self._on_refused = on_refused
        self._on_done = on_done
        self._on_fatal = on_fatal
        self._told = LogLimit(WARN_EVERY_MS)
        self._failures = 0
        """Attempts since there was an id."""
        self.task: asyncio.Task[None] | None = None
        self.last_error: KafkaError | None = None
        """Why there is no id yet, if an attempt has shown it; None once there is one."""

    def start(self) -> None:
        """Ask in the background, unless a request is under way."""
        if self.task is None or self.task.done():
            self.task = self._loop.create_task(self._run(), name="aioproducer producer id")
            self.task.add_done_callback(lambda _: self._on_done())

    def start_over(self) -> None:
        """Drop a request under way: its answer would be of no use. Those that need an id ask again."""
        if self.task is not None:
            self.task.cancel()

    async def _run(self) -> None:
        while True:
            refused = False
            try:
                producer_id, epoch = await self._ask()
            except ProducerClosedError:
                return
            except KafkaError as error:
                refused = self._is_refused(error)
                if refused:
                    self._refused(_with_remedy(error))
                elif _may_pass(error):
                    self.last_error = error
                    if self._told.allows(self._now_ms(), error.code):
                        self._logger.info("InitProducerId will be retried: %s", str(error))
                else:
                    self._on_fatal(_with_remedy(error))
                    return
            except Exception as error:
                told = f"the request for a producer id failed with an internal error: {error!r}"
                self._on_fatal(ProducerFailedError(told, cause=error))
                return
            else:
                self._failures = 0
                self.last_error = None
                self._sequences.set_producer_id(producer_id, epoch)
                return
            await asyncio.sleep(self._backoff.delay_ms(self._failures, self._rng) / 1000)
            self._failures += 1
            if refused:
                return

    def _is_refused(self, error: KafkaError) -> bool:
        """Whether what waits for an id fails; not yet if a broker that has just started refuses a login."""
        if isinstance(error, AuthenticationError):
            return self._client.refused
        return isinstance(error, ClusterAuthorizationFailedError)

    def _refused(self, error: KafkaError) -> None:
        if self._told.allows(self._now_ms(), type(error).__name__):
            self._logger.warning("%s", str(error))
        self.last_error = error
        self._on_refused(error)

    async def _ask(self) -> tuple[int, int]:
        """The first id that a broker returns. One that comes too late stays unused, which costs nothing."""
        return await first_answer(
            self._client, REQUEST, deadline_ms=self._now_ms() + self._request_timeout_ms, read=_read
        )

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)


def _may_pass(error: KafkaError) -> bool:
    """Whether a retry may help, at the same broker or at another one.

    Brokers in trouble refuse with codes that tell little, such as UNKNOWN_SERVER_ERROR; malformed bytes end the
    connection. INVALID_REQUEST is about the request, which is always the same.
    """
    if isinstance(error, BrokerError):
        return not error.fatal and error.code != Code.INVALID_REQUEST
    return error.retriable or isinstance(error, (AuthenticationError, ProtocolError))


def _read(connection: Connection, frame: bytes) -> tuple[int, int]:
    response = connection.decoded(REQUEST, connection.version(InitProducerIdRequest), frame)
    if response.error_code:
        name = error_class(response.error_code).name
        raise broker_error(response.error_code, f"{connection} refused a producer id with {name}")
    producer_id, epoch = response.producer_id, response.producer_epoch
    if not is_identity(producer_id, epoch):
        raise connection.nonsense(f"InitProducerId gave producer id {producer_id} with epoch {epoch}")
    return producer_id, epoch


def _with_remedy(error: KafkaError) -> KafkaError:
    if isinstance(error, UnsupportedVersionError):
        return UnsupportedVersionError(f"{error}; a broker that knows no producer ids needs enable_idempotence=False")
    if isinstance(error, ClusterAuthorizationFailedError):
        return ClusterAuthorizationFailedError(
            f"{error}: an idempotent producer's user needs permission to write to a topic, or IDEMPOTENT_WRITE on the "
            f"cluster before Kafka 2.8; without enable_idempotence it needs neither"
        ).marked(fatal=False)
    return error
