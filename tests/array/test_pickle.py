"""Designs are data: they pickle, what is unpickled in another process is equal, and an array is built again from its key."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from iron_core.array.build import array_of, build, build_array
from iron_core.declare.chained import fold
from iron_core.declare.identity import array_key
from iron_core.errors import CacheError
from iron_ops_aie import GEMM, GEMV, MHA, Copy, ElementwiseAdd, SiLU

OPERATORS = {
    "elementwise": (ElementwiseAdd(size=4096), ("valid",)),
    "gemv": (GEMV(M=64, K=64), ("valid",)),
    "gemm": (GEMM(M=64, K=64, N=64), ("valid", "valid_k")),
    "folded": (fold(GEMM(M=64, K=64, N=64), SiLU(size=4096)), ()),
    "mha": (MHA(num_heads=2, seq_len=64, d=64), ()),
    "gather": (Copy(input_size=512 * 64, gather=True, table_rows=64, rows=8), ()),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_a_design_pickles_whole(name):
    """Equal, of equal hash, printed alike."""
    op, bound = OPERATORS[name]
    design = build(op, "npu2", bound).design
    again = pickle.loads(pickle.dumps(design))
    assert again == design and hash(again) == hash(design) and repr(again) == repr(design)


def test_a_design_holds_no_code():
    """Pickled bytes name the vocabulary's classes and no operator, kernel or function of a pack."""
    held = pickle.dumps([build(op, "npu2", bound).design for op, bound in OPERATORS.values()])
    assert b"iron_core.array.design" in held and b"iron_ops_aie" not in held


def test_a_design_is_equal_in_another_process(tmp_path):
    """Where the operator is built anew: nothing in a design depends on the process that made it."""
    (tmp_path / "design").write_bytes(pickle.dumps(build(GEMV(M=64, K=64), "npu1").design))
    code = f"""
import pickle
from pathlib import Path
from iron_core.array.build import build
from iron_ops_aie import GEMV
assert pickle.loads(Path({str(tmp_path / "design")!r}).read_bytes()) == build(GEMV(M=64, K=64), "npu1").design
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", OPERATORS)
def test_an_array_is_built_from_its_key_alone(name, monkeypatch):
    """The key says all that array() reads, links and their fields included: what is built from it is the same data, kernels too."""
    op = OPERATORS[name][0].resolved("npu2")
    array, kernels = build_array(op, "npu2")
    monkeypatch.setattr("iron_core.array.build._arrays", {})
    again, found = array_of(pickle.loads(pickle.dumps(array_key(op))), "npu2")
    assert again is not array and again == array
    assert {symbol: kernel.data for symbol, kernel in found.items()} == {symbol: kernel.data for symbol, kernel in kernels.items()}


def test_a_key_of_an_operator_that_is_not_there():
    """A pack that was removed, a class made inside a function."""
    for name in ("no_such_pack.gemv.GEMV", "iron_ops_aie.products.gemv.Gone", f"{__name__}.made.<locals>.Op"):
        with pytest.raises(CacheError, match=r"an array of .* is wanted, and there is no such operator"):
            array_of((name, ()), "npu2")
