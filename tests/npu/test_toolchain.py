"""The gate of mlir-aie's own tools: every case of the catalog and one fused graph, where the tools are; what it runs, everywhere."""

from __future__ import annotations

import functools
import os
import stat
from pathlib import Path

import numpy as np
import pytest

import iron_core as iron
from iron_core import bfloat16
from iron_core.devices import device
from iron_core.image.array_image import ArrayImage, array_image
from iron_llama.model import Llama
from iron_lm.tunables import profile_of
from iron_npu.catalog import items
from iron_npu.mlir.fused import print_version
from iron_npu.mlir.printer import Printed, print_design
from iron_npu.tools import gate
from iron_ops_aie import GEMM, GEMV, MHA, Copy, ElementwiseAdd
from tests.catalog import ARRAYS, named
from tests.lm.arrays.small_llama import loaded
from tests.npu.structural import check


class All(iron.Graph):
    """All five operators, rows read from a table at a carried position."""

    def __init__(self):
        rng = np.random.default_rng(0)

        def drawn(*shape):
            return rng.standard_normal(shape).astype(bfloat16)

        self.q, self.k, self.v, self.head = drawn(128, 128), drawn(128, 128), drawn(128, 128), drawn(64, 128)
        self.table = iron.state((256, 128))

    def body(self, x, *, pos: iron.Carried[np.int32]):
        rows = Copy(self.table[:64])
        x = ElementwiseAdd(x, rows)
        q, k, v = (GEMM(x, w, b_col_maj=True) for w in (self.q, self.k, self.v))
        y = MHA(*(t.reshape(64, 2, 64) for t in (q, k, v)), heads_interleaved=True, kv_interleaved=True)
        row = Copy(self.table[pos])
        return y, GEMV(self.head, row), iron.carry(pos=pos + 1)


def printed(graph, **shapes) -> Printed:
    plan = graph.compile(dev="npu2", backend="null", **shapes).plan
    made = print_version(plan, plan.versions[0].signature)
    return Printed(made.text, made.objects)


def fused() -> Printed:
    return printed(All(), x=(64, 128))


def bounded(five) -> Printed:
    graph, x, prompt = five()
    return printed(graph, x=x.shape, prompt=prompt.shape)


def test_graphs_of_all_five_hold_together(five):
    one = bounded(five)
    assert check(one.text) == () and "length" in one.text
    made = fused()
    assert check(made.text) == ()
    for name in ("ElementwiseAdd", "GEMM", "MHA", "Copy", "GEMV"):
        assert f"aiex.configure @{name}_" in made.text


#: What a version of the small Llama is traced for: a decode step, and a prompt's chunk.
VERSIONS = {"decode": {}, "prompt": {"ids": ((64,), np.int32)}}


@functools.cache
def llama(dev: str, version: str, fold: bool) -> tuple[ArrayImage, list[Printed]]:
    """A version of a small Llama: its image, and what is printed of it, one module on npu2, on npu1 one per design."""
    graph = loaded((4, 1)).model()
    with profile_of(Llama, device(dev)):
        plan = graph.compile(dev=dev, backend="null", fold=fold, **VERSIONS[version]).plan
    image = array_image(plan, plan.versions[0].signature)
    if not image.elf:
        return image, [print_design(design) for design in dict.fromkeys(step.design for step in image.steps)]
    made = print_version(plan, plan.versions[0].signature)
    return image, [Printed(made.text, made.objects)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("dev", ["npu1", "npu2"])
def test_a_llama_holds_together_folded_or_not(dev, version):
    """Both print well; folded, in fewer steps, and a decode step's products and rotation write into the caches at the position."""
    (plain, before), (folded, after) = llama(dev, version, False), llama(dev, version, True)
    for printed in (*before, *after):
        assert check(printed.text) == ()
    assert len(folded.steps) < len(plain.steps)
    placed = {step.operator for step in folded.steps for word in step.design.sequence.words if word.name in ("C_offset", "y_offset")}
    assert placed == ({"GEMV", "RoPE"} if version == "decode" else set())
    if dev == "npu2":
        assert after[0].text.count("aiex.run ") == len(folded.steps) < before[0].text.count("aiex.run ") == len(plain.steps)


needs_tools = pytest.mark.skipif(gate.missing() is not None, reason=gate.missing() or "")


@pytest.mark.toolchain
@needs_tools
@pytest.mark.parametrize("dev", ["npu1", "npu2"])
@pytest.mark.parametrize("cls", ARRAYS, ids=named)
def test_the_tools_take_every_case(cls, dev, tmp_path):
    """All of them are tried; those refused are listed together."""
    refused = []
    for number, item in enumerate(items([cls], [dev])):
        if item.printed is not None:
            folder = tmp_path / str(number)
            folder.mkdir()
            said = gate.gate(item.printed, folder)
            if said is not None:
                refused.append(f"{item.name}: {said}")
    assert not refused, "\n".join(refused)


@pytest.mark.toolchain
@needs_tools
@pytest.mark.parametrize("kind", ["whole", "bounded"])
def test_the_tools_take_a_fused_graph(kind, five, tmp_path):
    said = gate.gate(fused() if kind == "whole" else bounded(five), tmp_path)
    assert said is None, str(said)


@pytest.mark.toolchain
@needs_tools
@pytest.mark.parametrize("fold", [False, True], ids=["plain", "folded"])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("dev", ["npu1", "npu2"])
def test_the_tools_take_a_llama(dev, version, fold, tmp_path):
    """A decode step and a prompt's chunk, with steps folded into others and without."""
    refused = []
    for number, printed in enumerate(llama(dev, version, fold)[1]):
        folder = tmp_path / str(number)
        folder.mkdir()
        said = gate.gate(printed, folder)
        refused += [] if said is None else [str(said)]
    assert not refused, "\n".join(refused)


# -- what the gate does, with tools that only note how they were called ------------------------------------


@pytest.fixture
def noted(tmp_path, monkeypatch):
    """Put stand-ins on PATH; gives the folder and a function that reads the calls."""
    bins, log = tmp_path / "bin", tmp_path / "calls"
    bins.mkdir()

    def tool(name: str, body: str = "") -> None:
        file = bins / name
        file.write_text(f'#!/bin/sh\necho "{name} $*" >> {log}\n{body}\n')
        file.chmod(file.stat().st_mode | stat.S_IEXEC)

    monkeypatch.setenv("PATH", f"{bins}{os.pathsep}/usr/bin{os.pathsep}/bin")
    return tool, lambda: log.read_text().splitlines() if log.exists() else []


def test_missing_names_the_tools(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gate.missing() == "aie-opt and aiecc not on PATH; build or install mlir-aie and put its bin folder there"


def test_a_static_module_is_verified_and_lowered_to_its_stream(noted, arrays, tmp_path):
    tool, calls = noted
    tool("aie-opt"), tool("aiecc")
    folder = tmp_path / "work"
    folder.mkdir()
    assert gate.missing() is None
    assert gate.gate(print_design(arrays.calls()), folder) is None
    first, second = calls()
    assert first == f"aie-opt {folder}/design.mlir -o /dev/null"
    assert second.startswith("aiecc --get-npu-insts --get=input_with_addresses.mlir,input_physical.mlir,npu_lowered.mlir --output-dir=")


def test_a_module_with_scalars_becomes_a_builder_of_streams(noted, arrays, tmp_path):
    tool, calls = noted
    folder = tmp_path / "work"
    folder.mkdir()
    tool("aie-opt"), tool("aie-translate")
    tool("aiecc", f"mkdir -p {folder}/out; touch {folder}/out/input_with_addresses.mlir")
    printed = print_design(arrays.calls("npu1"))
    assert printed.dynamic and gate.gate(printed, folder) is None
    names = [call.split(" ")[0] for call in calls()]
    assert names == ["aie-opt", "aiecc", "aie-opt", "aie-translate"]
    assert "--get-npu-insts" not in calls()[1] and "--aie-dma-tasks-to-npu" in calls()[2]


def test_a_refusal_says_what_the_tool_said(noted, arrays, tmp_path):
    tool, _ = noted
    folder: Path = tmp_path / "work"
    folder.mkdir()
    tool("aie-opt", "echo 'design.mlir:3:1: error: no such thing' >&2; exit 1"), tool("aiecc")
    refused = gate.gate(print_design(arrays.calls()), folder)
    assert refused is not None and str(refused) == "aie-opt: design.mlir:3:1: error: no such thing"
