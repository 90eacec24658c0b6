"""The kernel of arrays that make numbers of int4 tiles, with what it promises. mlir-aie hosts it in `aie.iron.kernels`."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import In, Kernel, KernelContract, ObjectType, Out, bfloat16
from iron_ops_aie.products.int4_tiles import int4_tiles

#: Numbers that share a scale are multiples of this.
GROUP = 32


def expand(tile: int, group: int) -> Kernel:
    """The `tile` numbers of one tile of int4 with a scale for every `group`: products in float32, rounded once to bfloat16."""
    format = int4_tiles(tile, group)

    def reference(x: Any) -> np.ndarray:
        return format.tensor(np.reshape(x, -1), (1, tile)).dequantize().reshape(-1)

    contract = KernelContract(roles=(In, Out), reference=reference, ops=2 * tile)
    types = (ObjectType.of(format.block_bytes, np.uint8), ObjectType.of(tile, bfloat16))
    return Kernel.factory("datamovement.expand", types, contract, symbol="expand_uint4_to_bfloat16", tile_size=tile, group_size=group)
