"""Java for Spark: the machine's, or a wrapper that drops a module which Spark's launcher requests in vain."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from aioproducer.spark import environment
from aioproducer.spark.environment import CONNECTOR, java_home

REAL = """#!/bin/sh
case "$*" in
  *--add-modules={refused}*) echo "Module {refused} not found" >&2; exit 1;;
  *-version*) echo 'openjdk version "21.0.1" 2025-04-15' >&2;;
  *) for argument do echo "[$argument]"; done;;
esac
"""


def make_java(home: Path, refused: str) -> dict[str, str]:
    """An environment with a Java that lacks one module."""
    executable = home / "real" / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(REAL.format(refused=refused))
    executable.chmod(0o755)
    return {"JAVA_HOME": str(home / "real"), "PATH": os.environ["PATH"], "AIOPRODUCER_CACHE": str(home / "cache")}


def test_a_whole_java_is_taken_as_it_is(tmp_path: Path) -> None:
    environ = make_java(tmp_path, refused="nothing")
    assert java_home(environ) == tmp_path / "real"
    assert not (tmp_path / "cache").exists()


def test_a_java_without_the_module_is_wrapped(tmp_path: Path) -> None:
    """All other arguments are passed unchanged, including blanks and quotes."""
    environ = make_java(tmp_path, refused="jdk.incubator.vector")
    home = java_home(environ)
    assert home != tmp_path / "real"
    arguments = [
        "-Xmx1g",
        "--add-modules=jdk.incubator.vector",
        "-Da=two words",
        "--add-modules=java.sql",
        'it\'s "$x"',
    ]
    ran = subprocess.run([str(home / "bin" / "java"), *arguments], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["[-Xmx1g]", "[-Da=two words]", "[--add-modules=java.sql]", '[it\'s "$x"]']
    assert java_home(environ) == home


def test_the_wrapper_follows_a_java_that_moved(tmp_path: Path) -> None:
    environ = make_java(tmp_path, refused="jdk.incubator.vector")
    script = java_home(environ) / "bin" / "java"
    script.write_text("#!/bin/sh\nexit 7\n")
    assert subprocess.run([str(java_home(environ) / "bin" / "java"), "-version"], check=False).returncode == 0


def test_the_connector_is_one_set_of_versions() -> None:
    """The versions of the connector's parts belong together; none is resolved separately."""
    assert not CONNECTOR.dependencies
    assert all(one.count(":") == 2 for one in CONNECTOR.coordinates)


def test_variables_for_the_jvm_do_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/before")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    with environment._environment(JAVA_HOME="/during", PYSPARK_PYTHON="/python"):
        assert os.environ["JAVA_HOME"] == "/during"
    assert os.environ["JAVA_HOME"] == "/before"
    assert "PYSPARK_PYTHON" not in os.environ
