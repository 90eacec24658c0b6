"""A version that is its own next call: a step `Emit` behind the others computes the words and carried values of that call.

So nothing but the version itself runs between two steps of a loop. What a full ELF cannot compute by one table of rows is left
to the host, which then starts every step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from iron_core.declare.affine import Affine
from iron_core.declare.formats import as_format
from iron_core.declare.row import Row
from iron_core.devices import Device
from iron_core.errors import TraceError
from iron_core.image.array_step import ArrayStep, array_step
from iron_core.image.parameters import Parameter
from iron_core.image.plan import BufferRef, PlanStep, VersionPlan
from iron_core.plugins.registry import registry

#: What evaluates the rows.
EMIT = "iron-ops-aie:Emit"


#: A table of rows as data.
Program = tuple[tuple[int, ...], ...]


def next_words(version: VersionPlan, words: Sequence[Parameter]) -> Program | None:
    """Rows of int32, a `Row` each: how the next call's words, as a scratchpad keeps them, and its carried values are made of this
    one's planes (see `VersionPlan.planes`). None where the version takes tensors, needs no words, follows what it
    does not carry, or a number that no row of 32-bit numbers makes.
    """
    planes, sources = version.planes, {term.name: term.source for term in version.carry}
    if planes is None or version.inputs or not words or not sources:
        return None
    names = list(sources)

    def row(form: Affine, shift: int) -> Row:
        source = sources[form.value]
        if isinstance(source, BufferRef):
            return form.row(1, (source.offset - planes.offset) // planes.format.dtype.itemsize - len(names), shift)
        made = form.of(source)
        return made.row(0, names.index(made.value), shift) if isinstance(made, Affine) else Row.constant(made, shift)

    try:
        rows = [row(word.form, word.shift) for word in words] + [row(Affine(name), 0) for name in names]
    except (KeyError, ValueError, TraceError):  # of a value that is not carried, or an expression that no row holds
        return None
    return tuple(map(tuple, rows)) if all(-(1 << 31) <= n < 1 << 31 for made in rows for n in made) else None


def emit_step(version: VersionPlan, program: Program, dev: Device) -> ArrayStep:
    """The step that evaluates the rows of `next_words`. They are space "program", the words it makes space "feedback"."""
    planes, carried = version.planes, len(version.carry)
    assert planes is not None
    slots = len(program) - carried
    operands = {
        "planes": planes,
        "program": BufferRef("program", 0, 0, (len(program), len(Row._fields)), as_format(np.int32)),
        "words": BufferRef("feedback", 0, 0, (slots,), as_format(np.int32)),
        "state": BufferRef(planes.space, planes.index, planes.offset, (carried,), planes.format),
    }
    operator = registry().load("operators", EMIT)
    return array_step(PlanStep("emit", operator(carried=carried, slots=slots), operands), dev)
