"""Operands: the tensors an operator reads and writes, declared by shape."""

from __future__ import annotations

import math
from typing import Any, TypedDict, Unpack

import attrs

from iron_core.declare.field import DTypeField, Field
from iron_core.declare.formats import Format, as_format, bfloat16
from iron_core.declare.keywords import declaration, unknown_keyword
from iron_core.declare.objects import ObjectType
from iron_core.errors import DeclarationError, FormatError


@declaration
@attrs.frozen(eq=False)
class OptionalDim:
    """A leading dimension that is absent when its field is 1."""

    field: Any


@declaration
@attrs.frozen(eq=False)
class Select:
    """One of two runs of dimensions, by a bool field (a layout flag that transposes the declared shape)."""

    flag: Any
    when_true: tuple[Any, ...]
    when_false: tuple[Any, ...]

    def __repr__(self) -> str:
        return f"Select({self.flag!r}, {self.when_true!r}, {self.when_false!r})"


#: What a dimension resolves to for a given operator: a field's name or a literal.
Dim = Any


#: Annotations of fields that are no extent.
_NO_EXTENT = (str, bool, float, "str", "bool", "float")


def _is_flag(part: Any) -> bool:
    """Can a shape or an operand hang on it? A field that is not annotated as something else than bool."""
    kinds = (None, bool, "bool", Any, "Any", object, "object")
    return isinstance(part, Field) and not isinstance(part, DTypeField) and part.annotation in kinds


def _redeclared(cls: Any, field: Field) -> bool:
    """Is it a base's field that the class, or a base nearer to it, gives another default?"""
    return any(vars(base).get(field.name) is field for base in cls.__mro__)


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
        dims = self._dimensions(where)
        if not dims:
            raise DeclarationError(f"{where}: no dimensions; legal: at least one, as a field or an int > 0.")
        for dim in dims:
            if isinstance(dim, Field) and dim.annotation in _NO_EXTENT and not self._flags(dim):
                kind = getattr(dim.annotation, "__name__", dim.annotation)
                raise DeclarationError(f"{where}: dimension {dim!r} is annotated {kind}; legal: an int field, an int > 0.")
            if isinstance(dim, DTypeField) or (not isinstance(dim, Field) and (type(dim) is not int or dim < 1)):
                apart = "; each by itself, not in a list" if isinstance(dim, (tuple, list)) else ""
                raise DeclarationError(f"{where}: dimension {dim!r}; legal: a field, an int > 0, OptionalDim, Select{apart}.")
        if self.when is not None and not _is_flag(self.when):
            raise DeclarationError(f"{where}: when={self.when!r}; legal: a bool field, as gated: bool = Param(default=False).")
        if isinstance(self.dtype, Field) and not isinstance(self.dtype, DTypeField):
            raise DeclarationError(f"{where}: dtype={self.dtype!r}; legal: a DType field, as T = DType(), a dtype or a Format.")
        if not isinstance(self.dtype, Field):
            try:
                as_format(self.dtype)
            except FormatError as error:
                said = str(error)
                raise DeclarationError(f"{where}: {'' if said.startswith('dtype=') else f'dtype={self.dtype!r}: '}{said}") from None
        tile = self.tile if isinstance(self.tile, tuple) else () if self.tile is None else (self.tile,)
        for keyword, parts in (("tile", tile), ("per", self.per or ())):
            for part in parts:
                if isinstance(part, DTypeField) or (not isinstance(part, Field) and (not isinstance(part, int) or part < 1)):
                    raise DeclarationError(f"{where}: {keyword}= has {part!r}; legal: a field, an int > 0, or a tuple of them.")
        for part in (*dims, *tile, *(self.per or ()), self.dtype, self.when):
            if isinstance(part, Field) and cls.fields.get(part.name, part) is not part and not _redeclared(cls, part):
                raise DeclarationError(f"{where}: {part!r} is not a field of the class, which has another {part.name}.")
            if isinstance(part, Field) and part.name not in cls.fields:
                known = ", ".join(cls.fields) or "none"
                raise DeclarationError(f"{where}: {part!r} is not a field of the class; legal: one assigned in its body. Fields: {known}.")
        self._check_stream(where, cls)

    def _flags(self, field: Field) -> bool:
        return any(isinstance(dim, Select) and dim.flag is field for dim in self.dims)

    def _dimensions(self, where: str) -> list[Any]:
        """Its dimensions one by one, those of both layouts of a Select, and what they hang on. DeclarationError."""
        dims: list[Any] = []
        for i, dim in enumerate(self.dims):
            if isinstance(dim, OptionalDim):
                if not isinstance(dim.field, Field):
                    raise DeclarationError(f"{where}: OptionalDim({dim.field!r}); legal: a field.")
                if i:
                    raise DeclarationError(f"{where}: OptionalDim is legal as the leading dimension only.")
                dims.append(dim.field)
            elif isinstance(dim, Select):
                if not _is_flag(dim.flag) or not all(isinstance(run, tuple) for run in (dim.when_true, dim.when_false)):
                    raise DeclarationError(f"{where}: {dim!r}; legal: a bool field, and two tuples of dimensions.")
                dims += [dim.flag, *dim.when_true, *dim.when_false]
            else:
                dims.append(dim)
        return dims

    def _check_stream(self, where: str, cls: Any) -> None:
        """DeclarationError where the keywords of its stream do not go together."""
        if not isinstance(self.depth, int) or isinstance(self.depth, bool) or self.depth < 1:
            raise DeclarationError(f"{where}: depth={self.depth!r}; legal: how many objects its fifo holds, an int of at least 1.")
        for keyword in ("replicate", "broadcast", "feed", "prepare"):
            if not isinstance(getattr(self, keyword), bool):
                raise DeclarationError(f"{where}: {keyword}={getattr(self, keyword)!r}; legal: True or False.")
        parts = self.finish if isinstance(self.finish, tuple) else (self.finish,)
        if not isinstance(self.finish, bool) and not all(isinstance(part, (Field, int)) for part in parts):
            raise DeclarationError(f"{where}: finish={self.finish!r}; legal: True, or the sides of a tile as a tuple of fields.")
        if self.via is not None and getattr(self.via, "name", self.via) not in cls.operands:
            raise DeclarationError(f"{where}: via={self.via!r}; legal: the operand whose stream carries it, of {', '.join(cls.operands)}.")
        if self.per and self.tile is None:
            raise DeclarationError(f"{where}: per= cuts a stream into lanes, and without tile= it has none; legal: tile= too.")
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


class Stream(TypedDict, total=False):
    """The keywords of an operand besides its dtype: `Operand` has what they mean by default."""

    when: Any
    tile: Any
    per: Any
    depth: int
    replicate: bool
    broadcast: bool
    feed: bool
    prepare: bool
    finish: Any
    via: Any


def _operand(role: str, made: str, dims: tuple[Any, ...], dtype: Any, stream: Stream) -> Any:
    for keyword in stream:
        if keyword not in Stream.__annotations__:
            raise unknown_keyword(made, keyword, ("dtype", *Stream.__annotations__))
    return Operand(role, dims, dtype=dtype, **stream)


def In(*dims: Any, dtype: Any = bfloat16, **stream: Unpack[Stream]) -> Any:
    """An input of these dimensions: fields, literals, `OptionalDim(field)` or `Select(flag, a, b)`.

    dtype: a dtype, a Format or a `DType` field. when=flag: it exists only where the bool field is true, and
    a call gives it by keyword. tile=, per=, depth=, replicate=, broadcast=, feed=, prepare=, via=: its stream into
    an array.
    """
    return _operand("in", "In", dims, dtype, stream)


def Out(*dims: Any, dtype: Any = bfloat16, **stream: Unpack[Stream]) -> Any:
    """An output of these dimensions; `finish=` lets a following step be folded behind it. Otherwise as `In`."""
    return _operand("out", "Out", dims, dtype, stream)


def InOut(*dims: Any, dtype: Any = bfloat16, **stream: Unpack[Stream]) -> Any:
    """A tensor the caller gives and the operator writes in place; what it does not write stays as given."""
    return _operand("inout", "InOut", dims, dtype, stream)


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
