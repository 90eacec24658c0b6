"""From the shapes and formats of a call's operands to an operator's fields."""

from __future__ import annotations

import math
from typing import Any

from iron_core.declare.field import MISSING, DTypeField, Field
from iron_core.declare.formats import Format, as_format
from iron_core.declare.operand import Operand, OptionalDim, Select
from iron_core.errors import CallError, ShapeError


def infer(cls: Any, operands: dict[str, tuple[tuple[int, ...], Format]], given: dict[str, Any]) -> dict[str, Any]:
    """Constructor keywords of `cls` for a call on these operands.

    operands: per operand given (outputs too, where the caller supplies them) its shape and Format.
    given: the call's own keywords. A one-dimensional operand takes a tensor of any rank (its element count);
    otherwise ranks must agree. ShapeError names both origins of a disagreement.
    """
    bound: dict[str, Any] = {}
    origin: dict[str, str] = {}

    def bind(field: Field, value: Any, where: str) -> None:
        name = field.name
        value = cls.fields[name].convert(value)
        if name in bound and bound[name] != value:
            raise ShapeError(
                f"{cls.__name__}: {where} says {name}={_show(value)}, {origin[name]} says {name}={_show(bound[name])}."
            )
        bound[name] = value
        origin.setdefault(name, where)

    for name, value in given.items():
        if value is not None and name in cls.fields:
            bind(cls.fields[name], value, "the call")
    for operand in cls.operands.values():
        if operand.when is not None and operand.role != "out":
            _check_flag(cls, operand, operand.when.name, operands, given)
            bind(operand.when, operand.name in operands, operand.name)
    for name, (shape, format) in operands.items():
        operand = cls.operands[name]
        where = f"{name} {tuple(shape)}"
        if operand.when is not None and operand.role == "out":
            bind(operand.when, True, where)
        _bind_dtype(cls, operand, format, where, bind)
        _bind_shape(cls, operand, tuple(shape), where, bind, bound)
    return bound | {k: v for k, v in given.items() if k not in bound}


def _check_flag(cls: Any, operand: Operand, flag: str, operands: dict[str, Any], given: dict[str, Any]) -> None:
    """CallError unless an optional input, its flag and the inputs sharing that flag come together."""
    here = operand.name in operands
    if given.get(flag) is not None and bool(given[flag]) != here:
        need = "needs" if given[flag] else "must not be given with"
        raise CallError(f"{cls.__name__}: {flag}={given[flag]} {need} {operand.name}=.")
    for other in cls.inputs:
        if other.when is not None and other.when.name == flag and (other.name in operands) != here:
            raise CallError(f"{cls.__name__}: {operand.name} and {other.name} are given together or not at all.")


def _bind_dtype(cls: Any, operand: Operand, format: Format, where: str, bind: Any) -> None:
    if isinstance(operand.dtype, DTypeField):
        if format.packed and not cls.fields[operand.dtype.name].blocks:
            raise ShapeError(
                f"{cls.__name__}: {where} is stored as {format}, and {operand.name} takes dense numbers; "
                "Dequant makes them."
            )
        bind(operand.dtype, format, where)
    elif as_format(operand.dtype) != format:
        raise ShapeError(f"{cls.__name__}: {operand.name} is {as_format(operand.dtype)}; got {format}.")


def _bind_shape(
    cls: Any, operand: Operand, shape: tuple[int, ...], where: str, bind: Any, bound: dict[str, Any]
) -> None:
    dims: list[Any] = []
    for dim in operand.dims:
        if isinstance(dim, Select):
            flag = bound.get(dim.flag.name, cls.fields[dim.flag.name].default)
            if flag is MISSING or callable(flag):
                raise CallError(f"{cls.__name__}: the shape of {operand.name} depends on {dim.flag.name}; give it.")
            dims.extend(dim.when_true if flag else dim.when_false)
        else:
            dims.append(dim)
    if len(dims) == 1 and not isinstance(dims[0], OptionalDim):
        shape = (math.prod(shape),)
    if dims and isinstance(dims[0], OptionalDim) and len(shape) == len(dims) - 1:
        bind(dims[0].field, 1, where)
        dims = dims[1:]
    if len(shape) != len(dims):
        want = ", ".join(_dim_name(d) for d in dims)
        ranks = f"{len(dims) - 1} or {len(dims)}" if dims and isinstance(dims[0], OptionalDim) else len(dims)
        raise ShapeError(f"{cls.__name__}: {operand.name} is ({want}), {ranks} dimensions; got {shape}.")
    for dim, n in zip(dims, shape, strict=True):
        field = dim.field if isinstance(dim, OptionalDim) else dim
        if isinstance(field, Field):
            bind(field, n, where)
        elif field != n:
            raise ShapeError(f"{cls.__name__}: {where}: a dimension declared {field} is {n}.")


def _dim_name(dim: Any) -> str:
    if isinstance(dim, OptionalDim):
        return f"[{dim.field.name}]"
    return dim.name if isinstance(dim, Field) else str(dim)


def _show(value: Any) -> str:
    return getattr(value, "name", None) or repr(value)
