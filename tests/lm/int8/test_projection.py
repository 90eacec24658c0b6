"""A quantised `Projection`: one product of integers for matrices that multiply the same rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from iron_core import bfloat16
from iron_core.errors import DeclarationError, UnsupportedError
from iron_lm.int8 import FIXED, INT8, numbers_of
from iron_lm.parts.attention import Attention, AttentionConfig
from iron_lm.parts.mlp import MLP, MLPConfig
from iron_lm.parts.part import Part
from iron_lm.parts.projection import Projection
from iron_lm.quantizing import quantized
from iron_lm.run import Run
from iron_lm.testing import drawn
from iron_ops_aie import Copy

F32 = np.float32
ARRAYS = [dict(backend="sim", dev=dev) for dev in ("npu1", "npu2")]
CPU = [dict(backend=backend) for backend in ("reference", "host")]


class Both(Part):
    """x times each of two matrices."""

    def __init__(self, run: Run, columns: int = 128) -> None:
        self.run = run
        self.both = Projection(self, run, a=(192, columns), b=(64, columns))

    def body(self, x: Any) -> Any:
        return tuple(Copy(y) for y in self.both(x))


def filled(part: Part, weights: dict[str, Any]) -> dict[str, Any]:
    """The part with its projections quantised; what it was filled with."""
    found = {path: quantized(path, projection.arranged(weights)) for path, _, projection in part.projections()}
    apart = {name for _, _, projection in part.projections() for name in projection.names}
    part.fill(found | {path: array for path, array in weights.items() if path not in apart})
    return found


def run(scale: str, dtype: str = "float32") -> Run:
    return Run(128, 64, dtype=dtype, cache_dtype=dtype, quantize="int8", activation_scale=scale)


@pytest.mark.parametrize("rows", [1, 64])
@pytest.mark.parametrize(
    ("where", "scale"),
    [*((where, scale) for where in CPU for scale in ("fixed", "dynamic")), *((where, "fixed") for where in ARRAYS)],
    ids=lambda given: given if isinstance(given, str) else given.get("dev", given["backend"]),
)
def test_sums_are_exact_and_scaled_once(where: dict[str, str], scale: str, rows: int) -> None:
    """Rows become integers, ties to even, within 127; their products with the matrices' integers add up exactly; and one
    multiplication by what the units stand for makes numbers of the sums. Of arrays this is the fixed scale's."""
    dtype = bfloat16 if where["backend"] == "sim" else F32
    part, rng = Both(run(scale, np.dtype(dtype).name)), np.random.default_rng(rows)
    (matrix,) = filled(part, drawn(part)).values()
    x = (2.5 * rng.standard_normal((rows, 128))).astype(dtype)  # some beyond 5
    got = part.compile(x=(x.shape, dtype), **where)(x)
    integers, unit = numbers_of(matrix)
    numbers = x.astype(F32)
    one = np.full((rows, 1), F32(FIXED)) if scale == "fixed" else np.abs(numbers).max(-1, keepdims=True) / F32(127)
    factor = one * F32(unit)
    sums = np.clip(np.rint(numbers * (F32(1) / one)), -127, 127).astype(np.int64) @ integers.T.astype(np.int64)
    want = (sums.astype(np.float64) * factor).astype(dtype)
    for found, part_of in zip(got, (want[:, :192], want[:, 192:]), strict=True):
        assert found.dtype == dtype and np.abs(sums).max() > 1000
        # Scales are multiplied in one order or the other: float32 differs by its last bit, an integer would by ten thousand.
        np.testing.assert_allclose(found.astype(F32), part_of.astype(F32), rtol=0 if dtype == bfloat16 else 3e-7)


def test_rows_scaled_by_themselves_are_refused_on_arrays_by_name() -> None:
    """Their products multiply all sums by one number."""
    part = Both(run("dynamic", "bfloat16"))
    filled(part, drawn(part))
    with pytest.raises(UnsupportedError, match="row_scale="):
        part.compile(x=((64, 128), bfloat16), **ARRAYS[1])


@pytest.mark.parametrize("backend", ["reference", "host"])
def test_biases_are_added_to_what_integers_give(backend: str) -> None:
    """Of one matrix and of several: a part that has them differs from one that has none by them alone."""
    x = np.random.default_rng(0).standard_normal((3, 32)).astype(F32)
    plain, biased = (MLP(MLPConfig(32, 64, bias=bias), run("dynamic")) for bias in (False, True))
    weights = drawn(biased)
    filled(plain, {name: weights[name] for name in ("up", "down")})
    filled(biased, weights | {"up_bias": np.zeros(64, F32)})
    both = [part.compile(backend=backend, x=(x.shape, F32))(x) for part in (plain, biased)]
    np.testing.assert_array_equal(both[0] + weights["down_bias"], both[1])
    attention = Attention(AttentionConfig(32, 2, 1, 16, bias=True, output_bias=True), run("dynamic"))
    filled(attention, drawn(attention))
    assert [type(step.op).__name__ for step in attention.trace(x=((1, 32), F32)).steps].count("RowwiseAdd") == 4


def test_a_part_is_filled_with_the_matrix_made_of_all() -> None:
    """Which is called by their names; their own are not asked for, and one that is not in the format is refused."""
    part = Both(run("fixed"))
    weights = drawn(part)
    assert part.tensors() == {"a": (192, 128), "b": (64, 128)}
    with pytest.raises(DeclarationError, match=r"no weight a\+b \[256, 128\] is given"):
        part.fill(weights)
    whole = np.concatenate([weights["a"], weights["b"]])
    with pytest.raises(DeclarationError, match=r"a\+b is given as float32; legal: int8_tensor"):
        part.fill({"a+b": whole})
    with pytest.raises(DeclarationError, match=r"Both: a\+b has no numbers"):
        part.trace(x=((1, 128), F32))
    assert part.fill({"a+b": INT8.quantize(whole)}) is part


def test_rows_are_quantized_in_the_order_in_which_the_part_takes_them() -> None:
    """A part that has its rows in another order has so too as integers."""

    class Turned(Both):
        def arranged(self, name: str, array: Any) -> Any:
            return array[::-1] if name == "a" else array

    part = Turned(run("fixed"))
    weights = drawn(part)
    (matrix,) = filled(part, weights).values()
    expected = quantized("a+b", [weights["a"][::-1], weights["b"]])
    np.testing.assert_array_equal(matrix.data, expected.data)
