"""What a seed determines: the producer's configs, the cluster, and the faults."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any, TypeVar

CODECS = ("none", "none", "none", "lz4", "gzip", "zstd", "snappy")
VERSIONS = ("4.3", "4.3", "4.3", "4.3", "3.9", "3.9", "2.8", "2.1", "0.11")
FAST = {
    "linger_ms": 0,
    "buffer_memory": 200_000,
    "max_request_size": 1_048_576,
    "reconnect_backoff_ms": 5,
    "reconnect_backoff_max_ms": 20,
}
"""Configs with which batches and connections follow one another quickly."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """The parameters of one run.

    Attributes:
        configs: the producer's, without addresses and callbacks.
        topics: the number of partitions of each topic.
        chaos_s: for how long things go wrong; then everything heals.
        relentless: whether faults follow one another without pause, most of them around Produce.
        calm: whether there are no faults at all.
        fatal: whether a broker may send errors that end a producer for good.
        forgets: whether brokers forget producers, after which a batch outside a transaction may be written twice.
        recreates: whether topics are deleted and recreated.
        sabotage: whether tasks of the producer are cancelled.
        closes_early: whether the program closes the producer in the middle of it.
        interceptors, serializers: whether the program has them.
        chores: the possible numbers of chores of a task.
        overtakes: whether there are only faults that may change the order of requests or answers.
        leaves: whether there are only faults that leave copies of batches on abandoned connections, to be read later.
        lags: whether brokers are behind with their metadata now and then.
        restarts: whether there are only faults around restarts of brokers, which then remember one batch of a producer.
        diverges: whether there are only faults around leaders that have batches which no other replica has.
        unclean: whether replicas that are not in sync may lead, so that acknowledged records are lost.
    """

    configs: dict[str, Any]
    version: str
    brokers: int
    topics: dict[str, int]
    message_max_bytes: int
    auto_create: bool
    chaos_s: float
    faults: int
    relentless: bool
    calm: bool
    fatal: bool
    forgets: bool
    recreates: bool
    sabotage: bool
    closes_early: bool
    interceptors: bool
    serializers: bool
    keeps_views: bool
    tasks: int
    chores: tuple[int, ...] = (3, 8, 8, 20)
    overtakes: bool = False
    leaves: bool = False
    restarts: bool = False
    lags: bool = False
    diverges: bool = False
    unclean: bool = False

    @property
    def idempotent(self) -> bool:
        """Whether the producer numbers its batches."""
        return bool(self.configs["enable_idempotence"])

    @property
    def loses_state(self) -> bool:
        """Whether brokers forget a producer unnoticed, after which they accept its batches twice or in any order.

        A recreated topic knows no producer; before Produce 13, which identifies topics by their ids, batches in flight
        go to the new one unnoticed.
        """
        return self.forgets or (self.recreates and self.version != "4.3")

    @property
    def knows_epochs(self) -> bool:
        """Whether clients can tell a former leader from the present one (Kafka 2.4)."""
        return self.version not in ("2.1", "0.11")

    @property
    def loses_records(self) -> bool:
        """Whether the cluster may lose what it has acknowledged."""
        return self.unclean or (self.diverges and self.acks == 1)

    @property
    def acks(self) -> int | str:
        """The producer's acks."""
        acks: int | str = self.configs["acks"]
        return acks

    def ms(self, name: str) -> int:
        """A config in milliseconds."""
        value: int = self.configs[name]
        return value


AnyScenario = TypeVar("AnyScenario", bound=Scenario)


def draw(rng: random.Random) -> Scenario:
    """Draw a random scenario."""
    version = rng.choice(VERSIONS)
    idempotent = rng.random() < 0.75
    configs = _configs(rng, idempotent, version)
    calm = rng.random() < 0.05
    return Scenario(
        configs=configs,
        version=version,
        brokers=rng.choice((1, 2, 3, 3, 3)),
        topics={f"t{number}": rng.choice((1, 1, 2, 3)) for number in range(rng.choice((1, 1, 2, 3)))},
        message_max_bytes=rng.choice((1_048_588, 1_048_588, 1_048_588, rng.randint(300, 3000))),
        auto_create=rng.random() < 0.3,
        chaos_s=rng.choice((0.5, 2.0, 2.0, 6.0, 15.0)),
        faults=0 if calm else rng.choice((1, 2, 4, 8, 16)),
        relentless=rng.random() < 0.35,
        calm=calm,
        fatal=rng.random() < 0.04,
        forgets=rng.random() < 0.04,
        recreates=rng.random() < 0.12,
        sabotage=rng.random() < 0.04,
        closes_early=rng.random() < 0.25,
        interceptors=rng.random() < 0.15,
        serializers=rng.random() < 0.15,
        keeps_views=rng.random() < 0.6,
        tasks=rng.choice((1, 2, 3, 4)),
    )


def fitting(scenario: AnyScenario) -> AnyScenario:
    """The same scenario as its brokers allow: 0.11 remembers one batch of a producer, so only one may be in flight."""
    if scenario.version != "0.11" or not scenario.idempotent:
        return scenario
    return replace(scenario, configs=scenario.configs | {"max_in_flight_requests_per_connection": 1})


def lag(scenario: AnyScenario, *, recreates: bool) -> AnyScenario:
    """The same scenario with brokers that are behind, also with topics that are recreated if their ids tell."""
    return replace(scenario, lags=True, recreates=scenario.recreates or (recreates and scenario.version == "4.3"))


def crowd(scenario: Scenario, rng: random.Random) -> Scenario:
    """The same scenario with few partitions: many small batches in flight, retried until they succeed."""
    configs = scenario.configs | FAST
    configs |= {
        "enable_idempotence": True,
        "acks": "all",
        "max_in_flight_requests_per_connection": rng.choice((2, 5, 5)),
        "batch_size": rng.choice((200, 500, 1500)),
        "retry_backoff_ms": 5,
        "retry_backoff_max_ms": 20,
        "request_timeout_ms": 300,
        "delivery_timeout_ms": rng.choice((300, 600, 5000)),
    }
    configs.pop("retries", None)
    return replace(
        scenario,
        configs=configs,
        brokers=rng.choice((1, 2)),
        topics={"t0": rng.choice((1, 1, 2))},
        chaos_s=2.0,
        faults=8,
        relentless=True,
        calm=False,
        tasks=4,
    )


def overtake(scenario: Scenario, rng: random.Random) -> Scenario:
    """The same scenario with one kind of fault: batches in flight at one broker while later ones go to another."""
    idempotent = rng.random() < 0.6
    configs = {
        "enable_idempotence": idempotent,
        "acks": "all" if idempotent else rng.choice(("all", 1)),
        "max_in_flight_requests_per_connection": rng.choice((3, 5, 5)) if idempotent else rng.choice((1, 1, 1, 5)),
        "retry_backoff_ms": 5,
        "retry_backoff_max_ms": 20,
        "request_timeout_ms": rng.choice((300, 1000)),
        "delivery_timeout_ms": rng.choice((2000, 20_000)),
        "metadata_max_age_ms": rng.choice((50, 100)),
    }
    return _with_one_kind_of_fault(
        scenario,
        configs,
        brokers=rng.choice((2, 2, 3)),
        topics={"t0": rng.choice((1, 1, 2))},
        chaos_s=4.0,
        faults=2,
        recreates=scenario.version == "4.3" and rng.random() < 0.6,
        tasks=4,
        chores=(40,),
        overtakes=True,
    )


def leave(scenario: Scenario, rng: random.Random) -> Scenario:
    """The same scenario with one kind of fault: refused batches, and copies of others that brokers read late.

    Attempts, back-off and the time of a batch are about as long as a broker leaves a connection unread.
    """
    configs = {
        "enable_idempotence": True,
        "acks": "all",
        "max_in_flight_requests_per_connection": rng.choice((3, 5, 5)),
        "retry_backoff_ms": rng.choice((100, 200, 400)),
        "retry_backoff_max_ms": 400,
        "request_timeout_ms": rng.choice((100, 300)),
        "delivery_timeout_ms": rng.choice((600, 1000, 2000)),
    }
    return _with_one_kind_of_fault(
        scenario,
        configs,
        brokers=rng.choice((1, 2, 2)),
        topics={"t0": 1},
        chaos_s=8.0,
        faults=1,
        recreates=False,
        tasks=2,
        leaves=True,
    )


def _with_one_kind_of_fault(scenario: Scenario, configs: dict[str, Any], **changes: Any) -> Scenario:
    """The same scenario with many small batches, and no faults but those of the changes."""
    configs = scenario.configs | FAST | {"batch_size": 200} | configs
    configs.pop("retries", None)
    return replace(
        scenario,
        configs=configs,
        message_max_bytes=1_048_588,
        relentless=True,
        calm=False,
        fatal=False,
        forgets=False,
        sabotage=False,
        **changes,
    )


def restart(scenario: Scenario, rng: random.Random) -> Scenario:
    """The same scenario with one kind of fault: brokers restart that owe answers to several batches of a partition.

    Half of the batches have the time that it takes until all in doubt are ruled out.
    """
    scenario = replace(leave(scenario, rng), leaves=False, restarts=True, closes_early=False, faults=2)
    times = {"request_timeout_ms": 300, "delivery_timeout_ms": rng.choice((1_000, 10_000))}
    return replace(scenario, configs=scenario.configs | times)


def diverge(scenario: Scenario, rng: random.Random) -> Scenario:
    """The same scenario with one kind of fault: leaders fail that have batches which no other replica has."""
    idempotent = rng.random() < 0.8
    configs = {
        "enable_idempotence": idempotent,
        "acks": "all" if idempotent else rng.choice(("all", "all", 1)),
        "max_in_flight_requests_per_connection": rng.choice((2, 5, 5)) if idempotent else rng.choice((1, 1, 5)),
        "retry_backoff_ms": rng.choice((5, 20, 100)),
        "retry_backoff_max_ms": 100,
        "request_timeout_ms": rng.choice((100, 300, 1000)),
        "delivery_timeout_ms": rng.choice((1000, 2000, 20_000)),
        "metadata_max_age_ms": rng.choice((100, 3000)),
    }
    return _with_one_kind_of_fault(
        scenario,
        configs,
        brokers=rng.choice((2, 3, 3)),
        topics={"t0": rng.choice((1, 1, 2))},
        chaos_s=8.0,
        faults=rng.choice((1, 2)),
        recreates=False,
        tasks=2,
        diverges=True,
        unclean=rng.random() < 0.15,
    )


def _configs(rng: random.Random, idempotent: bool, version: str) -> dict[str, Any]:
    request_timeout_ms = rng.choice((100, 300, 1000, 3000))
    linger_ms = rng.choice((0, 0, 2, 5, 20, 100))
    retry_ms, reconnect_ms = rng.choice((5, 20, 100)), rng.choice((5, 20, 50))
    batch_size = rng.choice((200, 500, 1500, 4000, 16384))
    configs: dict[str, Any] = {
        "enable_idempotence": idempotent,
        "acks": "all" if idempotent else rng.choice(("all", 1, 1, 0)),
        "max_in_flight_requests_per_connection": rng.randint(1, 5),
        "linger_ms": linger_ms,
        "batch_size": batch_size,
        "buffer_memory": rng.choice((2_000, 6_000, 20_000, 100_000, 33_554_432)),
        "max_request_size": rng.choice((1_048_576, 1_048_576, 6_000, 2_000)),
        "compression_type": rng.choice(CODECS if version not in ("2.1", "0.11") else CODECS[:5]),
        "request_timeout_ms": request_timeout_ms,
        "delivery_timeout_ms": linger_ms + request_timeout_ms + rng.choice((0, 200, 1000, 5000, 20000)),
        "max_block_ms": rng.choice((200, 1000, 3000, 10000)),
        "retry_backoff_ms": retry_ms,
        "retry_backoff_max_ms": retry_ms * rng.choice((1, 4, 10)),
        "reconnect_backoff_ms": reconnect_ms,
        "reconnect_backoff_max_ms": reconnect_ms * rng.choice((1, 4, 20)),
        "socket_connection_setup_timeout_ms": rng.choice((100, 500, 2000)),
        "socket_connection_setup_timeout_max_ms": 2000,
        "metadata_max_age_ms": rng.choice((500, 3000, 300_000)),
        "metadata_max_idle_ms": rng.choice((5000, 300_000)),
        "metadata_recovery_rebootstrap_trigger_ms": rng.choice((500, 5000, 300_000)),
        "connections_max_idle_ms": rng.choice((300, 5000, 540_000)),
        "partitioner_adaptive_partitioning_enable": rng.random() < 0.7,
        "partitioner_availability_timeout_ms": rng.choice((0, 0, 200)),
    }
    if rng.random() < 0.15:
        configs["retries"] = rng.choice((0, 1, 3))
        if idempotent:
            configs["retries"] = max(1, configs["retries"])
    if rng.random() < 0.1:
        configs["partitioner_class"] = "round_robin"
    return configs
