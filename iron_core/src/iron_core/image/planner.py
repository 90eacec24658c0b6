"""From traced graphs to a plan: where every buffer is, how every step refers to it.

A traced version becomes a `Draft`: its steps over placed tensors, its residents numbered from 0. A plan
adopts drafts one after another. What it has placed keeps its place: residents are appended to banks of their own, the arena's
banks grow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from iron_core.declare.formats import as_format
from iron_core.devices import WORD, device
from iron_core.errors import TraceError, UnsupportedError
from iron_core.graph.fold import Fold
from iron_core.graph.traced import Region, Tensor, TracedGraph
from iron_core.image.arena import BANK_BYTES, Spot, align, append, guard_bytes, place
from iron_core.image.liveness import lifetimes
from iron_core.image.packaging import decide
from iron_core.image.plan import (
    BufferRef,
    CarryTerm,
    Plan,
    PlanStep,
    Port,
    Resident,
    VersionPlan,
)


@attrs.frozen(eq=False)
class Draft:
    """One version, placed on its own. `residents` are what its references of space "resident" number.

    `owners` are the objects whose identities the residents' keys are; whoever keeps a key keeps them.
    """

    name: str
    version: VersionPlan
    residents: tuple[Resident, ...]
    banks: tuple[int, ...]
    owners: tuple[Any, ...] = ()


def draft(traced: TracedGraph, folds: Sequence[Fold] = (), refused: Sequence[tuple[str, str]] = (), unfolded: str = "") -> Draft:
    """Place one traced version's buffers. TraceError for an output that is returned twice. refused, unfolded: see `VersionPlan`.

    A folded step runs where its fold says, so what it reads and writes is kept in place there too.
    """
    ports: dict[str, tuple[str, int]] = {tensor.name: ("input", i) for i, tensor in enumerate(traced.inputs)}
    for number, region in enumerate(traced.outputs):
        if region.tensor.name in ports:
            raise TraceError(
                f"{traced.name}: output {number} is the tensor {region.tensor.name}, which is already an input or an "
                "output. Return it once, or return a Copy of it."
            )
        ports[region.tensor.name] = ("output", number)
    residents = (*traced.weights, *traced.states)
    ports.update((tensor.name, ("resident", i)) for i, tensor in enumerate(residents))
    inner = {tensor.name: tensor for tensor in _touched(traced) if tensor.name not in ports}
    carried = [term.source.tensor for term in traced.carry if isinstance(term.source, Region)]
    lined_up = _lined_up(traced, inner)
    sizes = {key: tensor.nbytes for key, tensor in inner.items() if key not in (lined_up or ())}
    handed = _handed_on(traced, folds, sizes)
    sizes = {key: nbytes for key, nbytes in sizes.items() if key not in handed}
    touches = [[handed.get(name, name) for name in names] for names in _touches(traced, folds)]
    guard = guard_bytes()
    planes = None if lined_up is None else BufferRef("arena", 0, guard, (2, len(traced.carry)), as_format(np.int32))
    # In front of all else: versions that carry the same have them at the same bytes.
    front = 0 if planes is None else planes.offset + align(planes.nbytes)
    arena = place(lifetimes(sizes, touches, [tensor.name for tensor in carried]), guard=guard, front=front)
    spots = dict(arena.spots)
    spots |= {name: spots[result] for name, result in handed.items()}
    kept = [(spot.bank, spot.offset, sizes[str(name)]) for name, spot in arena.spots.items()]
    if planes is not None and lined_up is not None:
        kept.append((planes.index, planes.offset, planes.nbytes))
        spots |= {name: Spot(planes.index, planes.offset + at) for name, at in lined_up.items()}

    def ref(region: Region) -> BufferRef:
        key, offset = region.tensor.name, region.format.offset(region.start, region.tensor.shape)
        if key in ports:
            space, index = ports[key]
        else:
            spot = spots[key]
            space, index, offset = "arena", spot.bank, spot.offset + offset
        return BufferRef(space, index, offset, region.shape, region.format, region.bounds)

    version = VersionPlan(
        signature=traced.signature,
        steps=tuple(
            PlanStep(step.name, step.op, {name: ref(r) for name, r in step.operands.items()}, step.bindings, step.category)
            for step in traced.steps
        ),
        inputs=tuple(Port(tensor.name, tensor.shape, tensor.format, traced.bounds_of(tensor)) for tensor in traced.inputs),
        outputs=tuple(Port(r.tensor.name, r.shape, r.format, r.bounds) for r in traced.outputs),
        values=traced.values,
        carry=tuple(
            CarryTerm(term.name, ref(term.source) if isinstance(term.source, Region) else term.source)
            for term in traced.carry
        ),
        checks=traced.checks,
        folds=tuple(folds),
        refused=tuple(refused),
        unfolded=unfolded,
        id_checks=traced.id_checks,
        single=traced.single,
        spots=tuple(kept),
        planes=planes,
    )
    held = tuple(
        Resident(b.name, b.role, b.shape, b.format, None if b.role == "state" else b.data, b.key) for b in residents
    )
    return Draft(traced.name, version, held, arena.banks, tuple(b.data for b in residents))


def _lined_up(traced: TracedGraph, inner: Mapping[str, Tensor]) -> dict[str, int] | None:
    """Where, in the planes of a version, each carried tensor is: bytes by name. None where there are no planes: nothing is carried, or
    one that is carried lies elsewhere or is no 32-bit number."""
    if not traced.carry:
        return None
    found: dict[str, int] = {}
    for at, term in enumerate(traced.carry):
        if isinstance(term.source, Region):
            tensor = term.source.tensor
            if tensor.name not in inner or tensor.size != 1 or tensor.nbytes != WORD:
                return None
            found.setdefault(tensor.name, (len(traced.carry) + at) * WORD)
    return found


def _handed_on(traced: TracedGraph, folds: Sequence[Fold], sizes: Mapping[str, int]) -> dict[str, str]:
    """Results that no step stores, for what is folded behind takes them: each has the place of what is made of it, if that is as
    large and in the arena."""
    steps = {step.name: step for step in traced.steps}
    into: dict[str, str] = {}
    for fold in folds:
        if fold.kind == "finish":
            consumer = steps[fold.consumers[0]]
            (made,) = (r.tensor for name, r in consumer.operands.items() if consumer.op.operands[name].written)
            source = steps[fold.producer].operands[fold.source].tensor
            if made.name in sizes and source.nbytes == made.nbytes:
                into[source.name] = made.name
    for name, result in into.items():
        while result in into:
            result = into[result]
        into[name] = result
    return into


def _touches(traced: TracedGraph, folds: Sequence[Fold]) -> list[list[str]]:
    """Per step, the buffers in use while it runs."""
    own = {step.name: [region.tensor.name for region in step.operands.values()] for step in traced.steps}
    there = {step.name: list(own[step.name]) for step in traced.steps}
    runs_at = {name: fold.runs_at for fold in folds if fold.kind != "prologue" for name in (fold.producer, *fold.consumers)}
    for fold in folds:
        for at in fold.consumers if fold.kind == "prologue" else (fold.producer,):
            for member in (fold.producer, *fold.consumers):
                there[runs_at.get(at, at)] += own[member]
    return [there[step.name] for step in traced.steps]


def _touched(traced: TracedGraph) -> list[Tensor]:
    """Buffers that any step, output or carried value refers to."""
    regions = [region for step in traced.steps for region in step.operands.values()]
    regions += [*traced.outputs, *(term.source for term in traced.carry if isinstance(term.source, Region))]
    return [region.tensor for region in regions]


def adopt(plan: Plan, draft: Draft) -> Plan:
    """The plan with one more version. Earlier versions, residents and offsets are the same objects as before.

    A version of the same signature is replaced. Residents are one where their storage is one. UnsupportedError for one
    that no bank of an NPU holds.
    """
    residents = list(plan.residents)
    resident_banks = list(plan.resident_banks)
    by_key = {resident.key: i for i, resident in enumerate(residents) if resident.key is not None}
    taken = {resident.name for resident in residents}
    numbers = []
    for resident in draft.residents:
        number = by_key.get(resident.key) if resident.key is not None else None
        if number is None:
            number = len(residents)
            resident = attrs.evolve(resident, name=_free(resident.name, taken))
            residents.append(_settled(plan, resident, resident_banks))
            taken.add(residents[-1].name)
        numbers.append(number)

    def renumber(ref: BufferRef) -> BufferRef:
        return attrs.evolve(ref, index=numbers[ref.index]) if ref.space == "resident" else ref

    version = draft.version
    if numbers != list(range(len(numbers))):
        version = _map_refs(version, renumber)
    banks = [
        max(plan.banks[i] if i < len(plan.banks) else 0, draft.banks[i] if i < len(draft.banks) else 0)
        for i in range(max(len(plan.banks), len(draft.banks)))
    ]
    versions = [v for v in plan.versions if v.signature != version.signature]
    return attrs.evolve(
        plan,
        versions=(*versions, version),
        residents=tuple(residents),
        banks=tuple(banks),
        resident_banks=tuple(resident_banks),
    )


def _settled(plan: Plan, resident: Resident, banks: list[int]) -> Resident:
    """The resident at its place in the banks, which grow by it. The host points at the data, so there it has none."""
    if not device(plan.dev).is_npu:
        return resident
    if resident.nbytes > BANK_BYTES:
        raise UnsupportedError(
            f"{plan.name}: {resident.kind} `{resident.name}` has {resident.nbytes} bytes, and a bank of {plan.dev}'s memory holds "
            f"{BANK_BYTES}. Legal: several smaller ones, such as parts of its rows, or dev='host', which has no banks."
        )
    return attrs.evolve(resident, spot=append(resident.nbytes, banks))


def _free(name: str, taken: set[str]) -> str:
    """`name`, or with a number behind it where another storage has it (two traces invent the same name)."""
    number, free = 1, name
    while free in taken:
        number, free = number + 1, f"{name}_{number}"
    return free


def _map_refs(version: VersionPlan, change: Callable[[BufferRef], BufferRef]) -> VersionPlan:
    """The version with every buffer reference changed."""
    return attrs.evolve(
        version,
        steps=tuple(
            attrs.evolve(step, operands={name: change(ref) for name, ref in step.operands.items()})
            for step in version.steps
        ),
        carry=tuple(
            attrs.evolve(term, source=change(term.source)) if isinstance(term.source, BufferRef) else term
            for term in version.carry
        ),
    )


def plan_graphs(traced: Sequence[TracedGraph]) -> Plan:
    """The plan of versions of one graph for the host, which nothing is going to run."""
    drafts = [draft(version) for version in traced]
    values = {value.name: value for d in drafts for value in d.version.values}
    packaging = decide("host", tuple(values.values()))
    plan = Plan(drafts[0].name if drafts else "", "null", "host", packaging, (), (), ())
    for one in drafts:
        plan = adopt(plan, one)
    return plan
