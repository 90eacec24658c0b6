"""A graph as one module: devices shared by steps, words shared by forms, views of flat bytes, the reset on odd entries."""

from __future__ import annotations

import re

import numpy as np
import pytest

import iron_core as iron
from iron_core import bfloat16
from iron_core.errors import UnsupportedError
from iron_npu.mlir.fused import print_version
from iron_ops_aie import GEMM, GEMV, MHA, Copy, ElementwiseAdd, SiLU
from tests.npu.structural import require


class Chain(iron.Graph):
    """Three steps on two arrays: the first and the last are one design."""

    def body(self, x, y, *, n: iron.Scratchpad[np.int32]):
        z = SiLU(ElementwiseAdd(x[:n], y[:n]))
        return ElementwiseAdd(z, x[:n])


class Steps(iron.Graph):
    """Weights and a carried position: rows of a state are read at it."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.w = rng.standard_normal((64, 64)).astype(bfloat16)
        self.v = rng.standard_normal((64, 64)).astype(bfloat16)
        self.table = iron.state((16, 64))

    def body(self, x, *, pos: iron.Carried[np.int32]):
        row = Copy(self.table[pos])
        return GEMV(self.v, ElementwiseAdd(GEMV(self.w, x), row)), iron.carry(pos=pos + 1)


def printed(graph, spelling="patch", **shapes):
    plan = graph.compile(dev="npu2", backend="null", **shapes).plan
    made = print_version(plan, plan.versions[0].signature, spelling=spelling)
    require(made.text)
    return plan, made


@pytest.fixture(scope="module")
def chain():
    return printed(Chain(), x=(4096,), y=(4096,))


def test_equal_arrays_are_one_device_and_equal_sequences_one(chain):
    _, made = chain
    devices = re.findall(r"aie\.device\(npu2\) @(\w+)", made.text)
    assert len(devices) == 4 and devices[-2:] == ["reset", "main_x_4096_y_4096"] and devices[0].startswith("ElementwiseAdd_")
    assert made.text.count("aie.runtime_sequence") == 3
    assert made.text.count(f"aiex.configure @{devices[0]}") == 2


def test_arrays_of_a_pack_are_one_device():
    """Configured once for all of them; each step runs its own array's sequence there."""
    plan = Chain().compile(dev="npu2", backend="null", x=(4096,), y=(4096,)).plan
    signature = plan.versions[0].signature
    pack = {iron.array_key(step.op.resolved("npu2")) for step in plan.versions[0].steps}
    with pytest.raises(UnsupportedError, match=r"pack of .*: \d+ streams go"):
        print_version(plan, signature, coresident=[pack])

    class Narrow(iron.Graph):
        def body(self, x, y):
            z = SiLU(ElementwiseAdd(x, y, num_aie_columns=2), num_aie_columns=2)
            return ElementwiseAdd(z, x, num_aie_columns=2)

    plan = Narrow().compile(dev="npu2", backend="null", x=(4096,), y=(4096,)).plan
    pack = {iron.array_key(step.op.resolved("npu2")) for step in plan.versions[0].steps}
    made = print_version(plan, plan.versions[0].signature, coresident=[pack])
    require(made.text)
    devices = re.findall(r"aie\.device\(npu2\) @(\w+)", made.text)
    assert len(devices) == 3 and devices[1:] == ["reset", "main_x_4096_y_4096"] and devices[0].startswith("ElementwiseAdd_SiLU_")
    assert made.text.count(f"aiex.configure @{devices[0]}") == 1 and made.text.count("aiex.run") == 3
    assert made.text.count("aie.runtime_sequence") == 3


def test_equal_forms_share_a_word(chain):
    _, made = chain
    assert made.text.count("aiex.scratchpad_parameter") == len(made.words) == 2
    for kind in ("length", "core"):  # two arrays that count their lines alike read one word, too
        (word,) = [word for word in made.words if word.kind == kind]
        assert {step for step, _ in word.uses} == {0, 1, 2}


class Attend(iron.Graph):
    """A bounded projection, and one query over the first `n` rows of a cache that it is told to write to."""

    def __init__(self):
        self.w = np.ones((64, 64), bfloat16)
        self.k, self.v = iron.state((64, 1, 64)), iron.state((64, 1, 64))

    def body(self, x, q, row, *, m: iron.Scratchpad[np.int32], pos: iron.Carried[np.int32]):
        Copy(row, self.k[pos])
        Copy(row, self.v[pos])
        n = pos + 1
        read = MHA(q, self.k[:n], self.v[:n], heads_interleaved=True, kv_interleaved=True)
        return GEMM(x[:m], self.w), read, iron.carry(pos=n)


GRAPHS = {
    "sums": (Chain, dict(x=(4096,), y=(4096,))),
    "products": (Steps, dict(x=(64,))),
    "attention": (Attend, dict(x=(64, 64), q=(1, 1, 64), row=(1, 64))),
}


@pytest.mark.parametrize("backend", ["null", "sim"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_explain_lists_the_words_of_the_elf(graph, backend):
    """The same, in the same order, with what each follows: whoever planned it, and whatever runs it."""
    cls, shapes = GRAPHS[graph]
    compiled = cls().compile(dev="npu2", backend=backend, **shapes)
    (version,) = compiled.plan.versions
    made = print_version(compiled.plan, version.signature)
    listed = re.findall(r"^  word       (\w+) = (.*): ", compiled.explain(), re.MULTILINE)
    assert listed == [(word.symbol, repr(word.form)) for word in made.words]
    assert [symbol for symbol, _ in listed] == re.findall(r"aiex\.scratchpad_parameter @(\w+) : i32", made.text)
    assert listed


def test_explain_says_why_no_words_are_known():
    """A step without an array has no image, so no words either; a graph without per-call values needs none."""

    class Plain(iron.Rowwise):
        def reference(self, x):
            return x

    class Rows(iron.Graph):
        def body(self, x, *, n: iron.Scratchpad[np.int32]):
            return Plain(x[:n])

    text = Rows().compile(dev="npu2", backend="null", x=(64, 64)).explain()
    assert "word       none is known, for no image can be made: Plain (step plain0) on npu2: Plain declares no array" in text
    assert "word       n: plain0." in Rows().compile(dev="host", backend="null", x=(64, 64)).explain()


def test_an_odd_number_of_entries_is_made_even(chain):
    _, made = chain
    assert made.entries == 4 and made.text.rstrip().endswith("aiex.configure @reset {\n      }\n    }\n  }\n}")


def test_consecutive_steps_of_one_array_are_one_entry():
    class Two(iron.Graph):
        def body(self, x, y):
            return ElementwiseAdd(ElementwiseAdd(x, y), y)

    _, made = printed(Two(), x=(4096,), y=(4096,))
    assert made.text.count("aiex.configure @ElementwiseAdd") == 1 and made.text.count("aiex.run @sequence0") == 2
    assert made.text.count("aiex.scratchpad_parameter") == 0 and "@reset" in made.text


def test_buffers_are_views_of_flat_bytes(chain):
    plan, made = chain
    assert [(a.name, a.nbytes) for a in made.addresses.arguments] == [("input", 16384), ("output", 8192), ("bank0", plan.banks[0])]
    step = plan.versions[0].steps[0]
    ref = step.operands["b"]
    assert made.addresses.find(ref.space, ref.index, ref.offset).offset == 8192
    assert re.search(r"%b = memref\.view %input\[%c8192\]\[\] : memref<16384xi8> to memref<4096xbf16>", made.text)
    with pytest.raises(UnsupportedError, match="multiples of 4"):
        made.addresses.find(ref.space, ref.index, 2)


def test_weights_states_and_a_carried_value():
    plan, made = printed(Steps(), x=(64,))
    arena, residents = made.addresses.arguments[-2:]
    assert (arena.nbytes, residents.nbytes) == (plan.banks[0], 2 * 64 * 64 * 2 + 16 * 64 * 2)
    offsets = [word for word in made.words if word.kind == "offset"]
    assert len(offsets) == 1 and f"offset_parameter = @{offsets[0].symbol}" in made.text


def test_residents_stay_where_they_are_in_every_version():
    """A version with a much larger arena, printed or planned later, moves no weight: same argument, same byte."""

    class Rows(iron.Graph):
        def __init__(self):
            self.w, self.v = np.ones((64, 64), bfloat16), np.ones((64, 64), bfloat16)

        def body(self, x, y):
            return GEMV(self.v, GEMV(self.w, x)), ElementwiseAdd(SiLU(y), y)

    def places(plan):
        maps = [print_version(plan, version.signature).addresses for version in plan.versions]
        return [[(one.arguments[at.argument].name, at.offset) for key, at in one.addresses if key[0] == "resident"] for one in maps]

    graph = Rows().compile(dev="npu2", backend="null", x=(64,), y=(4096,))
    alone, arena = places(graph.plan), graph.plan.banks
    graph.add(x=(64,), y=(1 << 20,))
    assert graph.plan.banks[0] > 100 * arena[0]
    assert alone == [[("residents0", 0), ("residents0", 64 * 64 * 2)]] and places(graph.plan) == alone * 2


def test_ids_of_a_gather_come_as_control_words():
    class Lookup(iron.Graph):
        def __init__(self):
            self.table = iron.state((64, 128))

        def body(self, ids):
            return Copy(self.table[ids])

    plan, made = printed(Lookup(), ids=((8,), np.int32))
    (step,) = plan.versions[0].steps
    assert [control.ids for control in made.tensors.controls] == [step.operands["ids"]] and step.op.gather
    argument = made.addresses.arguments[made.addresses.find("control", 0).argument]
    assert argument.name == "control" and "memref.view %control[" in made.text


def test_the_other_spelling_of_a_length():
    _, made = printed(Chain(), "parameter", x=(4096,), y=(4096,))
    assert "length_parameter = @" in made.text and "bd_id" not in made.text


def test_the_same_graph_prints_the_same_text(chain):
    assert printed(Chain(), x=(4096,), y=(4096,))[1].text == chain[1].text


def test_a_device_without_a_full_elf_is_refused():
    plan = Chain().compile(dev="npu1", backend="null", x=(4096,), y=(4096,)).plan
    with pytest.raises(UnsupportedError, match="no full ELF but a chain"):
        print_version(plan, plan.versions[0].signature)
