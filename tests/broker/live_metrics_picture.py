"""Draw docs/live-metrics.png: ``python -m tests.broker.live_metrics_picture`` publishes, then takes a screenshot."""

from __future__ import annotations

import random
import time
from pathlib import Path

from aioproducer.testing import KafkaCluster
from tests.broker.browser import application, chromium

PICTURE = Path(__file__).parents[2] / "docs" / "live-metrics.png"
SECONDS = 32
"""A bit more than the page's charts show."""


def main() -> None:
    """Press the buttons at random for a while, then save a screenshot."""
    moments = random.Random(7)
    with KafkaCluster() as cluster, application(cluster) as app, chromium() as page:
        page.open(app.address)
        page.shows("#health", "ready")
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            for _ in range(moments.randint(1, 5)):
                page.press("#publish-events")
            page.press("#publish-order")
            time.sleep(moments.uniform(0.1, 0.8))
        PICTURE.write_bytes(page.picture())
    print(f"written: {PICTURE}")


if __name__ == "__main__":
    main()
