"""Where a weight comes from: a tensor by its name, or what is made of tensors."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Protocol

import attrs
import numpy as np

from iron_core import PackedArray
from iron_core.errors import DeclarationError
from iron_lm.checkpoints.rearranged import Rearranged, stacked
from iron_lm.checkpoints.widening import dense

Shape = tuple[int, ...]
#: Weights that a message lists.
_SHOWN = 6


class Reading(Protocol):
    """One pass over a checkpoint's tensors, which notes faults and goes on."""

    def has(self, name: str) -> bool:
        """Is there a tensor of this name?"""

    def tensor(self, name: str, shape: Shape) -> Any:
        """The tensor of this name as it is stored; None, with a fault noted, where it is missing or of another shape."""


class Source(ABC):
    """`read(reading, shape)` gives an array of this shape, or None where the reading noted a fault. `{i}` in a name stands for
    the layer's number, which `at(i)` puts in."""

    @abstractmethod
    def read(self, reading: Reading, shape: Shape) -> Any: ...

    @abstractmethod
    def at(self, **numbers: str) -> Source: ...

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Tensors it is made of."""


@attrs.frozen
class Name(Source):
    """A tensor as it is."""

    name: str

    def read(self, reading: Reading, shape: Shape) -> Any:
        return reading.tensor(self.name, shape)

    def at(self, **numbers: str) -> Source:
        return Name(self.name.format(**numbers))

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)


@attrs.frozen(init=False)
class Either(Source):
    """A tensor as it is, under the first of several names that there is: `Either("a", "b")`."""

    known: tuple[str, ...]

    def __init__(self, *known: str) -> None:
        self.__attrs_init__(known)

    def read(self, reading: Reading, shape: Shape) -> Any:
        return reading.tensor(next(filter(reading.has, self.known), self.known[0]), shape)

    def at(self, **numbers: str) -> Source:
        return Either(*(name.format(**numbers) for name in self.known))

    @property
    def names(self) -> tuple[str, ...]:
        return self.known


@attrs.frozen(init=False)
class FirstOf(Source):
    """The first of several sources whose tensors there all are; the last where none's are: `FirstOf("whole", Stack(("a", "b")))`."""

    known: tuple[Source, ...]

    def __init__(self, *known: Source | str) -> None:
        self.__attrs_init__(tuple(map(as_source, known)))

    def read(self, reading: Reading, shape: Shape) -> Any:
        there = (source for source in self.known if all(map(reading.has, source.names)))
        return next(there, self.known[-1]).read(reading, shape)

    def at(self, **numbers: str) -> Source:
        return FirstOf(*(source.at(**numbers) for source in self.known))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for source in self.known for name in source.names)


def as_source(given: Source | str) -> Source:
    """A bare name is a `Name`."""
    return given if isinstance(given, Source) else Name(given)


@attrs.frozen
class _Of(Source):
    """Something made of one other source."""

    of: Source = attrs.field(converter=as_source)

    def at(self, **numbers: str) -> Source:
        return attrs.evolve(self, of=self.of.at(**numbers))

    @property
    def names(self) -> tuple[str, ...]:
        return self.of.names


@attrs.frozen
class Split(_Of):
    """Rows of a tensor in which several stand one below another: part number `part` of parts with `rows` rows each. axis 1: columns
    of one in which they stand side by side, or rows of each of several."""

    rows: tuple[int, ...]
    part: int
    axis: int = 0

    def read(self, reading: Reading, shape: Shape) -> Any:
        whole = self.of.read(reading, (*shape[: self.axis], sum(self.rows), *shape[self.axis + 1 :]))
        if whole is None:
            return None
        first = sum(self.rows[: self.part])
        wanted = slice(first, first + self.rows[self.part])
        if self.axis == 0:
            return whole[wanted]
        return whole[:, wanted] if isinstance(whole, Rearranged | PackedArray) else np.asarray(whole)[:, wanted]


@attrs.frozen
class Interleaved(_Of):
    """Rows of a tensor in which those of several take turns: part number `part` of parts that have `rows` rows each at a time, as
    where each head's queries are followed by its gates."""

    rows: tuple[int, ...]
    part: int

    def read(self, reading: Reading, shape: Shape) -> Any:
        turns, turn = shape[0] // self.rows[self.part], sum(self.rows)
        whole = self.of.read(reading, (turns * turn, *shape[1:]))
        if whole is None:
            return None
        first = sum(self.rows[: self.part])
        return whole[(np.arange(turns)[:, None] * turn + np.arange(first, first + self.rows[self.part])).ravel()]


@attrs.frozen
class Reshaped(_Of):
    """A dense tensor stored with more axes of one number, or fewer: each of `stored` is a number, or says which axis of the weight's
    shape it is (-1: the last)."""

    stored: tuple[int, ...]

    def read(self, reading: Reading, shape: Shape) -> Any:
        whole = self.of.read(reading, tuple(shape[n] if n < 0 else n for n in self.stored))
        return None if whole is None else np.asarray(whole).reshape(shape)


@attrs.frozen
class Exponential(_Of):
    """A vector stored as its logarithm: read in float32."""

    def read(self, reading: Reading, shape: Shape) -> Any:
        stored = self.of.read(reading, shape)
        return None if stored is None else np.exp(np.asarray(stored).astype(np.float32))


@attrs.frozen
class Transpose(_Of):
    """A matrix stored the other way round; dense ones alone have one."""

    def read(self, reading: Reading, shape: Shape) -> Any:
        stored = self.of.read(reading, shape[::-1])
        return None if stored is None else np.ascontiguousarray(np.asarray(stored).T)


@attrs.frozen
class PlusOne(_Of):
    """A vector stored less one: read with it added, in float32, because 1 + w has more digits than a narrow w."""

    def read(self, reading: Reading, shape: Shape) -> Any:
        stored = self.of.read(reading, shape)
        return None if stored is None else np.asarray(stored).astype(np.float32) + np.float32(1)


@attrs.frozen
class Scaled(_Of):
    """A tensor stored times `factor`: read divided by it, in float32."""

    factor: float

    def read(self, reading: Reading, shape: Shape) -> Any:
        stored = self.of.read(reading, shape)
        return None if stored is None else dense(stored, np.float32) / np.float32(self.factor)


@attrs.frozen
class Expert(_Of):
    """Number `index` of tensors stacked along a first axis of `count`."""

    index: int
    count: int

    def read(self, reading: Reading, shape: Shape) -> Any:
        whole = self.of.read(reading, (self.count, *shape))
        return None if whole is None else whole[self.index]


def _sources(given: Iterable[Source | str]) -> tuple[Source, ...]:
    return tuple(map(as_source, given))


@attrs.frozen
class Stack(Source):
    """Tensors of one shape and format along a new first axis."""

    parts: tuple[Source, ...] = attrs.field(converter=_sources)

    def read(self, reading: Reading, shape: Shape) -> Any:
        found = [part.read(reading, shape[1:]) for part in self.parts]
        if any(array is None for array in found):
            return None
        if any(isinstance(array, Rearranged) for array in found):
            return stacked(self.names[0], found, shape)
        if isinstance(found[0], PackedArray):  # matrices in blocks lie one after another
            return PackedArray(np.stack([array.data for array in found]), shape, found[0].format)
        return np.stack([np.asarray(array) for array in found])

    def at(self, **numbers: str) -> Source:
        return Stack(tuple(part.at(**numbers) for part in self.parts))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for part in self.parts for name in part.names)


@attrs.frozen
class Below(Source):
    """Tensors of one format, one below another: each source with its rows."""

    parts: tuple[tuple[Source, int], ...]

    def read(self, reading: Reading, shape: Shape) -> Any:
        found = [source.read(reading, (rows, *shape[1:])) for source, rows in self.parts]
        if any(array is None for array in found):
            return None
        if isinstance(found[0], PackedArray):
            return PackedArray(np.concatenate([array.data for array in found]), shape, found[0].format)
        return np.concatenate([np.asarray(array) for array in found])

    def at(self, **numbers: str) -> Source:
        return Below(tuple((source.at(**numbers), rows) for source, rows in self.parts))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for source, _ in self.parts for name in source.names)


#: A family's names for one kind of checkpoint: path of a weight, `{i}` for each layer, -> source.
Names = Mapping[str, Source | str]


def source_of(names: Names, path: str) -> Source:
    """Where the weight at `path` is: what is named for the path, or for that of every layer."""
    return sources_of(names, [path])[path]


def sources_of(names: Names, paths: Iterable[str]) -> dict[str, Source]:
    """`source_of` each path. DeclarationError names those that have none."""
    found: dict[str, Source] = {}
    unnamed: dict[str, None] = {}
    for path in paths:
        general, number = _of_every_layer(path)
        if path in names:
            found[path] = as_source(names[path])
        elif number is not None and general in names:
            found[path] = as_source(names[general]).at(i=number)
        else:
            unnamed[general] = None
    if unnamed:
        more = f" and {len(unnamed) - _SHOWN} more" if len(unnamed) > _SHOWN else ""
        shown = ", ".join(list(unnamed)[:_SHOWN]) + more
        raise DeclarationError(f"the family names no tensor for {shown}; legal: one for every weight that its parts need.")
    return found


def unneeded(names: Names, paths: Collection[str], known: Collection[str]) -> Iterator[tuple[str, Source]]:
    """(path, source) of what is named for weights that are none of `paths`, nor of `known` ones that other models have; of those of
    every layer the first layer's."""
    needed = {general for general, _ in map(_of_every_layer, paths)} | set(paths)
    first = min((int(number) for _, number in map(_of_every_layer, paths) if number is not None), default=0)
    for path in sorted(names.keys() - needed - set(known)):
        source = as_source(names[path])
        yield (path.format(i=first), source.at(i=str(first))) if "{i}" in path else (path, source)


def _of_every_layer(path: str) -> tuple[str, str | None]:
    """The path with `{i}` for its layer's number, and that number; the path itself and None of one that is of no layer."""
    number = re.search(r"(?<=\.)\d+(?=\.)", path)
    return (path, None) if number is None else (f"{path[: number.start()]}{{i}}{path[number.end() :]}", number[0])
