"""The sdist has the repository's files, and a wheel built from it works in an empty environment."""

from __future__ import annotations

import ast
import os
import re
import runpy
import shutil
import site
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
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built in an environment with only the build requirements of pyproject.toml."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--sdist", "--outdir", str(folder), str(ROOT))
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the sdist, in such an environment."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(sdist))
    (built,) = folder.iterdir()
    return built


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a repository")
def test_the_sdist_holds_the_repository(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    tracked = set(run("git", "ls-files").splitlines()) - NOT_SHIPPED
    assert len(tracked) > 300
    assert not sorted(tracked - held)
    assert not [name for name in held if name.endswith((".so", ".pyc")) or name.startswith((".venv", "build", "out"))]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a repository")
def test_a_wheel_gets_every_file_of_the_package(sdist: Path, tmp_path: Path) -> None:
    """From what the sdist holds; the compiled modules come on top."""
    run(sys.executable, "-m", "tarfile", "-e", str(sdist), str(tmp_path))
    (unpacked,) = tmp_path.iterdir()
    run(sys.executable, "setup.py", "-q", "build_py", "--build-lib", "packed", cwd=unpacked)
    packed = {path.relative_to(unpacked / "packed") for path in (unpacked / "packed").rglob("*") if path.is_file()}
    tracked = {Path(name) for name in run("git", "ls-files", "aioproducer").splitlines()}
    assert len(tracked) > 300
    assert {path for path in packed if path.suffix != ".pyc"} == {path for path in tracked if path.suffix != ".pyx"}


@pytest.mark.slow
def test_the_wheel_holds_the_package_alone(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert not [name for name in names if not name.startswith(("aioproducer/", "aioproducer-"))]
    cores = {path.stem for path in (ROOT / "aioproducer").glob("_*.pyx")}
    assert {Path(name).name.partition(".")[0] for name in names if name.endswith((".so", ".pyd"))} == cores


IMPORTS = re.compile(r"^(?:from|import) ([\w.]+)", re.MULTILINE)


def seen_from(module: str, seen: set[str]) -> None:
    """Add the module and all that Python code names from there on, as tools that bundle programs find it."""
    folder = ROOT.joinpath(*module.split("."))
    source = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    is_new = module not in seen
    seen.add(module)
    if not is_new or not source.exists():
        return
    for node in ast.walk(ast.parse(source.read_bytes())):
        if isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{name.name}" for name in node.names)]
        else:
            continue
        for name in names:
            seen_from(name, seen)


def test_imports_of_the_compiled_core_are_named_in_python_code() -> None:
    """A bundled program misses modules that only compiled code imports."""
    seen: set[str] = set()
    seen_from("aioproducer", seen)
    cores = sorted((ROOT / "aioproducer").glob("_*.pyx"))
    assert len(cores) > 10
    needed = {f"aioproducer.{core.stem}" for core in cores}
    for core in cores:
        needed |= {name for name in IMPORTS.findall(core.read_text()) if not name.startswith("aioproducer.")}
    at_compile_time = {name for name in needed if name.partition(".")[0] in ("cpython", "cython", "libc")}
    assert not needed - seen - at_compile_time - sys.stdlib_module_names


def import_in(folder: Path) -> str:
    """What Python says about an import of the package in this folder."""
    # Without the start-up files of site-packages, where an editable installation would find the compiled modules.
    code = f"import sys; sys.path += {site.getsitepackages()!r}; import aioproducer"
    command = [sys.executable, "-S", "-c", code]
    finished = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
    )  # fmt: skip
    return finished.stderr


def test_an_import_of_sources_that_are_not_compiled_says_what_to_do(tmp_path: Path) -> None:
    """Python looks for modules in its folder first, which right after an installation is often the checkout."""
    (tmp_path / "aioproducer").mkdir()
    shutil.copy(ROOT / "aioproducer" / "__init__.py", tmp_path / "aioproducer")
    said = import_in(tmp_path)
    where = tmp_path / "aioproducer"
    assert f"ImportError: the compiled core of aioproducer can't be imported from {where}. If that" in said
    assert "pip install -e ." in said


def test_a_compiled_module_that_is_there_says_itself_why_it_can_not_be_imported(tmp_path: Path) -> None:
    """As in a second interpreter of the process: nothing is gained by another folder, or by building it again."""
    (tmp_path / "aioproducer").mkdir()
    shutil.copy(ROOT / "aioproducer" / "__init__.py", tmp_path / "aioproducer")
    (tmp_path / "aioproducer" / "_arrow_columns.py").write_text("raise ImportError('only one interpreter may load it')")
    assert import_in(tmp_path).endswith("\nImportError: only one interpreter may load it\n")


@pytest.mark.parametrize(("chosen", "processors", "jobs"), [("", 64, 4), ("", 2, 2), ("1", 64, 1), ("12", 64, 12)])
def test_a_build_runs_few_compilers_at_once(
    monkeypatch: pytest.MonkeyPatch, chosen: str, processors: int, jobs: int
) -> None:
    monkeypatch.setenv("MAX_JOBS", chosen)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(processors)), raising=False)
    assert runpy.run_path(str(ROOT / "setup.py"))["job_count"]() == jobs


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_a_demo_installs_only_what_it_needs(tmp_path: Path) -> None:
    """The first thing that a visitor tries need not wait for linters, browsers and Spark."""
    venv = f"VENV={tmp_path}"
    assert re.findall(r"install .*", run("make", "-n", "demo", venv)) == ['install --quiet -e ".[demo]"']
    assert re.findall(r"install .*", run("make", "-n", "demo-spark", venv)) == ['install --quiet -e ".[demo,audit]"']
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    (tmp_path / ".installed").touch()
    for demo in ("demo", "demo-spark"):
        assert "install " not in run("make", "-n", demo, venv)


@pytest.mark.slow
def test_the_wheel_works_in_an_environment_of_its_own(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv"))
    python = str(tmp_path / "venv" / ("Scripts" if sys.platform == "win32" else "bin") / "python")
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", str(wheel))
    assert run(python, "-I", str(ROOT / "tests" / "smoke.py"), cwd=tmp_path).endswith("all is well\n")
