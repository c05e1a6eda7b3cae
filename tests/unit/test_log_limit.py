"""How often the log tells of a trouble."""

from __future__ import annotations

from aioproducer.log_limit import LogLimit


def test_a_key_is_allowed_once_in_the_time() -> None:
    """A refused line does not prolong the wait for the next."""
    limit = LogLimit(1000)
    assert [now_ms for now_ms in range(0, 3000, 100) if limit.allows(now_ms)] == [0, 1000, 2000]


def test_keys_do_not_share_their_time() -> None:
    """Each key has its own minute."""
    limit = LogLimit(1000)
    assert limit.allows(0, "first")
    assert limit.allows(500, "second")
    assert not limit.allows(999, "first")
    assert limit.allows(1000, "first")
    assert not limit.allows(1000, "second")
    assert limit.allows(1500, "second")
    assert not limit.allows(1999, "first")


def test_of_many_keys_some_are_allowed() -> None:
    """When the first has had its time, there is room for another."""
    limit = LogLimit(1000, most=2)
    told = []
    for number in range(4):
        if limit.allows(number, number):
            told.append((number, limit.full))
    assert told == [(0, False), (1, True)]
    assert limit.allows(1000, 3)
    assert not limit.allows(1000, 0)
    assert limit.allows(1001, 0)
