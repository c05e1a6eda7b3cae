"""A schema registry for each test or for each module, and its client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from aioproducer.integrations.schema_registry import SchemaRegistry
from aioproducer.testing import FakeSchemaRegistry


@pytest.fixture
async def registry(fake_schema_registry: FakeSchemaRegistry) -> AsyncIterator[SchemaRegistry]:
    """A client of fake_schema_registry, closed at the end."""
    # Without the system's CA certificates, because loading them takes longer than most of the tests.
    async with SchemaRegistry({"url": fake_schema_registry.url, "ssl.ca.location": False}) as made:
        yield made


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeSchemaRegistry]:
    """One registry for all tests of a module, which use separate subjects."""
    with FakeSchemaRegistry() as registry:
        yield registry
