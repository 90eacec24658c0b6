"""`explain()`: what a compiled graph or operator is, in words."""

from __future__ import annotations

from typing import Any

from iron_core.compiled.program import Program
from iron_core.declare.affine import Affine
from iron_core.declare.identity import contract_key
from iron_core.devices import device
from iron_core.errors import UnsupportedError
from iron_core.graph.fold import Fold
from iron_core.graph.signature import describe_signature
from iron_core.image.array_image import ArrayImage, array_image
from iron_core.image.packs import short_name
from iron_core.image.plan import BufferRef, VersionPlan
from iron_core.lowering.picks import pick_for
from iron_core.lowering.registry import lowering_name, said


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:.1f} MB" if nbytes >= 100_000 else f"{nbytes} B"


def explain(program: Program) -> str:
    """Which backend and why, which packaging and why, where memory goes, and every version's steps and words."""
    plan = program.plan
    lines = [f"{plan.name} on {plan.backend} for {plan.dev}"]
    lines += [f"  backend    {reason}" for reason in program.choice.reasons]
    lines += [f"  image      {plan.packaging.image}, {plan.packaging.dispatch} dispatch"]
    lines += [f"             {reason}" for reason in plan.packaging.reasons]
    lines += [f"  value      {name}: {how}" for name, how in plan.packaging.lowered_values]
    for kind, plural in (("weight", "weights"), ("state", "states")):
        these = [resident for resident in plan.residents if resident.kind == kind]
        if these:
            lines.append(f"  {plural:<10} {len(these)}, {_megabytes(sum(r.nbytes for r in these))}, stored once for all versions")
    for name, banks in (("residents", plan.resident_banks), ("arena", plan.banks)):
        if banks:
            many = f"{len(banks)} banks" if len(banks) > 1 else "1 bank"
            lines.append(f"  {name:<10} {many}, {_megabytes(sum(banks))}")
    for version in plan.versions:
        lines.append(f"version {describe_signature(version.signature)}")
        with program.versions[version.signature].asking():
            lines += _steps(program, version)
            lines += [f"  lowering   {line}" for line in chosen(program.plan.backend, program.plan.dev, version)]
        for fold in version.folds:
            lines.append(f"  fold       {fold}: saves 1 step")
        lines += [f"  no fold    {version.unfolded}"] if version.unfolded else []
        lines += [f"  no fold    {fold}: {rule}" for fold, rule in version.refused]
        lines += _image(program, version)
        decided = program.versions[version.signature].decided
        lines += [f"  tuned      {line}" for line in decided.report] if decided is not None else []
        for term in version.carry:
            source = "element 0 of a buffer" if isinstance(term.source, BufferRef) else repr(term.source)
            lines.append(f"  carries    {term.name} = {source}")
    return "\n".join(lines)


def _steps(program: Program, version: VersionPlan) -> list[str]:
    """Each step with its operator, how it is executed and the words it follows."""
    how: dict[Any, str] = {}
    lines = []
    width = max((len(step.name) for step in version.steps), default=0)
    gone = {fold.gone: f"folded {str(fold).removeprefix(fold.gone).lstrip()}" for fold in version.folds}
    for step in version.steps:
        if step.name in gone:
            lines.append(f"  {step.name:<{width}}  {step.op!r}  {gone[step.name]}")
            continue
        key = contract_key(step.op)
        if key not in how:
            how[key] = getattr(program.backend.supports(step.op, program.plan.dev), "how", "") or "as declared"
        otherwise = getattr(program.versions[version.signature].image, "otherwise", None) or {}
        follows = ", ".join(f"{binding.member}={binding.expression!r}" for binding in step.bindings)
        taken = ", ".join(fold.gone for fold in version.folds if step.name in _into(fold))
        said = f"{otherwise.get(step.name) or how[key]}{f', with {taken} folded in' if taken else ''}"
        lines.append(f"  {step.name:<{width}}  {step.op!r}  {said}{f'  [{follows}]' if follows else ''}")
    return lines


def _into(fold: Fold) -> tuple[str, ...]:
    """The steps that a fold's own is computed by."""
    return fold.consumers if fold.kind == "prologue" else (fold.producer,)


def chosen(backend: str, dev: str, version: VersionPlan) -> list[str]:
    """Of each lowering that several distributions offer, or that somebody chose, whose it is and who said so."""
    found: dict[str, int] = {}
    for step in version.steps:
        words = said(backend, step.op, dev)
        if words:
            line = f"{lowering_name(backend, type(step.op))}: {words}"
            found[line] = found.get(line, 0) + 1
    lines = [f"{line} ({count} step{'s' if count != 1 else ''})" for line, count in found.items()]
    formats = {ref.format.name: ref.format for step in version.steps for ref in step.operands.values() if ref.format.packed}
    for format in formats.values():
        name = f"{backend}.{format.name}"
        pick = pick_for(name)
        if pick is not None:
            lines.append(f"{name}: {pick.distribution}, by {pick.by}")
    return lines


def _image(program: Program, version: VersionPlan) -> list[str]:
    """What runs, and the numbers that the device is given per call: on an array the steps, designs, entries and words that its image
    has, with the steps that make some of them there; else the expressions that steps follow."""
    plan = program.plan
    if not device(plan.dev).is_npu:
        return [f"  word       {form!r}: {', '.join(used)}" for form, used in _followed(version)]
    image = program.versions[version.signature].image
    try:
        found = image if isinstance(image, ArrayImage) else array_image(plan, version.signature)
    except UnsupportedError as error:
        return [f"  word       none is known, for no image can be made: {error}"] if _followed(version) else []
    planned = {step.name for step in version.steps}
    inserted = [step for step in found.steps if step.name not in planned]
    parts = [f"{len(planned)} of the graph"]
    parts += [f"{len(version.folds)} folded away"] if version.folds else []
    parts += [f"{len(inserted)} inserted"] if inserted else []
    lines = [f"  runs       {len(found.steps)} steps: {', '.join(parts)}"]
    arrays = len({id(step.design.array) for step in found.steps})
    lines.append(f"  designs    {len({id(step.design) for step in found.steps})}, of {arrays} array{'s' if arrays != 1 else ''}")
    if found.elf:
        lines.append(f"  entries    {len(found.entries)}{', and one that resets the array' if found.resets else ''}")
    for pack in dict.fromkeys(step.pack for step in found.steps if step.pack):
        of = sum(step.pack == pack for step in found.steps)
        lines.append(f"  pack       {', '.join(map(short_name, pack))} share a configuration: {of} steps")
    for parameter in found.parameters:
        used = ", ".join(f"{found.steps[index].name}.{name}" for index, name in parameter.uses)
        lines.append(f"  word       {parameter.symbol} = {parameter.form!r}: {used}")
    lines += [f"  inserted   {step.name}: {step.operator}" for step in inserted]
    if found.chains:
        designs = [len({id(found.steps[index].design) for index in chain}) for chain in found.chains]
        many = f"{len(designs)} xclbins of {' and '.join(map(str, designs))} designs" if len(designs) > 1 else "1 xclbin"
        lines.append(f"  chain      {many}, one dispatch per step")
    if found.contexts:
        names = [found.steps[steps[0]].design.array.name for steps in found.contexts]
        held = ", ".join(
            f"{name} (of {len(steps)} step{'s' if len(steps) != 1 else ''})" for name, steps in zip(names, found.contexts, strict=True)
        )
        lines.append(f"  contexts   {len(found.contexts)}, each an xclbin that stays loaded, one dispatch per step: {held}")
    return lines


def _followed(version: VersionPlan) -> list[tuple[Affine, list[str]]]:
    """The per-call expressions that a version's steps follow, and the `step.member`s that each serves. Equal ones are one."""
    table: dict[tuple[object, ...], tuple[Affine, list[str]]] = {}
    for step in version.steps:
        for binding in step.bindings:
            form = binding.expression
            table.setdefault(form.key, (form, []))[1].append(f"{step.name}.{binding.member}")
    return list(table.values())
