"""The pages of docs/, and the packs whose files stand on them: a path alone on a line, then a block of code."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"

#: A file's path and its text.
File = tuple[str, str]


def page(name: str) -> str:
    """The text of docs/NAME.md."""
    return (DOCS / f"{name}.md").read_text()


def files(text: str) -> list[File]:
    """The files that stand in the text of a page, in order."""
    return re.findall(r"^`([^`\n]+)`\n\n```\w+\n(.*?)^```", text, re.M | re.S)


def with_entries(pyproject: str, more: str) -> str:
    """A pyproject.toml with the lines of other tables put in: behind the heading of the same table, or at its end."""
    for heading, lines in re.findall(r"^(\[[^\n]+\])\n((?:[^\[\n][^\n]*\n)+)", more, re.M):
        if heading in pyproject:
            pyproject = pyproject.replace(f"{heading}\n", f"{heading}\n{lines}")
        else:
            pyproject += f"\n{heading}\n{lines}"
    return pyproject


def install(site: Any, name: str, written: Iterable[File]) -> None:
    """A pack's modules, in a folder on the path, and the entry points of every pyproject.toml among its files."""
    entries: dict[str, dict[str, str]] = {}
    modules = {f"{name.replace('-', '_')}/__init__.py": ""}
    for path, text in written:
        if path == "pyproject.toml":
            for group, members in tomllib.loads(text)["project"]["entry-points"].items():
                entries.setdefault(group, {}).update(members)
        elif path.startswith("src/"):
            modules[path.removeprefix("src/")] = text
    site.add(name, entries=entries, modules=modules)
