"""Compiles the suite's C programs with the system's compiler, once per source and command."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

BUILD = Path(__file__).parent.parent / ".cache" / "benchmarks"
FLAGS = ("-O2", "-std=c11", "-Wall", "-Wextra")


class NoCompilerError(RuntimeError):
    """There is no compiler, or it refused the program."""


def compile_c(source: Path, *libraries: str) -> Path:
    """Return the program; compiles it if its source or the compiler's name has changed.

    Raises:
        NoCompilerError: with the compiler's own message.
    """
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
    if shutil.which(compiler[0]) is None:
        compiler = ["cc"]
    command = [*compiler, *FLAGS]
    program = built(source.stem, source.read_bytes() + " ".join([*command, *libraries]).encode())
    if not program.exists():
        run_compiler([*command, "-o", "{}", str(source), *libraries], program)
    return program


def built(name: str, what: bytes) -> Path:
    """Return the path of the program built from these sources by this command, existing or not."""
    return BUILD / f"{name}-{hashlib.sha256(what).hexdigest()[:16]}"


def run_compiler(command: list[str], program: Path, directory: Path | None = None) -> None:
    """Run a compiler, with ``{}`` in its command for the output, so that the program is complete or absent.

    Raises:
        NoCompilerError: with the compiler's own message.
    """
    BUILD.mkdir(parents=True, exist_ok=True)
    new = program.with_suffix(f".{os.getpid()}")
    filled = [str(new) if word == "{}" else word for word in command]
    try:
        done = subprocess.run(filled, capture_output=True, text=True, check=False, cwd=directory)
    except FileNotFoundError:
        raise NoCompilerError(f"{program.name} needs a compiler; {command[0]} was not found") from None
    if done.returncode:
        raise NoCompilerError(f"{' '.join(command)} failed:\n{done.stderr}")
    new.replace(program)
