"""RegistryStore: what a schema registry remembers: schemas by id, and the versions of each subject."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


class RegistryRefusal(Exception):
    """An answer that is none: HTTP status, the registry's own number, and its words."""

    def __init__(self, status: int, error_code: int, message: str) -> None:
        super().__init__(message)
        self.status: int = status
        self.error_code: int = error_code
        self.message: str = message


@dataclass(frozen=True)
class StoredSchema:
    """One schema; the same under all subjects that have it."""

    schema_id: int
    text: str
    schema_type: str = "AVRO"
    references: tuple[tuple[str, str, int], ...] = ()
    """(name, subject, version) of each."""
    extras: dict[str, Any] = field(default_factory=dict, compare=False)
    """Metadata and rules, as they were sent."""

    @property
    def guid(self) -> str:
        """A name for the schema that is the same in all registries."""
        content = repr((self.schema_type, self.text, self.references)).encode()
        return str(uuid.UUID(bytes=hashlib.md5(content, usedforsecurity=False).digest()))

    def described(self) -> dict[str, Any]:
        """As answers show it."""
        references = [dict(zip(("name", "subject", "version"), each, strict=True)) for each in self.references]
        shown: dict[str, Any] = {"id": self.schema_id, "guid": self.guid, "schema": self.text, **self.extras}
        if self.schema_type != "AVRO":
            shown["schemaType"] = self.schema_type
        return {**shown, "references": references} if references else shown


class RegistryStore:
    """Subjects and schemas, by the rules of Confluent's registry as far as producers and consumers see them."""

    def __init__(self) -> None:
        self._schemas: list[StoredSchema] = []
        self._subjects: dict[str, dict[int, StoredSchema]] = {}
        self._deleted: set[tuple[str, int]] = set()

    def register(self, subject: str, body: dict[str, Any], *, normalize: bool = False) -> dict[str, Any]:
        """Give a schema its id and the next version of the subject, or find both."""
        stored = self._find(body, normalize=normalize) or self._make(body)
        versions = self._subjects.setdefault(subject, {})
        for version, present in versions.items():
            if present == stored and (subject, version) not in self._deleted:
                return self._shown(subject, version)
        version = max(versions, default=0) + 1
        versions[version] = stored
        return self._shown(subject, version)

    def look_up(self, subject: str, body: dict[str, Any], *, normalize: bool, deleted: bool) -> dict[str, Any]:
        """The version of a subject that has this schema."""
        versions = self.versions(subject, deleted=deleted)
        wanted = self._find(body, normalize=normalize)
        for version in reversed(versions):
            if self._subjects[subject][version] == wanted:
                return self._shown(subject, version)
        raise RegistryRefusal(404, 40403, "Schema not found")

    def version(self, subject: str, version: str, *, deleted: bool = False) -> dict[str, Any]:
        """One version, by its number or as ``latest``."""
        versions = self.versions(subject, deleted=deleted)
        number = versions[-1] if version in ("latest", "-1") else _number(version)
        if number not in versions:
            raise RegistryRefusal(404, 40402, f"Version {number} not found.")
        return self._shown(subject, number)

    def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """The numbers of a subject's versions."""
        present = self._subjects.get(subject, {})
        numbers = [each for each in present if deleted or (subject, each) not in self._deleted]
        if not numbers:
            raise RegistryRefusal(404, 40401, f"Subject '{subject}' not found.")
        return numbers

    def subjects(self) -> list[str]:
        """The names of all subjects that have a version."""
        return sorted(
            subject
            for subject, versions in self._subjects.items()
            if any((subject, version) not in self._deleted for version in versions)
        )

    def delete(self, subject: str) -> list[int]:
        """Take a subject's versions out of sight; readers of their ids still find them."""
        versions = self.versions(subject)
        self._deleted.update((subject, version) for version in versions)
        return versions

    def by_id(self, schema_id: str) -> dict[str, Any]:
        """A schema by its id."""
        number = _number(schema_id)
        if not 1 <= number <= len(self._schemas):
            raise RegistryRefusal(404, 40403, f"Schema {number} not found")
        return self._schemas[number - 1].described()

    def by_guid(self, guid: str) -> dict[str, Any]:
        """A schema by its GUID."""
        for stored in self._schemas:
            if stored.guid == guid:
                return stored.described()
        raise RegistryRefusal(404, 40403, "Schema not found")

    def _shown(self, subject: str, version: int) -> dict[str, Any]:
        return {"subject": subject, "version": version, **self._subjects[subject][version].described()}

    def _find(self, body: dict[str, Any], *, normalize: bool) -> StoredSchema | None:
        """The stored schema that is the one of a request."""
        schema_type, text, references = self._read(body)
        for stored in self._schemas:
            if (stored.schema_type, stored.references) != (schema_type, references):
                continue
            if _canonical(stored.text, sort=normalize) == _canonical(text, sort=normalize):
                return stored
        return None

    def _make(self, body: dict[str, Any]) -> StoredSchema:
        schema_type, text, references = self._read(body)
        extras = {name: body[name] for name in ("metadata", "ruleSet") if body.get(name)}
        stored = StoredSchema(len(self._schemas) + 1, text, schema_type, references, extras)
        self._schemas.append(stored)
        return stored

    def _read(self, body: dict[str, Any]) -> tuple[str, str, tuple[tuple[str, str, int], ...]]:
        """Type, text and references of a request's schema."""
        schema_type = body.get("schemaType") or "AVRO"
        return schema_type, _checked(schema_type, body.get("schema")), self._references(body.get("references") or ())

    def _references(self, references: Sequence[dict[str, Any]]) -> tuple[tuple[str, str, int], ...]:
        named = tuple((each["name"], each["subject"], int(each["version"])) for each in references)
        for _, subject, version in named:
            if version not in self._subjects.get(subject, {}):
                raise RegistryRefusal(422, 42201, f"No schema reference found for subject {subject} version {version}")
        return named


def _checked(schema_type: str, text: Any) -> str:
    if schema_type not in ("AVRO", "JSON", "PROTOBUF"):
        raise RegistryRefusal(422, 42201, f"Invalid schema type {schema_type}")
    if not isinstance(text, str) or not text:
        raise RegistryRefusal(422, 42201, "Empty schema")
    if schema_type != "PROTOBUF":
        try:
            json.loads(text)
        except ValueError:
            raise RegistryRefusal(422, 42201, f"Invalid schema of type {schema_type}") from None
    return text


def _canonical(text: str, *, sort: bool) -> str:
    try:
        return json.dumps(json.loads(text), sort_keys=sort)
    except ValueError:
        return text


def _number(text: str) -> int:
    if not text.isdecimal():
        raise RegistryRefusal(422, 42202, f"The specified version '{text}' is not a valid version id.")
    return int(text)
