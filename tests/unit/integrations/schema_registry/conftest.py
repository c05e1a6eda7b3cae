"""A schema registry for each test, and its client on this side."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aioproducer.integrations.schema_registry import SchemaRegistry
from aioproducer.testing import FakeSchemaRegistry


@pytest.fixture
async def registry(fake_schema_registry: FakeSchemaRegistry) -> AsyncIterator[SchemaRegistry]:
    """The client of fake_schema_registry, closed at the end."""
    async with SchemaRegistry(fake_schema_registry.url) as made:
        yield made
