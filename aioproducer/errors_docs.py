"""The error tree as a page of documentation: ``python -m aioproducer.errors_docs > docs/errors.md``."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from aioproducer import errors
from aioproducer.errors import BrokerError, KafkaError

_INTRODUCTION = """\
# Errors

<!-- Made from aioproducer/errors.py and error_codes.py by python -m aioproducer.errors_docs; change that, not this. -->

Every error of the producer is a `KafkaError`. Decide by class, or by these attributes, never by the text:

| Attribute | If True |
|---|---|
| `retriable` | the same call or request may succeed later; the producer has retried as far as it was allowed to |
| `refresh_metadata` | what was known about the cluster is stale; the producer asks again by itself |
| `fatal` | this producer can do nothing more: close it and make a new one |
| `abortable` | the transaction can only be aborted; the producer goes on afterwards |
| `application_recoverable` | start again from what was committed: after an abort, or with a new producer if `fatal` |
| `in_doubt` | the answer itself leaves open whether the records were appended |
| `maybe_written` | (set per instance) nobody knows whether the record is in the log; False: it certainly is not |
| `record_refused` | (set per instance) a broker refused just this record, not others of its batch, and always will |

No flag says whether to send a record again whose time ran out: see `maybe_written`.

`topic` and `partition` of an error of an admitted record say where it was to go; a refused record's error has the
`topic`. `code` is Kafka's number for the error, None for errors that only this client has; `name` is Kafka's name.

<!-- README: Errors -->
"""

_OWN = """
## Errors of the client

| Class | Also a | Flags | Meaning |
|---|---|---|---|
"""

_BROKER = """
## Answers of a broker

One class per code, all subclasses of `BrokerError`, to be imported from `aioproducer.errors`; the flags are those that
hold for a producer. A code that is not in the table becomes an `UnknownServerError` whose message names the number.

| Code | Class | Kafka's name | Flags | Meaning |
|---|---|---|---|---|
"""

_FLAGS = ("retriable", "refresh_metadata", "fatal", "abortable", "application_recoverable", "in_doubt")
_UNSPECIFIC = (KafkaError, BrokerError, BaseException, Exception, object)


def errors_page() -> str:
    """The whole of ``docs/errors.md``."""
    classes = list(dict.fromkeys(_subclasses(KafkaError)))
    own = [cls for cls in classes if cls.code is None]
    codes = sorted((cls for cls in classes if cls.code is not None), key=lambda cls: cls.code or 0)
    rows = [_row(f"`{cls.__name__}`", _bases(cls), _flags(cls), _first_paragraph(cls)) for cls in own]
    answers = [_row(str(cls.code), f"`{cls.__name__}`", f"`{cls.name}`", _flags(cls), _meaning(cls)) for cls in codes]
    return "".join([_INTRODUCTION, _OWN, *rows, _BROKER, *answers])


def _subclasses(cls: type[KafkaError]) -> Iterator[type[KafkaError]]:
    """All subclasses that this package defines, each after its base, in order of definition."""
    for below in cls.__subclasses__():
        if below.__module__ == errors.__name__:
            yield below
            yield from _subclasses(below)


def _bases(cls: type[KafkaError]) -> str:
    return ", ".join(f"`{base.__name__}`" for base in cls.__bases__ if base not in _UNSPECIFIC)


def _flags(cls: type[KafkaError]) -> str:
    return ", ".join(flag for flag in _FLAGS if getattr(cls, flag))


def _first_paragraph(cls: type[KafkaError]) -> str:
    """The docstring up to its arguments, on one line."""
    text = (inspect.getdoc(cls) or "").split("\nArgs:")[0]
    return " ".join(text.replace("``", "`").split())


def _one(name: str) -> str:
    return f"{'an' if name[0] in 'AEIO' else 'a'} `{name}`"


def _meaning(cls: type[KafkaError]) -> str:
    bases = [base for base in cls.__bases__ if base not in _UNSPECIFIC]
    also = f" Also {' and '.join(_one(base.__name__) for base in bases)}." if bases else ""
    meaning: str = getattr(cls, "meaning", "")
    return f"{meaning[:1].upper()}{meaning[1:]}.{also}"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


if __name__ == "__main__":
    print(errors_page(), end="")
