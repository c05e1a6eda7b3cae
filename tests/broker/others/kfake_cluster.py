"""The cluster of franz-go's kfake: a Go program that shares no code with Kafka, and whose faults a test may order."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from aioproducer.error_codes import Code
from aioproducer.testing import TopicAdmin

PROGRAM = Path(__file__).parent / "kfake"
BUILD = Path(__file__).parents[3] / ".cache" / "kfake"
NODES = (1, 2)
"""Those that come and go; node 0 stays, so that ``bootstrap_servers`` leads to the cluster at all times."""

AT_LEADERS = (
    Code.NOT_LEADER_OR_FOLLOWER,
    Code.NOT_ENOUGH_REPLICAS,
    Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    Code.REQUEST_TIMED_OUT,
    Code.KAFKA_STORAGE_ERROR,
    Code.UNKNOWN_TOPIC_OR_PARTITION,
    Code.LEADER_NOT_AVAILABLE,
)
AT_COORDINATORS = (
    Code.NOT_COORDINATOR,
    Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.COORDINATOR_NOT_AVAILABLE,
    Code.CONCURRENT_TRANSACTIONS,
)


def has_go() -> bool:
    """Whether this machine can build the program."""
    return shutil.which("go") is not None


class KfakeCluster:
    """Three nodes, for a ``with`` block."""

    def __init__(self) -> None:
        program = BUILD / "kfake"
        BUILD.mkdir(parents=True, exist_ok=True)
        subprocess.run(["go", "build", "-o", str(program), "."], cwd=PROGRAM, check=True)
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=10)

    def order(self, *words: object) -> str:
        """Give the program a line; returns its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(*words, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline().strip()
        assert answer, "the program has ended"
        assert not answer.startswith("failed"), answer
        return answer

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the nodes that run now."""
        return self.order("addresses")

    def admin(self) -> TopicAdmin:
        """The topics, by way of the nodes that run now."""
        return TopicAdmin(self.bootstrap_servers)


class Chaos:
    """Faults drawn from a seed.

    Args:
        topic: whose partitions change leaders.
    """

    def __init__(self, cluster: KfakeCluster, seed: int, topic: str, partitions: int) -> None:
        self._cluster = cluster
        self._rng = random.Random(seed)
        self._topic = topic
        self._partitions = partitions
        self._ports = [address.rpartition(":")[2] for address in cluster.bootstrap_servers.split(",")]
        self._away: int | None = None

    def strike(self) -> None:
        """Cause one fault."""
        rng, order = self._rng, self._cluster.order
        kind = rng.randrange(10)
        if kind < 2:
            order("move", self._topic, rng.randrange(self._partitions), 0)
        elif kind < 3:
            order("shuffle")
        elif kind < 4:
            order("rehash")
        elif kind < 5 and self._away is None:
            self._away = rng.choice(NODES)
            order("remove", self._away)
        elif kind < 5:
            self._come_back()
        elif kind < 8:
            order("fail", "Produce", int(rng.choice(AT_LEADERS)), rng.choice((1, 1, 2, 4)))
        else:
            order(
                "fail", rng.choice(("InitProducerId", "EndTxn")), int(rng.choice(AT_COORDINATORS)), rng.choice((1, 2))
            )

    def end(self) -> None:
        """Undo what still lasts."""
        self._cluster.order("heal")
        self._come_back()

    def _come_back(self) -> None:
        if self._away is not None:
            self._cluster.order("add", self._away, self._rng.choice((0, self._ports[self._away])))
            self._away = None
