"""SchemaSerializer: shared by all formats: which schema a topic has, and what to do until it is known."""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypedDict

from confluent_kafka.schema_registry import RuleMode, Schema

from aioproducer.config.values import takes
from aioproducer.errors import (
    ConfigError,
    SchemaRegistryError,
    SchemaRegistryUnavailableError,
    SchemaValidationError,
    SerializationError,
    SerializerNotReadyError,
)
from aioproducer.integrations.schema_registry import framing
from aioproducer.integrations.schema_registry.lookups import LookupsClosedError
from aioproducer.integrations.schema_registry.registry import Client, LookupFailedError, SchemaRegistry
from aioproducer.integrations.schema_registry.subjects import SubjectName, context, subject_name
from aioproducer.message_text import excerpt
from aioproducer.records import Value_contra

logger: logging.Logger = logging.getLogger("aioproducer.integrations")

DEFAULT_LIMIT_MS = 60_000
"""Replaces ``max_block_ms`` outside a producer."""

GRACE_S = 0.05
"""How much longer than a lookup its callers wait, so that they get its error."""

MAX_PROBLEMS = 5
"""Most problems of a value that its error lists."""

_WRITING = (RuleMode.WRITE, RuleMode.WRITEREAD)


class Encoder(Protocol):
    """Converts values to bytes with one schema."""

    def encode(self, prefix: bytes, value: Any) -> bytes:
        """The prefix followed by the value's bytes; any exception means that the value does not match the schema."""

    def problems(self, value: Any, error: Exception) -> Sequence[tuple[str, str]]:
        """The mismatches as (path, problem), without any part of the value."""


class Options(TypedDict, total=False):
    """Options of all serializers; see `SchemaSerializer`."""

    subject_name_strategy: str | SubjectName
    auto_register_schemas: bool
    use_latest_version: bool
    use_schema_id: int
    normalize_schemas: bool
    latest_cache_ttl_sec: float | None
    framing: str


class Known:
    """The state of a subject; one object for all its topics, so that a newer version reaches all at once."""

    __slots__ = ("stale_at", "subject", "writing")

    def __init__(self, subject: str, writing: tuple[Encoder, bytes, bytes | None]) -> None:
        self.subject: str = subject
        # Encoder, prefix and header in one object: loops of other threads see all of a newer version or none of it.
        self.writing: tuple[Encoder, bytes, bytes | None] = writing
        self.stale_at: float = math.inf


class SchemaSerializer(ABC, Generic[Value_contra]):
    """Serializes with a topic's schema from a registry.

    Give it to a Producer as ``key_serializer`` or ``value_serializer``; one object can be both, and serve several
    producers, topics and event loops.

    Args:
        registry: where schemas are looked up.
        subject_name_strategy: ``topic`` (``orders-value``), ``record`` (``shop.Order``), ``topic_record``
            (``orders-shop.Order``), or a function of (topic, is_key, record_name).
        auto_register_schemas: registers the schema if it is missing; False only looks it up. True unless one of the
            next two is given.
        use_latest_version: writes with the subject's newest schema, whatever schema the serializer was given.
        use_schema_id: writes with the schema that has this id.
        normalize_schemas: lets the registry ignore differences without meaning, such as the order of fields'
            attributes.
        latest_cache_ttl_sec: seconds after which ``use_latest_version`` looks for a newer one, in the background;
            None keeps the first forever, as Java does by default.
        framing: ``prefix`` or ``header``, see the module framing.
        to_dict: called with each value, returns what is serialized. Type checkers infer the type of the values from it.
    Raises:
        ConfigError: options contradict each other or have invalid values, or the schema is invalid.
    """

    schema_type: ClassVar[str]
    """The registry's name for it."""

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: Schema | None,
        record_name: str | None,
        *,
        subject_name_strategy: str | SubjectName = "topic",
        auto_register_schemas: bool | None = None,
        use_latest_version: bool = False,
        use_schema_id: int | None = None,
        normalize_schemas: bool = False,
        latest_cache_ttl_sec: float | None = None,
        framing: str = "prefix",
        to_dict: Callable[[Value_contra], Any] | None = None,
    ) -> None:
        if not isinstance(registry, SchemaRegistry):
            raise ConfigError(f"registry is a {type(registry).__name__}; a SchemaRegistry is needed")
        if framing not in ("prefix", "header"):
            raise ConfigError(f"framing={framing!r} is not known; allowed: prefix, header")
        for name, flag in (
            ("auto_register_schemas", False if auto_register_schemas is None else auto_register_schemas),
            ("use_latest_version", use_latest_version),
            ("normalize_schemas", normalize_schemas),
        ):
            if not isinstance(flag, bool):  # "false" would be true
                raise ConfigError(f"{name}={flag!r}: True or False is needed")
        _check_id(use_schema_id)
        fetches = use_latest_version or use_schema_id is not None
        if use_latest_version and use_schema_id is not None:
            raise ConfigError("use_latest_version and use_schema_id contradict each other")
        if fetches and auto_register_schemas:
            raise ConfigError(
                "auto_register_schemas contradicts "
                + ("use_latest_version" if use_latest_version else "use_schema_id")
                + ": one writes by the serializer's own schema, the other by one of the registry"
            )
        if schema is None and not fetches:
            raise ConfigError("a schema is needed, or use_latest_version, or use_schema_id")
        if latest_cache_ttl_sec is not None and not use_latest_version:
            raise ConfigError("latest_cache_ttl_sec needs use_latest_version: other schemas never change")
        if not _is_age(latest_cache_ttl_sec):
            raise ConfigError(
                f"latest_cache_ttl_sec is {latest_cache_ttl_sec!r}; seconds from 0 on, or None, are needed"
            )
        if to_dict is not None and not takes(to_dict, 1):
            raise ConfigError("to_dict has to be a function of the value alone")
        self.registry = registry
        self._schema = schema
        self._subject_name = subject_name(subject_name_strategy, record_name)
        self._record_name = record_name
        self._auto_register = not fetches if auto_register_schemas is None else auto_register_schemas
        self._use_latest, self._use_id = use_latest_version, use_schema_id
        self._fetches = fetches
        self._normalize = normalize_schemas
        self._ttl_s = math.inf if latest_cache_ttl_sec is None else latest_cache_ttl_sec
        self._in_header = framing == "header"
        self.to_dict = to_dict
        self._by_subject: dict[str, Known] = {}
        self._by_topic: tuple[dict[str, Known], dict[str, Known]] = ({}, {})  # of values, of keys
        self._encoders: dict[tuple[str | None, Schema], Encoder] = {}  # what a schema refers to depends on its context
        self._uses: set[bool] = set()

    # --- what callers use ---------------------------------------------------------------------------------------------

    def bind(self, *, is_key: bool, max_block_ms: int) -> BoundSchemaSerializer[Value_contra]:
        """The serializer for one producer; called by the producer."""
        self._uses.add(is_key)
        return BoundSchemaSerializer(self, is_key=is_key, max_block_ms=max_block_ms)

    async def prepare(self, *topics: str, timeout_ms: int = DEFAULT_LIMIT_MS) -> None:
        """Look up the schemas of topics now, so that no record has to wait for them and ``submit_nowait`` succeeds.

        For keys, values or both, as producers use it; for values if no producer uses it yet.

        Raises:
            SchemaRegistryError: the registry refused, or has no such schema.
            SchemaRegistryUnavailableError: it gave no answer within ``timeout_ms``.
        """
        for topic in topics:
            for is_key in sorted(self._uses) or (False,):
                await BoundSchemaSerializer(self, is_key=is_key, max_block_ms=timeout_ms).prepare(topic)

    async def to_bytes(self, topic: str, value: Value_contra | None, *, is_key: bool = False) -> bytes | None:
        """The bytes a record in this topic would have; for use without a producer.

        Raises:
            SchemaValidationError: the value does not fit the schema.
            SchemaRegistryError: as for prepare().
        """
        if value is None:
            return None
        bound = BoundSchemaSerializer(self, is_key=is_key, max_block_ms=DEFAULT_LIMIT_MS)
        await bound.prepare(topic)
        return bound.serialize_nowait(topic, [], value)

    # --- for the formats ----------------------------------------------------------------------------------------------

    @abstractmethod
    async def _compile(self, client: Client, schema: Schema, subject: str) -> Encoder:
        """The encoder of a subject's schema, with its references."""

    async def _own_schema(self, client: Client, subject: str) -> Schema:
        """The schema given to the serializer, in the form sent to the registry for a subject."""
        assert self._schema is not None
        return self._schema

    async def _message_path(self, schema: Schema, schema_id: int) -> Sequence[int]:
        """For Protobuf: the message's path in the file that a schema is; empty for other formats."""
        return ()

    # --- looking up ---------------------------------------------------------------------------------------------------

    async def look_up(self, subject: str, limit_ms: int) -> Known:
        """Ask the registry, and keep the answer."""

        async def request(client: Client) -> tuple[int, str | None, Encoder, Sequence[int]]:
            schema_id, guid, schema = await self._find(client, subject)
            if not framing.is_id(schema_id):
                raise LookupFailedError("its answer has no id of a schema: is it a schema registry, or a proxy?")
            self._check(schema, schema_id)
            if not self._fetches:
                # The registry adds rules to what it is given: those of the subject's last version, or of its config.
                self._check(await _stored(client, subject, schema_id), schema_id)
            place = context(subject), schema
            encoder = self._encoders.get(place)
            if encoder is None:
                encoder = self._encoders[place] = await self._compile(client, schema, subject)
            return schema_id, guid, encoder, await self._message_path(schema, schema_id)

        schema_id, guid, encoder, path = await self.registry.ask(request, limit_ms / 1000)
        prefix, header = b"", None
        if not self._in_header:
            prefix = framing.prefix(schema_id, path)
        elif guid is not None:
            if not framing.is_guid(guid):
                raise LookupFailedError(f"its answer has no GUID of a schema, but {excerpt(repr(guid))}")
            header = framing.header(guid, path)
        else:
            raise LookupFailedError(
                f"it gave no GUID for schema {schema_id}, which framing='header' needs; use framing='prefix', or a "
                "registry that has GUIDs"
            )
        writing = encoder, prefix, header
        known = self._by_subject.get(subject)
        if known is None:
            known = Known(subject, writing)
        known.writing = writing
        known.stale_at = time.monotonic() + self._ttl_s
        self._by_subject[subject] = known
        return known

    async def _find(self, client: Client, subject: str) -> tuple[int, str | None, Schema]:
        """Id, GUID and schema to write with."""
        if self._use_id is not None:
            schema = await _stored(client, subject, self._use_id)
            guid = (await client.lookup_schema(subject, schema, deleted=True)).guid if self._in_header else None
            return self._use_id, guid, schema
        if self._use_latest:
            # The client caches versions by number, but asks for "latest" again.
            found = await client.get_version(subject, "latest")
            return found.schema_id, found.guid, found.schema
        schema = await self._own_schema(client, subject)
        ask = client.register_schema_full_response if self._auto_register else client.lookup_schema
        found = await ask(subject, schema, normalize_schemas=self._normalize)
        return found.schema_id, found.guid, schema

    def _check(self, schema: Schema, schema_id: int) -> None:
        found = schema.schema_type or "AVRO"
        if found != self.schema_type:
            raise LookupFailedError(f"schema {schema_id} is of type {found}; this serializer writes {self.schema_type}")
        rules = schema.rule_set
        names = [] if rules is None else [
            rule.name
            for rule in [*(rules.domain_rules or ()), *(rules.encoding_rules or ())]
            if rule.mode in _WRITING and not rule.disabled
        ]  # fmt: skip
        if names:
            # Skipping a rule that encrypts a field would be worse than not writing.
            raise LookupFailedError(
                f"schema {schema_id} has rules for writers ({', '.join(map(str, names))}), which this serializer does "
                "not execute; use confluent-kafka's own serializer for it"
            )


async def _stored(client: Client, subject: str, schema_id: int) -> Schema:
    """The schema that the registry has under an id."""
    # By the context, not the subject: for a subject, the client may answer with the schema that it once sent itself.
    schema: Schema = await client.get_schema(schema_id, context(subject))
    return schema


def _check_id(schema_id: int | None) -> None:
    if schema_id is not None and not framing.is_id(schema_id):
        raise ConfigError(
            f"use_schema_id is {schema_id!r}; a schema's id, a number from 0 to {framing.MAX_ID}, is needed"
        )


def _is_age(seconds: float | None) -> bool:
    """Whether it is a valid age in seconds, or None."""
    return seconds is None or (isinstance(seconds, (int, float)) and seconds >= 0)  # False for NaN


class BoundSchemaSerializer(Generic[Value_contra]):
    """A SchemaSerializer for the keys or the values of one producer."""

    __slots__ = ("__weakref__", "_header_name", "_is_key", "_known", "_limit_ms", "_serializer", "adds_headers")

    def __init__(self, serializer: SchemaSerializer[Value_contra], *, is_key: bool, max_block_ms: int) -> None:
        self._serializer = serializer
        self._is_key = is_key
        self._limit_ms = max_block_ms
        self._known = serializer._by_topic[is_key]
        self._header_name = framing.header_name(is_key)
        self.adds_headers: bool = serializer._in_header

    def serialize(self, topic: str, headers: Any, value: Value_contra) -> bytes | Awaitable[bytes]:
        """The bytes at once if the schema is known, else an awaitable."""
        known = self._known.get(topic)
        if known is None:
            return self._serialize_later(topic, headers, value)
        return self._encode(known, topic, headers, value)

    def serialize_nowait(self, topic: str, headers: Any, value: Value_contra) -> bytes:
        """The bytes if the schema is known; else its lookup begins.

        Raises:
            SerializerNotReadyError: the schema is not known yet.
            SchemaRegistryError: its last lookup failed, less than a second ago.
        """
        known = self._known.get(topic) or self._known_by_subject(topic)
        if known is not None:
            return self._encode(known, topic, headers, value)
        subject = self._subject(topic)
        registry = self._serializer.registry
        failure = registry.lookups.failure(self._key(subject))
        if failure is not None:
            raise self._error(failure, topic, subject)
        registry.use(self)
        registry.lookups.begin(self._key(subject), lambda: self._serializer.look_up(subject, self._limit_ms))
        raise SerializerNotReadyError(
            f"the schema of subject {subject!r} for topic {topic!r} is not known yet, its lookup has begun; "
            f"await serializer.prepare({topic!r}) once beforehand, or await submit() or send(), which wait for it"
        )

    async def close(self) -> None:
        """The producer has closed."""
        await self._serializer.registry.release(self)

    async def prepare(self, topic: str) -> Known:
        """The state of a topic's subject, looked up if it is not known.

        Raises:
            SchemaRegistryError: the lookup failed.
        """
        known = self._known.get(topic) or self._known_by_subject(topic)
        if known is not None:
            return known
        subject = self._subject(topic)
        registry, limit_ms = self._serializer.registry, self._limit_ms
        registry.use(self)
        problem: Exception
        try:
            found: Known | None = await registry.lookups.wait(
                self._key(subject),
                lambda: self._serializer.look_up(subject, limit_ms),
                limit_ms / 1000 + GRACE_S,
            )
        except (LookupFailedError, LookupsClosedError) as error:
            problem = error.with_traceback(None)  # it is raised for each record, and would keep the frames of all
        else:
            if found is not None:
                self._known[topic] = found
                return found
            problem = LookupFailedError(f"no answer within max_block_ms={limit_ms}", unavailable=True)
        raise self._error(problem, topic, subject)

    async def _serialize_later(self, topic: str, headers: Any, value: Any) -> bytes:
        return self._encode(await self.prepare(topic), topic, headers, value)

    def _encode(self, known: Known, topic: str, headers: Any, value: Any) -> bytes:
        serializer = self._serializer
        if known.stale_at is not math.inf and known.stale_at <= time.monotonic():
            self._refresh(known)
        if serializer.to_dict is not None:
            value = serializer.to_dict(value)
        encoder, prefix, header = known.writing
        try:
            encoded = encoder.encode(prefix, value)
        except Exception as error:
            problems = tuple(encoder.problems(value, error))[:MAX_PROBLEMS]
        else:
            if header is not None:
                # A record that is passed on may have the header of its old schema: some readers go by the first one.
                headers[:] = [each for each in headers if each[0] != self._header_name]
                headers.append((self._header_name, header))
            return encoded
        # Raised outside the except block, so that the library's error, which may quote the value, is not its context.
        told = "; ".join(f"{path}: {problem}" if path else problem for path, problem in problems)
        raise SchemaValidationError(
            f"the {'key' if self._is_key else 'value'} of a record for topic {topic!r} does not fit the "
            f"{serializer.schema_type} schema of subject {known.subject!r}: {told}",
            topic=topic,
            subject=known.subject,
            problems=problems,
        )

    def _refresh(self, known: Known) -> None:
        """Look for a newer version in the background; the old one stays in use until one is found."""
        serializer = self._serializer
        known.stale_at = time.monotonic() + serializer._ttl_s
        serializer.registry.use(self)
        serializer.registry.lookups.begin(self._key(known.subject), lambda: self._look_for_newer(known.subject))

    async def _look_for_newer(self, subject: str) -> Known:
        try:
            return await self._serializer.look_up(subject, self._limit_ms)
        except Exception as error:
            url = self._serializer.registry.url
            logger.warning("schema registry %s: no newer version of subject %r was found: %s", url, subject, str(error))
            raise

    def _known_by_subject(self, topic: str) -> Known | None:
        known = self._serializer._by_subject.get(self._subject(topic))
        if known is not None:
            self._known[topic] = known
        return known

    def _subject(self, topic: str) -> str:
        subject: object = self._serializer._subject_name(topic, self._is_key, self._serializer._record_name)
        if isinstance(subject, str) and subject:
            return subject
        given = repr(subject) if isinstance(subject, str) else f"a {type(subject).__name__}"
        raise SerializationError(
            f"subject_name_strategy gave {given} for topic {topic!r}; the name of a subject is needed"
        )

    def _key(self, subject: str) -> Hashable:
        # With the limit: that a lookup was given up after half a second says nothing to who can wait for a minute.
        return self._serializer, subject, self._limit_ms

    def _error(self, failure: BaseException, topic: str, subject: str) -> SchemaRegistryError:
        """A record's own error for a failure shared by many."""
        where = f"schema registry {self._serializer.registry.url}, subject {subject!r} for topic {topic!r}: "
        if not isinstance(failure, LookupFailedError):
            return SchemaRegistryUnavailableError(where + str(failure), topic=topic, subject=subject)
        cls = SchemaRegistryUnavailableError if failure.unavailable else SchemaRegistryError
        error = cls(
            where + failure.summary,
            topic=topic,
            subject=subject,
            status=failure.status,
            error_code=failure.error_code,
        )
        error.__cause__ = failure.__cause__
        return error
