"""What the site has beside docs/*.md, each matter from the one place where it stands.

Files of the repository's root and the examples become pages. Where a page of docs/ has ``<!-- README: Title -->``, that
section of the README follows. Links to files of the repository lead to the pages that show them; what has no page is
left to MkDocs, which warns of it, and a warning ends the build.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from griffe import Extension, Object
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

ROOT = Path(__file__).parent
DOCS = PurePosixPath("docs")
EXAMPLES = ROOT / "examples"
PAGES = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security-policy.md"}
"""Files of the root that are pages, and by which name."""

SUMMARIES = {
    "configuration": "configuration.md",
    "guarantees-by-configuration": "guarantees.md#by-configuration",
    "transactions": "transactions.md",
    "moving-over": "from-aiokafka.md",
    "spark": "spark.md",
    "delivery-audit": "audit.md",
    "tests-of-your-own": "testing.md",
    "how-it-works": "architecture.md",
    "development": "contributing.md",
}
"""Sections of the README that only sum up a page."""

_MARKER = re.compile(r"^<!-- README: (.+) -->$", re.MULTILINE)
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(\[[^\[\]]*)?\]\(([^)\s]+)\)")
_SECTION = re.compile(r"\n+((?:Args|Returns|Yields|Raises|Source):)")
_anchor = slugify(case="lower")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    for name, uri in PAGES.items():
        files.append(File.generated(config, uri, content=(ROOT / name).read_text()))
    files.append(File.generated(config, "examples.md", content=_examples_page()))
    files.append(File.generated(config, "LICENSE.txt", content=(ROOT / "LICENSE").read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to where the site has things, and put sections of the README where they are asked for."""
    uri = page.file.src_uri
    sources = {page_uri: PurePosixPath(name) for name, page_uri in PAGES.items()}
    source = sources.get(uri, DOCS / uri)
    markdown = _relocated(markdown, source, uri)
    return _MARKER.sub(lambda found: _section(found[1], _heading(markdown), uri), markdown)


class Docstrings(Extension):
    """Sections of docstrings need no empty line before them here; the parser wants one."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Called with everything that is documented."""
        if obj.docstring:
            obj.docstring.value = _SECTION.sub(r"\n\n\1", obj.docstring.value)


def _section(title: str, page_title: str, uri: str) -> str:
    """A section of the README for a page that has a title itself."""
    text = _relocated(_sections()[title], PurePosixPath("README.md"), uri)
    return text.partition("\n")[2] if title == page_title else text


def _heading(text: str) -> str:
    return text.partition("# ")[2].partition("\n")[0]


def _examples_page() -> str:
    parts = ["# Examples\n\nOne idea each; the files of the folder `examples`, which the tests run.\n"]
    for path in sorted(EXAMPLES.rglob("*.py")):
        code = path.read_text()
        first_line = (ast.get_docstring(ast.parse(code)) or "").partition("\n")[0]
        parts.append(
            f"\n## {path.relative_to(EXAMPLES).as_posix()}\n\n{first_line}\n\n```python\n{code.rstrip()}\n```\n"
        )
    return "".join(parts)


def _sections() -> dict[str, str]:
    """The README's sections of the second level by title, heading included."""
    parts = re.split(r"^(?=## )", (ROOT / "README.md").read_text(), flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0].removeprefix("## "): part for part in parts}


def _homes() -> dict[str, str]:
    """The page that shows each heading of the README, by its anchor."""
    homes = dict(SUMMARIES)
    for page in sorted((ROOT / DOCS).rglob("*.md")):
        for title in _MARKER.findall(page.read_text()):
            text = _CODE.sub("", _sections()[title])
            for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
                homes[_anchor(heading, "-")] = page.relative_to(ROOT / DOCS).as_posix()
    return homes


def _relocated(text: str, source: PurePosixPath, uri: str) -> str:
    """The text of a file of the repository, with its links as a page of the site needs them."""

    def link(found: re.Match[str]) -> str:
        text, target = found[1] or "", found[2]
        # One that is named by its file gets the name that the page has here.
        named = ROOT / source.parent / target
        if named.suffix == ".md" and text == f"[{target.removeprefix('../')}":
            text = "[" + _heading(named.read_text())
        return f"{text}]({_target(target, source, uri)})"

    return _outside_of_code(text, lambda prose: _LINK.sub(link, prose))


def _target(link: str, source: PurePosixPath, uri: str) -> str:
    path, _, anchor = link.partition("#")
    if "://" in link or (not path and source != PurePosixPath("README.md")):
        return link
    target = os.path.normpath(source.parent / path) if path else str(source)
    here = PurePosixPath(uri).parent
    if target == "README.md":
        if anchor and anchor not in _homes():
            raise PluginError(f"{source}: no page of the site shows the README's section #{anchor}")
        page, _, own = (_homes()[anchor] if anchor else "index.md").partition("#")
        anchor = own if anchor in SUMMARIES else anchor
    elif target in PAGES:
        page = PAGES[target]
    elif target == "LICENSE":
        page = "LICENSE.txt"
    elif target == "examples":
        page = "examples.md"
    elif target.startswith("examples/"):
        page, anchor = "examples.md", _anchor(target.removeprefix("examples/"), "-")
    elif target.startswith("docs/"):
        page = target.removeprefix("docs/")
    else:
        return link
    return os.path.relpath(page, here) + (f"#{anchor}" if anchor else "")


def _outside_of_code(text: str, change: Callable[[str], str]) -> str:
    parts, end = [], 0
    for found in _CODE.finditer(text):
        parts += [change(text[end : found.start()]), found[0]]
        end = found.end()
    return "".join([*parts, change(text[end:])])
