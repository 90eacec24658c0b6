"""What mlir-aie's passes make of the printed sequences: the descriptors they write walk exactly the addresses that were planned."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import iron_ops_aie
from iron_core.array.build import build
from iron_core.array.descriptors import Descriptor
from iron_core.array.design import Design
from iron_core.array.sequence import Transfer, Word
from iron_core.array.words import number
from iron_core.declare.cases import cases
from iron_core.declare.objects import ObjectType
from iron_core.devices import device
from iron_core.errors import IronError
from iron_npu.mlir.printer import print_design
from iron_npu.mlir.sequence import same_words
from tests.catalog import ARRAYS, named
from tests.npu.lowered import Task, tasks

PASSES = (
    "builtin.module(aie.device(aie-place-tiles),lower-affine,aie-canonicalize-device,aie-lower-scratchpad-parameters,"
    "aie.device(aie-objectFifo-stateful-transform{packet-sw-objFifos=false},aie-objectFifo-unroll{default-dynamic=true},"
    "aie-assign-lock-ids,aie-assign-bd-ids,aie-assign-tile-controller-ids,aie-assign-buffer-addresses),"
    "aie-materialize-runtime-sequences,aie.device(aie-materialize-bd-chains,aie-substitute-shim-dma-allocations,"
    "aie-unroll-runtime-sequence-loops,canonicalize,aie-decompose-large-dma-bd,aie-lower-dynamic-bd-pool,canonicalize,"
    "aie-assign-runtime-sequence-bd-ids,aie-dma-tasks-to-npu,aie-dma-to-npu,aie-lower-set-lock))"
)


def planned(design: Design, numbers: Mapping[Word, int] | None = None) -> Iterator[Task]:
    """The tasks of a design's sequence, as its transfers say, in a call that gives its words these numbers."""
    arguments = [argument.operand for argument in design.sequence.arguments]
    for step in design.sequence.transfers():
        argument = design.sequence.arguments[arguments.index(step.operand)]
        itemsize = ObjectType.of(1, argument.dtype_name).nbytes
        iterates = len(step.descriptors) > 1 and any(d.sizes[0] > 1 for d in step.descriptors)
        groups = [(d,) for d in step.descriptors] if iterates else [step.descriptors]
        for last, group in zip([*[False] * (len(groups) - 1), True], groups, strict=True):
            start = (numbers or {})[step.offset_by] if step.offset_by else 0
            length = (numbers or {})[step.length_by] * step.unit if step.length_by else None
            words = np.concatenate([_words(d.shifted(start), itemsize, length) for d in group])
            yield Task(step.way, arguments.index(step.operand), tuple(words.tolist()), step.token and last)


def _words(descriptor: Descriptor, itemsize: int, length: int | None = None) -> np.ndarray:
    return descriptor.addresses(length)[:: 4 // itemsize] * itemsize // 4


def designs(cls: type) -> Iterator[tuple[str, Design]]:
    """Designs of an operator's cases that are small enough to walk word by word."""
    for _, case, dev in cases([cls], ("npu1", "npu2"), extensive=True):
        try:
            design = build(cls(**case.fields).resolved(device(dev)), dev).design
        except IronError:
            continue
        if sum(step.elements for step in design.sequence.transfers()) < 1 << 18:
            yield f"{cls.__name__}-{case.id}-{dev}", design


def lower(text: str, folder: Path) -> str:
    source = folder / "design.mlir"
    source.write_text(text)
    done = subprocess.run(["aie-opt", f"--pass-pipeline={PASSES}", str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]
    return done.stdout


@pytest.mark.toolchain
@pytest.mark.skipif(shutil.which("aie-opt") is None, reason="aie-opt not on PATH")
@pytest.mark.parametrize("cls", ARRAYS, ids=named)
def test_lowered_descriptors_walk_what_was_planned(cls, tmp_path):
    seen = 0
    for case, design in designs(cls):
        got = list(tasks(lower(print_design(design).text, tmp_path)))
        assert got == list(planned(design)), case
        seen += len(got)
    assert seen


def calls(cls: type, dev: str) -> Iterator[tuple[str, Any, Design, dict[str, int]]]:
    """Operators with members given per call, and numbers for these: about half of an extent, a start of 64."""
    for _, case, _ in cases([cls], extensive=True):
        try:
            op = cls(**case.fields).resolved(device(dev))
        except IronError:
            continue
        extents = {k: getattr(op, extent.field) // 2 + 1 for k, extent in op.extents.items()}
        starts: list[dict[str, int]] = [{member: 64} for member in op.scratchpads]
        for members in (extents, *starts, {**extents, **{k: n for one in starts for k, n in one.items()}}):
            try:
                design = build(op, dev, members).design
            except IronError:
                continue
            moved = sum(step.elements for step in design.sequence.transfers())
            if design.sequence.words and moved < 1 << 18 and (members is extents or starts):
                yield f"{cls.__name__}-{case.id}-{','.join(members)}", op, design, members


@pytest.mark.toolchain
@pytest.mark.skipif(shutil.which("aie-opt") is None, reason="aie-opt not on PATH")
@pytest.mark.parametrize("dev", ["npu1", "npu2"])
@pytest.mark.parametrize("cls", ARRAYS, ids=named)
def test_lowered_descriptors_follow_a_call(cls, dev, tmp_path):
    """Lengths and starts of a call cut and move the walk as planned: as scalars of the sequence, or from the scratchpad."""
    seen = 0
    for case, op, design, members in calls(cls, dev):
        try:
            numbers = {word: number(op, word, members) for word in design.sequence.words}
        except IronError:
            continue
        printed = print_design(design)
        symbols = re.findall(r"scratchpad_parameter @(\w+) : i32", printed.text)
        state, scalars = [0] * len(symbols), []
        for word, first in same_words(design.sequence).items():
            if printed.dynamic:
                scalars += [numbers[word]] if word == first else []
            else:
                # The host keeps a word that moves an address as it is, any other shifted.
                state[symbols.index(f"{first.name}_{first.kind}")] = numbers[word] << (0 if word.kind == "offset" else 2)
        assert printed.dynamic is (dev == "npu1")
        got = list(tasks(lower(printed.text, tmp_path), state, scalars))
        assert got and got == list(planned(design, numbers)), case
        seen += len(got)
    assert seen


# -- the reader of lowered text, without the tools ---------------------------------------------------------

LOWERED = """
    memref.global "private" constant @blockwrite_data_0 : memref<8xi32> = dense<[8, 0, 0, {d0}, {d1}, {d2}, {it}, 33554432]>
    aie.runtime_sequence(%arg0: memref<4096xi32>) {{
      %0 = memref.get_global @blockwrite_data_0 : memref<8xi32>
      aiex.npu.blockwrite(%0) {{address = 33673216 : ui32}} : memref<8xi32>
      %c64_i32 = arith.constant 64 : i32
      aiex.npu.address_patch(%c64_i32 : i32) {{addr = 33673220 : ui32, arg_idx = 0 : i32}}
      %c33673748_i32 = arith.constant 33673748 : i32
      %c{push}_i32 = arith.constant {push} : i32
      aiex.npu.write32(%c33673748_i32, %c{push}_i32) : i32, i32
    }}
"""


@pytest.mark.parametrize(
    "descriptor",
    [
        Descriptor(16, (1, 1, 1, 8), (0, 0, 0, 1)),
        Descriptor(16, (1, 2, 2, 2), (0, 100, 10, 1)),
        Descriptor(16, (3, 2, 2, 2), (1000, 100, 10, 2)),
        Descriptor(16, (3, 1, 1, 8), (0, 0, 0, 1)),
    ],
)
def test_the_reader_walks_a_descriptor_as_the_hardware_does(descriptor):
    (n, c, b, a), (sn, sc, sb, sa) = descriptor.sizes, descriptor.strides
    linear = (c, b) == (1, 1)
    fields: dict[str, Any] = dict(
        d0=0 if linear else a << 20 | sa - 1,
        d1=0 if linear else b << 20 | max(0, sb - 1),
        d2=0 if linear else max(0, sc - 1),
        it=(n - 1) << 20 | sn - 1 if sn else 0,
        push=(n - 1) << 16,
    )
    (task,) = tasks(LOWERED.format(**fields))
    assert task == Task("fill", 0, tuple(descriptor.addresses().tolist()), False)


def test_the_reader_follows_scalars():
    text = LOWERED.format(d0=0, d1=0, d2=0, it=0, push=0).replace("memref<4096xi32>) {", "memref<4096xi32>, %arg1: i32, %arg2: i32) {")
    text = text.replace("      %c64_i32 = arith.constant 64 : i32", """
      %c33673216_i32 = arith.constant 33673216 : i32
      %c3_i32 = arith.constant 3 : i32
      %1 = arith.cmpi sgt, %arg1, %c3_i32 : i32
      %2 = arith.select %1, %arg1, %c3_i32 : i32
      aiex.npu.write32(%c33673216_i32, %2) : i32, i32
      %c64_i32 = arith.shli %arg2, %c3_i32 : i32""")
    assert list(tasks(text, scalars=(5, 2))) == [Task("fill", 0, (4, 5, 6, 7, 8), False)]
    assert list(tasks(text, scalars=(1, 0))) == [Task("fill", 0, (0, 1, 2), False)]
    with pytest.raises(AssertionError):
        list(tasks(text))


def test_the_planned_tasks_of_a_chain_and_of_iterations():
    design = build(iron_ops_aie.Copy(input_size=96 * 4, X=np.float32), "npu2").design
    first = next(planned(design))
    assert first.argument < len(design.sequence.arguments) and isinstance(design.sequence.transfers()[0], Transfer)
    assert sum(len(task.words) for task in planned(design)) == 2 * 96 * 4
