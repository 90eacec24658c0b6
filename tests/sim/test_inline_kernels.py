"""Kernels that carry their own C++: compiled with the host's compiler, they equal their tile references."""

from __future__ import annotations

from functools import cache

import attrs
import numpy as np
import pytest

from iron_core import Tolerance
from iron_core.array.build import build
from iron_core.array.fit import fit
from iron_core.array.kernel import noting
from iron_core.declare.cases import cases
from iron_core.devices import device
from iron_core.errors import DeclarationError, IronError
from iron_core.trials.compiled_kernel import CompiledKernel, compile_all, compiler, random_arguments
from iron_sim.machine import Machine
from iron_sim.run import regions_of
from tests.catalog import ARRAYS

#: Of kernels that differ in their macros alone, how many are compiled.
VARIANTS = 3


#: Operators whose kernels take tables, or places in a buffer, which are no random numbers: what their own cases call them with is noted.
TABLES = ("CombineExperts", "Emit", "GatedDeltaChunk", "GatedDeltaStep", "GatedExperts", "Resample", "Sample")


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
    """All of them, compiled."""
    command = compiler()
    if command is None:
        pytest.skip("no C++ compiler (c++, g++, clang++)")
    made = compile_all(inline_kernels()[0], command, tmp_path_factory.mktemp("inline"))
    assert not [str(one) for one in made.values() if isinstance(one, DeclarationError)]
    return made


def test_there_are_some():
    """Of both kinds."""
    kernels, of_tables = inline_kernels()
    assert kernels.keys() - of_tables.keys() and kernels.keys() & of_tables.keys()


@cache
def noted_calls(symbol):
    """Those that a case of the operator makes, simulated."""
    cls, case, dev = inline_kernels()[1][symbol]
    op = cls(**case.fields).resolved(device(dev))
    design, kernels = build(op, dev)
    machine = Machine(design.array, kernels, fit(design))
    tensors = cls.test.draw(op, np.random.default_rng(0)) | {name: op.format(name).zeros(op.shape(name)) for name in op.partial}
    with noting() as noted:
        machine.run(design.sequence, regions_of(design, tensors), {})
    return noted.calls[symbol]


def check(made, calls):
    """The compiled kernel against its tile reference: ours equal it in every bit, where a contract might allow more."""
    kernel = made.kernel
    exact = attrs.evolve(kernel.contract, tolerance=Tolerance(exact=True))
    strict = type(kernel)(kernel.data.symbol, kernel.data.arguments, exact, source=kernel.data.source, defines=kernel.data.defines)
    assert CompiledKernel(strict, made.library).check(calls).compared


def test_an_inline_kernel_equals_its_tile_reference(library):
    """On random tiles and small scalars."""
    kernels, of_tables = inline_kernels()
    for symbol in sorted(kernels.keys() - of_tables.keys()):
        check(library[symbol], [random_arguments(kernels[symbol], seed) for seed in range(4)])


def test_an_inline_kernel_of_tables_equals_its_tile_reference(library):
    """On what a case of its operator calls it with."""
    kernels, of_tables = inline_kernels()
    for symbol in sorted(kernels.keys() & of_tables.keys()):
        check(library[symbol], noted_calls(symbol))


def test_a_token_that_does_not_count_leaves_the_state(library):
    """Zeros are read, and a buffer that is to begin with zeros does."""
    kernels, of_tables = inline_kernels()
    delta = [symbol for symbol in sorted(kernels.keys() & of_tables.keys()) if symbol.startswith(("delta_step", "delta_put"))]
    assert {symbol.rpartition("_")[0] for symbol in delta} == {"delta_step", "delta_put"}
    for symbol in delta:
        for given in noted_calls(symbol)[:2]:
            position = max(i for i, a in enumerate(given) if isinstance(a, int))
            check(library[symbol], [[value if i == position else a for i, a in enumerate(given)] for value in (0, 1)])
