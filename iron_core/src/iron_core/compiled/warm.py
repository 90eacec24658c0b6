"""Warm starts: a version that an earlier process planned is taken from the cache, and nothing is traced.

What a plan follows from is known in two parts. The key says what was asked: the model, its weights and states, the input
shapes, the backend and its options, the device, the profile. With the version stand the facts that only the plan could tell, as they were:
the distributions of its operators and their formats, of the backend, and whose lowering each operator has. A version is taken
where all of them still hold.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable

import attrs

from iron_core.backends.protocol import Backend
from iron_core.cache.entry import About
from iron_core.cache.keys import digest, known_sources, sources_digest
from iron_core.cache.store import Cache, optional
from iron_core.declare.profile import active_profile
from iron_core.devices import device
from iron_core.graph.graph import Graph
from iron_core.graph.held import held
from iron_core.graph.signature import Signature
from iron_core.image.arena import guard_bytes
from iron_core.image.plan import VersionPlan
from iron_core.image.planner import Draft
from iron_core.image.skeleton import described, freeze, thaw
from iron_core.lowering.picks import Picks
from iron_core.lowering.registry import candidates, foreign_formats, format_lowering, lowering_name
from iron_core.plugins.registry import registry

_FILE = "version.pickle"


class WarmStart:
    """The place of one version of a graph in the cache. cache_key: digest of the model's sources and config. picks: the lowerings that
    were chosen."""

    def __init__(
        self, graph: Graph, backend: Backend, dev: str, signature: Signature, cache_key: str, fold: bool, picks: Picks
    ) -> None:
        self.graph = graph
        self.backend = backend
        self._held = held(graph)
        residents = sorted((name, kind, shape, str(format)) for name, (kind, shape, format) in described(self._held).items())
        options = attrs.asdict(backend, recurse=False) if attrs.has(type(backend)) else vars(backend)  # type: ignore[arg-type]
        who = (backend.name, type(backend).__module__, type(backend).__qualname__, sorted(options.items()))
        profile = active_profile()
        tunables = [] if profile is None else profile.lines()
        chosen = [pick.qualified for pick in picks.all]
        asked = (cache_key, signature, fold, who, repr(device(dev)), guard_bytes(), residents, tunables, chosen)
        self.key = digest("version", *asked, sources_digest("iron_core"))
        #: What was read or kept: the version's facts and itself.
        self.content: bytes | None = None
        #: Was it read?
        self.warm = False

    def read(self) -> Draft | None:
        """The version over this graph's weights and states; None where there is none, or it is not of what is installed now."""
        with optional():
            content = Cache(self.backend.name).read(self.key, _FILE)
            facts, _, skeleton = (content or b"").partition(b"\n")
            draft = thaw(skeleton, self._held) if _hold(facts) else None
            self.content, self.warm = (None, False) if draft is None else (content, True)
            return draft
        return None

    def keep(self, version: Draft) -> None:
        """Keep it for the next start, where that can be."""
        skeleton = freeze(version, held(self.graph))
        facts = {name: _fact(name) for name in sorted(_names(version.version, self.backend))}
        if skeleton is None or None in facts.values():
            return
        about = About("version", type(self.graph).__name__)
        self.content = json.dumps(facts).encode() + b"\n" + skeleton
        with optional():  # one that is there did not fit
            Cache(self.backend.name).keep(self.key, _FILE, self.content, about=about, replace=True)


def _names(version: VersionPlan, backend: Backend) -> Iterable[str]:
    """What a plan follows from beside what was asked, by name: "package NAME", "lowering NAME"."""
    operators = {type(step.op) for step in version.steps}
    formats = {type(ref.format) for step in version.steps for ref in step.operands.values()}
    classes = {base for cls in (*operators, *formats, type(backend)) for base in cls.__mro__}
    packages = {cls.__module__.partition(".")[0] for cls in classes}
    for name in lowerings(version, backend.name):
        yield f"lowering {name}"
        packages |= {record.package for record in registry().owners("lowerings", name)}
    for step in version.steps:
        packages |= {record.package for _, record in foreign_formats(step.op)}
    yield from (f"package {name}" for name in packages - {"iron_core", *sys.stdlib_module_names})


def lowerings(version: VersionPlan, backend: str) -> set[str]:
    """The names of all lowerings that are asked about a version's steps and the formats of their operands, whether there is one or not.

    The profile's choices among them, so it has to be the active one."""
    found = {name for step in version.steps for name, _ in candidates(backend, step.op)}
    for step in version.steps:
        for ref in step.operands.values():
            if ref.format.packed and not ref.format.planes:
                found.add(format_lowering(backend, ref.format))
        for _, record in foreign_formats(step.op):
            found.add(f"{record.distribution}:{lowering_name(backend, type(step.op))}")
    return found


def _fact(name: str) -> str | None:
    """What is so now: of a package its distribution with its version and its sources, of a lowering whose it is. None: not known."""
    kind, _, name = name.partition(" ")
    if kind == "lowering":
        return ", ".join(f"{record.owner} {record.value}" for record in registry().owners("lowerings", name))
    sources = known_sources(name)
    if sources is None:
        return None
    record = registry().of_package(name)
    return f"{record.owner if record is not None else ''} {sources}"


def _hold(written: bytes) -> bool:
    try:
        facts = json.loads(written)
        return isinstance(facts, dict) and all(_fact(name) == was for name, was in facts.items())
    except ValueError:
        return False
