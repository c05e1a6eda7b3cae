"""Subject names: the names under which a registry keeps the schemas of a topic."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from aioproducer.config.values import takes
from aioproducer.errors import ConfigError

SubjectName: TypeAlias = Callable[[str, bool, str | None], str]
"""``f(topic, is_key, record_name) -> subject``."""


def topic_name(topic: str, is_key: bool, record_name: str | None) -> str:
    """``orders-key`` or ``orders-value``, as TopicNameStrategy: one schema per topic."""
    return f"{topic}-key" if is_key else f"{topic}-value"


def record_name(topic: str, is_key: bool, record_name: str | None) -> str:
    """The full name of the record, as RecordNameStrategy: one schema per type, in all topics."""
    assert record_name is not None
    return record_name


def topic_record_name(topic: str, is_key: bool, record_name: str | None) -> str:
    """Topic, ``-`` and the full name of the record, as TopicRecordNameStrategy: several types in one topic."""
    return f"{topic}-{record_name}"


def context(subject: str) -> str | None:
    """The context that a subject's name begins with, such as ``:.staging:``; None for the default one.

    Each context has its own schema ids.
    Source: QualifiedSubject of Confluent's registry.
    """
    found = re.match(r":\.[^:]+:", subject)
    return None if found is None else found[0]


def referenced(subject: str, reference: str) -> str:
    """The subject that a schema of this subject refers to: a name without a context is one of the same context.

    Source: QualifiedSubject of Confluent's registry.
    """
    own = context(subject)
    return reference if own is None or context(reference) is not None else own + reference


STRATEGIES: dict[str, SubjectName] = {"topic": topic_name, "record": record_name, "topic_record": topic_record_name}


def subject_name(strategy: str | SubjectName, record: str | None) -> SubjectName:
    """The function for a strategy.

    Raises:
        ConfigError: not a strategy, or it needs the name of a record and there is none.
    """
    if not isinstance(strategy, str):
        if not takes(strategy, 3):
            given = "takes other arguments" if callable(strategy) else f"is a {type(strategy).__name__}"
            raise ConfigError(
                f"subject_name_strategy {given}; {', '.join(STRATEGIES)} or a function of "
                "(topic, is_key, record_name) is needed"
            )
        return strategy
    if strategy not in STRATEGIES:
        raise ConfigError(
            f"subject_name_strategy={strategy!r} is not known; allowed: {', '.join(STRATEGIES)}, or a function of "
            "(topic, is_key, record_name)"
        )
    if strategy != "topic" and record is None:
        raise ConfigError(
            f"subject_name_strategy={strategy!r} needs the name of the record, and the schema that was given has none"
        )
    return STRATEGIES[strategy]
