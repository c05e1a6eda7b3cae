"""Runs seeds from 0 or t0 in this process until one fails; prints seed, runs and complaint, separated by tabs."""

from __future__ import annotations

import sys

from tests.simulation.seeds import one, parse, prepare


def main(seeds: str) -> None:
    """Run seeds and print the first failure."""
    prepare()
    tried = 0
    for tried, seed in enumerate(parse(seeds), 1):
        if complaints := one(seed).complaints:
            print(seed, tried, complaints[0].replace("\n", " ").replace("\t", " "), sep="\t")
            return
    print(-1, tried, "", sep="\t")


if __name__ == "__main__":
    main(sys.argv[1])
