"""A graph as an xclbin per array: a module each, with the sequences of its steps; and dispatches that say which context they go to."""

from __future__ import annotations

import re

import numpy as np
import pytest

import iron_core as iron
from iron_core import bfloat16
from iron_core.errors import UnsupportedError
from iron_core.image.array_image import array_image
from iron_npu.mlir.contexts import print_contexts
from iron_npu.mlir.fused import print_version
from iron_npu.mlir.printer import print_design
from iron_npu.tools import gate
from iron_ops_aie import GEMM, Copy, ElementwiseAdd, SiLU
from tests.npu.structural import require

#: A layer's four products, as (K, N).
SIZES = {"qkv": (128, 256), "o": (128, 128), "gate_up": (128, 512), "down": (256, 128)}


class Layers(iron.Graph):
    """Four products a layer, each kind with columns of its own, so an array of its own."""

    def __init__(self, layers=3):
        rng = np.random.default_rng(0)
        self.layers = [{n: rng.standard_normal(s).astype(bfloat16) for n, s in SIZES.items()} for _ in range(layers)]

    def body(self, x, *, n: iron.Scratchpad[np.int32]):
        for w in self.layers:
            qkv = GEMM(x[:n], w["qkv"], tile_m=32, num_aie_columns=4)
            x = GEMM(x[:n], w["o"], tile_m=32, num_aie_columns=2)
            gate_up = GEMM(x[:n], w["gate_up"], tile_m=32, num_aie_columns=8)
            x = GEMM(qkv[:n], w["down"], tile_m=32, num_aie_columns=1)
        return x, gate_up


class Sums(iron.Graph):
    """Two arrays, of which the first runs two sequences."""

    def __init__(self):
        self.rows = iron.state((8, 4096))

    def body(self, x, y, *, n: iron.Scratchpad[np.int32], at: iron.Scratchpad[np.int32]):
        z = SiLU(ElementwiseAdd(x[:n], y[:n]))
        Copy(y, self.rows[at])
        return ElementwiseAdd(z, x[:n]), ElementwiseAdd(y, y)


def printed(graph, dev="npu2", **shapes):
    plan = graph.compile(dev=dev, backend="null", image=iron.CONTEXTS, **shapes).plan
    made = print_contexts(plan, plan.versions[0].signature)
    for context in made.contexts:
        require(context.printed.text)
    return plan, made


@pytest.fixture(scope="module")
def layers():
    return printed(Layers(), x=(128, 128))


@pytest.fixture(scope="module")
def sums():
    return printed(Sums(), x=(4096,), y=(4096,))


def test_four_products_of_every_layer_are_four_contexts(layers):
    """One module each, of one array with one sequence, for as many dispatches as there are layers."""
    _, made = layers
    assert len({context.name for context in made.contexts}) == len(made.contexts) == 4
    for context in made.contexts:
        assert re.findall(r"aie\.device\(npu2\) @(\w+)", context.printed.text) == [context.name]
        assert context.printed.text.count("aie.runtime_sequence") == 1 and context.printed.objects
    assert [d.context for d in made.dispatches] == [0, 1, 2, 3] * 3
    assert [d.step for d in made.dispatches] == [f"gemm{i}" for i in range(12)]


def test_weights_are_buffers_of_the_device_whatever_context_reads_them(layers):
    """Every layer's are residents of one bank; a context has none of its own."""
    plan, made = layers
    weights = [d.buffers[1] for d in made.dispatches]
    assert {ref.space for ref in weights} == {"resident"} and {plan.residents[ref.index].spot.bank for ref in weights} == {0}
    assert len({ref.index for ref in weights}) == 12 and len({ref.index for ref in weights[::4]}) == 3


def test_a_module_is_its_array_and_every_sequence_of_it_once(sums):
    """Two of three additions are one sequence; the array is the text that a module of one design has."""
    plan, made = sums
    found = [re.findall(r"aie\.runtime_sequence @(\w+)", context.printed.text) for context in made.contexts]
    assert found == [["sequence0", "sequence1"], ["sequence0"], ["sequence0"]]
    assert [d.context for d in made.dispatches] == [0, 1, 2, 0, 0]
    assert [d.sequence for d in made.dispatches] == ["sequence0", "sequence0", "sequence0", "sequence0", "sequence1"]
    for step, context in zip(array_image(plan, plan.versions[0].signature).steps, made.contexts, strict=False):
        alone = print_design(step.design, name=context.name, words="arguments").text
        array, _, _ = alone.partition("aie.runtime_sequence")
        assert context.printed.text.startswith(array) and "aie.objectfifo" in array


def test_words_are_scalars_behind_the_buffers(sums):
    """In the order of the sequence; none comes from a scratchpad, which an xclbin does not have."""
    plan, made = sums
    kinds = []
    for dispatch in made.dispatches:
        text = made.contexts[dispatch.context].printed.text
        (taken,) = re.findall(rf"aie\.runtime_sequence @{dispatch.sequence}\((.*)\)", text)
        kinds.append([kind.partition(" : ")[2] for kind in taken.split(", ")])
        buffers, scalars = len(dispatch.buffers), len(dispatch.words)
        assert [kind.startswith("memref<") for kind in kinds[-1]] == [True] * buffers + [False] * scalars
        assert "scratchpad" not in text
    rows = ["core", "length"]
    assert [[made.words[n].kind for n in d.words] for d in made.dispatches] == [rows, rows, ["offset"], rows, []]
    assert [context.printed.dynamic for context in made.contexts] == [True, True, True]
    assert [d.step for d in made.dispatches] == [step.name for step in plan.versions[0].steps]


def test_versions_have_xclbins_in_common():
    """A device is named for what it is: what a second version adds is a stream of instructions."""
    compiled = Layers(1).compile(dev="npu2", backend="null", image=iron.CONTEXTS, x=(128, 128))
    compiled.add(x=(256, 128))
    first, second = (print_contexts(compiled.plan, version.signature).contexts for version in compiled.plan.versions)
    for one, other in zip(first, second, strict=True):
        assert one.name == other.name and one.printed.text != other.printed.text


@pytest.mark.parametrize("dev", ["npu1", "npu2"])
def test_both_families_have_them(dev):
    _, made = printed(Sums(), dev, x=(4096,), y=(4096,))
    assert len(made.contexts) == 3 and all(f"aie.device({dev})" in context.printed.text for context in made.contexts)


def test_a_packaging_is_printed_as_what_it_is():
    """A full ELF is no set of contexts, nor the other way round; each says how it is printed."""
    shapes = dict(x=(4096,), y=(4096,))
    for way in ({}, {"boundaries": iron.each_step}):
        plan = Sums().compile(dev="npu2", backend="null", **way, **shapes).plan
        with pytest.raises(UnsupportedError, match=r"Sums on npu2 was packaged as (elf|xclbin)\. Legal: image=iron\.CONTEXTS"):
            print_contexts(plan, plan.versions[0].signature)
    plan = Sums().compile(dev="npu2", backend="null", image=iron.CONTEXTS, **shapes).plan
    with pytest.raises(UnsupportedError, match=r"no full ELF but an xclbin per array; print_contexts\(\) prints them"):
        print_version(plan, plan.versions[0].signature)


@pytest.mark.toolchain
@pytest.mark.skipif(gate.missing() is not None, reason=gate.missing() or "")
@pytest.mark.parametrize("graph", ["layers", "sums"])
def test_the_tools_take_every_module(graph, request, tmp_path):
    """Of one sequence, and of several."""
    _, made = request.getfixturevalue(graph)
    for context in made.contexts:
        folder = tmp_path / context.name
        folder.mkdir()
        said = gate.gate(context.printed, folder)
        assert said is None, f"{context.name}: {said}"
