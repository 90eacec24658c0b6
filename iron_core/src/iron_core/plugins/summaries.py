"""`written`: what a plugin says of itself in one line, read from its source and not imported.

An entry point's metadata has no room for it, and importing every model to list them takes a second and trips over each that is broken.
"""

from __future__ import annotations

import ast
import re
import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

from iron_core.errors import printable
from iron_core.plugins import foreign
from iron_core.plugins.record import Record

#: Characters of a source that are read: a longer one was written by a program.
_MOST = 1 << 20
#: Names that a module may have from another of its package, one behind another.
_HOPS = 3
#: Where a sentence ends.
_SENTENCE = re.compile(r"(?<=[^\s.])(?<!e\.g)(?<!i\.e)[.!?](?=\s)")


def written(record: Record) -> str | None:
    """What `said` gives of the class or function that an entry point names, for its `summary` and its docstring as they are written.

    None where its source has neither, or cannot be read: it is then known when it is loaded.
    """
    module, _, name = record.value.partition(":")
    try:
        with foreign.guarded():  # finders of other distributions are asked
            return said(*_found(module.strip(), name.split("[")[0].strip(), _HOPS)) or None
    except foreign.Raised:
        return None


def said(summary: str | None, doc: str | None) -> str:
    """The first line of a `summary`, without one the first sentence of a docstring; "" where there is neither."""
    if summary is not None:
        return printable(summary.strip().partition("\n")[0])
    paragraph = " ".join((doc or "").strip().partition("\n\n")[0].split())
    end = _SENTENCE.search(paragraph)
    return printable(paragraph[: end.start() + 1] if end else paragraph)


def _found(module: str, name: str, hops: int) -> tuple[str | None, str | None]:
    """The summary and the docstring of a name in a module."""
    source = _source(module)
    if source is None or len(source) > _MOST:
        return None, None
    tree = ast.parse(source)
    for node in reversed(tree.body):  # the last of a name is the one that counts
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            own = [_summary(each, "summary") for each in node.body] if isinstance(node, ast.ClassDef) else []
            given = [_summary(each, f"{name}.summary") for each in tree.body]
            return next((text for text in reversed([*own, *given]) if text is not None), None), ast.get_docstring(node)
        if isinstance(node, ast.ImportFrom) and hops:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _found(_absolute(module, node), alias.name, hops - 1)
    return None, None


def _summary(node: ast.stmt, target: str) -> str | None:
    """The text that a statement gives `target`, where it does."""
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    else:
        return None
    value: Any = getattr(node.value, "value", None)
    return value if isinstance(value, str) and any(ast.unparse(each) == target for each in targets) else None


def _absolute(module: str, node: ast.ImportFrom) -> str:
    """The module that a `from ... import` in another one is of."""
    if not node.level:
        return node.module or ""
    spec = _spec(module)
    package = module if spec is not None and spec.submodule_search_locations is not None else module.rpartition(".")[0]
    for _ in range(node.level - 1):
        package = package.rpartition(".")[0]
    return f"{package}.{node.module}" if node.module else package


def _source(module: str) -> str | None:
    """A module's text, which is found as an import finds it, without its packages being imported."""
    spec = _spec(module)
    get = getattr(spec.loader, "get_source", None) if spec is not None else None
    found = get(module) if get is not None else None
    return found if isinstance(found, str) else None


def _spec(module: str) -> ModuleSpec | None:
    found: ModuleSpec | None = None
    name, places = "", None
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        finders = [PathFinder] if places is not None else [f for f in sys.meta_path if hasattr(f, "find_spec")]
        found = next(filter(None, (finder.find_spec(name, places) for finder in finders)), None)
        if found is None:
            return None
        places = list(found.submodule_search_locations or ())
    return found
