"""A version that computes the next call, its own or another version's: a step `Emit` behind the others makes the words and carried
values of that call.

So nothing but the versions themselves runs between two steps of a loop, nor between a prompt and the loop behind it. What a full ELF
cannot compute by one table of rows is left to the host, which then starts every step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from iron_core.declare.affine import Affine
from iron_core.declare.formats import as_format
from iron_core.declare.row import Row
from iron_core.devices import Device
from iron_core.errors import TraceError, UnsupportedError
from iron_core.graph.signature import describe_signature
from iron_core.image.array_step import ArrayStep, array_step
from iron_core.image.parameters import Parameter
from iron_core.image.plan import BufferRef, PlanStep, VersionPlan
from iron_core.plugins.registry import registry

#: What evaluates the rows.
EMIT = "iron-ops-aie:Emit"


#: A table of rows as data.
Program = tuple[tuple[int, ...], ...]


def next_words(version: VersionPlan, words: Sequence[Parameter], source: VersionPlan | None = None) -> Program | None:
    """Rows of int32, a `Row` each: how the words of a version's next call, as a scratchpad keeps them, and its carried values are made
    of the planes (see `VersionPlan.planes`) that `source`, else the version itself, leaves. None where the version takes tensors, needs
    no words, follows what is not carried, or a number that no row of 32-bit numbers makes.
    """
    source = version if source is None else source
    planes, sources = source.planes, {term.name: term.source for term in source.carry}
    if planes is None or planes != version.planes or version.inputs or not words or not sources:
        return None
    names = list(sources)

    def row(form: Affine, shift: int) -> Row:
        made = sources[form.value]
        if isinstance(made, BufferRef):
            return form.row(1, (made.offset - planes.offset) // planes.format.dtype.itemsize - len(names), shift)
        following = form.of(made)
        return following.row(0, names.index(following.value), shift) if isinstance(following, Affine) else Row.constant(following, shift)

    try:
        rows = [row(word.form, word.shift) for word in words] + [row(Affine(term.name), 0) for term in version.carry]
    except (KeyError, ValueError, TraceError):  # of a value that is not carried, or an expression that no row holds
        return None
    return tuple(map(tuple, rows)) if all(-(1 << 31) <= n < 1 << 31 for made in rows for n in made) else None


def fed_words(target: VersionPlan, words: Sequence[Parameter], source: VersionPlan, name: str) -> Program:
    """`next_words` of a version that another one feeds. UnsupportedError says what is in the way."""
    legal = "legal: of a version that takes no tensor, each of whose words follows from what this one carries, as 32-bit numbers"
    for term in source.carry:
        if source.planes is None and isinstance(term.source, BufferRef):
            why = f"from a version whose carried {term.name} is returned too, or no 32-bit number"
            raise UnsupportedError(f"{name}: feeds= {why}; {legal}.")
    program = next_words(target, words, source)
    if program is None:
        raise UnsupportedError(f"{name}: feeds= of {describe_signature(target.signature)}; {legal}.")
    return program


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
