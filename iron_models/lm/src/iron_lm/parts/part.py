"""`Part`: a piece of a model: a graph that says which tensors it needs, is filled with them, and has a twin in numpy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

import iron_core as iron
from iron_core import PackedArray
from iron_core.errors import DeclarationError, ShapeError

#: Weights by path within a part.
Weights = Mapping[str, Any]


class Part(iron.Graph):
    """A subclass names what it needs in `__init__` (`self.needs(q=(64, 48))`), computes in `body()`, and once more in `twin()`.

    A part holds others as attributes or in lists of them. One that several hold is one part: its first place names it.
    """

    def needs(self, **shapes: tuple[int, ...]) -> None:
        """Tensors of this part itself, by attribute; None until `fill()` gives them."""
        vars(self).setdefault("_shapes", {}).update(shapes)
        for name in shapes:
            setattr(self, name, None)

    def walk(self) -> Iterator[tuple[str, Part]]:
        """(path, part) of this one (its path is empty) and of all it holds, each once, in the order they were given."""
        seen: set[int] = set()
        left: list[tuple[str, Any]] = [("", self)]
        while left:
            path, item = left.pop()
            if isinstance(item, Part) and id(item) not in seen:
                seen.add(id(item))
                yield path, item
                held = [(name, child) for name, child in vars(item).items() if not name.startswith("_")]
            elif isinstance(item, (list, tuple)):
                held = [(str(i), child) for i, child in enumerate(item)]
            else:
                continue
            left += [(f"{path}.{name}" if path else name, child) for name, child in reversed(held)]

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Shape by attribute path (`layers.3.mixer.q`) of every tensor that this part and those it holds need."""
        return {
            f"{path}.{name}" if path else name: shape
            for path, part in self.walk()
            for name, shape in vars(part).get("_shapes", {}).items()
        }

    def fill(self, weights: Weights) -> Part:
        """Take arrays (numpy or PackedArray) by attribute path; itself. DeclarationError for one that is missing, ShapeError for
        one of another shape."""
        for path, part in self.walk():
            for name, shape in vars(part).get("_shapes", {}).items():
                full = f"{path}.{name}" if path else name
                if full not in weights:
                    raise DeclarationError(f"{type(self).__name__}: no weight {full} {list(shape)} is given.")
                if tuple(weights[full].shape) != shape:
                    raise ShapeError(f"{type(self).__name__}: {full} is {list(weights[full].shape)}, not {list(shape)}.")
                setattr(part, name, iron.weight(weights[full]))
        return self

    def twin(self, weights: Weights, *inputs: Any) -> Any:
        """`body()` in float32 numpy, written without the operators; weights are widened as they are used."""
        raise DeclarationError(f"{type(self).__name__} defines no twin().")


def inside(weights: Weights, name: str) -> dict[str, Any]:
    """The weights of the part held as `name`, by path within it."""
    return {path[len(name) + 1 :]: array for path, array in weights.items() if path.startswith(f"{name}.")}


def widen(array: Any) -> np.ndarray:
    """float32 numbers of any weight."""
    return array.dequantize() if isinstance(array, PackedArray) else np.asarray(array).astype(np.float32)


def is_prompt(x: Any) -> bool:
    """Are x's rows a prompt's chunk, of which a call bounds how many there are? Else x is one row, of a decode step."""
    return bool(x.bounds)
