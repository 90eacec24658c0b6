"""Kernels that carry their own C++: compiled with the host's compiler, they equal their tile references."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess

import numpy as np
import pytest

from iron_core.array.build import build
from iron_core.declare.cases import cases
from iron_core.declare.objects import ObjectType
from iron_core.errors import IronError
from iron_sim.memory import store
from tests.catalog import ARRAYS

COMPILER = next((c for c in (os.environ.get("CXX"), "c++", "g++", "clang++") if c and shutil.which(c)), None)


#: Of kernels that differ in their macros alone, how many are compiled.
VARIANTS = 3


#: Operators whose kernels take tables, which are no random numbers: tests/words has Emit's, tests/ops Sample's.
TABLES = ("Emit", "Sample")


def inline_kernels():
    """The inline kernels of the catalog's designs, by symbol: a few of every source."""
    found = {}
    for cls, case, dev in cases([cls for cls in ARRAYS if cls.__name__ not in TABLES], ("npu1", "npu2"), extensive=True):
        try:
            kernels = build(cls(**case.fields), dev).kernels
        except IronError:
            continue
        found |= {symbol: kernel for symbol, kernel in kernels.items() if kernel.data.source}
    sources = {}
    for symbol in sorted(found):
        sources.setdefault(found[symbol].data.source, []).append(symbol)
    return {symbol: found[symbol] for symbols in sources.values() for symbol in symbols[:VARIANTS]}


KERNELS = inline_kernels()


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """All of them in one shared library."""
    if COMPILER is None:
        pytest.skip("no C++ compiler (c++, g++, clang++)")
    folder = tmp_path_factory.mktemp("inline")
    objects = []
    for symbol, kernel in KERNELS.items():
        source = folder / f"{symbol}.cpp"
        source.write_text(kernel.data.source)
        macros = [f"-DKERNEL={symbol}", *(f"-D{k}={v}" for k, v in kernel.data.defines)]
        objects.append(folder / f"{symbol}.o")
        line = [COMPILER, "-std=c++17", "-O1", "-ffp-contract=off", "-fPIC", "-c", *macros, str(source), "-o", str(objects[-1])]
        subprocess.run(line, check=True, text=True)
    out = folder / "inline.so"
    subprocess.run([COMPILER, "-shared", *map(str, objects), "-o", str(out)], check=True, capture_output=True)
    return ctypes.CDLL(str(out))


def test_there_are_some():
    assert KERNELS


@pytest.mark.parametrize("symbol", sorted(KERNELS))
@pytest.mark.parametrize("seed", range(4))
def test_an_inline_kernel_equals_its_tile_reference(library, symbol, seed):
    """On random tiles and small scalars, bit for bit after rounding."""
    kernel = KERNELS[symbol]
    data = kernel.data
    rng = np.random.default_rng(seed)
    bound = dict(kernel.contract.bindings)
    arguments, given, outputs, kept = [], [], [], []
    for position, (kind, role) in enumerate(zip(data.arguments, data.roles, strict=True)):
        if isinstance(kind, ObjectType):
            if kind.dtype.kind in "iu":
                tile = rng.integers(0, 100, kind.shape).astype(kind.dtype)
            else:
                tile = rng.standard_normal(kind.shape).astype(kind.dtype)
            kept.append(tile)
            arguments.append(ctypes.c_void_p(tile.ctypes.data))
            if role != "out":
                given.append(tile.copy())
            if role != "in":
                outputs.append(tile)
        else:
            value = bound.get(position)
            if value is None:
                value = int(rng.integers(0, 64))
                given.append(value)
            value = getattr(value, "value", value)
            arguments.append(ctypes.c_int32(value) if isinstance(value, int) else ctypes.c_float(value))
    with np.errstate(all="ignore"):
        want = kernel.reference(*given)
    getattr(library, symbol)(*arguments)
    for got, exact in zip(outputs, want if isinstance(want, tuple) else (want,), strict=True):
        rounded = np.empty(got.size, got.dtype)
        store(rounded, exact, "conv_even")
        assert got.tobytes() == rounded.tobytes()
