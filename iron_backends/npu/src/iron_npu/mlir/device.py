"""An array's device: tiles, fifos, links, buffers, locks, functions and cores; everything but how it is driven."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from iron_core.array.design import ArrayDesign, ControlData, FifoData, LinkData
from iron_core.array.pools import fifo_pools
from iron_core.errors import DeclarationError
from iron_npu.mlir.core import print_core, printed_type
from iron_npu.mlir.kernels import KernelObject, Kernels
from iron_npu.mlir.text import Writer, attributes, dense, dims, fifo_type, i32, memref

#: The channel of a shim that control words leave by.
CONTROL_CHANNEL = 0
_TILE_TYPES = {"shim": "ShimNOCTile", "mem": "MemTile", "core": "CoreTile"}


def print_device(
    writer: Writer,
    array: ArrayDesign,
    name: str,
    placement: Mapping[str, tuple[int, int]],
    sequences: Callable[[Writer, dict[str, str]], None],
) -> tuple[KernelObject, ...]:
    """`aie.device(...) @name`. `sequences` prints the runtime sequences, given the SSA names of tiles, buffers and locks.

    placement: (column, row) of every tile, or of some: then mlir-aie places the rest. Returns the objects its cores link.
    """
    kernels = Kernels(array)
    with writer.apart(), writer.block(f"aie.device({array.dev}) @{name}"):
        names = _tiles(writer, array, placement)
        channels = _channels(array, placement)
        for fifo in array.fifos:
            _fifo(writer, fifo, names, channels.get(fifo.name))
        for link in array.links:
            _link(writer, link)
        for control in array.controls:
            _control(writer, control, names, packet_ids(array)[control.name])
        for buffer in array.buffers:
            kind = printed_type(array, buffer.name)
            initial = ""
            if buffer.initial:
                padding = (0,) * (kind.elements - buffer.type.elements)
                initial = f" = {dense((*buffer.initial, *padding), kind)}"
            text = f'aie.buffer({names[buffer.tile]}) {{sym_name = "{buffer.name}"}} : {memref(kind)}{initial}'
            names[buffer.name] = writer.value(buffer.name, text)
        for lock in array.locks:
            # No sym_name: a main device gets a copy of the lock for every run of a sequence that sets it.
            text = f"aie.lock({names[lock.tile]}) {{init = {lock.initial} : i32}}"
            names[lock.name] = writer.value(lock.name, text)
        # Cores say which functions they call; the declarations go in front of them.
        cores = writer.beside()
        for core in array.cores:
            print_core(cores, array, core, names[core.tile], names, kernels)
        kernels.declare(writer)
        writer.lines(cores)
        sequences(writer, names)
    return kernels.objects()


def _tiles(writer: Writer, array: ArrayDesign, placement: Mapping[str, tuple[int, int]]) -> dict[str, str]:
    """SSA names of the tiles: one physical tile per place, or logical ones if any tile has none."""
    names: dict[str, str] = {}
    if all(tile.name in placement for tile in array.tiles):
        known: dict[tuple[int, int], str] = {}
        for col, row in sorted({placement[tile.name] for tile in array.tiles}):
            known[col, row] = writer.value(f"tile_{col}_{row}", f"aie.tile({col}, {row})")
        return {tile.name: known[placement[tile.name]] for tile in array.tiles}
    for tile in array.tiles:
        place = placement.get(tile.name, (tile.col, tile.row))
        at = ", ".join("?" if n is None else str(n) for n in place)
        names[tile.name] = writer.value(tile.name, f"aie.logical_tile<{_TILE_TYPES[tile.kind]}>({at})")
    return names


def packet_ids(array: ArrayDesign) -> dict[str, int]:
    """The packet id of each control flow."""
    return {control.name: number for number, control in enumerate(array.controls, 1)}


def _channels(array: ArrayDesign, placement: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Sending channels that the tools must not choose: of fifos from a shim that packets drive, or that packets leave."""
    if not array.controls:
        return {}
    found = fifo_pools(array, placement)
    tiles = {tile for control in array.controls for tile in (control.source, control.target)}
    places = {placement.get(tile) for tile in tiles} - {None}
    return {
        fifo.name: found.end(fifo.name, 0).channel
        for fifo in array.fifos
        if fifo.producer in tiles or placement.get(fifo.producer) in places
    }


def _control(writer: Writer, control: ControlData, names: dict[str, str], packet: int) -> None:
    """The channel that control words leave by, and their way to the other tile's control port."""
    writer.line(f"aie.shim_dma_allocation @{control.name}({names[control.source]}, MM2S, {CONTROL_CHANNEL})")
    with writer.block(f"aie.packet_flow({packet})"):
        writer.line(f"aie.packet_source<{names[control.source]}, DMA : {CONTROL_CHANNEL}>")
        writer.line(f"aie.packet_dest<{names[control.target]}, TileControl : 0>")


def _fifo(writer: Writer, fifo: FifoData, names: dict[str, str], channel: int | None) -> None:
    source = names[fifo.producer]
    if fifo.to_stream:
        source += f" dimensionsToStream {dims(fifo.to_stream)}"
    orders = fifo.from_stream or ((),) * len(fifo.consumers)
    sinks = ", ".join(
        names[tile] + (f" dimensionsFromStream {dims(order)}" if order else "")
        for tile, order in zip(fifo.consumers, orders, strict=True)
    )
    depths = fifo.depth if isinstance(fifo.depth, tuple) else (fifo.depth,)
    depth = ", ".join(f"{n} : i32" for n in depths)
    # One depth is for the whole fifo, of which a core's end takes what it acquires and one more; one per end is as it is.
    depth = f"[{depth}]" if isinstance(fifo.depth, tuple) else depth
    pads = ", ".join(f"<const_pad_before = {before}, const_pad_after = {after}>" for before, after in fifo.pad)
    given = attributes(
        {
            "padDimensions": f"#aie<bd_pad_layout_array[{pads}]>" if pads else None,
            "padValue": i32(fifo.pad_value or None),
            "prod_dma_channel": i32(channel),
            "repeat_count": i32(fifo.repeat if fifo.repeat > 1 else None),
            "via_DMA": "true" if fifo.via_dma else None,
        }
    )
    kind = fifo_type(fifo.type)
    if fifo.consumer_type is not None:
        kind += f" -> {fifo_type(fifo.consumer_type)}"
    if fifo.init:
        if len(fifo.init) != depths[0]:
            raise DeclarationError(f"fifo {fifo.name}: {len(fifo.init)} initial objects; legal: {depths[0]}, its depth, or none.")
        kind += f" = [{', '.join(f'{dense(one, fifo.type)} : {memref(fifo.type)}' for one in fifo.init)}]"
    writer.line(f"aie.objectfifo @{fifo.name}({source}, {{{sinks}}}, {depth}){given} : {kind}")


def _link(writer: Writer, link: LinkData) -> None:
    sources, targets = (", ".join(f"@{name}" for name in side) for side in (link.sources, link.targets))
    many = len(link.sources) > 1 or len(link.targets) > 1
    if not many and any(link.offsets):
        raise DeclarationError(f"link of {link.sources[0]} to {link.targets[0]} alone at offset {link.offsets[0]}; legal: 0.")
    offsets = ", ".join(str(n) for n in link.offsets) if many else ""
    here, there = (offsets, "") if link.kind == "join" else ("", offsets)
    writer.line(f"aie.objectfifo.link [{sources}] -> [{targets}]([{here}] [{there}])")
