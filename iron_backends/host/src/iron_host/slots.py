"""`Slots`: what a kernel is given, by name. One table is both the C++ struct that a kernel takes and the call that fills it.

    ROW_SUMS = Slots("acme::RowSums", types=("T",), pointers={"x": "const T", "y": "T"}, ints=("valid", "cols"))

declares `template <class T> struct RowSums { const T* x; T* y; int64_t valid, cols; ... }` in namespace `acme`, made of an
`iron_args`; `ROW_SUMS(x="x", y="y", valid=..., cols=...)` is what a `KernelCall` takes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import numpy as np

from iron_core.errors import DeclarationError

#: Slots of a kernel at most, as iron_host.h has them.
MAX_POINTERS, MAX_INTS, MAX_FLOATS = 8, 24, 4

#: The header that the generated structs stand in.
FILE = "slots.h"

_NAME = re.compile(r"[A-Za-z_]\w*")
_ROW = re.compile(r"([A-Za-z_]\w*)\[(\d+)\]")


def _fits(number: Any) -> bool:
    """May it stand in an integer slot: a whole number, or what follows a per-call one?"""
    if isinstance(number, (int, np.integer)):
        return -(1 << 63) <= int(number) < 1 << 63
    return hasattr(number, "expression")


def _pairs(given: Mapping[str, str] | tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple(given.items()) if isinstance(given, Mapping) else given


def _named(given: Any) -> bool:
    """A tuple of texts?"""
    return isinstance(given, tuple) and all(isinstance(name, str) for name in given)


@attrs.frozen(eq=False)
class Filled:
    """The slots of one call, in their order: what `KernelCall` says may stand in each."""

    table: Slots
    pointers: tuple[Any, ...]
    ints: tuple[Any, ...]
    floats: tuple[float, ...]


@attrs.frozen
class Slots:
    """The slots of a kernel.

    name: of the C++ struct, with its namespaces. types: its template parameters. pointers: name -> type of what it points
    to. ints: int64_t each, "steps[5]" a row of five. floats: double each. DeclarationError where they are more than a
    kernel has, or a name is none or stands twice.
    """

    name: str
    types: tuple[str, ...] = ()
    pointers: tuple[tuple[str, str], ...] = attrs.field(default=(), converter=_pairs)
    ints: tuple[str, ...] = ()
    floats: tuple[str, ...] = ()
    #: By kind: name -> first slot and how many. Kept, for every step of a model asks.
    _places: dict[str, dict[str, tuple[int, int]]] = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise DeclarationError(f"Slots({self.name!r}); legal: the name of the C++ struct, as 'lines::Norms'.")
        for kind in ("types", "ints", "floats"):
            if not _named(getattr(self, kind)):
                raise DeclarationError(f"Slots {self.name}: {kind}={getattr(self, kind)!r}; legal: a tuple of names.")
        if not isinstance(self.pointers, tuple) or not all(_named(pair) and len(pair) == 2 for pair in self.pointers):
            raise DeclarationError(
                f"Slots {self.name}: pointers={self.pointers!r}; legal: a dict, name -> type of what it points to, {{'x': 'const T'}}."
            )
        object.__setattr__(self, "_places", self._placed())
        names = [*(name for name, _ in self.pointers), *(_ROW.sub(r"\1", name) for name in self.ints), *self.floats]
        for name in (*self.name.split("::"), *self.types, *names):
            if not _NAME.fullmatch(name):
                raise DeclarationError(f"Slots {self.name}: {name!r} is no name in C++; legal: letters, digits and _.")
        if len({*names, *self.types, "scratch", "shared"}) < len(names) + len(self.types) + 2:
            raise DeclarationError(f"Slots {self.name}: a name stands twice, or is `scratch` or `shared`, which every kernel has.")
        for kind, most in (("pointers", MAX_POINTERS), ("ints", MAX_INTS), ("floats", MAX_FLOATS)):
            many = sum(count for _, count in self._places[kind].values())
            if many > most:
                raise DeclarationError(f"Slots {self.name}: {many} {kind}; legal: at most {most}.")

    def _placed(self) -> dict[str, dict[str, tuple[int, int]]]:
        found: dict[str, dict[str, tuple[int, int]]] = {}
        for kind, names in (("pointers", [n for n, _ in self.pointers]), ("ints", self.ints), ("floats", self.floats)):
            at, found[kind] = 0, {}
            for name in names:
                row = _ROW.fullmatch(name)
                count = int(row[2]) if row else 1
                found[kind][row[1] if row else name] = (at, count)
                at += count
        return found

    def place(self, name: str) -> int:
        """Which integer slot a name is."""
        return self._places["ints"][name][0]

    def __call__(self, **given: Any) -> Filled:
        """Fill them: pointers left out are NULL, a row is filled up with zeros. DeclarationError for another name, and for a
        number that is left out."""
        places = self._places
        missing = [name for kind in ("ints", "floats") for name in places[kind] if name not in given]
        known = places["pointers"] | places["ints"] | places["floats"]
        if missing or not given.keys() <= known.keys():
            unknown = sorted(given.keys() - known.keys())
            what = f"has no slot {', '.join(unknown)}" if unknown else f"is not given {', '.join(missing)}"
            raise DeclarationError(f"Slots {self.name} {what}; its slots: {', '.join(known)}.")
        ints: list[Any] = []
        for name, (_, count) in places["ints"].items():
            numbers = given[name] if isinstance(given[name], (list, tuple)) else (given[name],)
            for number in numbers:
                if not _fits(number):
                    raise DeclarationError(f"Slots {self.name}: {name}={number!r}; legal: a whole number of 64 bits, or a Member.")
            if len(numbers) > count:
                raise DeclarationError(f"Slots {self.name}: {len(numbers)} numbers for {name}; legal: at most {count}.")
            ints += numbers
            ints += [0] * (count - len(numbers))
        for name in self.floats:
            if not isinstance(given[name], (int, float, np.number)):
                raise DeclarationError(f"Slots {self.name}: {name}={given[name]!r}; legal: a number.")
        pointers = tuple(given.get(name) for name in places["pointers"])
        return Filled(self, pointers, tuple(ints), tuple(float(given[name]) for name in self.floats))

    def write(self, row: Any, **given: Any) -> None:
        """Fill a native step (of dtype `runlist.STEP`) by hand; pointers are addresses."""
        filled = self(**given)
        row["p"][: len(filled.pointers)] = [pointer or 0 for pointer in filled.pointers]
        row["n"][: len(filled.ints)] = filled.ints
        row["f"][: len(filled.floats)] = filled.floats

    @property
    def cpp(self) -> str:
        """The struct: members in the order of the slots, made of the `iron_args` that a kernel is handed."""
        *spaces, name = self.name.split("::")
        members = [(f"{kind}* {slot}", f"({kind}*)a->p[{at}]") for at, (slot, kind) in enumerate(self.pointers)]
        for slot, (at, _) in self._places["ints"].items():
            alone = slot in self.ints
            members.append((f"int64_t {slot}", f"a->n[{at}]") if alone else (f"const int64_t* {slot}", f"a->n + {at}"))
        members += [(f"double {slot}", f"a->f[{at}]") for at, slot in enumerate(self.floats)]
        members += [("void* scratch", "a->scratch"), ("void* shared", "a->shared")]
        head = f"template <{', '.join(f'class {t}' for t in self.types)}> " if self.types else ""
        made = ", ".join(f"{declared.split()[-1]}({value})" for declared, value in members)
        struct = f"{head}struct {name} {{\n  {'; '.join(declared for declared, _ in members)};\n"
        struct += f"  {name}(const iron_args* a) : {made} {{}}\n}};\n"
        return f"namespace {'::'.join(spaces)} {{\n{struct}}}\n" if spaces else struct


def header(tables: Iterable[Slots]) -> str:
    """The text of slots.h: the struct of every table, once."""
    return '#pragma once\n#include "iron_host.h"\n' + "".join(table.cpp for table in dict.fromkeys(tables))
