"""An import that needs a package which is not installed says which extra brings it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from aioproducer.extras import missing

IMPORTS = [
    ("aioproducer.integrations.fastapi", "", "fastapi", "fastapi"),
    ("aioproducer.integrations.starlette", "", "starlette", "fastapi"),
    ("aioproducer.integrations.prometheus", "", "prometheus_client", "prometheus"),
    ("aioproducer.integrations.opentelemetry", "", "opentelemetry", "otel"),
    ("aioproducer.integrations.pydantic", "", "pydantic", "pydantic"),
    ("aioproducer.integrations.msgspec", "", "msgspec", "msgspec"),
    ("aioproducer.integrations.orjson", "", "orjson", "orjson"),
    ("aioproducer.integrations.schema_registry", "AvroSerializer", "confluent_kafka", "schema-registry"),
    ("aioproducer.spark", "KafkaDataSource", "pyspark", "spark"),
    ("aioproducer.spark", "local_session('shop')", "pyspark", "spark"),
    ("aioproducer.spark.audit", "", "pyspark", "audit"),
]
WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == "{package}":
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
import {module}
{module}.{part}
"""


@pytest.mark.parametrize(("module", "part", "package", "extra"), IMPORTS)
def test_the_extra_is_named(module: str, part: str, package: str, extra: str) -> None:
    code = WITHOUT.format(module=module, part=part or "__name__", package=package)
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    *_, told = finished.stderr.splitlines()
    assert told.startswith(f"ModuleNotFoundError: {module}")
    # From Python 3.15 on, the interpreter suggests other names.
    assert f" needs {package}: pip install 'aioproducer[{extra}]'" in told


def test_a_missing_module_of_the_package_itself_is_told_as_it_is() -> None:
    error = ModuleNotFoundError("No module named 'aioproducer.nowhere'", name="aioproducer.nowhere")
    assert missing(error, "aioproducer.spark", "spark") is error
