"""What `iron models|operators|backends|devices|plugins list` say."""

from __future__ import annotations

import inspect
from contextlib import suppress
from typing import Any

from iron_core.cli.table import print_json, print_table
from iron_core.errors import IronError, printable, sentence
from iron_core.plugins import foreign
from iron_core.plugins.record import Record
from iron_core.plugins.registry import registry
from iron_core.plugins.summaries import said, written


def status(record: Record) -> str:
    """A record's status, with its reason where there is one."""
    return f"{record.status}: {record.detail}" if record.detail else record.status


def plugins(*, group: str | None, load: bool, as_json: bool) -> None:
    """Every entry point; nothing is imported unless `load`."""
    records = registry().select(group, load=load)
    if as_json:
        print_json([record.as_dict() for record in records])
        return
    rows = [(r.group, r.name, r.owner, f"v{r.level}", *([_took(r)] if load else []), status(r)) for r in records]
    print_table(("group", "name", "distribution", "api", *(["import"] if load else []), "status"), rows)


def _took(record: Record) -> str:
    """How long its import took; one whose modules others had imported before takes next to nothing."""
    if record.seconds is None:
        return ""
    return f"{record.seconds:.1f} s" if record.seconds >= 1 else f"{record.seconds * 1e3:.1f} ms"


def named(group: str, *, load: bool, as_json: bool) -> None:
    """The names of one group, whose each is and what it is: as its source says, which is not imported, or with `load` as it does."""
    records = registry().select(group, load=load)
    told = [(r, what(r)) for r in records]
    if as_json:
        print_json([r.as_dict() | ({"summary": text} if r.status in _USABLE and text else {}) for r, text in told])
        return
    rows = [(r.name, r.owner, text if r.status in _USABLE else status(r)) for r, text in told]
    print_table(("name", "distribution", "summary"), rows)


#: Of a record that nothing speaks against.
_USABLE = ("ok", "not loaded")


def what(record: Record) -> str:
    """What a plugin is, on one line: of its object if it is loaded, else of its source; "" where that does not say."""
    if record.status not in _USABLE:
        return ""
    return summary(record.object) if record.status == "ok" else written(record) or ""


def summary(thing: Any) -> str:
    """`summary` of a plugin's object, else the first sentence of its docstring."""
    try:
        with foreign.guarded():
            own = getattr(thing, "summary", None)
            return said(own, None) if isinstance(own, str) else said(None, inspect.cleandoc(thing.__doc__ or ""))
    except foreign.Raised as raised:
        return f"its summary cannot be read: {raised}"


def probed() -> list[dict[str, Any]]:
    """Every backend with what its probe says. One that fails to load or to probe is an entry like any other; `broken`: that is not
    what a backend may say."""
    from iron_core.backends import choose
    from iron_core.backends.protocol import Unavailable

    found = []
    for name in choose.names():
        facts: dict[str, Any] = {"name": name, "available": False, "summary": "", "reason": "", "fix": "", "compiles": False}
        facts |= {"broken": False, "devices": []}
        try:
            backend = choose.get(name)
        except IronError as error:
            facts.update(reason=str(error), broken=True)
        else:
            state = choose.probe(backend)
            if isinstance(state, Unavailable):
                broken = isinstance(state, choose.Broken)
                facts.update(reason=str(state.reason).rstrip("."), fix=str(state.fix), compiles=state.compiles, broken=broken)
            else:
                facts.update(available=True, summary=str(state.summary), devices=[*backend.devices(), *choose.brought(backend)])
        found.append(facts)
    return found


def backends(*, as_json: bool) -> None:
    """Every backend, by its own probe."""
    found = probed()
    if as_json:
        print_json(found)
        return
    print_table(("name", "state", ""), [(f["name"], _state(f), says(f)) for f in found])


def devices(*, as_json: bool) -> None:
    """Every device: its family, its array, whose it is, and the backends of this installation that take it."""
    from iron_core.backends import choose
    from iron_core.devices import DEVICES, device

    backends = []
    for name in choose.names():
        with suppress(IronError):
            backends.append(choose.get(name))
    owners = dict.fromkeys(DEVICES, "iron-core")
    others = [r for r in registry().select("devices") if r.status not in ("denied", "incompatible")]
    owners |= {f"{r.distribution}:{r.name}" if r.status in ("shadowed", "ambiguous") else r.name: r.owner for r in others}
    found: list[dict[str, Any]] = []
    for name, owner in owners.items():
        facts: dict[str, Any] = {"name": name, "family": "", "arch": "", "columns": 0, "core_rows": 0, "distribution": owner}
        try:
            dev = device(name)
            facts.update(family=dev.family, arch=dev.arch, columns=dev.columns, core_rows=dev.core_rows)
            facts |= {"backends": [one.name for one in backends if choose.takes(one, dev)], "reason": ""}
        except IronError as error:
            facts |= {"backends": [], "reason": str(error)}
        found.append(facts)
    if as_json:
        print_json(found)
        return
    rows = []
    for f in found:
        array = f"{f['columns']} x {f['core_rows']}" if f["columns"] else "none"
        taken = ", ".join(f["backends"]) or "no backend here"
        rows.append((f["name"], f["family"], array, f["distribution"], taken if not f["reason"] else printable(f["reason"])))
    print_table(("device", "family", "columns x cores", "distribution", "taken by"), rows)


def _state(facts: dict[str, Any]) -> str:
    return "available" if facts["available"] else "unavailable"


def says(facts: dict[str, Any]) -> str:
    """A probe's words: what is there, or why not and what to do."""
    if facts["available"]:
        return str(facts["summary"])
    compiles = "It compiles here. " if facts["compiles"] else ""
    return f"{sentence(facts['reason'])} {compiles}{facts['fix']}".strip()
