"""Consumer groups of the cluster model: who may commit offsets in a transaction."""

from __future__ import annotations

import pytest

from aioproducer.errors import BrokerError
from aioproducer.testing.fake.groups import CommittedOffset, Group, offsets_partition

PARTITION = ("orders", 0)


def refusal(group: Group, generation_id: int, member_id: str, group_instance_id: str | None) -> str:
    try:
        group.check(generation_id, member_id, group_instance_id)
    except BrokerError as error:
        return error.name
    return ""


@pytest.mark.parametrize(
    ("generation_id", "member_id", "instance_id", "error"),
    [
        (-1, "", None, ""),
        (-1, "member", None, ""),
        (-1, "", "instance", ""),
        (0, "", None, "ILLEGAL_GENERATION"),
        (5, "member", None, "ILLEGAL_GENERATION"),
    ],
)
def test_a_group_without_members_takes_who_claims_no_membership(
    generation_id: int, member_id: str, instance_id: str | None, error: str
) -> None:
    assert refusal(Group(), generation_id, member_id, instance_id) == error


@pytest.mark.parametrize(
    ("generation_id", "member_id", "instance_id", "error"),
    [
        (-1, "", None, ""),
        (-1, "stranger", None, "UNKNOWN_MEMBER_ID"),
        (-1, "", "instance", "FENCED_INSTANCE_ID"),
        (5, "member", None, ""),
        (5, "static", None, ""),
        (5, "static", "instance", ""),
        (5, "member", "instance", "FENCED_INSTANCE_ID"),
        (5, "static", "another", "UNKNOWN_MEMBER_ID"),
        (5, "stranger", None, "UNKNOWN_MEMBER_ID"),
        (5, "", None, "UNKNOWN_MEMBER_ID"),
        (0, "", None, "UNKNOWN_MEMBER_ID"),
        (4, "member", None, "ILLEGAL_GENERATION"),
        (6, "member", None, "ILLEGAL_GENERATION"),
        (0, "static", "instance", "ILLEGAL_GENERATION"),
    ],
)
def test_a_group_with_members_takes_those_of_its_generation(
    generation_id: int, member_id: str, instance_id: str | None, error: str
) -> None:
    group = Group(generation_id=5, members={"member": None, "static": "instance"})
    assert refusal(group, generation_id, member_id, instance_id) == error


@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_ends_its_own_offsets_alone(committed: bool) -> None:
    group = Group(offsets={PARTITION: CommittedOffset(1)})
    group.pending = {7: {PARTITION: CommittedOffset(2)}, 8: {PARTITION: CommittedOffset(3)}}
    group.end_transaction(7, committed=committed)
    assert group.offsets == {PARTITION: CommittedOffset(2 if committed else 1)}
    assert list(group.pending) == [8]
    group.end_transaction(9, committed=True)  # it has none
    assert group.offsets == {PARTITION: CommittedOffset(2 if committed else 1)}


@pytest.mark.parametrize(
    ("group_id", "partition"),
    [
        ("hello", 99_162_322 % 50),
        ("billing", 109_829_509 % 50),  # its hash is negative
        ("polygenelubricants", 0),  # its hash is the smallest integer, which has no positive counterpart
        ("\U0001d11e", 1_772_394 % 50),  # two of Java's characters
    ],
)
def test_a_group_s_offsets_are_where_java_s_hash_puts_them(group_id: str, partition: int) -> None:
    assert offsets_partition(group_id) == partition
