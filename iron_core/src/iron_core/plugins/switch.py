"""`IRON_PLUGINS`, which allows and denies distributions: "" lets in none but Iron's own, "a,b" only these (and Iron's own), "-a" all
but a."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from importlib import metadata

from iron_core.errors import UsageError, printable
from iron_core.plugins.record import OWN, normal

_WORD = re.compile(r"-?\w([\w.-]*\w)?\Z")


def words(switch: str) -> list[str]:
    """The words of `IRON_PLUGINS`; UsageError for one that is no distribution's name."""
    found = [w.strip() for w in switch.split(",") if w.strip()]
    for word in found:
        if not _WORD.match(word):
            raise UsageError(
                f"IRON_PLUGINS={printable(switch, 80)}: {printable(repr(word), 60)} is no distribution's name. Legal: names separated by "
                f"commas, as in iron-acme (only these and Iron's own) or -iron-acme (all but it); empty for Iron's own alone."
            )
    return found


def allowed(distribution: str, switch: str | None, own: bool | None = None) -> bool:
    """Does `IRON_PLUGINS=switch` (None: unset) let this distribution in? `own`: is it Iron's; by its name unless given."""
    if switch is None:
        return True
    given, name = words(switch), normal(distribution)
    if name in {normal(w[1:]) for w in given if w.startswith("-")}:
        return False
    allow = {normal(w) for w in given if not w.startswith("-")}
    if not allow and given:
        return True
    return name in allow or (name in OWN if own is None else own)


def idle(switch: str | None, known: Iterable[str]) -> list[str]:
    """What to say of each word of `IRON_PLUGINS=switch` that hides nothing and lets nothing in. known: the distributions that add
    something to Iron."""
    names = {normal(name) for name in known}
    short = {name.removeprefix("iron-"): name for name in names}  # all begin alike, which says nothing of how near they are
    found = []
    for word in words(switch or ""):
        name = word.removeprefix("-")
        if normal(name) not in names:
            near = difflib.get_close_matches(normal(name).removeprefix("iron-"), short, 1, 0.75)
            hint = f" Did you mean {short[near[0]]}?" if near else ""
            state = "is installed and adds nothing to Iron" if installed(name) else "is not installed"
            found.append(f"IRON_PLUGINS names {name}, which {state}.{hint}")
    return found


def installed(distribution: str) -> bool:
    """Is a distribution installed, whatever it adds?"""
    try:
        metadata.distribution(distribution)
    except (metadata.PackageNotFoundError, ValueError):
        return False
    return True
