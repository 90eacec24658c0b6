"""Pins between distributions of Iron and packs for it: what each says it needs of the others, held against what is there.

An installer sees to them; one that is told not to (`--no-deps`), or an upgrade of a part, leaves versions together that do not fit.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from importlib import metadata
from typing import Any

from iron_core.errors import printable

CORE = "iron-core"


def _plain(name: str) -> str:
    """A distribution's name as requirements are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


#: `iron-core >=2,<3; extra == "x"`: a name, extras, versions, a marker.
_NEEDED = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^]]*\])?\s*\(?([^;)@]*)\)?\s*(;.*)?\Z")
_PIN = re.compile(r"\s*(===|==|!=|<=|>=|~=|<|>)\s*v?(\d[\w.+!*-]*)\s*\Z")
_SHOWN = 60


def unmet(name: str, of: Collection[str]) -> list[str]:
    """What the distribution of this name says it needs of these and does not have, each as "needs iron-core<2, and iron-core 2.0.0 is
    installed". Requirements of extras, and versions that are written in another way, are passed over."""
    asked = [(needed, pin) for needed, pin in _requirements(name) if needed in of and not _fits(needed, pin)]
    return [f"needs {needed}{pin}, and {_installed(needed)}" for needed, pin in asked]


def mismatched(own: Collection[str]) -> list[str]:
    """Of everything installed that needs one of these, Iron's own: whose needs are not met, what is there instead, and what to do."""
    found: dict[str, str] = {}
    for dist in metadata.distributions():
        try:
            text = dist.read_text("METADATA")
            if text is not None and "iron" not in text.lower():  # parsing all of them takes a third of a second
                continue
            name, version = str(dist.metadata["Name"] or ""), str(dist.version)
            if any(_plain(match[1]) in own for line in dist.requires or () if (match := _NEEDED.match(line))):
                found.setdefault(_plain(name), f"{name} {version}")  # the first on the path is the one that is imported
        except Exception:  # somebody else's, damaged
            continue
    return [f"{printable(who, _SHOWN)} {why}. {_advice(name, own)}" for name, who in sorted(found.items()) for why in unmet(name, own)]


def _advice(name: str, own: Collection[str]) -> str:
    if name in own:
        return "Install all of Iron's distributions again, in one version."
    return f"Install a version of {name} for this iron, or hide it: IRON_PLUGINS=-{name}."


@lru_cache(maxsize=256)
def refusal(name: str) -> str:
    """Why a pack is none for this iron, by what it says itself: with both versions; "" of one that is."""
    return "; ".join(unmet(name, (CORE,)))


def _requirements(name: str) -> Iterator[tuple[str, str]]:
    """(distribution, its pins) of what one needs without extras."""
    try:
        lines = metadata.distribution(name).requires or []
    except Exception:  # not installed, or damaged, which is told elsewhere
        return
    for line in lines:
        match = _NEEDED.match(line)
        if match and "extra" not in (match[3] or ""):
            yield _plain(match[1]), match[2].strip()


def _installed(name: str) -> str:
    found = _version(name)
    return f"{name} {found} is installed" if found else f"{name} is not installed"


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except Exception:
        return None


def _fits(name: str, pins: str) -> bool:
    found = _version(name)
    if found is None:
        return False
    here = _numbers(found)
    return all(_one(here, match[1], match[2]) for pin in pins.split(",") if (match := _PIN.match(pin)))


def _one(here: tuple[int, ...], sign: str, said: str) -> bool:
    """Is one pin met? By the numbers of releases alone: a candidate of 3.0 counts as 3.0."""
    starred, want = said.endswith(".*"), _numbers(said)
    length = max(len(here), len(want))
    a, b = (numbers + (0,) * (length - len(numbers)) for numbers in (here, want))
    begins = a[: len(want)] == want
    answers: dict[str, Any] = {
        "==": begins if starred else a == b, "===": a == b, "!=": not (begins if starred else a == b),
        "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "~=": a >= b and a[: len(want) - 1] == want[:-1],
    }  # fmt: skip
    return bool(answers[sign])


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers of a release: 2.0.1 of "2.0.1rc1"."""
    match = re.match(r"(?:\d+!)?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in match[1].split(".")) if match else ()
