"""A whole module for one design: what the gate reads and one xclbin is built from."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from iron_core.array.design import ArrayDesign, Design
from iron_core.array.placer import place
from iron_core.array.sequence import Sequence, Word
from iron_core.devices import device
from iron_npu.device import print_device
from iron_npu.kernels import KernelObject
from iron_npu.length import PATCH, Parameter
from iron_npu.sequence import Arguments, Scratchpad, Words, print_sequence
from iron_npu.text import Writer

SEQUENCE = "sequence"
SCRATCHPAD, ARGUMENTS = "scratchpad", "arguments"


@attrs.frozen
class Printed:
    """MLIR text and the objects its cores link. `dynamic`: a sequence takes scalars, so it is built anew for each call."""

    text: str
    objects: tuple[KernelObject, ...]
    dynamic: bool = False


def print_design(
    design: Design,
    *,
    name: str = "main",
    words: str | None = None,
    spelling: str = PATCH,
    placement: Mapping[str, tuple[int, int]] | None = None,
) -> Printed:
    """One device with one sequence. words: "scratchpad" (a full ELF; default on npu2) or "arguments" (default on npu1).

    placement: (column, row) per tile of the array; default: as the placer puts them. An empty one leaves free tiles to mlir-aie.
    """
    array, sequence = design.array, design.sequence
    where = placed(array) if placement is None else dict(placement)
    way = words or (SCRATCHPAD if device(array.dev).full_elf else ARGUMENTS)
    writer = Writer()
    with writer.block("module"):
        given: Words = Arguments()
        if way == SCRATCHPAD:
            parameters = declare(writer, sequence)
            given = Scratchpad(parameters, spelling)
        objects = print_device(
            writer,
            array,
            name,
            where,
            lambda w, names: print_sequence(w, array, sequence, SEQUENCE, names, where, given),
        )
    return Printed(writer.text(), objects, way == ARGUMENTS and bool(sequence.words))


def placed(array: ArrayDesign) -> dict[str, tuple[int, int]]:
    """(column, row) of an array's tiles."""
    return place(array, device(array.dev))


def declare(writer: Writer, sequence: Sequence) -> dict[Word, Parameter]:
    """The module's parameters, one per word of a sequence."""
    parameters = {word: Parameter(f"{word.name}_{word.kind}", i) for i, word in enumerate(sequence.words)}
    for parameter in parameters.values():
        writer.line(f"aiex.scratchpad_parameter @{parameter.symbol} : i32")
    return parameters


def print_array(array: ArrayDesign, *, name: str = "main", placement: Mapping[str, tuple[int, int]] | None = None) -> str:
    """The array alone, without a sequence: equal text is equal hardware."""
    writer = Writer()
    where = placed(array) if placement is None else dict(placement)
    print_device(writer, array, name, where, lambda w, names: None)
    return writer.text()
