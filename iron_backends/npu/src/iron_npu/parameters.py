"""The scratchpad words of one image: equal linear forms share one, whatever step and design they serve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from iron_core.array.sequence import Word
from iron_core.array.words import number
from iron_core.errors import UnsupportedError
from iron_core.graph.affine import Affine
from iron_npu.length import PARAMETER, Parameter

#: Words the control scratchpad of a full ELF holds.
WORDS = 32
#: How the tools keep a parameter: as it is where it moves an address, shifted left by two where anything else reads it.
ADDRESS, CORE, LENGTH = "address", "core", "length"


@attrs.frozen(eq=False)
class Form:
    """One word: its parameter, how it is kept, and one place (operator, word, bound members) that says its number."""

    parameter: Parameter
    kind: str
    op: Any
    word: Word
    members: Mapping[str, Affine]

    def at(self, values: Mapping[str, int]) -> int:
        """The number of this word in a call with these per-call values."""
        return number(self.op, self.word, {name: form.at(values) for name, form in self.members.items()})


class Forms:
    """The words of an image, in the order they are met."""

    def __init__(self, spelling: str) -> None:
        self._spelling = spelling
        self._forms: dict[tuple[Any, ...], Form] = {}

    def parameter(self, op: Any, word: Word, members: Mapping[str, Affine]) -> Parameter:
        """The parameter of a step's word; UnsupportedError for one too many."""
        kind = self._kind(word)
        key = kind, _form(op, word, members)
        if key not in self._forms:
            if len(self._forms) == WORDS:
                known = ", ".join(f"{type(f.op).__name__}.{f.word.name}" for f in self._forms.values())
                raise UnsupportedError(
                    f"{type(op).__name__}.{word.name} is per-call word {WORDS + 1}; a full ELF has {WORDS}. In use: {known}. "
                    "Equal expressions of one per-call value share a word; or pass boundaries=iron.each_step."
                )
            parameter = Parameter(f"word{len(self._forms)}_{kind}", len(self._forms))
            self._forms[key] = Form(parameter, kind, op, word, dict(members))
        return self._forms[key].parameter

    @property
    def forms(self) -> tuple[Form, ...]:
        return tuple(self._forms.values())

    def _kind(self, word: Word) -> str:
        if word.kind == "offset":
            return ADDRESS
        return LENGTH if word.kind == "length" and self._spelling == PARAMETER else CORE


def _form(op: Any, word: Word, members: Mapping[str, Affine]) -> tuple[Any, ...]:
    """What a word's number follows: equal forms are equal numbers in every call."""
    kind, *rest = word.source
    if kind == "member":
        return ("affine", members[str(rest[0])].key)
    if kind == "tiles":
        member, per = members[str(rest[0])], int(rest[1])
        whole = member.exactly(per)
        return ("affine", whole.key) if whole is not None else ("tiles", member.key, per)
    return ("value", op.design_key(), rest[0], tuple(sorted((name, form.key) for name, form in members.items())))
