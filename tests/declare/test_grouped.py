"""Rows of integers in groups: their bytes, their numbers, and the products that take them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import iron_core as iron
from iron_core.declare.formats import as_format, bfloat16, grouped
from iron_core.errors import FormatError
from iron_host.backend import HostBackend
from iron_ops_aie import GEMM, GEMV

F32 = np.dtype(np.float32)
EVERY = [grouped(bits, 64, scale, zeros) for bits in (4, 8) for scale in (np.float16, bfloat16, F32) for zeros in (False, True)]


def test_a_block_is_a_scale_a_zero_point_and_integers():
    """Of nibbles the earlier one of two is in the low half of their byte."""
    scales, zeros = np.array([[0.5, 2.0]], np.float16), np.array([[3, 15]], np.float16)
    ints = np.arange(16)[None] % 16
    w = grouped(4, 8, zeros=True).assembled((1, 16), scales=scales, zeros=zeros, values=ints)
    assert w.data.tobytes() == b"\x00\x38\x00\x42\x10\x32\x54\x76" + b"\x00\x40\x80\x4b\x98\xba\xdc\xfe"
    assert np.array_equal(w.dequantize(), np.where(ints < 8, 0.5 * (ints - 3), 2.0 * (ints - 15)))
    w = grouped(4, 8).assembled((1, 16), scales=scales, values=ints)
    assert w.nbytes == 12 and np.array_equal(w.dequantize(), np.where(ints < 8, 0.5 * (ints - 8), 2.0 * (ints - 8)))
    w = grouped(8, 8, F32).assembled((1, 16), scales=scales, values=ints - 8)
    assert w.nbytes == 24 and np.array_equal(w.dequantize(), np.where(ints < 8, 0.5 * (ints - 8), 2.0 * (ints - 8)))


@pytest.mark.parametrize("format", EVERY, ids=str)
def test_a_name_is_of_one_format(format):
    """It says bits, zero points, group and what scales are; the format runs as it is stored, pickles, and is itself as a dtype."""
    assert len({str(each) for each in EVERY}) == len(EVERY) and format.runs_as == format.name
    assert as_format(format) is format and pickle.loads(pickle.dumps(format)) == format
    assert format.by_rows and format.group == 64


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (dict(bits=3, group=32), r"grouped\(bits=3\); legal: 4, 8\."),
        (dict(bits=True, group=32), r"grouped\(bits=True\)"),
        (dict(bits=4, group=12), r"grouped\(group=12\); legal: a multiple of 8\."),
        (dict(bits=4, group=-8), r"grouped\(group=-8\)"),
        (dict(bits=4, group=32, scale=np.int8), r"grouped\(scale=int8\); legal: float16, bfloat16, float32\."),
    ],
)
def test_what_is_no_group_is_refused(given, says):
    """Bits, group and dtype, each by its keyword."""
    with pytest.raises(FormatError, match=says):
        grouped(**given)


@pytest.mark.parametrize("activations", ["exact", "int8_block"])
@pytest.mark.parametrize("format", EVERY[::5], ids=str)  # the kernels' own tests have others
def test_kernels_multiply_groups(format, activations):
    """One row and several, within the contract's tolerance of the reference; activations are rounded 32 by 32."""
    rng = np.random.default_rng(0)
    numbers = {plane.role: rng.uniform(0.5, 2, (40, 3)) for plane in format.planes}
    numbers |= {"zeros": rng.integers(0, 16, (40, 3)), "values": rng.integers(0, 16, (40, 192)) - (8 if format.planes[-1].signed else 0)}
    w = format.assembled((40, 192), **numbers)

    class Products(iron.Graph):
        def __init__(self):
            self.w = iron.weight(w)

        def body(self, x):
            one = GEMV(self.w, x.reshape(-1, 192)[0], activations=activations)
            return one, GEMM(x, self.w, b_col_maj=True, activations=activations)

    x = rng.standard_normal((5, 192)).astype(F32)
    x[:, ::32] *= 20  # a scale for each 32 is another than one for 64
    x[:, 32:64] *= 0.01
    one, several = Products().compile(backend=HostBackend(strict=True), x=(x.shape, F32))(x)
    gemv, gemm = (op(K=192, W=format, T=F32, activations=activations, **sizes) for op, sizes in
                  ((GEMV, dict(M=40)), (GEMM, dict(M=5, N=40, b_col_maj=True))))  # fmt: skip
    gemv.check(one, gemv.reference(w, x[0]), w, x[0])
    gemm.check(several, gemm.reference(x, w), x, w)
    assert np.array_equal(several[0], one)
