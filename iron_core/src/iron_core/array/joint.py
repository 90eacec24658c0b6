"""Arrays that share one configuration: one array of all their parts, and each one's sequences on it.

It works because every core waits for what its own array's sequence gives it: while another one's runs, it rests. Parts are named for the
array that they come from; nothing else changes, so each computes what it does by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import attrs

from iron_core.array import limits
from iron_core.array import program as core
from iron_core.array import sequence as host
from iron_core.array.design import ArrayDesign, Design, TileData
from iron_core.array.fit import fit
from iron_core.array.pools import TilePlacement
from iron_core.devices import device
from iron_core.errors import Unresolvable

#: Where recorded programs and sequences name a part of an array, and not only one another's variables.
_NAMED: Mapping[type, str] = {
    core.Acquire: "fifo",
    core.Release: "fifo",
    core.Local: "buffer",
    core.WaitBarrier: "barrier",
    core.RaiseBarrier: "barrier",
    core.AcquireLock: "lock",
    core.ReleaseLock: "lock",
    host.Transfer: "fifo",
    host.WriteWord: "buffer",
    host.SetBarrier: "lock",
}


@attrs.frozen(eq=False)
class Joint:
    """`array`: that of all members. `prefixes`: what the parts of each are named with."""

    array: ArrayDesign
    members: tuple[ArrayDesign, ...]
    prefixes: tuple[str, ...]

    def design(self, own: Design) -> Design:
        """A member's design on the configuration of all. Equal ones are one object."""
        return _design(self, own)


@lru_cache(maxsize=1024)
def _design(joint: Joint, own: Design) -> Design:
    prefix = joint.prefixes[joint.members.index(own.array)]
    steps = tuple(
        attrs.evolve(step, words=tuple((prefix + buffer, index, word) for buffer, index, word in step.words))
        if isinstance(step, host.Sync)
        else _renamed(step, prefix)
        for step in own.sequence.steps
    )
    return Design(joint.array, attrs.evolve(own.sequence, steps=steps))


@lru_cache(maxsize=256)
def join(members: tuple[ArrayDesign, ...]) -> Joint:
    """The arrays of one device as one. Unresolvable where two pin a core to one place, or one is driven by control packets.

    Tiles of two members that are pinned to one shim or memory tile are one tile. Members that pin columns are moved side by side where
    all of them have room.
    """
    prefixes = tuple(f"{member.name}{number}__" for number, member in enumerate(members))
    for member in members:
        if member.controls:
            raise Unresolvable(f"{member.name}: control packets write its shims' registers; it shares no configuration. Legal: alone.")
    joined = [_prefixed(*each) for each in zip(members, prefixes, _shifts(members), strict=True)]
    tiles, same = _tiles(joined)
    kernels = {kernel.symbol: kernel for member in joined for kernel in member.kernels}
    different = next((k.symbol for member in joined for k in member.kernels if kernels[k.symbol] != k), None)
    if different:
        raise Unresolvable(f"{' and '.join(m.name for m in members)} call two kernels {different}. Legal: each alone.")
    parts = {name: tuple(part for member in joined for part in getattr(member, name)) for name in _PARTS}
    array = ArrayDesign("_".join(dict.fromkeys(m.name for m in members)), members[0].dev, tiles, kernels=tuple(kernels.values()), **parts)
    return Joint(_on(array, same), members, prefixes)


_PARTS = ("fifos", "links", "buffers", "locks", "cores", "lanes", "values")


def _shifts(members: Sequence[ArrayDesign]) -> list[int]:
    """By how many columns each is moved: not at all where not all have room side by side."""
    widths = [max((tile.col + 1 for tile in member.tiles if tile.col is not None), default=0) for member in members]
    if sum(widths) > device(members[0].dev).columns:
        return [0] * len(members)
    return [sum(widths[:number]) for number in range(len(members))]


def _prefixed(array: ArrayDesign, prefix: str, shift: int) -> ArrayDesign:
    """An array with the names of all its parts, and the columns it pins, changed."""

    def named(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(prefix + name for name in names)

    def moved(tile: TileData) -> TileData:
        return attrs.evolve(tile, name=prefix + tile.name, col=None if tile.col is None else tile.col + shift)

    def of(items: Sequence[Any], *fields: str) -> tuple[Any, ...]:
        return tuple(attrs.evolve(item, **{name: prefix + getattr(item, name) for name in fields}) for item in items)

    return attrs.evolve(
        array,
        tiles=tuple(map(moved, array.tiles)),
        fifos=tuple(attrs.evolve(fifo, consumers=named(fifo.consumers)) for fifo in of(array.fifos, "name", "producer")),
        links=tuple(attrs.evolve(a, sources=named(a.sources), targets=named(a.targets)) for a in of(array.links, "tile")),
        buffers=of(array.buffers, "name", "tile"),
        locks=of(array.locks, "name", "tile"),
        cores=tuple(attrs.evolve(one, program=_renamed(one.program, prefix)) for one in of(array.cores, "name", "tile")),
        lanes=of(array.lanes, "operand", "fifo"),
        values=tuple(attrs.evolve(v, words=tuple((prefix + name, at) for name, at in v.words)) for v in of(array.values, "name")),
    )


def _renamed(item: Any, prefix: str) -> Any:
    """A recorded program or step with a prefix in front of every part it names."""
    if isinstance(item, tuple):
        return tuple(_renamed(one, prefix) for one in item)
    if not attrs.has(type(item)):
        return item
    changes = {}
    for field in attrs.fields(type(item)):
        value = getattr(item, field.name)
        if _NAMED.get(type(item)) == field.name:
            changes[field.name] = prefix + value
        elif isinstance(value, tuple) or attrs.has(type(value)):
            new = _renamed(value, prefix)
            if new is not value:
                changes[field.name] = new
    return attrs.evolve(item, **changes) if changes else item


def _tiles(members: Sequence[ArrayDesign]) -> tuple[tuple[TileData, ...], dict[str, str]]:
    """All tiles, and of those that are pinned where another one is, which that is."""
    places: dict[tuple[int, int], TileData] = {}
    same: dict[str, str] = {}
    for member in members:
        for tile in member.tiles:
            if tile.col is None or tile.row is None:
                continue
            first = places.setdefault((tile.col, tile.row), tile)
            if first is tile:
                continue
            if tile.kind == "core":
                raise Unresolvable(
                    f"{first.name} and {tile.name} are both pinned to column {tile.col}, row {tile.row}. Legal: a placement that leaves "
                    "cores free, or fewer columns."
                )
            same[tile.name] = first.name
    return tuple(tile for member in members for tile in member.tiles if tile.name not in same), same


def _on(array: ArrayDesign, same: Mapping[str, str]) -> ArrayDesign:
    """The array with every end on the tile that stands for its own."""
    if not same:
        return array

    def at(name: str) -> str:
        return same.get(name, name)

    return attrs.evolve(
        array,
        fifos=tuple(attrs.evolve(f, producer=at(f.producer), consumers=tuple(map(at, f.consumers))) for f in array.fifos),
        links=tuple(attrs.evolve(link, tile=at(link.tile)) for link in array.links),
        locks=tuple(attrs.evolve(lock, tile=at(lock.tile)) for lock in array.locks),
    )


@lru_cache(maxsize=1024)
def fit_joint(design: Design) -> TilePlacement:
    """Where the tiles of a `Joint.design` go: placed and routed with all members, and the sequence within every limit. Unresolvable
    otherwise."""
    placement = fit(design.array)
    limits.check(design, device(design.array.dev), placement)
    return placement
