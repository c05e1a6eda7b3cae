"""The brokers of a cluster model on TCP, one asyncio server each, all on one event loop in a separate thread."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import threading
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractContextManager, suppress
from typing import Any, TypeVar

from aioproducer.testing.errors import ClusterError
from aioproducer.testing.fake.model import ClusterModel
from aioproducer.testing.fake.session import Session
from aioproducer.testing.ports import HOST, bound_to_free, give_back

READ_BYTES = 256 * 1024
REPLICAS_S = 0.005
"""How often a request that waits for replicas is looked at."""
ACCEPT_TURNS = 5
T = TypeVar("T")


class BrokerServers:
    """See the module.

    Args:
        lock: held during every use of the model.
        now_ms: returns the time, in milliseconds since the epoch.
    """

    def __init__(self, model: ClusterModel, lock: AbstractContextManager[Any], now_ms: Callable[[], int]) -> None:
        self._model = model
        self._lock = lock
        self._now_ms = now_ms
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake-kafka", daemon=True)
        self._rng = random.SystemRandom()
        self._ports: dict[int, int] = {}
        """Kept for brokers that are stopped too."""
        self._servers: dict[int, asyncio.Server] = {}
        self._connections: dict[asyncio.Task[None], tuple[int, asyncio.StreamWriter]] = {}

    def start(self) -> None:
        """Take a free port for every broker, and listen for those that run."""
        self._thread.start()
        try:
            self.move(self._model.brokers)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Close everything and end the thread."""
        try:
            for node_id in list(self._servers):
                self.close(node_id)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            give_back(self._ports.values())

    def forget(self) -> None:
        """In a fork: let go of ports and connections, or clients would not see the owner close them."""
        descriptors = [listener.fileno() for server in self._servers.values() for listener in server.sockets]
        descriptors += [writer.get_extra_info("socket").fileno() for _, writer in self._connections.values()]
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in descriptors:
            # Replaced, not closed: the sockets' objects are still there, and close these numbers when they go.
            with suppress(OSError):
                os.dup2(null, descriptor, inheritable=False)
        os.close(null)

    def bind(self, node_id: int) -> socket.socket:
        """Listen on a broker's port; connections wait until ``serve``.

        Raises:
            ClusterError: another process has the port.
        """
        host, port = HOST, self._model.broker(node_id).port
        try:
            return socket.create_server((host, port))
        except OSError as error:
            raise ClusterError(f"broker {node_id} can't listen on {host}:{port}: {error}") from error

    def serve(self, node_id: int, listener: socket.socket) -> None:
        """Accept a broker's connections, those that waited too."""
        self._run(self._serve_on(node_id, listener))

    def close(self, node_id: int) -> None:
        """Close the port and the connections of a broker."""
        self._run(self._hang_up(node_id))

    def move(self, node_ids: Iterable[int]) -> None:
        """Give brokers other ports, and close the old ones with their connections."""
        for node_id in node_ids:
            if node_id in self._servers:
                self.close(node_id)
            listener = self._bind_free()
            old, port = self._ports.get(node_id), listener.getsockname()[1]
            self._ports[node_id] = port
            if old is not None:
                give_back([old])
            with self._lock:
                self._model.change_addresses({node_id: (HOST, port)})
            if self._model.brokers[node_id].up:
                self.serve(node_id, listener)
            else:
                listener.close()

    def _bind_free(self) -> socket.socket:
        """Listen on a port that no client gets for an outgoing connection while its broker is stopped."""
        return bound_to_free(lambda port: socket.create_server((HOST, port)), self._rng)

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    async def _serve_on(self, node_id: int, listener: socket.socket) -> None:
        self._servers[node_id] = await asyncio.start_server(
            lambda *streams: self._accept(node_id, *streams), sock=listener
        )

    async def _hang_up(self, node_id: int) -> None:
        server = self._servers.pop(node_id, None)
        if server is None:
            return
        # A server closed while it accepts a connection leaks the socket. So it stops listening first, and accepted
        # connections get the loop turns they need to be registered here.
        for listener in server.sockets:
            self._loop.remove_reader(listener.fileno())
        for _ in range(ACCEPT_TURNS):
            await asyncio.sleep(0)
        server.close()
        await self._abort([(task, writer) for task, (node, writer) in self._connections.items() if node == node_id])
        await server.wait_closed()

    async def _abort(self, connections: list[tuple[asyncio.Task[None], asyncio.StreamWriter]]) -> None:
        for task, writer in connections:
            writer.transport.abort()
            task.cancel()
        for task, writer in connections:
            await asyncio.gather(task, writer.wait_closed(), return_exceptions=True)

    def _accept(self, node_id: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._serve(node_id, reader, writer))
        self._connections[task] = node_id, writer
        task.add_done_callback(self._connections.__delitem__)

    async def _serve(self, node_id: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session: Session | None = None
        try:
            with self._lock:
                session = Session(self._model, node_id)
            while data := await reader.read(READ_BYTES):
                if not await self._answer(session, data, writer):
                    break
        except (ConnectionError, asyncio.CancelledError):
            # The client has gone, or the broker is being stopped; there is nobody to notify.
            pass
        finally:
            if session is not None:
                with self._lock:
                    session.close()
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, session: Session, data: bytes, writer: asyncio.StreamWriter) -> bool:
        """Answer requests; returns whether the connection stays open."""
        with self._lock:
            requests = session.feed(data)
        for request in requests:
            with self._lock:
                answer = session.apply(request, self._now_ms())
            while answer.waits:
                await asyncio.sleep(REPLICAS_S)
                with self._lock:
                    answer = session.decided(self._now_ms())
            if answer.delay_ms:
                await asyncio.sleep(answer.delay_ms / 1000)
            if answer.frame is not None:
                writer.write(answer.frame)
                await writer.drain()
            if answer.close:
                return False
        return session.broken is None
