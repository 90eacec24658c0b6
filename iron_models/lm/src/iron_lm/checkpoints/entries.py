"""`Entries`: what a checkpoint says of its model, each entry checked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from iron_core.errors import CheckpointError, ParamError, printable

#: More than this is no setting of a model.
_LARGEST = 1e38
#: More layers than this is damage, not a model.
MOST_LAYERS = 1 << 12


class Entries:
    """What a checkpoint says of its model, each entry checked; `where` and `prefix` name them in errors.

    defaults: what the format takes for an entry that is absent. `assumed` are those of them that were asked for so far, and
    `asked` all keys that were. `keys`: what fields of configs are called here, field -> key, as far as readers said it.
    """

    def __init__(self, entries: dict[str, Any], where: str, prefix: str = "", defaults: Mapping[str, Any] | None = None) -> None:
        self.entries, self.where, self.prefix = entries, where, prefix
        self.defaults = defaults or {}
        self.assumed: dict[str, Any] = {}
        self.asked: set[str] = set()
        self.keys: dict[str, str] = {}

    @contextmanager
    def in_these_words(self) -> Iterator[None]:
        """Around the making of a config of what was read: what it refuses is a CheckpointError that gives entries by their keys."""
        try:
            yield
        except ParamError as error:
            own, _, said = str(error).partition(": ")
            named = re.sub(r"\b([a-z_]+)(?==)", lambda found: self._called(found[1]), said)
            raise CheckpointError(f"{self.where}: {named if named != said else f'{own}: {said}'}") from error

    def _called(self, field: str) -> str:
        return self.prefix + self.keys[field] if field in self.keys else field

    def has(self, key: str) -> bool:
        return self.entries.get(self.prefix + key) is not None

    def denies(self, key: str) -> bool:
        """Is it there, and null?"""
        return self.prefix + key in self.entries and not self.has(key)

    def number(self, key: str, default: float | None = None) -> float:
        """A positive number."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _LARGEST:
            raise CheckpointError(f"{self.where}: {self.prefix}{key} is {shown(value)}; legal: a positive number.")
        return float(value)

    def first(self, *keys: str) -> str:
        """The one of several names for one thing that is there, or else that has a default; of two defaults the later, of none the
        first name."""
        there = [key for key in keys if self.has(key)] or [key for key in reversed(keys) if key in self.defaults]
        return there[0] if there else keys[0]

    def numbers(self, key: str) -> tuple[float, ...]:
        """A list of positive numbers."""
        values = self._value(key, None)
        if not isinstance(values, list):
            raise CheckpointError(f"{self.where}: {self.prefix}{key} is {shown(values)}; legal: a list of positive numbers.")
        return tuple(Entries({key: value}, self.where).number(key) for value in values)

    def whole(self, key: str, default: int | None = None, most: int = 1 << 24) -> int:
        """A whole number from 1 to `most`; more is damage, not a model."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise CheckpointError(f"{self.where}: {self.prefix}{key} is {shown(value)}; legal: a whole number from 1 to {most}.")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false. What the format takes goes before `default`."""
        value = self._value(key, None if key in self.defaults else default)
        if not isinstance(value, bool):
            raise CheckpointError(f"{self.where}: {self.prefix}{key} is {shown(value)}; legal: true, false.")
        return value

    def refuse_unless(self, key: str, *legal: Any) -> None:
        """An entry that may be absent, and changes what the model computes where it is not one of `legal`."""
        if self.has(key) and self.entries[self.prefix + key] not in legal:
            accepted = ", ".join(map(str, legal)) or "without it"
            raise CheckpointError(
                f"{self.where}: {self.prefix}{key} is {shown(self.entries[self.prefix + key])}; this model runs {accepted}."
            )

    def refuse_unasked(self, key: str) -> None:
        """An entry that changes what the model computes, where nobody asked for its value; 0 is none."""
        value = self.entries.get(self.prefix + key)
        if key not in self.asked and not (isinstance(value, int) and value == 0):
            self.refuse_unless(key)

    def optional(self, key: str) -> float | None:
        """A positive number, or None where there is none."""
        return self.number(key) if self.has(key) else None

    def _value(self, key: str, default: Any) -> Any:
        self.asked.add(key)
        if self.has(key):
            return self.entries[self.prefix + key]
        absent = self.prefix + key not in self.entries  # null is a word of its own: as the rest has it
        if key in self.defaults and (absent or default is None):
            self.assumed[self.prefix + key] = self.defaults[key]
            return self.defaults[key]
        if default is None:
            raise CheckpointError(f"{self.where} lacks {self.prefix}{key}.")
        return default


def shown(value: Any) -> str:
    """An entry's value as an error gives it: in short, or its type alone."""
    plain = isinstance(value, (str, float)) or (isinstance(value, int) and value.bit_length() < 256)
    return printable(repr(value), 60) if plain else f"a {type(value).__name__}"
