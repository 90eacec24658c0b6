"""Small wrongs done to a design: each mutator lists the places it applies to, and makes the design with one of them changed.

They are what an author of an operator gets wrong (a release forgotten, lanes crossed, an offset off by one, words written too
late), so what checks and simulates designs has to tell each from the design it came from.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from iron_core.array.design import Design
from iron_core.array.program import Acquire, Call, For, If, Load, RaiseBarrier, Release, SetRounding, WaitBarrier
from iron_core.array.sequence import Await, Free, SetBarrier, Sync, Transfer, WriteWord


def _replaced(items: tuple, index: int, *new: Any) -> tuple:
    return (*items[:index], *new, *items[index + 1 :])


# -- core programs -----------------------------------------------------------------------------------


def _edits(block: tuple, edit: Callable[[Any], Iterator[tuple]]) -> Iterator[tuple]:
    """Every block that differs from `block` by one edited statement; `edit` yields what a statement may become."""
    for index, statement in enumerate(block):
        for new in edit(statement):
            yield _replaced(block, index, *new)
        if isinstance(statement, For):
            for body in _edits(statement.body, edit):
                yield _replaced(block, index, attrs.evolve(statement, body=body))
        elif isinstance(statement, If):
            for name in ("then", "otherwise"):
                for inner in _edits(getattr(statement, name), edit):
                    yield _replaced(block, index, attrs.evolve(statement, **{name: inner}))


def _programs(design: Design, edit: Callable[[Any], Iterator[tuple]]) -> list[Design]:
    found = []
    for index, core in enumerate(design.array.cores):
        for program in _edits(core.program, edit):
            cores = _replaced(design.array.cores, index, attrs.evolve(core, program=program))
            found.append(attrs.evolve(design, array=attrs.evolve(design.array, cores=cores)))
    return found


def release_dropped(design: Design) -> list[Design]:
    return _programs(design, lambda s: iter([()]) if isinstance(s, Release) else iter(()))


def release_twice(design: Design) -> list[Design]:
    return _programs(design, lambda s: iter([(s, s)]) if isinstance(s, Release) else iter(()))


def acquire_dropped_count(design: Design) -> list[Design]:
    """One object fewer, where more than one is acquired."""
    return _programs(
        design,
        lambda s: iter([(attrs.evolve(s, count=s.count - 1),)]) if isinstance(s, Acquire) and s.count > 1 else iter(()),
    )


def acquire_more(design: Design) -> list[Design]:
    return _programs(
        design, lambda s: iter([(attrs.evolve(s, count=s.count + 2),)]) if isinstance(s, Acquire) else iter(())
    )


def call_dropped(design: Design) -> list[Design]:
    return _programs(design, lambda s: iter([()]) if isinstance(s, Call) else iter(()))


def call_twice(design: Design) -> list[Design]:
    """Where the kernel reads what it writes; others write the same again."""

    def twice(s: Any) -> Iterator[tuple]:
        if isinstance(s, Call) and "inout" in design.array.kernel(s.kernel).roles:
            yield (s, s)

    return _programs(design, twice)


def arguments_swapped(design: Design) -> list[Design]:
    def swap(s: Any) -> Iterator[tuple]:
        if isinstance(s, Call) and len(s.args) > 1 and s.args[0] != s.args[1]:
            yield (attrs.evolve(s, args=(s.args[1], s.args[0], *s.args[2:])),)

    return _programs(design, swap)


def trips_one_fewer(design: Design) -> list[Design]:
    return _programs(design, lambda s: iter([(attrs.evolve(s, stop=s.stop - s.step),)]) if isinstance(s, For) else iter(()))


def trips_one_more(design: Design) -> list[Design]:
    return _programs(design, lambda s: iter([(attrs.evolve(s, stop=s.stop + s.step),)]) if isinstance(s, For) else iter(()))


def barrier_not_rearmed(design: Design) -> list[Design]:
    return _programs(design, lambda s: iter([()]) if isinstance(s, RaiseBarrier) else iter(()))


def barrier_not_waited_for(design: Design) -> list[Design]:
    return _programs(design, lambda s: iter([()]) if isinstance(s, WaitBarrier) else iter(()))


def rounding_not_set(design: Design) -> list[Design]:
    return _programs(design, lambda s: iter([()]) if isinstance(s, SetRounding) else iter(()))


def other_word_read(design: Design) -> list[Design]:
    return _programs(design, lambda s: iter([(attrs.evolve(s, index=s.index + 1),)]) if isinstance(s, Load) else iter(()))


# -- the array -----------------------------------------------------------------------------------------


def lanes_crossed(design: Design) -> list[Design]:
    """Two lanes of one operand exchanged on the shim's side, not on the array's."""
    found = []
    lanes: dict[str, list[str]] = {}
    for lane in design.array.lanes:
        lanes.setdefault(lane.operand, []).append(lane.fifo)
    for fifos in lanes.values():
        for one, other in itertools.pairwise(fifos):
            swap = {one: other, other: one}
            found.append(_steps(design, lambda s, swap=swap: attrs.evolve(s, fifo=swap.get(s.fifo, s.fifo))))
    return found


def _fifos(design: Design, edit: Callable[[Any], Iterator[Any]]) -> list[Design]:
    found = []
    for index, fifo in enumerate(design.array.fifos):
        for new in edit(fifo):
            array = attrs.evolve(design.array, fifos=_replaced(design.array.fifos, index, new))
            found.append(attrs.evolve(design, array=array))
    return found


def order_changed(design: Design) -> list[Design]:
    """The last two strides of a re-layout exchanged."""

    def swap(fifo: Any) -> Iterator[Any]:
        if len(fifo.to_stream) > 1 and fifo.to_stream[-1] != fifo.to_stream[-2]:
            (a, s), (b, t) = fifo.to_stream[-2:]
            yield attrs.evolve(fifo, to_stream=(*fifo.to_stream[:-2], (a, t), (b, s)))

    return _fifos(design, swap)


def link_offset_moved(design: Design) -> list[Design]:
    found = []
    for index, link in enumerate(design.array.links):
        if len(link.offsets) > 1:
            moved = attrs.evolve(link, offsets=(*link.offsets[:-1], link.offsets[-1] - 2))
            array = attrs.evolve(design.array, links=_replaced(design.array.links, index, moved))
            found.append(attrs.evolve(design, array=array))
    return found


def parts_crossed(design: Design) -> list[Design]:
    """Two parts of a split or join exchanged."""
    found = []
    for index, link in enumerate(design.array.links):
        name = "targets" if link.kind == "split" else "sources"
        parts = getattr(link, name)
        if len(parts) > 1:
            crossed = attrs.evolve(link, **{name: (parts[1], parts[0], *parts[2:])})
            array = attrs.evolve(design.array, links=_replaced(design.array.links, index, crossed))
            found.append(attrs.evolve(design, array=array))
    return found


# -- the sequence ---------------------------------------------------------------------------------------


def _steps(design: Design, edit: Callable[[Any], Any]) -> Design:
    steps = tuple(edit(s) if isinstance(s, Transfer) else s for s in design.sequence.steps)
    return attrs.evolve(design, sequence=attrs.evolve(design.sequence, steps=steps))


def _each_step(design: Design, edit: Callable[[Any], Iterator[tuple]]) -> list[Design]:
    steps = design.sequence.steps
    return [
        attrs.evolve(design, sequence=attrs.evolve(design.sequence, steps=_replaced(steps, index, *new)))
        for index, step in enumerate(steps)
        for new in edit(step)
    ]


def _descriptors(design: Design, edit: Callable[[Any], Iterator[Any]]) -> list[Design]:
    def change(step: Any) -> Iterator[tuple]:
        if isinstance(step, Transfer):
            for index, descriptor in enumerate(step.descriptors):
                for new in edit(descriptor):
                    yield (attrs.evolve(step, descriptors=_replaced(step.descriptors, index, new)),)

    return _each_step(design, change)


def offset_one_more(design: Design) -> list[Design]:
    return _descriptors(design, lambda d: iter([attrs.evolve(d, offset=d.offset + 1)]))


def offset_one_less(design: Design) -> list[Design]:
    return _descriptors(design, lambda d: iter([attrs.evolve(d, offset=d.offset - 1)] if d.offset else []))


def offset_a_word_more(design: Design) -> list[Design]:
    return _descriptors(design, lambda d: iter([attrs.evolve(d, offset=d.offset + 2)]))


def stride_one_more(design: Design) -> list[Design]:
    def change(d: Any) -> Iterator[Any]:
        for slot in range(4):
            if d.sizes[slot] > 1 and slot < 3:
                yield attrs.evolve(d, strides=_replaced(d.strides, slot, d.strides[slot] + 1))

    return _descriptors(design, change)


def size_smaller(design: Design) -> list[Design]:
    def change(d: Any) -> Iterator[Any]:
        for slot in range(4):
            if d.sizes[slot] > 1:
                yield attrs.evolve(d, sizes=_replaced(d.sizes, slot, d.sizes[slot] - 1))

    return _descriptors(design, change)


def transfer_dropped(design: Design) -> list[Design]:
    return _each_step(design, lambda s: iter([()]) if isinstance(s, Transfer) else iter(()))


def operands_confused(design: Design) -> list[Design]:
    """A fill takes another operand's numbers, where they are alike."""
    kinds = {p.operand: p.dtype_name for p in design.sequence.arguments}
    fills = sorted({t.operand for t in design.sequence.transfers() if t.way == "fill"})

    def change(step: Any) -> Iterator[tuple]:
        if isinstance(step, Transfer) and step.way == "fill":
            for other in fills:
                if other != step.operand and kinds[other] == kinds[step.operand]:
                    yield (attrs.evolve(step, operand=other),)

    return _each_step(design, change)


def wait_missing(design: Design) -> list[Design]:
    """An await is gone, and what was awaited is not freed either."""
    return _each_step(design, lambda s: iter([()]) if isinstance(s, Await) else iter(()))


def freed_instead_of_awaited(design: Design) -> list[Design]:
    return _each_step(design, lambda s: iter([(Free(s.task),)]) if isinstance(s, Await) else iter(()))


def free_before_start(design: Design) -> list[Design]:
    """All frees and awaits of a lane's first task put right behind its start."""

    def change(step: Any) -> Iterator[tuple]:
        if isinstance(step, Transfer):
            yield (step, Free(step.task))

    return _each_step(design, change)


def queue_one_deeper(design: Design) -> list[Design]:
    """The first wait that keeps a channel's queue within its depth comes after the next task of that channel."""
    found = []
    steps = design.sequence.steps
    fifo_of = {s.task: s.fifo for s in steps if isinstance(s, Transfer)}
    for index, step in enumerate(steps):
        if isinstance(step, Await):
            later = next(
                (
                    i
                    for i in range(index + 1, len(steps))
                    if isinstance(steps[i], Transfer) and steps[i].fifo == fifo_of[step.task]
                ),
                None,
            )
            if later is not None:
                moved = (*steps[:index], *steps[index + 1 : later + 1], step, *steps[later + 1 :])
                found.append(attrs.evolve(design, sequence=attrs.evolve(design.sequence, steps=moved)))
    return found


def barrier_before_words(design: Design) -> list[Design]:
    """The barriers are opened before this call's words are written."""
    steps = design.sequence.steps
    writes = [s for s in steps if isinstance(s, (Sync, WriteWord))]
    opens = [s for s in steps if isinstance(s, SetBarrier)]
    if not writes or not opens:
        return []
    rest = [s for s in steps if not isinstance(s, (Sync, WriteWord, SetBarrier))]
    return [attrs.evolve(design, sequence=attrs.evolve(design.sequence, steps=(*opens, *writes, *rest)))]


def word_stale(design: Design) -> list[Design]:
    """One word is not written: the core finds what the call before left."""

    def change(step: Any) -> Iterator[tuple]:
        if isinstance(step, WriteWord):
            yield ()
        elif isinstance(step, Sync):
            for index in range(len(step.words)):
                yield (Sync(_replaced(step.words, index)),)

    return _each_step(design, change)


def word_off_by_one(design: Design) -> list[Design]:
    return _each_step(
        design, lambda s: iter([(attrs.evolve(s, value=s.value + 1),)]) if isinstance(s, WriteWord) else iter(())
    )


def barrier_not_opened(design: Design) -> list[Design]:
    return _each_step(design, lambda s: iter([()]) if isinstance(s, SetBarrier) else iter(()))


def length_ignored(design: Design) -> list[Design]:
    """A transfer moves all there is, whatever the call's bound."""
    return _each_step(
        design,
        lambda s: iter([(attrs.evolve(s, length_by=None),)]) if isinstance(s, Transfer) and s.length_by else iter(()),
    )


def offset_ignored(design: Design) -> list[Design]:
    return _each_step(
        design,
        lambda s: iter([(attrs.evolve(s, offset_by=None),)]) if isinstance(s, Transfer) and s.offset_by else iter(()),
    )


MUTATORS: tuple[Callable[[Design], list[Design]], ...] = (
    release_dropped, release_twice, acquire_dropped_count, acquire_more, call_dropped, call_twice, arguments_swapped,
    trips_one_fewer, trips_one_more, barrier_not_rearmed, barrier_not_waited_for, rounding_not_set, other_word_read,
    lanes_crossed, order_changed, link_offset_moved, parts_crossed, offset_one_more, offset_one_less, offset_a_word_more,
    stride_one_more, size_smaller, transfer_dropped, operands_confused, wait_missing, freed_instead_of_awaited,
    free_before_start, queue_one_deeper, barrier_before_words, word_stale, word_off_by_one, barrier_not_opened,
    length_ignored, offset_ignored,
)  # fmt: skip


def difference(one: Any, other: Any, path: str = "") -> str:
    """Where two pieces of data part first, and how."""
    if attrs.has(type(one)) and type(one) is type(other):
        pairs = [(f".{f.name}", getattr(one, f.name), getattr(other, f.name)) for f in attrs.fields(type(one))]
    elif isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        pairs = [(f"[{i}]", a, b) for i, (a, b) in enumerate(zip(one, other, strict=True))]
    elif isinstance(one, tuple) and isinstance(other, tuple):
        at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
        beside = [repr(items[at]) if at < len(items) else "its end" for items in (one, other)]
        return f"{path}[{at}], {len(one)} become {len(other)}: {beside[0][:150]} -> {beside[1][:150]}"
    else:
        return f"{path}: {one!r:.150} -> {other!r:.150}"
    return next(difference(a, b, path + name) for name, a, b in pairs if a != b)
