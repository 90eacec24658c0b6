"""What an import brings along, in a fresh interpreter."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests import fresh
from tests.distributions import DISTRIBUTIONS

OTHERS = [one.package for one in DISTRIBUTIONS if one.package != "iron_core"]


def modules_after(code: str) -> set[str]:
    """Names in sys.modules after running code in a new interpreter."""
    line = [sys.executable, "-c", f"{code}\nimport sys\nprint('sys.modules:', *sys.modules)"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("sys.modules:")[2].split())


def ours(modules: set[str]) -> set[str]:
    """Those of other distributions of ours, and backends."""
    return {m for m in modules if m.partition(".")[0] in OTHERS}


@pytest.mark.parametrize(
    "code",
    [
        "import iron_core",
        "from iron_core import Operator, Param, In, Out, Testing, Graph",
        "from iron_core.plugins.registry import registry; registry()",
        "from iron_core.cli import main; main(['plugins', 'list', '--json'])",
        "from iron_core.cli import main; main(['operators', 'list'])",
    ],
)
def test_core_imports_no_pack_and_no_backend(code):
    """Importing iron_core, its vocabulary or its registry, and listing names, imports no pack and no backend."""
    modules = modules_after(code)
    assert not ours(modules)
    assert not {"iron_core.backends.reference", "iron_core.backends.null"} & modules


def test_importing_core_is_light():
    """`import iron_core` alone does not even import numpy; its names load when they are used."""
    modules = modules_after("import iron_core")
    assert not {"numpy", "attrs", "click", "pluggy"} & modules


def test_the_command_starts_on_click_alone():
    """Listing plugins does not import numpy."""
    modules = modules_after("from iron_core.cli import main; main(['plugins', 'list'])")
    assert "click" in modules
    assert not {"numpy", "ml_dtypes", "tokenizers"} & modules


SILU = [
    "from iron_ops_aie import SiLU",
    "import iron_ops_aie; iron_ops_aie.SiLU",
    "from iron_core.plugins.registry import registry; registry().load('operators', 'SiLU')",
]
ARRAYS = [f"from iron_ops_aie import {name}" for name in ("SiLU", "GEMM", "GEMV", "MHA", "Copy")]


@pytest.fixture(scope="module")
def after():
    """By code: what it loads of ours."""
    return fresh.modules_after(*SILU, *ARRAYS)


@pytest.mark.parametrize("code", SILU)
def test_one_operator_is_one_module(after, code):
    """Importing one operator, from its pack or by the registry, imports one operator's module."""
    import iron_ops_aie

    homes = {getattr(iron_ops_aie, name).__module__ for name in iron_ops_aie.__all__}
    assert homes & after[code] == {"iron_ops_aie.elementwise.silu"}
    assert ours(after[code]) <= {m for m in after[code] if m.partition(".")[0] == "iron_ops_aie"}


@pytest.mark.parametrize("code", ARRAYS)
def test_an_operator_brings_what_declares_it_alone(after, code):
    """Importing an operator with an array loads the vocabulary it is written in: no design, graph, plan or backend."""
    later = (
        "iron_core.array.design",
        "iron_core.graph",
        "iron_core.image",
        "iron_core.backends",
        "iron_core.compiled",
        "iron_core.plugins",
    )
    assert "iron_core.declare" in after[code]
    assert not {m for m in after[code] if m.startswith(later)}


def test_an_unknown_name_of_a_lazy_package_is_an_attribute_error():
    """Lazy loading keeps Python's own manners."""
    import iron_core
    import iron_ops_aie

    for package in (iron_core, iron_ops_aie):
        assert set(package.__all__) <= set(dir(package))
        with pytest.raises(AttributeError, match="no_such_name"):
            package.no_such_name  # noqa: B018


ALIEN = "raise RuntimeError('the unrelated iron_core was imported')\n"


@pytest.fixture
def alien(tmp_path):
    """A folder with an unrelated package named iron_core."""
    package = tmp_path / "elsewhere" / "iron_core"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(ALIEN)
    return package


@pytest.mark.parametrize("argv", [(), ("plugins", "list"), ("run", "llama")])
def test_an_unrelated_iron_core_is_reported_in_one_line(alien, iron_command, argv):
    """`iron` says, without importing it, that `iron_core` is another project's, names both paths, and exits with 2."""
    done = iron_command(*argv, env={"PYTHONPATH": str(alien.parent)})
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert str(alien) in done.stderr and "_iron_start.py" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("package", OTHERS)
def test_our_packages_check_too(alien, package):
    """Importing a pack, a backend or a model beside an unrelated iron_core says the same and imports nothing of it."""
    environment = os.environ | {"PYTHONPATH": str(alien.parent)}
    done = subprocess.run([sys.executable, "-c", f"import {package}"], capture_output=True, text=True, env=environment)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and str(alien) in done.stderr
