"""A version without its data: what a warm start reads instead of tracing.

A skeleton is a draft whose residents have names only. It is put together again with the weights and
states of a graph that holds them under the same names. Everything else in a draft is data already.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import attrs

from iron_core.declare.formats import Format, format_of
from iron_core.declare.identity import contract_key
from iron_core.errors import FormatError
from iron_core.graph.weight import State, Weight
from iron_core.image.plan import PlanStep, VersionPlan
from iron_core.image.planner import Draft
from iron_core.image.reader import read


def freeze(draft: Draft, held: Mapping[int, tuple[str, Any]]) -> bytes | None:
    """The draft's skeleton; None where it cannot be put together again.

    That is where a weight or state is not one `held` by the graph under its own name, or an operator's class
    cannot be imported by name. `held`: as `iron_core.graph.held.held` gives it.
    """
    if any(held.get(r.key, ("",))[0] != r.name for r in draft.residents):  # type: ignore[arg-type]
        return None
    bare = attrs.evolve(
        draft,
        version=_shared(draft.version),
        owners=(),
        residents=tuple(attrs.evolve(r, data=None, key=None) for r in draft.residents),
    )
    try:
        return pickle.dumps(bare, protocol=5)
    except (pickle.PicklingError, AttributeError, TypeError):
        return None


def described(held: Mapping[int, tuple[str, Any]]) -> dict[str, tuple[str, tuple[int, ...], Format]]:
    """Kind, shape and format of every weight and state that a graph holds, by name; arrays of a dtype that is not carried, which no
    body uses, are left out."""
    found = {}
    for name, item in held.values():
        try:
            format = item.format if isinstance(item, State) else format_of(item.data if isinstance(item, Weight) else item)
        except FormatError:
            continue
        found[name] = ("state" if isinstance(item, State) else "weight", tuple(item.shape), format)
    return found


def _shared(version: VersionPlan) -> VersionPlan:
    """The version with equal operators and formats as one object each: less to store, less to put together."""
    operators: dict[Any, Any] = {}
    formats: dict[Any, Any] = {}

    def share(step: PlanStep) -> PlanStep:
        op = step.op
        key = (*contract_key(op), op.pinned, tuple((name, repr(getattr(op, name))) for name in op.autos()))
        operands = {
            name: attrs.evolve(ref, format=formats.setdefault(ref.format, ref.format))
            for name, ref in step.operands.items()
        }
        return attrs.evolve(step, op=operators.setdefault(key, op), operands=operands)

    return attrs.evolve(version, steps=tuple(share(step) for step in version.steps))


def thaw(skeleton: bytes, held: Mapping[int, tuple[str, Any]]) -> Draft | None:
    """The draft over the weights and states that a graph holds; None where they, or the classes, are others."""
    bare: Draft | None = read(skeleton, Draft)
    if bare is None:
        return None
    by_name = {name: (key, item) for key, (name, item) in held.items()}
    known = described(held)
    residents, owners = [], []
    for resident in bare.residents:
        key, item = by_name.get(resident.name, (None, None))
        if item is None:
            return None
        if known.get(resident.name) != (resident.kind, resident.shape, resident.format):
            return None
        data = None if isinstance(item, State) else item.data if isinstance(item, Weight) else item
        residents.append(attrs.evolve(resident, data=data, key=key))
        owners.append(item)
    return attrs.evolve(bare, residents=tuple(residents), owners=tuple(owners))
