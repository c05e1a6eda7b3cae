"""The config table as a page of documentation: ``python -m aioproducer.config_docs > docs/configuration.md``."""

from __future__ import annotations

from aioproducer.config_def import REQUIRED, ConfigDef
from aioproducer.config_table import GROUPS, JVM_ONLY

_INTRODUCTION = """\
# Configuration

<!-- Made from the table in aioproducer/config_table.py by python -m aioproducer.config_docs; change that, not this. -->

`Producer(...)` takes the names below as keyword arguments. They are those of Kafka's Java producer with `_` for `.`;
defaults and ranges are Java's too, unless a line says otherwise. Values may be Python values or Java's strings
(`"true"`, `"5"`, `"a:9092,b:9092"`). Times are whole milliseconds, sizes whole bytes. Type checkers and editors know
each name and what it takes; for them annotate a dict that you pass on by `**` as `ProducerConfigs`, or as
`dict[str, Any]`. `from_config` takes any mapping.

`Producer.from_config(mapping)` takes Java's own names with dots, `Producer.from_properties(path)` a Java `.properties`
file. Both take `serializer.encoding`, `key.serializer.encoding` and `value.serializer.encoding` if they say UTF-8,
which strings are in any case. A name that is not known, a value out of range, and values that contradict each other
raise `ConfigError`.

Rules that join several configs:

- `enable_idempotence` left out goes off by itself (with a log line) when `acks` is not `all` or `retries` is 0; given
  as true it contradicts them. With idempotence `max_in_flight_requests_per_connection` is at most 5 in any case, and
  `transactional_id` needs idempotence.
- `delivery_timeout_ms` is at least `linger_ms` + `request_timeout_ms`: left out it is raised to that (with a log line),
  given lower it is an error.
- `reconnect_backoff_ms` without `reconnect_backoff_max_ms` is a constant wait.
- A back-off, or a setup timeout, above its own bound is replaced by the bound (with a log line).
"""


def configuration_page() -> str:
    """``docs/configuration.md``, whole."""
    parts = [_INTRODUCTION]
    for title, definitions in GROUPS.items():
        parts += [f"\n## {title}\n\n", _table(definitions)]
    parts += [
        "\n## Java's configs that have no meaning here\n\n",
        "`from_properties` leaves these out with one log line; elsewhere they are refused.\n\n",
        "| Name | Instead |\n|---|---|\n",
    ]
    parts += [f"| `{name.replace('_', '.')}` | {hint} |\n" for name, hint in JVM_ONLY.items()]
    return "".join(parts)


def _table(definitions: tuple[ConfigDef, ...]) -> str:
    rows = "".join(_row(definition) for definition in definitions)
    return f"| Name | Default | Allowed | Importance | Meaning |\n|---|---|---|---|---|\n{rows}"


def _row(definition: ConfigDef) -> str:
    name = f"`{definition.name}`" + (f", `{definition.alias}`" if definition.alias else "")
    meaning = definition.doc
    if not definition.in_java:
        meaning += " Not in Java."
    if definition.departs:
        meaning += f" Departs from Java: {definition.departs}"
    if not definition.supported:
        meaning += " *Not supported yet.*"
    cells = (name, _default(definition), definition.allowed, definition.importance, meaning)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _default(definition: ConfigDef) -> str:
    default = definition.default
    if default is REQUIRED:
        return "required"
    if default is None or default in ("", ()):
        return ""
    if isinstance(default, tuple):
        default = ",".join(default)
    if definition.name == "acks":
        default = "all"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


if __name__ == "__main__":
    print(configuration_page(), end="")
