"""Steps folded into `GEMV`: behind its output, in front of its vector, and what they read riding the rows' stream."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from iron_core import In, Kernel, KernelContract, Out, Param, Profile, UnaryElementwise, bfloat16
from iron_core.array.build import build
from iron_core.array.spec import check
from iron_core.bases.elementwise import Elementwise, stream
from iron_core.declare.chained import Chained, fold, prefold
from iron_core.declare.identity import array_key, contract_key, design_key, label
from iron_core.declare.link import Link
from iron_core.declare.rounding import round_to, widen
from iron_core.devices import device
from iron_core.errors import DeclarationError, DeviationError, Unresolvable
from iron_ops_aie import GEMM, GEMV, ElementwiseAdd, LayerNorm, ReLU, RMSNorm, SiLU
from iron_sim.run import simulate

DEVICES = ("npu1", "npu2")


def drawn(op):
    return op.test.draw(op, np.random.default_rng(3))


def inputs(op, tensors):
    """As for `reference()`: None for an input that is absent."""
    return [tensors.get(o.name) for o in op.inputs]


def bits(array):
    return np.ascontiguousarray(array).view(np.uint16)


def on_array(op, dev, tensors, **bounds):
    outputs, _, stats = simulate(op.resolved(device(dev)), dev, tensors, bounds)
    return next(iter(outputs.values())), stats


#: Chains of a product that makes m numbers of k, rows by columns.
CHAINS = {
    "add": lambda m, k: dict(finish=(Link(ElementwiseAdd(size=m)),)),
    "add to the other input": lambda m, k: dict(finish=(Link(ElementwiseAdd(size=m), at="b"),)),
    "silu": lambda m, k: dict(finish=(Link(SiLU(size=m)),)),
    "silu, add, relu": lambda m, k: dict(finish=(Link(SiLU(size=m)), Link(ElementwiseAdd(size=m)), Link(ReLU(size=m)))),
    "prologue silu": lambda m, k: dict(prepare=(Link(SiLU(size=k[0] * k[1])),)),
    "prologue add": lambda m, k: dict(prepare=(Link(ElementwiseAdd(size=k[0] * k[1])),)),
    "prologue norm": lambda m, k: dict(prepare=(Link(RMSNorm(rows=k[0], cols=k[1])),)),
    "prologue weighted norm": lambda m, k: dict(prepare=(Link(RMSNorm(rows=k[0], cols=k[1], weighted=True)),)),
    "prologue add, weighted norm, silu": lambda m, k: dict(
        prepare=(
            Link(ElementwiseAdd(size=k[0] * k[1]), "b"),
            Link(RMSNorm(rows=k[0], cols=k[1], weighted=True, epsilon=1e-6)),
            Link(SiLU(size=k[0] * k[1])),
        ),
        finish=(Link(ElementwiseAdd(size=m)),),
    ),
    "both": lambda m, k: dict(
        prepare=(Link(ElementwiseAdd(size=k[0] * k[1]), 1), Link(SiLU(size=k[0] * k[1]))),
        finish=(Link(ReLU(size=m)), Link(ElementwiseAdd(size=m))),
    ),
}


@pytest.mark.parametrize("dev", DEVICES)
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("fields", [dict(M=64, K=64), dict(M=128, K=96, num_batches=4, repeat=2), dict(M=576, K=576)], ids=str)
def test_a_folded_array_gives_the_composed_bits(dev, chain, fields):
    """Every bit, all of it written, and within the composed gate of the reference."""
    n = fields.get("num_batches", 1)
    op = Chained(GEMV(**fields), **CHAINS[chain](n * fields["M"], (n, fields["K"]))).resolved(device(dev))
    tensors = drawn(op)
    check(build(op, dev).design)
    outputs, poison, _ = simulate(op, dev, tensors, {})
    given = inputs(op, tensors)
    assert not poison["C"].any()
    assert np.array_equal(bits(outputs["C"]), bits(op.composed(*given)))
    op.check(outputs["C"], op.reference(*given), *given)


@pytest.mark.parametrize("dev", DEVICES)
def test_a_norm_in_front_is_the_norms_own_bits(dev):
    """Every row by itself and rounded as on an array of its own, its weight too; a lane reads the weight once per row."""
    norm, gemv = RMSNorm(rows=3, cols=64, weighted=True), GEMV(M=128, K=64, num_batches=3)
    folded = prefold(gemv, norm)
    assert (folded.present, folded.shape("prepare0_weight")) == (("A", "B", "prepare0_weight", "C"), (64,))
    tensors = drawn(folded)
    got, stats = on_array(folded, dev, tensors)
    x, _ = on_array(norm, dev, {"x": tensors["B"], "weight": tensors["prepare0_weight"]})
    y, _ = on_array(gemv, dev, {"A": tensors["A"], "B": x})
    assert np.array_equal(bits(got), bits(y))
    op = folded.resolved(device(dev))
    assert stats.elements("prepare0_weight") == 3 * op.lanes * op.tile_size_input * 64


def test_a_row_no_core_holds_is_told_in_bytes():
    """With the longest that fits; a core that has room for the product alone may have none for a norm's second line."""
    norm = lambda k, **fields: RMSNorm(rows=1, cols=k, **fields)  # noqa: E731
    GEMV(M=64, K=8192).resolved(device("npu2"))
    with pytest.raises(Unresolvable, match=r"needs \d+ bytes of its 65536 .*buffer prepare0: 16384.* Legal: K=8048\."):
        prefold(GEMV(M=64, K=8192), norm(8192)).resolved(device("npu2"))
    prefold(GEMV(M=64, K=8048), norm(8048)).resolved(device("npu2"))
    with pytest.raises(Unresolvable, match=r"RMSNorm: cols=8192; a core takes rows of at most 4096 numbers. Legal: cols=4096"):
        prefold(GEMV(M=64, K=8192), norm(8192, weighted=True)).resolved(device("npu2"))
    prefold(GEMV(M=64, K=4096), norm(4096, weighted=True)).resolved(device("npu2"))


class Between(Elementwise):
    """y = the middle one of a, b and c."""

    a, b, c = (In(Elementwise.size, **stream()) for _ in range(3))
    y = Out(Elementwise.size, **stream())

    def reference(self, a, b, c):
        return np.median([widen(a), widen(b), widen(c)], 0)

    def kernel(self):
        contract = KernelContract(roles=(In, In, In, Out), reference=lambda *abc: np.median([x.astype(np.float32) for x in abc], 0))
        return Kernel.factory("eltwise.median", (self.a.tile,) * 4, contract)


def test_a_step_reads_one_tensor_beside_its_tile():
    """What rides a lane comes tensor by tensor; a core has no third stream."""
    with pytest.raises(Unresolvable, match=r"a kernel reads a and c besides its tile, and a core has two input streams"):
        fold(GEMV(M=64, K=64), Between(size=64), "b").resolved(device("npu2"))


def test_a_step_of_several_kernels_reads_one_tensor_each():
    """LayerNorm's weight and bias."""
    norm, gemv = LayerNorm(rows=2, cols=64, weighted=True, biased=True), GEMV(M=64, K=64, num_batches=2)
    folded = prefold(gemv, norm)
    tensors = drawn(folded)
    got, _ = on_array(folded, "npu2", tensors)
    x, _ = on_array(norm, "npu2", {"x": tensors["B"], "weight": tensors["prepare0_weight"], "bias": tensors["prepare0_bias"]})
    y, _ = on_array(gemv, "npu2", {"A": tensors["A"], "B": x})
    assert np.array_equal(bits(got), bits(y))


@pytest.mark.parametrize("dev", DEVICES)
def test_folded_is_unfolded_bit_for_bit(dev):
    """The steps one after the other, each on its own array, give what the folded array gives, also where that has other tiles."""
    gemv, add, silu = GEMV(M=192, K=576), ElementwiseAdd(size=192), SiLU(size=576)
    folded = prefold(fold(gemv, add, "b"), silu)
    tensors = drawn(folded)
    got, _ = on_array(folded, dev, tensors)
    x, _ = on_array(silu, dev, {"x": tensors["B"]})
    assert folded.resolved(device(dev)).tile_size_input != gemv.resolved(device(dev)).tile_size_input
    y, _ = on_array(gemv, dev, {"A": tensors["A"], "B": x})
    z, _ = on_array(add, dev, {"a": tensors["finish0_a"], "b": y})
    assert np.array_equal(bits(got), bits(z))


def test_the_reference_rounds_once_per_step():
    """Each step's own reference over the rounded result of the one before."""
    op = prefold(fold(fold(GEMV(M=64, K=64), SiLU(size=64)), ElementwiseAdd(size=64)), ReLU(size=64))
    t = drawn(op)
    assert op.present == ("A", "B", "finish1_b", "C")
    x = round_to(ReLU(size=64).reference(t["B"]), bfloat16)
    y = round_to(GEMV(M=64, K=64).reference(t["A"], x), bfloat16)
    z = round_to(SiLU(size=64).reference(y), bfloat16)
    want = ElementwiseAdd(size=64).reference(z, t["finish1_b"])
    assert np.array_equal(op.reference(*inputs(op, t)), want)


@pytest.mark.parametrize(("prologue", "by"), [(False, 1.03), (True, 1.2)])
def test_the_gate_of_a_fold_is_not_lax(prologue, by):
    """One number off, a step left out, a prologue left out: all refused. A prologue's errors add up over a row."""
    op = fold(GEMV(M=64, K=64), ElementwiseAdd(size=64))
    op = prefold(op, SiLU(size=64)) if prologue else op
    t = drawn(op)
    given = inputs(op, t)
    exact = op.reference(*given)
    near = round_to(exact, bfloat16)
    op.check(near, exact, *given)
    wrong = near.copy()
    largest = int(np.argmax(np.abs(exact)))
    wrong[largest] = wrong[largest] * np.float32(by)
    unfinished = exact - t["finish0_b"].astype(np.float64)
    unprepared = GEMV(M=64, K=64).reference(t["A"], t["B"]) + t["finish0_b"].astype(np.float64)
    for got in (wrong, round_to(unfinished, bfloat16), *([round_to(unprepared, bfloat16)] if prologue else [])):
        with pytest.raises(DeviationError):
            op.check(got, exact, *given)


@pytest.mark.parametrize("valid", [1, 40, 128])
def test_a_bound_and_a_finish_that_reads_nothing_else(valid):
    """Steps without further inputs leave a bound on M what it is."""
    op = prefold(fold(GEMV(M=128, K=64, num_batches=2), SiLU(size=256)), SiLU(size=128)).resolved(device("npu2"))
    tensors = drawn(op)
    got, _ = on_array(op, "npu2", tensors, valid=valid)
    assert np.array_equal(bits(got[:, :valid]), bits(op.composed(*inputs(op, tensors))[:, :valid]))


def test_what_a_step_reads_rides_the_rows():
    """Behind each tile of C its finish's tensor, behind B its prologue's: whole tiles of A, by reading them again."""
    op = GEMV(M=128, K=64, num_aie_columns=2, num_channels=1, tile_size_input=4, tile_size_output=32)
    op = prefold(fold(op, ElementwiseAdd(size=128)), ElementwiseAdd(size=64))
    design = build(op, "npu1").design
    assert {lane.operand for lane in design.array.lanes} == {"A", "C"}
    feed = [t for t in design.sequence.transfers() if t.fifo == "A1"]
    assert [t.operand for t in feed] == ["B", "prepare0_b", "A", "finish0_b", "A", "finish0_b"]
    assert [t.descriptors[0].offset for t in feed] == [0, 0, 64 * 64, 64, 96 * 64, 96]
    assert [t.elements for t in feed] == [256, 256, 32 * 64, 256, 32 * 64, 256]


def test_keys_follow_the_steps():
    """A chain is part of every key; the sizes of its steps are not the array's."""
    dev = device("npu1")
    tiles = dict(K=64, tile_size_input=4, tile_size_output=32, num_aie_columns=2, num_channels=1)

    def folded(m, step=ElementwiseAdd, **link):
        return fold(GEMV(M=m, **tiles), step(size=m), **link).resolved(dev)

    plain = GEMV(M=64, **tiles).resolved(dev)
    one = folded(64)
    assert design_key(one) == design_key(folded(64))
    assert contract_key(one) == contract_key(folded(64))
    assert array_key(one) == array_key(folded(128))
    assert design_key(one) != design_key(folded(128))
    for other in (plain, folded(64, SiLU), folded(64, at=1)):
        assert array_key(one) != array_key(other)
        assert design_key(one) != design_key(other)
        assert contract_key(one) != contract_key(other)
        assert label(one) != label(other)
    assert array_key(GEMV(M=64, **tiles).resolved(dev)) == array_key(plain)


class Shifted(UnaryElementwise):
    """y = x + by, whose kernel depends on a field that it does not say its array depends on."""

    by: int = Param(default=1)

    def reference(self, x):
        return widen(x) + self.by

    def kernel(self):
        contract = KernelContract(roles=(In, Out), reference=lambda x, by=self.by: x.astype(np.float32) + by)
        return Kernel.factory("eltwise.shift", (self.x.tile, self.y.tile), contract)


def test_a_step_tells_its_array_what_its_key_has():
    """Else two folds of equal array keys would be one array, with the kernel of whichever came first."""
    for by in (1, 2):
        with pytest.raises(DeclarationError, match=r"Shifted.array\(\) reads the extent by; one array serves every extent"):
            build(fold(GEMV(M=64, K=64), Shifted(size=64, by=by)), "npu2")


def test_a_folded_operator_is_data():
    """It pickles: what is unpickled has its operands, its keys and its numbers."""
    op = prefold(fold(GEMV(M=64, K=64), ElementwiseAdd(size=64), "b"), SiLU(size=64)).resolved(device("npu2"))
    again = pickle.loads(pickle.dumps(op))
    assert (again.present, again.shape("finish0_a"), again.finish0_a.size) == (op.present, op.shape("finish0_a"), 64)
    assert array_key(again) == array_key(op) and design_key(again) == design_key(op) and label(again) == label(op)
    given = inputs(op, drawn(op))
    assert np.array_equal(again.reference(*given), op.reference(*given))
    assert np.array_equal(bits(again.composed(*given)), bits(op.composed(*given)))
    assert again.resolved(device("npu2")).tile_size_output == op.tile_size_output


def test_folding_opens_the_tunables_that_were_not_given():
    """A resolved operator's own choices suited the plain one; what was given stays."""
    op = GEMV(M=64, K=64, num_channels=1).resolved(device("npu2"))
    assert (op.num_aie_columns, op.tile_size_output) == (8, 8)
    folded = fold(op, ElementwiseAdd(size=64))
    assert folded.num_aie_columns is None
    assert folded.num_channels == 1
    assert folded.resolved(device("npu2")).tile_size_output == 16
    assert op.finish == ()
    assert op.present == ("A", "B", "C")


def test_what_a_profile_gave_is_open_where_a_chain_takes_none_of_it():
    """It suits the plain operator. What the call gave stays, and so does what would change a bit."""
    profile = Profile()
    profile.add(GEMV, M=576, K=576, tile_size_input=12, tile_size_output=72)
    profile.add(GEMM, tile_k=48, tile_m=20)
    with profile:
        plain, given, gemm = GEMV(M=576, K=576), GEMV(M=576, K=576, tile_size_output=72), GEMM(M=192, K=96, N=64)
    dev = device("npu2")
    assert (plain.profiled, given.profiled) == ({"tile_size_input", "tile_size_output"}, {"tile_size_input"})
    assert (plain.resolved(dev).num_aie_columns, plain.resolved(dev).tile_size_output) == (8, 72)
    add = ElementwiseAdd(size=576)
    folded = fold(plain, add).resolved(dev)
    assert (folded.num_aie_columns, folded.tile_size_input, folded.tile_size_output) == (6, 8, 96)
    kept = prefold(plain, SiLU(size=576)).resolved(dev)
    assert (kept.tile_size_input, kept.tile_size_output) == (12, 72)
    with pytest.raises(Unresolvable, match=r"GEMV.finish: tile_size_output=72 "):
        fold(given, add).resolved(dev)
    with pytest.raises(Unresolvable, match=r"tile_m=20"):
        gemm.resolved(dev)
    folded = fold(gemm, SiLU(size=192 * 64)).resolved(dev)
    assert (folded.tile_k, folded.tile_m) == (48, 16)
    assert plain.with_tunables(tile_size_input=4).profiled == {"tile_size_output"}


def test_a_chain_no_array_takes_is_refused_in_words():
    """Size, dtype, a step that is not elementwise, an array that applies none, a tile no kernel takes, a bound."""
    gemv = GEMV(M=64, K=64)
    with pytest.raises(Unresolvable, match=r"GEMV.finish: ElementwiseAdd.a is 32 of bfloat16; C is 64"):
        fold(gemv, ElementwiseAdd(size=32))
    with pytest.raises(Unresolvable, match=r"GEMV.prepare: SiLU.x is 64 of float32; B is 64 of bfloat16"):
        prefold(gemv, SiLU(size=64, T=np.float32))
    with pytest.raises(Unresolvable, match=r"GEMV.finish: RMSNorm is not elementwise"):
        fold(gemv, RMSNorm(rows=1, cols=64))
    with pytest.raises(Unresolvable, match=r"GEMV.prepare: RMSNorm has rows of 32; B's are 64 long. Legal: the same"):
        prefold(gemv, RMSNorm(rows=2, cols=32))
    with pytest.raises(Unresolvable, match=r"GEMV.prepare: GEMV is not elementwise or rowwise"):
        prefold(gemv, gemv)
    with pytest.raises(Unresolvable, match=r"RMSNorm: its array applies no finish"):
        fold(RMSNorm(rows=1, cols=64), SiLU(size=64))
    with pytest.raises(Unresolvable, match=r"has no input 2; it has 2"):
        fold(gemv, ElementwiseAdd(size=64), 2)
    with pytest.raises(Unresolvable, match=r"GEMV.finish: tile_size_output=8 .* a multiple of 32"):
        fold(GEMV(M=64, K=64, tile_size_output=8), SiLU(size=64)).resolved(device("npu2"))
    with pytest.raises(Unresolvable, match=r"M is bounded per call, and its finish reads finish0_b"):
        build(fold(gemv, ElementwiseAdd(size=64)), "npu1", ("valid",))
