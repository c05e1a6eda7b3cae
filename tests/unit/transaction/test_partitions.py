"""The partitions of a transaction: when a batch may be sent, and whether there is anything to end."""

from __future__ import annotations

import itertools

import pytest

from aioproducer.records import TopicPartition
from aioproducer.transaction.partitions import TransactionPartitions

P0, P1, P2, P3 = (TopicPartition("orders", number) for number in range(4))


def open_one(version: int) -> tuple[TransactionPartitions, list[int]]:
    partitions = TransactionPartitions()
    calls: list[int] = []
    partitions.on_wanted = lambda: calls.append(len(partitions.wanted))
    partitions.begin(version)
    return partitions, calls


def test_before_v2_a_partition_is_added_first() -> None:
    """A batch requests its partition once, and may be sent when the coordinator has added it."""
    partitions, calls = open_one(1)
    assert not partitions.may_send(P0)
    assert not partitions.may_send(P0)
    assert not partitions.may_send(P1)
    assert calls == [1, 2]
    assert partitions.take_wanted() == (P0, P1)
    assert not partitions.started
    partitions.added([P0])
    assert partitions.started
    assert partitions.may_send(P0)
    assert not partitions.may_send(P1)
    assert partitions.take_wanted() == (P1,)


def test_with_v2_the_batch_adds_it() -> None:
    """No partition is requested; the transaction begins with the first batch."""
    partitions, calls = open_one(2)
    assert partitions.may_send(P0)
    assert not partitions.started
    partitions.sent(P0)
    assert partitions.started
    assert not calls


def test_with_v2_one_request_at_a_time_brings_new_partitions() -> None:
    """The coordinator can't add those of another one meanwhile; partitions that it has added are free."""
    partitions, _ = open_one(2)
    for place in P0, P1:  # of one request
        assert partitions.may_send(place)
    partitions.sent(P0)
    partitions.sent(P1)
    assert not partitions.may_send(P2)
    partitions.request_ended([P0])
    assert not partitions.may_send(P2)
    assert partitions.may_send(P0)
    partitions.request_ended([P1])
    assert partitions.may_send(P2)
    partitions.sent(P2)
    partitions.sent(P0)
    assert partitions.may_send(P1)
    assert not partitions.may_send(P3)
    partitions.end()
    partitions.begin(2)
    assert partitions.may_send(P3)


def test_with_v2_offsets_are_such_a_request() -> None:
    partitions, _ = open_one(2)
    partitions.sent(P0)
    partitions.request_ended([P0])
    partitions.offsets_sent()
    assert partitions.may_send(P0)
    assert not partitions.may_send(P1)
    partitions.offsets_ended()
    assert partitions.may_send(P1)


def test_with_v2_such_a_request_holds_back_others_for_its_head_start_only() -> None:
    partitions, _ = open_one(2)
    begun: list[str] = []
    over = False
    partitions.give_head_start = lambda: begun.append("begun")
    partitions.head_start_is_over = lambda: over
    partitions.sent(P0)
    assert not partitions.may_send(P1)
    over = True
    assert partitions.may_send(P1)
    partitions.sent(P1)
    partitions.offsets_sent()
    assert len(begun) == 3
    partitions.sent(P0)
    partitions.request_ended([P0])
    partitions.sent(P0)
    assert len(begun) == 4


def test_with_v2_the_first_batch_may_have_to_wait_for_the_previous_transaction() -> None:
    partitions, _ = open_one(2)
    partitions.holds_back = lambda: True
    assert not partitions.may_send(P0)
    partitions.holds_back = lambda: False
    assert partitions.may_send(P0)


def test_before_v2_a_request_changes_nothing() -> None:
    partitions, _ = open_one(1)
    partitions.request_ended([P0])
    assert not partitions.may_send(P0)


@pytest.mark.parametrize("version", [1, 2])
def test_nothing_goes_out_outside(version: int) -> None:
    """Before and after a transaction no batch may be sent, and the next one begins without partitions."""
    partitions = TransactionPartitions()
    assert not partitions.may_send(P0)
    partitions.begin(version)
    partitions.added([P0])
    partitions.end()
    assert not partitions.may_send(P0)
    assert not partitions.started
    partitions.begin(version)
    assert partitions.may_send(P0) == (version == 2)


def test_a_lost_answer_leaves_doubt() -> None:
    """An unanswered request to add partitions may have begun the transaction; an answered one has."""
    partitions, _ = open_one(1)
    partitions.may_have_added()
    assert (partitions.started, partitions.doubtful) == (True, True)
    partitions.added([P0])
    assert (partitions.started, partitions.doubtful) == (True, False)
    partitions.may_have_added()
    assert not partitions.doubtful


@pytest.mark.parametrize(
    ("sending", "version", "in_doubt"), list(itertools.product([True, False], [1, 2], [True, False]))
)
def test_what_is_sent_again(sending: bool, version: int, in_doubt: bool) -> None:
    """In a transaction that is being aborted, only batches in doubt are resent, with V2 not even these."""
    partitions, _ = open_one(version)
    partitions.sending = sending
    assert partitions.gives_up(in_doubt) == (not sending and not (version == 1 and in_doubt))
