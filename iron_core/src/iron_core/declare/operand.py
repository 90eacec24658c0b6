"""Operands: the tensors an operator reads and writes, declared by shape."""

from __future__ import annotations

import math
from typing import Any

import attrs

from iron_core.declare.field import Field
from iron_core.declare.formats import Format, as_format, bfloat16
from iron_core.declare.objects import ObjectType
from iron_core.errors import DeclarationError, FormatError


@attrs.frozen(eq=False)
class OptionalDim:
    """A leading dimension that is absent when its field is 1."""

    field: Any


@attrs.frozen(eq=False)
class Select:
    """One of two runs of dimensions, by a bool field (a layout flag that transposes the declared shape)."""

    flag: Any
    when_true: tuple[Any, ...]
    when_false: tuple[Any, ...]


#: What a dimension resolves to for a given operator: a field's name or a literal.
Dim = Any


def _one_dimensional(tile: Any) -> bool:
    return not isinstance(tile, tuple) or len(tile) == 1


class Operand:
    """A declared tensor. `role` is "in", "out" or "inout" (given by the caller, written in place)."""

    def __init__(
        self,
        role: str,
        dims: tuple[Any, ...],
        *,
        dtype: Any = bfloat16,
        when: Field | None = None,
        tile: Any = None,
        per: Any = None,
        depth: int = 2,
        replicate: bool = False,
        broadcast: bool = False,
        feed: bool = False,
        prepare: bool = False,
        finish: Any = False,
        via: Any = None,
    ) -> None:
        self.name = ""
        self.role = role
        self.dims = dims
        self.dtype = dtype
        self.when = when
        self.tile = tile
        self.per = per if per is None or isinstance(per, tuple) else (per,)
        self.depth = depth
        self.replicate = replicate
        self.broadcast = broadcast
        self.feed = feed
        self.prepare = prepare
        self.finish = finish
        self.via = via

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def check(self, cls: Any) -> None:
        """DeclarationError where the declaration breaks a rule, by itself or in the class that has it."""
        where = f"{cls.__name__}.{self.name}"
        dims: list[Any] = []
        for i, dim in enumerate(self.dims):
            if isinstance(dim, OptionalDim):
                if not isinstance(dim.field, Field):
                    raise DeclarationError(f"{where}: OptionalDim({dim.field!r}); legal: a field.")
                if i:
                    raise DeclarationError(f"{where}: OptionalDim is legal as the leading dimension only.")
                dims.append(dim.field)
            elif isinstance(dim, Select):
                if not isinstance(dim.flag, Field):
                    raise DeclarationError(f"{where}: Select({dim.flag!r}, ...); legal: a bool field, and two tuples of dimensions.")
                dims += [dim.flag, *dim.when_true, *dim.when_false]
            else:
                dims.append(dim)
        for dim in dims:
            if not isinstance(dim, Field) and (not isinstance(dim, int) or dim < 1):
                raise DeclarationError(f"{where}: dimension {dim!r}; legal: a field, an int > 0, OptionalDim, Select.")
        if self.when is not None and not isinstance(self.when, Field):
            raise DeclarationError(f"{where}: when={self.when!r}; legal: a bool field, as gated = Param(default=False).")
        if not isinstance(self.dtype, Field):
            try:
                as_format(self.dtype)
            except FormatError as error:
                raise DeclarationError(f"{where}: dtype={self.dtype!r}: {error}") from None
        tile = self.tile if isinstance(self.tile, tuple) else () if self.tile is None else (self.tile,)
        for keyword, parts in (("tile", tile), ("per", self.per or ())):
            for part in parts:
                if not isinstance(part, Field) and (not isinstance(part, int) or part < 1):
                    raise DeclarationError(f"{where}: {keyword}= has {part!r}; legal: a field, an int > 0, or a tuple of them.")
        for part in (*dims, *tile, *(self.per or ()), self.dtype, self.when):
            if isinstance(part, Field) and part.name not in cls.fields:
                raise DeclarationError(f"{where}: {part!r} is not a field of the class.")
        if self.per and self.broadcast:
            raise DeclarationError(f"{where}: per= gives each lane its share, broadcast= all the same; choose one.")
        if self.replicate and not self.per:
            raise DeclarationError(f"{where}: replicate= needs per=: how many lanes carry the whole operand.")
        if self.finish and (self.role == "in" or self.tile is None or not _one_dimensional(self.tile)):
            raise DeclarationError(f"{where}: finish= belongs on an output with a one-dimensional tile=.")
        if self.prepare and (self.role == "out" or not _one_dimensional(self.tile)):
            raise DeclarationError(f"{where}: prepare= belongs on an input with a one-dimensional tile= or none.")
        if self.feed and (self.role == "out" or self.tile is None):
            raise DeclarationError(f"{where}: feed= belongs on an input with tile=.")

    @property
    def read(self) -> bool:
        return self.role != "out"

    @property
    def written(self) -> bool:
        return self.role != "in"

    def axes(self, op: Any) -> tuple[Dim, ...]:
        """Per axis of this operator's operand: the field's name or the literal."""
        names: list[Dim] = []
        for dim in self.dims:
            if isinstance(dim, OptionalDim):
                if getattr(op, dim.field.name) != 1:
                    names.append(dim.field.name)
            elif isinstance(dim, Select):
                chosen = dim.when_true if getattr(op, dim.flag.name) else dim.when_false
                names.extend(d.name if isinstance(d, Field) else d for d in chosen)
            else:
                names.append(dim.name if isinstance(dim, Field) else dim)
        return tuple(names)

    def shape(self, op: Any) -> tuple[int, ...]:
        """Its shape for this operator."""
        return tuple(getattr(op, d) if isinstance(d, str) else d for d in self.axes(op))

    def format(self, op: Any) -> Format:
        """Its Format for this operator."""
        return as_format(getattr(op, self.dtype.name) if isinstance(self.dtype, Field) else self.dtype)

    def tile_type(self, op: Any) -> ObjectType:
        """What one object of its stream holds for this operator. DeclarationError where it is no stream, or a tunable of its
        tile is open."""
        if self.tile is None:
            raise DeclarationError(f"{type(op).__name__}.{self.name} has no tile=; it is no stream of its own.")
        parts = self.tile if isinstance(self.tile, tuple) else (self.tile,)
        shape = tuple(getattr(op, part.name) if isinstance(part, Field) else int(part) for part in parts)
        for part, n in zip(parts, shape, strict=True):
            if n is None:
                raise DeclarationError(
                    f"{type(op).__name__}.{self.name}.tile: {part.name} is open. Ask a resolved operator: op.resolved(dev)."
                )
        return ObjectType.of(shape, self.format(op))

    def lanes(self, op: Any) -> int:
        """How many streams it has for this operator: the product of its `per=`."""
        return math.prod(getattr(op, p.name) if isinstance(p, Field) else int(p) for p in self.per or ())

    def present(self, op: Any) -> bool:
        """Does this operator have it? (`when=`)"""
        return self.when is None or bool(getattr(op, self.when.name))

    def __get__(self, op: Any, owner: type | None = None) -> Any:
        if op is None:
            return self
        if self.when is not None and not self.present(op):
            raise AttributeError(f"{type(op).__name__}.{self.name} exists only with {self.when.name}=True.")
        return BoundOperand(self, op, self.shape(op), self.format(op))

    def __repr__(self) -> str:
        return f"{self.role} {self.name}"


def In(*dims: Any, dtype: Any = bfloat16, **stream: Any) -> Any:
    """An input of these dimensions: fields, literals, `OptionalDim(field)` or `Select(flag, a, b)`.

    dtype: a dtype, a Format or a `DType` field. when=flag: it exists only where the bool field is true, and
    a call gives it by keyword. tile=, per=, depth=, replicate=, broadcast=, feed=, prepare=, via=: its stream into
    an array.
    """
    return Operand("in", dims, dtype=dtype, **stream)


def Out(*dims: Any, dtype: Any = bfloat16, **stream: Any) -> Any:
    """An output of these dimensions; `finish=` lets a following step be folded behind it. Otherwise as `In`."""
    return Operand("out", dims, dtype=dtype, **stream)


def InOut(*dims: Any, dtype: Any = bfloat16, **stream: Any) -> Any:
    """A tensor the caller gives and the operator writes in place; what it does not write stays as given."""
    return Operand("inout", dims, dtype=dtype, **stream)


@attrs.frozen(eq=False)
class BoundOperand:
    """An operand of one operator instance, `op`."""

    operand: Operand
    op: Any = attrs.field(repr=False)
    shape: tuple[int, ...]
    format: Format

    @property
    def name(self) -> str:
        return self.operand.name

    @property
    def dtype(self) -> Any:
        """numpy dtype of a dense operand; for a block format, the format itself."""
        return self.format.spec

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def tile(self) -> ObjectType:
        """What one object of its stream holds: the type of a kernel's argument."""
        return self.operand.tile_type(self.op)
