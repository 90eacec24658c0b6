"""docs/plugins.md: its pack is written, built and used as the page says."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from iron_core.plugins.record import LEVELS
from tests.docs.pages import files, page

PAGE = page("plugins")
FILES = dict(files(PAGE))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel that the page's files build."""
    pytest.importorskip("hatchling", reason="hatchling, which builds the page's pack, is not installed")
    folder = tmp_path_factory.mktemp("iron-acme")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    line = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
    subprocess.run(line, cwd=folder, check=True, capture_output=True)
    return next((folder / "dist").glob("iron_acme-0.1-*.whl"))


@pytest.fixture
def acme(wheel, site):
    """The pack, installed in a folder on the path."""
    zipfile.ZipFile(wheel).extractall(site.folder)
    from iron_core.plugins.registry import registry

    registry.cache_clear()
    return registry()


def test_the_page_has_the_files_it_speaks_of():
    """A project file, one module per thing it names, and a kernel."""
    modules = {f"src/iron_acme/{n}.py" for n in ("__init__", "squared_relu", "host", "gemv_host", "devices", "model", "command")}
    assert set(FILES) == {"pyproject.toml", "src/iron_acme/squared_relu.h", "src/iron_acme/gemv.h", *modules}


def test_it_is_listed_without_being_imported(acme, iron_command):
    """Every entry point of the pack, by metadata alone."""
    names = {(r.group, r.name) for r in acme.records if r.distribution == "iron-acme"}
    assert names == {
        ("operators", "acme.SquaredReLU"),
        ("lowerings", "host.iron_acme.SquaredReLU"),
        ("lowerings", "host.iron_ops_aie.GEMV"),
        ("devices", "acme1"),
        ("models", "acme-tiny"),
        ("commands", "acme"),
    }
    assert "iron_acme" not in sys.modules
    listed = iron_command("plugins", "list", "--group", "operators").stdout.splitlines()
    row = next(line for line in listed if "iron-acme" in line)
    assert row.split() == ["operators", "acme.SquaredReLU", "iron-acme", "0.1", "v1", "not", "loaded"]
    assert next(line for line in PAGE.splitlines() if "acme.SquaredReLU  " in line).split() == row.split()


@pytest.mark.slow
def test_its_operator_runs_by_its_kernel(acme, iron_command):
    """Within its contract, on every case it declares, by C++ and not by a call-back."""
    for fields in ("size=4096", "size=1000", "size=4099 T=float32", "size=77 T=float16"):
        done = iron_command("operators", "run", "acme.SquaredReLU", *fields.split(), "--backend", "reference,host")
        assert done.returncode == 0, done.stderr
        assert "kernel SquaredReLU" in done.stdout and "call-back" not in done.stdout + done.stderr


def test_its_operator_runs_without_its_kernel(acme, iron_command):
    """With an integer dtype, which the kernel refuses, the reference runs and the reason is said."""
    done = iron_command("operators", "run", "acme.SquaredReLU", "size=16", "T=int32", "--backend", "host")
    assert "call-back: T=int32: SquaredReLU takes float32, bfloat16, float16" in done.stdout


def shown(section):
    """Run what stands under a heading and is no file."""
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    blocks = [block for block in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S) if block not in FILES.values()]
    assert blocks
    for block in blocks:
        exec(compile(block, "docs/plugins.md", "exec"), {"__name__": "page"})


def test_its_device_is_simulated(acme, iron_command):
    """What the page says of it; and it is listed."""
    shown("A device")
    assert "acme1" in iron_command("devices", "list").stdout and "acme1" in iron_command("doctor").stdout


def test_its_kernel_of_irons_operator_runs_where_it_is_chosen(acme):
    """What the page says of `lowerings=`; the kernel gives what the reference does, and leaves what it does not take to Iron's."""
    import numpy as np

    from iron_core import OperatorImage
    from iron_ops_aie import GEMV

    shown("Which of several")
    rng = np.random.default_rng(0)
    for K, kernel in ((64, "acme::gemv"), (20, "matmul")):
        a, b = rng.standard_normal((33, K)).astype(np.float32), rng.standard_normal(K).astype(np.float32)
        made = OperatorImage(GEMV(M=33, K=K, T=np.float32), backend="host", lowerings={"host.GEMV": "iron-acme"})
        assert np.allclose(made(a, b), a @ b, atol=1e-4) and made.image.steps[0].unit.template.startswith(kernel)


def test_its_model_and_command_run(acme, iron_command, iron_run):
    """The rest of the line is theirs."""
    assert iron_run("acme-tiny", "1", "-2", "3").stdout == "1.0 0.0 9.0\n"
    wrong = iron_run("acme-tiny", "one")
    assert wrong.returncode == 2 and wrong.stderr.startswith("error: acme-tiny: could not convert")
    assert iron_command("acme", "x", "--json").stdout == "acme x --json\n"
    assert "From iron-acme 0.1." in iron_command("--help").stdout


def test_importing_the_pack_imports_no_operator(acme):
    """Its names load on first use."""
    line = [sys.executable, "-c", "import iron_acme, sys; print(sorted(m for m in sys.modules if 'acme' in m), dir(iron_acme))"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['iron_acme'] ['SquaredReLU']"


def test_a_stub_is_written_for_it(acme):
    """The command the page names."""
    subprocess.run([sys.executable, "-m", "iron_core.declare.stub", "iron_acme"], check=True, capture_output=True)
    import iron_acme

    stub = Path(iron_acme.__file__).with_suffix(".pyi").read_text()
    assert "class SquaredReLU(UnaryElementwise):" in stub and "@overload" in stub


def test_the_groups_are_all_there():
    """The table names every group this iron reads, and no other."""
    assert set(re.findall(r"^\| `iron\.(\w+)\.v1` \|", PAGE, re.M)) == set(LEVELS)
