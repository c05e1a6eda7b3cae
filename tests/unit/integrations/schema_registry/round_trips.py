"""Registry serializers, used for one value or for many, from tests that are not coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aioproducer.integrations.schema_registry import SchemaRegistry
from aioproducer.testing import FakeSchemaRegistry


def serialized(fake: FakeSchemaRegistry, make: Callable[[SchemaRegistry], Any], topic: str, value: Any) -> bytes | None:
    """One value serialized by the serializer that ``make`` returns, with its own client."""

    async def write() -> bytes | None:
        async with SchemaRegistry({"url": fake.url, "ssl.ca.location": False}) as registry:
            data: bytes | None = await make(registry).to_bytes(topic, value)
            return data

    return asyncio.run(write())


def prepared(serializer: Any, topic: str) -> Callable[[Any], bytes]:
    """The serializer as a function, after it has done all its lookups in the registry."""

    async def prepare() -> None:
        async with serializer.registry:
            await serializer.prepare(topic)

    asyncio.run(prepare())
    bound = serializer.bind(is_key=False, max_block_ms=0)
    return lambda value: bound.serialize_nowait(topic, None, value)
