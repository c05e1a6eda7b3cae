"""Runs seeds from 0 in this process until one fails; prints seed, number of runs and complaint, apart by tabs."""

from __future__ import annotations

import sys

from tests.simulation.seeds import one, prepare


def main(most: int) -> None:
    """Print what there is to say."""
    prepare()
    for seed in range(most):
        if complaints := one(seed).complaints:
            print(seed, seed + 1, complaints[0].replace("\n", " ").replace("\t", " "), sep="\t")
            return
    print(-1, most, "", sep="\t")


if __name__ == "__main__":
    main(int(sys.argv[1]))
