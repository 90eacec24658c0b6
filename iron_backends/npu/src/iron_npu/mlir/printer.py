"""A whole module for one design: what the gate reads and one xclbin is built from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache

import attrs

from iron_core.array.design import ArrayDesign, Design
from iron_core.array.fit import fit
from iron_core.array.router import place_and_route
from iron_core.array.sequence import Sequence, Word
from iron_core.devices import device
from iron_core.errors import CallError
from iron_npu.mlir.device import print_device
from iron_npu.mlir.kernels import KernelObject
from iron_npu.mlir.length import PATCH, ScratchpadParameter
from iron_npu.mlir.sequence import ArgumentWords, ScratchpadWords, Words, print_sequence, same_words
from iron_npu.mlir.text import Writer

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

    spelling: of lengths set per call; see `iron_npu.mlir.length`. placement: (column, row) per tile of the array; default: where it fits,
    if it does. An empty one leaves free tiles to mlir-aie. CallError for words or a spelling that there is not.
    """
    array, sequence = design.array, design.sequence
    where = dict(fit(design) if placement is None else placement)
    way = (SCRATCHPAD if device(array.dev).full_elf else ARGUMENTS) if words is None else words
    if way not in (SCRATCHPAD, ARGUMENTS):
        raise CallError(f"words={words!r}; legal: {SCRATCHPAD}, {ARGUMENTS}.")
    writer = Writer()
    with writer.block("module"):
        given: Words = ArgumentWords()
        if way == SCRATCHPAD:
            parameters = declare(writer, sequence)
            given = ScratchpadWords(parameters, spelling)
        objects = print_device(
            writer,
            array,
            name,
            where,
            lambda w, names: print_sequence(w, array, sequence, SEQUENCE, names, where, given),
        )
    return Printed(writer.text(), objects, way == ARGUMENTS and bool(sequence.words))


def declare(writer: Writer, sequence: Sequence) -> dict[Word, ScratchpadParameter]:
    """The module's parameters, one for words that are always equal."""
    parameters: dict[Word, ScratchpadParameter] = {}
    for word, first in same_words(sequence).items():
        if word == first:
            count = len(set(parameters.values()))
            parameters[word] = ScratchpadParameter(f"{word.name}_{word.kind}", count)
            writer.line(f"aiex.scratchpad_parameter @{parameters[word].symbol} : i32")
        parameters[word] = parameters[first]
    return parameters


def array_digest(array: ArrayDesign, placement: Mapping[str, tuple[int, int]]) -> str:
    """64 hexadecimal digits of what hardware an array is, kernels by symbol, whatever graph it is in."""
    return _digest(array, tuple(sorted(placement.items())))


@lru_cache(maxsize=256)
def _digest(array: ArrayDesign, placement: tuple[tuple[str, tuple[int, int]], ...]) -> str:
    """Of the same arrays for every version that a graph is given."""
    return hashlib.sha256(print_array(array, placement=dict(placement)).encode()).hexdigest()


def print_array(array: ArrayDesign, *, name: str = "main", placement: Mapping[str, tuple[int, int]] | None = None) -> str:
    """The array alone, without a sequence: equal text is equal hardware."""
    writer = Writer()
    where = dict(place_and_route(array, device(array.dev))[0] if placement is None else placement)
    print_device(writer, array, name, where, lambda w, names: None)
    return writer.text()
