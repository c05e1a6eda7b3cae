"""The brokers of a cluster model on TCP, one asyncio server each, all on one event loop in a separate thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractContextManager, suppress
from typing import Any, TypeVar

from aioproducer.testing.fake.model import ClusterModel
from aioproducer.testing.fake.session import Session
from aioproducer.testing.ports import HOST

READ_BYTES = 256 * 1024
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
        self._servers: dict[int, asyncio.Server] = {}
        self._connections: dict[asyncio.Task[None], tuple[int, asyncio.StreamWriter]] = {}

    def start(self) -> None:
        """Listen for every running broker, each on a free port."""
        self._thread.start()
        try:
            self.move([node_id for node_id, broker in self._model.brokers.items() if broker.up])
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

    def open(self, node_id: int) -> None:
        """Listen for a broker on its previous port."""
        broker = self._model.brokers[node_id]
        self._run(self._listen(node_id, broker.port))

    def close(self, node_id: int) -> None:
        """Close the port and the connections of a broker."""
        self._run(self._hang_up(node_id))

    def move(self, node_ids: Iterable[int]) -> None:
        """Make brokers listen on other ports, and close the old ones with their connections."""
        for node_id in node_ids:
            if node_id in self._servers:
                self.close(node_id)
            port = self._run(self._listen(node_id, 0))
            with self._lock:
                self._model.change_addresses({node_id: (HOST, port)})

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    async def _listen(self, node_id: int, port: int) -> int:
        server = await asyncio.start_server(lambda *streams: self._accept(node_id, *streams), HOST, port)
        self._servers[node_id] = server
        chosen: int = server.sockets[0].getsockname()[1]
        return chosen

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
            if answer.delay_ms:
                await asyncio.sleep(answer.delay_ms / 1000)
            if answer.frame is not None:
                writer.write(answer.frame)
                await writer.drain()
            if answer.close:
                return False
        return session.broken is None
