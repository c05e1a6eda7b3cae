"""The arguments of send_offsets_to_transaction, checked field by field.

Arguments that pass can be encoded in every version of TxnOffsetCommit. Brokers enforce their own rules, such as
``offset.metadata.max.bytes``.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from aioproducer.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1
MAX_STRING_BYTES = 32_767
"""The limit in versions that store a string's length in 16 bits."""


def checked_offsets(
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The offsets in one form; numbers may be of any integer type, such as numpy's.

    Raises:
        TypeError, ValueError: one can't be sent; names the field and what it has to be.
    """
    if not isinstance(offsets, Mapping):
        raise TypeError(f"offsets is {_kind(offsets)}; a mapping of aioproducer.TopicPartition to an offset is needed")
    checked = {}
    for place, position in offsets.items():
        if not isinstance(place, tuple) or len(place) != 2:
            told = f"a tuple of {len(place)}" if isinstance(place, tuple) else _kind(place)
            raise TypeError(f"a key of offsets is {told}; aioproducer.TopicPartition, or (topic, partition), is needed")
        topic, partition = place
        _check_text("the topic of offsets", topic, may_be_empty=False)
        where = TopicPartition(topic, _number(f"the partition of topic {topic!r}", partition, 0, MAX_INT32))
        checked[where] = _checked_position(where, position)
    return checked


def _checked_position(where: TopicPartition, position: OffsetAndMetadata | int) -> OffsetAndMetadata:
    if not isinstance(position, OffsetAndMetadata):
        position = OffsetAndMetadata(position)
    needed = "an int or aioproducer.OffsetAndMetadata"
    offset = _number(f"the offset of {where}", position.offset, 0, MAX_INT64, needed=needed)
    _check_text(f"the metadata of {where}", position.metadata)
    epoch = position.leader_epoch
    if epoch is not None:
        epoch = _number(f"the leader_epoch of {where}", epoch, -1, MAX_INT32, needed="an int or None")
    return OffsetAndMetadata(offset, position.metadata, epoch)


def checked_group(group: ConsumerGroupMetadata) -> ConsumerGroupMetadata:
    """The membership, with its generation as an int.

    Raises:
        TypeError, ValueError: it can't be sent; names the field and what it has to be.
    """
    if not isinstance(group, ConsumerGroupMetadata):
        raise TypeError(f"group_metadata is {_kind(group)}; aioproducer.ConsumerGroupMetadata is needed")
    _check_text("group_id", group.group_id, may_be_empty=False)
    generation_id = _number("generation_id", group.generation_id, -1, MAX_INT32)
    _check_text("member_id", group.member_id)
    if group.group_instance_id is not None:
        _check_text("group_instance_id", group.group_instance_id, needed="str or None")
    return replace(group, generation_id=generation_id)


def _number(name: str, value: Any, least: int, most: int, *, needed: str = "an int") -> int:
    if isinstance(value, bool):
        raise TypeError(f"{name} is a bool; {needed} is needed")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {_kind(value)}; {needed} is needed") from None
    if not least <= number <= most:
        raise ValueError(f"{name} is {number}; it has to be {least} to {most}")
    return number


def _check_text(name: str, value: Any, *, may_be_empty: bool = True, needed: str = "str") -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name} is {_kind(value)}; {needed} is needed")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} can't be encoded as UTF-8 ({error.reason})") from None
    if size > MAX_STRING_BYTES:
        raise ValueError(f"{name} has {size:,} bytes; {MAX_STRING_BYTES:,} are the most")
    if not size and not may_be_empty:
        raise ValueError(f"{name} is empty")


def _kind(value: object) -> str:
    """Its class, with the module: other clients have classes of the same names."""
    cls = type(value)
    return f"a {cls.__name__}" if cls.__module__ == "builtins" else f"a {cls.__module__}.{cls.__name__}"
