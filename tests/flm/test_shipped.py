"""`flm.Shipped`: a downloaded binary, on its own and on an NPU, or refused in words."""

from __future__ import annotations

import numpy as np
import pytest

import iron_core as iron
import iron_ops_flm as flm
from fuzz.seeds import xclbin
from iron_core.errors import FormatError, ParamError, TraceError, Unresolvable, UnsupportedError


@pytest.fixture
def op(tmp_path):
    (tmp_path / "mm.xclbin").write_bytes(xclbin())
    return flm.Shipped(image=iron.Xclbin(tmp_path / "mm.xclbin"))


def test_it_is_a_matrix_product(op):
    """Of B in the overlay's order: what `pack_B` makes of it."""
    rng = np.random.default_rng(0)
    A, B = (iron.round_to(rng.standard_normal(shape), iron.bfloat16) for shape in ((256, 512), (512, 64)))
    C = op.reference(A, op.pack_B(B))
    assert np.array_equal(C, A.astype(np.float64) @ B.astype(np.float64))
    assert op.check(iron.round_to(C, iron.bfloat16), C, A, op.pack_B(B)).compared == C.size


def test_pack_B_takes_a_matrix_of_the_operator(op):
    """Real numbers, of its shape, which are rounded to bfloat16."""
    B = np.random.default_rng(0).standard_normal((512, 64))
    assert np.array_equal(op.pack_B(B), op.pack_B(iron.round_to(B, iron.bfloat16))) and op.pack_B(B).dtype == iron.bfloat16
    for shape in ((64, 512), (1024, 64), (5,), ()):
        with pytest.raises(ParamError, match=r"pack_B\(\) of shape .*; legal: \(K, N\), here \(512, 64\)"):
            op.pack_B(np.zeros(shape))
    with pytest.raises(FormatError, match=r"Shipped: pack_B\(\) of object; legal: real numbers"):
        op.pack_B(np.full((512, 64), None))


def test_it_is_refused_in_a_graph(op):
    """Nothing builds its array together with the other steps'."""

    class Product(iron.Graph):
        def body(self, a, b):
            return op(a, b)

    with pytest.raises(TraceError, match=r"Shipped: mm.xclbin is a binary that runs by itself.*Legal: OperatorImage\(op\)"):
        Product().compile(backend="null", dev="npu2", a=(256, 512), b=(512, 64))


@pytest.mark.parametrize(("backend", "dev", "why"), [
    ("host", "host", "backend host runs on host"),
    ("reference", "host", "backend reference runs on host"),
    ("null", "host", "backend null runs on host"),
    ("sim", "npu2", "backend sim loads no binaries"),
    ("reference", "npu2", "backend reference loads no binaries"),
])  # fmt: skip
def test_it_is_refused_where_no_npu_loads_it(op, backend, dev, why):
    """By name and reason; what is advised works."""
    with pytest.raises(UnsupportedError, match=f"Shipped: mm.xclbin is a binary for an NPU, and {why}.*backend='null' with dev='npu2'"):
        iron.OperatorImage(op, backend=backend, dev=dev)
    assert iron.OperatorImage(op, backend="null", dev="npu2").packaging.image in ("elf", "xclbin")


def test_it_has_no_array_to_explain(op):
    """Nor does it run on a CPU, as what else has none does."""
    with pytest.raises(Unresolvable, match=r"Shipped declares no array; it is a binary, mm.xclbin, which an NPU runs by itself"):
        op.explain("npu2")


def test_its_fields_are_checked(op):
    """An image that is one, and whole tiles."""
    with pytest.raises(ParamError, match=r"image='mm.xclbin'; legal: iron.Xclbin\(path\)"):
        flm.Shipped(image="mm.xclbin")
    for shape, why in ((dict(M=64), "M=64; legal: a multiple of 256"), (dict(K=256), "K=256; legal"), (dict(N=8), "N=8; legal")):
        with pytest.raises(ParamError, match=why):
            flm.Shipped(image=op.image, **shape)


def test_two_images_are_two_operators(op, tmp_path):
    """Its contract is its bytes', wherever they lie."""
    (tmp_path / "copy").write_bytes(xclbin())
    (tmp_path / "other").write_bytes(xclbin(kinds=(32, 2)))
    same, other = (flm.Shipped(image=iron.Xclbin(tmp_path / name)) for name in ("copy", "other"))
    assert iron.contract_key(same) == iron.contract_key(op) != iron.contract_key(other)
    assert iron.label(other).startswith("Shipped_imageother_")
