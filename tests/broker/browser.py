"""The page of `examples/live_metrics`, served by a separate process, in a headless Chromium."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.common.by import By

from aioproducer.testing import KafkaCluster
from aioproducer.testing.ports import free_ports
from tests.broker.fixtures import PATIENCE_S

ROOT = Path(__file__).parents[2]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
MISSING = "" if CHROMIUM and DRIVER else "no Chromium with its driver; make chromium installs Debian's where it may"
"""Why no browser can be started; empty if one can."""

OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # the sandbox does not work for root, and the page is our own
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
)
SIZE = (1200, 800)


def until(condition: Callable[[], object], what: str) -> None:
    """Poll another process until a condition holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not after {PATIENCE_S} s: {what}"
        time.sleep(0.05)


class Application:
    """The example, served by uvicorn; it can be stopped and restarted at the same address."""

    def __init__(self, cluster: KafkaCluster) -> None:
        (self._port,) = free_ports(1, random.Random())
        self._environment = {**os.environ, "BOOTSTRAP_SERVERS": cluster.bootstrap_servers}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """The URL of the page."""
        return f"http://127.0.0.1:{self._port}/"

    def start(self) -> None:
        """Start it and wait until it is ready."""
        command = ["-m", "uvicorn", "examples.live_metrics.app:app", f"--port={self._port}", "--log-level=warning"]
        self._process = subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, env=self._environment, stderr=subprocess.DEVNULL
        )
        until(self.is_ready, "the application is ready")

    def terminate(self) -> int:
        """Stop it as an orchestrator does, wait for its end and return its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(PATIENCE_S)

    def kill(self) -> None:
        """Kill it if it still runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def is_ready(self) -> bool:
        """Whether its readiness probe succeeds."""
        try:
            with urllib.request.urlopen(f"{self.address}readyz", timeout=PATIENCE_S) as answer:
                return bool(answer.status == 200)
        except (urllib.error.HTTPError, OSError):
            return False


@contextlib.contextmanager
def application(cluster: KafkaCluster) -> Iterator[Application]:
    """The running example, for the duration of a block."""
    served = Application(cluster)
    try:
        served.start()
        yield served
    finally:
        served.kill()


class Page:
    """The page as a user sees it."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self._driver = driver

    def open(self, address: str) -> None:
        """Go to the page, and forget the console's output so far."""
        self._driver.get("about:blank")
        self.console()
        self._driver.get(address)

    def text(self, selector: str) -> str:
        """The text of the first element that a CSS selector finds; empty if there is none, or it has just gone."""
        found: str = self._driver.execute_script(
            "return document.querySelector(arguments[0])?.innerText ?? ''", selector
        )
        return found

    def shows(self, selector: str, text: str) -> None:
        """Wait until an element's text is this."""
        until(lambda: self.text(selector) == text, f"{selector} is {text!r}, not {self.text(selector)!r}")

    def press(self, selector: str) -> None:
        """Click on a button."""
        self._driver.find_element(By.CSS_SELECTOR, selector).click()

    def console(self) -> list[str]:
        """The console's output since the last call."""
        return [f"{entry['level']}: {entry['message']}" for entry in self._driver.get_log("browser")]

    def loaded(self) -> list[str]:
        """The URLs of everything that the page has loaded."""
        found: list[str] = self._driver.execute_script(
            "return performance.getEntriesByType('resource').map((entry) => entry.name)"
        )
        return found

    def emulate(self, **media: str) -> None:
        """Emulate other system settings, such as ``prefers_color_scheme="dark"``."""
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in media.items()]
        self._driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def style(self, selector: str, name: str) -> str:
        """One computed property of an element."""
        return self._driver.find_element(By.CSS_SELECTOR, selector).value_of_css_property(name)

    def picture(self) -> bytes:
        """A screenshot of the window, as PNG."""
        return self._driver.get_screenshot_as_png()


@contextlib.contextmanager
def chromium() -> Iterator[Page]:
    """A browser for the duration of a block."""
    options = webdriver.ChromeOptions()
    assert CHROMIUM is not None
    options.binary_location = CHROMIUM
    for option in (*OPTIONS, f"--window-size={SIZE[0]},{SIZE[1]}"):
        options.add_argument(option)
    logged: dict[str, Any] = {"browser": "ALL"}
    options.set_capability("goog:loggingPrefs", logged)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        yield Page(driver)
    finally:
        driver.quit()
