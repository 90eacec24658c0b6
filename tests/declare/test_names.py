"""`import iron_core` is cheap: names load on first use."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import iron_core as iron


def _fresh(code: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", code + "\nimport sys; print(*sys.modules)"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_importing_iron_core_loads_nothing_else():
    """No pack, no backend, no numpy, no attrs: in a fresh interpreter only the package itself."""
    loaded = _fresh("import iron_core")
    assert {m for m in loaded if m.startswith("iron")} <= {"iron_core"} | {m for m in loaded if m.startswith("iron_dev")}
    assert not loaded & {"numpy", "attrs", "attr", "pluggy"}


def test_declaring_an_operator_loads_no_graph_and_no_backend():
    """The vocabulary stands by itself."""
    declared = "class Op(iron.UnaryElementwise):\n    def reference(self, x): return x"
    loaded = _fresh(f"import iron_core as iron\n{declared}\niron.contract_key(Op(size=4))")
    ours = {m.split(".")[1] for m in loaded if m.startswith("iron_core.")}
    assert ours == {"bases", "declare", "errors"}
    assert not {m for m in loaded if m.startswith(("iron_ops", "iron_host", "iron_lm"))}


@pytest.mark.parametrize("name", iron.__all__)
def test_every_name_loads(name):
    """What `dir()` lists is there."""
    assert name in dir(iron)
    assert getattr(iron, name) is not None


def test_type_checkers_see_every_name():
    """The stub re-exports each lazy name from the module it loads from."""
    stub = Path(iron.__file__).with_name("__init__.pyi").read_text()
    lines = re.findall(r"^from iron_core\.(\S+) import (\w+) as \2$", stub, re.M)
    assert {name: module for module, name in lines} == iron._WHERE


def test_an_unknown_name_is_an_attribute_error():
    """As for any module."""
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        iron.Nothing  # noqa: B018
