"""A scripted broker that accepts records: it keeps them, and answers when and what a test says."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

from aioproducer.compression import codec_by_attribute
from aioproducer.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aioproducer.protocol.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aioproducer.protocol.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.reference import record_batch as reference
from tests.reference.record_batch import PlainRecord
from tests.unit.net.fake_broker import FakeBroker, ReceivedRequest

PID = 4000
MAX_SECTION_BYTES = 10 << 20


class ProducingBroker(FakeBroker):
    """Leads every partition of ``topics`` (name to number of partitions)."""

    def __init__(
        self, topics: dict[str, int] | None = None, *, ranges: dict[int, tuple[int, int]] | None = None
    ) -> None:
        super().__init__(ranges=ranges)
        self.topics = {"orders": 1} if topics is None else topics
        self.log: dict[tuple[str, int], list[PlainRecord]] = {}
        self.error_code = 0
        """The answer to Produce; records are kept only with 0."""
        self.holding = False
        """Whether answers to Produce are held back until ``release``."""
        self.held: list[ReceivedRequest] = []
        self.on(MetadataRequest, self._metadata)
        self.on(InitProducerIdRequest, lambda _: InitProducerIdResponse(producer_id=PID, producer_epoch=0))
        self.on(ProduceRequest, self._produce)

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.host}:{self.port}"

    def values(self, topic: str = "orders", partition: int = 0) -> list[bytes | None]:
        """The values that a partition holds."""
        return [record.value for record in self.log.get((topic, partition), [])]

    def release(self) -> None:
        """Send the answers that were held back, and stop holding them back."""
        self.holding = False
        held, self.held = self.held, []
        for request in held:
            if not request.peer.writer.transport.is_closing():
                request.reply(self._taken(request))

    async def holds(self, count: int = 1) -> None:
        """Wait until that many Produce requests are held."""
        while len(self.held) < count:
            await self.next_request(ProduceRequest)
            await asyncio.sleep(0)

    # --- answers ------------------------------------------------------------------------------------------------------

    def _metadata(self, request: ReceivedRequest) -> MetadataResponse:
        asked = request.decode().topics
        names = list(self.topics) if asked is None else [topic.name for topic in asked]
        return MetadataResponse(
            brokers=[self.address()],
            cluster_id="fake",
            controller_id=self.node_id,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        count = self.topics.get(name)
        if count is None:
            return MetadataResponseTopic(error_code=3, name=name, partitions=[])
        partitions = [
            MetadataResponsePartition(
                partition_index=number, leader_id=self.node_id, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
            )
            for number in range(count)
        ]
        return MetadataResponseTopic(name=name, topic_id=topic_id(name), partitions=partitions)

    def _produce(self, request: ReceivedRequest) -> ProduceResponse | None:
        if self.holding:
            self.held.append(request)
            return None
        answer = self._taken(request)
        return None if request.decode().acks == 0 else answer

    def _taken(self, request: ReceivedRequest) -> ProduceResponse:
        names = {topic_id(name): name for name in self.topics}
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[
                        self._keep(topic.name or names[topic.topic_id], each) for each in topic.partition_data
                    ],
                )
                for topic in request.decode().topic_data
            ]
        )

    def _keep(self, name: str, data: Any) -> PartitionProduceResponse:
        if self.error_code:
            return PartitionProduceResponse(index=data.index, error_code=self.error_code, base_offset=-1)
        batch = reference.decoded(data.records)
        log = self.log.setdefault((name, data.index), [])
        offset = len(log)
        section = codec_by_attribute(batch.attributes & 7).decompress(batch.section, MAX_SECTION_BYTES)
        log += reference.records_of(section, batch.records_count, batch.base_timestamp)
        return PartitionProduceResponse(index=data.index, base_offset=offset)


def topic_id(name: str) -> bytes:
    """The id that a topic of this name has."""
    return hashlib.md5(name.encode()).digest()
