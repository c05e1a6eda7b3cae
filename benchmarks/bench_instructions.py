"""How many instructions does a record of 100 bytes take on its way into a batch?"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks import report
from benchmarks.groups import GROUPS, Group, group_of
from benchmarks.looking_on import CLIENTS, run_under, way
from benchmarks.peers import Client
from benchmarks.plan import RECORD_CASES, Effort
from benchmarks.worker import Outcome

SLUG: Final = "instructions"
QUESTION: Final = __doc__
CASE: Final = replace(RECORD_CASES[0], linger_ms=1_000)
"""Under callgrind the program is so slow that linger would send partial batches; a fast one fills them."""
FEW, MANY = 10_000, 40_000
MOST_FUNCTIONS = 15
COUNT: Final = ("valgrind", "-q", "--tool=callgrind")

Function = tuple[str, str]
"""Library and name."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A section of the document.

    Attributes:
        counts: instructions per record, by function, by client.
    """

    counts: dict[str, dict[Function, float]]
    question: str = QUESTION

    def markdown(self) -> list[str]:
        """Return the groups for all ways of sending, and the most expensive functions of the first."""
        names = [way(name) for name in self.counts]
        by_group = [grouped(counts) for counts in self.counts.values()]
        chosen = [group for group in GROUPS if group.per_record]
        rows = [(group.name, *(whole(counts[group]) for counts in by_group)) for group in chosen]
        together = [sum(counts[group] for group in chosen) for counts in by_group]
        rest = [sum(counts.values()) - own for counts, own in zip(by_group, together, strict=True)]
        rows.append(("**together**", *(f"**{whole(count)}**" for count in together)))
        rows.append(("everything else", *map(whole, rest)))
        return [
            f"## {self.question}",
            "",
            f"Counted by callgrind: a run of {MANY:,} records minus one of {FEW:,}, divided by the difference, so that "
            "start and end are left out; no compression. Under callgrind a program runs some fifty times slower, so "
            "what happens once per millisecond or once per wait happens more often per record: that is why the "
            "interpreter, the event loop, requests, checksums and the rest are one row here. "
            "The profile above has their time.",
            "",
            *report.table(("instructions a record", *names), rows),
            "",
            f"The functions of `{names[0]}` with the most instructions, except the interpreter's:",
            "",
            *report.table(("function", "library", "instructions a record"), self.functions()),
            "",
        ]

    def functions(self) -> list[tuple[str, str, str]]:
        """Return the first client's most expensive functions, among the per-record groups."""
        counts = next(iter(self.counts.values()))
        own = {function: count for function, count in counts.items() if group_of(function[1], function[0]).per_record}
        most = sorted(own.items(), key=lambda item: -item[1])[:MOST_FUNCTIONS]
        return [
            (f"`{short(name)}`", f"`{Path(library).name.partition('.')[0]}`", whole(count))
            for (library, name), count in most
        ]

    def draw(self, directory: Path) -> list[Path]:
        """Return nothing: the table says it all."""
        del directory
        return []


def whole(count: float) -> str:
    """Return a count rounded: the difference of two runs has fractions."""
    return f"{max(0.0, count):,.0f}"


def grouped(counts: Mapping[Function, float]) -> defaultdict[Group, float]:
    """Return the sums of the groups."""
    found: defaultdict[Group, float] = defaultdict(float)
    for (library, name), count in counts.items():
        found[group_of(name, library)] += count
    return found


def short(name: str) -> str:
    """Return the Cython name behind a C name: ``RecordBatch.write`` for ``__pyx_f_11aioproducer_13_record_batch_...``.

    Cython puts its length before each module or class name, and a running number before a method's name.
    """
    found = re.match(r"__pyx_(tp_[a-z]+|[a-z]+)_(?=\d)", name)
    if not found:
        return name
    words: list[str] = []
    rest = name[found.end() :]
    while length := re.match(r"_?(\d+)", rest):
        word = rest[length.end() :][: int(length[1])]
        if len(words) >= len(("package", "module")) and not word[:1].isupper():
            rest = rest[length.end() :]
            break
        words.append(word)
        rest = rest[length.end() + len(word) :]
    slot = [found[1]] if found[1].startswith("tp_") else []
    return ".".join([*words[2:], rest.removeprefix("_"), *slot])


def missing() -> str | None:
    """Return why it can't be measured here."""
    return None if shutil.which("valgrind") else f"{SLUG}: valgrind is not on this machine"


def answer(effort: Effort, console_print: Callable[[str], None]) -> tuple[Answer, list[str]]:
    """Count every way of sending twice; also returns the problems."""
    del effort  # a count needs no repetition
    counts: dict[str, dict[Function, float]] = {}
    troubles: list[str] = []
    for client in CLIENTS:
        runs = []
        for records in (FEW, MANY):
            console_print(f"{SLUG}: {client.name}, {records:,} records")
            runs.append(counted(client, records))
        few, many = runs
        if isinstance(few, str) or isinstance(many, str):
            troubles.append(f"{client.name}: {few if isinstance(few, str) else many}")
            continue
        each = {name: (many[name] - few[name]) / (MANY - FEW) for name in many.keys() | few.keys()}
        counts[client.name] = each
    return Answer(counts), troubles


def counted(client: Client, records: int) -> Counter[Function] | str:
    """Count one run; a string describes its problem."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "callgrind.out"
        command = (*COUNT, f"--callgrind-out-file={path}")
        done = run_under(command, client, CASE, Effort(repeats=1, share=0.0, seconds=0.0), records)
        if not isinstance(done, Outcome):
            return done
        return own_counts(path.read_text())


def own_counts(text: str) -> Counter[Function]:
    """Add up each function's own instructions, from callgrind's output.

    ``ob=`` and ``fn=`` name the library and function of the cost lines below, each with a number that replaces the
    name from then on. The line after ``calls=`` is the cost of the called function.
    """
    names: dict[tuple[str, str], str] = {}
    counts: Counter[Function] = Counter()
    library = function = ""
    called = False
    for line in text.splitlines():
        if found := re.match(r"(c?)(ob|fn)=\((\d+)\)(?: (.+))?$", line):
            kind, number = found[2], found[3]
            if found[4]:
                names[kind, number] = found[4]
            name = names[kind, number]
            if found[1]:
                continue
            if kind == "ob":
                library = name
            else:
                function = name.partition("'")[0]
        elif line.startswith("calls="):
            called = True
        elif re.match(r"[+\-*\d]", line):
            if not called:
                counts[library, function] += int(line.split()[1])
            called = False
    return counts
