"""The weights of a quantised model: which of them are made anew, and of what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from iron_core import Q4_0, Q8_0, PackedArray
from iron_core.errors import CheckpointError, UsageError
from iron_lm.checkpoints.kept import Made
from iron_lm.checkpoints.widening import as_blocks, dense, in_pieces, is_gathered, runnable, runs_as, stored_format
from iron_lm.int8 import INT8, scale_of
from iron_lm.parts.part import Part
from iron_lm.parts.projection import Projection
from iron_lm.run import ACTIVATION_SCALES, QUANTIZED
from iron_ops_aie.elementwise.kernels_quantize import inverse, measured, rounded

#: What a head multiplies by: its own matrix, or the embedding's table.
_HEADS = ("head.matrix", "embedding.table")


def asked(quantize: str | None, activation_scale: str | None, activations: str | None) -> dict[str, Any]:
    """`Run`'s quantize and activation_scale, from what was asked for; empty where nothing was. UsageError for names there are not,
    and for what does not go together."""
    for name, value, legal in (("quantize", quantize, QUANTIZED), ("activation_scale", activation_scale, ACTIVATION_SCALES)):
        if value is not None and value not in legal:
            raise UsageError(f"{name}={value}; legal: {', '.join(legal)}.")
    if quantize is None:
        if activation_scale is not None:
            raise UsageError(f"activation_scale={activation_scale} says how quantised projections round; legal with quantize=int8.")
        return {}
    if activations is not None:
        raise UsageError(f"activations={activations} with quantize={quantize}, whose projections multiply integers; leave one of them out.")
    return {"quantize": quantize} | ({} if activation_scale is None else {"activation_scale": activation_scale})


def parted(model: Part, exact: Mapping[str, Any], dtype: str | None) -> tuple[dict[str, Made], dict[str, Any]]:
    """What a quantised model is filled with, by path: what is made of a checkpoint's weights, and which of them it takes.

    The matrix of each projection is made; and, where no dtype is asked for, the head's in blocks, if it runs as wider numbers.
    """
    found, rest = {}, dict(exact)
    for path, _, projection in model.projections():
        own = {name: rest.pop(f"{path.removesuffix(projection.name)}{name}") for name in projection.names}
        found[path] = Made(INT8, projection.shape, partial(_joined, path, projection, own))
    head = next((path for path in _HEADS if path in rest), None)
    if head is not None and dtype is None and _narrows(rest[head]):
        matrix = rest.pop(head)
        found[head] = Made(Q8_0, matrix.shape, partial(as_blocks, matrix, Q8_0))
    return found, rest


def quantized(path: str, matrices: Sequence[Any]) -> PackedArray:
    """Matrices (N, K) in any format, one below another, as one in `INT8`: what the operator `Quantize` makes of it as a whole.

    The scale is max |w| / 127, 1 where all are zeros, and a number becomes the nearest integer to w / scale, ties to even.
    CheckpointError, which names the path of the matrix, for numbers that are not finite.
    """
    wide = np.concatenate([dense(matrix, np.float32) for matrix in matrices])
    rows, columns = wide.shape
    largest: list[np.float32] = []

    def measure(part: slice) -> None:
        if not np.isfinite(wide[part]).all():
            raise CheckpointError(f"{path} holds numbers that are NaN or infinite, which have no int8; it is damaged.")
        largest.append(measured(wide[part]))

    in_pieces(measure, rows, columns)
    scale = max(largest)
    factor = inverse(scale)
    data = np.empty(INT8.nbytes(wide.shape), np.uint8)
    integers = data[: rows * columns].view(np.int8).reshape(rows, columns)

    def turn(part: slice) -> None:
        integers[part] = rounded(wide[part], factor)

    in_pieces(turn, rows, columns)
    data[rows * columns :] = np.array([scale if factor else 1], np.float32).view(np.uint8)
    return PackedArray(data, wide.shape, INT8)


def _joined(path: str, projection: Projection, own: Mapping[str, Any]) -> PackedArray:
    return quantized(path, projection.arranged({name: dense(matrix, np.float32) for name, matrix in own.items()}))


def _narrows(matrix: Any) -> bool:
    """Is it read as wider numbers, or are its rows not to be had one by one; and do they fill blocks of 8 bits?"""
    return not (runs_as(stored_format(matrix)).packed and is_gathered(matrix)) and matrix.shape[-1] % Q8_0.block[1] == 0


def in_blocks(exact: Mapping[str, Any], filled: Mapping[str, Any]) -> dict[str, Any]:
    """The weights of a model that is not quantised, to compare one that is with: of what a quantised one is `filled` with all but
    projections; these in blocks, as they are stored or else of 4 bits (Q4_0), where their rows fill them."""

    def block(matrix: Any) -> Any:
        fills = matrix.shape[-1] % Q4_0.block[1] == 0
        return as_blocks(matrix, Q4_0) if fills and not runs_as(stored_format(matrix)).packed else runnable(matrix)

    kept = {path: array for path, array in filled.items() if scale_of(array) is None}
    return {path: kept[path] if path in kept else block(array) for path, array in exact.items()}


def kept_line(parts: Mapping[str, Made], exact: Mapping[str, Any], rest: Mapping[str, Any]) -> str:
    """How the weights of a quantised model are kept, for people."""
    blocks = {path: one for path, one in parts.items() if one.format != INT8}
    sources = sorted({stored_format(array).name for path, array in exact.items() if path not in rest and path not in blocks})
    nbytes = sum(one.nbytes for one in parts.values() if one.format == INT8)
    head = "".join(f", head {one.format}" for one in blocks.values())
    return f"int8 from {', '.join(sources)} ({nbytes / 1e6:.1f} MB){head}"
