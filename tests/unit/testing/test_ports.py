"""Free ports."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
from pathlib import Path

from aioproducer.testing import ports

ROOT = Path(__file__).parents[3]


class OfferedPorts(random.Random):
    """Proposes the given ports, then others."""

    def __init__(self, *offered: int) -> None:
        super().__init__(7)
        self.offered = list(offered)

    def randint(self, a: int, b: int) -> int:
        return self.offered.pop(0) if self.offered else super().randint(a, b)


def test_ports_differ_and_lie_below_those_of_outgoing_connections() -> None:
    found = ports.free_ports(6, random.Random(1))
    assert len(set(found)) == 6
    assert all(ports.FIRST <= port <= ports.LAST for port in found)


def test_a_port_in_use_is_not_given_out() -> None:
    with socket.socket() as listener:
        listener.bind((ports.HOST, 0))
        listener.listen()
        taken = listener.getsockname()[1]
        assert not ports.is_free(taken)
        assert taken not in ports.free_ports(2, OfferedPorts(taken))


def test_a_port_is_given_out_once_until_it_is_given_back() -> None:
    (given,) = ports.free_ports(1, random.Random(2))
    assert given not in ports.free_ports(2, OfferedPorts(given, given))
    ports.give_back([given, given])
    assert ports.free_ports(2, OfferedPorts(given, given))[0] == given


def test_a_port_that_another_process_has_chosen_is_not_given_out_until_that_process_ends() -> None:
    (given,) = ports.free_ports(1, random.Random(3))
    ports.give_back([given])
    choose = f"""
import random
from tests.unit.testing.test_ports import OfferedPorts
from aioproducer.testing import ports
print(*ports.free_ports(1, OfferedPorts({given})), flush=True)
input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", choose], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert int(other.stdout.readline()) == given
        assert given not in ports.free_ports(1, OfferedPorts(given))
        other.kill()
    assert ports.free_ports(1, OfferedPorts(given)) == [given]


def test_when_the_range_is_full_the_system_chooses() -> None:
    with socket.socket() as listener:
        listener.bind((ports.HOST, 0))
        listener.listen()
        taken = listener.getsockname()[1]
        found = ports.free_ports(3, OfferedPorts(*[taken] * 1_000))
    assert len(set(found)) == 3
    assert taken not in found


def test_fake_clusters_need_no_locks_of_files() -> None:
    """Windows has no fcntl. A KafkaCluster says there what it needs."""
    script = """
import sys
sys.modules["fcntl"] = None
import random
import aioproducer.testing.cluster
from aioproducer.testing import FakeCluster, KafkaCluster, ports
from aioproducer.testing.errors import ClusterError
from tests.unit.testing.test_ports import OfferedPorts
(given,) = ports.free_ports(1, random.Random(4))
assert given not in ports.free_ports(1, OfferedPorts(given))
ports.give_back([given])
with FakeCluster(2) as cluster:
    assert len(set(cluster.bootstrap_servers.split(","))) == 2
sys.platform = "win32"
try:
    KafkaCluster().start()
except ClusterError as error:
    print(error)
"""
    told = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (told.stdout, told.stderr) == ("KafkaCluster runs on Linux and macOS\n", "")
