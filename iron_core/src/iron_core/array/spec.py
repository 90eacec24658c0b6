"""What a well-formed design is, as code: `check` refuses any other, naming the part and what would be legal.

This file holds the rules of tiles, fifos, links, buffers and lanes; `spec_core` those of core programs, `spec_sequence`
those of sequences. How much fits a device is in `limits`.
"""

from __future__ import annotations

import itertools
import math

from iron_core.array.design import ArrayDesign, Design, FifoData, LinkData, StreamDims
from iron_core.array.pools import End, FifoPools, Pool, declared_depth, fifo_pools, pool_name
from iron_core.array.spec_core import check_core
from iron_core.array.spec_sequence import check_sequence
from iron_core.array.tile import ROWS
from iron_core.devices import CORE_ROW, device
from iron_core.errors import DeclarationError


def check(design: Design | ArrayDesign) -> None:
    """DeclarationError at the first rule that the design breaks."""
    array = design.array if isinstance(design, Design) else design
    _names(array)
    _tiles(array)
    for fifo in array.fifos:
        _fifo(array, fifo)
    for link in array.links:
        _link(array, link)
    _linked_once(array)
    _pool_names(array)
    found = fifo_pools(array)
    for end in found.ends:
        _orders(array, found, end)
    _memory(array)
    _lanes(array)
    _controls(array)
    for core in array.cores:
        check_core(array, core)
    if isinstance(design, Design):
        check_sequence(design)


def _names(array: ArrayDesign) -> None:
    """One name, one part. Tiles have names of their own, and so do cores, which nothing refers to."""
    kinds = {
        "tiles": [tile.name for tile in array.tiles],
        "cores": [core.name for core in array.cores],
        "parts": [*_part_names(array), *(kernel.symbol for kernel in array.kernels)],
        "values": [value.name for value in array.values],
    }
    for kind, names in kinds.items():
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise DeclarationError(f"two {kind} of {array.name} are named {twice!r}; give each its own name=.")


def _part_names(array: ArrayDesign) -> list[str]:
    return [
        *(fifo.name for fifo in array.fifos),
        *(buffer.name for buffer in array.buffers),
        *(lock.name for lock in array.locks),
        *(control.name for control in array.controls),
    ]


def _pool_names(array: ArrayDesign) -> None:
    names = set(_part_names(array))
    for fifo in array.fifos:
        for number in range(1, len(fifo.ends())):
            name = pool_name(fifo, number)
            if name in names:
                raise DeclarationError(
                    f"{array.name}: a part is named {name!r}, which is what the consuming end of fifo {fifo.name} is called; "
                    "give it another name=."
                )


def _tiles(array: ArrayDesign) -> None:
    dev = device(array.dev)
    rows = {kind: (row, row) for kind, row in ROWS.items()} | {"core": (CORE_ROW, CORE_ROW + dev.core_rows - 1)}
    places: dict[tuple[int, int], str] = {}
    for tile in array.tiles:
        if tile.kind not in rows:
            raise DeclarationError(f"tile {tile.name} is of kind {tile.kind!r}; legal: shim, mem, core.")
        low, high = rows[tile.kind]
        if tile.row is not None and not low <= tile.row <= high:
            raise DeclarationError(f"tile {tile.name}: row={tile.row}; rows of a {tile.kind} tile on {dev} are {low} to {high}.")
        if tile.col is not None and not 0 <= tile.col < dev.columns:
            raise DeclarationError(f"tile {tile.name}: col={tile.col}; columns of {dev} are 0 to {dev.columns - 1}.")
        if tile.col is not None and tile.row is not None:
            other = places.setdefault((tile.col, tile.row), tile.name)
            if other != tile.name:
                raise DeclarationError(f"tiles {other} and {tile.name} are both pinned to column {tile.col}, row {tile.row}.")
    used = [core.tile for core in array.cores]
    known = {tile.name: tile.kind for tile in array.tiles}
    for core in array.cores:
        if known.get(core.tile) != "core":
            raise DeclarationError(f"core {core.name} is on {core.tile}, a {known.get(core.tile)} tile; legal: a core tile.")
        if used.count(core.tile) > 1:
            raise DeclarationError(f"core {core.name} shares its tile {core.tile} with another core; one tile runs one program.")
        if core.stack < 1:
            raise DeclarationError(f"core {core.name}: stack_size={core.stack}; legal: at least 1 byte.")


def _fifo(array: ArrayDesign, fifo: FifoData) -> None:
    what = f"fifo {fifo.name}"
    known = {tile.name: tile.kind for tile in array.tiles}
    for tile in fifo.ends():
        if tile not in known:
            raise DeclarationError(f"{what}: {tile} is no tile of {array.name}.")
    kinds = [known[tile] for tile in fifo.ends()]
    if len(set(fifo.consumers)) < len(fifo.consumers):
        raise DeclarationError(f"{what} has two consumers on one tile; a core takes each object once. Give it one cons().")
    if kinds[0] == "shim" and "shim" in kinds[1:]:
        raise DeclarationError(f"{what} goes from shim to shim; a sequence could not tell its ends apart.")
    if kinds[1:].count("shim") > 1:
        raise DeclarationError(f"{what} has {kinds[1:].count('shim')} consumers on shims; legal: one.")
    depths = (fifo.depth,) if isinstance(fifo.depth, int) else fifo.depth
    if min(depths) < 1 or (not isinstance(fifo.depth, int) and len(depths) != len(kinds)):
        raise DeclarationError(f"{what}: depth={fifo.depth}; legal: a number of at least 1, or one for each of {len(kinds)} ends.")
    if fifo.from_stream and len(fifo.from_stream) != len(fifo.consumers):
        raise DeclarationError(f"{what}: {len(fifo.from_stream)} orders from the stream for {len(fifo.consumers)} consumers.")
    if kinds[0] == "shim":
        for given, keyword in ((fifo.to_stream, "dims_to_stream"), (fifo.repeat != 1, "repeat_count"), (fifo.init, "init_values")):
            if given:
                raise DeclarationError(f"{what}: {keyword} on a shim; there the pattern of each fill says what is sent.")
    for kind, dims in zip(kinds[1:], fifo.from_stream, strict=False):
        if kind == "shim" and dims:
            raise DeclarationError(f"{what}: dims_from_stream on a shim; there the pattern of each drain says where data goes.")
    if fifo.repeat < 1:
        raise DeclarationError(f"{what}: repeat_count={fifo.repeat}; legal: at least 1.")
    for tile, kind in zip(fifo.ends(), kinds, strict=True):
        if kind == "core" and array.core_at(tile) is None and not any(link.tile == tile for link in array.links):
            raise DeclarationError(f"{what} has an end on {tile}, where no worker runs.")
    _padding(array, fifo, kinds[0])
    _initial(fifo)
    part = fifo.consumer_type
    if part is not None and (part.dtype_name != fifo.type.dtype_name or fifo.type.elements % part.elements):
        raise DeclarationError(f"{what}: consumer_type={part}; legal: {fifo.type.dtype_name}, whole parts of {fifo.type.elements}.")
    _moved_on(array, fifo, kinds)


def _moved_on(array: ArrayDesign, fifo: FifoData, kinds: list[str]) -> None:
    """A memory tile runs no program: what arrives there must leave by a link."""
    for number, (tile, kind) in enumerate(zip(fifo.ends(), kinds, strict=True)):
        if kind != "mem" or (number == 0 and fifo.init):
            continue
        linked = [link for link in array.links if link.tile == tile and fifo.name in (link.sources if number else link.targets)]
        if not linked:
            what = "consumer" if number else "producer"
            raise DeclarationError(f"fifo {fifo.name}: its {what} on {tile} is in no link; use forward, split or join.")


def _padding(array: ArrayDesign, fifo: FifoData, kind: str) -> None:
    if not fifo.pad:
        if fifo.pad_value:
            raise DeclarationError(f"fifo {fifo.name}: pad_value={fifo.pad_value} without pad_dimensions.")
        return
    if kind != "mem":
        raise DeclarationError(f"fifo {fifo.name}: pad_dimensions on a {kind} tile; legal: a producer on a memory tile.")
    if len(fifo.pad) != len(fifo.to_stream):
        raise DeclarationError(
            f"fifo {fifo.name}: {len(fifo.pad)} pad_dimensions for {len(fifo.to_stream)} dims_to_stream; legal: one for each."
        )
    if fifo.pad_value and device(array.dev).arch != "AIE2P":
        raise DeclarationError(f"fifo {fifo.name}: pad_value={fifo.pad_value} on {array.dev}; there it must be 0.")


def _initial(fifo: FifoData) -> None:
    if not fifo.init:
        return
    depth = declared_depth(fifo, 0)
    if len(fifo.init) != depth:
        raise DeclarationError(f"fifo {fifo.name}: {len(fifo.init)} init_values for depth={depth}; legal: one for each object.")
    for values in fifo.init:
        if len(values) != fifo.type.elements:
            raise DeclarationError(f"fifo {fifo.name}: init_values of {len(values)} numbers; an object is {fifo.type}.")


def _link(array: ArrayDesign, link: LinkData) -> None:
    what = f"link of {', '.join(link.sources)} to {', '.join(link.targets)}"
    known = {fifo.name for fifo in array.fifos}
    missing = next((name for name in (*link.sources, *link.targets) if name not in known), None)
    if missing is not None or not link.sources or not link.targets:
        raise DeclarationError(f"{what}: {missing or 'an empty side'} is no fifo of {array.name}.")
    if len(link.sources) > 1 and len(link.targets) > 1:
        raise DeclarationError(f"{what}: a link joins or splits, not both.")
    many = max(len(link.sources), len(link.targets))
    if many > 1 and len(link.offsets) != many:
        raise DeclarationError(f"{what}: {len(link.offsets)} offsets for {many} parts; legal: one for each.")
    kind = array.tile(link.tile).kind
    if kind == "shim" or (kind == "core" and link.kind != "forward"):
        raise DeclarationError(f"{what} on {link.tile}, a {kind} tile; legal: a memory tile.")
    for name in link.sources:
        consumers = array.fifo(name).consumers
        if link.tile not in consumers or (link.kind != "forward" and consumers[0] != link.tile):
            raise DeclarationError(f"{what}: fifo {name} does not arrive at {link.tile}.")
    for name in link.targets:
        if array.fifo(name).producer != link.tile:
            raise DeclarationError(f"{what}: fifo {name} does not leave from {link.tile}.")
    _link_types(array, link, what)
    repeats = {array.fifo(name).repeat for name in link.targets}
    if len(repeats) > 1:
        raise DeclarationError(f"{what}: the parts repeat {sorted(repeats)} times; legal: all alike.")


def _link_types(array: ArrayDesign, link: LinkData, what: str) -> None:
    arriving = [array.fifo(n).type_at(1 + array.fifo(n).consumers.index(link.tile)) for n in link.sources]
    leaving = [array.fifo(n).type for n in link.targets]
    names = {kind.dtype_name for kind in (*arriving, *leaving)}
    if len(names) > 1:
        raise DeclarationError(f"{what}: {' and '.join(sorted(names))}; both sides of a link hold one dtype.")
    if link.kind == "forward":
        pad = array.fifo(link.targets[0]).pad
        small, large = sorted((arriving[0].elements, leaving[0].elements))
        if large % small and not pad:
            raise DeclarationError(f"{what}: objects of {small} and {large} elements; legal: one a whole multiple of the other.")
        return
    whole, parts = (leaving[0], arriving) if link.kind == "join" else (arriving[0], leaving)
    bounds = (*link.offsets, whole.elements)
    if bounds[0] != 0 or any(b <= a for a, b in itertools.pairwise(bounds)):
        raise DeclarationError(f"{what}: offsets {link.offsets} of {whole.elements} elements; legal: rising, from 0, inside it.")
    for i, part in enumerate(parts):
        room = bounds[i + 1] - bounds[i]
        if room % part.elements:
            raise DeclarationError(
                f"{what}: part {i} reaches from {bounds[i]} to {bounds[i + 1]}, {room} elements; its objects have {part.elements}. "
                "Parts lie side by side and fill the whole."
            )


def _linked_once(array: ArrayDesign) -> None:
    names = [name for link in array.links for name in (*link.sources, *link.targets)]
    for name in names:
        if names.count(name) > 1:
            raise DeclarationError(f"fifo {name} is in {names.count(name)} links; legal: one.")


def moved(pool: Pool | None, end: End) -> int:
    """Elements that one descriptor of an end moves, for an end whose parts are alike."""
    if pool is None:
        return end.type.elements
    return pool.parts[end.part or 0][1]


def _orders(array: ArrayDesign, found: FifoPools, end: End) -> None:
    """Every element of what a descriptor moves is read or written once by dims_to_stream, and none outside."""
    if not end.dims:
        return
    keyword = "dims_from_stream" if end.number else "dims_to_stream"
    fifo, pool = array.fifo(end.fifo), found.pool_of(end)
    count = moved(pool, end)
    if pool is not None and end.part is None and len({size for _, size in pool.parts}) > 1:
        raise DeclarationError(f"fifo {end.fifo}: {keyword} applies to every part of its link, and they are not equally large.")
    if min(size for size, _ in end.dims) < 1 or min(stride for _, stride in end.dims) < 0:
        raise DeclarationError(f"fifo {end.fifo}: {keyword}={end.dims}; legal: sizes of at least 1, strides of at least 0.")
    visited, top = _reach(end.dims)
    if visited != count:
        raise DeclarationError(f"fifo {end.fifo}: {keyword}={end.dims} visits {visited} elements; what it orders has {count}.")
    if top >= count:
        raise DeclarationError(f"fifo {end.fifo}: {keyword}={end.dims} reaches element {top}; what it orders has {count}.")
    if fifo.pad and end.number == 0:
        padded = math.prod(size + sum(pad) for (size, _), pad in zip(end.dims, fifo.pad, strict=True))
        if padded != fifo.type.elements:
            raise DeclarationError(
                f"fifo {end.fifo}: padded, dims_to_stream sends {padded} elements; its objects have {fifo.type.elements}."
            )


def _reach(dims: StreamDims) -> tuple[int, int]:
    """How many elements an order visits, and the last."""
    return math.prod(size for size, _ in dims), sum((size - 1) * stride for size, stride in dims)


def _memory(array: ArrayDesign) -> None:
    kinds = {tile.name: tile.kind for tile in array.tiles}
    for buffer in array.buffers:
        if kinds.get(buffer.tile) != "core":
            raise DeclarationError(f"buffer {buffer.name} is on {buffer.tile}; legal: the tile of a worker.")
        if buffer.initial and len(buffer.initial) != buffer.type.elements:
            raise DeclarationError(f"buffer {buffer.name}: {len(buffer.initial)} initial numbers; it is {buffer.type}.")
        if buffer.written and (buffer.type.dtype.kind not in "iu" or buffer.type.dtype.itemsize != 4):
            raise DeclarationError(f"buffer {buffer.name}: {buffer.type} with use_write_rtp; legal: int32 or uint32 words.")
    for lock in array.locks:
        if lock.tile not in kinds or lock.kind not in ("lock", "barrier") or lock.initial < 0:
            raise DeclarationError(f"lock {lock.name}: kind {lock.kind!r} at {lock.initial} on {lock.tile} is no lock of a tile.")
    buffers = {buffer.name: buffer for buffer in array.buffers}
    for value in array.values:
        for name, index in value.words:
            known = buffers.get(name)
            if known is None or not known.written:
                raise DeclarationError(f"value {value.name} is bound to {name}, which is no buffer with use_write_rtp=True.")
            if not 0 <= index < known.type.elements:
                raise DeclarationError(f"value {value.name} is number {index} of buffer {name}, which has {known.type}.")


def _lanes(array: ArrayDesign) -> None:
    fifos = {fifo.name: fifo for fifo in array.fifos}
    shims = {tile.name for tile in array.tiles if tile.kind == "shim"}
    controls = {control.name for control in array.controls}
    seen: dict[str, list[int]] = {}
    for lane in array.lanes:
        fifo = fifos.get(lane.fifo)
        if lane.fifo not in controls and (fifo is None or not shims & set(fifo.ends())):
            raise DeclarationError(f"lane {lane.index} of {lane.operand} is fifo {lane.fifo}, which has no end on a shim.")
        seen.setdefault(lane.operand, []).append(lane.index)
    for operand, indices in seen.items():
        if sorted(indices) != list(range(len(indices))):
            raise DeclarationError(f"lanes of {operand} are {sorted(indices)}; legal: each of 0 to {len(indices) - 1} once.")


def _controls(array: ArrayDesign) -> None:
    """Control words go from one shim to another, which has a column, and drive a fifo that leaves from there."""
    tiles = {tile.name: tile for tile in array.tiles}
    producers = {fifo.name: fifo.producer for fifo in array.fifos}
    for control in array.controls:
        ends = [tiles.get(name) for name in (control.source, control.target)]
        if any(tile is None or tile.kind != "shim" or tile.col is None for tile in ends) or control.source == control.target:
            raise DeclarationError(
                f"control flow {control.name} from {control.source} to {control.target}; legal: two shim tiles with col=."
            )
        if producers.get(control.fifo) != control.target:
            raise DeclarationError(f"control flow {control.name}: fifo {control.fifo} does not leave from {control.target}.")
