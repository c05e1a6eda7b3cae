"""One reader of untrusted bytes, as a target of the fuzzer."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"


@dataclass(frozen=True)
class Target:
    """One reader.

    Attributes:
        read: reads one input, and fails an assertion if something does not hold.
        refusals: the errors that it may raise.
        seeds: valid inputs to start with.
        peak_bytes: the most memory that reading ``size`` bytes may take, beyond a fixed amount.
        share: of the mutated inputs that are tried in a test; slow targets get fewer.
    """

    name: str
    read: Callable[[bytes], object]
    refusals: tuple[type[BaseException], ...]
    seeds: Callable[[], Iterator[bytes]]
    peak_bytes: Callable[[int], int] = field(default=lambda size: 2_000 * size)
    share: float = 1.0

    def run(self, data: bytes) -> bool:
        """Whether the input was accepted; any other error than a refusal is raised."""
        try:
            self.read(data)
        except self.refusals:
            return False
        return True

    def corpus(self) -> list[bytes]:
        """The kept inputs, valid ones first."""
        path = CORPUS / f"{self.name}.txt"
        kept = path.read_text().split() if path.exists() else []
        return [*self.seeds(), *(base64.b64decode(line) for line in kept)]
