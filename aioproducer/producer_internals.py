"""What other parts of this package may ask of a Producer although its users may not.

It is here and not on the Producer because it promises nothing to users, and in one place so that a change of the
Producer has one place to look at. ``tests/test_layering.py`` allows no other module to reach into a Producer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from aioproducer.bulk import BulkSend
from aioproducer.producer import Producer
from aioproducer.records import ArrowData, BatchResult


def bulk_of(
    producer: Producer, name: str, topic: str | None, on_admitted: Callable[[], object], *, missing: dict[str, int]
) -> BulkSend:
    """A bulk call that tells when its records are in the buffer, so that the next may follow; see ``BulkSend``.

    Interceptors, serializers and a partitioner don't see the records.

    Raises:
        NotStartedError: called too early.
    """
    return producer._bulk(name, topic, on_admitted, missing=missing)


async def send_columns(
    producer: Producer, topic: str | None, data: ArrowData, columns: Mapping[str, str], *, most_errors: int
) -> BatchResult:
    """``Producer.send_arrow`` without ``raise_on_error``, whose result lists up to ``most_errors`` failed rows.

    Args:
        columns: the arguments of ``send_arrow`` that name columns.
    Raises:
        KafkaError, TypeError: as for ``send_arrow``.
    """
    return await producer._send_columns(topic, data, columns, raise_on_error=False, most_errors=most_errors)


def keep_topics(producer: Producer, topics: Iterable[str]) -> None:
    """Keep the metadata of topics, even while they are idle.

    Raises:
        NotStartedError: called too early.
    """
    producer._running_engine().keep_topics(topics)
