"""``aioproducer doctor``: the diagnosis on a terminal, step by step."""

from __future__ import annotations

import json
from collections.abc import Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from aioproducer import ConfigError
from aioproducer.cli.loop import run_in_loop
from aioproducer.cli.outcome import DONE, SOME_FAILED, CommandError, one_line
from aioproducer.config.producer_config import ProducerConfig, underscored
from aioproducer.doctor import Finding, Report, Status, diagnose

_STYLES = {Status.OK: "green", Status.NOTE: "dim", Status.WARNING: "yellow", Status.FAILED: "bold red"}
_STATUS_WIDTH, _STEP_WIDTH = 9, 13


def examine(configs: Mapping[str, str], *, topic: str | None, write: bool, timeout_s: float, as_json: bool) -> int:
    """Diagnose, show it, and return the exit code: 0 if a producer can work, with or without warnings; else 1.

    Raises:
        CommandError: the configs are invalid.
    """
    if write and topic is None:
        raise CommandError("--write needs --topic: the topic to write to")
    console = Console(highlight=False, soft_wrap=False, quiet=as_json)
    if not console.is_terminal:
        console = Console(highlight=False, soft_wrap=True, quiet=as_json)
    view = _View(console)
    try:
        names = underscored(configs)
        ProducerConfig.parse(names)  # diagnose has arguments of its own, such as topic, which are no configs
        with console.status("checking ..."):
            report = run_in_loop(diagnose(topic=topic, write=write, timeout_s=timeout_s, on_finding=view.show, **names))
    except ConfigError as error:
        raise CommandError(one_line(error)) from error
    if as_json:
        print(json.dumps(report.as_dict(), indent=2))
    else:
        console.print(_summary(report))
    return SOME_FAILED if report.status is Status.FAILED else DONE


class _View:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._where: str | None = None

    def show(self, finding: Finding) -> None:
        """Print one finding, below its subject."""
        if finding.where != self._where:
            self._where = finding.where
            self._console.print(Text(finding.where or "configs", style="bold"))
        self._line(Text(finding.status, _STYLES[finding.status]), Text(finding.step, "cyan"), finding.message)
        if finding.advice:
            self._line(Text(), Text("what to do", "bold"), finding.advice)

    def _line(self, status: Text, step: Text, message: str) -> None:
        """Wrapped with an indent on a terminal, one line elsewhere."""
        if not self._console.is_terminal:
            self._console.print(f"  {status.plain:<{_STATUS_WIDTH}}{step.plain:<{_STEP_WIDTH}}{message}", markup=False)
            return
        grid = Table.grid(padding=(0, 0))
        for width in (2, _STATUS_WIDTH, _STEP_WIDTH):
            grid.add_column(width=width)
        grid.add_column(overflow="fold")
        grid.add_row("", status, step, Text(message))
        self._console.print(grid)


def _summary(report: Report) -> Text:
    failed = sum(each.status is Status.FAILED for each in report.findings)
    warned = sum(each.status is Status.WARNING for each in report.findings)
    warnings = f"{warned} warning{'' if warned == 1 else 's'}"
    if failed:
        also = f", {warnings}" if warned else ""
        return Text(f"{failed} problem{'' if failed == 1 else 's'}{also}", _STYLES[Status.FAILED])
    if warned:
        return Text(f"a producer can work here; {warnings}", _STYLES[Status.WARNING])
    return Text("a producer can work here", _STYLES[Status.OK])
