"""`write`: a project's files, made of the templates of its kinds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

from iron_core.cli.new_pack.backend import BACKEND
from iron_core.cli.new_pack.format import FORMAT
from iron_core.cli.new_pack.kind import Kind
from iron_core.cli.new_pack.model import MODEL
from iron_core.cli.new_pack.name import Name, checked
from iron_core.cli.new_pack.operator import OPERATOR
from iron_core.cli.new_pack.reader import READER
from iron_core.errors import IronError, UsageError
from iron_core.plugins.registry import registry

#: In the order in which a project has them.
KINDS = {kind.name: kind for kind in (OPERATOR, BACKEND, MODEL, FORMAT, READER)}
#: Files of every project, by path; those of kinds go before them.
COMMON = {
    "pyproject.toml": "pyproject.toml.in",
    "README.md": "README.md.in",
    "LICENSE": "LICENSE.in",
    ".gitignore": "gitignore.in",
    ".github/workflows/ci.yml": "github/ci.yml.in",
    "src/{{package}}/__init__.py": "src/__init__.py.in",
    "src/{{package}}/py.typed": "src/py.typed.in",
    "tests/test_pack.py": "tests/test_pack.py.in",
}
_TEMPLATES = Path(__file__).parent / "templates"
#: Versions of our distributions that a pack made by this one is for.
_LEVEL = ">=2,<3"


def write(given: str, kinds: Collection[str], into: str | Path | None = None) -> tuple[Path, list[str]]:
    """Write the project of a pack called `given`; where, and the paths of its files.

    kinds: of "operator", "backend", "model", "format" and "reader". into: the project's folder; without it, one called as the pack.
    UsageError for a name that none may have, or a folder with something in it, and then nothing is written.
    """
    name = checked(given)
    chosen = [kind for kind in KINDS.values() if kind.name in kinds]
    _check_free(name, chosen)
    folder = Path(given if into is None else into)
    try:
        taken = folder.is_symlink() or folder.exists()
        if taken and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"{folder}: is there and not empty. Legal: a new or an empty folder, by --into FOLDER.")
        beside = Path(os.path.abspath(folder)).parent
        beside.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{given}-", dir=beside) as place:
            made = Path(place) / "project"
            for path, text in files(name, chosen).items():
                (made / path).parent.mkdir(parents=True, exist_ok=True)
                (made / path).write_text(text, encoding="utf-8")
            if OPERATOR.name in kinds:
                _write_stub(made / "src", name.package)
            paths = sorted(path.relative_to(made).as_posix() for path in made.rglob("*") if path.is_file())
            if taken:
                shutil.copytree(made, folder, dirs_exist_ok=True)
            else:
                made.rename(folder)
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror or error}.") from None
    return folder, paths


def files(name: Name, kinds: Collection[Kind]) -> dict[str, str]:
    """By path, the text of each file of a project, but for the stub, which is made of the operators themselves."""
    words = _words(name, kinds)
    found: dict[str, str] = {}
    for folder, listed in (("common", COMMON), *((kind.name, kind.files) for kind in kinds)):
        for path, template in listed.items():
            text = (_TEMPLATES / folder / template).read_text(encoding="utf-8")
            found[_filled(path, words)] = _filled(text, words)
    return dict(sorted(found.items()))


def _check_free(name: Name, kinds: Collection[Kind]) -> None:
    """UsageError where what the pack would bring has the name of something that is installed."""
    words = _words(name, kinds)
    for kind in kinds:
        for group, entries in kind.entries.items():
            for entry in (_filled(key, words) for key in entries):
                owners = registry().owners(group, entry)
                if owners:
                    raise UsageError(f"new-pack {name.distribution!r}: {group} has {entry} of {owners[0].owner} here. Legal: another name.")


def _filled(text: str, words: Mapping[str, str]) -> str:
    """With what each word in double braces stands for; twice, for words stand in words."""
    for _ in range(2):
        text = re.sub(r"\{\{(\w+)\}\}", lambda match: words[match[1]], text)
    return text


def _words(name: Name, kinds: Collection[Kind]) -> dict[str, str]:
    own = OPERATOR in kinds
    needs = sorted({"iron-core", *(one for kind in kinds for one in kind.needs)})
    tests = sorted({one for kind in kinds for one in kind.tests} - {*needs})
    described = [kind.described for kind in kinds]
    listed = " and ".join(filter(None, [", ".join(described[:-1]), described[-1]]))
    shown = [line for kind in kinds for line in kind.use]
    return {
        "distribution": name.distribution,
        "package": name.package,
        "prefix": name.prefix,
        "dashed": name.dashed,
        "camel": name.camel,
        "description": f"{listed[0].upper()}{listed[1:]}.",
        "dependencies": _array([f"{one}{_LEVEL}" for one in needs]),
        "test_dependencies": _array(["pytest>=8", *(f"{one}{_LEVEL}" for one in tests)]),
        "iron_words": " ".join([*needs, *tests]),
        "entry_points": "\n".join(_entries(kinds)),
        "contents": "\n".join(f"* {kind.says}" for kind in kinds),
        "use": "\n".join(["Then:", "", *(f"    {line}" for line in shown), ""]),
        "stub_line": f"\n    python -m iron_core.declare.stub {name.package}    # after a change to an operator's fields" if own else "",
        "activation": "SquaredReLU" if own else "ReLU",
        "activation_import": f"\nfrom {name.package} import SquaredReLU" if own else "from iron_ops_aie import ReLU",
        "activation_text": "a squared ReLU" if own else "a ReLU",
        "activation_twin": "y * y" if own else "y",
    }


def _entries(kinds: Collection[Kind]) -> list[str]:
    """Lines of pyproject.toml, a table for each group."""
    tables: dict[str, dict[str, str]] = {}
    for kind in kinds:
        for group, entries in kind.entries.items():
            tables.setdefault(group, {}).update(entries)
    return [
        line
        for group, entries in tables.items()
        for line in (f'[project.entry-points."iron.{group}.v1"]', *(f'"{key}" = "{value}"' for key, value in entries.items()), "")
    ]


def _array(words: list[str]) -> str:
    return f"[{', '.join(f'{chr(34)}{word}{chr(34)}' for word in words)}]"


def _write_stub(sources: Path, package: str) -> None:
    """Write the stub of a package's operators, by a process that imports them as they will be imported."""
    path = os.pathsep.join(filter(None, [str(sources), os.environ.get("PYTHONPATH")]))
    line = [sys.executable, "-B", "-m", "iron_core.declare.stub", package]
    done = subprocess.run(line, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    if done.returncode:
        raise IronError(f"new-pack: the stub of {package} was not written: {done.stderr.strip()[-300:]}.")
