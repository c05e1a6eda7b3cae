"""When Kerberos is asked for what, with a stand-in for the package gssapi; tests/broker has a real KDC."""

from __future__ import annotations

import asyncio
import importlib
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import AuthenticationError, ConnectionLostError, KafkaError
from aioproducer.net.workers import in_worker

KDC_UNREACHABLE = 0x96C73A9C - 2**32
"""As gssapi has it: a signed number."""
MODULE = "aioproducer.net.sasl.gssapi"


class GSSError(Exception):
    min_code = 0


class Kerberos:
    """A stand-in for gssapi.SecurityContext: one round trip, then the broker offers its layers."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.challenges: list[bytes | None] = []
        self.threads: list[int] = []
        self.error: GSSError | None = None

    def context(self, *, name: str, usage: str, creds: object) -> Any:
        self.names.append(name)
        return SimpleNamespace(complete=False, step=self.step, unwrap=self.unwrap, wrap=self.wrap)

    def step(self, challenge: bytes | None) -> bytes | None:
        self.challenges.append(challenge)
        self.threads.append(threading.get_ident())
        if self.error is not None:
            raise self.error
        return b"ticket" if challenge is None else None

    def unwrap(self, message: bytes) -> Any:
        return SimpleNamespace(message=message)

    def wrap(self, message: bytes, _: bool) -> Any:
        return SimpleNamespace(message=message)


@pytest.fixture
def kerberos(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kerberos]:
    fake = Kerberos()
    package, raw = ModuleType("gssapi"), ModuleType("gssapi.raw")
    vars(package).update(
        __spec__=ModuleSpec("gssapi", None),
        Name=lambda name, _: name,
        NameType=SimpleNamespace(hostbased_service=1, kerberos_principal=2),
        SecurityContext=fake.context,
    )
    vars(raw).update(GSSError=GSSError)
    monkeypatch.setitem(sys.modules, "gssapi", package)
    monkeypatch.setitem(sys.modules, "gssapi.raw", raw)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    yield fake
    sys.modules.pop(MODULE, None)  # the next test has another fake


def mechanism() -> Any:
    config = ProducerConfig.parse(
        {
            "bootstrap_servers": "a:1",
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "GSSAPI",
            "sasl_kerberos_service_name": "kafka",
        }
    )
    return importlib.import_module(MODULE).Gssapi(config, asyncio.get_running_loop())


async def test_the_ticket_is_there_before_the_login_begins(kerberos: Kerberos) -> None:
    """A connection that logs in again is in use until then, and a KDC may take its time."""
    exchange = await mechanism().begin("broker-1")
    assert kerberos.names == ["kafka@broker-1"]
    assert kerberos.challenges == [None]
    assert await exchange.respond(None) == b"ticket"
    assert kerberos.challenges == [None]
    assert await exchange.respond(b"answer") == b""
    assert kerberos.challenges == [None, b"answer"]
    assert threading.get_ident() not in kerberos.threads


@pytest.mark.parametrize(
    ("code", "kind"), [(KDC_UNREACHABLE, ConnectionLostError), (0, AuthenticationError)], ids=["away", "refused"]
)
async def test_without_a_ticket_no_login_begins(kerberos: Kerberos, code: int, kind: type[Exception]) -> None:
    kerberos.error = GSSError("no")
    kerberos.error.min_code = code
    with pytest.raises(kind, match="Kerberos refused the login at kafka@broker-1: no") as caught:
        await mechanism().begin("broker-1")
    assert type(caught.value) is kind


async def test_a_kdc_that_is_silent_keeps_no_thread_of_the_loop(
    kerberos: Kerberos, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is waited for longer than an attempt to connect lasts, so that attempts would soon keep all of them."""
    loop = asyncio.get_running_loop()
    goes_on = threading.Event()
    step = kerberos.step

    def stands(challenge: bytes | None) -> bytes | None:
        assert goes_on.wait(20)
        return step(challenge)

    monkeypatch.setattr(kerberos, "step", stands)
    kerberized = mechanism()
    with ThreadPoolExecutor(1) as executor:
        loop.set_default_executor(executor)
        try:
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0):
                        await kerberized.begin("broker-1")
            async with asyncio.timeout(10):
                assert await in_worker(loop, int, "1") == 1
            last, other = (loop.create_task(kerberized.begin("broker-1")) for _ in range(2))
            await asyncio.sleep(0)
        finally:
            goes_on.set()
        assert await last is not await other
    assert kerberos.names == ["kafka@broker-1"] * 2
    await kerberized.begin("broker-1")
    assert len(kerberos.names) == 3


async def test_without_a_thread_no_ticket_is_asked_for(kerberos: Kerberos, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    kerberized = mechanism()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(KafkaError, match="can't start new thread"):
            await kerberized.begin("broker-1")
    assert kerberos.names == []


@pytest.mark.parametrize("layers", [b"\x07\0\0\0", b"\x01\0\0\0", b"\x06\0\0\0", b"\x01"])
async def test_no_security_layer_is_chosen_if_it_is_offered(kerberos: Kerberos, layers: bytes) -> None:
    exchange = await mechanism().begin("broker-1")
    await exchange.respond(None)
    exchange._context.complete = True
    if len(layers) < 4 or not layers[0] & 1:
        with pytest.raises(AuthenticationError, match="kafka@broker-1 requires a SASL security layer"):
            await exchange.respond(layers)
        return
    assert not exchange.ends_unanswered
    assert await exchange.respond(layers) == b"\x01\0\0\0"
    assert exchange.ends_unanswered  # by a broker before 1.0
    assert await exchange.respond(b"") is None
