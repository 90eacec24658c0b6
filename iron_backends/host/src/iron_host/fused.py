"""A step and those folded into it as one kernel: each does what it would do by itself, for some numbers at a time.

The text of that kernel is made here, of calls of the templates that the steps have by themselves. Extents are its slots, so
another shape compiles nothing new. A result that is handed on is stored in its own type, as in memory: no bit changes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from iron_core.cache.keys import digest
from iron_core.image.plan import PlanStep
from iron_core.lowering.answer import No
from iron_host.build import Header, Unit
from iron_host.kernel_call import Blocks, Constant, KernelCall, Lines, Member, Pointer
from iron_host.parts import Part, named, written
from iron_host.slots import MAX_FLOATS, MAX_INTS, MAX_POINTERS, Filled

#: Numbers that are handed on at a time, which a core's nearest cache holds, and the bytes of the widest.
PIECE, WIDEST = 1024, 4
#: Threads take whole runs of numbers, as in elementwise.h.
RUN = 64


def fused(part: Part, calls: Sequence[Sequence[KernelCall]]) -> list[KernelCall] | No:
    """The kernel calls of a part with steps behind it; No where they do not become one kernel.

    calls: those that each of its steps has by itself.
    """
    (*before, head), *others = calls
    if part.step.op.operands[written(part.step)].read:
        return No(f"{type(part.step.op).__name__}: it reads what it writes")
    stages = [Stage(part.step, head)]
    for behind, more in zip(part.behind, others, strict=True):
        if len(more) != 1:
            return No(f"{type(behind.step.op).__name__}: it is several kernels by itself")
        stages.append(Stage(behind.step, more[0], behind.at))
    last = stages[-1]
    to = last.place_of(written(last.step))
    if last.moves:  # the step before it writes where the copy would
        stages.pop()
        if len(stages) == 1:
            return _placed(stages[0], [*before, head], to)
    without = next((stage.step for stage in stages if stage.call.lines is None), part.step if before else None)
    if without is not None:
        return No(f"{type(without.op).__name__}: its kernel is not called for a part of its result")
    whole = _Fusion(stages, to).call()
    return whole if isinstance(whole, No) else [whole]


def _placed(stage: Stage, calls: list[KernelCall], to: Pointer) -> list[KernelCall] | No:
    """The calls of one step, whose result goes to another place."""
    result = written(stage.step)
    moved = []
    for call in calls:
        pointers = [to if p == result or p == Pointer(result) else p for p in call.slots.pointers]
        if any(isinstance(p, Pointer) and p.operand == result for p in pointers):
            return No(f"{type(stage.step.op).__name__}: its kernel writes its result in several places")
        moved.append(attrs.evolve(call, slots=attrs.evolve(call.slots, pointers=tuple(pointers))))
    return moved


@attrs.frozen(eq=False)
class Stage:
    """One step of a chain with its kernel call. at: its input that is the result of the one before it."""

    step: PlanStep
    call: KernelCall
    at: str | None = None

    @property
    def result(self) -> str:
        return written(self.step)

    @property
    def moves(self) -> bool:
        """Is it a copy that leaves numbers as they are?"""
        op = self.step.op
        return self.at is not None and bool(op.accept_views) and op.format(self.at) == op.format(self.result)

    @property
    def lines(self) -> Lines:
        assert self.call.lines is not None
        return self.call.lines

    @property
    def line(self) -> int:
        """Numbers of the result that are computed together."""
        return self.lines.numbers[self.result]

    def width(self, operand: str) -> int:
        """Bytes of a number."""
        return int(self.step.operands[operand].format.dtype.itemsize)

    def named(self, pointer: Any) -> Any:
        """A pointer slot's content, with operands named as of a step behind another."""
        if self.at is None or pointer is None or isinstance(pointer, Constant):
            return pointer
        if isinstance(pointer, str):
            return named(self.step, pointer)
        return attrs.evolve(pointer, operand=named(self.step, pointer.operand))

    def slot_of(self, operand: str) -> int:
        """The pointer slot that an operand is in."""
        return next(i for i, p in enumerate(self.call.slots.pointers) if _operand(p) == operand)

    def place_of(self, operand: str) -> Pointer:
        """Where an operand begins, named as of a step behind another."""
        pointer = self.call.slots.pointers[self.slot_of(operand)]
        found: Pointer = self.named(pointer if isinstance(pointer, Pointer) else Pointer(operand))
        return found


def _operand(pointer: Any) -> str | None:
    return pointer.operand if isinstance(pointer, Pointer | Blocks) else pointer if isinstance(pointer, str) else None


class _Fusion:
    """The kernel of some stages, the last of which writes to `to`. Its slots are the first one's, with what the others need
    behind them."""

    def __init__(self, stages: Sequence[Stage], to: Pointer) -> None:
        self.stages, self.to = stages, to
        self.head = stages[0].call
        slots = self.head.slots
        self.pointers, self.ints, self.floats = list(slots.pointers), list(slots.ints), list(slots.floats)
        #: Numbers that no thread takes fewer of, and those that are handed on at a time.
        self.unit = max(stage.line for stage in stages)
        self.piece = self.unit * max(1, PIECE // self.unit)

    def call(self) -> KernelCall | No:
        refused = self._refusal()
        if refused is not None:
            return refused
        text = self._text()
        room = ("pointers", self.pointers, MAX_POINTERS), ("integers", self.ints, MAX_INTS), ("numbers", self.floats, MAX_FLOATS)
        for what, needed, most in room:
            if len(needed) > most:
                return No(f"together they take {len(needed)} {what}; a kernel has slots for {most}")
        header, more = _headers(self.stages)
        name = "_".join(["fused", *(stage.call.unit.symbol.removeprefix("iron_") for stage in self.stages)])[:100]
        name += f"_{digest(header, more, text)[:8]}"
        source = f"{more}namespace iron {{\nnamespace {{\n{text}}}\n}}\n".replace("FUSED", name)
        return attrs.evolve(
            self.head,
            unit=Unit(header, name, f"iron_{name}", source),
            slots=Filled(self.head.slots.table, tuple(self.pointers), tuple(self.ints), tuple(self.floats)),
            scratch_bytes=2 * WIDEST * self.piece,
            threads=self._threads(),
            lines=None,
        )

    def _threads(self) -> int:
        """Those of the stage that takes most; 0 is all."""
        wanted = [stage.call.threads for stage in self.stages]
        return 0 if 0 in wanted else max(wanted)

    def _refusal(self) -> No | None:
        """Why these kernels are not called one behind another for some numbers at a time."""
        for stage in self.stages:
            name = type(stage.step.op).__name__
            own = {s.call.unit.own for s in self.stages} - {None}
            if len(own) > 1:
                return No(f"{name}: kernels of two packs, whose headers are not compiled together")
            if stage.call.scratch_bytes or stage.call.shared_bytes:
                return No(f"{name}: its kernel needs memory of its own")
            if any(stage.step.operands[o].format.packed for o in (stage.at, stage.result) if o is not None):
                return No(f"{name}: numbers in blocks are not handed on")
            if self.unit % stage.line:
                return No(f"{name}: its rows of {stage.line} numbers do not divide those of {self.unit}")
        threads = self._threads()
        lines = math.prod(self.stages[-1].step.operands[self.stages[-1].at or self.stages[-1].result].shape) // self.unit
        if self.unit > 1 and (threads == 0 or lines < threads):
            return No("a row is made by one thread, and what is in front of it gains by more")
        return None

    # -- the text ----------------------------------------------------------------------------------

    def _slot(self, slots: list[Any], given: Any) -> int:
        slots.append(given)
        return len(slots) - 1

    def _integer(self, number: int | Member) -> str:
        return f"a->n[{self._slot(self.ints, number)}]"

    def _counted(self, count: str, operator: str, numbers: int) -> str:
        """A count of numbers made of one of lines, or the other way round; elementwise kernels count numbers."""
        return count if numbers == 1 else f"{count} {operator} {self._integer(numbers)}"

    def _text(self) -> str:
        """The function FUSED, and `piece`, which runs every stage for the n numbers from number `at` on."""
        self._piece = str(PIECE) if self.unit == 1 else self._integer(self.piece)
        body = "".join(f"  {line}\n" for i in range(len(self.stages)) for line in self._stage(i))
        piece = f"void piece(const iron_args* a, int64_t at, int64_t n) {{\n{body}}}\n"
        head = "void FUSED(const iron_args* a, int32_t tid, int32_t nt) {\n"
        walk = f"for (int64_t i = s.begin; i < s.end; i += {self._piece})"
        size = f"i + {self._piece} < s.end ? {self._piece} : s.end - i"
        lines, table = self.stages[0].lines, self.head.slots.table
        total = self._counted(f"a->n[{table.place(lines.count)}]", "*", self.stages[0].line // lines.of_count)
        runs = RUN if self.unit == 1 else self._integer(self.unit)
        return f"{piece}{head}  Share s = share({total}, tid, nt, {runs});\n  {walk} piece(a, i, {size});\n}}\n"

    def _stage(self, i: int) -> Iterator[str]:
        """What calls stage i for some numbers, line by line."""
        stage = self.stages[i]
        lines, slots = stage.lines, stage.call.slots
        yield f"iron_args s{i} = {'{}' if i else '*a'};"
        for slot, pointer in enumerate(slots.pointers):
            operand = _operand(pointer)
            if pointer is None:
                continue
            if operand == stage.at:
                where = self._handed(i - 1)
            elif operand == stage.result and i + 1 < len(self.stages):
                where = self._handed(i)
            else:
                given = self.to if operand == stage.result else stage.named(pointer)
                if i:
                    place = self._slot(self.pointers, given)
                else:
                    place, self.pointers[slot] = slot, given
                where = self._moved(stage, operand, place)
            yield f"s{i}.p[{slot}] = {where};"
        count = slots.table.place(lines.count)
        if i:
            for slot, number in enumerate(slots.ints):
                if slot != count and (isinstance(number, Member) or number):
                    yield f"s{i}.n[{slot}] = {self._integer(number)};"
            for slot, value in enumerate(slots.floats):
                if value or math.copysign(1, value) < 0:
                    yield f"s{i}.f[{slot}] = a->f[{self._slot(self.floats, value)}];"
        yield f"s{i}.n[{count}] = {self._counted('n', '/', stage.line // lines.of_count)};"
        yield f"{stage.call.unit.template}(&s{i}, 0, 1);"

    def _handed(self, i: int) -> str:
        """Where the result of stage i is handed on: in two places in turn."""
        return f"(char*)a->scratch + {i % 2 * WIDEST} * {self._piece}"

    def _moved(self, stage: Stage, operand: str | None, place: int) -> str:
        """A pointer, at what belongs to number `at` of the result."""
        numbers, line = stage.lines.numbers.get(operand or "", 0), stage.line
        if not numbers:
            return f"a->p[{place}]"
        width = stage.width(operand or "")
        if numbers == line:
            return f"(char*)a->p[{place}] + at * {width}"
        return f"(char*)a->p[{place}] + at / {self._integer(line)} * {self._integer(numbers)} * {width}"


def _headers(stages: Sequence[Stage]) -> tuple[str | Header, str]:
    """The header of a unit of several, and what else their templates need."""
    units = [stage.call.unit for stage in stages]
    first = next((unit.own for unit in units if unit.own is not None), None) or units[0].header
    others = dict.fromkeys(unit.header for unit in units if unit.header != first)
    return first, "".join(f'#include "{other}"\n' for other in others) + "".join(dict.fromkeys(unit.source for unit in units))
