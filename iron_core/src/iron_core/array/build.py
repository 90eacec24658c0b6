"""From a resolved operator to its design: `array()` and `sequence()` run once each and are recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import attrs

from iron_core.array.builder import building
from iron_core.array.derive import derive
from iron_core.array.design import ArrayDesign, Design
from iron_core.array.kernel import Kernel
from iron_core.array.runtime import Runtime
from iron_core.array.view import view, view_of
from iron_core.declare.authored import authored
from iron_core.declare.identity import array_key, design_key
from iron_core.declare.operator import Operator
from iron_core.declare.rules import require, require_npu, require_operator
from iron_core.declare.undeclared import is_undeclared
from iron_core.devices import Device, device


class BuiltArray(NamedTuple):
    """An array as data and, by symbol, the kernels that its cores call."""

    array: ArrayDesign
    kernels: Mapping[str, Kernel]


class Built(NamedTuple):
    """A design as data and, by symbol, the kernels that its cores call."""

    design: Design
    kernels: Mapping[str, Kernel]


#: Arrays by (array key, device), designs by (design key, bound members, device): both are pure functions of these and of the
#: classes. An array stands with the classes it was built of, for a class may be defined again under its name, as in a notebook.
_arrays: dict[Any, tuple[tuple[type, ...], BuiltArray]] = {}
_designs: dict[Any, Built] = {}


@attrs.frozen
class Target:
    """What `array(target)` may ask of the device."""

    dev: Device

    def fifo_depth(self, elements: int, itemsize: int = 2) -> int:
        """2, unless objects (of so many elements of `itemsize` bytes) are so large that two take over half of a core's memory."""
        return 2 if 2 * elements * itemsize <= self.dev.core.memory // 2 else 1  # type: ignore[union-attr]


def has_array(op: Any) -> bool:
    """Does an operator, or an operator class (or a base of it), declare an array? An elementwise one does by its kernel."""
    cls: Any = op if isinstance(op, type) else type(op.base)
    return cls.array is not Operator.array and not is_undeclared(getattr(cls, "kernel", None))


def _require_array(op: Any) -> None:
    alone = "it runs on the CPU" if op.base.binary is None else f"it is a binary, {op.base.binary}, which an NPU runs by itself"
    require(has_array(op), f"{type(op.base).__name__} declares no array; {alone}.")


def build_array(op: Any, dev: Device | str) -> BuiltArray:
    """The array of a resolved operator. Equal array keys give the same objects."""
    dev = device(dev)
    _require_array(op)
    return _built(array_key(op), dev, lambda: view(op), _classes(op))


def array_of(key: tuple[Any, ...], dev: Device | str) -> BuiltArray:
    """The array of an operator's array key, such as an image has that another process made.

    CacheError where the operator's class cannot be imported by its name.
    """
    return _built(key, device(dev), lambda: view_of(key))


def kernels_of(keys: Iterable[tuple[Any, ...]], dev: Device | str) -> dict[str, Kernel]:
    """By symbol, the kernels that the arrays of these array keys call. CacheError as `array_of`."""
    return {symbol: kernel for key in keys for symbol, kernel in array_of(key, dev).kernels.items()}


def _classes(op: Any) -> tuple[type, ...]:
    """The classes an operator's array is of: its own and those of the steps folded into it."""
    return (type(op.base), *(type(link.op) for link in (*op.finish, *op.prepare)))


def _built(key: tuple[Any, ...], dev: Device, seen: Callable[[], Any], classes: tuple[type, ...] = ()) -> BuiltArray:
    at = (key, dev.name)
    known = _arrays.get(at)
    if known is not None and classes and known[0] and known[0] != classes:
        _arrays.pop(at, None)
        known = None
    if known is None:
        op = seen()
        with building() as parts:
            with authored(op, "array()"):
                op.array(Target(dev))
        made = BuiltArray(parts.freeze(type(op).__name__, dev.name), parts.kernels())
        known = _arrays.setdefault(at, (classes, made))  # of two threads' arrays the first stays
    return known[1]


def build(op: Any, dev: Device | str, bound: Iterable[str] = ()) -> Built:
    """The design of an operator on a device, where calls give numbers for the members `bound`, and its kernels.

    Unresolvable where no array takes it, naming the keyword, the rule and what would be legal; CallError for a class.
    """
    require_operator(op, "build()")
    dev = device(dev)
    require_npu(op.base, dev)
    _require_array(op)
    op = op.resolved(dev)
    members = frozenset(bound)
    key = (design_key(op), members, dev.name, _classes(op))
    if key not in _designs:
        array, kernels = build_array(op, dev)
        rt = Runtime(op, array, dev, members)
        if type(op.base).sequence is Operator.sequence:
            derive(op, rt)
        else:
            with authored(op, "sequence()"):
                op.sequence(rt)
        _designs.setdefault(key, Built(Design(array, rt.freeze()), kernels))
    return _designs[key]


