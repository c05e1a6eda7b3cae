"""What the network layer knows about each API."""

from __future__ import annotations

import pytest

from aioproducer.net import apis


def test_apis_have_names() -> None:
    assert apis.name(0) == "Produce"
    assert apis.name(999) == "API 999"


@pytest.mark.parametrize(
    ("api_key", "version", "throttled"),
    [(0, 5, False), (0, 6, True), (3, 5, False), (3, 13, True), (18, 1, False), (18, 2, True), (22, 0, False),
     (26, 1, True), (17, 1, False), (71, 0, True), (999, 9, False)],
)  # fmt: skip
def test_throttling_is_the_clients_part_from_some_version_on(api_key: int, version: int, throttled: bool) -> None:
    assert apis.throttled_by_client(api_key, version) is throttled
