"""Kernels that carry their own C++: compiled with the host's compiler, they equal their tile references."""

from __future__ import annotations

import copy
import ctypes
import os
import shutil
import subprocess
from functools import cache

import attrs
import numpy as np
import pytest

from iron_core.array.build import build
from iron_core.array.fit import fit
from iron_core.declare.cases import cases
from iron_core.declare.objects import ObjectType
from iron_core.devices import device
from iron_core.errors import IronError
from iron_sim.machine import Machine
from iron_sim.memory import store
from iron_sim.run import regions_of
from tests.catalog import ARRAYS

COMPILER = next((c for c in (os.environ.get("CXX"), "c++", "g++", "clang++") if c and shutil.which(c)), None)


#: Of kernels that differ in their macros alone, how many are compiled.
VARIANTS = 3


#: Operators whose kernels take tables, or places in a buffer, which are no random numbers: what their own cases call them with is recorded.
TABLES = ("CombineExperts", "Emit", "GatedDeltaChunk", "GatedDeltaStep", "GatedExperts", "Resample", "Sample")
#: Calls of a kernel that are recorded: the first, and then every so many.
RECORDED, EVERY = 8, 37


@cache
def inline_kernels():
    """The inline kernels of the catalog's designs, by symbol: a few of every source. And of those that take tables, a case each.

    Found by the first test that asks, since every process that runs tests collects this file.
    """
    found, of_tables = {}, {}
    for cls, case, dev in cases(ARRAYS, ("npu1", "npu2"), extensive=True):
        try:
            kernels = build(cls(**case.fields), dev).kernels
        except IronError:
            continue
        if cls.__name__ in TABLES:
            of_tables.update({symbol: (cls, case, dev) for symbol in kernels if symbol not in of_tables})
        found |= {symbol: kernel for symbol, kernel in kernels.items() if kernel.data.source}
    sources = {}
    for symbol in sorted(found):
        sources.setdefault(found[symbol].data.source, []).append(symbol)
    return {symbol: found[symbol] for symbols in sources.values() for symbol in symbols[:VARIANTS]}, of_tables


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """All of them in one shared library."""
    if COMPILER is None:
        pytest.skip("no C++ compiler (c++, g++, clang++)")
    folder = tmp_path_factory.mktemp("inline")
    objects = []
    for symbol, kernel in inline_kernels()[0].items():
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
    """Of both kinds."""
    kernels, of_tables = inline_kernels()
    assert kernels.keys() - of_tables.keys() and kernels.keys() & of_tables.keys()


def random_arguments(kernel, seed):
    """Of the arguments that a kernel reads, random tiles and small scalars, in order."""
    data, bound = kernel.data, dict(kernel.contract.bindings)
    rng = np.random.default_rng(seed)
    for position, (kind, role) in enumerate(zip(data.arguments, data.roles, strict=True)):
        if not isinstance(kind, ObjectType):
            yield bound[position] if position in bound else int(rng.integers(0, 64))
        elif role != "out":
            whole = kind.dtype.kind in "iu"
            yield (rng.integers(0, 100, kind.shape) if whole else rng.standard_normal(kind.shape)).astype(kind.dtype)


def recorded_arguments(symbol):
    """Those of calls that a case of the operator makes, simulated."""
    cls, case, dev = inline_kernels()[1][symbol]
    op = cls(**case.fields).resolved(device(dev))
    design, kernels = build(op, dev)
    calls = []

    def noting(*args):
        calls.append([np.copy(a) if isinstance(a, np.ndarray) else a for a in args])
        return kernels[symbol].contract.reference(*args)

    watched = copy.copy(kernels[symbol])
    watched.contract = attrs.evolve(watched.contract, reference=noting)
    machine = Machine(design.array, {**kernels, symbol: watched}, fit(design))
    tensors = cls.test.draw(op, np.random.default_rng(0)) | {name: op.format(name).zeros(op.shape(name)) for name in op.partial}
    machine.run(design.sequence, regions_of(design, tensors), {})
    return calls[::EVERY][:RECORDED]


def check(library, kernel, given):
    """The compiled kernel against its tile reference, bit for bit after rounding."""
    data, left = kernel.data, iter(given)
    arguments, outputs, kept = [], [], []
    for kind, role in zip(data.arguments, data.roles, strict=True):
        if isinstance(kind, ObjectType):
            tile = np.full(kind.shape, 77).astype(kind.dtype) if role == "out" else np.array(next(left), kind.dtype)
            kept.append(tile)
            arguments.append(ctypes.c_void_p(tile.ctypes.data))
            if role != "in":
                outputs.append(tile)
        else:
            value = next(left)
            value = getattr(value, "value", value)
            arguments.append(ctypes.c_int32(value) if isinstance(value, int) else ctypes.c_float(value))
    with np.errstate(all="ignore"):
        want = kernel.contract.reference(*given)
    getattr(library, data.symbol)(*arguments)
    for got, exact in zip(outputs, want if isinstance(want, tuple) else (want,), strict=True):
        rounded = np.empty(got.size, got.dtype)
        store(rounded, exact, "conv_even")
        assert got.tobytes() == rounded.tobytes(), data.symbol


@pytest.mark.parametrize("seed", range(4))
def test_an_inline_kernel_equals_its_tile_reference(library, seed):
    """On random tiles and small scalars."""
    kernels, of_tables = inline_kernels()
    for symbol in sorted(kernels.keys() - of_tables.keys()):
        check(library, kernels[symbol], list(random_arguments(kernels[symbol], seed)))


def test_an_inline_kernel_of_tables_equals_its_tile_reference(library):
    """On what a case of its operator calls it with."""
    kernels, of_tables = inline_kernels()
    for symbol in sorted(kernels.keys() & of_tables.keys()):
        calls = recorded_arguments(symbol)
        assert calls, symbol
        for given in calls:
            check(library, kernels[symbol], given)


def test_a_token_that_does_not_count_leaves_the_state(library):
    """Zeros are read, and a buffer that is to begin with zeros does."""
    kernels, of_tables = inline_kernels()
    delta = [symbol for symbol in sorted(kernels.keys() & of_tables.keys()) if symbol.startswith(("delta_step", "delta_put"))]
    assert {symbol.rpartition("_")[0] for symbol in delta} == {"delta_step", "delta_put"}
    for symbol in delta:
        for given in recorded_arguments(symbol)[:2]:
            for value in (0, 1):
                position = max(i for i, a in enumerate(given) if isinstance(getattr(a, "value", a), int))
                check(library, kernels[symbol], [value if i == position else a for i, a in enumerate(given)])
