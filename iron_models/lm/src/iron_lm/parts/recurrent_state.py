"""`RecurrentState`: what a layer keeps of all tokens so far in one."""

from __future__ import annotations

from typing import Any

import iron_core as iron


class RecurrentState:
    """States of one shape whatever the tokens: `shapes` is name -> (shape, dtype), each an attribute. Operators write them in place.

    None of them can go back to an earlier token: a session keeps copies of them (`generation.snapshots`), and runs again what came
    behind the one that it puts back.
    """

    def __init__(self, **shapes: tuple[tuple[int, ...], Any]) -> None:
        self.states = {name: iron.state(shape, dtype) for name, (shape, dtype) in shapes.items()}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "states" or name not in self.states:
            raise AttributeError(name)
        return self.states[name]

    @property
    def nbytes(self) -> int:
        """Bytes of all."""
        return sum(state.format.nbytes(state.shape) for state in self.states.values())

    def in_use(self, tokens: int, base: int) -> dict[str, tuple[Any, int | None]]:
        """All states, by name, each whole."""
        return {name: (state, None) for name, state in self.states.items()}

    def rewind(self, position: int) -> int:
        """Of `position` tokens that a session wants to keep, how many stand: those that it has a copy of."""
        return position
