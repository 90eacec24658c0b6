"""The array of `Transpose`: a core per column and channel, one tile of m x n elements at a time.

The device's columns share out x's columns, a column's channels its rows. A memory tile writes the tile it takes in as n rows of
m, every square of s x s elements where it belongs and as it was; a core transposes the squares.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import (
    ObjectFifo,
    Pattern,
    Tile,
    Worker,
    nearest,
    range_,
    require,
    require_channels,
    require_columns,
    require_npu,
    require_whole,
)
from iron_ops_aie.moving import kernels

#: Elements and bytes of a tile at most, and elements of a side of one that `resolve()` chooses.
TILE, TILE_BYTES = 8192, 16384
SIDE = 64


class TransposeArray:
    """How a `Transpose` is done by an array."""

    @property
    def lanes(self: Any) -> int:
        """Cores, and lanes of x and of y."""
        return self.num_aie_columns * self.num_channels

    def kernel(self: Any) -> Any:
        """The `Kernel` that transposes the squares of one tile."""
        return kernels.transpose(self.m, self.n, self.s, self.T)

    # -- tunables ----------------------------------------------------------------------------------

    def resolve(self: Any, dev: Any) -> Any:
        """The largest tiles of at most 64 x 64 that divide the matrix, and the columns that share these out."""
        require_npu(self, dev)
        channels = self.num_channels or 1
        for s in (self.s,) if self.s else kernels.SQUARES:
            m, n = self._side("m", s, self.M, channels), self._side("n", s, self.N, self.num_aie_columns or 1)
            if m and n:
                break
        else:  # compatible() says what would divide
            least = {name: next(iter(self._sides(name, s, SIDE)), SIDE) for name in ("m", "n")}
            m, n = self.m or m or least["m"], self.n or n or least["n"]
        fits = (c for c in range(dev.columns, 0, -1) if self.N % (n * c) == 0)
        return self.evolve(m=m, n=n, s=s, num_channels=channels, num_aie_columns=self.num_aie_columns or next(fits, 1))

    def _side(self: Any, name: str, s: int, size: int, shares: int) -> int | None:
        """The longest side of a tile, or the one given, that leaves nothing of the matrix over; None where there is none."""
        given = getattr(self, name)
        legal = self._sides(name, s, given or SIDE)
        wanted = (given,) if given else reversed(legal)
        return next((side for side in wanted if side in legal and size % (side * shares) == 0), None)

    def _sides(self: Any, name: str, s: int, most: int) -> range:
        """Sides of tiles that the kernel takes, up to `most`; none for squares that it does not."""
        if s not in kernels.SQUARES:
            return range(0)
        return kernels.widths(s, self.T.itemsize, most) if name == "m" else kernels.heights(s, most)

    def compatible(self: Any, dev: Any) -> None:
        m, n, s, columns, channels = self.m, self.n, self.s, self.num_aie_columns, self.num_channels
        legal = ", ".join(dtype.name for dtype in kernels.TURNED)
        require(self.T in kernels.TURNED, f"Transpose: T={self.T.name}; its array moves {legal}. Legal: T={kernels.TURNED[0].name}.")
        require(s in kernels.SQUARES, f"Transpose: s={s}; a core transposes squares of 8 or of 4 elements a side. Legal: s=8, s=4.")
        for name, size in (("m", self.M), ("n", self.N)):
            side, sides = getattr(self, name), self._sides(name, s, TILE)
            whole = [at for at in sides if size % at == 0]
            require(
                side in sides,
                f"Transpose: {name}={side} with s={s}, elements of {self.T.itemsize} bytes: the kernel takes multiples of {sides.step} "
                f"from {sides[0]} on. Nearest legal: {name}={nearest(side, whole or sides)}.",
            )
        most = min(TILE, TILE_BYTES // self.T.itemsize)
        size = f"m={m} x n={n} is a tile of {m * n} elements, and {most} are the most"
        require(m * n <= most, f"Transpose: {size}. Legal: m={SIDE} with n={SIDE}.")
        require_channels(self)
        require_columns(self, dev)
        require_whole(self, "M", m * channels, f"tiles of m={m} over num_channels={channels}", "give m= or num_channels=")
        require_whole(self, "N", n * columns, f"tiles of n={n} over num_aie_columns={columns}", "give n= or num_aie_columns=")

    # -- the array ---------------------------------------------------------------------------------

    def array(self: Any, target: Any) -> None:
        def core(tiles: Any, turned: Any, kernel: Any, count: Any) -> None:
            for _ in range_(count):
                kernel(tiles.acquire(), turned.acquire())
                tiles.release()
                turned.release()

        m, n, s = self.m, self.n, self.s
        # Of x's row (block i, j) and column (block k, l): to row (k, j), column (i, l). The core turns j, l into l, j.
        squares = ((m // s, s), (s, m), (n // s, s * m), (s, 1))
        depth = 2 if 5 * self.x.tile.nbytes <= target.dev.core.memory else 1
        kernel = self.kernel()
        shims = [Tile("shim") for _ in range(self.num_aie_columns)]
        for lane in range(self.lanes):
            shim = shims[lane // self.num_channels]
            taken, turned = ObjectFifo(self.x.tile, depth=depth, name=f"x{lane}"), ObjectFifo(self.y.tile, depth=depth, name=f"y{lane}")
            taken.prod(tile=self.x.lane(lane, shim))
            turned.cons(tile=self.y.lane(lane, shim))
            tiles = taken.cons(dims_from_stream=squares).forward(self.y.tile, depth=depth, name=f"tiles{lane}")
            Worker(core, [tiles.cons(), turned.prod(), kernel], values=[self.tiles], name=f"core{lane}")

    def sequence(self: Any, rt: Any) -> None:
        """Matrix by matrix over all lanes; a matrix's drains go before its fills."""
        rt.preamble()
        m, n = self.m, self.n
        wide, high = self.N // self.num_aie_columns, self.M // self.num_channels
        across, down = wide // n, high // m
        for batch in range(self.num_batches):
            start = batch * self.M * self.N
            for lane in range(self.lanes):
                column, channel = divmod(lane, self.num_channels)
                offset = start + column * wide * self.M + channel * high
                where = Pattern(offset, (across, down, n, m), (n * self.M, m, self.M, 1))
                rt.drain("y", lane, where, managed=False)
            for lane in range(self.lanes):
                column, channel = divmod(lane, self.num_channels)
                offset = start + channel * high * self.N + column * wide
                rt.fill("x", lane, Pattern(offset, (across, high, n), (n, self.N, 1)), managed=False)

    def composed(self: Any, x: Any) -> np.ndarray:
        """Tile by tile: squares put where they belong, then transposed by the kernel's reference."""
        m, n, s = self.m, self.n, self.s
        kernel = self.kernel()
        y = np.empty((self.num_batches, self.N, self.M), self.T)
        for from_, to in zip(x.reshape(self.num_batches, self.M, self.N), y, strict=True):
            for i in range(0, self.M, m):
                for j in range(0, self.N, n):
                    squares = from_[i : i + m, j : j + n].reshape(m // s, s, n // s, s)
                    to[j : j + n, i : i + m] = kernel.reference(squares.transpose(2, 1, 0, 3)).reshape(n, m)
        return y.reshape(self.shape("y"))
