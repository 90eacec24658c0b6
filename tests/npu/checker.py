"""What the checks of printed text share: what a device defines, names and their types, and the list of problems."""

from __future__ import annotations

import math
import re

import attrs

from iron_npu.mlir.text import ELEMENTS

#: Bytes of a number, by MLIR's name of its type.
WIDTH = {kind: {"i8": 1, "i16": 2, "f16": 2, "bf16": 2}.get(kind, 4) for kind in ELEMENTS.values()}


@attrs.frozen
class Problem:
    """A line's number, from 1, and what is wrong with it."""

    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}"


@attrs.define
class Fifo:
    line: int
    type: str
    consumer_type: str
    producer: str
    consumers: list[str]
    depths: list[int]
    #: The largest element its orders touch: of the producer's, of each consumer's; and how often an object is sent.
    reach: list[int] = attrs.field(factory=list)
    repeat: int = 1
    #: Ends that something uses: "produce" and the consumers' numbers.
    used: set[str | int] = attrs.field(factory=set)


@attrs.define
class Task:
    line: int
    fifo: str
    token: bool = False
    started: bool = False
    closed: bool = False
    descriptors: list[tuple[int, re.Match[str]]] = attrs.field(factory=list)
    labels: list[str] = attrs.field(factory=list)
    jumps: list[str] = attrs.field(factory=list)


@attrs.define
class Device:
    """What a device's text defines, and what was used of it."""

    line: int
    model: str
    symbols: dict[str, tuple[str, int]] = attrs.field(factory=dict)
    used: set[str] = attrs.field(factory=set)
    fifos: dict[str, Fifo] = attrs.field(factory=dict)
    tiles: dict[str, tuple[str, int | None]] = attrs.field(factory=dict)
    places: set[tuple[int, int]] = attrs.field(factory=set)
    buffers: dict[str, str] = attrs.field(factory=dict)
    locks: dict[str, tuple[int, int]] = attrs.field(factory=dict)
    locked: set[str] = attrs.field(factory=set)
    functions: dict[str, list[str]] = attrs.field(factory=dict)
    sequences: dict[str, list[str]] = attrs.field(factory=dict)
    cores: set[str] = attrs.field(factory=set)
    #: Shim channels of their own by symbol, packet ids, and fifos whose sending channel is given.
    channels: dict[str, str] = attrs.field(factory=dict)
    flows: set[int] = attrs.field(factory=set)
    pinned: set[str] = attrs.field(factory=set)


class Names:
    """The text, the regions open at this line, and what was found so far."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.problems: list[Problem] = []
        self.number = 0
        #: Open regions, outermost first: kind and names (SSA name -> type) defined in it.
        self.regions: list[tuple[str, dict[str, str]]] = [("", {})]
        self.parameters: list[str] = []
        self.words: dict[str, int] = {}
        #: Parameter -> how it is used: as an "address", or as a "number".
        self.moved: dict[str, str] = {}
        self.devices: dict[str, Device] = {}
        #: Devices whose sequences a call runs: those without an array.
        self.mains: set[str] = set()
        self.device = Device(0, "npu2")
        self.tile = ""
        self.held: dict[tuple[str, str], int] = {}
        #: Per open loop: acquired less released by each end in it, and the ends used in loops within it.
        self.loops: list[tuple[dict[tuple[str, str], int], set[tuple[str, str]]]] = []
        self.tasks: dict[str, Task] = {}
        self.task = Task(0, "")
        self.synced = False
        self.configured = ""
        self.entries = 0
        self.ids: dict[int, dict[int, str]] = {}

    def wrong(self, text: str, line: int | None = None) -> None:
        self.problems.append(Problem(self.number if line is None else line, text))

    def define(self, name: str, kind: str, *, outside: bool = False) -> None:
        """An SSA name; `outside`: in the region around the one just opened."""
        regions = self.regions[:-1] if outside else self.regions
        for _, names in reversed(regions):
            if name in names:
                self.wrong(f"{name} is defined twice")
                return
        regions[-1][1][name] = kind

    def type(self, name: str, wanted: str | None = None) -> str:
        """The type of an SSA name, "" if it is undefined here."""
        for region, names in reversed(self.regions):
            if name in names:
                if wanted is not None and names[name] != wanted:
                    self.wrong(f"{name} is {names[name]}, used as {wanted}")
                return names[name]
            if region == "device":
                break
        self.wrong(f"{name} is used before it is defined")
        return ""

    def symbol(self, name: str, kind: str) -> None:
        known = self.device.symbols.setdefault(name, (kind, self.number))
        if known[1] != self.number:
            self.wrong(f"{name} is defined twice in one device")

    def use(self, name: str, kind: str) -> bool:
        """Note that a symbol is used; is it of this kind?"""
        found = self.device.symbols.get(name)
        if found is None or found[0] != kind:
            self.wrong(f"{name} is no {kind} of this device")
            return False
        self.device.used.add(name)
        return True


def elements(kind: str) -> int:
    found = re.match(r"memref<([\dx]+)x\w+>", kind)
    return math.prod(int(n) for n in found[1].split("x")) if found else 0


def element_of(kind: str) -> str:
    found = re.match(r"memref<[\dx]+x(\w+)>", kind)
    return found[1] if found else kind
