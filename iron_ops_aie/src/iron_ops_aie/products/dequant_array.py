"""The array of `Dequant`: a core per column and channel, one tile of int4 at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import (
    ObjectFifo,
    ObjectType,
    Pattern,
    Tile,
    Worker,
    bfloat16,
    nearest,
    range_,
    require,
    require_channels,
    require_dtype,
    require_npu,
    round_to,
)
from iron_core.declare.formats import as_format
from iron_core.devices import LENGTH_UNIT
from iron_ops_aie.products.int4_tiles import INT4_TILES, tiled
from iron_ops_aie.products.kernels_expand import GROUP, expand

#: Cores there may be, and numbers of a tile.
CORES = 16
TILE = 16384
#: A tile has a multiple of so many scales, so that its bytes are whole words; where calls bound the rows, whole 16 bytes.
SCALES, SCALES_BOUNDED = 2, 8
#: Numbers of the longest tile of which a core holds two.
TWICE = 8192


class DequantArray:
    """How a `Dequant` is computed on an array."""

    @property
    def lanes(self: Any) -> int:
        """Cores, and lanes of x and of y."""
        return self.num_aie_columns * self.num_channels

    def kernel(self: Any) -> Any:
        """The `Kernel` of one tile."""
        return expand(self.tile_size, as_format(self.F).group)

    def resolve(self: Any, dev: Any) -> Any:
        """The format's tiles, on as many columns as share them out."""
        require_npu(self, dev)
        require_dtype(self, bfloat16, "T")
        _, least = INT4_TILES.block
        rows = f" with cols={max(least, self.cols // least * least)}" if self.cols % least else ""
        require(
            tiled(self.F),
            f"Dequant: F={self.F}; its array takes tiles of nibbles and bfloat16 scales behind them, as "
            f"iron_ops_aie.products.int4_tiles makes. Legal: F={INT4_TILES}{rows}.",
        )
        (_, tile), channels = self.F.block, self.num_channels or 1
        fits = (c for c in range(min(dev.columns, CORES // channels), 0, -1) if self.rows * self.cols % (tile * c * channels) == 0)
        return self.evolve(
            tile_size=tile,
            tile_bytes=self.F.block_bytes,
            num_channels=channels,
            num_aie_columns=self.num_aie_columns or next(fits, 1),
        )

    def compatible(self: Any, dev: Any) -> None:
        tile, columns, channels, group = self.tile_size, self.num_aie_columns, self.num_channels, self.F.group
        require(
            group % GROUP == 0,
            f"Dequant: F={self.F} has a scale for every {group} numbers; the kernel takes multiples of {GROUP}. Nearest legal: "
            f"int4_tiles({tile}, group={nearest(group, GROUP)}).",
        )
        legal = range(SCALES * group, TILE + 1, SCALES * group)
        require(
            tile in legal,
            f"Dequant: F={self.F} has tiles of {tile} numbers; an array takes multiples of {legal.step} up to {TILE}. Nearest legal: "
            f"int4_tiles({nearest(tile, legal)}, group={group}).",
        )
        require_channels(self)
        most = min(CORES // channels, dev.columns if dev is not None else CORES)
        require(
            columns <= most,
            f"Dequant: num_aie_columns={columns} with num_channels={channels}; there are at most {CORES} cores, and {dev} has "
            f"{getattr(dev, 'columns', 0)} columns. Legal: num_aie_columns={most}.",
        )
        tiles = self.rows * self.cols // tile
        require(
            tiles % self.lanes == 0,
            f"Dequant: num_aie_columns={columns} x num_channels={channels} do not share out {tiles} tiles, rows={self.rows} of "
            f"cols={self.cols}. Legal: num_aie_columns={max(c for c in range(1, columns + 1) if tiles % c == 0)} with "
            "num_channels=1.",
        )

    def array(self: Any, target: Any) -> None:
        def core(tiles: Any, numbers: Any, kernel: Any, count: Any) -> None:
            for _ in range_(count):
                kernel(tiles.acquire(), numbers.acquire())
                tiles.release()
                numbers.release()

        depth = 2 if self.tile_size <= TWICE else 1
        packed = ObjectType.of(self.tile_bytes, np.uint8)
        shims = [Tile("shim") for _ in range(self.num_aie_columns)]
        for lane in range(self.lanes):
            shim = shims[lane // self.num_channels]
            tiles, numbers = ObjectFifo(packed, depth=depth, name=f"x{lane}"), ObjectFifo(self.y.tile, depth=depth, name=f"y{lane}")
            tiles.prod(tile=self.x.lane(lane, shim))
            numbers.cons(tile=self.y.lane(lane, shim))
            Worker(core, [tiles.cons(), numbers.prod(), self.kernel()], values=[self.tiles], name=f"core{lane}")

    def sequence(self: Any, rt: Any) -> None:
        """A lane's run of tiles; where calls bound the rows, every lanes-th tile, so that all lanes share what is left."""
        rt.preamble()
        count = rt.length("tiles")
        unit = SCALES_BOUNDED * self.F.group
        require(
            count is None or self.tile_bytes % LENGTH_UNIT == 0,
            f"Dequant: F={self.F} has tiles of {self.tile_size} numbers; where calls bound the rows, legal: multiples of {unit}. "
            f"Nearest legal: int4_tiles({nearest(self.tile_size, unit)}, group={self.F.group}).",
        )
        all_of = self.rows * self.cols // self.tile_size
        for way, operand, size in (("drain", "y", self.tile_size), ("fill", "x", self.tile_bytes)):
            for lane in range(self.lanes):
                share = all_of // self.lanes * size
                run = Pattern(lane * share, (share,), (1,))
                turns = Pattern(lane * size, (all_of // self.lanes, size), (self.lanes * size, 1))
                rt.transfer(way, operand, lane, run if count is None else turns, wait=way == "drain", size_by=count and (0, count))

    def composed(self: Any, x: Any) -> np.ndarray:
        """Tile by tile by the kernel's reference."""
        kernel = self.kernel()
        tiles = [round_to(kernel.reference(tile), self.T) for tile in x.data.reshape(-1, self.tile_bytes)]
        return np.stack(tiles).reshape(x.shape) if tiles else np.empty(x.shape, self.T)
