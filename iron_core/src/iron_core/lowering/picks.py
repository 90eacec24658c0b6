"""Which distribution's lowering shall take an operator, where several offer one, and who said so.

`lowerings=` of a compile goes over `IRON_LOWERINGS`, and that over the "<backend>.lowering" of a profile's entry.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import attrs

from iron_core.declare.profile import LOWERING, active_profile
from iron_core.errors import CallError, IronError, UsageError, printable
from iron_core.plugins.record import Record, normal
from iron_core.plugins.registry import Registry, registry

#: Entry-point group of lowerings.
GROUP = "iron.lowerings.v1"
#: The environment's word: "host.GEMV=iron-acme", several separated by commas.
VARIABLE = "IRON_LOWERINGS"


@attrs.frozen
class Pick:
    """One choice. name: the lowering's, as its entry points have it; by: where it was made, which makes no difference to what runs."""

    name: str
    distribution: str
    by: str = attrs.field(eq=False)

    @property
    def qualified(self) -> str:
        return f"{self.distribution}:{self.name}"


@attrs.frozen
class Picks:
    """The choices of a compile, in order of their names: equal ones lead to equal images."""

    all: tuple[Pick, ...] = ()

    def of(self, name: str) -> Pick | None:
        return next((pick for pick in self.all if pick.name == name), None)

    def of_backend(self, backend: str) -> Picks:
        """Those that the backend of this name asks."""
        return Picks(tuple(pick for pick in self.all if pick.name.startswith(f"{backend}.")))


#: What was chosen for what is compiled or explained in this thread; None: what the environment says.
_current: ContextVar[Picks | None] = ContextVar("iron_lowerings", default=None)


@contextmanager
def picking(picks: Picks) -> Iterator[None]:
    """Inside the block, in this thread, these choices hold, and not those of the environment."""
    token = _current.set(picks)
    try:
        yield
    finally:
        _current.reset(token)


def picks_of(given: Mapping[str, str] | None) -> Picks:
    """The choices of a compile: those given, over those of `IRON_LOWERINGS`. CallError, or UsageError for the environment's, for a name
    that nobody lowers, or a distribution that does not."""
    if given is None:
        return _of_environment()
    if not isinstance(given, Mapping) or not all(isinstance(word, str) for pair in given.items() for word in pair):
        raise CallError(f"lowerings={printable(repr(given), 80)}; legal: a dict, as in {{'host.GEMV': 'iron-acme'}}.")
    pairs = [(name, distribution, f"lowerings={{{name!r}: {distribution!r}}}") for name, distribution in given.items()]
    own = _picked(pairs, "lowerings=", CallError)
    taken = {pick.name for pick in own}
    return Picks(tuple(sorted((*own, *(p for p in _of_environment().all if p.name not in taken)), key=lambda pick: pick.name)))


def pick_for(name: str, op: Any = None) -> Pick | None:
    """The choice for the lowering of this name; of an operator a profile's entry may make one too."""
    held = _current.get()
    found = (_of_environment() if held is None else held).of(name)
    profile = active_profile()
    if found is not None or profile is None or op is None:
        return found
    backend = name.partition(".")[0]
    said = profile.lowering(backend, op)
    if said is None:
        return None
    return _profiled(registry(), name, said, f"the profile's {backend}.{LOWERING}={said!r} for {type(op.base).__name__}")


@lru_cache(maxsize=256)
def _profiled(known: Registry, name: str, distribution: str, where: str) -> Pick:
    return _pick(name, distribution, where, "the profile", CallError)


def _of_environment() -> Picks:
    text = os.environ.get("IRON_LOWERINGS", "")
    return _parsed(registry(), text) if text else Picks()


@lru_cache(maxsize=64)
def _parsed(known: Registry, text: str) -> Picks:
    pairs = []
    for word in filter(None, (word.strip() for word in text.split(","))):
        name, equals, distribution = (part.strip() for part in word.partition("="))
        if not (name and equals and distribution):
            raise UsageError(
                f"{VARIABLE}={printable(text, 80)}: {printable(repr(word), 60)} is no choice. Legal: NAME=DISTRIBUTION, several separated "
                "by commas, as in host.GEMV=iron-acme."
            )
        pairs.append((name, distribution, f"{VARIABLE}={printable(word, 80)}"))
    return Picks(tuple(sorted(_picked(pairs, VARIABLE, UsageError), key=lambda pick: pick.name)))


def _picked(pairs: list[tuple[str, str, str]], by: str, mistake: type[IronError]) -> list[Pick]:
    found: dict[str, Pick] = {}
    for name, distribution, where in pairs:
        pick = _pick(name, distribution, where, by, mistake)
        if found.setdefault(pick.name, pick) != pick:
            raise mistake(f"{where}: {found[pick.name].distribution} was chosen for {pick.name} too. Legal: one of the two.")
    return list(found.values())


def _pick(name: str, distribution: str, where: str, by: str, mistake: type[IronError]) -> Pick:
    full = next((one for one in _full(name) if registry().called(GROUP, one)), None)
    if full is None:
        raise mistake(
            f"{where}: nobody lowers {printable(name, 80)}.{_near(name)} Legal: <backend>.<operator>, as in host.GEMV; "
            "`iron plugins list --group lowerings`."
        )
    record = registry().lookup(GROUP, f"{distribution}:{full}")
    if record is None:
        offers = ", ".join(one.distribution for one in offering(full))
        raise mistake(f"{where}: {printable(distribution, 80)} has no lowering {full}. Legal: {offers or 'none, for nobody has one'}.")
    return Pick(full, record.distribution, by)


def _full(name: str) -> Iterator[str]:
    """The names of entry points that a choice's may be short for: "host.GEMV" names the operator as its own entry point does."""
    yield name
    backend, _, operator = name.partition(".")
    for record in registry().owners("operators", operator) if operator and ":" not in operator else ():
        yield f"{backend}.{record.package}.{record.value.partition(':')[2].strip()}"


def _near(name: str) -> str:
    known = registry().names(GROUP)
    short = {f"{one.partition('.')[0]}.{one.rpartition('.')[2]}" for one in known}
    near = difflib.get_close_matches(name, [*sorted(short), *known], 1)
    return f" Did you mean {near[0]}?" if near else ""


def offering(name: str) -> list[Record]:
    """Everybody who offers a lowering of this name and is let in, each once."""
    usable = (r for r in registry().called(GROUP, name) if r.status not in ("denied", "incompatible", "failed"))
    return list({normal(record.distribution): record for record in usable}.values())
