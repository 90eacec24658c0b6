"""mypy and pyright by the generated stubs: the pages' examples and a pack are accepted, and what no operator takes is told."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, files, page

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "iron_acme" / "src"
#: Pages whose examples speak of more than operators: a language model may have no tokenizer and no feed-forward part, a stream of
#: an NPU's instructions has waits, and whoever knows better says so in a line that no example has.
OF_MODELS = ("models", "images", "tutorial")

#: Each wrong on its line, as the comment says.
WRONG = '''
import numpy as np
import iron_core as iron
from iron_acme import SquaredReLU
from iron_core.graph.handle import Handle
from iron_ops_aie import GEMM, ElementwiseAdd, RMSNorm, SiLU

a = SiLU()  # a keyword is missing
b = GEMM(M=1, K=2)  # a keyword is missing
c = SquaredReLU()  # a keyword is missing
d = SiLU(size=64, tile=3)  # no such tunable
e = GEMM(M=1, K=2, N=3, tile_size=4)  # no such tunable
f = SquaredReLU(size=64, tile=3)  # no such tunable
g = SiLU(size="a")  # no number


class Body(iron.Graph):
    def body(self, x: Handle, *, n: iron.Scratchpad[np.int32]) -> Handle:
        h = SiLU(x, x, x, x)  # too many tensors
        i = ElementwiseAdd(x)  # too few tensors
        j = SquaredReLU(x, x, x)  # too many tensors
        k = SiLU(x, bound=n)  # no such number per call
        m = RMSNorm(x, tile_size=3)  # no such tunable
        o = SiLU(x, valid="three")  # no number per call
        p = SiLU(x, valid=2.5)  # no number per call
        return SiLU("x")  # no tensor


class Floats(iron.Graph):
    def body(self, x: Handle, *, n: iron.Scratchpad[np.float32]) -> Handle:  # no type of a number per call
        return SiLU(x)


class Wide(iron.Graph):
    def body(self, x: Handle, *, n: iron.Carried[np.int64]) -> Handle:  # no type of a number per call
        return SiLU(x)


class Python(iron.Graph):
    def body(self, x: Handle, *, n: iron.DispatchTime[int]) -> Handle:  # no type of a number per call
        return SiLU(x)
'''

#: Right, and of the types that are asked for.
RIGHT = '''
import numpy as np
import iron_core as iron
from iron_acme import SquaredReLU
from iron_core.graph.handle import Handle
from iron_ops_aie import GEMM, ElementwiseAdd, RMSNorm, SiLU


class Project(iron.Graph):
    def __init__(self, w: np.ndarray) -> None:
        self.w = iron.weight(w)

    def body(self, x: Handle, *, n: iron.Scratchpad[np.int32], k: iron.Carried[np.int32]) -> tuple[Handle, object]:
        y: Handle = SiLU(GEMM(x[:n], self.w, b_col_maj=True, tile_m=16))
        z: Handle = ElementwiseAdd(RMSNorm(y, epsilon=1e-6), SquaredReLU(y, valid=n + 1), valid=k // 2)
        return z, iron.carry(k=k + 1)


op: SiLU = SiLU(size=64, tile_size=16)
size: int = op.size
own: SquaredReLU = SquaredReLU(size=64)
'''


def examples() -> Iterator[tuple[str, str]]:
    """(name, text) of what the pages show besides files."""
    for path in sorted(DOCS.glob("*.md")):
        if path.stem not in OF_MODELS:
            written = {text for _, text in files(path.read_text())}
            for number, text in enumerate(re.findall(r"^```python\n(.*?)^```", path.read_text(), re.M | re.S)):
                if text not in written:
                    yield f"{path.stem.replace('-', '_')}_{number}.py", text


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with the pack of docs/plugins.md and docs/adding.md, its stub made anew, and what is checked."""
    root = tmp_path_factory.mktemp("checked")
    shutil.copytree(EXAMPLE, root, dirs_exist_ok=True)
    for name in ("plugins", "adding"):
        for path, text in files(page(name)):
            if path.startswith("src/"):
                (root / path.removeprefix("src/")).write_text(text)
    (root / "iron_acme" / "__init__.pyi").unlink()
    env = os.environ | {"PYTHONPATH": str(root)}
    subprocess.run([sys.executable, "-m", "iron_core.declare.stub", "iron_acme"], check=True, capture_output=True, env=env, cwd=root)
    shown = list(examples())
    assert len(shown) > 15
    for name, text in (*shown, ("wrong.py", WRONG), ("right.py", RIGHT)):
        (root / name).write_text(text)
    settings = dict(typeCheckingMode="standard", reportMissingImports=False, reportMissingModuleSource=False)
    (root / "pyrightconfig.json").write_text(json.dumps(settings))
    return root


def mypy(root: Path) -> list[tuple[str, int, str]]:
    """(file, line, message) of every error."""
    line = [sys.executable, "-m", "mypy", "--check-untyped-defs", "--ignore-missing-imports", "--no-error-summary", "--hide-error-context"]
    modules = [path.name for path in sorted(root.glob("*.py"))]
    done = subprocess.run([*line, "--cache-dir", ".mypy", "iron_acme", *modules], capture_output=True, text=True, cwd=root)
    found = re.findall(r"^(\S+?):(\d+): error: (.*)$", done.stdout, re.M)
    assert found, done.stdout + done.stderr
    return [(file, int(number), said) for file, number, said in found]


def pyright(root: Path) -> list[tuple[str, int, str]]:
    """Likewise."""
    line = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, "--level", "error"]
    done = subprocess.run(line, capture_output=True, text=True, cwd=root)
    found = json.loads(done.stdout)["generalDiagnostics"]
    return [(str(Path(one["file"]).relative_to(root.resolve())), one["range"]["start"]["line"] + 1, one["message"]) for one in found]


CHECKERS = [
    pytest.param(checker, marks=pytest.mark.skipif(find_spec(module) is None, reason=f"{module} is not installed"), id=checker.__name__)
    for checker, module in ((mypy, "mypy"), (pyright, "basedpyright"))
]


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_checker_takes_what_is_right_and_tells_what_is_wrong(checker, folder):
    """Every wrong line, and no other of the pack, of the pages or of what is right."""
    found = checker(folder)
    wrong = {number for number, line in enumerate(WRONG.splitlines(), 1) if "  # " in line}
    assert len(wrong) == 18 and {number for file, number, _ in found if file == "wrong.py"} == wrong
    assert [one for one in found if one[0] != "wrong.py"] == []


def test_what_is_installed_is_left_as_it_is(tmp_path):
    """Its stub is put into the working folder, or where it is told, which it says; beside a source it stands by itself."""
    installed, source = tmp_path / "lib" / "site-packages", tmp_path / "src"
    for root in (installed, source):
        shutil.copytree(EXAMPLE / "iron_acme", root / "iron_acme", ignore=shutil.ignore_patterns("*.pyi", "__pycache__"))
    work = tmp_path / "work"
    work.mkdir()

    def make(root: Path, *more: str) -> subprocess.CompletedProcess[str]:
        env = os.environ | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
        line = [sys.executable, "-m", "iron_core.declare.stub", "iron_acme", *more]
        return subprocess.run(line, capture_output=True, text=True, env=env, cwd=work)

    before = sorted(installed.rglob("*"))
    done = make(installed)
    assert done.returncode == 0 and done.stdout == "typings/iron_acme/__init__.pyi\n", done.stderr
    assert f"iron_acme is installed in {installed / 'iron_acme'}, which stays as it is; pyright reads typings" in done.stderr
    assert sorted(installed.rglob("*")) == before
    assert make(installed, "--into", "elsewhere").stdout == "elsewhere/iron_acme/__init__.pyi\n"
    assert make(source).stdout.strip() == str(source / "iron_acme" / "__init__.pyi")
    texts = {path.read_text() for path in (*work.rglob("*.pyi"), *source.rglob("*.pyi"))}
    assert len(texts) == 1 and "class SquaredReLU(UnaryElementwise):" in texts.pop()
