"""What users' type checkers see: public names are fully typed; programs pass, and mistakes in them are found."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PROGRAMS = sorted(str(path) for folder in ("tests/typing", "examples") for path in (ROOT / folder).glob("*.py"))
PUBLIC = (
    "_admission", "_delivery", "audit", "compat", "consumers", "doctor", "errors", "event_loop", "health",
    "integrations", "oauth_token", "partitioners", "producer", "records", "serializers", "spark", "testing",
    "transactions",
)  # fmt: skip
"""Modules and packages that users import, or whose classes they get."""
INNER = (
    "fake.apis", "fake.batches", "fake.client_metrics", "fake.metadata", "fake.produce", "fake.txn_apis",
    "access_messages", "admin_messages",
)  # fmt: skip
"""Parts of ``aioproducer.testing`` that use protocol messages, which are declared without annotations."""
PATIENCE_S = 180.0


def check(*command: str) -> str:
    # An editable install is found by an import hook, which pyright does not have; other packages it looks for
    # next to the python that is first on the PATH.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    found = os.environ | {"PYTHONPATH": str(ROOT), "PATH": path}
    finished = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env=found,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert finished.stdout, finished.stderr
    return finished.stdout


def is_public(name: str) -> bool:
    package, _, rest = name.partition(".")
    module = rest.partition(".")[0]
    if module == "testing" and rest.removeprefix("testing.").startswith(INNER):
        return False
    return package == "aioproducer" and (module in PUBLIC or "." not in rest)


def test_public_names_are_typed_in_full() -> None:
    report: Any = json.loads(check("pyright", "--verifytypes", "aioproducer", "--ignoreexternal", "--outputjson"))
    public = [symbol for symbol in report["typeCompleteness"]["symbols"] if is_public(symbol["name"])]
    assert len(public) > 1_000
    assert not [
        (symbol["name"], [each["message"] for each in symbol["diagnostics"]])
        for symbol in public
        if not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"]
    ]


def test_programs_pass_pyright() -> None:
    found = check("pyright", *PROGRAMS)
    assert "0 errors, 0 warnings" in found, found


def test_programs_pass_mypy() -> None:
    """Strict, so that a marked mistake that is not found is an error too."""
    found = check("mypy", "--strict", *PROGRAMS)
    assert f"Success: no issues found in {len(PROGRAMS)} source files" in found, found


def test_python_of_the_pages_passes_mypy(tmp_path: Path) -> None:
    """Not strict, as handlers have few annotations; names that a page takes for granted may be anything."""
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
        for number, block in enumerate(blocks, 1):
            (tmp_path / f"{page.stem.replace('-', '_')}_{number}.py").write_text(block)
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\ncheck_untyped_defs = true\nignore_missing_imports = true\n")
    programs = sorted(map(str, tmp_path.glob("*.py")))
    assert len(programs) > 50
    found = check("mypy", "--config-file", str(config), "--disable-error-code", "name-defined", *programs)
    assert f"Success: no issues found in {len(programs)} source files" in found, found
