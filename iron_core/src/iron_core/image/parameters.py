"""The words a full ELF patches per call: one for every distinct number, shared by all steps that need it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from iron_core.array.design import Design
from iron_core.array.sequence import Word
from iron_core.declare.affine import Affine
from iron_core.declare.identity import design_key
from iron_core.errors import UnsupportedError
from iron_core.image.plan import PlanStep


@attrs.frozen
class Parameter:
    """One word of the control scratchpad. `kind` as in `Word`; `uses`: (step index, name of the step's word)."""

    symbol: str
    kind: str
    uses: tuple[tuple[int, str], ...]


def parameters(steps: Sequence[PlanStep], designs: Sequence[Design]) -> tuple[Parameter, ...]:
    """The parameters of a version, in the order they are first needed. Words of one kind that are equal whatever the call
    gives (the same linear form, or the same rule of the same form) share one."""
    found: dict[tuple[Any, ...], list[tuple[int, str]]] = {}
    for index, (step, design) in enumerate(zip(steps, designs, strict=True)):
        forms = {binding.member: binding.expression for binding in step.bindings}
        for word in design.sequence.words:
            found.setdefault(_identity(step, word, forms), []).append((index, word.name))
    taken: set[str] = set()
    made = []
    for key, uses in found.items():
        symbol = base = _symbol(key)
        number = 1
        while symbol in taken:
            number, symbol = number + 1, f"{base}_{number}"
        taken.add(symbol)
        made.append(Parameter(symbol, key[0], tuple(uses)))
    return tuple(made)


#: Words a message lists.
SHOWN = 8


def check_count(found: Sequence[Parameter], available: int, where: str) -> None:
    """UnsupportedError where an ELF needs more words than the scratchpad has."""
    if len(found) > available:
        names = ", ".join(p.symbol for p in found[:SHOWN]) + (", ..." if len(found) > SHOWN else "")
        raise UnsupportedError(
            f"{where}: {len(found)} per-call words, and a full ELF's scratchpad has {available} ({names}). Let steps follow the "
            "same expressions, or pass boundaries=iron.each_step."
        )


def _identity(step: PlanStep, word: Word, forms: dict[str, Affine]) -> tuple[Any, ...]:
    kind, *rest = word.source
    if kind == "value":
        bound = tuple(sorted((member, form.key) for member, form in forms.items() if member in step.op.extents))
        return (word.kind, "value", word.name, design_key(step.op), bound)
    return (word.kind, kind, forms[str(rest[0])].key, *rest[1:])


def _symbol(key: tuple[Any, ...]) -> str:
    """A name that says what the number is."""
    kind, rule, *rest = key
    if rule == "value":
        return f"{rest[0]}_{kind}"
    value, scale, bias, *more = rest[0]
    text = f"{value}_x{scale}" + (f"{'p' if bias > 0 else 'm'}{abs(bias)}" if bias else "")
    text += "_" + "_".join(str(n).replace("-", "m") for n in more) if tuple(more) != (0, 1, 0) else ""
    return f"{text}_per{rest[1]}_{kind}" if rule == "tiles" else f"{text}_{kind}"
