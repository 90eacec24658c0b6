"""A plan that is kept for the next start is of what was installed: another version, source or owner is traced anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import iron_core as iron
from iron_core.backends.reference import ReferenceBackend
from iron_core.cache.store import Cache
from iron_core.errors import UnsupportedError
from iron_core.lowering.answer import No
from iron_core.plugins.registry import registry
from iron_ops_aie import GEMM, SiLU

F32 = np.float32
OPERATOR = "from iron_core import UnaryElementwise\nclass Twice(UnaryElementwise):\n    def reference(self, x): return x + x\n"
BACKENDS = """
from iron_core.backends.reference import ReferenceBackend

class Always(ReferenceBackend):
    def accepts(self, fold, dev): return True

class If(ReferenceBackend):
    def __init__(self, folds): self.folds = folds
    def accepts(self, fold, dev): return self.folds
"""
LOWERING = "from iron_core import Lowering\nclass L(Lowering):\n    backend, operator = 'reference', 'acme_ops.Twice'\n"


class Activated(iron.Graph):
    def __init__(self) -> None:
        self.w = iron.weight(np.ones((4, 8), F32))

    def body(self, x: Any) -> Any:
        return SiLU(GEMM(x, self.w, b_col_maj=True))


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NPU_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def start(monkeypatch):
    """`start(backend, dev)`: the folds of a graph's plan at another start, and whether it was traced."""
    trace, traced = iron.Graph.trace, []
    monkeypatch.setattr(iron.Graph, "trace", lambda self, **shapes: traced.append(1) or trace(self, **shapes))

    def start(backend: Any, dev: str) -> tuple[int, int]:
        traced.clear()
        compiled = Activated().compile(x=((16, 8), F32), backend=backend, dev=dev, cache_key="model", fold=True)
        (version,) = compiled.plan.versions
        return len(version.folds), len(traced)

    return start


def test_a_device_has_plans_of_its_own(start, monkeypatch):
    """The folds that one device takes are not another's, whichever was planned first."""
    monkeypatch.setattr(ReferenceBackend, "accepts", lambda self, fold, dev: dev == "npu2")
    found = [start("reference", dev) for dev in ("npu1", "npu2", "npu1", "npu2")]
    assert found == [(0, 1), (1, 1), (0, 0), (1, 0)]


def test_a_backend_has_plans_of_its_own(start, site):
    """Two that go by one name, or one with other options, may take other folds."""
    site.add("iron-acme", modules={"acme_backends.py": BACKENDS})
    from acme_backends import Always, If

    found = [start(one, "npu2") for one in (Always(), If(False), If(True), Always(), If(False), If(True))]
    assert found == [(1, 1), (0, 1), (1, 1), (1, 0), (0, 0), (1, 0)]


@pytest.fixture
def acme(site):
    """`start()`: the times a graph of the pack's operator is traced at another start."""
    site.add("iron-acme", "1.0", entries={"iron.operators.v1": {"acme.Twice": "acme_ops:Twice"}}, modules={"acme_ops.py": OPERATOR})

    def start() -> int:
        import acme_ops

        traced = []

        class Doubled(iron.Graph):
            def body(self, x: Any) -> Any:
                traced.append(x)
                return acme_ops.Twice(x)

        compiled = Doubled().compile(x=((4,), F32), backend="reference", cache_key="model")
        assert compiled(np.ones(4, F32)).tolist() == [2] * 4
        return len(traced)

    return start


def test_a_start_that_finds_all_as_it_was_traces_nothing(acme):
    """With a pack's operator too."""
    assert [acme(), acme(), acme()] == [1, 0, 0]


def test_an_operator_whose_source_changed_is_traced_anew(acme, site):
    """Only once: the next start finds the new plan."""
    assert [acme(), acme()] == [1, 0]
    (site.folder / "acme_ops.py").write_text(OPERATOR + "# changed\n")
    assert [acme(), acme()] == [1, 0]


def test_an_operator_of_another_version_of_its_distribution_is_traced_anew(acme, site):
    """Though its source is what it was."""
    assert [acme(), acme()] == [1, 0]
    (site.folder / "iron_acme-1.0.dist-info").rename(site.folder / "iron_acme-1.1.dist-info")
    metadata = site.folder / "iron_acme-1.1.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("Version: 1.0", "Version: 1.1"))
    registry.cache_clear()
    assert [acme(), acme()] == [1, 0]


def test_a_lowering_that_came_or_changed_is_traced_anew(acme, site):
    """What a backend takes may follow from it."""
    assert [acme(), acme()] == [1, 0]
    entries = {"iron.lowerings.v1": {"reference.acme_ops.Twice": "fast_twice:L"}}
    site.add("iron-fast", entries=entries, modules={"fast_twice.py": LOWERING})
    registry.cache_clear()
    assert [acme(), acme()] == [1, 0]
    (site.folder / "fast_twice.py").write_text(LOWERING + "# changed\n")
    assert [acme(), acme()] == [1, 0]


def test_what_is_kept_tells_nothing_of_a_script(acme, monkeypatch):
    """An operator of a module without a source file is kept by no start: nothing says whether it is the same."""
    import acme_ops

    monkeypatch.setattr(acme_ops, "__spec__", None)
    assert [acme(), acme()] == [1, 1]
    assert not list(Cache("reference").folder.glob("*/version.pickle"))


def test_supports_is_still_asked_of_a_kept_plan(start, monkeypatch):
    """A backend that no longer takes a step refuses it, kept or not."""
    assert [start("reference", "npu2")[1] for _ in range(2)] == [1, 0]
    monkeypatch.setattr(ReferenceBackend, "supports", lambda self, op, dev: No("it takes none today"))
    with pytest.raises(UnsupportedError, match="it takes none today"):
        start("reference", "npu2")
