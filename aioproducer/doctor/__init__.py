"""The doctor: what keeps a producer from reaching its cluster, and what to do about it.

    from aioproducer.doctor import diagnose

    report = await diagnose(bootstrap_servers="kafka.example:9092", topic="orders")
    for finding in report.problems:
        print(finding.where, finding.message, finding.advice)

``aioproducer doctor`` shows the same on a terminal.
"""

from __future__ import annotations

from aioproducer.doctor.diagnosis import diagnose
from aioproducer.doctor.findings import Finding, Report, Status, Step

__all__ = ["Finding", "Report", "Status", "Step", "diagnose"]
