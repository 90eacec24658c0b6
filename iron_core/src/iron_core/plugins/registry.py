"""The registry of entry points: names from metadata, code loaded late, one owner a name, failures kept as data.

`IRON_PLUGINS` allows and denies distributions, see `iron_core.plugins.switch`; `IRON_PLUGINS_DEBUG=1` lets a plugin's own exception
through.
"""

from __future__ import annotations

import difflib
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from iron_core.errors import DeclarationError, IronError, PluginError, PluginWarning, UnknownName, printable
from iron_core.plugins import foreign
from iron_core.plugins.entry_points import GROUP, scan
from iron_core.plugins.record import LEVELS, MORE, OWN, PREFIXES, Record, normal
from iron_core.plugins.switch import allowed, idle, installed

#: Names that are no entry points and belong to Iron: a plugin's of the same name is reached as `distribution:name` alone.
RESERVED = {
    "commands": frozenset(
        {"run", "models", "operators", "backends", "devices", "plugins", "cache", "doctor", "picture", "bench", "new-pack"}
    ),
    "devices": frozenset({"host", *(f"npu{g}{n}" for g, most in ((1, 4), (2, 8)) for n in ("", *(f"_{c}col" for c in range(1, most))))}),
    "formats": frozenset({"bfloat16", "float32", "float16", "int8", "uint8", "int32", "uint32"}),
}
#: Groups with a `list` command of their own.
LISTED = ("models", "operators", "backends", "devices")
#: Groups whose names are only shown: nobody asks for one, so two may be the same.
_NAMELESS = ("plugins",)


def _short(group: str) -> str:
    """ "iron.operators.v1" or "operators" as "operators"; UnknownName for anything else."""
    match = GROUP.match(group)
    short = match.group(1) if match else group
    if short not in LEVELS:
        raise UnknownName(f"no plugin group {group!r}. Groups: {', '.join(LEVELS)}.")
    return short


class Registry:
    """Every plugin this process can see."""

    def __init__(self, records: list[Record], switch: str | None = None, debug: bool = False) -> None:
        self.debug = debug
        self.records = records
        self._packages: dict[str, Record] = {}
        self._claims: dict[tuple[str, str], list[Record]] = {}
        self._by_name: dict[tuple[str, str], list[Record]] = {}
        for record in records:
            level = LEVELS.get(record.group)
            if not allowed(record.distribution, switch, record.own):
                record.status, record.detail = "denied", f"hidden by IRON_PLUGINS={switch}"
            elif record.status == "failed" or level is None:
                pass  # no entry point: what stands in the place of one
            elif record.level != level:
                record.status = "incompatible"
                record.detail = (
                    f"built for {record.group} v{record.level}, this iron reads v{level}. Upgrade "
                    f"{record.distribution if record.level < level else 'iron-core'}."
                )
            else:
                self._claims.setdefault((record.group, record.name), []).append(record)
        #: What is to be said of words of `IRON_PLUGINS` that do nothing.
        self.idle = idle(switch, (record.distribution for record in records))
        for (group, name), claims in self._claims.items():
            if group in _NAMELESS:
                self._by_name[group, name] = claims
                continue
            if name in RESERVED.get(group, ()):
                for record in claims:
                    _shadow(record, "Iron's own")
                continue
            owners = self._owners(group, name, claims)
            self._by_name[group, name] = owners
            for record in claims:
                if record not in owners:
                    _shadow(record, f"{' and '.join(o.owner for o in owners)}'s")
                elif len(owners) > 1:
                    others = ", ".join(o.owner for o in owners if o is not record)
                    record.status, record.detail = "ambiguous", f"also provided by {others}"

    def _owners(self, group: str, name: str, claims: list[Record]) -> list[Record]:
        """Whose a name is: Iron's, if Iron is among those who claim it; of a lowering the operator's pack's, then the
        backend's; else of all of them alike."""
        ranks: list[Callable[[Record], bool]] = [lambda r: r.own]
        if group == "lowerings":
            backend, _, operator = name.partition(".")
            package = operator.partition(".")[0]
            behind = {normal(r.distribution) for r in self._claims.get(("backends", backend), ())}
            ranks += [lambda r: r.package == package, lambda r: normal(r.distribution) in behind]
        for first in ranks:
            chosen = [r for r in claims if first(r)]
            if chosen:
                return chosen
        return claims

    def names(self, group: str) -> list[str]:
        """Names that can be asked for in a group."""
        short = _short(group)
        return sorted(name for kind, name in self._by_name if kind == short)

    def find(self, group: str, name: str) -> Any:
        """The object of a name, or None if no distribution provides it; PluginError if it cannot be had."""
        record = self.loaded(group, name)
        return None if record is None else record.object

    def loaded(self, group: str, name: str) -> Record | None:
        """The record of a name, after loading it: `.object`, and whose it is. As `find` otherwise."""
        short = _short(group)
        record = self.lookup(short, name)
        if record is not None and not record.load(debug=self.debug):
            raise PluginError(
                f"{_kind(short)} `{name}` is provided by {record.origin}, which failed to load: {record.detail}. {record.fix}."
            )
        return record

    def owners(self, group: str, name: str) -> list[Record]:
        """Those whose name it is, or of `distribution:name` that distribution's; two of a name that is ambiguous."""
        short, bare = _short(group), name.rpartition(":")[2]
        if ":" not in name:
            return self._by_name.get((short, bare), [])
        found = [r for r in self.called(short, name) if r in self._claims.get((short, bare), [])]
        return [r for r in found if r.own] or found

    def called(self, group: str, name: str) -> list[Record]:
        """All of a name, or of `distribution:name`, those that cannot be had included."""
        short, (qualifier, colon, bare) = _short(group), name.rpartition(":")
        named = (r for r in self.records if (r.group, r.name) == (short, bare))
        return [r for r in named if not colon or normal(r.distribution) == normal(qualifier)]

    def lookup(self, group: str, name: str) -> Record | None:
        """The record of a name or of `distribution:name`, not loaded; None if no distribution provides it, PluginError if two
        do or if it is denied or of another level."""
        short = _short(group)
        owners = self.owners(short, name)
        if not owners:
            unusable = ("denied", "incompatible", "failed")
            hidden = [r for r in self.called(short, name) if r.status in unusable]
            if hidden:
                record = hidden[0]
                raise PluginError(f"{_kind(short)} `{name}` is provided by {record.owner}, which is {record.status}: {record.detail}")
            return None
        if len(owners) > 1:
            choices = " or ".join(f"`{_chosen(short, o)}`" for o in owners)
            raise PluginError(
                f"{_kind(short)} `{name}` is provided by {' and by '.join(o.owner for o in owners)}. Say which: {choices}; or "
                f"hide one: {owners[-1].hidden}."
            )
        return owners[0]

    def load(self, group: str, name: str) -> Any:
        """The object of a name; UnknownName, with near names and the plugins that failed, if there is none."""
        found = self.find(group, name)
        if found is None:
            raise UnknownName(self.missing(group, name))
        return found

    def missing(self, group: str, name: str) -> str:
        """What to say of a name that nobody provides: near ones, those there are, and the plugins that failed."""
        short = _short(group)
        known = self.names(short)
        lower = {k.lower(): k for k in known}
        near = difflib.get_close_matches(name.lower(), lower, 1)
        hint = f" Did you mean `{lower[near[0]]}`?" if near else ""
        hint = self.absent(short, name) or hint
        packs = {o.distribution for (g, _), owners in self._by_name.items() if g == short for o in owners}
        listing = ", ".join(known) if len(known) <= 8 else f"{len(known)} from {len(packs)} distributions"
        failed = {r.owner: r.detail for r in sorted(self.records, key=lambda r: r.name == name) if r.status == "failed"}
        broken = "".join(f" {owner} failed to load and may be its owner: {why}." for owner, why in failed.items())
        command = f"iron {short} list" if short in LISTED else f"iron plugins list --group {short}"
        return f"no {_kind(short)} `{printable(name, 80)}`.{hint} Known: {listing or 'none'}; `{command}`.{broken}"

    def absent(self, group: str, name: str) -> str:
        """Of a name that is a distribution's of ours, and that nobody provides: whose it is, and why it is not here; "" of another."""
        word, dot, _ = name.partition(".")
        prefix = PREFIXES.get(word, "") if dot and group == "operators" else ""
        whose = prefix or MORE.get((group, name)) or f"iron-{normal(name)}"
        there = whose == "iron-core" or any(r.group == group and normal(r.distribution) == whose for r in self.records)
        if there or whose not in OWN or not (prefix or group in ("backends", "commands", "models", "checkpoints")):
            return ""
        names = f" Names that begin with `{word}.` are {whose}'s" if prefix else f" `{name}` is {whose}'s"
        return f"{names}, which is {'half installed: install it again' if installed(whose) else 'not installed'}."

    def of_package(self, package: str) -> Record | None:
        """A record whose code is in this top-level package, to say whose it is."""
        if not self._packages:
            theirs = (r for r in reversed(self.records) if r.package not in sys.stdlib_module_names)
            self._packages = {r.package: r for r in sorted(theirs, key=lambda r: r.own)}  # ours last: it stays
        return self._packages.get(package) if package else None

    def behind(self, thing: Any) -> tuple[str, ...]:
        """Whose a class or an object is, and the entry point that names it or its class, if one does; nothing where it is Iron's, or
        nobody's."""
        cls = thing if isinstance(thing, type) else type(thing)
        package = cls.__module__.partition(".")[0]
        whose = self.of_package(package)
        if whose is None or whose.own:
            return ()
        for record in self.records:
            named = record.package == package and record.value.partition(":")[2] == cls.__qualname__
            if named or record.object is thing or record.object is cls:
                return record.owner, record.line
        return (whose.owner,)

    def of_module(self, name: str) -> tuple[str, ...]:
        """As `behind`, of code in a module: its entry point where one alone names the module."""
        whose = self.of_package(name.partition(".")[0])
        if whose is None or whose.own:
            return ()
        named = [record for record in self.records if record.value.partition(":")[0].strip() == name]
        return (named[0].owner, named[0].line) if len(named) == 1 else (whose.owner,)

    def origin(self, thing: Any) -> str:
        """What `behind` says, as an error begins: "iron-acme 0.1 (entry point `acme.Op = acme:Op`)"."""
        owner, *line = self.behind(thing) or ("",)
        return f"{owner} ({line[0]})" if line else owner

    def select(self, group: str | None = None, load: bool = False) -> list[Record]:
        """Records, of one group or all; with `load`, after trying to load each, whose `seconds` are for the caller to tell."""
        chosen = [r for r in self.records if group is None or r.group == _short(group)]
        if load:
            for record in chosen:
                record.load(debug=self.debug, telling=False)
        return chosen


def _kind(group: str) -> str:
    return group.removesuffix("s")


def _chosen(group: str, record: Record) -> str:
    """How one of several is chosen."""
    return f"IRON_LOWERINGS={record.name}={record.distribution}" if group == "lowerings" else f"{record.distribution}:{record.name}"


def _shadow(record: Record, whose: str) -> None:
    record.status = "shadowed"
    record.detail = f"{_kind(record.group)} `{record.name}` is {whose}; this one is `{record.distribution}:{record.name}`"


def _strange_groups(records: list[Record]) -> list[str]:
    """What to say of groups that no iron reads: once for each, though they have several lines."""
    said = {f"{r.owner} has {r.strange}: nothing in it is found. {r.fix}.": r for r in records if r.strange and r.status != "denied"}
    return list(said)


@lru_cache(maxsize=1)
def registry() -> Registry:
    """The process's registry, made on first use, with its warnings; `registry.cache_clear()` looks again."""
    made = Registry(scan(), os.environ.get("IRON_PLUGINS"), os.environ.get("IRON_PLUGINS_DEBUG") == "1")
    for text in (*made.idle, *_strange_groups(made.records)):
        warnings.warn(text, PluginWarning, stacklevel=2)
    return made


def blamed(thing: Any, said: str) -> PluginError | None:
    """A mistake of a plugin's object, told with whose it is and, on its first line, what to do; None where it is of Iron's own
    distributions, or of none."""
    record = registry().of_package(type(thing).__module__.partition(".")[0])
    if record is None or record.own:
        return None
    first, line, rest = said.partition("\n")
    return PluginError(f"{registry().origin(thing)}: {first} {record.fix}.{line}{rest}")


def wrong_answer(thing: Any, part: str, answer: Any, legal: str) -> IronError:
    """What to raise where a part of a plugin's object, or of a script's own, gave what it may not: a PluginError that says whose
    it is; a DeclarationError where it is of no distribution."""
    said = f"{type(thing).__name__}.{part} gave {foreign.kind_of(answer)}; legal: {legal}."
    return blamed(thing, said) or DeclarationError(said)


@contextmanager
def labelled(thing: Any, doing: str) -> Iterator[None]:
    """Around a call of a plugin's object: what it raises is a PluginError that says whose it is. Iron's own errors, those of
    its distributions' code, and signals go on as they are."""
    module = (thing if isinstance(thing, type) else type(thing)).__module__
    record = registry().of_package(module.partition(".")[0])
    if record is None or record.own:
        yield
        return
    try:
        with foreign.guarded():
            yield
    except foreign.Raised as raised:
        if isinstance(raised.error, IronError):
            raise raised.error from None
        at = foreign.place(raised.error, record.package)
        raise PluginError(f"{registry().origin(thing)} failed {doing}: {raised}{at}. {record.fix}.") from raised.error
