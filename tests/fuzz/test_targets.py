"""Untrusted bytes are read or refused, never cause a crash, and use memory only in proportion to their size.

A short fuzzing run with the same inputs each time; `python -m tests.fuzz` does more.
"""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

import pytest

from aioproducer import protocol
from tests.fuzz.mutations import mutated
from tests.fuzz.targets import APIS, TARGETS, Target, module_name

MUTATIONS = 2_000
MEASURED = 60
FIXED_BYTES = 1 << 20

each_target = pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)


def test_every_api_is_read() -> None:
    """A new file of the protocol package needs its name in APIS."""
    files = {path.stem for path in Path(protocol.__file__).parent.glob("*.py")}
    assert {module_name(api) for api in APIS} == files - {"__init__", "codec", "header", "schema"}


@each_target
def test_good_inputs_are_taken(target: Target) -> None:
    """Inputs by Kafka's own classes are accepted; otherwise mutations would be of inputs that are refused anyway."""
    taken = [target.run(data) for data in target.seeds()]
    assert sum(taken) > len(taken) / 3


@each_target
def test_corpus_and_damage(target: Target) -> None:
    """Every kept input, and some thousand mutated ones, are accepted or refused as documented."""
    corpus = target.corpus()
    for data in corpus:
        target.run(data)
    rng = random.Random(1)
    for _ in range(int(MUTATIONS * target.share)):
        data = mutated(rng.choice(corpus), corpus, rng)
        try:
            target.run(data)
        except BaseException as error:
            error.add_note(f"the input: {data.hex()}")
            raise


@each_target
def test_memory_is_bounded_by_the_input(target: Target) -> None:
    """Whatever sizes an input claims, memory use is limited by its real size."""
    corpus = target.corpus()
    rng = random.Random(2)
    target.run(corpus[0])
    tracemalloc.start()
    try:
        for _ in range(MEASURED):
            data = mutated(rng.choice(corpus), corpus, rng)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            target.run(data)
            peak = tracemalloc.get_traced_memory()[1] - before
            assert peak <= FIXED_BYTES + target.peak_bytes(len(data)), data.hex()
    finally:
        tracemalloc.stop()
