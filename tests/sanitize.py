"""``make sanitize``: the compiled core under AddressSanitizer and UndefinedBehaviorSanitizer.

Builds the package into a separate folder, build/sanitized, beside the normal build, and runs the unit tests of the
compiled core and some seeds of the simulation there; ``python tests/sanitize.py COMMAND ...`` runs another command of
this Python's instead, such as ``-m pytest tests/unit/cli``.

Every object has separate memory (PYTHONMALLOC=malloc): in Python's arenas a read past the end of one object would be
a read of the next. Leaks are not checked here: Python itself never frees its interned strings, types and modules, a
few thousand blocks at the end of each process, and a suppression for them would suppress ours too, because everything
we allocate has been called from Python. `tests/unit/test_leaks.py` counts what is alive instead, and the soak does.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build" / "sanitized"
FLAGS = ("-fsanitize=address,undefined",)
RUNTIMES = ("libasan.so", "libclang_rt.asan-x86_64.so", "libclang_rt.asan-aarch64.so", "libclang_rt.asan.so")
TESTS = (
    "accumulator", "accumulator_split", "admission", "admission_serializers", "arguments", "arrow",
    "batch_outcomes", "buffer_pool", "built_in_partitioner", "compiled_classes", "delivery", "delivery_ledger",
    "exactly_once", "hashing", "leaks", "produce", "producer", "record_batch", "reentrancy", "sealer", "send_arrow",
    "send_many", "tally",
)  # fmt: skip
"""Tests of the compiled core and of the producer as a whole; the rest of the package does not manage memory."""
LOOP_TESTS = ("do_not_starve", "the_loop_gets_turns", "two_hundred_producers", "a_batch_of_very_many_calls")
"""Names of tests that are skipped because they would take minutes: tests of turns, and of many repetitions."""
OTHER_LOOP = "debug"
"""Async tests run on two loops, of which this one is skipped: memory is used in the same way on both."""
SEEDS = "20"
OPTIONS = {
    "PYTHONMALLOC": "malloc",
    "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=1:abort_on_error=1:handle_abort=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


def main(arguments: list[str]) -> int:
    """Build, run, and return the exit code."""
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    runtime = find_runtime(shlex.split(compiler)[0])
    if isinstance(runtime, str):
        print(f"sanitizers: skipped, {runtime}")
        return 0
    build(runtime)
    environment = os.environ | OPTIONS | {"LD_PRELOAD": str(runtime), "PYTHONPATH": str(BUILD)}
    commands = [arguments] if arguments else default_commands()
    return max(run([sys.executable, *command], environment, cwd=BUILD) for command in commands)


def default_commands() -> list[list[str]]:
    """Tests, then the simulation."""
    unwanted = " and ".join(f"not {name}" for name in (*LOOP_TESTS, OTHER_LOOP))
    paths = [*(f"tests/unit/test_{name}.py" for name in TESTS), "tests/fuzz"]
    commands = [["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", "-k", unwanted, *paths]]
    if (ROOT / "tests" / "simulation" / "__main__.py").exists():
        commands.append(["-m", "tests.simulation", SEEDS])
    return commands


def find_runtime(compiler: str) -> Path | str:
    """The shared library that has to be preloaded; or a string that says why there is none."""
    if sys.platform != "linux":
        return "they are set up for Linux"
    if shutil.which(compiler) is None:
        return f"there is no C compiler {compiler!r}"
    for name in RUNTIMES:
        asked = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=False)
        path = Path(asked.stdout.strip())
        if path.is_absolute() and path.exists():
            return path.resolve() if works(compiler, path) else f"{compiler} can't link with {path.name}"
    return f"{compiler} comes without the runtime library of AddressSanitizer (with Debian's gcc: libasan8)"


def works(compiler: str, runtime: Path) -> bool:
    """Whether a library can be built with it, and Python started with it."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "empty.c"
        source.write_text("int aioproducer_empty(void) { return 0; }\n")
        command = [compiler, *FLAGS, *link_flags(runtime), "-shared", "-fPIC", str(source), "-o", f"{folder}/empty.so"]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return False
    environment = os.environ | OPTIONS | {"LD_PRELOAD": str(runtime)}
    return not subprocess.run([sys.executable, "-c", ""], env=environment, capture_output=True, check=False).returncode


def link_flags(runtime: Path) -> list[str]:
    """The flags with which a compiler uses the shared runtime; gcc needs none."""
    return ["-shared-libasan"] if "clang" in runtime.name else []


def build(runtime: Path) -> None:
    """Build the package and copy the tests; nothing that the normal build uses is touched."""
    flags = " ".join([os.environ.get("LDFLAGS", ""), *link_flags(runtime)]).strip()
    command = [sys.executable, "setup.py", "-q", "build", "--build-base", "build/sanitizing", "--build-lib", str(BUILD)]
    if run(command, os.environ | {"AIOPRODUCER_SANITIZE": "1", "LDFLAGS": flags}, cwd=ROOT):
        raise SystemExit("sanitizers: the extensions could not be built")
    shutil.rmtree(BUILD / "tests", ignore_errors=True)
    shutil.copytree(ROOT / "tests", BUILD / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", BUILD)


def run(command: list[str], environment: dict[str, str], cwd: Path) -> int:
    """Run one command until it ends, with this process's output."""
    return subprocess.run(command, env=environment, cwd=cwd, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
