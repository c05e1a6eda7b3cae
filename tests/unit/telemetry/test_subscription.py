"""How a cluster's telemetry subscription is interpreted."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest

from aioproducer.errors import ProtocolError
from aioproducer.metrics import NAMES
from aioproducer.protocol.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from aioproducer.telemetry.subscription import PREFIX, Subscription, full_name, readable

ID = bytes(range(16))


def subscription(**values: Any) -> Subscription:
    return Subscription.of(
        GetTelemetrySubscriptionsResponse(
            **{
                "client_instance_id": ID,
                "subscription_id": 7,
                "accepted_compression_types": [4, 1],
                "push_interval_ms": 60_000,
                "telemetry_max_bytes": 1 << 20,
                "delta_temporality": True,
                "requested_metrics": ["*"],
                **values,
            }
        )
    )


def test_names_are_those_of_kip_714() -> None:
    assert full_name("producer-metrics", "record-queue-time-avg") == ("org.apache.kafka.producer.record.queue.time.avg")
    assert full_name("producer-node-metrics", "request-latency-max") == (
        "org.apache.kafka.producer.node.request.latency.max"
    )
    every = [full_name(group, name) for group, names in NAMES.items() for name in names]
    assert len(set(every)) == len(every)
    assert all(re.fullmatch(r"org\.apache\.kafka\.producer(\.[a-z]+)+", name) for name in every)


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        ([], 0),
        (["*"], sum(map(len, NAMES.values()))),
        (["org.apache.kafka.consumer"], 0),
        ([f"{PREFIX}.producer.node.", f"{PREFIX}.producer.topic.byte."], len(NAMES["producer-node-metrics"]) + 2),
        (["", "nonsense"], sum(map(len, NAMES.values()))),
        (["*", "nonsense"], 0),  # it means everything only if it is alone
    ],
)  # fmt: skip
def test_what_is_wanted(wanted: list[str], count: int) -> None:
    found = subscription(requested_metrics=wanted)
    assert sum(map(len, found.names.values())) == count
    assert found.wants_any == (count > 0)


@pytest.mark.parametrize(
    ("wanted", "wants"),
    [([], False), (["*"], True), (["com.example."], True), (["com.example.waiting"], True), (["com.other"], False),
     (["*", "nonsense"], False)],
)  # fmt: skip
def test_which_metrics_of_the_program_are_wanted(wanted: list[str], wants: bool) -> None:
    assert subscription(requested_metrics=wanted).wants("com.example.waiting") == wants


def test_an_interval_that_is_none() -> None:
    assert subscription(push_interval_ms=0).interval_ms == subscription(push_interval_ms=-5).interval_ms == 300_000
    assert subscription(push_interval_ms=1).interval_ms == 1


def test_an_answer_without_an_id() -> None:
    with pytest.raises(ProtocolError):
        subscription(client_instance_id=bytes(16))


def test_an_id_as_kafka_writes_it() -> None:
    assert readable(ID) == "AAECAwQFBgcICQoLDA0ODw"


def test_the_first_codec_that_can_be_used_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first codec that is known, installed, and was not refused."""
    found = subscription(accepted_compression_types=[9, 2, 4, 1])
    assert found.codec(()).name == "snappy"
    assert found.codec({2}).name == "zstd"
    assert found.codec({2, 4, 1}).name == "none"
    monkeypatch.setitem(sys.modules, "cramjam", None)
    monkeypatch.setattr("aioproducer.compression._cramjam", _cramjam_anew)
    assert found.codec(()).name == "zstd"


def _cramjam_anew() -> Any:
    from aioproducer.errors import ConfigError

    raise ConfigError("not installed")
