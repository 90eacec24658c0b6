"""Runtime sequences: a design's transfers, waits and per-call words as operations of the aiex dialect."""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs
import numpy as np

from iron_core.array.descriptors import Descriptor
from iron_core.array.design import ArrayDesign
from iron_core.array.sequence import (
    Await,
    AwaitToken,
    Free,
    Sequence,
    SetBarrier,
    Step,
    Sync,
    Transfer,
    Word,
    WriteWord,
)
from iron_core.declare.formats import as_format
from iron_core.devices import WORD_SHIFT, device
from iron_core.errors import UnsupportedError
from iron_npu.mlir.core import word_buffers
from iron_npu.mlir.device import packet_ids
from iron_npu.mlir.length import PATCH, ScratchpadParameter, known, length, update
from iron_npu.mlir.text import Writer, attributes, element, i32


@attrs.frozen
class ScratchpadWords:
    """Per-call words come from the control scratchpad of a full ELF. `parameters`: each word's."""

    parameters: Mapping[Word, ScratchpadParameter]
    spelling: str = attrs.field(default=PATCH, converter=known)


@attrs.frozen
class ArgumentWords:
    """Per-call words are scalar arguments of the sequence, which is built anew for each call."""


Words = ScratchpadWords | ArgumentWords


def print_sequence(
    writer: Writer,
    array: ArrayDesign,
    sequence: Sequence,
    name: str,
    names: Mapping[str, str],
    placement: Mapping[str, tuple[int, int]],
    words: Words,
) -> None:
    """`aie.runtime_sequence @name`. names: SSA names of the array's locks; placement: (column, row) of its tiles, as far as known."""
    with writer.apart():
        arguments = {argument.operand: writer.fresh(argument.operand) for argument in sequence.arguments}
        taken = [
            f"{arguments[argument.operand]} : memref<{argument.elements}x{element(argument.dtype_name)}>" for argument in sequence.arguments
        ]
        scalars: dict[Word, str] = {}
        if isinstance(words, ArgumentWords):
            for word, first in same_words(sequence).items():
                if word == first:
                    scalars[word] = writer.fresh(word.name)
                    taken.append(f"{scalars[word]} : i32")
                scalars[word] = scalars[first]
        with writer.block(f"aie.runtime_sequence @{name}({', '.join(taken)})"):
            printer = _Sequence(writer, array, sequence, arguments, names, placement, words, scalars)
            if isinstance(words, ScratchpadWords) and sequence.words:
                writer.line("aiex.sync_scratchpad_parameters_from_host")
            for step in sequence.steps:
                printer.step(step)
            printer.check()


def same_words(sequence: Sequence) -> dict[Word, Word]:
    """Each word of a sequence, and the first that has its number in every call."""
    first: dict[tuple[object, ...], Word] = {}
    return {word: first.setdefault(word.key, word) for word in sequence.words}


class _Sequence:
    """The steps of one sequence."""

    def __init__(
        self,
        writer: Writer,
        array: ArrayDesign,
        sequence: Sequence,
        arguments: Mapping[str, str],
        names: Mapping[str, str],
        placement: Mapping[str, tuple[int, int]],
        words: Words,
        scalars: Mapping[Word, str],
    ) -> None:
        self.writer = writer
        self.array = array
        self.arguments = arguments
        self.kinds = {argument.operand: argument for argument in sequence.arguments}
        self.names = names
        self.placement = placement
        self.words = words
        self.scalars = scalars
        self.shifted = word_buffers(array)
        self.packets = packet_ids(array)
        #: Task -> its SSA names, in the order started; only the last has a token.
        self.tasks: dict[int, list[str]] = {}
        # A descriptor's number is in the text only where something else names its registers, and then every one is.
        self.pinned = isinstance(words, ScratchpadWords) and words.spelling == PATCH and any(
            step.length_by is not None for step in sequence.transfers()
        )
        self.free: dict[int, list[int]] = {}
        self.held: dict[int, tuple[int, list[int]]] = {}
        self.live: set[int] = set()

    def step(self, s: Step) -> None:
        w = self.writer
        match s:
            case Transfer():
                self.transfer(s)
            case Await(task):
                *before, last = self.tasks[task]
                w.line(f"aiex.dma_await_task({last})")
                for one in before:
                    w.line(f"aiex.dma_free_task({one})")
                self.done(task)
            case Free(task):
                for one in self.tasks[task]:
                    w.line(f"aiex.dma_free_task({one})")
                self.done(task)
            case WriteWord(buffer, index, value):
                kept = value << WORD_SHIFT if buffer in self.shifted else value
                w.line(f"aiex.npu.rtp_write(@{buffer}, {index}, {w.constant(kept, 'i32')}) : i32")
            case Sync(written):
                for buffer, index, word in written:
                    self.sync(buffer, index, word)
            case SetBarrier(lock, value):
                w.line(f"aiex.set_lock({self.names[lock]}, {value})")
            case AwaitToken(fifo):
                self.token(fifo)
            case _:
                raise UnsupportedError(f"{self.array.name}: {type(s).__name__} in a sequence cannot be printed.")

    def sync(self, buffer: str, index: int, word: Word) -> None:
        w = self.writer
        if isinstance(self.words, ArgumentWords):
            shifted = w.once(f"{word.name}_kept", f"arith.shli {self.scalars[word]}, {w.constant(WORD_SHIFT, 'i32')} : i32")
            w.line(f"aiex.npu.rtp_write(@{buffer}, {index}, {shifted}) : i32")
            return
        # The scratchpad is added to what is there.
        at, zero = w.constant(index, "i32"), w.constant(0, "i32")
        w.line(f"aiex.npu.write32({at}, {zero}) {{buffer = @{buffer}}} : i32, i32")
        update(w, self.words.parameters[word], 1, f"address = {index} : ui32, buffer = @{buffer}")

    def token(self, fifo: str) -> None:
        """Wait for a token of the channel that control packets drive."""
        control = next(control for control in self.array.controls if control.fifo == fifo)
        # Column, row, direction (1: out of memory), channel, and how many columns and rows.
        where = (self.placed(control.target)[0], 0, 1, control.channel, 1, 1)
        values = ", ".join(self.writer.constant(n, "i32") for n in where)
        self.writer.line(f"aiex.npu.sync({values}) : {', '.join(['i32'] * len(where))}")

    def placed(self, tile: str) -> tuple[int, int]:
        try:
            return self.placement[tile]
        except KeyError:
            raise UnsupportedError(f"{self.array.name}: {tile} has no column and row; place the array first.") from None

    # -- transfers ---------------------------------------------------------------------------------

    def transfer(self, s: Transfer) -> None:
        """Configure and start. Several descriptors are one task, a chain; unless one iterates: a task repeats as a whole."""
        many = len(s.descriptors) > 1 and any(d.sizes[0] > 1 for d in s.descriptors)
        groups = [(d,) for d in s.descriptors] if many else [s.descriptors]
        ids = self.take(s)
        self.tasks[s.task] = []
        self.live.add(s.task)
        for number, group in enumerate(groups):
            token = s.token and number == len(groups) - 1
            self.tasks[s.task].append(self.task(s, group, token, [ids.pop(0) for _ in group] if ids else []))

    def task(self, s: Transfer, group: tuple[Descriptor, ...], token: bool, ids: list[int]) -> str:
        w = self.writer
        name = w.fresh(f"{s.fifo}_task")
        repeat = group[0].sizes[0] - 1
        given = attributes({"issue_token": "true" if token else None, "repeat_count": i32(repeat or None)})
        itemsize = np.dtype(self.dtype(s)).itemsize
        patched = None
        texts = []
        for number, descriptor in enumerate(group):
            extra: dict[str, str | None] = {"bd_id": i32(ids[number]) if ids else None}
            if s.fifo in self.packets:
                extra["packet"] = f"#aie.packet_info<pkt_type = 0, pkt_id = {self.packets[s.fifo]}>"
            if s.offset_by is not None and isinstance(self.words, ScratchpadWords):
                extra["offset_parameter"] = f"@{self.words.parameters[s.offset_by].symbol}"
            if s.length_by is not None and isinstance(self.words, ScratchpadWords):
                patched = length(self.words.parameters[s.length_by], s.unit, itemsize, self.words.spelling)
                extra.update(patched.attributes)
            texts.append(self.descriptor(s, descriptor) + attributes(extra))
        w.line(f"{name} = aiex.dma_configure_task_for @{s.fifo} {{")
        with w.inner():
            for number, text in enumerate(texts):
                w.line(text)
                if number < len(texts) - 1:
                    w.line(f"aie.next_bd ^bd{number + 1}")
                    w.label(f"^bd{number + 1}:")
            w.line("aie.end")
        w.line(f"}}{given}")
        if patched is not None and ids:
            patched.patch(w, self.column(s), ids[0])
        w.line(f"aiex.dma_start_task({name})")
        return name

    def descriptor(self, s: Transfer, d: Descriptor) -> str:
        """`aie.dma_bd(...)` of the sequence's argument. The iteration is left out where it stands still: the task repeats."""
        argument = self.kinds[s.operand]
        still = d.sizes[0] == 1 or d.strides[0] == 0
        sizes, strides = (d.sizes[1:], d.strides[1:]) if still else (d.sizes, d.strides)
        run = math.prod(d.sizes[1:])
        start, count = self.start(s, d), self.count(s, run)
        text = f"{self.arguments[s.operand]} : memref<{argument.elements}x{element(argument.dtype_name)}> offset = {start} len = {count}"
        walked = [str(n) for n in sizes]
        if count.startswith("%") and sizes[-3:-1] == (1, 1):
            # Constant sizes that make one run would be taken for the length.
            walked[-1] = self.writer.once(f"{count[1:]}_i64", f"arith.extsi {count} : i32 to i64")
        if not (still and sizes == (1, 1, run)) or start.startswith("%") or count.startswith("%"):
            text += f" sizes = [{', '.join(walked)}] strides = {list(strides)}"
        return f"aie.dma_bd({text})"

    def start(self, s: Transfer, d: Descriptor) -> str:
        """A descriptor's offset: a number, or what this call gives."""
        if s.offset_by is None or not isinstance(self.words, ArgumentWords):
            return str(d.offset)
        moved = self.scalars[s.offset_by]
        constant = self.writer.constant(d.offset, "i32") if d.offset else ""
        return self.writer.once("start", f"arith.addi {moved}, {constant} : i32") if d.offset else moved

    def count(self, s: Transfer, run: int) -> str:
        """A descriptor's length: a number, or what this call gives."""
        if s.length_by is None or not isinstance(self.words, ArgumentWords):
            return str(run)
        unit = self.writer.constant(s.unit, "i32")
        return self.writer.once("length", f"arith.muli {self.scalars[s.length_by]}, {unit} : i32")

    def dtype(self, s: Transfer) -> np.dtype:
        return as_format(self.kinds[s.operand].dtype_name).dtype  # type: ignore[union-attr]

    def column(self, s: Transfer) -> int:
        """The column of the shim tile at this transfer's end of its fifo."""
        control = next((control for control in self.array.controls if control.name == s.fifo), None)
        if control is not None:
            return self.placed(control.source)[0]
        shim = next(tile for tile in self.array.fifo(s.fifo).ends() if self.array.tile(tile).kind == "shim")
        return self.placed(shim)[0]

    # -- descriptors -------------------------------------------------------------------------------

    def take(self, s: Transfer) -> list[int]:
        """Numbers of the transfer's descriptors, the lowest that are free; none where the text names none."""
        if not self.pinned:
            return []
        column = self.column(s)
        there = device(self.array.dev).shim.descriptors  # type: ignore[union-attr]
        free = self.free.setdefault(column, list(range(there)))
        if len(free) < len(s.descriptors):
            raise UnsupportedError(
                f"{self.array.name}: column {column} would hold more than {there} descriptors at once; wait for transfers "
                f"before the one on {s.fifo}."
            )
        ids = [free.pop(0) for _ in s.descriptors]
        self.held[s.task] = column, list(ids)
        return ids

    def done(self, task: int) -> None:
        self.live.discard(task)
        if task in self.held:
            column, ids = self.held.pop(task)
            self.free[column] = sorted(self.free[column] + ids)

    def check(self) -> None:
        """UnsupportedError if a task is neither awaited nor freed: the next sequence in the stream would miss its descriptors."""
        if self.live:
            raise UnsupportedError(f"{self.array.name}: tasks {sorted(self.live)} are still held when the sequence ends.")
