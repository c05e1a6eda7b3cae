"""What a seed determines for runs with transactions."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace

from tests.simulation.scenario import Scenario, draw

VERSIONS = ("4.3", "4.3", "4.3", "4.3", "3.9", "3.9", "2.8", "2.1", "0.11")
MEMBERS_SINCE = ("4.3", "3.9", "2.8")

SPECIAL = 11
"""The remainder of a seed divided by this makes some runs special."""
DIVERGES, RECREATES, EXHAUSTS, UPGRADES, CONTESTS = 3, 4, 6, 7, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionScenario(Scenario):
    """The parameters of one run.

    Attributes:
        transaction_version: the cluster's; 2 for transactions V2.
        transactional_ids: one per program; each has one producer after the other.
        transaction_timeout_ms: the config of each producer.
        members: whether the group has members, so that offsets have a generation and a member id.
        prepares: whether transactions are prepared, and ended by others.
        overlaps: whether the next producer of an id starts while the previous one still works.
        crashes: how often a producer ends by kill -9, or in the middle of a call.
        rounds: how many transactions a producer writes at most.
        exhausts: whether the producer ids have few epochs left.
        upgrades: whether the cluster gets transactions V2 in the middle of the run.
        contests: whether other tasks end the transaction of a block too.
    """

    transaction_version: int
    transactional_ids: tuple[str, ...]
    transaction_timeout_ms: int
    members: bool
    prepares: bool
    overlaps: bool
    crashes: float
    rounds: int
    exhausts: bool = False
    upgrades: bool = False
    contests: bool = False


def special(scenario: TransactionScenario, kind: int) -> TransactionScenario:
    """The same scenario, with what only the runs of some seeds have."""
    if kind == RECREATES:
        return replace(scenario, recreates=True, calm=False, faults=2, relentless=True)
    if kind == UPGRADES:
        return replace(
            scenario, upgrades=True, version="4.3", transaction_version=1, calm=False, faults=max(scenario.faults, 4)
        )
    if kind == DIVERGES:
        return replace(scenario, diverges=True, brokers=3, calm=False, faults=4, relentless=True)
    return replace(scenario, exhausts=kind == EXHAUSTS, contests=kind == CONTESTS)


def draw_transactions(rng: random.Random) -> TransactionScenario:
    """Draw a random scenario."""
    base = draw(rng)
    given = {field.name: getattr(base, field.name) for field in fields(base)}
    version = rng.choice(VERSIONS)
    calm = rng.random() < 0.1
    configs = base.configs | {
        "enable_idempotence": True,
        "acks": "all",
        "compression_type": rng.choice(("none", "none", "none", "lz4", "gzip")),
        "buffer_memory": max(base.configs["buffer_memory"], 6_000),
        "max_block_ms": rng.choice((500, 2000, 5000, 10_000)),
    }
    if configs.get("retries") == 0:
        configs["retries"] = 1
    configs.pop("partitioner_class", None)
    return TransactionScenario(
        **given
        | {
            "configs": configs,
            "version": version,
            "topics": {f"t{number}": rng.choice((1, 1, 2, 3)) for number in range(rng.choice((1, 1, 2)))},
            "calm": calm,
            "forgets": base.forgets or base.recreates,
            "recreates": False,
            "closes_early": False,
            "interceptors": False,
            "sabotage": rng.random() < 0.03,
            "fatal": rng.random() < 0.08,
            "serializers": rng.random() < 0.1,
            "chaos_s": rng.choice((1.0, 2.0, 5.0, 12.0)),
            "faults": 0 if calm else rng.choice((2, 4, 8, 12)),
            "relentless": not calm and rng.random() < 0.25,
        },
        transaction_version=rng.choice((2, 2, 2, 1)) if version == "4.3" else 0,
        transactional_ids=("a",) if rng.random() < 0.8 else ("a", "b"),
        transaction_timeout_ms=rng.choice((300, 1000, 5000, 60_000, 60_000, 60_000)),
        members=rng.random() < (0.4 if version in MEMBERS_SINCE else 0.05),
        prepares=rng.random() < 0.35,
        overlaps=rng.random() < 0.35,
        crashes=rng.choice((0.0, 0.3, 0.3, 0.8)),
        rounds=rng.choice((1, 2, 4, 6)),
    )
