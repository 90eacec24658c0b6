"""`iron doctor`: everything worth knowing when something does not work."""

from __future__ import annotations

import os
import platform
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import attrs
import click

from iron_core.backends import choose
from iron_core.backends.protocol import Finding
from iron_core.cache.home import home, troubles
from iron_core.cli.listing import probed, says
from iron_core.cli.report import RESULTS, write
from iron_core.cli.table import print_json, print_table
from iron_core.devices import DEVICES
from iron_core.errors import CacheError, printable, sentence
from iron_core.plugins.pins import mismatched, refusal
from iron_core.plugins.record import OWN, Record, normal
from iron_core.plugins.registry import registry

#: Environment variables that change what iron does.
VARIABLES = re.compile(r"IRON_\w+|NPU_CACHE_HOME|CXX")

_IRON = re.compile(r"^(Name|Requires-Dist): *iron", re.I | re.M)
_IRON_CORE = re.compile(r"iron[-_.]core(?![\w.-])", re.I)


def doctor(backend: str | None, *, as_json: bool, report: str | None = None, results: str = RESULTS) -> int:
    """Print, or print as JSON, what `examine()` finds, and for a backend that is named what it finds itself. Exit status 1 where either
    names a problem; a note is none. UnknownName, PluginError for a backend that there is not.

    report: a file for all of it, and for the results of tests in a folder; see `iron_core.cli.report`. UsageError where it cannot be
    written."""
    facts = examine()
    found = None if backend is None else choose.examine(choose.get(backend))
    if found is not None:
        facts["examined"] = {"backend": backend, "findings": [attrs.asdict(one) for one in found]}
    wrong = sum(one.state == "problem" for one in found or ())
    status = int(bool(wrong or facts["problems"]))
    if report is not None:
        write(report, facts, results)
        click.echo(f"{printable(report)} is written; read it before you attach it.", err=True)
    if as_json:
        print_json(facts)
        return status
    click.echo(f"iron {facts['iron']['version']} at {facts['iron']['path']}")
    click.echo(f"Python {facts['python']} at {sys.executable}, {facts['platform']}")
    place = printable(facts["cache"]["path"] or "unknown")
    click.echo(f"cache {place} ({'writable' if facts['cache']['state'] == 'writable' else 'see the problems below'})")
    for name, value in facts["environment"].items():
        click.echo(f"{name}={printable(value)}")
    click.echo()
    print_table(("distribution", "version"), list(facts["distributions"].items()))
    click.echo()
    rows = [(f["name"], "available" if f["available"] else "unavailable", says(f)) for f in facts["backends"]]
    print_table(("backend", "state", ""), rows)
    click.echo()
    click.echo(f"devices: {', '.join(facts['devices'])}")
    click.echo(f"plugins: {facts['plugins']} known; `iron plugins list` shows them")
    click.echo()
    if found is not None:
        print_table((f"of {backend}", "state", ""), [(one.what, one.state, _says(one)) for one in found])
        click.echo()
    for kind in ("note", "problem"):
        for one in facts[f"{kind}s"]:
            click.echo(f"{kind}: {printable(one)}")
    if wrong:
        click.echo(f"problem: {wrong} of {backend}, in the table above")
    if not status:
        click.echo("no problems found")
    return status


def _says(one: Finding) -> str:
    """A finding on one line, with what to do."""
    return printable(f"{sentence(one.says)} {one.fix}" if one.fix else one.says)


def examine() -> dict[str, Any]:
    """Versions, folders, probes and every plugin that cannot be used. Loads each plugin; never raises for one.

    A problem is what somebody has to mend; a note is what may be as it is meant to be.
    """
    import iron_core

    records = registry().select(load=True)
    backends = probed()
    wrong = troubles()
    cache = {"path": _path(), "state": "; ".join(wrong) or "writable"}
    # After the probes: a backend that loads may still not be one.
    problems = [
        f"{r.group} {r.name} ({r.owner}) is {r.status}: {sentence(r.detail)}{_advice(r)}"
        for r in records
        if r.detail and r.status not in ("denied", "shadowed") and not refusal(r.distribution)  # mismatched() tells of them once
    ]
    loaded = {r.name for r in records if r.group == "backends" and r.status == "ok"}
    problems += [f"backend {f['name']} is none: {sentence(f['reason'])}" for f in backends if f["broken"] and f["name"] in loaded]
    problems += mismatched(OWN)
    problems += registry().idle
    problems += wrong
    if not any(f["available"] for f in backends if f["name"] not in ("reference", "null")):
        problems.append("no backend but `reference` can run here: see the backends above.")
    notes = [f"{r.group} {r.name} ({r.owner}) is {r.status}: {sentence(r.detail)}" for r in records if r.status == "shadowed"]
    notes += [f"{r.slow}." for r in records if r.slow]
    return {
        "iron": {"version": iron_core.__version__, "path": str(Path(iron_core.__file__).parent)},
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cache": cache,
        "environment": {k: v for k, v in sorted(os.environ.items()) if VARIABLES.fullmatch(k)},
        "distributions": _distributions(),
        "backends": backends,
        "devices": [*DEVICES, *registry().names("devices")],
        "plugins": len(records),
        "notes": notes,
        "problems": problems,
    }


def _advice(record: Record) -> str:
    """What to do about a record that is of no use."""
    if record.status == "ambiguous":
        return f" Say `{record.distribution}:{record.name}`, or hide one: {record.hidden}."
    return "" if record.status == "incompatible" else f" {record.fix}."


def _distributions() -> dict[str, str]:
    """Ours that are installed and everything that registers a plugin or needs iron-core, whether it adds something or not; and the
    libraries iron_core stands on."""
    found = {r.distribution: r.version for r in registry().records}
    named = {normal(name) for name in found}
    for dist in metadata.distributions():
        try:
            if not _IRON.search(dist.read_text("METADATA") or dist.read_text("PKG-INFO") or ""):  # parsing all takes most of a second
                continue
            told = dist.metadata
            name, version = str(told["Name"]), str(told["Version"])
            needs = any(_IRON_CORE.match(needed) for needed in told.get_all("Requires-Dist") or ())
        except Exception:  # somebody else's, damaged
            continue
        if normal(name) not in named and (normal(name) in OWN or needs):
            found[name] = version
            named.add(normal(name))
    for name in ("numpy", "ml_dtypes", "attrs", "pluggy", "click"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def _path() -> str | None:
    """The cache folder, or None where it is not known."""
    try:
        return str(home())
    except CacheError:
        return None
