"""Processors: how many this process may keep busy.

In a container these are fewer than the machine has: a control group limits the time of all threads together. Once they
have used up their share of the current tenth of a second, it stops them all, the event loop included.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

CONTROL_GROUPS = Path("/sys/fs/cgroup")
OWN_GROUP = Path("/proc/self/cgroup")


def processor_count() -> int:
    """Processors that the process may run on, or fewer if its control groups allow fewer, rounded up; at least 1."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min([count, *_quotas()])))


def _quotas() -> list[float]:
    """The limits of this process's control group and its parents; empty without limits or without such groups."""
    quotas = []
    try:
        groups = [line.split(":", 2) for line in os.fsdecode(OWN_GROUP.read_bytes()).split("\n")]
    except OSError:
        return []
    for number, controllers, path in (group for group in groups if len(group) == 3):
        root = CONTROL_GROUPS if number == "0" else CONTROL_GROUPS / "cpu"
        if number != "0" and "cpu" not in controllers.split(","):
            continue
        group = root / path.strip("/")
        for one in (group, *group.parents):
            if one.is_relative_to(root) and (quota := _quota(one)) is not None:
                quotas.append(quota)
    return quotas


def _quota(group: Path) -> float | None:
    """Processors, as time per period: version 2 has both in one file, version 1 in two."""
    try:
        if (group / "cpu.max").exists():
            quota, period = (group / "cpu.max").read_text().split()
        else:
            quota = (group / "cpu.cfs_quota_us").read_text()
            period = (group / "cpu.cfs_period_us").read_text()
        return int(quota) / int(period) if int(quota) > 0 else None
    except (OSError, ValueError, ZeroDivisionError):  # "max" is not a number: no limit
        return None
