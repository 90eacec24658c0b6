"""Random graphs: the host equals the reference run, step by step, whatever the shapes, views, bounds and dtypes."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import iron_core as iron
from iron_core.declare.formats import Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, SUPERBLOCKS, bfloat16
from iron_core.declare.rounding import round_to
from iron_core.errors import DeviationError
from iron_host.backend import HostBackend
from iron_ops_aie import (
    GEMM,
    GEMV,
    MHA,
    Copy,
    DepthwiseConv1d,
    Dequant,
    ElementwiseAdd,
    ElementwiseMul,
    LayerNorm,
    Repeat,
    RMSNorm,
    RoPE,
    RowwiseAdd,
    Sigmoid,
    SiLU,
    Softmax,
    Transpose,
)

FLOATS = (np.dtype(np.float32), bfloat16, np.dtype(np.float16))
#: Whose blocks are 32 numbers, or 256.
BLOCKS = (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, *SUPERBLOCKS)


def blocks(cols: int) -> list[Any]:
    """Formats that store rows of so many numbers as whole blocks."""
    return [format for format in BLOCKS if cols % format.block[1] == 0]


@attrs.frozen
class Tensor:
    """What the drawing knows of a tensor of the graph. `bound` times the per-call value `rows` bounds its rows; 0: none."""

    rows: int
    cols: int
    dtype: Any
    bound: int = 0

    @property
    def cut(self) -> Any:
        """The index that bounds a tensor of this graph's rows as this one's are."""
        return lambda g: slice(g.rows * self.bound) if self.bound else slice(None)


def bound_of(rows: int) -> int:
    """What to multiply `rows`, which is 0 to 2, by for a bound of at most this many rows."""
    return rows // 2


class Drawing:
    """Draws one graph: `plan` holds a function per step, from the tensors made so far to the new ones."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        self.tensors: list[Tensor] = []
        self.inputs: list[Tensor] = []
        self.plan: list[Any] = []
        self.weights: list[Any] = []
        self.states: list[Any] = []
        self.ids = 0  # rows of the ids input, 0 for none
        self.table_rows = 0

    def pick(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def weight(self, shape: tuple[int, ...], format: Any, spread: float = 1.0) -> int:
        packed = format in BLOCKS
        made = format.drawn(self.rng, shape, spread) if packed else round_to(self.rng.uniform(-spread, spread, shape), format)
        self.weights.append(made)
        return len(self.weights) - 1

    def state(self, shape: tuple[int, ...], dtype: Any) -> int:
        self.states.append(iron.state(shape, dtype=dtype))
        return len(self.states) - 1

    def add(self, made: Tensor, step: Any) -> None:
        self.tensors.append(made)
        self.plan.append(step)

    def some(self, **wanted: Any) -> int | None:
        """The place of a tensor with these attributes, if there is one."""
        fits = [i for i, t in enumerate(self.tensors) if all(getattr(t, k) == v for k, v in wanted.items())]
        return self.pick(*fits) if fits else None

    # -- one method per kind of step; each adds itself or does nothing ----------------------------

    def unary(self) -> None:
        i = self.number(0, len(self.tensors) - 1)
        op = self.pick(SiLU, Sigmoid, Softmax, RMSNorm, LayerNorm)
        self.add(self.tensors[i], lambda g, t: op(t[i]))

    def weighted_norm(self) -> None:
        i = self.number(0, len(self.tensors) - 1)
        w = self.weight((self.tensors[i].cols,), self.tensors[i].dtype)
        op, given = self.pick((RMSNorm, ("weight",)), (LayerNorm, ("weight",)), (LayerNorm, ("weight", "bias")))
        self.add(self.tensors[i], lambda g, t: op(t[i], **{name: g.weights[w] for name in given}))

    def binary(self) -> None:
        i = self.number(0, len(self.tensors) - 1)
        j = self.some(**attrs.asdict(self.tensors[i]))
        op = self.pick(ElementwiseAdd, ElementwiseMul)
        self.add(self.tensors[i], lambda g, t: op(t[i], t[j]))

    def bias(self) -> None:
        i = self.number(0, len(self.tensors) - 1)
        w = self.weight((self.tensors[i].cols,), self.tensors[i].dtype)
        self.add(self.tensors[i], lambda g, t: RowwiseAdd(t[i], g.weights[w]))

    def bound(self) -> None:
        i = self.some(bound=0)
        if i is None or self.tensors[i].rows < 2:
            return
        made = attrs.evolve(self.tensors[i], bound=bound_of(self.tensors[i].rows))
        self.add(made, lambda g, t: SiLU(t[i][made.cut(g)]))

    def gemm(self) -> None:
        i = self.number(0, len(self.tensors) - 1)
        x, n = self.tensors[i], self.pick(1, 5, 32, 64, 256)
        spread = x.cols**-0.5
        made = attrs.evolve(x, cols=n)
        if x.cols % 32 == 0 and self.pick(True, False):
            w, how = self.weight((n, x.cols), self.pick(*blocks(x.cols)), spread), self.pick("exact", "int8_block")
            self.add(made, lambda g, t: GEMM(t[i], g.weights[w], b_col_maj=True, activations=how))
            return
        by_rows = self.pick(True, False)
        w = self.weight((n, x.cols) if by_rows else (x.cols, n), self.pick(*FLOATS), spread)
        self.add(made, lambda g, t: GEMM(t[i], g.weights[w], b_col_maj=by_rows))

    def gemv(self) -> None:
        i = self.some(bound=0)
        if i is None:
            return
        x, m = self.tensors[i], self.pick(1, 7, 32)
        row = self.number(0, x.rows - 1)
        packed = x.cols % 32 == 0 and self.pick(True, False)
        w = self.weight((m, x.cols), self.pick(*(blocks(x.cols) if packed else FLOATS)), x.cols**-0.5)
        how = self.pick("exact", "int8_block") if packed else "exact"
        self.add(
            Tensor(1, m, x.dtype),
            lambda g, t: GEMV(g.weights[w], t[i][row].reshape(x.cols), activations=how),
        )

    def view(self) -> None:
        i = self.some(bound=0)
        if i is None:
            return
        x = self.tensors[i]
        top, left = self.number(0, x.rows - 1), self.number(0, x.cols - 1)
        rows, cols = self.number(1, x.rows - top), self.number(1, x.cols - left)
        turned, dtype = self.pick(True, False), self.pick(*FLOATS)
        down, across = self.pick(1, 1, 2, 3), self.pick(1, 1, 2, 3)

        def step(g: Any, t: Any) -> Any:
            part = t[i][top : top + rows : down, left : left + cols : across]
            return Copy(part.T if turned else part, Y=dtype)

        high, wide = len(range(0, rows, down)), len(range(0, cols, across))
        self.add(Tensor(*((wide, high) if turned else (high, wide)), dtype), step)

    def transpose(self) -> None:
        i = self.some(bound=0)
        if i is not None:
            x = self.tensors[i]
            self.add(Tensor(x.cols, x.rows, x.dtype), lambda g, t: Transpose(t[i]))

    def repeat(self) -> None:
        i = self.number(0, len(self.tensors) - 1)
        x, times = self.tensors[i], self.number(1, 3)
        if x.rows < 16:
            self.add(attrs.evolve(x, rows=x.rows * times, bound=x.bound * times), lambda g, t: Repeat(t[i], repeat=times))

    def rope(self) -> None:
        i = self.number(0, len(self.tensors) - 1)
        x, method = self.tensors[i], self.number(0, 1)
        every = self.pick(*[k for k in range(1, x.rows + 1) if x.rows % k == 0 and x.bound % k == 0])
        if x.cols % 2:
            return
        angles = Tensor(x.rows // every, x.cols, self.pick(*FLOATS), x.bound // every)
        w = self.weight((angles.rows, angles.cols), angles.dtype)
        self.add(x, lambda g, t: RoPE(t[i], g.weights[w][angles.cut(g)], method_type=method))

    def convolution(self) -> None:
        i = self.number(0, len(self.tensors) - 1)
        x = self.tensors[i]
        w = self.weight((self.number(1, 5), x.cols), self.pick(*FLOATS))
        self.add(x, lambda g, t: DepthwiseConv1d(t[i], g.weights[w]))

    def cache(self) -> None:
        """A row written at a per-call place of a state, then the state read: whole, at a place, or bounded."""
        i = self.some(bound=0)
        if i is None:
            return
        x, places, dtype = self.tensors[i], self.number(4, 9), self.pick(*FLOATS)
        s, row, how = self.state((places, x.cols), dtype), self.number(0, x.rows - 1), self.number(0, 2)
        made = Tensor(1 if how == 1 else places, x.cols, dtype, bound_of(places) if how == 2 else 0)

        def step(g: Any, t: Any) -> Any:
            cache = g.states[s]
            Copy(t[i][row], cache[g.at])
            if how == 2:
                return Copy(cache[made.cut(g)])
            return Copy(cache[g.at] if how == 1 else cache)

        self.add(made, step)

    def gather(self) -> None:
        rows, cols = self.number(4, 12), self.pick(32, 64, 256)
        format = self.pick(*FLOATS, *blocks(cols))
        w, ids = self.weight((rows, cols), format), None
        if self.pick(True, False) and self.table_rows in (0, rows):
            self.ids, self.table_rows = self.ids or self.number(1, 6), rows
            count = self.ids
            bound = bound_of(count) if format not in BLOCKS else 0
        else:
            bound = 0
            count = self.number(1, 8)
            ids = self.rng.integers(-rows, rows, count)

        made = Tensor(count, cols, bfloat16 if format in BLOCKS else format, bound)

        def step(g: Any, t: Any) -> Any:
            picked = Copy(g.weights[w][g.ids[made.cut(g)] if ids is None else ids])
            return (picked, Dequant(picked.reshape(count, cols), T=bfloat16)) if format in BLOCKS else picked

        self.add(made, step)

    def dequant(self) -> None:
        cols = self.pick(32, 96, 256)
        w = self.weight((self.number(1, 5), cols), self.pick(*blocks(cols)))
        dtype = self.pick(*FLOATS)
        rows = self.weights[w].shape[0]
        self.add(Tensor(rows, cols, dtype), lambda g, t: Dequant(g.weights[w], T=dtype))

    def attention(self) -> None:
        i = self.number(0, len(self.tensors) - 1)
        x = self.tensors[i]
        j = self.some(**attrs.asdict(x))
        groups = [(h, k) for h in (1, 2, 4) for k in (1, 2, 4) if h % k == 0 and x.cols % h == 0]
        heads, kv = self.pick(*groups)
        d = x.cols // heads
        rows = x.rows + self.number(0, 40)
        keys = Tensor(rows, kv * d, self.pick(*FLOATS), self.pick(0, bound_of(rows)))
        k, v = (self.weight((rows, kv, d), keys.dtype) for _ in range(2))
        causal, window, cap = self.pick(True, False), self.pick(None, 3), self.pick(None, 0.5)
        b = self.weight((heads, x.rows, rows), x.dtype) if self.pick(True, False) else None

        def step(g: Any, t: Any) -> Any:
            q = ElementwiseAdd(t[i], t[j])
            more = {} if b is None else dict(bias=g.weights[b][:, x.cut(g), keys.cut(g)])
            more |= dict(heads_interleaved=True, kv_interleaved=True, causal=causal, window=window, soft_cap=cap)
            return q, MHA(q.reshape(x.rows, heads, d), g.weights[k][keys.cut(g)], g.weights[v][keys.cut(g)], **more)

        self.add(x, step)


KINDS = [name for name, member in vars(Drawing).items() if callable(member) and not name.startswith("_")]
KINDS = [k for k in KINDS if k not in ("pick", "number", "weight", "state", "add", "some")]


@st.composite
def drawings(draw: Any) -> Drawing:
    d = Drawing(draw)
    for _ in range(d.number(1, 2)):
        tensor = Tensor(d.number(1, 9), d.pick(2, 8, 31, 32, 64, 256), d.pick(*FLOATS))
        d.inputs.append(tensor)
        d.tensors.append(tensor)
    for _ in range(d.number(1, 8)):
        getattr(d, d.pick(*KINDS))()
    if not d.plan:
        d.unary()
    return d


class Drawn(iron.Graph):
    """The graph of a drawing. `every`: return what every step made, rather than the last."""

    def __init__(self, drawing: Drawing, every: bool) -> None:
        self._drawing, self._every = drawing, every
        self.weights = [iron.weight(w) for w in drawing.weights]
        self.states = [iron.state(s.shape, dtype=s.format.dtype) for s in drawing.states]

    def body(
        self, a: Any, b: Any = None, ids: Any = None, *, rows: iron.Scratchpad[np.int32], place: iron.Scratchpad[np.int32]
    ) -> Any:
        self.__dict__.update(ids=ids, at=place, rows=rows)
        tensors, returned = [a, b][: len(self._drawing.inputs)], []
        for made, step in zip(self._drawing.tensors[len(tensors) :], self._drawing.plan, strict=True):
            results = step(self, tensors)
            results = results if isinstance(results, tuple) else (results,)
            returned.extend(results)
            last = results[-1]
            tensors.append(last if last.shape == (made.rows, made.cols) else last.reshape(made.rows, made.cols))
        return tuple(returned) if self._every else returned[-1]


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawings(), st.data())
def test_the_host_equals_the_reference_step_by_step(judge_steps, drawing, data):
    """Each step is within its contract of the exact result of what it read; states are equal; a run that keeps only
    its last tensor, and so shares memory between steps, is equal bit for bit, and so is one with folds."""
    shapes: dict[str, Any] = {}
    for name, tensor in zip("ab", drawing.inputs, strict=False):
        shapes[name] = ((tensor.rows, tensor.cols), tensor.dtype)
    if drawing.ids:
        shapes["ids"] = ((drawing.ids,), np.int32)
    every, lean = Drawn(drawing, True), Drawn(drawing, False)
    traced = every.trace(**shapes)
    full, small = (g.compile(backend=HostBackend(threads=2, strict=True), **shapes) for g in (every, lean))
    folded = Drawn(drawing, False).compile(backend=HostBackend(threads=2, strict=True), fold=True, **shapes)
    for least in (1, 0):
        values = dict(rows=data.draw(st.integers(least, 2), "rows"), place=data.draw(st.integers(0, 3), "place"))
        inputs = {n: round_to(drawing.rng.uniform(-1, 1, s), t) for n, (s, t) in shapes.items() if n != "ids"}
        if drawing.ids:
            inputs["ids"] = drawing.rng.integers(-drawing.table_rows, drawing.table_rows, drawing.ids).astype(np.int32)
        states = {b.name: full.read(b.name) for b in traced.states}
        tensors = (inputs.get("a"), inputs.get("b"), inputs.get("ids"))
        outputs = full(*tensors, **values)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        assert judge_steps(traced, inputs, values, outputs, states) >= least
        for name, content in states.items():
            assert full.read(name).tobytes() == content.tobytes(), f"{name} after the run"
        alone = small(*tensors, **values)
        last = outputs[-1]
        assert alone.shape == last.shape
        assert alone.tobytes() == last.tobytes(), "sharing memory between steps changed a result"
        assert folded(*tensors, **values).tobytes() == last.tobytes(), "folding steps changed a result"
        for b in traced.states:
            assert folded.read(b.name).tobytes() == small.read(b.name).tobytes(), f"{b.name} after the folded run"


class Doubled(iron.Graph):
    def body(self, x: Any) -> Any:
        return ElementwiseAdd(x, x)


def test_the_judge_sees_one_wrong_number(judge_steps):
    """Without an error the judge passes; with one number moved by sixteen units in the last place it does not."""
    traced = Doubled().trace(x=((4, 8), np.float32))
    x = np.random.default_rng(0).uniform(1, 2, (4, 8)).astype(np.float32)
    y = x + x
    assert judge_steps(traced, {"x": x}, {}, (y,), {}) == 32
    y[2, 3] += 16 * np.spacing(y[2, 3])
    with pytest.raises(DeviationError, match=r"\[2, 3\]|\[19\]"):
        judge_steps(traced, {"x": x}, {}, (y,), {})
