"""The gated delta rule: a token after another, the bits of the naive twin; in chunks, near the exact result."""

from __future__ import annotations

import numpy as np
import pytest

from iron_host.kernels import DELTA_GATES, GATED_DELTA, GATED_DELTA_CHUNK, ROWWISE, UNARY

from .conftest import DTYPES, FLOATS
from .test_rows import draw

#: rows, key heads, value heads, key dim, value dim, tiled.
SHAPES = [(1, 1, 1, 8, 32, 0), (5, 2, 4, 16, 40, 0), (9, 2, 6, 7, 33, 1), (3, 4, 4, 128, 128, 0)]


class Drawn:
    """Inputs of a size, keys and queries of length 1; and both kernels on them."""

    def __init__(self, kernels, rng, T, rows, key_heads, heads, keys, values, tiled):
        self.kernels, self.T, self.rows = kernels, T, rows
        unit = rng.standard_normal((2, rows, key_heads, keys))
        unit /= np.linalg.norm(unit, axis=-1, keepdims=True)
        self.q, self.k = unit.astype(DTYPES[T])
        self.v = rng.standard_normal((rows, heads, values)).astype(DTYPES[T])
        self.g = -(10 ** rng.uniform(-3, 0.5, (rows, heads))).astype(np.float32)
        self.beta = rng.random((rows, heads)).astype(np.float32)
        self.state = rng.standard_normal((heads, keys, values)).astype(np.float32)
        self.scale = keys**-0.5
        sizes = dict(key_heads=key_heads, value_heads=heads, key_dim=keys, value_dim=values)
        self.sizes = sizes | dict(repeat=heads // key_heads, tiled=tiled, scale=self.scale)
        self.read = np.arange(heads) % key_heads if tiled else np.arange(heads) // (heads // key_heads)
        wide = max(keys, 16) * (values + 48)
        self.scratch = 4 * (64 * (4 * (max(keys, values) + 16) + 64 * 2 + 2) + wide)

    def run(self, kernel, cuts, past=1, threads=1, chunk=None):
        """Outputs and the state behind them, of calls of these numbers of rows."""
        state, made, at = self.state.copy(), [], 0
        table, more = (GATED_DELTA, {}) if chunk is None else (GATED_DELTA_CHUNK, dict(chunk=chunk))
        for n in cuts:
            part = slice(at, at + n)
            o = np.zeros_like(self.v[part])
            given = {name: getattr(self, name)[part].copy() for name in ("q", "k", "v", "g", "beta")}
            slots = table(**given, state=state, o=o, valid=n, past=past + at, **self.sizes, **more)
            self.kernels(f"gated_delta_{kernel}<{self.T}>", slots, scratch=self.scratch, threads=threads)
            made.append(o)
            at += n
        return np.concatenate(made), state

    def exact(self, past=1):
        """float64."""
        q, k, v, g, beta = (getattr(self, name).astype(np.float64) for name in ("q", "k", "v", "g", "beta"))
        S, out = self.state.astype(np.float64) * bool(past), np.zeros(v.shape)
        for t in range(self.rows):
            for h, r in enumerate(self.read):
                S[h] *= np.exp(g[t, h])
                S[h] += np.outer(k[t, r], beta[t, h] * (v[t, h] - S[h].T @ k[t, r]))
                out[t, h] = S[h].T @ q[t, r] * self.scale
        return out, S


def near(got, want, limit):
    return np.abs(got.astype(np.float64) - want).max() <= limit * max(1.0, np.abs(want).max())


@pytest.mark.parametrize("T", FLOATS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_token_has_the_same_bits_in_any_company(kernels, rng, T, shape):
    """Those of the naive twin, however calls and threads cut the tokens; near the exact result."""
    drawn = Drawn(kernels, rng, T, *shape)
    for past in (0, 1):
        made, state = drawn.run("step", [drawn.rows], past, threads=3)
        for kernel, cuts, threads in (("step", [1] * drawn.rows, 1), ("step", [1, drawn.rows - 1], 2), ("step_naive", [drawn.rows], 1)):
            again, left = drawn.run(kernel, [n for n in cuts if n], past, threads)
            assert np.array_equal(made.view(np.uint8), again.view(np.uint8)) and np.array_equal(state, left)
        out, S = drawn.exact(past)
        assert near(made, out, {"float": 2e-6, "bf16": 2e-2, "f16": 2e-3}[T]) and near(state, S, 2e-6)


@pytest.mark.parametrize("T", FLOATS)
@pytest.mark.parametrize("rows, chunk", [(1, 64), (9, 4), (64, 64), (70, 64), (13, 5)])
def test_chunks_solve_for_what_tokens_correct(kernels, rng, T, rows, chunk):
    """Near the exact result, full chunks and others; the same bits for any number of threads; from zeros where a sequence begins."""
    drawn = Drawn(kernels, rng, T, rows, 2, 4, 24, 40, 0)
    for past in (0, 1):
        made, state = drawn.run("chunk", [rows], past, threads=3, chunk=chunk)
        again, left = drawn.run("chunk", [rows], past, threads=1, chunk=chunk)
        assert np.array_equal(made.view(np.uint8), again.view(np.uint8)) and np.array_equal(state, left)
        out, S = drawn.exact(past)
        assert near(made, out, {"float": 4e-6, "bf16": 2e-2, "f16": 2e-3}[T]) and near(state, S, 4e-6)


def test_a_token_of_a_chunk_does_not_depend_on_those_behind_it(kernels, rng):
    """Of any number of rows, and in calls that end where chunks do."""
    drawn = Drawn(kernels, rng, "float", 21, 2, 4, 20, 33, 1)
    made, state = drawn.run("chunk", [21], chunk=8)
    for n in range(1, 21):
        part, _ = drawn.run("chunk", [n], chunk=8)
        assert np.array_equal(part, made[:n])
    again, left = drawn.run("chunk", [8, 13], chunk=8)
    assert np.array_equal(again, made) and np.array_equal(left, state)


@pytest.mark.parametrize("kernel, chunk", [("step", None), ("chunk", 8)])
def test_no_rows_leave_a_state_alone(kernels, rng, kernel, chunk):
    """As it was, to the last bit."""
    drawn = Drawn(kernels, rng, "float", 1, 1, 1, 8, 32, 0)
    _, state = drawn.run(kernel, [0], chunk=chunk)
    assert np.array_equal(state, drawn.state)


@pytest.mark.parametrize("T", FLOATS)
def test_gates_are_those_of_their_parts(kernels, rng, T):
    """The bits of a sum, a softplus, a product and a sigmoid in float32, of any number of heads; a row's depend on no other row."""
    for rows, heads in ((1, 1), (3, 7), (5, 16), (2, 33), (9, 48)):
        a, b = (draw(rng, (rows, heads), T, 4) for _ in range(2))
        bias, rate = rng.standard_normal(heads).astype(np.float32), -rng.random(heads).astype(np.float32)
        wide, other = a.astype(np.float32), b.astype(np.float32)
        total, soft, g, beta = (np.zeros((rows, heads), np.float32) for _ in range(4))
        kernels("rowwise<op::Add, float>", ROWWISE(x=wide, vector=bias, y=total, valid=rows, cols=heads))
        kernels("unary<op::Softplus, float>", UNARY(x=total, y=soft, valid=total.size, number=0))
        kernels("rowwise<op::Mul, float>", ROWWISE(x=soft, vector=rate, y=g, valid=rows, cols=heads))
        kernels("unary<op::Sigmoid, float>", UNARY(x=other, y=beta, valid=other.size, number=0))
        for count, threads in ((rows, 3), (1, 1)):
            made, corrects = (np.zeros((rows, heads), np.float32) for _ in range(2))
            given = dict(a=a, b=b, bias=bias, rate=rate, g=made, beta=corrects)
            kernels(f"delta_gates<{T}>", DELTA_GATES(**given, valid=count, heads=heads), threads=threads)
            assert np.array_equal(made[:count], g[:count]) and np.array_equal(corrects[:count], beta[:count])
            assert not made[count:].any() and not corrects[count:].any()
