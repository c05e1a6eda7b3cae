"""The config table as a page of documentation: ``python -m aioproducer.config.docs > docs/configuration.md``."""

from __future__ import annotations

from aioproducer.config.definition import REQUIRED, ConfigDef
from aioproducer.config.table import GROUPS, JVM_ONLY

_INTRODUCTION = """\
# Configuration

<!-- Made from the table in aioproducer/config/table.py by python -m aioproducer.config.docs; change that, not this. -->

`Producer(...)` takes the names below as keyword arguments. They are those of Kafka's Java producer with `_` for `.`;
defaults and ranges are Java's too, unless noted otherwise. Values may be Python values or Java's strings (`"true"`,
`"5"`, `"a:9092,b:9092"`). Times are whole milliseconds, sizes whole bytes. Type checkers and editors know each name and
what it takes; for their sake, annotate a dict that you pass with `**` as `ProducerConfigs` or `dict[str, Any]`.
`from_config` takes any mapping.

`Producer.from_config(mapping)` takes Java's own names with dots, `Producer.from_properties(path)` a Java `.properties`
file. Both accept `serializer.encoding`, `key.serializer.encoding` and `value.serializer.encoding` if the value is
UTF-8, which is how strings are always encoded. An unknown name, a value out of range, and values that contradict each
other raise `ConfigError`.

Rules that connect several configs:

- If `enable_idempotence` is not set, it is turned off (with a log line) when `acks` is not `all` or `retries` is 0;
  with `enable_idempotence=True` such a value is an error. With idempotence `max_in_flight_requests_per_connection` is
  never above 5, and `transactional_id` needs idempotence.
- `delivery_timeout_ms` must be at least `linger_ms` + `request_timeout_ms`: if it is not set, it is raised to that
  (with a log line); a lower value is an error.
- `reconnect_backoff_ms` without `reconnect_backoff_max_ms` is a constant wait.
- A back-off or setup timeout above its own maximum is replaced by the maximum (with a log line).
"""


def configuration_page() -> str:
    """The whole of ``docs/configuration.md``."""
    parts = [_INTRODUCTION]
    for title, definitions in GROUPS.items():
        parts += [f"\n## {title}\n\n", _table(definitions)]
    parts += [
        "\n## Java's configs that have no meaning here\n\n",
        "`from_properties` and the Spark sink leave these out with one log line; elsewhere they are refused.\n\n",
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
