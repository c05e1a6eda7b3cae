"""``python -m tests.fuzz --seconds 60 [--target NAME] [--add]``: look for inputs that a reader can't handle.

With the package atheris (``pip install atheris``) the inputs are guided by coverage: those that reach new code of the
Python modules are kept and mutated further. The compiled decoder is guided by the schema's, which reads the same bytes
too. Without atheris the corpus is mutated at random. ``--add`` puts inputs that reached new code into the corpus.

Prints how many inputs were read, and writes a failing one to out/fuzz.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import importlib.util
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.mutations import LONGEST, mutated

OUT = Path(__file__).parents[2] / "out" / "fuzz"
LONGEST_KEPT = 512
MOST_ADDED = 40
SLOW_S = 10
"""A reader that takes longer than this hangs, even with sanitizers on a busy machine."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz every target, each in its own process; returns 1 if one fails."""
    made = argparse.ArgumentParser(prog="python -m tests.fuzz")
    made.add_argument("--seconds", type=float, default=60, help="of all targets together")
    made.add_argument("--target", help="one alone")
    made.add_argument("--seed", type=int, default=None, help="of the damage; by default another one each time")
    made.add_argument("--no-coverage", action="store_true", help="without atheris, though it is there")
    made.add_argument("--add", action="store_true", help="put what reached new code into tests/fuzz/corpus")
    made.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = made.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**31) if options.seed is None else options.seed
    led = importlib.util.find_spec("atheris") is not None and not options.no_coverage
    if options.here:
        return led_by_coverage(options, seed) if led else at_random(options.target, options.seconds, seed)
    from tests.fuzz.targets import TARGETS

    names = [one.name for one in TARGETS if options.target in (None, one.name)]
    worst = 0
    for name in names:
        command = [sys.executable, "-m", "tests.fuzz", "--here", "--target", name, "--seed", str(seed)]
        command += ["--seconds", str(options.seconds / len(names)), *(["--add"] * options.add)]
        command += ["--no-coverage"] * options.no_coverage
        code = subprocess.run(command, check=False).returncode
        if code:
            print(f"{name}: FAILED with exit code {code} (seed {seed})", flush=True)
        worst = max(worst, abs(code))
    return 1 if worst else 0


def at_random(name: str, seconds: float, seed: int) -> int:
    """Mutate the corpus until the time is over."""
    from tests.fuzz.targets import target

    found = target(name)
    corpus = found.corpus()
    rng = random.Random(seed)
    end = time.monotonic() + seconds
    read = taken = 0
    data = b""
    try:
        while time.monotonic() < end:
            data = mutated(rng.choice(corpus), corpus, rng)
            began = time.monotonic()
            taken += found.run(data)
            read += 1
            assert time.monotonic() - began < SLOW_S, "it took too long"
    except BaseException as error:
        print(f"{name}: {error!r} with {keep(name, data)}", flush=True)
        raise
    print(f"{name}: {read:,} inputs read, {taken:,} of them taken (seed {seed})", flush=True)
    return 0


def led_by_coverage(options: argparse.Namespace, seed: int) -> int:
    """Have libFuzzer choose the inputs; it ends the process itself."""
    import atheris

    with atheris.instrument_imports(include=["aioproducer"]):
        from tests.fuzz.targets import target

    found = target(options.target)
    folder = OUT / found.name
    folder.mkdir(parents=True, exist_ok=True)
    for data in found.corpus():
        (folder / hashlib.sha1(data).hexdigest()).write_bytes(data)
    known = {path.name for path in folder.iterdir()}
    read = taken = 0
    end = time.monotonic() + options.seconds

    def test_one(data: bytes) -> None:
        nonlocal read, taken
        read += 1
        taken += found.run(data)
        if time.monotonic() > end:
            print(f"{found.name}: {read:,} inputs read, {taken:,} of them taken (seed {seed})", flush=True)
            if options.add:
                add(found.name, [path for path in folder.iterdir() if path.name not in known])
            os._exit(0)  # libFuzzer exits in the same way, without cleanup

    arguments = [sys.argv[0], str(folder), f"-seed={seed}", f"-max_len={LONGEST}", f"-timeout={SLOW_S}"]
    arguments += ["-rss_limit_mb=2048", f"-artifact_prefix={OUT}/", "-verbosity=0"]
    atheris.Setup(arguments, test_one, internal_libfuzzer=True)
    atheris.Fuzz()
    return 0


def add(name: str, paths: Sequence[Path]) -> None:
    """Put the shortest new inputs into the corpus."""
    from tests.fuzz.target import CORPUS

    file = CORPUS / f"{name}.txt"
    kept = file.read_text().split() if file.exists() else []
    found = sorted((path.read_bytes() for path in paths), key=lambda data: (len(data), data))
    lines = [base64.b64encode(data).decode() for data in found if 0 < len(data) <= LONGEST_KEPT][:MOST_ADDED]
    file.write_text("\n".join(sorted({*kept, *lines}, key=lambda line: (len(line), line))) + "\n")


def keep(name: str, data: bytes) -> Path:
    """Save a failing input."""
    path = OUT / f"crash-{name}-{hashlib.sha1(data).hexdigest()[:16]}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


if __name__ == "__main__":
    sys.exit(main())
