"""`PatchPositions`: which patches a vision tower reads, in what order, and where each of them is."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Auto, Case, Divisors, Extent, Operator, Out, Param, Testing, Tolerance, Value, nearest
from iron_core.errors import ParamError
from iron_ops_aie.images.patch_positions_array import PatchPositionsArray


class PatchPositions(PatchPositionsArray, Operator):
    """The patches of a picture of `rows` x `columns`, window by window, in `places` places.

    A window is `pool` x `pool` patches, which a tower pools to one token: they stand one after the other, row by row, and so do
    the windows. sources: (places,) int32, the row of `Resample`'s patches that each place reads, for as many `cores`;
    positions: (2, places) int32, its x and its y, rows of tables of position embeddings or angles. Places past the last
    patch read the last row of every table, which is zero: source_rows - 1 and position_rows - 1; patches past the last place
    are left out.

    `valid_rows` and `valid_columns` bound the picture; of what is no whole window nothing is read.

    The array: one core, a block of places at a time.

    Errors: ParamError for sizes that are not whole windows, or tables too small for them.
    """

    rows: int = Param()
    columns: int = Param()
    pool: int = Param(default=3, array=True)
    cores: int = Param(default=16, array=True)
    places: int = Param(default=lambda op: op.rows * op.columns)
    source_rows: int = Param(default=lambda op: op.rows * op.row_of_sources)
    position_rows: int = Param(default=10241)
    block: int = Auto(domain=Divisors(of=lambda op: op.places, step=1, cap=1024))
    sources = Out(places, dtype=np.int32, tile=block)
    positions = Out(2, places, dtype=np.int32, tile=(2, block))
    valid_rows = Extent(rows)
    valid_columns = Extent(columns)
    patch_rows = Value(derive=lambda op: op.valid_rows)
    patch_columns = Value(derive=lambda op: op.valid_columns)
    no_source = Value(derive=lambda op: op.source_rows - 1)
    no_position = Value(derive=lambda op: op.position_rows - 1)
    blocks = Value(derive=lambda op: op.places // op.block)

    test = Testing(
        Case(rows=6, columns=9, places=64, lower=True),
        Case(rows=15, columns=21, cores=4, lower=True),
        Case(rows=9, columns=12, bounds=dict(valid_rows=6, valid_columns=9), lower=True),
        Case(rows=7, columns=4, pool=1, cores=1, places=33, source_rows=99, position_rows=8, lower=True),
        Case(rows=9, columns=9, places=30, bounds=dict(valid_rows=3, valid_columns=9), lower=True),
        Case(rows=42, columns=57, places=2520, lower=True, bench=True),
    )

    def validate(self) -> None:
        for name in ("pool", "cores"):
            if getattr(self, name) < 1:
                raise ParamError(f"PatchPositions: {name}={getattr(self, name)}; legal: 1 or more.")
        for name in ("rows", "columns"):
            have = getattr(self, name)
            if have < 1 or have % self.pool:
                legal = f"multiples of pool={self.pool}. Nearest legal: {nearest(have, self.pool)}"
                raise ParamError(f"PatchPositions: {name}={have}; legal: {legal}.")
        least = dict(
            source_rows=self.rows * self.row_of_sources,
            position_rows=max(self.rows, self.columns) + 1,
        )
        for name, most in least.items():
            if getattr(self, name) < most:
                size = f"rows={self.rows} x columns={self.columns}"
                raise ParamError(f"PatchPositions: {name}={getattr(self, name)} for {size}; legal: {most} or more.")

    @property
    def row_of_sources(self) -> int:
        """Rows of `Resample`'s patches for one row of patches."""
        return (self.columns // max(1, self.cores) + 1) * self.cores

    def bounded(self, **extents: int) -> Any:
        # A call bounds the picture; places and tables stay as many.
        kept = {name: getattr(self, name) for name in ("places", "source_rows")}
        return super().bounded(**kept | extents)

    def reference(self) -> Any:
        down, across = self.rows // self.pool, self.columns // self.pool
        patches = np.indices((self.rows, self.columns))[:, : down * self.pool, : across * self.pool]
        y, x = patches.reshape(2, down, self.pool, across, self.pool).swapaxes(2, 3).reshape(2, -1)
        sources = np.full(self.places, self.source_rows - 1)
        positions = np.full((2, self.places), self.position_rows - 1)
        held = slice(min(len(x), self.places))
        sources[held] = (y * self.row_of_sources + x)[held]
        positions[:, held] = x[held], y[held]
        return sources, positions

    def tolerance(self) -> Tolerance:
        return Tolerance(exact=True)
