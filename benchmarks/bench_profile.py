"""Where does the time for a record go in each way of sending, and what is the least it could be?"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks import limits, report
from benchmarks.groups import GROUPS, Group, group_of
from benchmarks.limits import Limits
from benchmarks.looking_on import CLIENTS, run_under, way
from benchmarks.peers import Client
from benchmarks.plan import RECORD_CASES, Case, Effort
from benchmarks.servers import SinkServer
from benchmarks.worker import Outcome

SLUG: Final = "profile"
QUESTION: Final = __doc__
SAMPLES_PER_SECOND = 1_999
"""A prime, to stay out of step with timers."""
RECORD: Final = ("perf", "record", "-q", "-e", "cpu-clock", "-k", "CLOCK_MONOTONIC", "-F", str(SAMPLES_PER_SECOND))
SAMPLE = re.compile(r"^\s*([\d.]+):\s+[0-9a-f]+ (.+) \((.+)\)$")
PICTURE = f"benchmarks-{SLUG}.svg"


@dataclass(frozen=True, slots=True)
class Profile:
    """One client in one case.

    Attributes:
        cpu_seconds: per record.
        seconds: per record, by group of functions.
        samples: number of samples.
    """

    client: str
    cpu_seconds: float
    seconds: dict[Group, float]
    samples: int


@dataclass(frozen=True, slots=True)
class Answer:
    """A section of the document: the samples, compared with the machine's limits."""

    profiles: dict[Case, list[Profile]]
    limits: Limits
    question: str = QUESTION

    def markdown(self) -> list[str]:
        """Return a table per case, the picture, the limits, and the groups."""
        lines = [
            f"## {self.question}",
            "",
            f"Server: {SinkServer().describe()}. Samples of `perf record`, {SAMPLES_PER_SECOND:,} per CPU second, of "
            "the measured section and all of its threads. Microseconds of CPU per record, and their share. The last "
            "row is what this machine takes just for copying the record, its checksum, the socket and the codec; a "
            "call by name with three arguments, which `submit_nowait` and `submit` need in addition, takes "
            f"{self.limits.call * 1e6:.3f}.",
            "",
        ]
        for case, profiles in self.profiles.items():
            least = self.least_seconds(case)
            rows = [
                (group.name, *(share(profile.seconds.get(group, 0.0), profile.cpu_seconds) for profile in profiles))
                for group in GROUPS
                if any(group in profile.seconds for profile in profiles)
            ]
            rows.append(("**all**", *(f"**{profile.cpu_seconds * 1e6:.2f}**" for profile in profiles)))
            rows.append(("the machine's limit", *(share(least, profile.cpu_seconds) for profile in profiles)))
            head = (case.name, *(way(profile.client) for profile in profiles))
            lines += [*report.table(head, rows), ""]
        lines += [f"![where the time of a record goes]({PICTURE})", "", "What the machine allows:", ""]
        return [*lines, *self.limits_table(), "", *(f"- {group.name}: {group.use}" for group in GROUPS), ""]

    def least_seconds(self, case: Case) -> float:
        """Return the machine's cost of a record without any producer."""
        return sum(self.limits.seconds(case.value_bytes, case.codec).values())

    def limits_table(self) -> list[str]:
        """Return the rates, and the resulting cost of a record in each case."""
        costs = {case: self.limits.seconds(case.value_bytes, case.codec) for case in self.profiles}
        sizes = sorted(self.limits.lz4)
        rates = {
            "copy into the batch": gigabytes(self.limits.copy),
            "CRC-32C": gigabytes(self.limits.checksum),
            "socket": f"{gigabytes(self.limits.socket)}, through the loop",
            "lz4": ", ".join(
                f"{gigabytes(self.limits.lz4[size])} to {self.limits.lz4_share[size]:.0%} (values of {size:,} B)"
                for size in sizes
            ),
        }
        rows = [
            (name, rate, *(f"{cost[name] * 1e6:.3f}" if name in cost else "-" for cost in costs.values()))
            for name, rate in rates.items()
        ]
        return report.table(("limit", "rate", *(f"{case.name}, us" for case in costs)), rows)

    def draw(self, directory: Path) -> list[Path]:
        """Draw a stacked bar per way of sending, a panel per case."""
        import matplotlib as mpl

        mpl.use("Agg")
        mpl.rcParams["svg.hashsalt"] = SLUG  # same figures, same file
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(1, len(self.profiles), figsize=(3.6 * len(self.profiles), 3.4), squeeze=False)
        for axis, (case, profiles) in zip(axes[0], self.profiles.items(), strict=True):
            names = [way(profile.client) for profile in profiles]
            left = [0.0] * len(profiles)
            for group in GROUPS:
                widths = [profile.seconds.get(group, 0.0) * 1e6 for profile in profiles]
                axis.barh(names, widths, left=left, color=group.color, label=group.name)
                left = [start + width for start, width in zip(left, widths, strict=True)]
            axis.axvline(
                self.least_seconds(case) * 1e6,
                color="#000000",
                linestyle="--",
                linewidth=1,
                label="the machine's limit",
            )
            axis.set_title(case.name, fontsize=10)
            axis.invert_yaxis()
            axis.tick_params(labelsize=8, labelleft=axis is axes[0][0])
            axis.spines[["top", "right"]].set_visible(False)
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="lower center", ncols=7, fontsize=8, frameon=False)
        figure.suptitle("us of CPU a record, by what it went into (less is better)", fontsize=11)
        figure.tight_layout(rect=(0, 0.14, 1, 1))
        path = directory / PICTURE
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)
        return [path]


def share(seconds: float, whole: float) -> str:
    """Return microseconds and their share of the total."""
    return f"{seconds * 1e6:.3f} ({seconds / whole:.0%})" if seconds else "-"


def gigabytes(rate: float) -> str:
    """Return a rate with its unit."""
    return f"{rate / 1e9:.2g} GB/s" if rate < 10e9 else f"{rate / 1e9:.0f} GB/s"


def missing() -> str | None:
    """Return why it can't be measured here."""
    if shutil.which("perf") is None:
        return f"{SLUG}: perf is not on this machine"
    done = subprocess.run([*RECORD, "-o", "/dev/null", "--", "true"], capture_output=True, text=True, check=False)
    return f"{SLUG}: perf may not look here (kernel.perf_event_paranoid)" if done.returncode else None


def answer(effort: Effort, console_print: Callable[[str], None]) -> tuple[Answer, list[str]]:
    """Run every way of sending in every case; also returns the problems."""
    troubles: list[str] = []
    profiles: dict[Case, list[Profile]] = {}
    for case in RECORD_CASES:
        profiles[case] = []
        for client in CLIENTS:
            console_print(f"{SLUG}: {case.name}, {client.name}")
            found = profile(client, case, effort)
            if isinstance(found, Profile):
                profiles[case].append(found)
            else:
                troubles.append(f"{client.name}, {case.name}: {found}")
    return Answer(profiles, limits.measure(tuple(sorted({case.value_bytes for case in RECORD_CASES})))), troubles


def profile(client: Client, case: Case, effort: Effort) -> Profile | str:
    """Sample one run; a string describes its problem."""
    with tempfile.TemporaryDirectory() as directory:
        samples = Path(directory) / "perf.data"
        done = run_under((*RECORD, "-o", str(samples), "--"), client, case, effort)
        if not isinstance(done, Outcome):
            return done
        command = ["perf", "script", "-i", str(samples), "-F", "time,ip,sym,dso"]
        text = subprocess.run(command, capture_output=True, text=True, check=True, cwd=directory).stdout
    return shares(client.name, text, done)


def shares(name: str, text: str, done: Outcome) -> Profile:
    """Count the samples of the measured section, group by group."""
    counts: Counter[Group] = Counter()
    for line in text.splitlines():
        found = SAMPLE.match(line)
        if found and done.started <= float(found[1]) <= done.started + done.seconds:
            counts[group_of(found[2], found[3])] += 1
    each = done.cpu_seconds / done.records
    total = counts.total()
    return Profile(name, each, {group: each * count / total for group, count in counts.items()}, total)
