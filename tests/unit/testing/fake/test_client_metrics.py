"""Client metrics in the cluster model: when a broker takes what clients push, and how it refuses the rest."""

from __future__ import annotations

import gzip

import pytest

from aioproducer.errors import error_class
from aioproducer.protocol.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from aioproducer.protocol.push_telemetry import PushTelemetryRequest
from aioproducer.testing.fake.session import Session
from tests.unit.testing.fake.talk import NOW_MS, ask, model

CLIENT = bytes(range(16))
NOBODY = bytes(16)
INTERVAL_MS = 1000
MAX_BYTES = 100
GZIP = 1
ZSTD = 4


class Client:
    """One client of a broker that wants metrics."""

    def __init__(self) -> None:
        self.cluster = model(receives_metrics=True)
        self.session = Session(self.cluster, 1)
        self.want("a.")
        self.subscription_id = -1

    def want(self, *names: str) -> None:
        self.cluster.client_metrics.subscribe(names, INTERVAL_MS, MAX_BYTES, False, (ZSTD, GZIP))

    def subscribe(self, after_ms: int = 0, client: bytes = CLIENT) -> GetTelemetrySubscriptionsResponse:
        request = GetTelemetrySubscriptionsRequest(client_instance_id=client)
        answer = ask(self.session, request, now_ms=NOW_MS + after_ms)
        if not answer.error_code:
            self.subscription_id = answer.subscription_id
        return answer

    def push(
        self, after_ms: int, metrics: bytes = b"m", *, terminating: bool = False, codec: int = 0, client: bytes = CLIENT
    ) -> str:
        request = PushTelemetryRequest(
            client_instance_id=client,
            subscription_id=self.subscription_id,
            terminating=terminating,
            compression_type=codec,
            metrics=metrics,
        )
        return name(ask(self.session, request, now_ms=NOW_MS + after_ms).error_code)

    @property
    def taken(self) -> list[bytes]:
        return [push.metrics for push in self.cluster.client_metrics.pushes]


def name(code: int) -> str:
    return error_class(code).name if code else ""


@pytest.fixture
def client() -> Client:
    return Client()


def test_a_client_is_told_what_to_push(client: Client) -> None:
    answer = client.subscribe()
    assert (answer.client_instance_id, answer.requested_metrics) == (CLIENT, ["a."])
    assert (answer.push_interval_ms, answer.telemetry_max_bytes) == (INTERVAL_MS, MAX_BYTES)
    assert (answer.accepted_compression_types, answer.delta_temporality) == ([ZSTD, GZIP], False)


def test_a_client_without_an_id_gets_one_of_its_own(client: Client) -> None:
    ids = {client.subscribe(client=NOBODY).client_instance_id for _ in range(3)}
    assert len(ids - {NOBODY}) == 3


def test_a_client_may_ask_once_an_interval(client: Client) -> None:
    asked = {after_ms: name(client.subscribe(after_ms).error_code) for after_ms in (0, INTERVAL_MS - 1, INTERVAL_MS)}
    assert asked == {0: "", INTERVAL_MS - 1: "THROTTLING_QUOTA_EXCEEDED", INTERVAL_MS: ""}
    assert client.push(INTERVAL_MS + 500) == ""
    assert name(client.subscribe(2 * INTERVAL_MS).error_code) == "THROTTLING_QUOTA_EXCEEDED"


def test_a_client_may_push_once_an_interval_and_once_more_at_its_end(client: Client) -> None:
    client.subscribe()
    assert client.push(1, b"1") == ""  # right after it asked
    assert client.push(INTERVAL_MS, b"early") == "THROTTLING_QUOTA_EXCEEDED"
    assert client.push(INTERVAL_MS + 1, b"2") == ""
    assert client.push(INTERVAL_MS + 2, b"last", terminating=True) == ""
    assert client.push(3 * INTERVAL_MS, b"late") == "INVALID_REQUEST"
    assert client.taken == [b"1", b"2", b"last"]
    assert [push.terminating for push in client.cluster.client_metrics.pushes] == [False, False, True]


def test_who_asked_in_the_same_millisecond_as_it_pushed_has_had_its_turn(client: Client) -> None:
    client.subscribe()
    assert client.push(0) == ""
    assert client.push(0) == "THROTTLING_QUOTA_EXCEEDED"


def test_other_wishes_begin_anew(client: Client) -> None:
    client.subscribe()
    assert client.push(1) == ""
    client.want("b.")
    assert client.push(2) == "UNKNOWN_SUBSCRIPTION_ID"
    answer = client.subscribe(INTERVAL_MS + 2)
    assert answer.requested_metrics == ["b."]
    assert client.push(INTERVAL_MS + 3) == ""


def test_a_client_learns_at_once_of_other_wishes(client: Client) -> None:
    client.subscribe()
    client.want("b.")
    assert client.subscribe(1).requested_metrics == ["b."]


@pytest.mark.parametrize(
    ("metrics", "codec", "error"),
    [
        (b"m" * MAX_BYTES, 0, ""),
        (b"m" * (MAX_BYTES + 1), 0, "TELEMETRY_TOO_LARGE"),
        (gzip.compress(b"m" * 1000), GZIP, ""),
        (b"no gzip", GZIP, "INVALID_RECORD"),
        (b"", GZIP, ""),
        (b"m", 7, "UNSUPPORTED_COMPRESSION_TYPE"),
    ],
    ids=["as much as allowed", "more", "gzip", "not gzip", "nothing", "another codec"],
)
def test_what_is_pushed_has_to_be_readable(client: Client, metrics: bytes, codec: int, error: str) -> None:
    client.subscribe()
    assert client.push(1, metrics, codec=codec) == error
    plain = gzip.decompress(metrics) if codec == GZIP and not error else metrics
    assert client.taken == ([] if error else [plain])


def test_who_has_no_id_can_not_push(client: Client) -> None:
    client.subscribe()
    assert client.push(1, client=NOBODY) == "INVALID_REQUEST"
    assert client.taken == []
