"""`Name`: what a pack is called, as a distribution, as a package, and within names of its own."""

from __future__ import annotations

import keyword
import re
import sys
from importlib.metadata import PackageNotFoundError, distribution

import attrs

from iron_core.errors import UsageError
from iron_core.plugins.record import OWN, normal

#: Words behind a name that say what kind of pack it is, and "iron" in front: what is left names the things in it.
_BEHIND = ("ops", "operator", "operators", "backend", "model", "models", "format", "formats", "reader", "pack")
#: A name as PEP 503 writes it, of letters, digits and single hyphens, beginning with a letter, as a package does. Lines that have a
#: longer one in them would be too long.
_LEGAL = re.compile(r"(?=.{1,40}$)[a-z][a-z0-9]*(-[a-z0-9]+)*")
#: Words of C++ that a namespace cannot be called, where they are none of Python's.
_CPP = frozenset(
    "alignas alignof asm auto bitand bitor bool case catch char compl concept const constexpr default delete do double dynamic enum "
    "explicit export extern false float friend goto inline int iron long mutable namespace new noexcept nullptr operator private protected "
    "public register requires short signed sizeof static std struct switch template this throw true typedef typeid typename union "
    "unsigned using virtual void volatile xor".split()
)


@attrs.frozen
class Name:
    """distribution: "acme-ops". package: "acme_ops". dashed: "acme", by which backends and models are called; prefix, "acme", in front of
    operators and formats; camel, "Acme", in front of classes."""

    distribution: str

    @property
    def package(self) -> str:
        return self.distribution.replace("-", "_")

    @property
    def dashed(self) -> str:
        words = self.distribution.split("-")
        if words[0] == "iron" and len(words) > 1:
            words = words[1:]
        if words[-1] in _BEHIND and len(words) > 1:
            words = words[:-1]
        return "-".join(words)

    @property
    def prefix(self) -> str:
        return self.dashed.replace("-", "_")

    @property
    def camel(self) -> str:
        words = "".join(word.capitalize() for word in self.dashed.split("-"))
        return words if words.isidentifier() else f"Pack{words}"


def checked(given: str) -> Name:
    """The name of a new pack; UsageError for one that no distribution or no package may have, or that is somebody's here."""

    def refuse(why: str, legal: str = "") -> UsageError:
        return UsageError(f"new-pack {given!r}: {why}. Legal: {legal or 'another name, as acme-ops'}.")

    if not _LEGAL.fullmatch(given):
        near = normal(given).strip("-")
        hint = f" such as {near}" if _LEGAL.fullmatch(near) else " such as acme-ops"
        raise refuse("no name of a distribution", f"lower-case letters, digits and single hyphens, a letter first, 40 at most,{hint}")
    name = Name(given)
    if given in OWN or given == "iron":
        raise refuse("that is one of Iron's own distributions")
    for package in {name.package, name.prefix}:
        if keyword.iskeyword(package) or package in _CPP or package in sys.stdlib_module_names:
            raise refuse(f"{package} is a word or a module of the language, which no package can be called")
    try:
        found = distribution(given)
    except PackageNotFoundError:
        return name
    raise refuse(f"{given} {found.version} is installed here")
