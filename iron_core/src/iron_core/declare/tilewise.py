"""The composition that most arrays are: element i of every input's tiles makes element i of the output's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from iron_core.declare.rounding import round_to
from iron_core.errors import DeclarationError


def rounded_tile(kernel: Any, dtype: Any, size: int, *tiles: Any) -> np.ndarray:
    """What a kernel's reference makes of these tiles (and numbers), rounded. DeclarationError unless it is one array of `size` elements."""
    made = kernel.reference(*tiles)
    if np.size(made) != size:
        raise DeclarationError(f"kernel {kernel.data.symbol}: its reference gave {list(np.shape(made))}; legal: a tile's {size} elements.")
    return round_to(made, dtype)


def tilewise(op: Any, inputs: tuple[Any, ...], *numbers: int) -> np.ndarray:
    """`op.kernel()`'s reference on every tile in turn, rounded: the output, in its shape. numbers: what it is given behind them.

    An operand with replicate= or broadcast= is one tile, given every time. Of an operator at a call's bounds the last tile may be
    short: what is missing of it is zero, and what comes of that is cut off. DeclarationError where an operator declares no
    kernel(), has another number of outputs than one, or streams that are not equally many tiles: it declares composed().
    """
    name = type(op).__name__
    if not hasattr(op, "kernel") or len(op.outputs) != 1 or op.partial:
        raise DeclarationError(f"{name} declares no composed(); the default needs kernel() and one output that is written whole.")
    (result,) = op.outputs
    kernel, made = op.kernel(), result.tile_type(op)
    streams: dict[str, tuple[bool, np.ndarray]] = {}
    for operand, tensor in zip(op.inputs, inputs, strict=True):
        if operand.present(op):
            tile, flat = operand.tile_type(op), np.asarray(tensor).reshape(-1)
            tiles = np.pad(flat, (0, -flat.size % tile.elements)).reshape(-1, *tile.shape)
            streams[operand.name] = (operand.replicate or operand.broadcast, tiles)
    counts = {len(tiles) for once, tiles in streams.values() if not once}
    if len(counts) != 1 or any(len(tiles) != 1 for once, tiles in streams.values() if once):
        shown = ", ".join(f"{operand} in {len(tiles)}" for operand, (_, tiles) in streams.items())
        raise DeclarationError(f"{name} declares no composed(); the default takes streams of equally many tiles, not {shown}.")
    out = []
    for i in range(counts.pop()):
        given = [tiles[0 if once else i] for once, tiles in streams.values()]
        out.append(rounded_tile(kernel, made.dtype, made.elements, *given, *numbers).reshape(-1))
    shape = result.shape(op)
    return np.concatenate(out)[: math.prod(shape)].reshape(shape)
