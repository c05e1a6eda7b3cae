"""ClientLogger: names the producer in each of its log lines."""

from __future__ import annotations

import logging
from typing import Any

from aioproducer.message_text import excerpt


class ClientLogger(logging.LoggerAdapter[logging.Logger]):
    """A module's logger, for one producer of perhaps several in the process.

    Lines begin with the ``client_id`` in brackets; log records have it as ``kafka_client_id`` too, for formatters. The
    format string is the same for all producers, so that tools can group lines by it.
    """

    def __init__(self, logger: logging.Logger, client_id: str) -> None:
        super().__init__(logger)
        self._client_id = excerpt(client_id, 100)

    def log(self, level: int, msg: object, *args: object, **options: Any) -> None:
        """Write a line at this level; all other methods lead here."""
        if self.isEnabledFor(level):
            options["stacklevel"] = options.get("stacklevel", 1) + 1
            # A name that no record factory of a program has: logging raises an error if it does.
            options["extra"] = {**(options.get("extra") or {}), "kafka_client_id": self._client_id}
            self.logger.log(level, f"[%s] {msg}", self._client_id, *map(_in_one_line, args), **options)


def _in_one_line(argument: object) -> object:
    """An argument for tools that read logs line by line: the text of a BootstrapError has a line for each address."""
    if not isinstance(argument, str) or "\n" not in argument:
        return argument
    first, *others = [" ".join(line.split()) for line in argument.splitlines() if line.strip()] or [""]
    return f"{first} {'; '.join(others)}".rstrip()
