"""`Dequant`: the numbers a row of blocks stands for."""

from __future__ import annotations

import numpy as np
import pytest

from iron_core.declare.formats import Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, SUPERBLOCKS
from iron_core.errors import FormatError, ParamError
from iron_ops_aie import Dequant


def test_a_block_by_hand():
    """Q4_1: element i in the low nibble of byte i, element i + 16 in its high one; scale * q + minimum."""
    x = Q4_1.quantize(np.zeros((1, 32), np.float32))
    x.data[0, :4] = np.array([0.5, -3.0], np.float16).view(np.uint8)
    x.data[0, 4:] = [0x10 * (15 - i) + i for i in range(16)]
    y = Dequant(rows=1, cols=32, F=Q4_1).reference(x)
    assert y[0].tolist() == [0.5 * i - 3 for i in range(16)] + [0.5 * (15 - i) - 3 for i in range(16)]


@pytest.mark.parametrize("format", [Q4_0, Q4_1, Q8_0])
def test_a_quantized_row_comes_back_within_half_a_step(format, rng):
    """The scale is a float16, so is the error; Q4_0 has one step more below zero than above."""
    x = rng.uniform(-1, 1, (4, 96)).astype(np.float32)
    y = Dequant(rows=4, cols=96, F=format, T=np.float32).reference(format.quantize(x))
    step = {Q4_0: 1 / 8, Q4_1: 2 / 15, Q8_0: 1 / 127}[format]
    assert np.abs(y - x).max() <= step * 1.01


@pytest.mark.parametrize("format", [Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, *SUPERBLOCKS], ids=str)
def test_it_agrees_with_the_format_and_bounds_leave_rows(format, rng):
    """The format's own float32 numbers, up to their last rounding; the first rows under a bound."""
    x = format.drawn(rng, (4, 512))
    op = Dequant(rows=4, cols=512, F=format, T=np.float32)
    y = op.reference(x)
    assert np.allclose(y, x.dequantize(), rtol=1e-6, atol=1e-6)
    assert (op.bounded(rows=2).reference(x[:2]) == y[:2]).all()
    assert op.bounded(rows=0).reference(x[:0]).shape == (0, 512)


def test_what_is_not_blocks_or_not_numbers_is_refused():
    """The message says where to turn."""
    with pytest.raises(ParamError, match="x is float32, which is numbers already; Copy converts dtypes"):
        Dequant(rows=1, cols=32, F=np.float32)
    with pytest.raises(FormatError, match=r"a row of 40 is not whole blocks of 32. Nearest: 32, 64"):
        Dequant(rows=1, cols=40, F=Q8_0)
    with pytest.raises(ParamError, match="T=int8; legal: float32, bfloat16, float16"):
        Dequant(rows=1, cols=32, F=Q8_0, T=np.int8)
