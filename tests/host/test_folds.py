"""Folds on the host: steps that become one kernel, equal to the steps by themselves bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import iron_core as iron
from iron_core.declare.formats import Q4_1, bfloat16
from iron_core.declare.rounding import round_to
from iron_core.errors import UnsupportedError
from iron_host import build, compiler
from iron_host.backend import HostBackend
from iron_ops_aie import (
    AXPY,
    GELU,
    GEMM,
    GEMV,
    MHA,
    Clamp,
    Copy,
    ElementwiseAdd,
    ElementwiseMax,
    ElementwiseMul,
    LayerNorm,
    LeakyReLU,
    Magnitude,
    ReLU,
    RMSNorm,
    RoPE,
    RowwiseMul,
    Scale,
    Sigmoid,
    SiLU,
    SoftCap,
    Softmax,
    Tanh,
)

F32, F16 = np.dtype(np.float32), np.dtype(np.float16)
FLOATS = (F32, bfloat16, F16)
ROWS, COLS = 6, 64


class Chain(iron.Graph):
    """A body over x and z of one shape, with what it needs: weights by name, and two states of `dtype` that rows are put into."""

    def __init__(self, body: Callable[..., Any], dtype: Any = F32, **weights: Any) -> None:
        self.made_of = body
        self.w = {name: iron.weight(array) for name, array in weights.items()}
        self.rows = iron.state((9, COLS), dtype=dtype)
        self.whole = iron.state((ROWS, COLS), dtype=dtype)

    def body(self, x: Any, z: Any, *, n: iron.Scratchpad[np.int32], at: iron.Scratchpad[np.int32]) -> Any:
        return self.made_of(self, x, z, n, at)


@attrs.frozen(eq=False)
class Both:
    """A graph as it is and with folds: what a call gives, states with it, must be equal."""

    plain: Any
    folded: Any

    @classmethod
    def of(cls, *given: Any, shape: tuple[int, int] = (ROWS, COLS), T: Any = F32, threads: int = 2, **weights: Any) -> Both:
        def compiled(fold: bool) -> Any:
            backend = HostBackend(threads=threads, strict=True)
            return Chain(*given, **weights).compile(backend=backend, fold=fold, x=(shape, T), z=(shape, T))

        return cls(compiled(False), compiled(True))

    @property
    def version(self) -> Any:
        (version,) = self.folded.versions.values()
        return version

    @property
    def kernels(self) -> list[str]:
        return [step.unit.template.partition("<")[0] for step in self.version.image.steps]

    def check(self, n: int = ROWS, at: int = 3, seed: int = 0) -> None:
        (plain,) = self.plain.versions.values()
        folds = self.version.plan.folds
        assert folds and len(self.version.image.steps) == len(plain.image.steps) - len(folds)
        (_, shape, _), _ = self.version.plan.signature
        rng = np.random.default_rng(seed)
        T = self.version.plan.inputs[0].format.dtype
        x, z = (round_to(rng.uniform(-2, 2, shape), T) for _ in range(2))
        states = [resident.name for resident in self.folded.plan.residents if resident.kind == "state"]
        for name in states:
            old = self.plain.read(name)
            old[...] = round_to(rng.uniform(-2, 2, old.shape), old.dtype)
            self.plain.write(name, old)
            self.folded.write(name, old)
        made = [graph(x, z, n=n, at=at) for graph in (self.plain, self.folded)]
        made = [one if isinstance(one, tuple) else (one,) for one in made]
        for a, b in zip(*made, strict=True):
            assert a.shape == b.shape and a.tobytes() == b.tobytes()
        for name in states:
            assert self.plain.read(name).tobytes() == self.folded.read(name).tobytes(), name


def drawn(*shape: int, T: Any = F32, seed: int = 1) -> Any:
    return round_to(np.random.default_rng(seed).uniform(-1, 1, shape), T)


#: Chains that are one kernel: each a body, and how many steps are folded away.
ONE_KERNEL: dict[str, tuple[Callable[..., Any], int]] = {
    "elementwise": (lambda g, x, z, n, at: ElementwiseMul(SiLU(x), z), 1),
    "the tile is either input": (lambda g, x, z, n, at: AXPY(z, Scale(x, factor=-0.0), scalar_factor=0.5), 1),
    "numbers of operations": (lambda g, x, z, n, at: Clamp(LeakyReLU(SoftCap(x, cap=1.5), alpha=0.1), low=-0.5, high=1.0), 2),
    "long": (lambda g, x, z, n, at: Tanh(ElementwiseMax(GELU(ElementwiseAdd(Sigmoid(ReLU(x)), z)), x)), 5),
    "a row behind": (lambda g, x, z, n, at: Softmax(ElementwiseAdd(x, z)), 1),
    "rows behind rows": (lambda g, x, z, n, at: LayerNorm(RMSNorm(x)), 1),
    "a row with a weight": (lambda g, x, z, n, at: ElementwiseMul(RMSNorm(x, weight=g.w["v"]), z), 1),
    "a vector for every row": (lambda g, x, z, n, at: SiLU(RowwiseMul(x, g.w["v"])), 1),
    "bounded": (lambda g, x, z, n, at: Softmax(ElementwiseMul(SiLU(x[:n]), z[:n])), 2),
    "of one row": (lambda g, x, z, n, at: RMSNorm(ElementwiseAdd(x.reshape(1, ROWS * COLS), z.reshape(1, ROWS * COLS))), 1),
    "two numbers made one": (lambda g, x, z, n, at: Tanh(Magnitude(x)), 1),
    "turned": (lambda g, x, z, n, at: SiLU(RoPE(x, g.w["angles"])), 1),
}


def chained(name: str, T: Any, **more: Any) -> Both:
    angles = drawn(2, COLS, T=T, seed=3)
    return Both.of(ONE_KERNEL[name][0], T=T, v=drawn(COLS, T=T), angles=angles, **more)


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_a_chain_is_one_kernel(name):
    """Whatever its operations, the inputs they read besides, their rows and bounds; its bits are those of the steps."""
    both = chained(name, F32)
    assert len(both.version.plan.folds) == ONE_KERNEL[name][1]
    assert len(both.kernels) == 1 and both.kernels[0].startswith("fused_")
    both.check()
    both.check(n=2)


@pytest.mark.parametrize("T", [bfloat16, F16], ids=str)
def test_what_is_handed_on_is_rounded_as_in_memory(T):
    """A result between two steps of a kernel has its storage type's digits; a product of more digits would come out otherwise."""
    for name in ("elementwise", "a row with a weight"):
        chained(name, T).check()


@pytest.fixture
def road(request, monkeypatch):
    """Kernels for one kind of processor."""
    name = request.param.replace("-", "_") if compiler.find().name.startswith("zig") else request.param
    monkeypatch.setenv("IRON_HOST_CXXFLAGS", f"-march={name}")
    monkeypatch.setattr(build, "_loaded", {})


@pytest.mark.skipif(compiler.vector_width() not in ("AVX2", "AVX-512"), reason="roads of one processor: where it has all of them")
@pytest.mark.parametrize("road", ["x86-64-v3", "x86-64"], indirect=True)
def test_every_road_gives_the_same_bits_folded_and_not(road):
    """For AVX2 and for no vectors that a machine might lack."""

    def body(g: Any, x: Any, z: Any, n: Any, at: Any) -> Any:
        Copy(Scale(x, factor=0.3), g.whole)
        return Softmax(ElementwiseMul(SiLU(x[:n]), z[:n])), ElementwiseAdd(z, Tanh(z))

    both = Both.of(body, dtype=F16)
    assert len(both.kernels) == 3
    both.check(n=5)


def test_another_shape_compiles_nothing_new():
    """Extents are slots of the kernel, whole rows of another length too."""
    for name in ("bounded", "a row with a weight"):
        units = [chained(name, F32).version.image.units]
        v = drawn(96)
        units.append(Both.of(ONE_KERNEL[name][0], shape=(40, 96), v=v).version.image.units)
        assert units[0] == units[1]


def test_rows_longer_than_a_piece():
    """A row is handed on whole, and threads share rows."""
    body = ONE_KERNEL["bounded"][0]
    Both.of(body, shape=(9, 3000), threads=3).check(n=8)
    Both.of(ONE_KERNEL["long"][0], shape=(9, 3001), threads=3).check()


# -- a copy into a state ---------------------------------------------------------------------------


@pytest.mark.parametrize(("T", "dtype"), [(F32, F16), (bfloat16, F32), (F16, F16)], ids=str)
def test_a_kernel_writes_where_a_copy_would(T, dtype):
    """Into a row that follows a per-call number, or a whole state, of any dtype: the copy is no step any more."""

    def body(g: Any, x: Any, z: Any, n: Any, at: Any) -> Any:
        Copy(SiLU(x[0].reshape(COLS)), g.rows[at])
        Copy(RoPE(z, g.w["angles"]), g.whole)
        Copy(ElementwiseAdd(x[1].reshape(COLS), x[2].reshape(COLS)), g.rows[0])
        return ReLU(x)

    both = Both.of(body, dtype, T=T, angles=drawn(ROWS, COLS, T=T))
    assert sum(fold.kind == "placed" for fold in both.version.plan.folds) == 3
    for at in (1, 8):
        both.check(at=at)


def test_a_kernel_without_lines_writes_elsewhere_too():
    """Attention's kernels and a product's write straight into a state; neither is called for a part, so a copy that rounds stays."""

    def body(g: Any, x: Any, z: Any, n: Any, at: Any) -> Any:
        q = x[0].reshape(1, 2, COLS // 2)
        keys = z.reshape(ROWS, 2, COLS // 2)
        Copy(MHA(q, keys, keys, heads_interleaved=True, kv_interleaved=True).reshape(COLS), g.rows[at])
        Copy(GEMV(g.w["m"], x[0].reshape(COLS), activations="int8_block"), g.rows[0])
        return SiLU(x)

    m = Q4_1.quantize(drawn(COLS, COLS))
    both = Both.of(body, m=m)
    assert [fold.kind for fold in both.version.plan.folds] == ["placed"] * 2 and "copy" not in both.kernels
    both.check()
    rounded = Both.of(body, F16, m=m)
    assert not rounded.version.plan.folds and "not called for a part of its result" in rounded.folded.explain()


# -- what the host does not take -------------------------------------------------------------------


def refused(body: Callable[..., Any], **weights: Any) -> str:
    both = Both.of(body, **weights)
    assert not both.version.plan.folds
    ((_, rule), *_) = both.version.plan.refused
    return str(rule)


def test_refusals_say_why():
    """A step that is read by several, one behind a product, rows of few threads."""
    m = drawn(COLS, COLS)
    assert "GEMM: its kernel is not called for a part" in refused(lambda g, x, z, n, at: SiLU(GEMM(x, g.w["m"])), m=m)
    assert "computes once" in refused(lambda g, x, z, n, at: GEMV(g.w["m"], RMSNorm(x[:1].reshape(1, COLS)).reshape(COLS)), m=m)
    wide = (2, 1 << 18)

    def large(g: Any, x: Any, z: Any, n: Any, at: Any) -> Any:
        return RMSNorm(ElementwiseAdd(x, z))

    both = Both.of(large, shape=wide)
    assert not both.version.plan.folds and "gains by more" in both.version.plan.refused[0][1]


def test_a_state_that_is_read_is_not_written_meanwhile():
    """A copy over what its producer's chain reads stays a copy."""

    def body(g: Any, x: Any, z: Any, n: Any, at: Any) -> Any:
        Copy(ElementwiseAdd(SiLU(x), g.whole), g.whole)
        return ReLU(x)

    both = Both.of(body)
    assert [fold.kind for fold in both.version.plan.folds] == ["finish"]
    both.check()


def test_a_plan_with_other_folds_is_refused():
    """One that a backend made which takes more: no step is left out, and none runs twice."""
    graph = Chain(lambda g, x, z, n, at: GEMV(g.w["m"], RMSNorm(x[:1].reshape(1, COLS)).reshape(COLS)), m=drawn(COLS, COLS))
    folded = graph.compile(backend="reference", fold=True, x=((ROWS, COLS), F32), z=((ROWS, COLS), F32))
    (version,) = folded.plan.versions
    with pytest.raises(UnsupportedError, match="into the prologue of"):
        HostBackend().compile(folded.plan, version.signature)


# -- chance ----------------------------------------------------------------------------------------

UNARY = [SiLU, ReLU, Tanh, lambda x: Scale(x, factor=-0.75), lambda x: Clamp(x, low=-0.5, high=0.5)]
BINARY = [ElementwiseAdd, ElementwiseMul, ElementwiseMax]
ROWWISE = [Softmax, RMSNorm, LayerNorm]


@st.composite
def bodies(draw: Any) -> Callable[..., Any]:
    """A chain of two to four steps, over all rows or the first n, perhaps put into a state."""
    picked: list[Callable[[Any, Any], Any]] = []
    for _ in range(draw(st.integers(2, 4))):
        kind = draw(st.sampled_from(["unary", "binary", "swapped", "rows"]))
        op = draw(st.sampled_from({"unary": UNARY, "rows": ROWWISE}.get(kind, BINARY)))
        if kind == "binary":
            picked.append(lambda t, z, op=op: op(t, z))
        elif kind == "swapped":
            picked.append(lambda t, z, op=op: op(z, t))
        else:
            picked.append(lambda t, z, op=op: op(t))
    bounded, placed = draw(st.booleans()), draw(st.booleans())

    def body(g: Any, x: Any, z: Any, n: Any, at: Any) -> Any:
        x, z = (x[:n], z[:n]) if bounded else (x, z)
        made = x
        for step in picked:
            made = step(made, z)
        if placed and not bounded:
            Copy(made, g.whole)
            return ReLU(ElementwiseMul(x, x))
        return made

    return body


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.generate))
@given(bodies(), st.sampled_from(FLOATS), st.sampled_from(FLOATS), st.integers(0, ROWS), st.integers(1, 3))
def test_any_chain_gives_the_bits_of_its_steps(body, T, dtype, n, threads):
    """Drawn by chance: operations, dtypes, bounds, a place in a state, threads."""
    Both.of(body, dtype, T=T, threads=threads).check(n=n, seed=n)
