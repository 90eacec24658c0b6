"""Lines of MLIR: indentation, fresh SSA names, constants that are written once per region."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from iron_core.declare.objects import ObjectType
from iron_core.errors import DeclarationError

#: numpy's name of a dtype -> MLIR's. Integers are signless there; what reads them says how to widen.
ELEMENTS = {
    "int8": "i8",
    "uint8": "i8",
    "int16": "i16",
    "uint16": "i16",
    "int32": "i32",
    "uint32": "i32",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
}


def element(dtype_name: str) -> str:
    """MLIR's name of a dtype; DeclarationError for one that no NPU tile holds."""
    try:
        return ELEMENTS[dtype_name]
    except KeyError:
        raise DeclarationError(f"{dtype_name} on an NPU tile; legal: {', '.join(ELEMENTS)}.") from None


def memref(kind: ObjectType) -> str:
    """The flat memref of an object: every pattern of ours is in flat element numbers."""
    return f"memref<{kind.elements}x{element(kind.dtype_name)}>"


def fifo_type(kind: ObjectType) -> str:
    return f"!aie.objectfifo<{memref(kind)}>"


def view_type(kind: ObjectType) -> str:
    return f"!aie.objectfifosubview<{memref(kind)}>"


def dims(pairs: Sequence[tuple[int, int]]) -> str:
    """(size, stride) pairs, outermost first."""
    return "[" + ", ".join(f"<size = {size}, stride = {stride}>" for size, stride in pairs) + "]"


def attributes(given: Mapping[str, str | None]) -> str:
    """` {name = value, ...}` of what is not None, or nothing."""
    written = ", ".join(f"{name} = {value}" for name, value in given.items() if value is not None)
    return f" {{{written}}}" if written else ""


def i32(value: int | None) -> str | None:
    """An i32 attribute."""
    return None if value is None else f"{value} : i32"


def number(value: Any, dtype_name: str) -> str:
    """A literal of a dtype; a float always has a point."""
    if dtype_name.startswith(("int", "uint")):
        return str(int(value))
    text = repr(float(value))
    mantissa, e, exponent = text.partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}{e}{exponent}"


def dense(values: Sequence[Any], kind: ObjectType) -> str:
    """Initial numbers of an object: one number for all of it where they are equal."""
    if len(values) != kind.elements:
        raise DeclarationError(f"{len(values)} initial numbers for {kind.elements}; legal: one for each.")
    if len(set(values)) == 1:
        return f"dense<{number(values[0], kind.dtype_name)}>"
    return f"dense<[{', '.join(number(v, kind.dtype_name) for v in values)}]>"


class Writer:
    """Text under construction. Names of SSA values are unique in the whole text of one writer."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0
        self._used: set[str] = set()
        self._known: list[dict[str, str]] = [{}]

    def line(self, text: str = "") -> None:
        self._lines.append(f"{'  ' * self._depth}{text}" if text else "")

    def fresh(self, base: str) -> str:
        """`%base`, numbered when it was given out before."""
        name, number = base, 0
        while name in self._used:
            number += 1
            name = f"{base}_{number}"
        self._used.add(name)
        return f"%{name}"

    @contextlib.contextmanager
    def block(self, head: str, tail: str = "}") -> Iterator[None]:
        """`head {`, what is written inside, `tail`. What `once` writes inside is not seen after it."""
        self.line(f"{head} {{")
        with self.inner():
            yield
        self.line(tail)

    @contextlib.contextmanager
    def inner(self) -> Iterator[None]:
        """One level deeper."""
        self._depth += 1
        self._known.append({})
        try:
            yield
        finally:
            self._known.pop()
            self._depth -= 1

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """A region that sees nothing `once` wrote outside of it (a core, a sequence), and whose names are its own."""
        known, used, self._known, self._used = self._known, self._used, [{}], set(self._used)
        try:
            yield
        finally:
            self._known, self._used = known, used

    def label(self, text: str) -> None:
        """A block's label, one level further out."""
        self._lines.append(f"{'  ' * max(0, self._depth - 1)}{text}")

    def value(self, base: str, text: str) -> str:
        """`%base = text`; the name."""
        name = self.fresh(base)
        self.line(f"{name} = {text}")
        return name

    def once(self, base: str, text: str) -> str:
        """As `value`, but the name of an equal line that is visible here, if there is one."""
        for scope in self._known:
            if text in scope:
                return scope[text]
        name = self.value(base, text)
        self._known[-1][text] = name
        return name

    def constant(self, value: int, kind: str) -> str:
        """A whole number of a type."""
        base = f"c{'m' if value < 0 else ''}{abs(value)}{'' if kind == 'index' else '_' + kind}"
        return self.once(base, f"arith.constant {value} : {kind}")

    def beside(self) -> Writer:
        """A writer for text that goes into this one later: it gives out no name this one has given out, and they share new ones."""
        other = Writer()
        other._used = self._used
        return other

    def lines(self, other: Writer) -> None:
        """What another writer wrote, at this depth."""
        for line in other._lines:
            self.line(line)

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"
