"""Where the tiles of an array go, as far as the design leaves that free. Deterministic: the same design, the same places.

Cores first: pinned ones, half pinned ones, those whose DMA channels only suffice if some of their peers share memory with
them, the others; each at the first free place, columns filled upwards, next to the most of its peers. Cores that talk to
shims alone are spread over the columns instead, so that each is over shims of its own. Then memory tiles and
shims, which can share one place as long as its channels (and memory, locks and descriptors) suffice: the most demanding
first, where the streams to their peers cross the fewest columns.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from iron_core.array.design import ArrayDesign, TileData
from iron_core.array.pools import Place, fifo_pools, may_share, reaches
from iron_core.devices import CORE_ROW, MEMORY_ROW, SHIM_ROW, Device, TileKind
from iron_core.errors import Unresolvable

#: Places that are tried for cores before the placer gives up.
_TRIES = 20000

Edge = tuple[str, str]


def place(design: ArrayDesign, dev: Device, cores_per_column: int | None = None) -> dict[str, Place]:
    """(column, row) of every tile. Unresolvable where the array does not fit, naming what ran out, used and there.

    cores_per_column: how many cores a column is filled with at most.
    """
    cores = _Cores(design, dev, cores_per_column or _per_column(design, dev))
    found = cores.run()
    return _Others(design, dev, found).run()


def _per_column(design: ArrayDesign, dev: Device) -> int:
    """All rows, or where no core talks to another or to a memory tile, as few as the columns need."""
    kinds = {tile.name: tile.kind for tile in design.tiles}
    ends = [[kinds[tile] for tile in fifo.ends()] for fifo in design.fifos]
    alone = not any("mem" in some or (some[0] == "core" and "core" in some[1:]) for some in ends)
    count = sum(kind == "core" for kind in kinds.values())
    return -(-count // dev.columns) if alone and count else dev.core_rows


def near(one: Place, other: Place) -> bool:
    """Do two cores share the memory of one of them?"""
    return reaches(one, other) or reaches(other, one)


class _Cores:
    """Places for the core tiles: a search that goes back where peers that must be neighbours cannot be."""

    def __init__(self, design: ArrayDesign, dev: Device, rows: int) -> None:
        self.design, self.dev = design, dev
        self.all_cells = [(col, row) for col in range(dev.columns) for row in range(CORE_ROW, CORE_ROW + dev.core_rows)]
        self.cells = [(col, row) for col, row in self.all_cells if row < CORE_ROW + rows]
        self.tiles = [tile for tile in design.tiles if tile.kind == "core"]
        self.edges: list[Edge] = [
            (fifo.producer, fifo.consumers[0])
            for fifo in design.fifos
            if may_share(design, fifo) and fifo.producer != fifo.consumers[0]
        ]
        self.at: dict[str, Place] = {}
        self.taken: set[Place] = set()
        self.tries = 0
        self.deepest = 0
        # Per core and direction: peers by shareable fifos, and how many of them may be far.
        self.peers: dict[tuple[str, str], list[str]] = {}
        for producer, consumer in self.edges:
            self.peers.setdefault((producer, "out"), []).append(consumer)
            self.peers.setdefault((consumer, "in"), []).append(producer)
        self.around = {t.name: [*self.peers.get((t.name, "in"), ()), *self.peers.get((t.name, "out"), ())] for t in self.tiles}
        self.slack: dict[tuple[str, str], int] = {}
        self.need: dict[str, int] = {}
        self._budgets()

    def _budgets(self) -> None:
        shareable = {fifo.name for fifo in self.design.fifos if may_share(self.design, fifo)}
        assert self.dev.core is not None
        used: dict[tuple[str, str], list[str]] = {}
        for end in fifo_pools(self.design).ends:
            if end.way and end.fifo not in shareable:
                used.setdefault((end.tile, end.way), []).append(end.fifo)
        for tile in self.tiles:
            self.need[tile.name] = 0
            for way in ("in", "out"):
                own = used.get((tile.name, way), [])
                left = self.dev.core.channels - len(own)
                if left < 0:
                    who = self.design.core_at(tile.name)
                    raise Unresolvable(
                        f"{self.design.name}: core {who.name if who else tile.name} has {len(own)} fifos {way} by DMA "
                        f"({', '.join(own)}); a core tile has {self.dev.core.channels} channels {way}. Join or split them on a "
                        "memory tile, or send them along one fifo."
                    )
                peers = len(self.peers.get((tile.name, way), ()))
                self.slack[tile.name, way] = min(peers, left)
                self.need[tile.name] += max(0, peers - left)

    def run(self) -> dict[str, Place]:
        if len(self.tiles) > len(self.all_cells):
            raise Unresolvable(
                f"{self.design.name}: {len(self.tiles)} cores; {self.dev} has {self.dev.cores}, {self.dev.columns} columns of "
                f"{self.dev.core_rows}. Use fewer columns or channels."
            )
        order = self.order()
        if not self.search(order, 0):
            self.refuse(order)
        return self.at

    def order(self) -> list[TileData]:
        """Pinned, half pinned, then groups of peers, those with the most neighbours needed first."""
        by_name = {tile.name: tile for tile in self.tiles}
        index = {tile.name: i for i, tile in enumerate(self.tiles)}
        pins = sorted(self.tiles, key=lambda t: (t.col is None) + (t.row is None))
        chosen = [tile.name for tile in pins if tile.col is not None or tile.row is not None]
        rest = {tile.name for tile in self.tiles} - set(chosen)
        done = set(chosen)
        # Members of a group that needs neighbours come together, each next to one that is placed already.
        group = set(self._touching(chosen, rest))
        while rest:
            if not group:
                start = min(rest, key=lambda name: (not self._group_needs(name), index[name]))
                members = self._members(start) & rest
                group = {min(members, key=lambda name: (-self.need[name], index[name]))}
            best = min(
                group, key=lambda name: (-sum(p in done for p in self.around[name]), -self.need[name], index[name])
            )
            chosen.append(best)
            done.add(best)
            rest.discard(best)
            group = (group | set(self.around[best])) & rest
        return [by_name[name] for name in chosen]

    def _touching(self, chosen: list[str], rest: set[str]) -> Iterator[str]:
        return (peer for name in chosen for peer in self.around[name] if peer in rest)

    def _members(self, start: str) -> set[str]:
        seen, todo = {start}, [start]
        while todo:
            for peer in self.around[todo.pop()]:
                if peer not in seen:
                    seen.add(peer)
                    todo.append(peer)
        return seen

    def _group_needs(self, name: str) -> bool:
        return any(self.need[member] for member in self._members(name))

    # -- the search --------------------------------------------------------------------------------

    def search(self, order: list[TileData], depth: int) -> bool:
        self.deepest = max(self.deepest, depth)
        if depth == len(order):
            return True
        tile = order[depth]
        for cell in self.candidates(tile):
            self.tries += 1
            if self.tries > _TRIES:
                return False
            self.at[tile.name] = cell
            self.taken.add(cell)
            if self.holds(tile.name) and self.search(order, depth + 1):
                return True
            del self.at[tile.name]
            self.taken.discard(cell)
        return False

    def candidates(self, tile: TileData) -> list[Place]:
        if tile.col is not None and tile.row is not None:
            return [(tile.col, tile.row)]
        pinned = tile.col is not None or tile.row is not None
        cells = [
            cell
            for cell in (self.all_cells if pinned else self.cells)
            if cell not in self.taken and tile.col in (None, cell[0]) and tile.row in (None, cell[1])
        ]
        placed = [self.at[peer] for peer in self.around[tile.name] if peer in self.at]
        return sorted(cells, key=lambda cell: (sum(not near(cell, other) for other in placed), cell))

    def holds(self, name: str) -> bool:
        """Do the channels of this core and its placed peers still suffice?"""
        return all(self.within(one) for one in (name, *(peer for peer in self.around[name] if peer in self.at)))

    def within(self, name: str) -> bool:
        here = self.at[name]
        missing: set[str] = set()
        for way in ("in", "out"):
            peers = self.peers.get((name, way), [])
            far = sum(peer in self.at and not near(here, self.at[peer]) for peer in peers)
            slack = self.slack.get((name, way), 0)
            if far > slack:
                return False
            unplaced = [peer for peer in peers if peer not in self.at]
            if far + len(unplaced) > slack:
                # At least so many of those to come must be neighbours.
                missing |= set(sorted(unplaced)[: far + len(unplaced) - slack])
        free = sum(cell not in self.taken and near(here, cell) for cell in self.all_cells)
        return len(missing) <= free

    def refuse(self, order: list[TileData]) -> None:
        tile = order[min(self.deepest, len(order) - 1)]
        who = self.design.core_at(tile.name)
        name = who.name if who else tile.name
        assert self.dev.core is not None
        if not any(self.need.values()):
            raise Unresolvable(
                f"{self.design.name}: {len(self.tiles)} cores do not fit {len(self.cells)} free places of {self.dev}, or pins "
                f"leave none for core {name}."
            )
        peers = sorted({*self.around[tile.name]})
        raise Unresolvable(
            f"{self.design.name}: core {name} and its peers ({', '.join(peers)}) need more DMA channels than the "
            f"{self.dev.core.channels} in and {self.dev.core.channels} out of a core tile, and no places are left on {self.dev} "
            f"where {self.need[tile.name]} of them are its neighbours (north, south, west or east of it)."
        )


@attrs.define
class _Room:
    """What is used of one place, or what a tile needs."""

    into: int = 0
    out: int = 0
    nbytes: int = 0
    locks: int = 0
    descriptors: int = 0

    def plus(self, other: _Room) -> _Room:
        return _Room(*(a + b for a, b in zip(attrs.astuple(self), attrs.astuple(other), strict=True)))

    def within(self, tile: TileKind) -> bool:
        memory = self.nbytes <= tile.memory and self.descriptors <= tile.descriptors if tile.memory else True
        return max(self.into, self.out) <= tile.channels and self.locks <= tile.locks and memory

    @property
    def channels(self) -> int:
        return self.into + self.out

    def beyond(self, tile: TileKind) -> str:
        """What a whole tile has less of, in words; empty where all of it would fit an empty one."""
        there = {
            "channels in": (self.into, tile.channels),
            "channels out": (self.out, tile.channels),
            "bytes": (self.nbytes, tile.memory or self.nbytes),
            "descriptors": (self.descriptors, tile.descriptors if tile.memory else self.descriptors),
            "locks": (self.locks, tile.locks),
        }
        return "; ".join(f"{used} {what} and there are {has}" for what, (used, has) in there.items() if used > has)

    def __str__(self) -> str:
        memory = f", {self.nbytes} bytes, {self.descriptors} descriptors" if self.nbytes else ""
        return f"{self.into} channels in, {self.out} out{memory}, {self.locks} locks"


class _Others:
    """Places for memory tiles and shims, once those of the cores are known."""

    def __init__(self, design: ArrayDesign, dev: Device, at: dict[str, Place]) -> None:
        self.design, self.dev, self.at = design, dev, at
        self.used: dict[Place, _Room] = {}
        self.needs: dict[str, _Room] = {tile.name: _Room() for tile in design.tiles}
        found = fifo_pools(design)
        for end in found.ends:
            room = self.needs[end.tile]
            room.into += end.way == "in"
            room.out += end.way == "out"
            room.descriptors += end.descriptors
            room.locks += 2 if not end.pool else 0
        for pool in found.pools:
            room = self.needs[pool.tile]
            room.nbytes += pool.nbytes
            room.locks += pool.locks
        # Nothing else starts or ends where control packets drive a channel.
        self.alone = {control.target for control in design.controls}
        for control in design.controls:
            self.needs[control.source].out += 1
        self.flows: dict[str, list[list[str]]] = {}
        for fifo in design.fifos:
            for tile in set(fifo.ends()):
                self.flows.setdefault(tile, []).append([other for other in fifo.ends() if other != tile])

    def run(self) -> dict[str, Place]:
        self.totals()
        for kind in ("mem", "shim"):
            tiles = [tile for tile in self.design.tiles if tile.kind == kind]
            tiles.sort(key=lambda tile: (tile.col is None, tile.name not in self.alone, -self.needs[tile.name].channels))
            for tile in tiles:
                self.put(tile)
        return {tile.name: self.at[tile.name] for tile in self.design.tiles}

    def totals(self) -> None:
        """Channels of all shims, or of all memory tiles, together: the plainest reason why an array does not fit."""
        for kind, one in (("shim", self.dev.shim), ("mem", self.dev.memtile)):
            assert one is not None
            names = [tile.name for tile in self.design.tiles if tile.kind == kind]
            for field, words in (("out", "out of"), ("into", "into")):
                count = sum(getattr(self.needs[name], field) for name in names)
                there = one.channels * self.dev.columns
                if count > there:
                    what = "shims" if kind == "shim" else "memory tiles"
                    raise Unresolvable(
                        f"{self.design.name}: {count} streams go {words} {what}; {self.dev} has {there} channels for them, "
                        f"{one.channels} in each of {self.dev.columns} columns. Use fewer columns or channels, or broadcast."
                    )

    def put(self, tile: TileData) -> None:
        row, limit = (MEMORY_ROW, self.dev.memtile) if tile.kind == "mem" else (SHIM_ROW, self.dev.shim)
        assert limit is not None
        need = self.needs[tile.name]
        free = []
        for col in range(self.dev.columns) if tile.col is None else (tile.col,):
            there = self.used.get((col, row), _Room())
            whole = there.plus(need)
            alone = any(self.at.get(name) == (col, row) for name in self.alone) or (tile.name in self.alone and there.channels)
            if whole.within(limit) and not (alone and tile.col is None):
                free.append((*self.cost(tile.name, col, there), col))
        if not free:
            what = "memory tile" if tile.kind == "mem" else "shim"
            fifos = sorted({fifo.name for fifo in self.design.fifos if tile.name in fifo.ends()})
            where = f"column {tile.col}" if tile.col is not None else f"any of the {self.dev.columns} columns of {self.dev}"
            memory = f", {limit.memory} bytes, {limit.descriptors} descriptors" if limit.memory else ""
            beyond = need.beyond(limit)
            if beyond:
                smaller = "Use smaller objects, a smaller depth= or repeat_count=, or fewer parts of a join or split."
                if tile.kind == "shim":
                    smaller = "Pin fewer streams to one shim."
                raise Unresolvable(f"{self.design.name}: {what} {tile.name} of {', '.join(fifos)} needs {beyond}. {smaller}")
            raise Unresolvable(
                f"{self.design.name}: {what} {tile.name} of {', '.join(fifos)} needs {need}; in {where} not so much is left of the "
                f"{limit.channels} channels in, {limit.channels} out{memory}, {limit.locks} locks that each has. "
                "Use smaller objects, a smaller depth=, or fewer columns or channels."
            )
        col = min(free)[-1]
        self.at[tile.name] = (col, row)
        self.used[col, row] = self.used.get((col, row), _Room()).plus(need)

    def cost(self, name: str, col: int, there: _Room) -> tuple[int, int, float]:
        """Columns its streams cross; what is there already; how far it is from the middle of its peers."""
        crossed, columns = 0, []
        for others in self.flows.get(name, ()):
            peers = [peer for other in others for peer in self.columns(other, name)]
            if peers:
                crossed += max(0, min(peers) - col) + max(0, col - max(peers))
                columns += peers
        middle = abs(col - sum(columns) / len(columns)) if columns else 0.0
        return crossed, there.channels, middle

    def columns(self, name: str, origin: str) -> list[int]:
        """The column of a placed peer, or those of the placed peers of one that is not."""
        if name in self.at:
            return [self.at[name][0]]
        beyond = [other for others in self.flows.get(name, ()) for other in others if other != origin]
        return [self.at[other][0] for other in beyond if other in self.at]
