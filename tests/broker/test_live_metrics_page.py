"""The live metrics page in a real browser: it shows what Kafka has, an outage, and a broken event stream."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

import pytest

from aioproducer.errors import TopicAlreadyExistsError
from aioproducer.testing import KafkaCluster
from tests.broker.browser import MISSING, Application, Page, application, chromium, until

pytestmark = [pytest.mark.broker, pytest.mark.browser, pytest.mark.skipif(bool(MISSING), reason=MISSING)]


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with chromium() as page:
        yield page


@pytest.fixture
def cluster(fragile_kafka: KafkaCluster) -> KafkaCluster:
    for topic in ("events", "orders"):
        try:
            fragile_kafka.create_topic(topic)
        except TopicAlreadyExistsError:
            continue
    return fragile_kafka


@pytest.fixture
def app(cluster: KafkaCluster, page: Page) -> Iterator[Application]:
    """The application, with its page open and its metrics streaming."""
    with application(cluster) as app:
        page.open(app.address)
        page.shows("#stream", "live")
        page.shows("#health", "ready")
        yield app


def stored(cluster: KafkaCluster, topic: str) -> int:
    return sum(cluster.end_offsets(topic).values())


def test_it_shows_what_is_acknowledged(cluster: KafkaCluster, app: Application, page: Page) -> None:
    events, orders = stored(cluster, "events"), stored(cluster, "orders")
    page.shows("#acked .note", "0 in all")
    page.press("#publish-events")
    page.shows("#answer", "1,000 events are in the buffer or further")
    page.shows("#acked .note", "1,000 in all")
    page.shows("#sent .note", "1,000 in all")
    assert stored(cluster, "events") == events + 1_000
    page.press("#publish-order")
    page.shows("#answer", f"acknowledged: partition 0, offset {orders}")
    page.shows("#acked .note", "1,001 in all")
    page.shows("#failed .value", "0")
    page.shows("#brokers td", "1")
    assert page.text("#latency .value").endswith(" ms")
    assert re.fullmatch(r"[\d.]+ (B|KiB)", page.text("#batch .value"))
    assert page.console() == []
    assert page.loaded()
    assert all(address.startswith(app.address) for address in page.loaded())
    try:
        page.emulate(prefers_color_scheme="light")
        light = page.style("body", "background-color")
        page.emulate(prefers_color_scheme="dark")
        dark = page.style("body", "background-color")
    finally:
        page.emulate()
    assert (light, dark) == ("rgba(244, 245, 247, 1)", "rgba(20, 23, 28, 1)")


def test_it_shows_an_outage_and_its_end(cluster: KafkaCluster, app: Application, page: Page) -> None:
    """Records published during the outage stay in the buffer, and are acknowledged afterwards."""
    events = stored(cluster, "events")
    cluster.kill(1)
    page.press("#publish-events")
    page.shows("#health", "not ready (running)")
    assert "the producer is running:" in page.text("#reason")
    assert not app.is_ready()
    page.shows("#stream", "live")
    page.shows("#acked .note", "0 in all")
    until(lambda: page.text("#buffer .value") != "0 B", "the records are in the buffer")
    cluster.start_broker(1)
    page.shows("#acked .note", "1,000 in all")
    page.shows("#health", "ready")
    page.shows("#reason", "")
    page.shows("#buffer .value", "0 B")
    page.shows("#failed .value", "0")
    assert stored(cluster, "events") == events + 1_000
    assert page.console() == []


def test_it_connects_again(cluster: KafkaCluster, app: Application, page: Page) -> None:
    """Open streams don't keep the application from shutting down, and what it had accepted is acknowledged first."""
    events = stored(cluster, "events")
    page.press("#publish-events")
    page.shows("#answer", "1,000 events are in the buffer or further")
    assert app.terminate() in (0, -signal.SIGTERM)
    assert stored(cluster, "events") == events + 1_000
    page.shows("#stream", "interrupted, connecting again")
    app.start()
    page.shows("#stream", "live")
    page.shows("#acked .note", "0 in all")
    page.press("#publish-events")
    page.shows("#acked .note", "1,000 in all")
