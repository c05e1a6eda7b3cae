"""Raw requests to one broker, with the version and the bytes that a test chooses, and without retries."""

from __future__ import annotations

import socket
import struct
import time
from types import TracebackType
from typing import Any, Self

from aioproducer.protocol.header import decode_response, encode_request
from aioproducer.protocol.init_producer_id import InitProducerIdRequest
from aioproducer.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic
from aioproducer.protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from aioproducer.protocol.schema import R, Request

PATIENCE_S = 15.0
COORDINATOR_LOAD_IN_PROGRESS = 14


class RawConnection:
    """A blocking plaintext connection; use it in a ``with`` block."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, PATIENCE_S)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._socket.close()

    def send(self, request: Request[Any], version: int) -> None:
        """Send a request that has no answer, or whose answer is not read."""
        self._correlation_id += 1
        self.send_bytes(encode_request(request, version, self._correlation_id, "raw"))

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def ask(self, request: Request[R], version: int | None = None) -> R:
        """Send a request and read the answer."""
        version = request.MAX_VERSION if version is None else version
        self.send(request, version)
        return self.answer_to(request, version)

    def answer_to(self, request: Request[R], version: int) -> R:
        """Read the answer to the request that was sent last."""
        frame = self.frame()
        assert frame is not None, "the broker closed the connection"
        assert struct.unpack_from(">i", frame) == (self._correlation_id,)
        return decode_response(type(request), version, frame)

    def frame(self) -> bytes | None:
        """The next answer without its size; None if the broker closes the connection instead."""
        size = self._receive(4)
        return None if size is None else self._receive(int.from_bytes(size, "big"))

    def is_closed(self) -> bool:
        """Whether the broker ends the connection without an answer."""
        return self.frame() is None

    def topic(self, name: str) -> MetadataResponseTopic:
        """A topic as described by the broker."""
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        (topic,) = self.ask(asked).topics
        return topic

    def producer_id(self) -> int:
        """A new producer id."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        deadline = time.monotonic() + PATIENCE_S
        while (answer := self.ask(request)).error_code == COORDINATOR_LOAD_IN_PROGRESS:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert answer.error_code == 0
        return answer.producer_id

    def produce(
        self,
        topic: str,
        records: bytes | None,
        *,
        partition: int = 0,
        version: int = 13,
        acks: int = -1,
        topic_id: bytes | None = None,
        transactional_id: str | None = None,
        timeout_ms: int = 5_000,
    ) -> PartitionProduceResponse:
        """Send one batch and return its result."""
        request = self.produce_request(topic, {partition: records}, version, acks, topic_id, transactional_id)
        request.timeout_ms = timeout_ms
        (answered,) = self.ask(request, version).responses
        (result,) = answered.partition_responses
        return result

    def produce_whole(self, topic: str, batches: dict[int, bytes | None], *, version: int = 13) -> ProduceResponse:
        """Send one batch to each of several partitions and return the whole answer."""
        return self.ask(self.produce_request(topic, batches, version, -1), version)

    def produce_request(
        self,
        topic: str,
        batches: dict[int, bytes | None],
        version: int = 13,
        acks: int = -1,
        topic_id: bytes | None = None,
        transactional_id: str | None = None,
    ) -> ProduceRequest:
        """The request for batches by partition."""
        if topic_id is None and version >= 13:
            topic_id = self.topic(topic).topic_id
        data = TopicProduceData(
            name=topic,
            topic_id=topic_id or bytes(16),
            partition_data=[PartitionProduceData(index=index, records=records) for index, records in batches.items()],
        )
        return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=5_000, topic_data=[data])

    def _receive(self, size: int) -> bytes | None:
        data = bytearray()
        while len(data) < size:
            try:
                part = self._socket.recv(size - len(data))
            except ConnectionResetError:
                part = b""
            if not part:
                return None
            data += part
        return bytes(data)
