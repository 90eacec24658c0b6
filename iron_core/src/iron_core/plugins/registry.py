"""The registry of entry points: names from metadata, code loaded late, one owner a name, failures kept as data.

`IRON_PLUGINS` allows and denies distributions: "" loads none but Iron's own, "a,b" only these (and Iron's own),
"-a" all but a. `IRON_PLUGINS_DEBUG=1` lets a plugin's own exception through.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable
from functools import lru_cache
from importlib import metadata
from typing import Any

from iron_core.errors import PluginError, UnknownName
from iron_core.plugins.record import LEVELS, Record

_GROUP = re.compile(r"iron\.([a-z]+)\.v(\d+)\Z")
#: Distributions of this project; an allow-list never hides them.
OWN = frozenset(
    f"iron-{name}" for name in ("core", "ops-aie", "ops-flm", "host", "sim", "npu", "lm", "llama", "qwen3", "gemma3", "tuner")
)
#: Names that are no entry points and belong to Iron: a plugin's of the same name is reported and never reached.
RESERVED = {"commands": frozenset({"run", "models", "operators", "backends", "plugins", "doctor"})}
#: Groups with a `list` command of their own.
LISTED = ("models", "operators", "backends")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _short(group: str) -> str:
    """ "iron.operators.v1" or "operators" as "operators"; UnknownName for anything else."""
    match = _GROUP.match(group)
    short = match.group(1) if match else group
    if short not in LEVELS:
        raise UnknownName(f"no plugin group {group!r}. Groups: {', '.join(LEVELS)}.")
    return short


def allowed(distribution: str, switch: str | None) -> bool:
    """Does `IRON_PLUGINS=switch` (None: unset) let this distribution in?"""
    if switch is None:
        return True
    words = [w.strip() for w in switch.split(",") if w.strip()]
    name = _normal(distribution)
    if name in {_normal(w[1:]) for w in words if w.startswith("-")}:
        return False
    allow = {_normal(w) for w in words if not w.startswith("-")}
    if not allow and words:
        return True
    return name in allow or name in OWN


def scan(distributions: Iterable[Any] | None = None) -> list[Record]:
    """A record for every `iron.*` entry point of the installed distributions. Imports nothing."""
    records: dict[tuple[str, int, str, str], Record] = {}
    for dist in metadata.distributions() if distributions is None else distributions:
        try:
            text = dist.read_text("entry_points.txt") or ""
            if "iron." not in text:
                continue
            name, version, entries = dist.metadata["Name"] or "?", dist.version or "?", dist.entry_points
        except Exception:  # another distribution's broken metadata is not ours to fail on
            continue
        for entry in entries:
            match = _GROUP.match(entry.group)
            if match and match.group(1) in LEVELS:
                key = (match.group(1), int(match.group(2)), entry.name, _normal(name))
                # The first on the path is the one an import would take.
                records.setdefault(key, Record(key[0], key[1], entry.name, entry.value, name, version, entry))
    return sorted(records.values(), key=lambda r: (list(LEVELS).index(r.group), r.name, r.distribution))


class Registry:
    """Every plugin this process can see."""

    def __init__(self, records: list[Record], switch: str | None = None, debug: bool = False) -> None:
        self.debug = debug
        self.records = records
        self._by_name: dict[tuple[str, str], list[Record]] = {}
        for record in records:
            level = LEVELS[record.group]
            if not allowed(record.distribution, switch):
                record.status, record.detail = "denied", f"hidden by IRON_PLUGINS={switch}"
            elif record.level != level:
                record.status = "incompatible"
                record.detail = (
                    f"built for {record.group} v{record.level}, this iron reads v{level}. Upgrade "
                    f"{record.distribution if record.level < level else 'iron-core'}."
                )
            elif record.name in RESERVED.get(record.group, ()):
                record.status, record.detail = "ambiguous", f"{_kind(record.group)} `{record.name}` is Iron's own"
            else:
                self._by_name.setdefault((record.group, record.name), []).append(record)
        for owners in self._by_name.values():
            if len(owners) > 1:
                for record in owners:
                    others = ", ".join(o.owner for o in owners if o is not record)
                    record.status, record.detail = "ambiguous", f"also provided by {others}"

    def names(self, group: str) -> list[str]:
        """Names that can be asked for in a group."""
        short = _short(group)
        return sorted(name for kind, name in self._by_name if kind == short)

    def find(self, group: str, name: str) -> Any:
        """The object of a name, or None if no distribution provides it; PluginError if it cannot be had."""
        short = _short(group)
        qualifier, colon, bare = name.rpartition(":")
        owners = self._by_name.get((short, bare), [])
        hidden = [r for r in self.records if (r.group, r.name) == (short, bare)]
        if colon:
            owners, hidden = ([r for r in rs if _normal(r.distribution) == _normal(qualifier)] for rs in (owners, hidden))
        if not owners:
            if hidden:
                record = hidden[0]
                raise PluginError(f"{_kind(short)} `{name}` is provided by {record.owner}, which is {record.status}: {record.detail}")
            return None
        if len(owners) > 1:
            choices = " or ".join(f"`{o.distribution}:{o.name}`" for o in owners)
            raise PluginError(
                f"{_kind(short)} `{name}` is provided by {' and by '.join(o.owner for o in owners)}. Say which: {choices}; or "
                f"hide one: IRON_PLUGINS=-{owners[-1].distribution}."
            )
        record = owners[0]
        if not record.load(debug=self.debug):
            raise PluginError(
                f"{_kind(short)} `{name}` is provided by {record.owner} (entry point `{record.name} = {record.value}`), which "
                f"failed to load: {record.detail}. Fix it or hide it: IRON_PLUGINS=-{record.distribution}."
            )
        return record.object

    def load(self, group: str, name: str) -> Any:
        """The object of a name; UnknownName, with near names and the plugins that failed, if there is none."""
        found = self.find(group, name)
        if found is not None:
            return found
        short = _short(group)
        known = self.names(short)
        lower = {k.lower(): k for k in known}
        near = difflib.get_close_matches(name.lower(), lower, 1)
        hint = f" Did you mean `{lower[near[0]]}`?" if near else ""
        packs = {o.distribution for (g, _), owners in self._by_name.items() if g == short for o in owners}
        listing = ", ".join(known) if len(known) <= 8 else f"{len(known)} from {len(packs)} distributions"
        failed = {r.owner: r.detail for r in self.records if r.status == "failed"}
        broken = "".join(f" {owner} failed to load and may be its owner: {why}." for owner, why in failed.items())
        command = f"iron {short} list" if short in LISTED else f"iron plugins list --group {short}"
        raise UnknownName(f"no {_kind(short)} `{name}`.{hint} Known: {listing or 'none'}; `{command}`.{broken}")

    def select(self, group: str | None = None, load: bool = False) -> list[Record]:
        """Records, of one group or all; with `load`, after trying to load each."""
        chosen = [r for r in self.records if group is None or r.group == _short(group)]
        if load:
            for record in chosen:
                record.load(debug=self.debug)
        return chosen


def _kind(group: str) -> str:
    return group.removesuffix("s")


@lru_cache(maxsize=1)
def registry() -> Registry:
    """The process's registry, made on first use; `registry.cache_clear()` looks again."""
    return Registry(scan(), os.environ.get("IRON_PLUGINS"), os.environ.get("IRON_PLUGINS_DEBUG") == "1")
