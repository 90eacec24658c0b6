"""Rows of a prompt's chunk on arrays: `flm.GEMM` where it is installed and takes them, else `GEMM`, and which is said."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import iron_core as iron
from iron_core import bfloat16
from iron_core.devices import using_device
from iron_lm.parts import fused_product
from iron_lm.parts.fused_product import FUSED, products_of
from iron_lm.parts.projection import project

DEVICES = ("npu1", "npu2")


class Rows(iron.Graph):
    """Rows, as many as a call says, times a matrix."""

    def __init__(self, N: int = 64, K: int = 512, dtype: object = bfloat16) -> None:
        self.w = (np.random.default_rng(0).standard_normal((N, K)) / 16).astype(dtype)

    def body(self, x, *, n: iron.Scratchpad[np.int32]):
        return project(x[:n], self.w)


def operators(compiled):
    return [repr(step.op).partition("(")[0] for version in compiled.versions.values() for step in version.plan.steps]


def without(monkeypatch, found=None, owners=()):
    """As where nothing offers `flm.GEMM`."""
    monkeypatch.setattr(fused_product, "registry", lambda: SimpleNamespace(find=lambda *_: found, owners=lambda *_: owners))


@pytest.mark.parametrize("dev", DEVICES)
def test_a_chunk_of_whole_blocks_is_flms(dev):
    """Bounded rows too; and it says so."""
    compiled = Rows().compile(dev=dev, backend="null", x=(256, 512))
    assert operators(compiled) == ["flm.GEMM"] and "flm.GEMM(M=256, K=512, N=64" in compiled.explain()
    assert products_of(compiled) == ({FUSED: 1}, "")


@pytest.mark.parametrize(
    ("graph", "x", "why"),
    [
        (Rows(), (64, 512), "GEMM: M=64 is not whole blocks of 4 rows of 64, 256 in all. Nearest legal M: 256."),
        (Rows(K=576), (256, 576), "GEMM: K=576 is not whole blocks of k_tile=512, 512 in all"),
        (Rows(N=96), (256, 512), "GEMM: N=96 is not whole tiles of tile_n=64, 64 in all"),
        (Rows(dtype=np.float32), ((256, 512), np.float32), "flm.GEMM is of bfloat16 alone"),
    ],
    ids=["rows", "depth", "width", "dtype"],
)
def test_what_it_does_not_take_is_gemms(graph, x, why):
    compiled = graph.compile(dev="npu2", backend="null", x=x)
    assert operators(compiled) == ["GEMM"]
    counted, said = products_of(compiled)
    assert counted == {"GEMM": 1} and said.startswith(why)


def test_on_a_cpu_it_is_gemm():
    """Whatever the shape; so it is for who traces for no device."""
    assert operators(Rows().compile(backend="host", x=(256, 512))) == ["GEMM"]
    assert [type(step.op).__module__.partition(".")[0] for step in Rows().trace(x=(256, 512)).steps] == ["iron_ops_aie"]
    with using_device("npu2"):
        assert [type(step.op).__module__.partition(".")[0] for step in Rows().trace(x=(256, 512)).steps] == ["iron_ops_flm"]


def test_without_the_distribution_it_is_gemm(monkeypatch):
    """And that is said."""
    without(monkeypatch)
    compiled = Rows().compile(dev="npu2", backend="null", x=(256, 512))
    assert operators(compiled) == ["GEMM"] and fused_product.fused_by() == ""
    assert products_of(compiled) == ({"GEMM": 1}, "iron-ops-flm is not installed")


@pytest.mark.parametrize("dev", DEVICES)
def test_both_are_the_same_product(dev, monkeypatch, rng):
    """On simulated arrays: near the exact one, each within its own gate."""
    x = rng.standard_normal((256, 512)).astype(bfloat16)
    graph = Rows()
    exact = x.astype(np.float64) @ graph.w.astype(np.float64).T
    made = [graph.compile(dev=dev, backend="sim", x=x.shape)(x, n=200)]
    without(monkeypatch)
    made.append(Rows().compile(dev=dev, backend="sim", x=x.shape)(x, n=200))
    for got in made:
        assert got.shape == (200, 64) and np.abs(got.astype(np.float64) - exact[:200]).max() < 0.03 * np.abs(exact).max()
