"""Pickles of plans and images are read as data: what they name is looked up, and nothing else happens."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import attrs
import pytest

from iron_core.declare.pattern import Pattern
from iron_core.image.reader import read


def naming(module: str, name: str) -> bytes:
    """A pickle that is the object of a module, by its name."""
    return b"\x80\x02c" + f"{module}\n{name}\n".encode() + b"."


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module that says on disk that it was imported, and where it says so."""
    mark = tmp_path / "imported"
    (tmp_path / "nobody_imports_me.py").write_text(
        f"import attrs, pathlib\npathlib.Path({str(mark)!r}).touch()\n@attrs.frozen\nclass Thing:\n    n: int = 0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield "nobody_imports_me", mark
    sys.modules.pop("nobody_imports_me", None)


def test_data_is_read():
    """Of the class that is asked for, and no other."""
    content = pickle.dumps(Pattern(0, (2, 3), (3, 1)))
    assert read(content, Pattern) == Pattern(0, (2, 3), (3, 1)) and read(content, dict) is None


def test_a_module_that_is_not_there_is_not_imported(module):
    """Importing one runs its code. What offers plugins, or is in the process, was let in before."""
    name, mark = module
    assert read(naming(name, "Thing"), type) is None and not mark.exists()
    __import__(name)
    assert attrs.has(read(naming(name, "Thing"), type)) and mark.exists()


@pytest.mark.parametrize(("hidden", "says"), [("", "SiLU"), ("-iron-ops-aie", "NoneType")])
def test_an_operator_is_imported_where_a_plan_has_it(hidden, says):
    """Its pack offers it, so a warm start finds it without a trace; not where the pack is hidden."""
    lines = [
        "import sys; from iron_core.image.reader import read; assert 'iron_ops_aie' not in sys.modules",
        f"found = read({naming('iron_ops_aie.elementwise.silu', 'SiLU')!r}, type)",
        "print(found.__name__ if found else type(found).__name__)",
    ]
    environment = {**os.environ, "IRON_PLUGINS": hidden} if hidden else None
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, env=environment)
    assert done.stdout == f"{says}\n", done.stderr


@pytest.mark.parametrize("name", ["antigravity:fly", "os:system", "builtins:eval", "iron_core.files:write_whole"])
def test_what_is_no_data_is_refused(name):
    """Functions and modules' own things."""
    assert read(naming(*name.split(":")), object) is None
    assert "antigravity" not in sys.modules
