"""The sdist has the repository's files, and a wheel built from it works in an empty environment."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PATIENCE_S = 600.0
NOT_SHIPPED = {".gitignore"}


def run(*command: str, cwd: Path = ROOT) -> str:
    finished = subprocess.run(
        command,
        cwd=cwd,
        # Otherwise pip would find the package in the caller's path, and install nothing.
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout[-5_000:] + finished.stderr[-5_000:]
    return finished.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An sdist, and the wheel built from it, in an environment with only the build requirements of pyproject.toml."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT))
    return folder


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a repository")
def test_the_sdist_holds_the_repository(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    tracked = set(run("git", "ls-files").splitlines()) - NOT_SHIPPED
    assert len(tracked) > 300
    assert not sorted(tracked - held)
    assert not [name for name in held if name.endswith((".so", ".pyc")) or name.startswith((".venv", "build", "out"))]


def test_the_wheel_holds_the_package_alone(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert not [name for name in names if not name.startswith(("aioproducer/", "aioproducer-"))]
    cores = {path.stem for path in (ROOT / "aioproducer").glob("_*.pyx")}
    assert {Path(name).name.partition(".")[0] for name in names if name.endswith((".so", ".pyd"))} == cores


def test_the_wheel_works_in_an_environment_of_its_own(dist: Path, tmp_path: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv"))
    python = str(tmp_path / "venv" / ("Scripts" if sys.platform == "win32" else "bin") / "python")
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", str(wheel))
    assert run(python, "-I", str(ROOT / "tests" / "smoke.py"), cwd=tmp_path).endswith("all is well\n")
