"""Inside a distribution imports go round in no circle; inside iron_core, down one list of folders."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import attrs
import pytest

from tests.distributions import DISTRIBUTIONS

#: Folders and files of iron_core: each imports only those before it. CONTRIBUTING.md has the same list.
ORDER = (
    "errors", "files", "aside", "turn", "side_by_side", "processes", "lazy_names", "cache", "plugins", "devices", "declare", "array",
    "bases", "graph", "image", "lowering", "backends", "compiled", "trials", "visualize", "cli",
    "testing",
)  # fmt: skip

#: Where an author's call crosses upwards: an operator called on handles, `Operator.explain`, `Graph.compile`, `.html()`. Each is
#: one late import.
SEAMS = {
    ("iron_core.declare.operator", "iron_core.graph.record"),
    ("iron_core.declare.operator", "iron_core.array.explain"),
    ("iron_core.graph.graph", "iron_core.compiled.compile"),
    ("iron_core.graph.pictured", "iron_core.visualize"),
}
CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"


@attrs.frozen
class Import:
    """`source` imports `target`, both modules of one package; late: in a function, so when that is called."""

    source: str
    target: str
    line: int
    late: bool

    def __str__(self) -> str:
        return f"{self.source}:{self.line} imports {self.target}{' late' if self.late else ''}"


def modules(package: str) -> dict[str, Path]:
    """Every module of an installed package by name."""
    spec = find_spec(package)
    assert spec is not None and spec.submodule_search_locations, f"{package} is not installed"
    return modules_under(package, Path(spec.submodule_search_locations[0]))


def modules_under(package: str, root: Path) -> dict[str, Path]:
    """Every module of the package whose folder is `root`."""
    found = {}
    for file in sorted(root.rglob("*.py")):
        parts = (package, *file.relative_to(root).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imports(known: dict[str, Path]) -> list[Import]:
    """What these modules import of one another, at module level, for type checkers, in functions, and by a name in a string."""
    found = []
    for source, file in known.items():
        for name, line, late in _named(ast.parse(file.read_text())):
            target = name
            while target not in known and "." in target:
                target = target.rpartition(".")[0]
            if target in known and target != source:
                found.append(Import(source, target, line, late))
    return found


def around(found: list[Import]) -> list[Import]:
    """What each import runs before its target: the packages that hold that and not the source."""
    made = []
    for one in found:
        package = one.target
        while "." in (package := package.rpartition(".")[0]):
            if not f"{one.source}.".startswith(f"{package}."):
                made.append(attrs.evolve(one, target=package))
    return made


def _named(node: ast.AST, late: bool = False) -> Iterator[tuple[str, int, bool]]:
    """(full name, line, late) of everything imported below a node."""
    for child in ast.iter_child_nodes(node):
        inside = late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if isinstance(child, ast.Import):
            yield from ((alias.name, child.lineno, inside) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert not child.level, "imports are written in full here"
            yield from ((f"{child.module}.{alias.name}", child.lineno, inside) for alias in child.names)
        elif isinstance(child, ast.Call) and child.args and isinstance(child.args[0], ast.Constant):
            called = child.func.attr if isinstance(child.func, ast.Attribute) else getattr(child.func, "id", "")
            if called in ("import_module", "__import__"):
                yield str(child.args[0].value), child.lineno, inside
        yield from _named(child, inside)


def folder(module: str) -> str:
    """The folder of a package, or the file beside them, that a module is in; "" for the package itself."""
    return module.partition(".")[2].partition(".")[0]


def upward(found: list[Import], order: tuple[str, ...]) -> list[Import]:
    """Those that do not point to an earlier folder of the list. The package itself, which names what all of them have, is no folder."""
    place = {name: number for number, name in enumerate(order)}
    between = [i for i in found if folder(i.source) and folder(i.target) and folder(i.source) != folder(i.target)]
    return [i for i in between if place[folder(i.target)] >= place[folder(i.source)]]


def circles(found: list[Import]) -> list[list[str]]:
    """The groups of modules of which each imports, by some way, every other of its group."""
    arrows: dict[str, set[str]] = {}
    for one in found:
        arrows.setdefault(one.source, set()).add(one.target)
        arrows.setdefault(one.target, set())

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        left = [start]
        while left:
            for target in arrows[left.pop()] - seen:
                seen.add(target)
                left.append(target)
        return seen

    reach = {module: reached(module) for module in arrows}
    groups = {frozenset(other for other in reach[module] if module in reach[other]) for module in arrows if module in reach[module]}
    return sorted(sorted(group) for group in groups)


def test_every_folder_has_its_place():
    """The list names every folder and file of iron_core, and nothing else."""
    assert {folder(module) for module in modules("iron_core")} - {""} == set(ORDER)


def test_folders_import_only_what_stands_before_them():
    """Whatever a folder of iron_core imports, for type checkers and late too, stands before it in the list, but for the seams."""
    wrong = [i for i in upward(imports(modules("iron_core")), ORDER) if (i.source, i.target) not in SEAMS or not i.late]
    assert not wrong, [str(i) for i in wrong]


def test_the_seams_are_one_late_import_each():
    """Calling an operator, explaining it, compiling a graph and drawing it cross upwards, each by one import where it happens."""
    crossing = sorted((i.source, i.target) for i in upward(imports(modules("iron_core")), ORDER))
    assert crossing == sorted(SEAMS)


def test_the_list_is_written_down():
    """CONTRIBUTING.md gives the folders in this order."""
    block = CONTRIBUTING.read_text().partition("## The order of imports")[2].partition("```")[2].partition("\n")[2].partition("```")[0]
    assert tuple(line.split()[0].removesuffix("/").removesuffix(".py") for line in block.splitlines() if line.strip()) == ORDER


@pytest.mark.parametrize("package", [one.package for one in DISTRIBUTIONS])
def test_nothing_imports_itself_by_way_of_others(package):
    """No file of a distribution, and no folder; the seams of iron_core aside."""
    found = [i for i in imports(modules(package)) if (i.source, i.target) not in SEAMS]
    assert not circles(found)
    between = [attrs.evolve(i, source=folder(i.source), target=folder(i.target)) for i in found]
    assert not circles([i for i in between if i.source and i.target and i.source != i.target])


@pytest.mark.parametrize("package", [one.package for one in DISTRIBUTIONS])
def test_any_module_may_be_the_first_that_is_imported(package):
    """No module needs what a package around it has not got to yet."""
    early = [i for i in imports(modules(package)) if not i.late]
    assert not circles(early + around(early))


def test_the_walk_sees_imports_of_every_form(tmp_path):
    """The tests above would be worth nothing if an import for type checkers, in a function or by string went unseen."""
    for name in ("a", "b", "c", "d"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / "__init__.py").write_text("")
    (tmp_path / "b" / "deep.py").write_text("X = 1\n")
    (tmp_path / "a" / "m.py").write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from p.b.deep import X\n"
        "def f():\n    import p.c\n    import_module('p.d')\n"
        "from p import b\n"
    )
    (tmp_path / "b" / "n.py").write_text("def f():\n    from p.a import m\n")
    found = imports(modules_under("p", tmp_path))
    assert {(i.target, i.late) for i in found if i.source == "p.a.m"} == {
        ("p.b.deep", False), ("p.c", True), ("p.d", True), ("p.b", False),
    }  # fmt: skip
    assert {i.target for i in upward(found, ("a", "b", "c", "d"))} == {"p.b.deep", "p.c", "p.d", "p.b"}
    assert [(i.source, i.target) for i in upward(found, ("d", "c", "b", "a"))] == [("p.b.n", "p.a.m")]


def test_a_circle_is_found_however_long():
    """Three files in a ring are one circle, and one that only reads them is in none."""
    arrows = [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a"), ("a", "e")]
    assert circles([Import(source, target, 1, False) for source, target in arrows]) == [["a", "b", "c"]]
