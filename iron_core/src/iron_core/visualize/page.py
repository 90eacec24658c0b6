"""`html()`: one page about a graph, with nothing loaded from outside."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from iron_core.devices import device
from iron_core.files import write_whole
from iron_core.graph.signature import describe_signature
from iron_core.image.packs import short_name
from iron_core.image.plan import Plan
from iron_core.visualize import markup
from iron_core.visualize.colours import hues
from iron_core.visualize.markup import details, facts, page, size
from iron_core.visualize.overview import overview
from iron_core.visualize.page_arrays import arrays
from iron_core.visualize.page_steps import StepTables, find_script, search_box, stretches
from iron_core.visualize.run_list import RunList
from iron_core.visualize.subject import Subject, subject
from iron_core.visualize.times import Table, Times, duration, own, times


def html(item: Any, path: str | Path | None = None, *, table: Table = None) -> str:
    """The page of a traced graph, a compiled graph, one of its versions or a plan; written to `path` if given.

    Per version: figures, the run list at a glance over the arena, steps by operator, the run list with what repeats told once,
    and every array with its tiles, fifos and paths. Then weights and states, the packaging and its reasons. table: as for
    `picture()`, or of several versions one for each, by signature.
    """
    shown = subject(item)
    plan = shown.plan
    runs = [shown.run_list(version) for version in plan.versions]
    names = [f"version {describe_signature(version.signature)}" for version in plan.versions]
    links = [f'<a href="#v{n}">{escape(name)}</a>' for n, name in enumerate(names)] + ['<a href="#rest">weights, states, packaging</a>']
    packaging = f" for {plan.dev} · {plan.packaging.image}, {plan.packaging.dispatch} dispatch" if device(plan.dev).is_npu else ""
    body = [f"<h1>{escape(plan.name)}</h1><p class='soft'>on {escape(plan.backend + packaging)}</p><nav>{''.join(links)}</nav>"]
    for n, (run, name) in enumerate(zip(runs, names, strict=True)):
        body.append(_version(shown, run, name, n, times(own(table, run), run)))
    body.append(f'<section id="rest"><h2>Weights, states, packaging</h2>{_packaging(plan)}{_residents(plan)}</section>')
    text = page(plan.name, "\n".join(body), find_script())
    if path is not None:
        write_whole(path, text)
    return text


def _version(shown: Subject, run: RunList, name: str, number: int, priced: Times) -> str:
    prefix = f"v{number}s"
    hue, parts = hues(run.rows), stretches(run)
    tables = StepTables(run, priced, hue, prefix)
    body = [f"<h2>{escape(name)}</h2>", facts(_figures(shown.plan, run, priced))]
    if run.why:
        body.append(f'<p class="warn">No array image can be made: {escape(run.why)}</p>')
    body.append(f'<div class="wide">{overview(run, priced, shown.plan.banks, hue, parts, prefix)}</div>')
    body += ["<h3>By operator</h3>", tables.by_operator(), _beside_steps(priced)]
    body.append('<h3>Run list</h3><div class="list">' + search_box("find steps: operator, weight, array, …"))
    body += [*map(tables.stretch, parts), "</div>"]
    for title, text in (("Moved tunables", tables.moved()), ("Folds", tables.folds()), ("Words of a call", tables.words())):
        if text:
            body.append(f"<h3>{title}</h3>{text}")
    if run.packs:
        body.append(f"<h3>Packs</h3>{_packs(run)}")
    decided = shown.decided.get(run.version.signature, ())
    if decided:
        body.append("<h3>Decided by measured costs</h3>" + "".join(f"<p>{escape(line)}</p>" for line in decided))
    if run.arrays:
        body.append(f"<h3>Arrays</h3>{arrays(run, priced, hue, prefix)}")
    return f'<section id="v{number}">{"".join(body)}</section>'


def _packs(run: RunList) -> str:
    assert run.image is not None
    lines = []
    for names in run.packs:
        steps = [step for step in run.image.steps if step.pack and tuple(map(short_name, step.pack)) == names]
        entered = sum(any(run.image.steps[i] in steps for i in entry) for entry in run.entries)
        lines.append((", ".join(names), len(steps), entered))
    return markup.table(("arrays that share one configuration", "steps", "entries"), lines, " nn", "Packs")


def _figures(plan: Plan, run: RunList, priced: Times) -> list[tuple[str, str]]:
    found = [_many(len(run.rows), "step run", "steps run")]
    if run.version.folds:
        found.append((str(len(run.version.folds)), f"of {len(run.version.steps)} folded into others"))
    if run.arrays:
        found.append(_many(len(run.arrays), "array", "arrays"))
    if run.image is not None:
        designs = len({id(step.design) for step in run.image.steps})
        found.append(_many(designs, "design", "designs"))
        if run.image.elf:
            found.append(_many(len(run.entries), "entry", "entries"))
        for those, one, several in ((run.image.chains, "xclbin", "xclbins"), (run.image.contexts, "context", "contexts")):
            found += [_many(len(those), one, several)] if those else []
    moved = sum(bool(row.moved) for row in run.rows)
    if moved:
        found.append(_many(moved, "step with moved tunables", "steps with moved tunables"))
    for kind, words in (("weight", "weights"), ("state", "states")):
        nbytes = sum(r.nbytes for r in plan.residents if r.kind == kind)
        if nbytes:
            found.append((size(nbytes), words))
    if sum(plan.banks):
        found.append((size(sum(plan.banks)), "arena"))
    if priced.known:
        found.insert(0, (duration(priced.total), "a call"))
    return found


def _many(count: int, one: str, several: str) -> tuple[str, str]:
    return str(count), one if count == 1 else several


def _beside_steps(priced: Times) -> str:
    """What a call takes beside its steps."""
    if not priced.known or (priced.whole is None and not priced.entries and not priced.dispatch):
        return ""
    parts = [f"steps {duration(priced.steps)}"]
    parts += [f"entering them {duration(sum(priced.entries.values()))}"] if priced.entries else []
    parts += [f"dispatch {duration(priced.dispatch)}"] if priced.dispatch else []
    return f'<p class="soft">A call takes {duration(priced.total)}: {", ".join(parts)}.</p>'


def _packaging(plan: Plan) -> str:
    lines = [("why", reason) for reason in plan.packaging.reasons]
    lines += [("value", f"{name}: {how}") for name, how in plan.packaging.lowered_values]
    lines += [("arena", f"bank {n}: {size(bank)}") for n, bank in enumerate(plan.banks)]
    lines += [("residents", f"bank {n}: {size(bank)}") for n, bank in enumerate(plan.resident_banks)]
    return markup.table(("", ""), lines, "k ", "Packaging")


def _residents(plan: Plan) -> str:
    lines = [
        (
            r.kind, r.name, "x".join(map(str, r.shape)), r.format, r.nbytes, f"bank {r.spot.bank} + {r.spot.offset}" if r.spot else "",
        )
        for r in plan.residents
    ]  # fmt: skip
    if not lines:
        return ""
    body = markup.table(("kind", "name", "shape", "format", "bytes", "place"), lines, "k   n ", "Weights and states")
    return details(f"{len(lines)} weights and states", body, opened=len(lines) <= 20)

