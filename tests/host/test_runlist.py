"""The run list: a tensor is rounded once for the products that follow, and steps that need nothing of one another go together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import iron_core as iron
from iron_core.declare.formats import Q4_1
from iron_host.backend import HostBackend
from iron_ops_aie import GEMV, Copy, SiLU


def test_one_preparation_serves_the_products_that_follow_it():
    """Products of one tensor with int8 activations round it once; a change in between rounds it again."""

    class Three(iron.Graph):
        def __init__(self) -> None:
            rng = np.random.default_rng(0)
            self.w = [Q4_1.quantize(rng.standard_normal((8, 64)).astype(np.float32)) for _ in range(3)]
            self.row = iron.state((64,), dtype=np.float32)

        def body(self, x: Any) -> Any:
            a, b = (GEMV(w, x, activations="int8_block") for w in self.w[:2])
            Copy(SiLU(x), self.row)
            c = GEMV(self.w[2], self.row, activations="int8_block")
            return a, b, c

    graph = Three()
    host = graph.compile(backend=HostBackend(strict=True), x=((64,), np.float32))
    (version,) = host.versions.values()
    kernels = [step.unit.template.partition("<")[0] for step in version.image.steps]
    assert kernels.count("quantize_rows") == 2
    x = np.random.default_rng(3).standard_normal(64).astype(np.float32)
    for got, want in zip(host(x), graph.reference(x), strict=True):
        assert iron.allclose(got, want, 1e-5, 1e-5)


@pytest.mark.parametrize("part", [slice(None), slice(0, 1), slice(1, 2)], ids=["whole", "its beginning", "its end"])
def test_a_tensor_that_was_written_is_rounded_again(part):
    """What a preparation was made of, or a part of it, is written between two products: the second prepares anew."""

    class Between(iron.Graph):
        def __init__(self) -> None:
            self.w = [Q4_1.quantize(np.random.default_rng(k).standard_normal((8, 64)).astype(np.float32)) for k in range(2)]
            self.rows = iron.state((2, 32), dtype=np.float32)

        def body(self, x: Any) -> Any:
            row = self.rows.reshape(64)
            a = GEMV(self.w[0], row, activations="int8_block")
            Copy(x[part], self.rows[part])
            return a, GEMV(self.w[0], row, activations="int8_block"), GEMV(self.w[1], row, activations="int8_block")

    graph = Between()
    host = graph.compile(backend=HostBackend(strict=True), x=((2, 32), np.float32))
    (version,) = host.versions.values()
    kernels = [step.unit.template.partition("<")[0] for step in version.image.steps]
    assert kernels.count("quantize_rows") == 2, "once before the copy and once after it"
    rng = np.random.default_rng(3)
    start = rng.standard_normal((2, 32)).astype(np.float32)
    host.write("rows", start)
    graph.reference_states["rows"][...] = start
    x = rng.standard_normal((2, 32)).astype(np.float32)
    for got, want in zip(host(x), graph.reference(x), strict=True):
        assert iron.allclose(got, want, 1e-5, 1e-5)


@pytest.mark.parametrize("order", ["read then written", "written then read", "written twice"])
def test_steps_that_need_one_another_do_not_go_together(order):
    """A step that writes what another in front of it reads, reads what it writes, or writes it too, waits for it."""
    rows = 1 << 18

    class Ordered(iron.Graph):
        def __init__(self) -> None:
            self.s = iron.state((rows,), dtype=np.float32)

        def body(self, x: Any) -> Any:
            if order == "read then written":
                y = SiLU(self.s)
                Copy(x, self.s)
                return y
            Copy(x, self.s)
            if order == "written then read":
                return SiLU(self.s)
            Copy(x[::1], self.s)
            return SiLU(x)

    host = Ordered().compile(backend=HostBackend(threads=2, strict=True), x=((rows,), np.float32))
    (version,) = host.versions.values()
    steps = version.image.steps
    assert all(step.threads != 1 for step in steps[:2]), "else nothing would go together anyway"
    assert steps[0].together == 1
    x = np.linspace(-3, 3, rows).astype(np.float32)
    for _ in range(3):
        host.write("s", np.zeros(rows, np.float32))
        got = host(x)
        want = np.zeros(rows) if order == "read then written" else x / (1 + np.exp(-x.astype(np.float64)))
        assert iron.allclose(got, want, 1e-5, 1e-6) and (host.read("s") == x).all()


def test_products_of_one_tensor_go_together():
    """Products that need nothing of one another are one step of the run; one that reads another's result is not among them."""

    class Four(iron.Graph):
        def __init__(self) -> None:
            rng = np.random.default_rng(0)
            self.w = [rng.standard_normal((rows, 512)).astype(np.float32) for rows in (512, 256, 256, 256)]
            self.w = [iron.weight(Q4_1.quantize(w)) for w in self.w]

        def body(self, x: Any) -> Any:
            a, b, c = (GEMV(w, x, activations="int8_block") for w in self.w[:3])
            return b, c, GEMV(self.w[3], a, activations="int8_block")

    graph = Four()
    host = graph.compile(backend=HostBackend(threads=2, strict=True), x=((512,), np.float32))
    (version,) = host.versions.values()
    products = [(step.ints[1], step.together) for step in version.image.steps if "block_matmul" in step.unit.template]
    assert products == [(512, 3), (256, 1), (256, 1), (256, 1)]
    x = np.random.default_rng(3).standard_normal(512).astype(np.float32)
    one = Four().compile(backend=HostBackend(threads=1), x=((512,), np.float32))
    for got, alone, want in zip(host(x), one(x), graph.reference(x), strict=True):
        assert np.array_equal(got, alone) and iron.allclose(got, want, 1e-4, 1e-4)
