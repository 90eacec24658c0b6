"""docs/plugins.md: its pack is written, built and used as the page says."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from iron_core.plugins.record import LEVELS
from tests.docs.pages import files, page, with_entries
from tests.new_pack.packs import put
from tests.new_pack.packs import wheel as built

EXAMPLE = Path(__file__).parents[2] / "examples" / "iron_acme"
PAGE = page("plugins")
FILES = files(PAGE)
#: What the page adds to the example.
ADDED = [(name, text) for name, text in FILES if not (EXAMPLE / name).exists() or (name == "pyproject.toml" and "[project]" not in text)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of the example with what the page adds."""
    folder = tmp_path_factory.mktemp("iron-acme")
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
    for name, text in ADDED:
        whole = with_entries((folder / name).read_text(), text) if name == "pyproject.toml" else text
        (folder / name).write_text(whole)
    return built(folder, folder / "dist")


@pytest.fixture
def acme(wheel, site):
    """The pack, installed in a folder on the path."""
    put(wheel, site.folder)
    from iron_core.plugins.registry import registry

    registry.cache_clear()
    return registry()


def test_the_page_shows_the_examples_files():
    """As they are there, and adds a kernel for an operator of Iron's, a command, a device and a tokenizer."""
    shown = [(name, text) for name, text in FILES if (name, text) not in ADDED]
    package = "src/iron_acme"
    assert [name for name, _ in shown] == [
        "pyproject.toml", *(f"{package}/{name}" for name in ("squared_relu.py", "__init__.py", "squared_relu.h", "host.py"))
    ]  # fmt: skip
    for name, text in shown:
        assert text == (EXAMPLE / name).read_text(), name
    added = [name for name, _ in ADDED if name != "pyproject.toml"]
    assert added == [f"{package}/{name}" for name in ("gemv.h", "gemv_host.py", "command.py", "devices.py", "bytes.py")]


def test_it_is_listed_without_being_imported(acme, iron_command):
    """Every entry point of the pack, by metadata alone."""
    names = {(r.group, r.name) for r in acme.records if r.distribution == "iron-acme"}
    assert names == {
        ("operators", "acme.SquaredReLU"),
        ("lowerings", "host.iron_acme.SquaredReLU"),
        ("lowerings", "host.iron_ops_aie.GEMV"),
        ("tokenizers", "acme-bytes"),
        ("devices", "acme1"),
        ("models", "acme-tiny"),
        ("formats", "acme.int8"),
        ("checkpoints", "acme"),
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
    blocks = [block for block in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S) if block not in dict(FILES).values()]
    assert blocks
    for block in blocks:
        exec(compile(block, "docs/plugins.md", "exec"), {"__name__": "page"})


def test_its_device_is_simulated(acme, iron_command):
    """What the page says of it; and it is listed."""
    shown("A device")
    assert "acme1" in iron_command("devices", "list").stdout and "acme1" in iron_command("doctor").stdout


def test_its_tokenizer_spells(acme):
    """What the page says of it."""
    shown("A tokenizer")


def test_its_kernel_of_irons_operator_runs_where_it_is_chosen(acme):
    """What the page says of `lowerings=`; the kernel gives what the reference does, and leaves what it does not take to Iron's."""
    import numpy as np

    from iron_core import OperatorImage
    from iron_ops_aie import GEMV

    shown("Which of several")
    rng = np.random.default_rng(0)
    for K, kernel in ((64, "iron_acme::gemv"), (20, "matmul")):
        a, b = rng.standard_normal((33, K)).astype(np.float32), rng.standard_normal(K).astype(np.float32)
        made = OperatorImage(GEMV(M=33, K=K, T=np.float32), backend="host", lowerings={"host.GEMV": "iron-acme"})
        assert np.allclose(made(a, b), a @ b, atol=1e-4) and made.image.steps[0].unit.template.startswith(kernel)


def test_its_format_runs_by_a_kernel(acme, iron_command):
    """The line that the page shows."""
    line = "operators run GEMV M=64 K=128 W=acme.int8"
    assert f"    $ iron {line}\n" in PAGE
    done = iron_command(*line.split())
    assert done.returncode == 0 and "kernel ACME_INT8" in done.stdout


@pytest.mark.slow
def test_its_model_runs(acme, iron_run):
    """The line that the page shows: eight tokens of drawn weights, twice alike."""
    line = "acme-tiny --random-weights 0 --prompt-len 4 --num-tokens 8"
    assert f"    $ iron-run {line}\n" in PAGE
    done, again = iron_run(*line.split()), iron_run(*line.split())
    assert done.returncode == 0 and len(done.stdout.split()) == 8 and done.stdout == again.stdout


def test_its_model_runs_from_a_file_that_its_reader_reads(acme, iron_run, tmp_path):
    """By the path alone, and as its twin says; weights in the pack's own format too."""
    import numpy as np
    from iron_acme import model, reader
    from iron_acme.int8 import INT8

    from iron_lm import testing
    from iron_lm.checkpoints.names import HUGGINGFACE

    config = model.AcmeTiny.full_size()
    weights = testing.tiny(model.AcmeTiny, config).weights
    named = {}
    for path, array in weights.items():
        layer = re.search(r"\d+", path)
        name = str(HUGGINGFACE[re.sub(r"\d+", "{i}", path)]).format(i=layer[0] if layer else "")
        named[name] = INT8.quantize(array) if path.endswith("ffn.up") else np.asarray(array)
    said = dict(model_type="acme_tiny", vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4)
    reader.write(tmp_path / "tiny.acme", named, said | dict(num_key_value_heads=2, max_position_embeddings=256))
    done = iron_run(str(tmp_path / "tiny.acme"), "--check-accuracy", "--prompt-len", "20")
    assert done.returncode == 0 and "(16 float32, 2 acme.int8)" in done.stderr, done.stdout + done.stderr


def test_its_command_runs(acme, iron_command):
    """The rest of the line is its own."""
    assert iron_command("acme", "x", "--json").stdout == "acme x --json\n"
    assert "Say what it is given." in iron_command("--help").stdout


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
