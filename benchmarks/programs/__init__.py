"""Clients not in Python: separate programs, built if the machine has their tools."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from benchmarks.compiler import built, compile_c, run_compiler

HERE = Path(__file__).parent
FRANZ = HERE / "franz"


def librdkafka_program() -> Path:
    """Return the program over librdkafka's C API.

    Raises:
        NoCompilerError: there is no C compiler.
    """
    return compile_c(HERE / "librdkafka.c", "-ldl")


def librdkafka_library() -> Path | None:
    """Return the librdkafka bundled with the installed confluent-kafka; None if it has none."""
    import confluent_kafka

    libraries = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    return next(iter(sorted(libraries.glob("librdkafka*.so*"))), None)


def franz_program() -> Path:
    """Return the program over franz-go; its first build downloads franz-go.

    Raises:
        NoCompilerError: there is no Go, or its modules can't be fetched.
    """
    sources = b"".join((FRANZ / name).read_bytes() for name in ("main.go", "go.mod", "go.sum"))
    program = built("franz", sources)
    if not program.exists():
        run_compiler(["go", "build", "-o", "{}", "."], program, FRANZ)
    return program


def franz_version() -> str:
    """Return the version required by go.mod."""
    found = re.search(r"franz-go v(\S+)", (FRANZ / "go.mod").read_text())
    assert found is not None
    return found[1]


def java_version() -> str:
    """Return the version of Kafka's Java client in use."""
    from aioproducer.testing.cluster import DEFAULT_VERSION

    return DEFAULT_VERSION


def missing(name: str) -> str | None:
    """Return what a program lacks on this machine; None if it can run."""
    if name == "franz-go" and shutil.which("go") is None:
        return "franz-go needs Go, which is not installed"
    if name == "librdkafka" and librdkafka_library() is None:
        return "librdkafka's C API: the installed confluent-kafka brings no library along"
    return None


def performance_command(payloads: Path) -> list[str]:
    """Return the command of Kafka's own ProducerPerformance up to its arguments, with the payloads, one per line.

    The Java and the jars are those of ``aioproducer.testing``.
    """
    from aioproducer.testing.cache import cache_directory
    from aioproducer.testing.jars import find_jars
    from aioproducer.testing.java import find_java

    jars = find_jars(java_version(), cache_directory(os.environ), lambda text: None, os.environ)
    java = find_java(os.environ)
    tool = jars.tool("ProducerPerformance")
    return [str(java.path), "-cp", jars.class_path, tool, "--payload-file", str(payloads), "--throughput", "-1"]
