"""The words that a device is given per call: one for every distinct number of a kind, shared by all steps that need it.

A full ELF patches them from its control scratchpad, a chain of dispatches takes them as scalars. What a step's design asks
for follows the step's own members; planned, it follows the graph's per-call values.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from iron_core.declare.affine import Affine, by_key
from iron_core.declare.row import Row
from iron_core.devices import WORD_SHIFT
from iron_core.errors import TraceError, UnsupportedError
from iron_core.image.array_step import ArrayStep

#: Words that a message lists.
_SHOWN = 8


@attrs.frozen
class Parameter:
    """One word. `kind` as in `Word`; `form`: of the graph's per-call values; `uses`: (step index, name of the step's word)."""

    symbol: str
    kind: str
    form: Affine = attrs.field(eq=by_key)
    uses: tuple[tuple[int, str], ...]

    @property
    def shift(self) -> int:
        """By how much a scratchpad keeps it shifted to the left: not at all where it is an address."""
        return 0 if self.kind == "offset" else WORD_SHIFT

    def row(self, values: Sequence[str]) -> Row:
        """How a scratchpad's word is made of a call's values, in this order, as it is kept."""
        return self.form.row(0, values.index(self.form.value), self.shift)


def parameters(steps: Sequence[ArrayStep]) -> tuple[Parameter, ...]:
    """The parameters of a version, in the order they are first needed. Words of one kind that are equal whatever the call
    gives share one.

    UnsupportedError for a word that no row can hold, made of an expression that was divided and multiplied already.
    """
    found: dict[tuple[object, ...], tuple[str, Affine, list[tuple[int, str]]]] = {}
    for index, step in enumerate(steps):
        given = {binding.member: binding.expression for binding in step.bindings}
        for word in step.design.sequence.words:
            try:
                form = word.form.of(given[word.form.value])
            except TraceError as error:
                raise UnsupportedError(f"step {step.name}: its word {word.name} is made by no row of a table: {error}") from None
            assert isinstance(form, Affine), "an expression of a value in place of another's follows it"
            found.setdefault((word.kind, form.key), (word.kind, form, []))[2].append((index, word.name))
    taken: set[str] = set()
    made = []
    for kind, form, uses in found.values():
        symbol = base = _symbol(form, kind)
        number = 1
        while symbol in taken:
            number, symbol = number + 1, f"{base}_{number}"
        taken.add(symbol)
        made.append(Parameter(symbol, kind, form, tuple(uses)))
    return tuple(made)


def rows(found: Sequence[Parameter], values: Sequence[str]) -> np.ndarray:
    """(words, 9) int32, a `Row` each: how a scratchpad is filled from a call's values, in this order, by the host or by `Emit`.

    UnsupportedError for a row with a number that 32 bits do not hold.
    """
    made = np.array([parameter.row(values) for parameter in found], np.int64).reshape(-1, len(Row._fields))
    for parameter, row in zip(found, made, strict=True):
        if (row != row.astype(np.int32)).any():
            raise UnsupportedError(f"the per-call word {parameter.symbol} is made with numbers of more than 32 bits: {parameter.form!r}.")
    return made.astype(np.int32)


def check_count(found: Sequence[Parameter], available: int, where: str) -> None:
    """UnsupportedError where an ELF needs more words than the scratchpad has."""
    if len(found) > available:
        names = ", ".join(p.symbol for p in found[:_SHOWN]) + (", ..." if len(found) > _SHOWN else "")
        raise UnsupportedError(
            f"{where}: {len(found)} per-call words, and a full ELF's scratchpad has {available} ({names}). Let steps follow the "
            "same expressions, or pass boundaries=iron.each_step."
        )


def _symbol(form: Affine, kind: str) -> str:
    """A name that says what the number is: `n_x64p64_offset`, `n_x1p191_per192_core`."""
    text = f"{form.value}{_times(form.scale, form.bias)}"
    if not form.linear:
        text += f"_per{form.whole}" + (_times(form.mul, form.add) if (form.mul, form.add) != (1, 0) else "")
    return f"{text}_{kind}"


def _times(scale: int, bias: int) -> str:
    text = f"_x{scale}" + (f"{'p' if bias > 0 else 'm'}{abs(bias)}" if bias else "")
    return text.replace("-", "m")
