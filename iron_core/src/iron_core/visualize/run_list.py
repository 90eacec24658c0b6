"""What pictures say of a version's run list: a row for each step that runs, with all that is folded into it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import attrs

from iron_core.array.design import ArrayDesign
from iron_core.array.pools import TilePlacement
from iron_core.declare.identity import contract_key
from iron_core.devices import Device, device
from iron_core.errors import IronError, UnsupportedError
from iron_core.image.array_image import ArrayImage, array_image
from iron_core.image.array_step import ArrayStep
from iron_core.image.folding import fold_steps
from iron_core.image.packs import short_name
from iron_core.image.plan import Plan, PlanStep, VersionPlan
from iron_core.visualize.tunables import Moved, moved, tunables


@attrs.frozen
class Inside:
    """A step that another one computes. how: "before", "after", or "store" for a copy that says where the result goes."""

    name: str
    operator: str
    how: str


@attrs.frozen(eq=False)
class Used:
    """An array that steps of a run list share: the `number` is that of its first step among the arrays."""

    number: int
    array: ArrayDesign
    placement: TilePlacement
    steps: tuple[int, ...]

    @property
    def columns(self) -> int:
        return len({col for col, _ in self.placement.values()})


@attrs.frozen(eq=False)
class Row:
    """A step that runs. kind: equal for rows that are the same but for where their operands are.

    how: what a backend without arrays says it runs by. array: the number of its array, and entry: of the entry it runs in, counted
    from 0; None on the host. fields, short: all its params and dtypes, and those that tell it from others. operands: where each
    lies; reads: the weights and states that it reads; follows: its per-call numbers.
    """

    number: int
    name: str
    operator: str
    op: Any
    kind: Any
    inside: tuple[Inside, ...] = ()
    how: str = ""
    array: int | None = None
    entry: int | None = None
    tunables: tuple[tuple[str, Any], ...] = ()
    moved: tuple[Moved, ...] = ()
    fields: str = ""
    short: str = ""
    operands: str = ""
    reads: tuple[str, ...] = ()
    follows: str = ""

    @property
    def title(self) -> str:
        """Everything about it in a few lines."""
        lines = [f"{self.name}: {self.operator} {self.fields}".rstrip()]
        lines += [f"{part.how} it: {part.name} ({part.operator})" for part in self.inside if part.how != "store"]
        lines += [f"stores for: {part.name} ({part.operator})" for part in self.inside if part.how == "store"]
        lines += [f"reads {', '.join(self.reads)}"] if self.reads else []
        lines += [f"per call: {self.follows}"] if self.follows else []
        lines += [self.how] if self.how else []
        lines += [", ".join(f"{name}={value}" for name, value in self.tunables)] if self.tunables else []
        return "\n".join([*lines, *map(str, self.moved)])


@attrs.frozen(eq=False)
class RunList:
    """A version as it runs. `image` is what an array device is given; None on the host, or where no image can be made (`why`).

    entries: how many rows each has, of those that share one configuration of the array. packs: what is one configuration
    of several arrays, by their operators.
    """

    version: VersionPlan
    rows: tuple[Row, ...]
    arrays: tuple[Used, ...] = ()
    entries: tuple[tuple[int, ...], ...] = ()
    packs: tuple[tuple[str, ...], ...] = ()
    image: ArrayImage | None = None
    why: str = ""

    @property
    def places(self) -> dict[str, tuple[int, ...]]:
        """The rows in which each step of the graph is computed: one, but for what is in front of several."""
        found: dict[str, tuple[int, ...]] = {}
        for row in self.rows:
            for name in (row.name, *(part.name for part in row.inside)):
                found[name] = (*found.get(name, ()), row.number)
        return found


def run_list(plan: Plan, version: VersionPlan, image: Any = None, supports: Callable[..., Any] | None = None) -> RunList:
    """The rows of a version. image: what the backend made of it, where it is known. supports: the backend's, asked how it runs a step
    where there are no arrays."""
    dev = device(plan.dev)
    if not dev.is_npu:
        return RunList(version, _host_rows(plan, version, supports))
    try:
        found = image if isinstance(image, ArrayImage) else array_image(plan, version.signature)
    except UnsupportedError as error:
        return RunList(version, _host_rows(plan, version, None), why=str(error))
    return _on_arrays(plan, version, found, dev)


def _inside(version: VersionPlan) -> dict[str, list[Inside]]:
    """By the step that computes them, those that are folded into it: in the order in which they are applied."""
    operator = {step.name: type(step.op.base).__name__ for step in version.steps}
    host: dict[str, str] = {}
    found: dict[str, list[Inside]] = {}
    for fold in version.folds:
        if fold.kind == "prologue":
            for name in fold.consumers:
                found.setdefault(name, []).insert(0, Inside(fold.gone, operator[fold.gone], "before"))
        else:
            into = host[fold.gone] = host.get(fold.producer, fold.producer)
            how = "store" if fold.kind == "placed" else "after"
            found.setdefault(into, []).append(Inside(fold.gone, operator[fold.gone], how))
    return found


def _reads(plan: Plan, step: PlanStep | ArrayStep, written: Iterable[str] = ()) -> tuple[str, ...]:
    names = (plan.residents[ref.index].name for name, ref in step.operands.items() if ref.space == "resident" and name not in written)
    return tuple(dict.fromkeys(names))


def _fields(op: Any) -> str:
    """Params and dtypes, as a label has them."""
    base = op.base
    autos = set(base.autos())
    shown = ((name, getattr(base, name)) for name, field in base.fields.items() if field.repr and name not in autos)
    return " ".join(f"{name}={getattr(value, 'name', value)}" for name, value in shown if value is not None)


def _short(op: Any) -> str:
    """Params that have no default or another value, and the dtypes."""
    base, parts = op.base, []
    dtypes: dict[str, None] = {}
    for name, field in base.fields.items():
        value = getattr(base, name)
        if field.kind == "dtype":
            dtypes[str(getattr(value, "name", value))] = None
        elif field.kind == "param" and field.repr and value is not None:
            plain = None if field.required or field.computed else field.convert(field.default)
            if field.required or (not field.computed and value != plain):
                shown = f"{value:.6g}" if isinstance(value, float) else getattr(value, "name", value)
                parts.append(f"{name}={shown}")
    return " ".join([*parts, *dtypes])


def _operands(plan: Plan, version: VersionPlan, step: PlanStep | ArrayStep) -> str:
    """What each is and where it lies."""
    named: dict[str, Any] = {"resident": plan.residents, "input": version.inputs, "output": version.outputs}
    parts = []
    for name, ref in step.operands.items():
        held = named.get(ref.space)
        where = held[ref.index].name if held is not None else f"{'bank' if ref.space == 'arena' else ref.space} {ref.index}"
        parts.append(f"{name}: {'x'.join(map(str, ref.shape))} {ref.format} ({where} + {ref.offset})")
    return "\n".join(parts)


def _follows(step: PlanStep | ArrayStep) -> str:
    return ", ".join(f"{binding.member}={binding.expression!r}" for binding in step.bindings)


def _host_rows(plan: Plan, version: VersionPlan, supports: Callable[..., Any] | None) -> tuple[Row, ...]:
    """Those of the graph that are not folded away, each where its folds have it run."""
    inside = _inside(version)
    order = {step.name: i for i, step in enumerate(version.steps)}
    turn = dict(order)
    for name, parts in inside.items():
        runs_at = {fold.gone: fold.runs_at for fold in version.folds if fold.kind != "prologue"}
        turn[name] = max([order[name], *(order[runs_at[part.name]] for part in parts if part.name in runs_at)])
    gone = {fold.gone for fold in version.folds}
    how: dict[Any, str] = {}
    rows: list[Row] = []
    for step in sorted((step for step in version.steps if step.name not in gone), key=lambda step: turn[step.name]):
        key = contract_key(step.op)
        if supports is not None and key not in how:
            how[key] = getattr(supports(step.op, plan.dev), "how", "")
        held = tuple(inside.get(step.name, ()))
        written = [name for name in step.operands if not step.op.operands[name].read]
        rows.append(
            Row(
                len(rows),
                step.name,
                type(step.op.base).__name__,
                step.op,
                (key, tuple(part.operator for part in held)),
                held,
                how=how.get(key, ""),
                fields=_fields(step.op),
                short=_short(step.op),
                operands=_operands(plan, version, step),
                reads=_reads(plan, step, written),
                follows=_follows(step),
            )
        )
    return tuple(rows)


def _on_arrays(plan: Plan, version: VersionPlan, image: ArrayImage, dev: Device) -> RunList:
    inside, folded = _inside(version), {step.name: step for step in fold_steps(version)}
    entry = {index: number for number, steps in enumerate(image.entries) for index in steps}
    arrays: dict[int, int] = {}
    known: dict[int, tuple[tuple[tuple[str, Any], ...], tuple[Moved, ...], str, str]] = {}
    rows: list[Row] = []
    for number, step in enumerate(image.steps):
        op = folded[step.name].op if step.name in folded else None
        if id(step.design) not in known:
            known[id(step.design)] = _chosen(op, dev)
        own, away, fields, short = known[id(step.design)]
        held = tuple(inside.get(step.name, ()))
        rows.append(
            Row(
                number,
                step.name,
                step.operator,
                op,
                (id(step.design), tuple(part.operator for part in held)),
                held,
                array=arrays.setdefault(id(step.design.array), len(arrays)),
                entry=entry.get(number),
                tunables=own,
                moved=away,
                fields=fields,
                short=short,
                operands=_operands(plan, version, step),
                reads=_reads(plan, step, step.written),
                follows=_follows(step),
            )
        )
    shared: dict[int, list[int]] = {}
    for row in rows:
        assert row.array is not None
        shared.setdefault(row.array, []).append(row.number)
    used = [
        Used(number, image.steps[steps[0]].design.array, image.steps[steps[0]].placement, tuple(steps)) for number, steps in shared.items()
    ]
    packs = tuple(tuple(map(short_name, pack)) for pack in dict.fromkeys(step.pack for step in image.steps if step.pack))
    return RunList(version, tuple(rows), tuple(used), image.entries, packs, image)


def _chosen(op: Any, dev: Device) -> tuple[tuple[tuple[str, Any], ...], tuple[Moved, ...], str, str]:
    """Tunables, those that were moved, and fields; nothing of a step that the image inserted."""
    if op is None:
        return (), (), "", ""
    try:
        resolved = op.resolved(dev)
    except IronError:  # compiled elsewhere with what this process does not have
        return (), (), _fields(op), _short(op)
    return tunables(resolved), moved(resolved, dev), _fields(op), _short(op)
