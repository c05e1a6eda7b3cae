"""ClientTelemetry: pushes the producer's metrics to a cluster that asks for them (KIP-714).

Theory of operation. Brokers with a receiver for metrics offer two more APIs. The first connection to such a broker
starts one task; without such a broker, none of this runs. The task asks what the cluster wants, and then pushes:

    ask ----- wants none: wait the interval ------> ask
     |  ^---- refused, or no answer: wait ---------'
     v
    push, first after 0.5 to 1.5 intervals, then after each -----> push
        '---- refused: ask again, at once or after the interval -> ask

A permanent error code ends it for good. A push without an answer counts as delivered, so that nothing is reported
twice, and the next one may go to another broker. All requests go to one broker as long as it is connected, over the
existing connection; telemetry opens none. ``close`` stops the task and pushes once more if the cluster asked for
metrics, but waits for that no longer than a person would notice.

Nothing here affects a record: failures are only logged, the first at a level that people read.

Source: KIP-714; the Java client's ClientTelemetryReporter.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from aioproducer.client_logger import ClientLogger
from aioproducer.compression import Codec
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.deadline import in_seconds
from aioproducer.error_codes import Code
from aioproducer.errors import ConfigError, KafkaError, ProducerClosedError, error_class
from aioproducer.metrics import ProducerMetrics
from aioproducer.net.client import NetworkClient
from aioproducer.net.connection import Connection
from aioproducer.patient_timer import PatientTimeout
from aioproducer.protocol.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from aioproducer.protocol.push_telemetry import PushTelemetryRequest
from aioproducer.protocol.schema import ZERO_UUID
from aioproducer.telemetry.application_metrics import ApplicationMetrics
from aioproducer.telemetry.report import Report, Told
from aioproducer.telemetry.subscription import (
    AT_ONCE,
    DEFAULT_INTERVAL_MS,
    MAY_PASS,
    Subscription,
    readable,
)

logger: logging.Logger = logging.getLogger("aioproducer.telemetry")

FIRST_PUSH = 0.5, 1.5
"""Fractions of the interval, so that clients started together do not push together."""

LAST_PUSH_S = 0.25
"""The longest that ``close`` waits for the last push."""


class ClientTelemetry:
    """The pushes of one producer, on ``loop``.

    Args:
        rng: spreads the first push.
        wall_time_s: seconds since the epoch.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        loop: asyncio.AbstractEventLoop,
        client: NetworkClient,
        metrics: ProducerMetrics,
        rng: random.Random,
        wall_time_s: Callable[[], float],
    ) -> None:
        self._logger = ClientLogger(logger, config.client_id)
        self._enabled = config.enable_metrics_push
        self._request_timeout_ms = config.request_timeout_ms
        transactional_id = config.transactional_id
        self._resource = {} if transactional_id is None else {"transactional_id": transactional_id}
        self._loop = loop
        self._client = client
        self._metrics = metrics
        self._rng = rng
        self._wall_time_s = wall_time_s
        self.application = ApplicationMetrics(self._logger)
        self._told = Told(self._now_ns())
        self._subscription: Subscription | None = None
        self._instance_id = ZERO_UUID
        self._asks = True
        self._refused_codecs: set[int] = set()
        self._node_id: int | None = None
        self._ended = False
        self._complained = False
        self._task: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[None] | None = None
        self._waiting_for_id: dict[asyncio.Future[str], None] = {}
        if self._enabled:
            client.on_open = self._connection_opened

    async def client_instance_id(self, timeout: float) -> str | None:
        """The id that the cluster assigned to this client; None if it assigned none within ``timeout`` seconds.

        Raises:
            ConfigError: ``enable_metrics_push`` is False.
            ProducerClosedError: the producer was closed meanwhile.
            TypeError, ValueError: ``timeout`` is not a number, or less than 0.
        """
        seconds = in_seconds(timeout, "timeout")
        if timeout < 0:
            raise ValueError(f"timeout={timeout}: a time can't be negative")
        if not self._enabled:
            raise ConfigError("enable_metrics_push=False: the cluster gives an id only to clients that push metrics")
        if self._instance_id == ZERO_UUID and timeout:
            waiter: asyncio.Future[str] = self._loop.create_future()
            self._waiting_for_id[waiter] = None
            try:
                async with PatientTimeout(self._loop, (self._loop.time() + seconds) * 1000):
                    return await waiter
            except TimeoutError:
                pass
            finally:
                del self._waiting_for_id[waiter]
        return None if self._instance_id == ZERO_UUID else readable(self._instance_id)

    async def close(self, timeout: float | None) -> None:
        """End the pushes with a last one; waits for it at most ``timeout`` seconds and at most LAST_PUSH_S."""
        pushes = self._subscription is not None and not self._asks and not self._ended
        await self.stop()
        limit_s = LAST_PUSH_S if timeout is None else min(timeout, LAST_PUSH_S)
        connection = self._client.serving(PushTelemetryRequest.API_KEY, rather=self._node_id)
        if not pushes or limit_s <= 0 or connection is None:
            return
        try:
            async with asyncio.timeout(limit_s):
                await self._push_over(lambda: self._free(connection), terminating=True)
        except (KafkaError, TimeoutError) as error:
            self._logger.debug("the last push of metrics was not answered: %s", str(error) or "too late")
        except Exception:
            self._logger.warning("the last push of metrics failed with an internal error", exc_info=True)

    async def stop(self) -> None:
        """End the pushes; ``client_instance_id`` returns no id any more."""
        self.drop()
        if self._task is not None:
            await asyncio.wait([self._task])

    def drop(self) -> None:
        """Like ``stop``, without waiting for its task to end."""
        self._ended = True
        for waiter in self._waiting_for_id:
            if not waiter.done():
                waiter.set_exception(ProducerClosedError("the producer was closed before the cluster had given an id"))
        if self._task is not None:
            self._task.cancel()

    # --- the task -----------------------------------------------------------------------------------------------------

    def _connection_opened(self, connection: Connection) -> None:
        if self._ended or connection.api_range(GetTelemetrySubscriptionsRequest.API_KEY) is None:
            return
        if self._task is None:
            self._task = self._loop.create_task(self._run(), name="aioproducer telemetry")
        elif self._opened is not None and not self._opened.done():
            self._opened.set_result(None)

    async def _run(self) -> None:
        try:
            while True:
                delay_ms = await (self._ask() if self._asks else self._push())
                if self._ended:
                    return
                await asyncio.sleep(delay_ms / 1000)
        except ProducerClosedError:
            pass
        except Exception:
            self._ended = True
            self._logger.warning("metrics are no longer pushed because of an internal error", exc_info=True)

    async def _connection(self, api_key: int) -> Connection:
        """A free connection to a broker that accepts metrics; waits until one is connected."""
        while (connection := self._client.serving(api_key, rather=self._node_id)) is None:
            self._opened = self._loop.create_future()
            try:
                await self._opened
            finally:
                self._opened = None
        return await self._free(connection)

    async def _free(self, connection: Connection) -> Connection:
        free = await self._client.when_free(connection, self._now_ms() + self._request_timeout_ms)
        self._node_id = free.node_id
        return free

    # --- the subscription ---------------------------------------------------------------------------------------------

    async def _ask(self) -> int:
        """Ask for the subscription; returns how long to wait before the next step."""
        request = GetTelemetrySubscriptionsRequest(client_instance_id=self._instance_id)
        try:
            connection = await self._connection(request.API_KEY)
            response = await connection.request(request)
            if response.error_code:
                return self._refused(response.error_code, "a subscription")
            subscription = Subscription.of(response)
        except ProducerClosedError:
            raise
        except KafkaError as error:
            return self._unanswered(error)
        self._subscribe(subscription)
        if self._asks:
            return subscription.interval_ms
        return int(subscription.interval_ms * self._rng.uniform(*FIRST_PUSH))

    def _subscribe(self, subscription: Subscription) -> None:
        before, self._subscription = self._subscription, subscription
        self._instance_id = subscription.instance_id
        self._asks = not (subscription.wants_any or self.application.wanted(subscription))
        if before is not None and before.delta != subscription.delta:
            self._told.forget()
        name = readable(subscription.instance_id)
        self._logger.debug("client instance %s: subscription %s", name, subscription)
        if before is None:
            self._logger.info("the cluster knows this producer as client instance %s", name)
        for waiter in self._waiting_for_id:
            if not waiter.done():
                waiter.set_result(name)

    # --- pushes -------------------------------------------------------------------------------------------------------

    async def _push(self) -> int:
        """Push once; returns how long to wait before the next step."""
        assert self._subscription is not None
        try:
            code = await self._push_over(lambda: self._connection(PushTelemetryRequest.API_KEY))
        except ProducerClosedError:
            raise
        except KafkaError as error:
            return self._unanswered(error)
        if not code:
            return self._subscription.interval_ms
        delay_ms = self._refused(code, "a push")
        self._asks = True
        return 0 if code in AT_ONCE else delay_ms

    async def _push_over(self, connection: Callable[[], Awaitable[Connection]], *, terminating: bool = False) -> int:
        """Build a report, send it, and return the error code of the answer."""
        subscription = self._subscription
        assert subscription is not None
        report = Report(
            self._metrics,
            self.application,
            subscription,
            self._told,
            self._resource,
            now_ms=self._now_ms(),
            now_ns=self._now_ns(),
        )
        for _ in report.steps():
            await asyncio.sleep(0)
        codec = subscription.codec(self._refused_codecs)
        data = await self._fitting(report, codec, subscription.max_bytes)
        request = PushTelemetryRequest(
            client_instance_id=subscription.instance_id,
            subscription_id=subscription.subscription_id,
            terminating=terminating,
            compression_type=codec.attribute,
            metrics=data,
        )
        free = await connection()
        version = free.version(PushTelemetryRequest)
        try:
            code = (await free.request(request, version=version)).error_code
        except BaseException as error:
            if getattr(error, "maybe_written", True):
                report.taken()  # perhaps not, but a sum reported twice would stay wrong forever
            raise
        if not code:
            report.taken()
        if code == Code.UNSUPPORTED_COMPRESSION_TYPE:
            self._refused_codecs.add(codec.attribute)
        return code

    async def _fitting(self, report: Report, codec: Codec, max_bytes: int) -> bytes:
        """The compressed report, without the groups that make it larger than the cluster accepts."""
        while True:
            plain = report.encoded()
            if len(plain) > codec.inline_limit_bytes:
                data = await self._loop.run_in_executor(None, codec.compress, plain)
            else:
                data = codec.compress(plain) if plain else plain
            if len(data) <= max_bytes:
                return data
            left_out = report.leave_out()
            if left_out is None:
                return b""
            self._complain(f"a push takes {len(data)} bytes, the cluster at most {max_bytes}: {left_out} are left out")

    # --- failures -----------------------------------------------------------------------------------------------------

    @property
    def _interval_ms(self) -> int:
        return DEFAULT_INTERVAL_MS if self._subscription is None else self._subscription.interval_ms

    def _unanswered(self, error: KafkaError) -> int:
        self._complain(f"metrics could not be pushed and will be retried: {error}")
        return self._interval_ms

    def _refused(self, code: int, what: str) -> int:
        name = error_class(code).name
        if code in MAY_PASS:
            self._complain(f"{what} of metrics was refused with {name} and will be retried")
        else:
            self._ended = True
            # Also if earlier failures have been told: the last line would say that metrics are pushed again.
            self._logger.info("%s of metrics was refused with %s; no more metrics are pushed", what, name)
        return self._interval_ms

    def _complain(self, what: str) -> None:
        """Log the first failure for operators, and later ones only for debugging."""
        self._logger.log(logging.DEBUG if self._complained else logging.INFO, "%s", what)
        self._complained = True

    # --- time ---------------------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _now_ns(self) -> int:
        return int(self._wall_time_s() * 1_000_000_000)
