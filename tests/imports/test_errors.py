"""What users see of mistakes: classes in `errors.py` alone, each with an example and its fix, exported by the module."""

from __future__ import annotations

import ast
from importlib import import_module

from iron_core import errors
from tests.distributions import DISTRIBUTIONS, PACKS

OURS = {name: cls for name, cls in vars(errors).items() if isinstance(cls, type) and issubclass(cls, errors.IronError)}


def test_error_classes_stand_in_errors_alone():
    """No other module of any distribution derives from them; a backend's own are in its `errors.py`."""
    seen = 0
    for one in DISTRIBUTIONS:
        for file in one.sources.rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    seen += 1
                    bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases} & set(OURS)
                    assert not bases or file.name == "errors.py", f"{file}: {node.name}({', '.join(bases)})"
    assert seen > 200
    assert errors.DeviationError in OURS.values()


def test_each_error_has_an_example_and_its_fix():
    """All but the base, a backend's own too."""
    modules = [f"{one.package}.errors" for one in DISTRIBUTIONS if (one.sources / "errors.py").is_file()]
    assert {"iron_core.errors", "iron_sim.errors"} <= set(modules)
    for name in modules:
        for cls in vars(import_module(name)).values():
            if isinstance(cls, type) and issubclass(cls, errors.IronError) and cls is not errors.IronError:
                assert "Raises:" in cls.__doc__ and "Fix:" in cls.__doc__, cls


#: Where each is raised: folders of iron_core, and kinds of the other distributions.
REFUSERS = {"Unresolvable": {"declare", "array", "a pack"}, "UnsupportedError": {"image", "backends", "compiled", "a backend"}}


def test_an_operator_is_refused_by_one_class_and_a_compile_by_another():
    """`Unresolvable` by what resolves and builds operators, `UnsupportedError` by plans and backends."""
    seen = {name: set() for name in REFUSERS}
    for one in DISTRIBUTIONS:
        for file in one.sources.rglob("*.py"):
            kind = "a pack" if one in PACKS else "a backend" if "iron_backends" in one.folder else file.relative_to(one.sources).parts[0]
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in REFUSERS:
                    seen[node.func.id].add(kind)
    assert seen == REFUSERS
