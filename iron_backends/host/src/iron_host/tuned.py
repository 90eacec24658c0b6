"""What is tuned on this machine: `host.json` in the cache, a profile of lowerings' tunables that every compile takes up.

It stands under a key of the processor, the compiler and its flags, the threads and the sources of the kernels: where one of them
is another, what was measured says nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from iron_core.aside import aside
from iron_core.backends.measuring import Platform
from iron_core.cache.entry import About
from iron_core.cache.home import make
from iron_core.cache.keylock import locked
from iron_core.cache.keys import digest
from iron_core.cache.store import Cache, optional
from iron_core.declare.profile import Entry, Profile, active_profile, catalog_name
from iron_core.errors import BackendUnavailable, CallError, IronError, printable
from iron_core.lowering.registry import Asked
from iron_core.plugins.record import normal
from iron_core.plugins.registry import registry
from iron_host import build, compiler

FILE = "host.json"
#: Changes whenever the file is written otherwise.
FORMAT = 1
_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
#: What was read, by the file and what that was.
_read: dict[Path, tuple[tuple[int, int, int], Kept]] = {}


def platform(threads: int) -> Platform:
    """The processor's model, its vectors and the threads; how its clock is governed, where the system says so."""
    model = next((line.partition(":")[2].strip() for line in compiler.cpu().splitlines() if line.startswith("model name")), "")
    flags = os.environ.get("IRON_HOST_CXXFLAGS", "").strip()
    road = f"{compiler.vector_width()} ({flags})" if flags else compiler.vector_width()
    try:
        mode = _GOVERNOR.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        mode = ""
    return Platform(f"{model or compiler.cpu().splitlines()[0]}, {road}, {threads} thread{'s' if threads > 1 else ''}", mode or "unknown")


@cache
def _sources() -> str:
    return digest(*((path.name, path.read_bytes()) for path in sorted(build.SOURCES.iterdir())))


def key(threads: int) -> str:
    """The cache key of what is tuned for runs of so many threads. BackendUnavailable where nothing compiles."""
    return digest("tuned", FORMAT, compiler.find().identity, threads, _sources())


class Kept:
    """What is kept: entries by the name of their operator, which becomes a profile where that operator is met."""

    def __init__(self, entries: Iterable[Mapping[str, Any]] = ()) -> None:
        self._fields: dict[str, list[dict[str, Any]]] = {}
        for entry in entries:
            fields = dict(entry)
            self._fields.setdefault(str(fields.pop("operator")), []).append(fields)
        self._profiles: dict[type, Profile] = {}
        #: What was said of them: once is enough.
        self.said: set[str] = set()

    @property
    def fields(self) -> list[tuple[str, list[dict[str, Any]]]]:
        """What the entries say, in order."""
        return sorted(self._fields.items(), key=lambda one: one[0])

    def of(self, cls: type) -> Profile:
        """The entries of an operator, but for those that it does not take any more."""
        if cls not in self._profiles:
            self._profiles[cls] = profile = Profile()
            for fields in self._fields.get(catalog_name(cls), ()):
                try:
                    profile.add(cls, **fields)
                except (IronError, TypeError) as error:
                    self.left(cls, error)
        return self._profiles[cls]

    def lowered(self, op: Any, one: Asked) -> dict[str, Any]:
        """What is kept for the lowering that takes an operator; nothing where its entries contradict each other, or give what it does not
        take."""
        try:
            profile = self.of(type(op.base))
            found = profile.lowered("host", op) if one.lowering is not None and _means(profile, op, one) else {}
            if found and one.lowering is not None:
                one.lowering.tunables(op, "host", found)
            return found
        except IronError as error:
            self.left(type(op.base), error)
            return {}

    def left(self, cls: type, error: Exception) -> None:
        """Say of an entry that it is not used."""
        if str(error) not in self.said:
            self.said.add(str(error))
            _aside(f"an entry of {cls.__name__}", error)

    def whole(self) -> Profile:
        """All entries whose operators are installed."""
        found = Profile()
        for name in self._fields:
            with contextlib.suppress(IronError):
                found.entries += self.of(registry().load("operators", name)).entries
        return found


def kept(threads: int) -> Kept:
    """What is kept for runs of so many threads. Nothing where it cannot be used, which is said."""
    with optional(), contextlib.suppress(BackendUnavailable):
        found, own = Cache("host"), key(threads)
        path = found.path(own) / FILE
        try:
            status = path.stat()
        except OSError:
            return Kept()
        stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
        if path not in _read or _read[path][0] != stamp:
            _read[path] = stamp, _parsed(found.read(own, FILE), threads)
        return _read[path][1]
    return Kept()


def _parsed(content: bytes | None, threads: int) -> Kept:
    """The entries of a file; none, with a line, where it is damaged or of another machine."""
    try:
        if content is None:
            raise ValueError("it has another content than when it was written")
        held = json.loads(content)
        of, here = held["platform"]["name"], platform(threads).name
        if of != here:
            raise ValueError(f"it is of {printable(of, 80)}, and this is {here}")
        return Kept(held["entries"])
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        _aside("the file", error)
        return Kept()


def _aside(what: str, error: Exception) -> None:
    error = ValueError(f"it has no {error}") if isinstance(error, KeyError) else error
    aside(f"iron: host: {FILE} of the cache: {what} is left aside: {printable(error, 200).rstrip('.')}.")


def keep(profile: Profile, threads: int) -> Path:
    """Keep a profile's entries over those there are; where they are kept. CallError for an entry that gives no lowering of the host
    anything; CacheError where nothing can be kept."""
    for entry in profile:
        if not any(name.startswith("host.") for name in entry.give):
            raise CallError(f"host: an entry for {entry.operator.__name__} gives {', '.join(entry.give)}; legal: host.<tunable>.")
    found, own = Cache("host"), key(threads)
    make(found.folder)
    with locked(found.folder, f"{own}-{FILE}"):
        merged = merge(kept(threads).whole(), profile)
        of = platform(threads)
        text = json.dumps({"platform": {"name": of.name, "mode": of.mode}})[:-1] + ', "entries": [\n  '
        text += ",\n  ".join(merged.lines()) + "\n]}\n"
        found.keep(own, FILE, text.encode(), about=About("tuned", of.name), replace=True)
    return found.path(own) / FILE


def merge(before: Profile, more: Profile) -> Profile:
    """The entries of both: where two match the same, what `more` gives goes over what `before` does."""
    merged = Profile()
    for entry in (*before, *more):
        same = next((i for i, e in enumerate(merged.entries) if (e.operator, e.match) == (entry.operator, entry.match)), None)
        if same is None:
            merged.entries.append(entry)
        else:
            merged.entries[same] = Entry(entry.operator, entry.match, merged.entries[same].give | entry.give)
    return merged


class Given:
    """What a compile gives the tunables of its steps' lowerings: the active profile's over the kept ones."""

    def __init__(self, kept: Kept) -> None:
        self.kept, self.active = kept, active_profile()

    def __call__(self, op: Any, one: Asked) -> dict[str, Any]:
        """The tunables given to the lowering that takes this operator, of entries that mean it. CallError for one of the active profile's
        that it does not take."""
        found = self.kept.lowered(op, one)
        return found | self.active.lowered("host", op) if self.active is not None and _means(self.active, op, one) else found


def _means(profile: Profile, op: Any, one: Asked) -> bool:
    """Are a profile's tunables for this lowering: the one that it chooses, or, where it chooses none, the one whose name it is?"""
    chosen = profile.lowering("host", op)
    return one.default if chosen is None else normal(chosen) == normal(one.record.distribution)


def said(given: Mapping[str, Any]) -> str:
    """Tunables in words, for `explain()`."""
    return ", ".join(f"{name}={value}" for name, value in given.items())
