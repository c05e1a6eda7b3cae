"""RegistryStore: the state of a schema registry: schemas by id, the versions of each subject, and configs."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

LEVELS = ("NONE", "BACKWARD", "FORWARD", "FULL", "BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE")
DEFAULT_CONFIG = {"compatibilityLevel": "BACKWARD"}
_CONTEXT = re.compile(r":\.[^:]+:")


class RegistryRefusal(Exception):
    """An error answer: HTTP status, the registry's own error code, and its message."""

    def __init__(self, status: int, error_code: int, message: str) -> None:
        super().__init__(message)
        self.status: int = status
        self.error_code: int = error_code
        self.message: str = message


@dataclass(frozen=True)
class StoredSchema:
    """One schema, shared by all subjects that have it."""

    schema_id: int
    text: str
    schema_type: str = "AVRO"
    references: tuple[tuple[str, str, int], ...] = ()
    """(name, subject, version) of each."""
    extras: dict[str, Any] = field(default_factory=dict, compare=False)
    """Metadata and rules, as received."""

    @property
    def guid(self) -> str:
        """A name for the schema, the same in all registries."""
        content = repr((self.schema_type, self.text, self.references)).encode()
        return str(uuid.UUID(bytes=hashlib.md5(content, usedforsecurity=False).digest()))

    def described(self) -> dict[str, Any]:
        """Its form in answers."""
        references = [dict(zip(("name", "subject", "version"), each, strict=True)) for each in self.references]
        shown: dict[str, Any] = {"id": self.schema_id, "guid": self.guid, "schema": self.text, **self.extras}
        if self.schema_type != "AVRO":
            shown["schemaType"] = self.schema_type
        return {**shown, "references": references} if references else shown


class RegistryStore:
    """Subjects and schemas, by the rules of Confluent's registry that producers and consumers see."""

    def __init__(self) -> None:
        self._schemas: dict[int, StoredSchema] = {}
        self._last_id = 0
        self._subjects: dict[str, dict[int, StoredSchema]] = {}
        self._deleted: set[tuple[str, int]] = set()
        """Soft-deleted versions."""
        self._configs: dict[str | None, dict[str, Any]] = {None: dict(DEFAULT_CONFIG)}
        """By subject; None has the global one."""

    def register(self, subject: str, body: dict[str, Any], *, normalize: bool = False) -> dict[str, Any]:
        """Give a schema its id and the subject's next version, or find both."""
        stored = self._find(subject, body, normalize=normalize) or self._make(subject, body)
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
        wanted = self._find(subject, body, normalize=normalize)
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

    def delete(self, subject: str, *, permanent: bool) -> list[int]:
        """Soft-delete a subject's versions, whose ids readers still find; or permanently delete soft-deleted ones."""
        there = self.versions(subject, deleted=True)
        chosen = there if permanent else [each for each in there if (subject, each) not in self._deleted]
        if not chosen:
            raise RegistryRefusal(
                404, 40404, f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently"
            )
        for version in chosen:
            self._check_unreferenced(subject, version)
            if permanent and (subject, version) not in self._deleted:
                raise RegistryRefusal(
                    404, 40405, f"Subject '{subject}' was not deleted first before being permanently deleted"
                )
        self._take(subject, chosen, permanent=permanent)
        return chosen

    def delete_version(self, subject: str, version: str, *, permanent: bool) -> int:
        """The same for one version, by its number or as ``latest``."""
        number = None if version in ("latest", "-1") else _number(version)
        there = self.versions(subject, deleted=True)
        if number is None:
            number = max((each for each in there if (subject, each) not in self._deleted), default=there[-1])
        if number not in there:
            raise RegistryRefusal(404, 40402, f"Version {number} not found.")
        is_deleted = (subject, number) in self._deleted
        if is_deleted and not permanent:
            raise RegistryRefusal(
                404,
                40406,
                f"Subject '{subject}' Version {version} was soft deleted.Set permanent=true to delete permanently",
            )
        self._check_unreferenced(subject, number)
        if permanent and not is_deleted:
            raise RegistryRefusal(
                404,
                40407,
                f"Subject '{subject}' Version {number} was not deleted first before being permanently deleted",
            )
        self._take(subject, [number], permanent=permanent)
        return number

    def _check_unreferenced(self, subject: str, version: int) -> None:
        for name, versions in self._subjects.items():
            for number, stored in versions.items():
                refers = any((_beside(name, to), at) == (subject, version) for _, to, at in stored.references)
                if refers and (name, number) not in self._deleted:
                    key = f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}"
                    raise RegistryRefusal(422, 42206, f"One or more references exist to the schema {key}.")

    def _take(self, subject: str, numbers: Sequence[int], *, permanent: bool) -> None:
        """Delete versions, softly or permanently; a schema without versions loses its id."""
        if not permanent:
            self._deleted.update((subject, number) for number in numbers)
            if subject not in self.subjects():
                self._configs.pop(subject, None)
            return
        for number in numbers:
            stored = self._subjects[subject].pop(number)
            self._deleted.remove((subject, number))
            if not any(stored in versions.values() for versions in self._subjects.values()):
                del self._schemas[stored.schema_id]
        if not self._subjects[subject]:
            del self._subjects[subject]

    def by_id(self, schema_id: str) -> dict[str, Any]:
        """A schema by its id."""
        return self._by_id(schema_id).described()

    def versions_of(self, schema_id: str, subject: str | None, *, deleted: bool) -> list[dict[str, Any]]:
        """The last version with a schema, for each subject that has it.

        Args:
            subject: the only one that counts; None for all.
        """
        stored = self._by_id(schema_id)
        found = []
        for name, versions in sorted(self._subjects.items()):
            last = max((number for number, each in versions.items() if each == stored), default=None)
            if last is None or subject not in (None, name) or ((name, last) in self._deleted and not deleted):
                continue
            found.append({"subject": name, "version": last})
        return found

    def _by_id(self, schema_id: str) -> StoredSchema:
        number = _number(schema_id)
        if number not in self._schemas:
            raise RegistryRefusal(404, 40403, f"Schema {number} not found")
        return self._schemas[number]

    def by_guid(self, guid: str) -> dict[str, Any]:
        """A schema by its GUID."""
        for stored in self._schemas.values():
            if stored.guid == guid:
                return stored.described()
        raise RegistryRefusal(404, 40403, "Schema not found")

    # --- configs ------------------------------------------------------------------------------------------------------

    def config(self, subject: str | None, *, default_to_global: bool) -> dict[str, Any]:
        """The config of a subject; None for the global one."""
        found = self._configs.get(subject)
        if found is None and default_to_global:
            found = self._configs[None]
        if found is None:
            raise RegistryRefusal(
                404, 40408, f"Subject '{subject}' does not have subject-level compatibility configured"
            )
        return found

    def set_config(self, subject: str | None, body: dict[str, Any]) -> dict[str, Any]:
        """Update a config; fields not given keep their values."""
        given = {name: value for name, value in body.items() if value is not None}
        level = given.pop("compatibility", None)
        if level is not None:
            given["compatibilityLevel"] = _level(level)
        self._configs[subject] = {**self._configs.get(subject, {}), **given}
        return body

    def delete_config(self, subject: str | None) -> dict[str, Any]:
        """Remove the config of a subject, or the global one; returns it."""
        if subject not in self._configs:
            raise RegistryRefusal(404, 40401, f"Subject '{subject}' not found.")
        deleted = self._configs.pop(subject)
        self._configs.setdefault(None, dict(DEFAULT_CONFIG))
        return deleted

    # --- schemas ------------------------------------------------------------------------------------------------------

    def _shown(self, subject: str, version: int) -> dict[str, Any]:
        return {"subject": subject, "version": version, **self._subjects[subject][version].described()}

    def _find(self, subject: str, body: dict[str, Any], *, normalize: bool) -> StoredSchema | None:
        """The stored schema equal to the one in a request."""
        schema_type, text, references = self._read(subject, body)
        for stored in self._schemas.values():
            if (stored.schema_type, stored.references) != (schema_type, references):
                continue
            if _canonical(stored.text, sort=normalize) == _canonical(text, sort=normalize):
                return stored
        return None

    def _make(self, subject: str, body: dict[str, Any]) -> StoredSchema:
        schema_type, text, references = self._read(subject, body)
        extras = {name: body[name] for name in ("metadata", "ruleSet") if body.get(name)}
        self._last_id += 1
        stored = StoredSchema(self._last_id, text, schema_type, references, extras)
        self._schemas[stored.schema_id] = stored
        return stored

    def _read(self, subject: str, body: dict[str, Any]) -> tuple[str, str, tuple[tuple[str, str, int], ...]]:
        """Type, text and references of a request's schema."""
        schema_type = body.get("schemaType") or "AVRO"
        text = _checked(schema_type, body.get("schema"))
        return schema_type, text, self._references(subject, body.get("references") or ())

    def _references(self, subject: str, references: Any) -> tuple[tuple[str, str, int], ...]:
        try:
            named = tuple((str(each["name"]), str(each["subject"]), int(each["version"])) for each in references)
        except (KeyError, TypeError, ValueError):
            raise RegistryRefusal(422, 42201, "Invalid schema references: each has name, subject, version") from None
        for _, to, version in named:
            place = _beside(subject, to)
            if version not in self._subjects.get(place, {}):
                raise RegistryRefusal(422, 42201, f"No schema reference found for subject {place} version {version}")
        return named


def _beside(subject: str, other: str) -> str:
    """The subject that a schema of the first one means by a name: without a context, it is one of the same context."""
    own = _CONTEXT.match(subject)
    return other if own is None or _CONTEXT.match(other) else own[0] + other


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


def _level(name: Any) -> str:
    """A compatibility level; case does not matter."""
    level = name.upper() if isinstance(name, str) else ""
    if level not in LEVELS:
        *others, last = (each.lower() for each in LEVELS)
        raise RegistryRefusal(
            422, 42203, f"Invalid compatibility level. Valid values are {', '.join(others)}, and {last}"
        )
    return level
