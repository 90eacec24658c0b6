"""`Dequant`: the numbers of a block-quantised tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import (
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Auto,
    Case,
    Choices,
    DType,
    Extent,
    In,
    Operator,
    Out,
    Param,
    Testing,
    Tolerance,
    Value,
    Width,
    bfloat16,
)
from iron_core.declare.formats import SUPERBLOCKS, as_format
from iron_core.errors import ParamError
from iron_ops_aie.products.activations import absolute, numbers
from iron_ops_aie.products.dequant_array import DequantArray
from iron_ops_aie.products.int4_tiles import INT4_TILES, int4_tiles
from iron_ops_aie.rules import floats_only


class Dequant(DequantArray, Operator):
    """y = scale * (q - zero) + minimum, of rows of blocks.

    x: (rows, cols) in a packed format `F`. y: (rows, cols) of float dtype `T`. `valid` bounds the rows.

    The array makes bfloat16 of int4 in tiles of nibbles and then scales (`iron_ops_aie.products.int4_tiles`): the tiles are shared
    out over num_aie_columns x num_channels cores.

    Errors: ParamError where x is not block-quantised or y not float; FormatError where they are not whole blocks. Unresolvable
    where no array takes it.
    """

    rows: int = Param()
    cols: int = Param()
    F: Any = DType(default=Q4_0, blocks=True)
    T: Any = DType(default=bfloat16)
    tile_size: int = Auto(derived=True)
    tile_bytes: int = Auto(derived=True)
    num_aie_columns: int = Auto(domain=Width())
    num_channels: int = Auto(default=1, domain=Choices((1, 2)))
    x = In(rows, cols, dtype=F, tile=tile_bytes, per=(num_aie_columns, num_channels))
    y = Out(rows, cols, dtype=T, tile=tile_size, per=(num_aie_columns, num_channels))
    valid = Extent(rows)
    #: Tiles that a core makes numbers of.
    tiles = Value(derive=lambda op: -(-op.valid * (op.cols // op.tile_size) // op.lanes))

    test = Testing(
        *(Case(rows=5, cols=96, F=f, T=t) for f in (Q4_0, Q4_1, Q8_0) for t in (np.dtype(np.float32), bfloat16)),
        *(Case(rows=5, cols=512, F=f, T=np.float32) for f in (Q5_0, Q5_1, *SUPERBLOCKS)),
        Case(rows=4, cols=2048, F=INT4_TILES, lower=True),
        Case(rows=8, cols=1024, F=INT4_TILES, bounds=dict(valid=5), lower=True),
        Case(rows=7, cols=192, F=int4_tiles(64), lower=True),
        Case(rows=8, cols=4096, F=int4_tiles(4096, 128), num_channels=2, lower=True),
        Case(rows=2, cols=16384, F=int4_tiles(16384), num_aie_columns=1, lower=True),
        Case(rows=1024, cols=576, F=Q8_0, T=np.float32, bench=True),
    )

    def validate(self) -> None:
        if not as_format(self.F).packed:
            raise ParamError(f"Dequant: x is {self.F}, which is numbers already; Copy converts dtypes.")
        floats_only(self, "T")
        self.F.stored((self.rows, self.cols))  # FormatError where these are no whole blocks

    def reference(self, x: Any) -> Any:
        return numbers(x)

    def magnitude(self, x: Any) -> Any:
        return absolute(x)

    def tolerance(self) -> Tolerance:
        return Tolerance(terms=1)

    def ops(self) -> int:
        return 2 * self.rows * self.cols
