"""Graphs with weights of packed formats on the host: a kernel where planes or a lowering say how they are read, else the reference."""

from __future__ import annotations

import numpy as np
import pytest

import iron_core as iron
from iron_core.declare.formats import as_format
from iron_core.errors import UnsupportedError
from iron_core.plugins.registry import registry
from iron_host.backend import HostBackend
from iron_ops_aie import GEMM, GEMV, Dequant
from tests.layouts import GPTQ, Q4NX, TABLE

F32 = np.dtype(np.float32)
STRICT = HostBackend(strict=True)

HEADER = """
#pragma once
#include "packed.h"
namespace acme {
struct Table {
  static int64_t bytes(int64_t M, int64_t K) { return M * K / 4; }
  static void row(const uint8_t* w, int64_t, int64_t K, int64_t m, float* y) {
    const float table[] = {-1.0f, -0.25f, 0.25f, 1.0f};
    for (int64_t k = 0; k < K; k++) y[k] = table[w[(m * K + k) / 4] >> k % 4 * 2 & 3];
  }
};
}  // namespace acme
"""
LOWERING = """
from pathlib import Path
from iron_host.lowering import FormatLowering, Header, View


class Table(FormatLowering):
    def view(self, format):
        return View("acme::Table", Header(Path(__file__).with_name("acme_table.h")))
"""


class Products(iron.Graph):
    """A row and several rows times a weight transposed, and the weight's numbers."""

    def __init__(self, w):
        self.w = iron.weight(w)

    def body(self, x):
        one = GEMV(self.w, x.reshape(-1, x.shape[-1])[0])
        return one, GEMM(x, self.w, b_col_maj=True), Dequant(self.w, T=F32)


def agrees(w, backend):
    """Does the host give what the reference gives?"""
    x = np.random.default_rng(1).standard_normal((3, w.shape[1])).astype(F32)
    got = Products(w).compile(backend=backend, x=(x.shape, F32))(x)
    numbers = w.dequantize()
    want = (numbers @ x[0], x @ numbers.T, numbers)
    return all(np.allclose(g, n, rtol=1e-5, atol=1e-4) for g, n in zip(got, want, strict=True))


@pytest.mark.parametrize("format", (Q4NX, GPTQ), ids=str)
def test_planes_are_enough_for_kernels(format):
    """No operator of the graph is a call-back."""
    assert agrees(format.quantize(np.random.default_rng(0).standard_normal((32, 256)).astype(F32)), STRICT)


def test_int8_arithmetic_is_that_of_blocks():
    """That of groups of another size is computed by the reference, and strict says which it takes."""

    class Rounded(iron.Graph):
        def __init__(self, w):
            self.w = iron.weight(w)

        def body(self, x):
            return GEMV(self.w, x, activations="int8_block")

    rng = np.random.default_rng(0)
    graph = Rounded(GPTQ.quantize(rng.standard_normal((32, 256)).astype(F32)))
    x = rng.standard_normal(256).astype(F32)
    assert np.array_equal(graph.compile(backend="host", x=(x.shape, F32))(x), graph.reference(x))
    with pytest.raises(UnsupportedError, match="W=gptq4: int8_block kernels read nibbles and signed bytes of which 32"):
        graph.compile(backend=STRICT, x=(x.shape, F32))


@pytest.fixture
def table(site):
    """table(lowered): a tensor of a format without planes, of a pack with or without a lowering for the host."""

    def made(lowered):
        entries = {"iron.formats.v1": {"acme.table": "acme_formats:TABLE"}}
        modules = {"acme_formats.py": TABLE}
        if lowered:
            entries["iron.lowerings.v1"] = {"host.acme.table": "acme_host:Table"}
            modules |= {"acme_host.py": LOWERING, "acme_table.h": HEADER}
        site.add("iron-acme", entries=entries, modules=modules)
        registry.cache_clear()
        raw = np.random.default_rng(0).integers(0, 256, (8, 16), np.uint8)
        return iron.PackedArray(raw, (8, 64), as_format("acme.table"))

    return made


def test_a_lowering_says_how_a_format_without_planes_is_read(table):
    """The pack's header has the struct; the kernels are ours."""
    assert agrees(table(lowered=True), STRICT)


def test_without_a_lowering_the_reference_runs(table):
    """It is announced with the reason, and strict refuses."""
    w = table(lowered=False)
    assert agrees(w, "host")
    says = r"W=acme\.table: its planes do not say how it is read, and nobody registers a lowering host\.acme\.table"
    with pytest.raises(UnsupportedError, match=says):
        agrees(w, STRICT)
