"""The producer under seeded faults: nothing lost, doubled or reordered, and nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.mutants import PATCHES, ROOT, hunt, is_compiled, mutants
from tests.simulation.regressions import REGRESSIONS
from tests.simulation.run import simulate
from tests.simulation.seeds import run

SEEDS = range(2000)
REPEATED = (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89)
DIGESTS = """
import json, sys
from tests.simulation.run import simulate
print(json.dumps({seed: simulate(int(seed)).story.digest() for seed in sys.argv[1:]}))
"""


def test_all_that_always_holds_does() -> None:
    """Sections "What always holds" and "Tested" of docs/architecture.md, for 2,000 runs that the seeds drew."""
    failed = run(SEEDS, most=3)
    assert not failed, "\n\n".join(result.report for result in failed[:1])


@pytest.mark.parametrize("seed", REGRESSIONS)
def test_what_once_failed(seed: int) -> None:
    outcome = simulate(seed)
    assert not outcome.failed, f"{REGRESSIONS[seed]}\n{outcome.report()}"


def test_a_seed_is_one_run() -> None:
    """The same events at the same times, in this process after other runs, and in another with other hashes."""
    here = {str(seed): simulate(seed).story.digest() for seed in REPEATED}
    again = {str(seed): simulate(seed).story.digest() for seed in reversed(REPEATED)}
    assert again == here
    for hash_seed in "1", "2":
        output = subprocess.run(
            [sys.executable, "-c", DIGESTS, *here],
            env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        assert json.loads(output) == here


def test_seeds_differ() -> None:
    assert len({simulate(seed).story.digest() for seed in REPEATED}) == len(REPEATED)


@pytest.mark.parametrize("patch", mutants(), ids=lambda patch: patch.stem)
def test_mutants_apply(patch: Path) -> None:
    """Each deliberate bug still fits the code that it breaks."""
    applies = subprocess.run(
        ["git", "apply", "--check", "--unsafe-paths", str(patch)], cwd=ROOT, capture_output=True, text=True
    )
    assert applies.returncode == 0, applies.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["leader_not_refreshed", "doubt_forgotten", "throttle_ignored", "waiters_last_first"])
def test_mutants_are_found(name: str) -> None:
    """Some of what ``make mutants`` tries: the simulation finds a bug when there is one."""
    patch = PATCHES / f"{name}.patch"
    assert not is_compiled(patch)
    finding = hunt(patch)
    assert finding.seed is not None, finding
