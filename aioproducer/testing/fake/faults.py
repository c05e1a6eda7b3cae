"""Fault scripts: which requests fail, how, and how often. Pure.

Users' tests and the simulation write them in the same way::

    cluster.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2, topic="orders")
    cluster.faults.drop("Produce", when="after")          # written, but not acknowledged
    cluster.faults.delay("Metadata", 500)
    cluster.faults.garble("Produce", how="correlation_id")

A fault stays until it has struck ``times`` times or is cancelled; several can strike the same request.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Set
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, get_args

from aioproducer.errors import BrokerError

When = Literal["before", "after"]
How = Literal["garbage", "correlation_id", "truncated"]
Targets = Mapping[str, Set[int]]
"""The topics named by a request, with the partitions of each."""


class Effect(Enum):
    """What a fault does."""

    FAIL = "fail"
    DROP = "drop"
    SWALLOW = "swallow"
    DELAY = "delay"
    GARBLE = "garble"
    THROTTLE = "throttle"


@dataclass(slots=True)
class Fault:
    """One rule. ``struck`` counts how often it has taken effect so far."""

    effect: Effect
    api: str | None
    times: int | None
    skip: int
    topic: str | None
    partition: int | None
    node: int | None
    error_code: int = 0
    error_message: str | None = None
    apply: bool = False
    duration_ms: int = 0
    how: How = "garbage"
    struck: int = 0
    cancelled: bool = False

    @property
    def active(self) -> bool:
        """Whether it may still strike."""
        return not self.cancelled and (self.times is None or self.struck < self.times)

    def cancel(self) -> None:
        """Stop it from striking."""
        self.cancelled = True

    def aims_at(self, node: int, api: str) -> bool:
        """Whether it applies to requests of this kind to this broker."""
        return self.active and self.api in (None, api) and self.node in (None, node)

    def covers(self, topic: str, partition: int) -> bool:
        """Whether it applies to this partition."""
        return self.topic in (None, topic) and self.partition in (None, partition)

    def touches(self, targets: Targets) -> bool:
        """Whether it applies to a request with these topics."""
        if self.topic is None and self.partition is None:
            return True
        return any(
            self.topic in (None, topic) and (self.partition is None or not partitions or self.partition in partitions)
            for topic, partitions in targets.items()
        )

    def strike(self) -> bool:
        """Take effect once, unless this request is one of those to skip."""
        if self.skip:
            self.skip -= 1
            return False
        self.struck += 1
        return True


class FaultScript:
    """The faults of a cluster, in the order added.

    All methods take:

    - ``api``: Kafka's name of the request, such as ``"Produce"``, ``"Metadata"``, ``"InitProducerId"``; None for all.
    - ``times``: how many requests it strikes; None for all. For a ``fail`` of Produce, every partition's batch counts,
      as each has its own answer.
    - ``skip``: how many matching requests pass first.
    - ``topic``, ``partition``, ``node``: only requests that name this topic or partition, or go to this broker.

    They raise ValueError for a fault that could never strike: a test with it would prove nothing.

    Args:
        brokers: the node ids.
        guard: held while the script changes, if requests come in on another thread.
    """

    def __init__(self, brokers: Collection[int], guard: AbstractContextManager[Any] | None = None) -> None:
        self._brokers = brokers
        self._faults: list[Fault] = []
        self._guard: AbstractContextManager[Any] = nullcontext() if guard is None else guard

    def fail(
        self,
        api: str,
        error: str | int | type[BrokerError],
        *,
        apply: bool = False,
        message: str | None = None,
        times: int | None = 1,
        skip: int = 0,
        topic: str | None = None,
        partition: int | None = None,
        node: int | None = None,
    ) -> Fault:
        """Answer with an error.

        Args:
            error: its Kafka name, its number, or its class in ``aioproducer.errors``.
            apply: carry out the request nevertheless, like a leader that writes and then finds too few replicas.
            message: the error text, if the API has one.
        """
        code = error_code(error)
        return self._add(
            Fault(Effect.FAIL, api, times, skip, topic, partition, node, code, error_message=message, apply=apply)
        )

    def drop(
        self,
        api: str | None = None,
        *,
        when: When = "before",
        times: int | None = 1,
        skip: int = 0,
        topic: str | None = None,
        partition: int | None = None,
        node: int | None = None,
    ) -> Fault:
        """Close the connection instead of answering, before or after carrying out the request."""
        return self._add(Fault(Effect.DROP, api, times, skip, topic, partition, node, apply=_is_after(when)))

    def swallow(
        self,
        api: str | None = None,
        *,
        when: When = "before",
        times: int | None = 1,
        skip: int = 0,
        topic: str | None = None,
        partition: int | None = None,
        node: int | None = None,
    ) -> Fault:
        """Never answer, before or after carrying out the request; the connection stays open but silent."""
        return self._add(Fault(Effect.SWALLOW, api, times, skip, topic, partition, node, apply=_is_after(when)))

    def delay(
        self,
        api: str | None,
        duration_ms: int,
        *,
        times: int | None = 1,
        skip: int = 0,
        topic: str | None = None,
        partition: int | None = None,
        node: int | None = None,
    ) -> Fault:
        """Answer later. The request is carried out at once; later requests on the connection wait too."""
        return self._add(
            Fault(Effect.DELAY, api, times, skip, topic, partition, node, duration_ms=_duration(duration_ms))
        )

    def garble(
        self,
        api: str | None = None,
        *,
        how: How = "garbage",
        times: int | None = 1,
        skip: int = 0,
        topic: str | None = None,
        partition: int | None = None,
        node: int | None = None,
    ) -> Fault:
        """Carry out the request and corrupt the answer.

        Args:
            how: ``"garbage"`` is a frame of random bytes, ``"correlation_id"`` an answer to another request,
                ``"truncated"`` part of the answer followed by the end of the connection.
        """
        return self._add(Fault(Effect.GARBLE, api, times, skip, topic, partition, node, apply=True, how=how))

    def throttle(
        self,
        api: str | None,
        duration_ms: int,
        *,
        times: int | None = None,
        skip: int = 0,
        topic: str | None = None,
        partition: int | None = None,
        node: int | None = None,
    ) -> Fault:
        """Report an exceeded quota: the client must send nothing for this long, and is not read if it does.

        Request versions before KIP-219 instead get their answer that much later.
        """
        return self._add(
            Fault(Effect.THROTTLE, api, times, skip, topic, partition, node, duration_ms=_duration(duration_ms))
        )

    def clear(self) -> None:
        """Remove all faults."""
        with self._guard:
            for fault in self._faults:
                fault.cancel()

    @property
    def pending(self) -> tuple[Fault, ...]:
        """The faults that may still strike."""
        with self._guard:
            return tuple(fault for fault in self._faults if fault.active)

    def of_request(self, node: int, api: str, targets: Targets) -> list[Fault]:
        """The faults that strike this request as a whole: all except errors for a partition of Produce."""
        return [
            fault
            for fault in self._aimed_at(node, api)
            if not (fault.effect is Effect.FAIL and api == "Produce") and fault.touches(targets) and fault.strike()
        ]

    def of_batch(self, node: int, topic: str, partition: int) -> Fault | None:
        """The error that strikes the batch of one partition in a Produce request."""
        for fault in self._aimed_at(node, "Produce"):
            if fault.effect is Effect.FAIL and fault.covers(topic, partition) and fault.strike():
                return fault
        return None

    def _aimed_at(self, node: int, api: str) -> Iterator[Fault]:
        return (fault for fault in self._faults if fault.aims_at(node, api))

    def _add(self, fault: Fault) -> Fault:
        if fault.api is not None and fault.api not in API_NAMES:
            raise ValueError(f"api={fault.api!r}: a fake broker answers {', '.join(sorted(API_NAMES))}")
        if fault.times is not None and fault.times < 1:
            raise ValueError(f"times={fault.times}: at least 1, or None for every time")
        if fault.skip < 0:
            raise ValueError(f"skip={fault.skip}: at least 0")
        if fault.how not in get_args(How):
            raise ValueError(f"how={fault.how!r}: garbage, correlation_id or truncated")
        self._check_place(fault)
        with self._guard:
            self._faults = [*(one for one in self._faults if one.active), fault]
        return fault

    def _check_place(self, fault: Fault) -> None:
        """A topic or a partition may come later, a broker does not."""
        topic, partition, node = fault.topic, fault.partition, fault.node
        if topic is not None and not isinstance(topic, str):
            raise ValueError(f"topic={topic!r}: a str, or None for all")
        if partition is not None and not (isinstance(partition, int) and partition >= 0):
            raise ValueError(f"partition={partition!r}: a number from 0 on, or None for all")
        if node is not None and node not in self._brokers:
            raise ValueError(f"node={node!r}: the brokers are {', '.join(map(str, self._brokers))}; or None for all")


API_NAMES = frozenset(
    {
        "AddOffsetsToTxn", "AddPartitionsToTxn", "ApiVersions", "DescribeTransactions", "EndTxn", "FindCoordinator",
        "GetTelemetrySubscriptions", "InitProducerId", "ListTransactions", "Metadata", "Produce", "PushTelemetry",
        "TxnOffsetCommit",
    }
)  # fmt: skip


def error_code(error: str | int | type[BrokerError]) -> int:
    """The number of an error given by name, number or class.

    Raises:
        ValueError: Kafka has no such error.
    """
    if isinstance(error, int):
        if error == 0 or not -(1 << 15) <= error < 1 << 15:
            raise ValueError(f"error={error}: no error has this number; 0 is success, and others are -32768 to 32767")
        return error
    if isinstance(error, str):
        known = next((cls for cls in BrokerError.__subclasses__() if cls.name == error.upper()), None)
        if known is None:
            raise ValueError(f"error={error!r}: no error of Kafka has this name")
        error = known
    code: int | None = getattr(error, "code", None)
    if code is None:
        raise ValueError(f"error={error!r}: no error of Kafka, which has a number")
    return code


def _is_after(when: str) -> bool:
    if when not in get_args(When):
        raise ValueError(f"when={when!r}: before or after")
    return when == "after"


def _duration(duration_ms: int) -> int:
    if not 0 <= duration_ms < 1 << 31:
        raise ValueError(f"duration_ms={duration_ms}: 0 to 2147483647")
    return duration_ms
