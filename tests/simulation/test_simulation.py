"""The producer under seeded faults: nothing lost, duplicated or reordered, and nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.mutants import PATCHES, ROOT, hunt, is_compiled, mutants
from tests.simulation.regressions import REGRESSIONS
from tests.simulation.seeds import parse, run, simulation

REPEATED = (
    *map(str, (0, 1, 2, 3, 5, 8, 11, 13, 21)),
    *(f"t{seed}" for seed in (0, 1, 2, 3, 5, 8)),
    "m0",
)
DIGESTS = """
import json, sys
from tests.simulation.seeds import simulation
print(json.dumps({seed: simulation(seed).story.digest() for seed in sys.argv[1:]}))
"""


@pytest.mark.parametrize(
    "seeds", ["500", "t300", "m40", *(pytest.param(more, marks=pytest.mark.slow) for more in ("500-2000", "t300-1000"))]
)
def test_all_that_always_holds_does(seeds: str) -> None:
    """Sections "What always holds" and "Tested" of docs/architecture.md, for the runs that many seeds drew."""
    failed = run(parse(seeds), most=3)
    assert not failed, "\n\n".join(result.report for result in failed[:1])


@pytest.mark.parametrize("seed", REGRESSIONS)
def test_what_once_failed(seed: str) -> None:
    outcome = simulation(seed)
    assert not outcome.failed, f"{REGRESSIONS[seed]}\n{outcome.report()}"


@pytest.fixture(scope="module")
def here() -> dict[str, str]:
    """What each seed gives in this process."""
    return {seed: simulation(seed).story.digest() for seed in REPEATED}


def test_a_seed_is_one_run(here: dict[str, str]) -> None:
    """The same events at the same times, in this process after other runs, and in another with another hash seed."""
    again = {seed: simulation(seed).story.digest() for seed in reversed(REPEATED)}
    assert again == here
    output = subprocess.run(
        [sys.executable, "-c", DIGESTS, *here],
        env=os.environ | {"PYTHONHASHSEED": "1", "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert json.loads(output) == here


def test_seeds_differ(here: dict[str, str]) -> None:
    assert len(set(here.values())) == len(REPEATED)


@pytest.mark.parametrize("patch", mutants(), ids=lambda patch: patch.stem)
def test_mutants_apply(patch: Path) -> None:
    """Each deliberate bug still fits the code that it breaks."""
    applies = subprocess.run(
        ["git", "apply", "--check", "--unsafe-paths", str(patch)], cwd=ROOT, capture_output=True, text=True
    )
    assert applies.returncode == 0, applies.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "leader_not_refreshed",
        "doubt_forgotten",
        "throttle_ignored",
        "waiters_last_first",
        "transaction_epoch_not_taken",
    ],
)
def test_mutants_are_found(name: str) -> None:
    """Some of the bugs of ``make mutants``: the simulation finds them."""
    patch = PATCHES / f"{name}.patch"
    assert not is_compiled(patch)
    finding = hunt(patch)
    assert finding.seed is not None, finding
