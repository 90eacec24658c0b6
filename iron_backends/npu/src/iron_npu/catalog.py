"""Operators' own test cases printed for a device: alone, and with each of their members given per call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from iron_core.array.build import build, has_array
from iron_core.array.design import Design
from iron_core.declare.cases import cases
from iron_core.declare.identity import array_key, design_key
from iron_core.devices import device
from iron_core.errors import IronError
from iron_npu.mlir.printer import Printed, print_design


@attrs.frozen
class Item:
    """One case on one device. bound: members that calls give. refused: the rule, where no array takes it. design: what is printed.

    array_key: equal keys on one device are one array.
    """

    operator: str
    case: str
    dev: str
    bound: tuple[str, ...]
    printed: Printed | None = None
    design: Design | None = None
    refused: str = ""
    array_key: Any = None

    @property
    def name(self) -> str:
        bound = f"[{','.join(self.bound)}]" if self.bound else ""
        return f"{self.operator}-{self.case}{bound}-{self.dev}"


def items(classes: Iterable[Any], devices: Iterable[str]) -> Iterator[Item]:
    """Every case of the default suite of the operators that declare arrays. Equal designs of one operator come once."""
    seen: set[Any] = set()
    for cls, case, dev in cases((cls for cls in classes if has_array(cls)), devices):
        yield from _case(cls, case, dev, seen)


def _case(cls: Any, case: Any, dev: str, seen: set[Any]) -> Iterator[Item]:
    try:
        op = cls(**case.fields).resolved(device(dev))
    except IronError as error:
        yield Item(cls.__name__, case.id, dev, (), refused=str(error))
        return
    members = (*op.extents, *op.scratchpads)
    for bound in dict.fromkeys(((), *((member,) for member in members), tuple(op.extents), members)):
        key = design_key(op), bound, dev
        if key in seen:
            continue
        seen.add(key)
        item = Item(cls.__name__, case.id, dev, bound)
        try:
            design = build(op, dev, bound).design
            yield attrs.evolve(item, printed=print_design(design), design=design, array_key=array_key(op))
        except IronError as error:
            yield attrs.evolve(item, refused=str(error))
