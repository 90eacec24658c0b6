"""Imports between distributions point one way, and every import is declared by the distribution that makes it."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.distributions import DISTRIBUTIONS, PACKS, Distribution

PACKAGES = {one.package: one for one in DISTRIBUTIONS}
#: Checks that iron_core is ours; part of iron-core's wheel.
START = "_iron_start"
#: Import name -> distribution, where they differ.
PROVIDES = {"attr": "attrs", "attrs": "attrs"}
#: Looked for at run time and named, with what to install, when missing.
OPTIONAL = {
    "iron_core": {"pytest"},
    "iron_host": {"ziglang"},
    "iron_npu": {"pyxrt"},
    "iron_embedding_gemma2": {"PIL", "soundfile"},
    "iron_lm": {"llguidance"},
    "iron_onnx": {"onnx"},
}


def may_import(one: Distribution) -> set[str]:
    """Which of our packages a distribution may import, by what it is: packs and backends know iron_core alone."""
    packs = {pack.package for pack in PACKS}
    if one.folder == "iron_core":
        return set()
    if one.folder == "iron_models/lm":
        return {"iron_core", *packs}
    if one.folder.startswith("iron_models/"):
        return {"iron_core", "iron_lm", *packs}
    return {"iron_core"}


def sources(package: str) -> list[Path]:
    """Every source file of an installed package, stubs included."""
    spec = find_spec(package)
    assert spec is not None and spec.submodule_search_locations, f"{package} is not installed"
    root = Path(spec.submodule_search_locations[0])
    return [f for f in sorted(root.rglob("*.py*")) if f.suffix in (".py", ".pyi")]


def imports(file: Path) -> Iterator[tuple[int, str]]:
    """(line, top-level package) of everything a file imports, wherever in it, `import_module("...")` included."""
    for node in ast.walk(ast.parse(file.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant | ast.JoinedStr):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__"):
                first = node.args[0].values[0] if isinstance(node.args[0], ast.JoinedStr) else node.args[0]
                names = [str(first.value)] if isinstance(first, ast.Constant) else []
        for name in names:
            yield node.lineno, name.partition(".")[0]


def dependencies(package: str) -> set[str]:
    """What the distribution of a package declares, without its extras."""
    lines = PACKAGES[package].project.get("dependencies", ())
    return {re.split(r"[^A-Za-z0-9._-]", line)[0].replace("-", "_").lower() for line in lines}


@pytest.mark.parametrize("package", PACKAGES)
def test_arrows_point_one_way(package):
    """A package imports only those of our packages that stand below it."""
    seen = {(f"{file.name}:{line}", name) for file in sources(package) for line, name in imports(file)}
    wrong = [at for at in seen if at[1] in PACKAGES and at[1] not in may_import(PACKAGES[package]) | {package}]
    assert seen and not wrong, wrong


@pytest.mark.parametrize("package", PACKAGES)
def test_every_import_is_declared(package):
    """What a distribution imports is Python's own, its own, or among its declared dependencies."""
    declared = dependencies(package)
    unknown = {
        f"{file.name}:{line} imports {name}"
        for file in sources(package)
        for line, name in imports(file)
        if name not in sys.stdlib_module_names
        and name not in (package, START)
        and PROVIDES.get(name, name).lower() not in declared
        and name not in OPTIONAL.get(package, ())
    }
    assert not unknown, sorted(unknown)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_dependency_is_imported(package):
    """Nothing is installed that is not used; iron-core is pinned whether it is or not."""
    used = {PROVIDES.get(name, name).lower() for file in sources(package) for _, name in imports(file)}
    assert dependencies(package) <= {*used, "iron_core"}


def test_our_pins_keep_off_the_unrelated_iron_core():
    """Every distribution asks for iron-core at least 2, below 3: the public index has an unrelated 1.x."""
    for one in DISTRIBUTIONS:
        if one.package == "iron_core":
            assert metadata.version(one.name).startswith("2.")
            continue
        pins = [line for line in metadata.requires(one.name) or [] if line.startswith("iron-core")]
        assert pins and ">=2" in pins[0] and "<3" in pins[0], (one.name, pins)


def test_the_walk_sees_imports_of_every_form(tmp_path):
    """The test above would be worth nothing if an import inside a function or by string went unseen."""
    file = tmp_path / "m.py"
    file.write_text(
        "import iron_a.b\n"
        "def f():\n    from iron_b import x\n    import_module('iron_c.d')\n    importlib.import_module(f'iron_d.{x}')\n"
        "from . import y\n"
    )
    assert [name for _, name in imports(file)] == ["iron_a", "iron_b", "iron_c", "iron_d"]
