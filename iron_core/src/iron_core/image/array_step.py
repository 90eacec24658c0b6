"""A plan's step as it runs on an array."""

from __future__ import annotations

from typing import Any

import attrs

from iron_core.array.build import build
from iron_core.array.design import Design
from iron_core.array.fit import fit
from iron_core.array.pools import TilePlacement
from iron_core.declare.identity import array_key
from iron_core.devices import Device
from iron_core.errors import Unresolvable, UnsupportedError
from iron_core.graph.traced import Binding
from iron_core.image.plan import BufferRef, PlanStep


@attrs.frozen(eq=False)
class ArrayStep:
    """A step as it runs: its design, where that design's tiles are, and where its operands lie.

    `written`: names of the operands it writes. `array_key`: says which kernels its cores call (see
    `iron_core.array.build.array_of`). `operator`: what messages call it. `pack`: where its array shares a configuration with others, the
    array keys of all; the design is then one of the array of all of them. `category`: what a profile counts it under.
    """

    name: str
    operator: str
    array_key: tuple[Any, ...]
    design: Design
    placement: TilePlacement
    operands: dict[str, BufferRef]
    written: frozenset[str]
    bindings: tuple[Binding, ...]
    pack: tuple[tuple[Any, ...], ...] = ()
    category: str = ""

    @property
    def configured(self) -> tuple[tuple[Any, ...], ...]:
        """The array keys of all arrays that are configured for it."""
        return self.pack or (self.array_key,)


def array_step(step: PlanStep, dev: Device) -> ArrayStep:
    """A step with its design. UnsupportedError where the device's array does not take it."""
    name = type(step.op.base).__name__
    try:
        op = step.op.resolved(dev)
        design = build(op, dev, (binding.member for binding in step.bindings)).design
        placement = fit(design)
    except Unresolvable as error:
        raise UnsupportedError(f"{name} (step {step.name}) on {dev}: {error}") from error
    written = frozenset(name for name in step.operands if op.operands[name].written)
    return ArrayStep(step.name, name, array_key(op), design, placement, step.operands, written, step.bindings, category=step.category)
