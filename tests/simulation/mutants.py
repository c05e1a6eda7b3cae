"""Shows that the simulation bites: deliberate bugs, each of which it has to find.

Every file in ``mutants/`` is a patch of a line or a few, with a comment on top that says what it breaks. Each is
applied to a copy of the package, built if it touches compiled code, and seeds are run until one fails.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.seeds import TRANSACTIONS

ROOT = Path(__file__).parent.parent.parent
PATCHES = Path(__file__).parent / "mutants"
SEEDS = 1500
"""So many at most; a bug that takes more is found too rarely."""


@dataclass(frozen=True, slots=True)
class Finding:
    """How it went with one mutant; ``complaint`` is None if no seed failed."""

    name: str
    what: str
    seed: str | None
    seeds: int
    complaint: str | None
    seconds: float


def mutants(names: Sequence[str] = ()) -> list[Path]:
    """The patches, all of them or those of these names."""
    found = sorted(PATCHES.glob("*.patch"))
    return [path for path in found if not names or path.stem in names]


def is_compiled(patch: Path) -> bool:
    """Whether a patch touches a module that has to be built."""
    return bool(re.search(r"^\+\+\+ .*\.(pyx|pxd)", patch.read_text(), re.MULTILINE))


def kind_of(patch: Path) -> str:
    """What is before the seeds that have to find it: those that are named transaction_ are of transactions."""
    return TRANSACTIONS if patch.stem.startswith("transaction_") else ""


def hunt(patch: Path, *, seeds: int = SEEDS) -> Finding:
    """Try one mutant."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        root = Path(folder)
        _copy(root)
        subprocess.run(["git", "apply", "--unsafe-paths", f"--directory={root}", str(patch)], check=True, cwd="/")
        environment = os.environ | {"PYTHONPATH": str(root)}
        if is_compiled(patch):
            build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
            subprocess.run(
                build, check=True, cwd=root, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        command = [sys.executable, "-m", "tests.simulation.until_failure", f"{kind_of(patch)}{seeds}"]
        output = subprocess.run(command, check=True, cwd=root, env=environment, capture_output=True, text=True).stdout
    seed, tried, complaint = output.rstrip("\n").split("\t", 2)
    what = patch.read_text().splitlines()[0].removeprefix("# ")
    seconds = time.monotonic() - began
    if not complaint:
        return Finding(patch.stem, what, None, int(tried), None, seconds)
    return Finding(patch.stem, what, seed, int(tried), complaint, seconds)


def _copy(root: Path) -> None:
    """The package as it is built here, the simulation, and what it takes to build."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "aioproducer", root / "aioproducer", ignore=ignored)
    for name in "simulation", "reference":
        shutil.copytree(ROOT / "tests" / name, root / "tests" / name, ignore=ignored)
    for name in "setup.py", "pyproject.toml", "README.md", "LICENSE":
        shutil.copy(ROOT / name, root / name)
    if (ROOT / "build").is_dir():
        shutil.copytree(ROOT / "build", root / "build")


def main(arguments: Sequence[str]) -> int:
    """Hunt all mutants, or those that are named, and print a table."""
    parser = argparse.ArgumentParser(description="Deliberate bugs that the simulation has to find.")
    parser.add_argument("names", nargs="*", help="of patches, without .patch; all if none is given")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many to try with each")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    missed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as threads:
        for finding in threads.map(lambda patch: hunt(patch, seeds=options.seeds), mutants(options.names)):
            missed += finding.seed is None
            found = f"seed {finding.seed}" if finding.seed is not None else "NOT FOUND"
            cost = f"after {finding.seeds:5,} seeds, {finding.seconds:4.0f} s"
            print(f"{finding.name:28} {found:>10} {cost}  {finding.what}", flush=True)
            if finding.complaint:
                print(f"{'':28} {finding.complaint[:180]}", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
