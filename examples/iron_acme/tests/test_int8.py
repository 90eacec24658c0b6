"""`INT8`: what its bytes mean, and a product with a weight that is stored so."""

from __future__ import annotations

from typing import Any

import iron_core as iron
import numpy as np
import pytest
from iron_core.declare.formats import as_format
from iron_core.testing import FormatConformance
from iron_host.backend import HostBackend
from iron_ops_aie import GEMV

from iron_acme.int8 import INT8


class TestINT8(FormatConformance):
    """What every format keeps."""

    format = INT8
    name = "acme.int8"


class Product(iron.Graph):
    """w x, of a packed w."""

    def __init__(self, w: Any) -> None:
        self.w = iron.weight(w)

    def body(self, x: Any) -> Any:
        return GEMV(self.w, x)


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_it_is_known_by_its_name() -> None:
    assert as_format("acme.int8") is INT8


def test_its_bytes_are_scales_and_integers() -> None:
    """Read here without the format: 66 bytes a block."""
    raw = np.random.default_rng(0).integers(0, 256, (3, 2, 66), np.uint8)
    raw[..., :2] = np.full((3, 2, 1), 0.25, np.float16).view(np.uint8)
    want = np.float32(0.25) * raw[..., 2:].view(np.int8).reshape(3, 128)
    assert INT8.nbytes((3, 128)) == raw.size
    assert np.array_equal(INT8.tensor(raw.reshape(-1), (3, 128)).dequantize(), want)


def test_what_is_rounded_is_near() -> None:
    """Within a step of each block's scale: the largest number is 127 or -128 of them."""
    x = drawn(4, 256)
    step = np.abs(x.reshape(4, 4, 64)).max(-1, keepdims=True) / 127
    off = np.abs(INT8.quantize(x).dequantize() - x).reshape(4, 4, 64)
    assert (off <= 1.01 * step).all()


@pytest.mark.parametrize("backend", ["reference", HostBackend(strict=True)], ids=["reference", "host"])
def test_a_product_runs(backend: Any) -> None:
    """On the CPU by a kernel that is written from the format's planes."""
    w, x = INT8.quantize(drawn(16, 128)), drawn(128)
    got = Product(w).compile(backend=backend, x=(x.shape, x.dtype))(x)
    assert np.allclose(got, w.dequantize() @ x, rtol=1e-5, atol=1e-4)
