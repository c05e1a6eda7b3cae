"""The order in which the addresses of a name are tried."""

from __future__ import annotations

import pytest

from aioproducer.net.dialer import _rotated


@pytest.mark.parametrize(
    ("after", "order"), [(None, "abc"), ("a", "bca"), ("b", "cab"), ("c", "abc"), ("elsewhere", "abc")]
)
def test_a_name_is_tried_from_the_address_after_the_last(after: str | None, order: str) -> None:
    """As in Java, so that a broker behind several addresses is not always asked at the one that just failed."""
    assert _rotated(["a", "b", "c"], after) == list(order)
