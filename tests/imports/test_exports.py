"""What authors write with comes from `iron_core` itself, in our packs and models as in anybody's."""

from __future__ import annotations

import ast
from importlib import import_module

import iron_core
from tests.distributions import DISTRIBUTIONS, PACKS


def test_what_authors_need_is_exported():
    """The words of contracts, of arrays and of core functions."""
    words = {"nearest", "widen", "round_to", "Buffer", "range_", "set_rounding", "ObjectType", "if_", "else_", "Lock", "Kernel", "Case"}
    assert words <= set(iron_core.__all__)


def test_a_name_that_users_meet_is_defined_once():
    """Exported ones, a plan's `Port`. A lowering alone has the name of the operator it lowers."""
    names, found = {*iron_core.__all__, "Port"}, {}
    for one in DISTRIBUTIONS:
        for file in sorted(one.sources.rglob("*.py")):
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                made = [node.name] if isinstance(node, ast.ClassDef) else []
                if isinstance(node, ast.Assign):
                    made = [target.id for target in node.targets if isinstance(target, ast.Name)]
                if file.parent.name != "lowerings":
                    for name in names.intersection(made):
                        found.setdefault(name, []).append(f"{one.package}/{file.name}:{node.lineno}")
    assert {"Tile", "Placement", "Buffer", "Port", "Profile"} <= set(found)
    assert not {name: places for name, places in found.items() if len(places) > 1}


def test_packs_and_models_import_exported_names_from_iron_core():
    """Not from the module where they happen to stand."""
    wrong, seen = [], 0
    for one in {*PACKS, *(d for d in DISTRIBUTIONS if d.folder.startswith("iron_models/"))}:
        for file in sorted(one.sources.rglob("*.py")):
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("iron_core"):
                    seen += 1
                    inner = import_module(str(node.module)) if node.module != "iron_core" else None
                    wrong += [
                        f"{file.name}:{node.lineno}: {name.name}"
                        for name in node.names
                        if inner is not None
                        and name.name in iron_core.__all__
                        and getattr(inner, name.name) is getattr(iron_core, name.name)
                    ]
    assert seen > 50 and not wrong, wrong
