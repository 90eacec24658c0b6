"""`Part`: a piece of a model: a graph that says which tensors it needs, is filled with them, and has a twin in numpy."""

from __future__ import annotations

import difflib
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

import iron_core as iron
from iron_core import PackedArray
from iron_core.errors import DeclarationError, ShapeError
from iron_core.plugins.foreign import kind_of
from iron_lm.parts.projection import Projection
from iron_lm.run import Run

#: Weights by path within a part.
Weights = Mapping[str, Any]


class Part(iron.Graph):
    """A subclass names what it needs in `__init__` (`self.needs(q=(64, 48))`), computes in `body()`, and once more in `twin()`.

    A part holds others as attributes, or in lists and dicts of them. One that several hold is one part: its first place names it.
    """

    #: Tokens of a prompt's chunk by which this part gains much over fewer; 0: it does not care.
    prompt_chunk: ClassVar[int] = 0

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "twin" in vars(cls):
            cls.twin = _given_all(cls.twin)  # type: ignore[method-assign]

    def needs(self, **shapes: tuple[int, ...]) -> None:
        """Tensors of this part itself, by attribute; None until `fill()` gives them. DeclarationError for a name that is taken."""
        own: dict[str, tuple[int, ...]] = vars(self).setdefault("_shapes", {})
        for name, shape in shapes.items():
            if name in own or getattr(self, name, None) is not None:
                what = f"needs it already, {list(own[name])}" if name in own else "has an attribute of that name"
                raise DeclarationError(f"{type(self).__name__}.needs({name}={list(shape)}): the part {what}. Legal: each name once.")
            own[name] = shape
            setattr(self, name, None)

    def walk(self) -> Iterator[tuple[str, Part]]:
        """(path, part) of this one (its path is empty) and of all it holds, each once, in the order they were given."""
        seen: set[int] = set()
        left: list[tuple[str, Any]] = [("", self)]
        while left:
            path, item = left.pop()
            if isinstance(item, Part):
                if id(item) in seen:
                    continue
                seen.add(id(item))
                yield path, item
            left += [(_join(path, name), child) for name, child in reversed(_held(item))]

    def projections(self) -> Iterator[tuple[str, Part, Projection]]:
        """(path of the matrix made of all of its own, the part that needs those, itself) of every projection."""
        for path, part in self.walk():
            for projection in vars(part).get("_projections", ()):
                yield _join(path, projection.name), part, projection

    def multiplied(self) -> tuple[str, ...]:
        """Names of this part's own matrices that make up most of it, and that a conversion may store in few bits: those of its
        projections."""
        return tuple(name for projection in vars(self).get("_projections", ()) for name in projection.names)

    def _needed(self) -> Iterator[tuple[str, Part, str, tuple[int, ...]]]:
        """(path, the part that needs it, its name there, shape) of every tensor."""
        for path, part in self.walk():
            for name, shape in vars(part).get("_shapes", {}).items():
                yield _join(path, name), part, name, shape

    def _taken(self) -> Iterator[tuple[str, Any, str, tuple[int, ...]]]:
        """As `_needed`, of what `fill()` takes: (path, who takes it, its name there, shape)."""
        for path, part in self.walk():
            own = [projection for projection in vars(part).get("_projections", ()) if projection.quantized]
            apart = {name for projection in own for name in projection.names}
            for name, shape in vars(part).get("_shapes", {}).items():
                if name not in apart:
                    yield _join(path, name), part, name, shape
            for projection in own:
                yield _join(path, projection.name), projection, "joined", projection.shape

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Shape by attribute path (`layers.3.mixer.q`) of every tensor that this part and those it holds need."""
        return {path: shape for path, _, _, shape in self._needed()}

    def fill(self, weights: Weights) -> Part:
        """Take arrays (numpy or PackedArray) by attribute path, of a quantised projection the one matrix that it has instead;
        itself. DeclarationError for one that is missing or that no part needs, ShapeError for one of another shape; then nothing
        is taken."""
        where, needed = type(self).__name__, list(self._taken())
        unknown = sorted(set(weights) - {path for path, _, _, _ in needed})
        for path, _, _, shape in needed:
            _check_given(where, path, shape, weights, unknown)
            if not isinstance(weights[path], (np.ndarray, PackedArray)):
                kind = type(weights[path]).__name__
                raise DeclarationError(f"{where}: {path} is given as a {kind}; legal: an array of numpy, or a PackedArray.")
            if tuple(weights[path].shape) != shape:
                raise ShapeError(f"{where}: {path} is {list(weights[path].shape)}, not {list(shape)}.")
        if unknown:
            raise DeclarationError(f"{where}: {unknown[0]} is given, and no part needs it. Legal: what tensors() names.")
        made = [owner.held(name, weights[path]) for path, owner, name, _ in needed]
        for (_, owner, name, _), weight in zip(needed, made, strict=True):
            setattr(owner, name, weight)
        return self

    def held(self, name: str, array: Any) -> Any:
        """The tensor `name` of this part as a graph holds it."""
        return iron.weight(self.arranged(name, array))

    def arranged(self, name: str, array: Any) -> Any:
        """The tensor `name` of this part as `body()` takes it: the array itself, unless a subclass has its rows in another order."""
        return array

    def inside(self, weights: Weights, held: str) -> dict[str, Any]:
        """Of this part's weights those of the part it holds at the path `held`, by path within that one: what its twin takes."""
        part: Any = self
        for step in held.split("."):
            there = dict(_held(part))
            if step not in there:
                raise DeclarationError(f"{type(self).__name__} holds no part at {held}; {step} is not among {', '.join(there) or 'none'}.")
            part = there[step]
        places = {id(each): path for path, each in self.walk()}  # of one that is shared, where it is named
        return {path: weights[_join(places[id(each)], name)] for path, each, name, _ in part._needed()}

    def complete(self) -> None:
        """Make what this part computes itself (a table, say) and does not need before it is traced; nothing by default."""

    def __call__(self, *tensors: Any, **values: Any) -> Any:
        self.complete()
        own = (self, *vars(self).get("_projections", ()))
        self._refuse_without([path for path, owner, name, _ in self._taken() if owner in own and getattr(owner, name) is None])
        return super().__call__(*tensors, **values)

    def trace(self, **shapes: Any) -> Any:
        self._make_ready()
        return super().trace(**shapes)

    def compile(self, **options: Any) -> Any:
        self._make_ready()  # before the graph counts as compiled, after which it takes no weights
        return super().compile(**options)

    def _make_ready(self) -> None:
        """Complete every part. DeclarationError where one has not been given its weights."""
        for _, part in self.walk():
            part.complete()
        self._refuse_without([path for path, owner, name, _ in self._taken() if getattr(owner, name) is None])

    def _refuse_without(self, empty: list[str]) -> None:
        """`empty` are paths of tensors that have no numbers."""
        if empty:
            raise DeclarationError(f"{type(self).__name__}: {empty[0]} has no numbers; give it its weights first, part.fill(weights).")

    def twin(self, weights: Weights, *inputs: Any, **more: Any) -> Any:
        """`body()` in float32 numpy, written without the operators; weights, by path as in `tensors()`, are widened as they are
        used. DeclarationError for one that is not given."""
        raise DeclarationError(f"{type(self).__name__} defines no twin().")


def _given_all(twin: Callable[..., Any]) -> Callable[..., Any]:
    """The twin of a class, which is computed where all that the part needs is given."""

    @functools.wraps(twin)
    def checked(self: Part, weights: Weights, *inputs: Any, **named: Any) -> Any:
        for path, shape in self.tensors().items():
            _check_given(type(self).__name__, path, shape, weights, weights)
        return twin(self, weights, *inputs, **named)

    return checked


def _check_given(where: str, path: str, shape: tuple[int, ...], weights: Weights, others: Iterable[str]) -> None:
    """DeclarationError for a weight that is missing; one of the others may have been meant."""
    if path not in weights:
        near = difflib.get_close_matches(path, list(others), 1)
        raise DeclarationError(f"{where}: no weight {path} {list(shape)} is given{f'; there is {near[0]}' if near else ''}.")


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _held(item: Any) -> list[tuple[str, Any]]:
    """What a part, a list or a dict holds, by name."""
    if isinstance(item, Part):
        return [(name, child) for name, child in vars(item).items() if not name.startswith("_")]
    if isinstance(item, dict):
        return [(str(name), child) for name, child in item.items()]
    return [(str(i), child) for i, child in enumerate(item)] if isinstance(item, (list, tuple)) else []


def check_held(where: str, kind: type, **given: Any) -> None:
    """DeclarationError for what is given, by name, as a part of this kind and is none."""
    for name, part in given.items():
        if not isinstance(part, kind):
            raise DeclarationError(f"{where}: {name} is {kind_of(part)}; legal: a {kind.__name__}.")


def widen(array: Any) -> np.ndarray:
    """float32 numbers of any weight."""
    return array.dequantize() if isinstance(array, PackedArray) else np.asarray(array).astype(np.float32)


def bounded(x: Any, rows: Any) -> Any:
    """x (rows of a call, ...) as the parts take it: a prompt's chunk bounded to the rows that a call has, a decode step's one row
    as it is. None is None."""
    return x if x is None or x.bounds or x.shape[0] == 1 else x[:rows]


def of_chunk(x: Any, run: Run, chunk: Any) -> Any:
    """The rows of x (max_seq_len, ...), a state or a weight, that a prompt's chunk has: (prefill_chunk, ...), of which a call's are the
    first. chunk: how many steps of `run.prefill_step` rows lie before them."""
    L, C, U = x.shape[0], run.prefill_chunk, run.prefill_step
    size = x.size // L
    inner = [x.size // L // math.prod(x.shape[1 : i + 1]) for i in range(1, x.ndim)]
    return x.as_strided(((L - C) // U + 1, C, *x.shape[1:]), (U * size, size, *inner))[chunk]


def of_rows(x: Any, count: int, run: Run, chunk: Any) -> Any:
    """The rows of x (max_seq_len, ...), a state or a weight, that a call of `count` ids has: (count, ...), of which a call's are the
    first. chunk: of a prompt's, as `of_chunk` has it; of drafted tokens, how many rows lie before them."""
    if count == run.prefill_chunk:
        return of_chunk(x, run, chunk)
    size = x.size // x.shape[0]
    inner = [math.prod(x.shape[i + 1 :]) for i in range(1, x.ndim)]
    return x.as_strided((x.shape[0] - count + 1, count, *x.shape[1:]), (size, size, *inner))[chunk]


def is_prompt(x: Any, run: Run) -> bool:
    """Has x, `bounded`, the rows of a prompt's chunk, or of drafted tokens? Else it is the row of a decode step. ShapeError for rows
    that are neither."""
    if x.shape[0] not in (1, run.prefill_chunk, run.drafted):
        raise ShapeError(
            f"{x} has {x.shape[0]} rows; legal: 1, a decode step's, prefill_chunk={run.prefill_chunk}, or drafted={run.drafted}."
        )
    return bool(x.bounds)
