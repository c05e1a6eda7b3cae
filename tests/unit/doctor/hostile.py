"""Servers that are not Kafka brokers, misbehaving ones, and certificates for them.

They run in their own threads, so that they leave nothing in the loop of a test.
"""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from aioproducer.error_codes import Code
from aioproducer.protocol.metadata import MetadataRequest, MetadataResponse
from aioproducer.protocol.schema import Message, Request
from aioproducer.testing import CertificateAuthority, FakeCluster
from aioproducer.testing.fake import apis
from aioproducer.testing.fake.metadata import metadata

Speak = Callable[[socket.socket], None]


def hangs_up(peer: socket.socket) -> None:
    """Accept a connection and close it."""


def reads_and_hangs_up(peer: socket.socket) -> None:
    peer.recv(1)


def is_silent(peer: socket.socket) -> None:
    while peer.recv(65_536):
        pass


def speaks_http(peer: socket.socket) -> None:
    peer.recv(65_536)
    peer.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")


def speaks_garbage(peer: socket.socket) -> None:
    peer.recv(65_536)
    peer.sendall(bytes(range(100, 200)))


def answers_garbage(peer: socket.socket) -> None:
    """A frame of the right form, with nonsensical content."""
    head = peer.recv(65_536)
    peer.sendall(b"\0\0\0\x10" + head[8:12] + b"\xff" * 12)


def answers_nothing(peer: socket.socket) -> None:
    """A frame that ends after the correlation id."""
    head = peer.recv(65_536)
    peer.sendall(b"\0\0\0\x04" + head[8:12])


@contextmanager
def server(speak: Speak, context: ssl.SSLContext | None = None) -> Iterator[int]:
    """A server on a free loopback port, with plain TCP or TLS."""
    listening = socket.create_server(("127.0.0.1", 0))
    open_sockets: set[socket.socket] = set()
    threads: list[threading.Thread] = []
    stopped = threading.Event()

    def serve(peer: socket.socket) -> None:
        # Registered before anything is awaited, so that the end of the test closes it.
        with peer, suppress(OSError):
            if context is not None:
                with context.wrap_socket(peer, server_side=True, do_handshake_on_connect=False) as secured:
                    open_sockets.add(secured)
                    if stopped.is_set():
                        return
                    secured.do_handshake()
                    speak(secured)
            else:
                speak(peer)

    def accept() -> None:
        while True:
            peer, _ = listening.accept()
            if stopped.is_set():
                peer.close()
                return
            open_sockets.add(peer)
            threads.append(threading.Thread(target=serve, args=(peer,)))
            threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    port: int = listening.getsockname()[1]
    try:
        yield port
    finally:
        stopped.set()
        socket.create_connection(("127.0.0.1", port)).close()
        accepting.join()
        listening.close()
        for peer in tuple(open_sockets):
            with suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()


def relay_to(cluster: FakeCluster) -> Speak:
    """A server that forwards every byte to a broker, and back."""
    address = cluster.address_of(cluster.brokers[0])

    def speak(peer: socket.socket) -> None:
        with socket.create_connection(address) as broker:
            back = threading.Thread(target=_pass_on, args=(broker, peer))
            back.start()
            _pass_on(peer, broker)
            back.join()

    return speak


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def answers(
    monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster, request: type[Request[Any]], answer: Callable[[Any], Message]
) -> None:
    """Have a cluster answer requests of one API as the test says, even if it does not support the API itself."""
    model = cluster._model
    monkeypatch.setattr(model, "ranges", {request.API_KEY: (request.MIN_VERSION, request.MAX_VERSION), **model.ranges})
    monkeypatch.setitem(apis.API_CLASSES, request.API_KEY, request)
    monkeypatch.setitem(apis._HANDLERS, request.API_KEY, lambda model, node_id, frame, now_ms: answer(frame.message))


def repeats_topics(monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster, times: int) -> None:
    """Have a cluster's Metadata contain every topic that many times."""

    def answer(message: MetadataRequest) -> MetadataResponse:
        whole = metadata(cluster._model, message)
        whole.topics *= times
        return whole

    answers(monkeypatch, cluster, MetadataRequest, answer)


def hides_topics(monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster) -> None:
    """Have a cluster's Metadata refuse every topic to this user."""

    def answer(message: MetadataRequest) -> MetadataResponse:
        whole = metadata(cluster._model, message)
        for topic in whole.topics:
            topic.error_code = Code.TOPIC_AUTHORIZATION_FAILED
        return whole

    answers(monkeypatch, cluster, MetadataRequest, answer)


def server_context(authority: CertificateAuthority, directory: Path, name: str, days: float) -> ssl.SSLContext:
    """A server's context with a certificate for a name that expires in that many days."""
    now = datetime.datetime.now(datetime.UTC)
    own = authority.issue(
        name, not_before=now - datetime.timedelta(days=90), not_after=now + datetime.timedelta(days=days)
    )
    path = directory / "server.pem"
    path.write_text(f"{own.key}\n{own.chain}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context
