"""`artifacts`: the record of a version, what was planned as plain data that can be written as JSON."""

from __future__ import annotations

from typing import Any

from iron_core.declare.identity import label
from iron_core.image.plan import BufferRef, Plan, VersionPlan


def artifacts(plan: Plan, version: VersionPlan) -> dict[str, Any]:
    """The record of a version as plain data: kind, steps with their operators and buffers, where every buffer is.

    "residents" are [bank, offset, bytes] by name; there are none on the host.
    """

    def place(ref: BufferRef) -> list[Any]:
        name = plan.residents[ref.index].name if ref.space == "resident" else ref.index
        return [ref.space, name, ref.offset, ref.nbytes]

    return {
        "graph": plan.name,
        "kind": plan.packaging.image,
        "dispatch": plan.packaging.dispatch,
        "signature": [[name, list(shape), format] for name, shape, format in version.signature],
        "banks": list(plan.banks),
        "resident_banks": list(plan.resident_banks),
        "residents": {r.name: [r.spot.bank, r.spot.offset, r.nbytes] for r in plan.residents if r.spot is not None},
        "steps": [
            {
                "name": step.name,
                "operator": label(step.op),
                "operands": {name: place(ref) for name, ref in step.operands.items()},
                "values": {binding.member: repr(binding.expression) for binding in step.bindings},
            }
            for step in version.steps
        ],
    }
