"""Products with block-quantised weights, and how a row of activations is rounded for them.

"exact" multiplies the activations as they are by the dequantised weights. "int8_block" rounds each group of a row
to int8 with one float32 scale: scale = max|x| / 127, q = rint(x * (1 / scale)), ties to even, all in float32; the
product of a block is then an integer, scaled once. A group is what shares a scale of the weights, but 32 beside weights of which
several times 32 share one, or fewer in blocks of whole 32. Where the scale is no normal number (a group of zeros, in effect) q is 0;
where a row ends inside a group, zeros fill the group.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import PackedArray, widen
from iron_core.declare.formats import as_format
from iron_core.errors import ParamError
from iron_ops_aie.rules import is_integer

ARITHMETIC = ("exact", "int8_block")
#: Activations that are rounded with one scale where several times as many weights share one, or parts of them in blocks of as many.
_MOST = 32


def check(name: str, activations: str, T: Any, W: Any, O: Any) -> None:  # noqa: E741
    """ParamError unless operator `name` has this arithmetic for activations T, weights W and output O."""
    if activations not in ARITHMETIC:
        raise ParamError(f"{name}: activations={activations!r}. Legal: {', '.join(ARITHMETIC)}.")
    if activations == "int8_block":
        if not as_format(W).group:
            raise ParamError(f"{name}: activations='int8_block' needs block-quantised weights; these are {W}. Legal: 'exact'.")
        groups = {plane.role: plane.group[1] for plane in as_format(W).planes if plane.role in ("scales", "minima")}
        if len(set(groups.values())) > 1:
            raise ParamError(
                f"{name}: activations='int8_block' needs one minimum for each scale; {W} has minima for {groups['minima']} numbers of a "
                f"row and scales for {groups['scales']}. Legal: 'exact'."
            )
    if len({is_integer(T), is_integer(W), is_integer(O)}) > 1:
        raise ParamError(f"{name}: activations {T}, weights {W}, output {O}; legal: all floats or all integers.")


def group_of(weights: Any) -> int:
    """Activations of a row that are rounded with one scale beside weights of this format."""
    format = as_format(weights)
    whole = format.group % _MOST == 0 or (_MOST % format.group == 0 and format.block[1] % _MOST == 0)
    return _MOST if whole else int(format.group)


def quantize_rows(x: Any, group: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows x (..., K) as integers int32 (..., blocks * group) and float32 scales (..., blocks); blocks = ceil(K / group)."""
    x = np.asarray(x).astype(np.float32)
    blocks = -(-x.shape[-1] // group)
    padded = np.zeros((*x.shape[:-1], blocks * group), np.float32)
    padded[..., : x.shape[-1]] = x
    padded = padded.reshape(*x.shape[:-1], blocks, group)
    scale = np.abs(padded).max(-1) / np.float32(127)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):  # a NaN's integers mean nothing: its scale is NaN
        inverse = np.where(scale >= np.finfo(np.float32).tiny, np.float32(1) / scale, np.float32(0)).astype(np.float32)
        q = np.rint(padded * inverse[..., None]).astype(np.int32)
    return q.reshape(*x.shape[:-1], blocks * group), scale


def _blocks(weights: PackedArray, depth: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Integers int32 (M, blocks, group), scales and minima float64 (M, blocks) of the blocks that hold `depth` columns: of as many
    numbers as share a scale, of the weights and of the activations."""
    group, own = group_of(weights.format), int(weights.format.group)
    ints, scales, minima = weights.format.fields(weights.data, weights.shape)
    each = min(group, own)
    blocks = -(-depth // group) * (group // each)

    def repeated(shared: np.ndarray) -> np.ndarray:
        return np.repeat(shared, own // each, -1)[:, :blocks].astype(np.float64)

    ints = ints.reshape(len(ints), -1, each)[:, :blocks]
    return ints, repeated(scales), None if minima is None else repeated(minima)


def _activations(weights: PackedArray, x: Any, each: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows x (N, K) rounded beside these weights: integers int32 (blocks, N, each), scales float64 (blocks, N)."""
    q, d = quantize_rows(x, group_of(weights.format))
    d = np.repeat(d, group_of(weights.format) // each, -1)
    return q.reshape(*d.shape, each).transpose(1, 0, 2), d.astype(np.float64).T


def block_integers(weights: PackedArray, x: Any) -> np.ndarray:
    """The integer product of every block: weights (M, K), activations (N, K) -> int64 (blocks, N, M)."""
    ints, _, _ = _blocks(weights, x.shape[-1])
    acts, _ = _activations(weights, x, ints.shape[-1])
    return np.matmul(acts.astype(np.int64), ints.transpose(1, 2, 0).astype(np.int64))


def block_product(weights: PackedArray, x: Any) -> np.ndarray:
    """int8_block product: weights (M, K), activations (N, K) -> float64 (N, M).

    Block integers are exact; blocks are combined in float64 from float32 scales and minima.
    """
    ints, scales, minima = _blocks(weights, x.shape[-1])
    q, right = _activations(weights, x, ints.shape[-1])
    acts = q.astype(np.float64)
    # float64 holds these sums exactly (they stay far below 2^53) and has a fast product where int64 has none.
    products = np.matmul(acts, ints.transpose(1, 2, 0).astype(np.float64))
    total = (products * right[:, :, None] * scales.T[:, None, :]).sum(0)
    if minima is not None:
        total += (acts.sum(-1) * right).T @ minima.T
    return total


def block_magnitude(weights: PackedArray, x: Any) -> np.ndarray:
    """Sum of the absolute terms of `block_product`, float64 (N, M)."""
    ints, scales, minima = _blocks(weights, x.shape[-1])
    q, d = _activations(weights, x, ints.shape[-1])
    parts = np.abs(ints * scales[..., None])
    if minima is not None:
        parts = parts + np.abs(minima)[..., None]
    acts = np.abs(q * d[..., None]).transpose(1, 0, 2).reshape(q.shape[1], q.shape[0] * q.shape[2])
    return acts @ parts.reshape(len(ints), acts.shape[-1]).T


def _parts(weights: PackedArray) -> tuple[np.ndarray, np.ndarray | None]:
    """scale * q and minimum of every number, float64; of a format that is no integers with scales, its numbers."""
    if not weights.format.planes:
        return weights.dequantize().astype(np.float64), None
    ints, scales, minima = weights.format.fields(weights.data, weights.shape)
    return ints * _spread(scales, weights), None if minima is None else _spread(minima, weights)


def _spread(shared: np.ndarray, weights: PackedArray) -> np.ndarray:
    """What numbers of a row share, in front of each of them, float64."""
    return np.repeat(shared.astype(np.float64), weights.shape[-1] // shared.shape[-1], -1)


def numbers(weights: Any) -> np.ndarray:
    """Dense weights widened, or the numbers that blocks stand for, float64 and unrounded."""
    if not isinstance(weights, PackedArray):
        return widen(weights)
    scaled, minima = _parts(weights)
    return scaled if minima is None else scaled + minima


def absolute(weights: Any) -> np.ndarray:
    """|weights| in float64; for a block format, the sum of the absolute values of scale * q and minimum."""
    if not isinstance(weights, PackedArray):
        return np.abs(widen(weights))
    scaled, minima = _parts(weights)
    return np.abs(scaled) if minima is None else np.abs(scaled) + np.abs(minima)
