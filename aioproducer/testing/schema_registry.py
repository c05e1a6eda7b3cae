"""FakeSchemaRegistry: a schema registry in the test's process, over real HTTP, with faults on demand.

It runs in its own threads, so any client can use it, blocking or asynchronous. Subjects, versions, ids, GUIDs,
references and deletion, soft or permanent, behave like Confluent's for producers and consumers. Configs are stored and
returned. It does not check compatibility: a test that needs a refusal requests it with ``fail(409, error_code=409)``.
"""

from __future__ import annotations

import base64
import json
import random
import socket
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from aioproducer.testing.ports import bound_to_free, give_back
from aioproducer.testing.registry_store import RegistryRefusal, RegistryStore


@dataclass
class RegistryFault:
    """One fault to inject; created by the methods of FakeSchemaRegistry."""

    status: int = 0
    error_code: int = 0
    message: str = ""
    delay_s: float = 0.0
    drop: bool = False
    times: int | None = 1
    path: str = ""

    def applies(self, path: str) -> bool:
        return self.times != 0 and self.path in path


class FakeSchemaRegistry:
    """A schema registry for tests.

        with FakeSchemaRegistry() as registry:
            serializer = AvroSerializer(SchemaRegistry(registry.url), SCHEMA)

    Args:
        credentials: (user, password) that every request must carry; None lets everybody in.
    """

    def __init__(self, *, credentials: tuple[str, str] | None = None) -> None:
        self.requests: list[tuple[str, str]] = []
        """Method and path of every request, in order of arrival."""
        self._credentials = credentials
        self._store = RegistryStore()
        self._faults: list[RegistryFault] = []
        self._lock = threading.Lock()
        self._open = threading.Event()
        self._open.set()
        self._stopped = threading.Event()
        self._server: _Server | None = None
        self._port = 0

    # --- its life -----------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Listen on a free port of the loopback interface; after ``stop``, on the same port, with the same content."""
        if self._server is None:
            self._stopped.clear()
            self._server = _Server(self, self._port) if self._port else self._listening()
            self._port = self._server.server_address[1]
            threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def _listening(self) -> _Server:
        """A server on a port that no client gets for an outgoing connection while the registry is stopped."""
        server = bound_to_free(lambda port: _Server(self, port), random.SystemRandom())
        weakref.finalize(self, give_back, [server.server_address[1]])
        return server

    def stop(self) -> None:
        """Close the port and every connection."""
        if self._server is not None:
            self._stopped.set()
            self._server.stop()
            self._server = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Its URL, without credentials."""
        return f"http://127.0.0.1:{self._port}"

    # --- what it holds ------------------------------------------------------------------------------------------------

    def register(self, subject: str, schema: Any, schema_type: str = "AVRO") -> int:
        """Register a schema under a subject, bypassing HTTP and faults; returns its id.

        Args:
            schema: JSON text, or the object it represents.
        """
        text = schema if isinstance(schema, str) else json.dumps(schema)
        with self._lock:
            registered = self._store.register(subject, {"schema": text, "schemaType": schema_type})
        return int(registered["id"])

    def subjects(self) -> list[str]:
        """The names of all subjects."""
        with self._lock:
            return self._store.subjects()

    def latest(self, subject: str) -> dict[str, Any]:
        """The newest version of a subject as the registry answers: ``id``, ``version``, ``guid``, ``schema``, ..."""
        with self._lock:
            return self._store.version(subject, "latest")

    # --- what goes wrong ----------------------------------------------------------------------------------------------

    def fail(
        self,
        status: int = 500,
        *,
        error_code: int = 50001,
        message: str = "it was told to fail",
        times: int | None = 1,
        path: str = "",
    ) -> None:
        """Answer with an error.

        Args:
            times: how many requests; None until ``recover``.
            path: only those with this text in their path.
        """
        self._add(RegistryFault(status, error_code, message, times=times, path=path))

    def drop(self, *, times: int | None = 1, path: str = "") -> None:
        """Close the connection instead of answering."""
        self._add(RegistryFault(drop=True, times=times, path=path))

    def delay(self, seconds: float, *, times: int | None = None, path: str = "") -> None:
        """Answer late."""
        self._add(RegistryFault(delay_s=seconds, times=times, path=path))

    def recover(self) -> None:
        """Forget all faults."""
        with self._lock:
            self._faults.clear()

    @contextmanager
    def held(self) -> Iterator[None]:
        """A block during which no request is answered; all are when it ends."""
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    def _add(self, fault: RegistryFault) -> None:
        with self._lock:
            self._faults.append(fault)

    # --- answering ----------------------------------------------------------------------------------------------------

    def _answer(self, method: str, target: str, login: str, body: bytes) -> tuple[int, Any] | None:
        """Status and JSON of an answer; None closes the connection."""
        with self._lock:
            self.requests.append((method, target))
            fault = next((each for each in self._faults if each.applies(target)), None)
            if fault is not None and fault.times is not None:
                fault.times -= 1
        self._open.wait()
        if fault is not None:
            if fault.drop:
                return None
            if fault.status:
                return fault.status, {"error_code": fault.error_code, "message": fault.message}
            self._stopped.wait(fault.delay_s)
        try:
            if self._credentials is not None and login != _basic(*self._credentials):
                raise RegistryRefusal(401, 401, "Unauthorized")
            parts = urlsplit(target)
            with self._lock:
                return 200, self._route(method, parts.path, parse_qs(parts.query), body)
        except RegistryRefusal as refusal:
            return refusal.status, {"error_code": refusal.error_code, "message": refusal.message}

    def _route(self, method: str, path: str, query: dict[str, list[str]], body: bytes) -> Any:
        def asked(name: str) -> bool:
            return query.get(name, [""])[0].lower() == "true"

        store = self._store
        match method, *(unquote(part) for part in path.strip("/").split("/")):
            case "POST", "subjects", subject, "versions":
                return store.register(subject, _json(body), normalize=asked("normalize"))
            case "POST", "subjects", subject:
                return store.look_up(subject, _json(body), normalize=asked("normalize"), deleted=asked("deleted"))
            case "GET", "subjects":
                return store.subjects()
            case "GET", "subjects", subject, "versions":
                return store.versions(subject, deleted=asked("deleted"))
            case "GET", "subjects", subject, "versions", version:
                return store.version(subject, version, deleted=asked("deleted"))
            case "DELETE", "subjects", subject:
                return store.delete(subject, permanent=asked("permanent"))
            case "DELETE", "subjects", subject, "versions", version:
                return store.delete_version(subject, version, permanent=asked("permanent"))
            case "GET", "schemas", "ids", schema_id:
                return store.by_id(schema_id)
            case "GET", "schemas", "ids", schema_id, "versions":
                return store.versions_of(schema_id, query.get("subject", [None])[0], deleted=asked("deleted"))
            case "GET", "schemas", "guids", guid:
                return store.by_guid(guid)
            case "GET", "schemas", "types":
                return ["AVRO", "JSON", "PROTOBUF"]
            case _, "config":
                return self._configure(method, None, body, default_to_global=False)
            case _, "config", subject:
                return self._configure(method, subject, body, default_to_global=asked("defaultToGlobal"))
        raise RegistryRefusal(404, 404, "HTTP 404 Not Found")

    def _configure(self, method: str, subject: str | None, body: bytes, *, default_to_global: bool) -> dict[str, Any]:
        match method:
            case "GET":
                return self._store.config(subject, default_to_global=default_to_global)
            case "PUT":
                return self._store.set_config(subject, _json(body))
            case "DELETE":
                return self._store.delete_config(subject)
        raise RegistryRefusal(405, 405, "HTTP 405 Method Not Allowed")


def _json(body: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(body)
    except ValueError:
        raise RegistryRefusal(400, 400, "Unrecognized JSON") from None
    if not isinstance(parsed, dict):
        raise RegistryRefusal(400, 400, "Unrecognized JSON")
    return parsed


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class _Server(ThreadingHTTPServer):
    """One listening port; tracks its connections, each of which outlives a request."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, registry: FakeSchemaRegistry, port: int) -> None:
        self.registry = registry
        self._connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect."""

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def _serve(self) -> None:
        login = self.headers.get("Authorization", "")
        answer = self.server.registry._answer(self.command, self.path, login, self._body())
        if answer is None:
            self.close_connection = True
            return
        status, content = answer
        encoded = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            return b"".join(iter(self._chunk, b""))
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _chunk(self) -> bytes:
        """The next part of a body; an empty one is the last."""
        chunk = self.rfile.read(int(self.rfile.readline().partition(b";")[0], 16))
        self.rfile.readline()
        return chunk

    do_GET = do_POST = do_PUT = do_DELETE = _serve

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: ``requests`` has everything."""
