"""Events as Pydantic models: an invalid one never reaches Kafka, and its error names the field.

BOOTSTRAP_SERVERS=host:port python examples/pydantic_events.py
"""

import asyncio
import os
from datetime import UTC, datetime
from typing import Literal

from pydantic import AwareDatetime, BaseModel, Field, PositiveInt

from aioproducer import Producer
from aioproducer.errors import SchemaValidationError
from aioproducer.integrations.pydantic import PydanticSerializer


class OrderPlaced(BaseModel):
    kind: Literal["placed"] = "placed"
    order: PositiveInt
    item: str
    at: AwareDatetime = Field(default_factory=lambda: datetime.now(UTC))


class OrderShipped(BaseModel):
    kind: Literal["shipped"] = "shipped"
    order: PositiveInt
    parcels: int = 1


async def main() -> None:
    # One compiled encoder for both kinds of events; dicts are converted to models first, or refused.
    events = PydanticSerializer(OrderPlaced | OrderShipped, validate=True)
    bootstrap = os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")
    async with Producer(bootstrap_servers=bootstrap, value_serializer=events) as producer:
        await producer.send("order-events", OrderPlaced(order=7, item="tea"), key="7")
        metadata = await producer.send("order-events", {"kind": "shipped", "order": 7}, key="7")
        try:
            await producer.send("order-events", {"kind": "shipped", "order": -7}, key="-7")
        except SchemaValidationError as error:
            print(f"refused: {error.problems[-1]}")
    print(f"two events, the last at offset {metadata.offset}")


asyncio.run(main())
