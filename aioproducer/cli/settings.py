"""A producer's configs from the options of a command."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from aioproducer import ConfigError, Producer
from aioproducer.cli.outcome import CommandError, one_line
from aioproducer.config.producer_config import read_properties

DEFAULT_BOOTSTRAP = "localhost:9092"
SERIALIZERS = ("key.serializer", "value.serializer")
"""In a properties file shared with a Java program, these are for its objects."""
OF_RECORDS = (*SERIALIZERS, "partitioner.class", "interceptor.classes")
"""Configs that concern records alone; a Java program's file names classes of its own there."""
AS_IT_STANDS = ("StringSerializer", "ByteArraySerializer", "BytesSerializer", "ByteBufferSerializer")
"""Kafka's serializers that leave text and bytes unchanged."""


def make_producer(
    properties: Path | None = None,
    configs: Sequence[str] = (),
    *,
    bootstrap: str | None = None,
    compression: str | None = None,
) -> Producer:
    """A producer for rows, not started.

    Later sources take precedence: the file, then ``configs``, then the dedicated options.

    Args:
        properties: a Java ``.properties`` file.
        configs: ``name=value``, names with dots or with ``_``.
    Raises:
        CommandError: an option or a config is invalid.
    """
    try:
        values = configs_of(properties, configs, bootstrap=bootstrap)
        if compression is not None:
            values["compression.type"] = compression
        if "transactional.id" in values:  # each row would be refused
            raise CommandError("transactional.id can't be used here: rows are sent without transactions")
        for name in SERIALIZERS:
            serializer = values.pop(name, AS_IT_STANDS[0])
            if serializer.rpartition(".")[2] not in AS_IT_STANDS:
                raise CommandError(f"{name}={serializer} can't be used here: rows are sent as they are")
        return Producer.from_config(values)
    except ConfigError as error:
        raise CommandError(one_line(error)) from error


def configs_of(
    properties: Path | None = None,
    configs: Sequence[str] = (),
    *,
    bootstrap: str | None = None,
    sends: bool = True,
) -> dict[str, str]:
    """The configs by dotted name; later sources take precedence, as for ``make_producer``.

    Args:
        sends: False for a command that sends no record of the user's: what the file has for records is left out.
    Raises:
        CommandError: the file or an option is invalid.
    """
    try:
        values = {} if properties is None else _dotted(read_properties(properties).items())
    except OSError as error:
        raise CommandError(f"{properties} can't be read: {error.strerror}") from error
    except ConfigError as error:
        raise CommandError(one_line(error)) from error
    if not sends:
        for name in OF_RECORDS:
            values.pop(name, None)
    values.update(_dotted(map(_split, configs)))
    if bootstrap is not None:
        values["bootstrap.servers"] = bootstrap
    values.setdefault("bootstrap.servers", DEFAULT_BOOTSTRAP)
    return values


def _dotted(values: Iterable[tuple[str, str]]) -> dict[str, str]:
    """One form of every name, so that a later value replaces an earlier one."""
    return {name.replace("_", "."): value for name, value in values}


def _split(config: str) -> tuple[str, str]:
    name, sign, value = config.partition("=")
    if not sign or not name.strip():
        # A lone value may be a password: don't show it.
        raise CommandError("--config takes name=value, such as --config linger.ms=50")
    return name.strip(), value
