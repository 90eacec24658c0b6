"""The pages of docs/, their blocks, and the packs whose files stand on them: a path alone on a line, then a block of code.

A block is what stands in a fence, or is set in by four spaces. Fenced `text` is what programs print. Of code one is a file below its
path, or runs as it stands; a block without a language, or of `console`, holds lines for a shell, and what they print where lines begin
with `$`. A comment above a block, `<!-- not run: why -->`, says of one that no test runs it; `<!-- run by: FILE -->` says of a page that
a test of its own follows it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from tests.distributions import DISTRIBUTIONS, ROOT

DOCS = ROOT / "docs"
#: Every page that a reader takes code from, by its path from the root.
FILES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md")), *(one.path / "README.md" for one in DISTRIBUTIONS)]
PAGES = {file.relative_to(ROOT).as_posix(): file.read_text() for file in FILES}

#: A file's path and its text.
File = tuple[str, str]

#: What a test runs of a block without a language: lines that begin so.
SHELL = re.compile(r"(?:\w+=\S+ )*(?:iron|iron-run|python) ")
FOLLOWED = re.compile(r"^<!-- run by: (\S+) -->$", re.M)
MARK = re.compile(r"<!-- not run: (.*?) -->\s*\Z", re.S)
FENCE, SET_IN = r"^```(\w*)\n((?s:.*?))^```$", r"(?:^(?<=\n\n)|\A)()((?:    .*\n(?:\n(?=    ))?)+)"
BLOCK = re.compile(f"{FENCE}|{SET_IN}", re.M)


@attrs.frozen
class Block:
    """page, line: where it stands. language: that of its fence, "" where none is said. path: the file that it is, or "". why: the reason
    why it is not run, or None. by: the test that follows its page."""

    page: str
    line: int
    language: str
    text: str
    path: str = ""
    why: str | None = None
    by: str = ""

    @property
    def id(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def kind(self) -> str:
        """How it is run: "file", "python", "commands", "text", "marked", "followed", or "unknown"."""
        if self.by:
            return "followed"
        if self.why is not None:
            return "marked"
        if self.path:
            return "file" if self.language in ("python", "cpp", "toml") else "unknown"
        if self.language in ("python", "text"):
            return self.language
        return "commands" if self.language in ("", "console") and self.commands and all(map(SHELL.match, self.commands)) else "unknown"

    @property
    def commands(self) -> list[str]:
        """Its lines for a shell: those behind a `$`, or all where none is; without what is said of them."""
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        asked = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")] or lines
        return [re.sub(r"\s+# .*", "", line) for line in asked]


def blocks(text: str, name: str = "page") -> Iterator[Block]:
    """All blocks of a page's text, in order."""
    by = FOLLOWED.search(text)
    for found in BLOCK.finditer(text):
        language, body = (found[1], found[2]) if found[2] is not None else ("", found[4])
        before, line = text[: found.start()].rstrip("\n"), text.count("\n", 0, found.start()) + 1
        path = re.search(r"(?:\A|\n)`([^`\n]+)`\Z", before) if language else None
        marked = MARK.search(before[: path.start()] if path else before)
        yield Block(name, line, language, body, path[1] if path else "", marked[1] if marked else None, by[1] if by else "")


def page(name: str) -> str:
    """The text of docs/NAME.md."""
    return (DOCS / f"{name}.md").read_text()


def files(text: str) -> list[File]:
    """The files that stand in the text of a page, in order."""
    return [(block.path, block.text) for block in blocks(text) if block.path]


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
    modules, version = {f"{name.replace('-', '_')}/__init__.py": ""}, "0.1"
    for path, text in written:
        if path == "pyproject.toml":
            project = tomllib.loads(text)["project"]
            version = project.get("version", version)
            for group, members in project["entry-points"].items():
                entries.setdefault(group, {}).update(members)
        elif path.startswith("src/"):
            modules[path.removeprefix("src/")] = text
    site.add(name, version, entries=entries, modules=modules)
