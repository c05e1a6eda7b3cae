"""A program as users write it; type checkers read it, nothing runs it.

Each ``type: ignore`` is a mistake that mypy and pyright both have to find: they report one that is not needed.
"""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Unpack, assert_type

import numpy as np
from fastapi import Depends, FastAPI

from aioproducer import (
    BatchResult,
    BrokerError,
    BufferExhaustedError,
    Delivery,
    DeliveryErrors,
    KafkaError,
    OAuthToken,
    PartitionInfo,
    PreparedTransaction,
    Producer,
    ProducerConfigs,
    ProducerHealth,
    Record,
    RecordMetadata,
    SendManyError,
    transactions,
)
from aioproducer.audit import Audit
from aioproducer.compat.aiokafka import AIOKafkaProducer
from aioproducer.doctor import Status, diagnose
from aioproducer.errors import IllegalGenerationError, OffsetMetadataTooLargeError, UnknownMemberIdError
from aioproducer.integrations.fastapi import ProducerDep, producer_dependency, producer_lifespan
from aioproducer.partitioners import murmur2_random
from aioproducer.testing import FakeCluster, KafkaCluster, TopicAdmin


def on_error(error: KafkaError, records: int) -> None:
    assert_type(error.maybe_written, bool)
    assert_type(error.retriable, bool)
    print(error.name, error.code, records)


def by_length(topic: str, key: bytes | None, value: bytes | None, partitions: Sequence[PartitionInfo]) -> int:
    return len(value or b"") % len(partitions)


async def one_by_one(producer: Producer) -> None:
    metadata = await producer.send("orders", b"tea", key="customer-7", headers={"trace": b"1", "empty": None})
    assert_type(metadata, RecordMetadata)
    assert_type(metadata.offset, int)
    delivery = await producer.submit("orders", "tea", headers=[("trace", b"1")], timestamp_ms=0, partition=1)
    assert_type(delivery, Delivery)
    assert_type(await delivery, RecordMetadata)
    now = producer.submit_nowait("orders", {"any": "value that a serializer takes"})
    now.add_done_callback(lambda ended: print(ended.exception()))
    assert_type(now.exception(), KafkaError | None)
    assert_type(await asyncio.gather(producer.send("a"), producer.send("b")), tuple[RecordMetadata, RecordMetadata])
    async with asyncio.TaskGroup() as group:
        task = group.create_task(producer.send("orders"))
    assert_type(task.result(), RecordMetadata)
    assert_type(await asyncio.wait_for(producer.send("orders"), 5), RecordMetadata)


async def records() -> AsyncIterator[Record]:
    yield Record(b"tea", key=b"customer-7", topic="orders")


async def in_bulk(producer: Producer) -> None:
    result = await producer.send_many("orders", [b"a", "b", (b"key", b"value"), Record(b"c")])
    assert_type(result, BatchResult)
    assert_type(result.acked, int)
    await producer.send_many("orders", records(), raise_on_error=False)
    try:
        await producer.flush(timeout=1)
        await producer.ready()
    except SendManyError as failures:
        assert_type(failures.result, BatchResult)
        print(failures.result.ackd)  # type: ignore[attr-defined]
    except DeliveryErrors as group:
        print(group.record_count, group.exceptions)


async def in_a_transaction(producer: Producer) -> PreparedTransaction:
    try:
        async with producer.transaction():
            await producer.submit("payments", b"1")
    except (IllegalGenerationError, UnknownMemberIdError) as error:
        assert_type(error.abortable, bool)
    except OffsetMetadataTooLargeError as error:
        assert_type(error, OffsetMetadataTooLargeError)
    await producer.begin_transaction()
    return await producer.prepare_transaction()


async def from_another_process(prepared: PreparedTransaction, configs: ProducerConfigs) -> None:
    await transactions.commit(prepared, **configs)
    await transactions.abort(prepared, bootstrap_server="localhost")  # type: ignore[call-arg]
    async with transactions.TransactionClient(bootstrap_servers="localhost", client_id=None) as client:
        assert_type(await client.outcome(prepared), transactions.TransactionOutcome)
    transactions.TransactionClient(max_block_ms=[1])  # type: ignore[arg-type]


async def what_is_wrong(configs: ProducerConfigs) -> None:
    report = await diagnose(topic="orders", **configs)
    assert_type(report.status, Status)
    await diagnose(linger="5")  # type: ignore[call-arg]


async def looked_at(producer: Producer) -> None:
    try:
        producer.submit_nowait("orders")
    except BufferExhaustedError:
        await producer.ready()
    except BrokerError as error:
        print(error.code, error.meaning)
    assert_type(producer.health(), ProducerHealth)
    assert_type(await producer.partitions_for("orders"), tuple[PartitionInfo, ...])


def made(configs: dict[str, Any], level: np.int64) -> list[Producer]:
    written: ProducerConfigs = {"bootstrap_servers": "a:9092", "linger_ms": 20}
    return [
        Producer(bootstrap_servers="localhost:9092", on_error=on_error, partitioner=by_length),
        Producer(bootstrap_servers=["a:9092", "b:9092"], linger_ms=20, acks="all", enable_idempotence=True),
        Producer(bootstrap_servers="a:9092", linger_ms="20", acks=1, enable_idempotence="true", client_id=None),
        Producer(bootstrap_servers="a:9092", compression_lz4_level=level, sasl_login_refresh_window_factor=1),
        Producer(bootstrap_servers="a:9092", partitioner=murmur2_random, sasl_oauth_token_provider=token),
        Producer(bootstrap_servers="a:9092", partitioner_class="round_robin", interceptors=[Audit("jobs")]),
        Producer(**configs),
        Producer(bootstrap_servers="a:9092", **configs),
        Producer(**written),
        passed_on(bootstrap_servers="a:9092", linger_ms=20),
        Own(linger_ms=20),
        Producer.from_config({"bootstrap.servers": "localhost:9092"}),
        Producer.from_librdkafka_config({"bootstrap.servers": "localhost:9092"}),
        Producer.from_properties("producer.properties"),
    ]


def passed_on(**configs: Unpack[ProducerConfigs]) -> Producer:
    assert_type(configs.get("client_id"), str | None)
    return Producer(**configs)


class Own(Producer):
    def __init__(self, **configs: Any) -> None:
        super().__init__(bootstrap_servers="a:9092", **configs)


def refused(configs: dict[str, Any]) -> list[Producer]:
    def by_topic(topic: str) -> int:
        return len(topic)

    return [
        Producer(bootstrap_server="a:9092"),  # type: ignore[call-arg]
        Producer("a:9092"),  # type: ignore[call-arg]
        Producer(linger_ms=0.5),  # type: ignore[arg-type]
        Producer(linger_ms=None, **configs),  # type: ignore[arg-type]
        Producer(bootstrap_servers=9092),  # type: ignore[arg-type]
        Producer(partitioner=by_topic),  # type: ignore[arg-type]
        Producer(value_serializer=len),  # type: ignore[arg-type]
        Producer(ssl_context="ca.pem"),  # type: ignore[arg-type]
        passed_on(linger=20),  # type: ignore[call-arg]
    ]


async def token() -> OAuthToken:
    return OAuthToken("secret")


def served() -> FastAPI:
    app = FastAPI(lifespan=producer_lifespan(lambda: Producer(bootstrap_servers="localhost:9092"), topics=["clicks"]))

    async def click(
        producer: ProducerDep, auditor: Annotated[Producer, Depends(producer_dependency("audit"))]
    ) -> dict[str, int]:
        auditor.submit_nowait("audit")
        return {"offset": (await producer.send("clicks")).offset}

    app.post("/clicks")(click)
    return app


async def moved() -> None:
    async with AIOKafkaProducer(bootstrap_servers="localhost:9092") as producer:
        print((await producer.send_and_wait("orders", b"tea")).offset)
        print((await (await producer.send("orders", b"tea"))).topic_partition)


async def test_of_their_own(kafka_cluster: TopicAdmin, fake_kafka_cluster: FakeCluster) -> None:
    assert_type(kafka_cluster.end_offsets("orders"), dict[int, int])
    fake_kafka_cluster.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    with KafkaCluster(3) as cluster:
        assert_type(cluster.bootstrap_servers, str)
