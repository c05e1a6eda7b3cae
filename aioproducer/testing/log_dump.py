"""The output of Kafka's own DumpLogSegments about a partition's log. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_NUMBERS = [
    "baseOffset",
    "lastOffset",
    "count",
    "baseSequence",
    "lastSequence",
    "producerId",
    "producerEpoch",
    "partitionLeaderEpoch",
    "position",
    "size",
    "magic",
    "crc",
]


@dataclass(frozen=True, slots=True)
class DumpedBatch:
    """One record batch in the log."""

    base_offset: int
    last_offset: int
    count: int
    base_sequence: int
    last_sequence: int
    producer_id: int
    producer_epoch: int
    is_transactional: bool
    is_control: bool
    timestamp_type: str
    timestamp_ms: int
    size: int
    magic: int
    codec: str
    crc: int
    is_valid: bool
    line: str = field(repr=False)
    """The tool's own line, with more details."""


@dataclass(frozen=True, slots=True)
class LogDump:
    """All segments of a partition's log, batch by batch.

    Args:
        text: everything the tool printed.
    """

    text: str = field(repr=False)
    batches: tuple[DumpedBatch, ...]

    @property
    def record_count(self) -> int:
        """Records in all batches except the control batches of transactions."""
        return sum(one.count for one in self.batches if not one.is_control)

    @property
    def problems(self) -> list[str]:
        """The tool's lines about invalid batches and records, and any other complaint."""
        complaints = [
            line for line in self.text.splitlines() if re.search(r"isvalid: false|^Found |Exception|corrupt", line)
        ]
        return [*complaints, *(one.line for one in self.batches if not one.is_valid and one.line not in complaints)]


def parse_dump(text: str) -> LogDump:
    """Read the output of DumpLogSegments of any version from 2.8 on."""
    lines = text.splitlines()
    return LogDump(text, tuple(_batch(line) for line in lines if line.startswith("baseOffset:")))


def _batch(line: str) -> DumpedBatch:
    values = dict(re.findall(r"(\w+): (\S+)", line))
    number = {name: int(values.get(name, -1)) for name in _NUMBERS}
    kind = "LogAppendTime" if "LogAppendTime" in values else "CreateTime"
    return DumpedBatch(
        base_offset=number["baseOffset"],
        last_offset=number["lastOffset"],
        count=number["count"],
        base_sequence=number["baseSequence"],
        last_sequence=number["lastSequence"],
        producer_id=number["producerId"],
        producer_epoch=number["producerEpoch"],
        is_transactional=values.get("isTransactional") == "true",
        is_control=values.get("isControl") == "true",
        timestamp_type=kind,
        timestamp_ms=int(values.get(kind, -1)),
        size=number["size"],
        magic=number["magic"],
        codec=values.get("compresscodec", "").lower(),
        crc=number["crc"],
        is_valid=values.get("isvalid") == "true",
        line=line,
    )
