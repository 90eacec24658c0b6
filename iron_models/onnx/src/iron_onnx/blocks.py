"""Integers in blocks of an ONNX graph, those of `DequantizeLinear` and of `MatMulNBits`, as rows of groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import attrs
import numpy as np

from iron_core import Dense
from iron_core.declare.formats import grouped
from iron_core.errors import CheckpointError
from iron_lm.checkpoints.linear import groups_of, scattering
from iron_lm.checkpoints.rearranged import Rearranged, in_groups, scattered
from iron_onnx.initializers import Initializer

#: Bits, and what is added to a stored integer to have it unsigned.
_KINDS = {"UINT4": (4, 0), "INT4": (4, 8), "UINT8": (8, 0), "INT8": (8, 128)}


@attrs.frozen
class Quantized:
    """A matrix of integers by its parts: integers (unsigned when `lifted` is added), scales and zero points of each group of a row.
    order: the group of each column, where these are scattered over a row."""

    name: str
    shape: tuple[int, int]
    bits: int
    parts: tuple[np.ndarray, ...]
    scales: np.ndarray
    zeros: np.ndarray
    rows: Callable[[slice], np.ndarray]
    unit: int = 1
    order: np.ndarray | None = None

    def tensor(self) -> tuple[tuple[int, int], Any, Rearranged]:
        """Shape, format and array. zeros: of unsigned integers; of those all in the middle nothing is kept."""
        group, _ = groups_of(self.shape[1], self.shape[1] // self.scales.shape[1])
        middle = 1 << (self.bits - 1)
        zeros: Any = None if (self.zeros == middle).all() else self.zeros
        format = grouped(self.bits, group, self.scales.dtype, zeros=zeros is not None)
        flip = np.uint8(0x80 if self.bits == 8 else 0)  # bytes less 128 are signed ones
        if zeros is not None and flip:
            zeros = zeros.astype(np.float32) - 128

        given = self.name, format, self.shape, self.scales, zeros, lambda _, part: self.rows(part) ^ flip
        if self.order is None:
            return self.shape, format, Rearranged(self.shape, format, self.parts, "onnx", lambda: in_groups(*given, self.unit))
        wide, made = Dense(np.float32), partial(scattered, *given, self.order, self.unit)
        return self.shape, wide, Rearranged(self.shape, wide, (*self.parts, self.order), f"onnx {format}", made)


def dequantize_linear(
    name: str, x: Initializer, scale: Initializer, zero: Initializer | None, axis: int, size: int
) -> Quantized:
    """The integers x, in blocks of `size` along one of two axes, as rows along that axis. CheckpointError for what is not run."""
    if x.kind not in _KINDS:
        raise CheckpointError(f"is of {x.kind}. Legal: {', '.join(_KINDS)}.")
    if len(x.shape) != 2 or axis not in (-2, -1, 0, 1) or 0 in x.shape:
        raise CheckpointError(f"has shape {list(x.shape)[:4]} in blocks along axis {axis}. Legal: a matrix, along one of its axes.")
    if size < 1:
        raise CheckpointError("has one scale for itself or for each row. Legal: scales for blocks (block_size).")
    bits, lifted = _KINDS[x.kind]
    along = axis % 2
    depth, high = x.shape[along], x.shape[1 - along]
    groups_of(depth, size)
    if bits == 4 and x.shape[1] % 2:
        raise CheckpointError(f"has rows of {x.shape[1]} nibbles. Legal: an even number.")
    blocks = (depth // size, high) if along == 0 else (high, depth // size)
    scales = _scales(scale, blocks)
    zeros = np.full(blocks, lifted, np.uint8)
    if zero is not None:
        if zero.kind != x.kind or zero.shape != blocks:
            legal = f"{x.kind} {list(blocks)}"
            raise CheckpointError(f"has zero points {zero.kind} {list(zero.shape)[:4]}. Legal: {legal}, or none.")
        zeros = (_nibbles(zero.array())[: zeros.size].reshape(blocks) if bits == 4 else zero.array()) ^ np.uint8(lifted)
    stored = x.array().reshape(x.shape[0], -1)
    lift = np.uint8(lifted | lifted << 4 if bits == 4 else lifted)  # to unsigned ones: a bit of each
    scales, zeros = (scales.T, zeros.T) if along == 0 else (scales, zeros)

    def across(part: slice) -> np.ndarray:
        """Of columns, which are stored one above the other."""
        if bits == 8:
            return np.ascontiguousarray(stored[:, part].T) ^ lift
        both = stored[:, part.start // 2 : part.stop // 2] ^ lift
        even, odd = both[0::2], both[1::2]
        out = np.stack([even & 15 | odd << 4, even >> 4 | odd & 0xF0], -1)
        return np.ascontiguousarray(out.reshape(len(out), -1).T)

    rows = across if along == 0 else lambda part: stored[part] ^ lift
    return Quantized(name, (high, depth), bits, (stored, scales, zeros), scales, zeros, rows, unit=2 if along == 0 else 1)


def matmul_n_bits(
    name: str, said: Mapping[str, int], b: Initializer, scale: Initializer, zero: Initializer | None, g_idx: Initializer | None
) -> Quantized:
    """The matrix (N, K) of a `MatMulNBits` that says this of itself. CheckpointError for what is not run."""
    bits, high, depth, size = said.get("bits", 4), said["N"], said["K"], said["block_size"]
    if bits not in (4, 8):
        raise CheckpointError(f"has {bits} bits. Legal: 4, 8.")
    if said.get("weight_prepacked"):
        raise CheckpointError(f"is packed for a device (weight_prepacked={said['weight_prepacked']}). Legal: 0.")
    if min(high, depth, size) < 1:
        raise CheckpointError(f"has N={high}, K={depth}, block_size={size}. Legal: 1 or more.")
    _, groups = groups_of(depth, size)
    blob = size * bits // 8
    if b.kind != "UINT8" or b.shape != (high, groups, blob):
        raise CheckpointError(f"has B {b.kind} {list(b.shape)[:4]}. Legal: UINT8 {[high, groups, blob]}.")
    scales = _scales(scale, (high, groups))
    zeros: np.ndarray = np.full((high, groups), 1 << (bits - 1), np.uint8)
    if zero is not None and zero.kind == "UINT8":
        packed = zero.array()
        wide = -(-groups * bits // 8)
        if packed.size != high * wide:
            raise CheckpointError(f"has zero_points {list(zero.shape)[:4]}. Legal: {[high, wide]}.")
        packed = packed.reshape(high, wide)
        zeros = packed if bits == 8 else _nibbles(packed)[:, :groups]
    elif zero is not None:
        if bits == 8 or zero.kind != scale.kind:
            raise CheckpointError(f"has zero_points of {zero.kind}. Legal: UINT8{'' if bits == 8 else f', {scale.kind}'}.")
        zeros = _scales(zero, (high, groups))
    order = None
    if g_idx is not None:
        if g_idx.kind != "INT32" or g_idx.shape != (depth,):
            raise CheckpointError(f"has g_idx {g_idx.kind} {list(g_idx.shape)[:4]}. Legal: INT32 {[depth]}.")
        order = scattering(g_idx.array(), size, groups)
    stored = b.array().reshape(high, groups * blob)
    return Quantized(name, (high, depth), bits, (stored, scales, zeros), scales, zeros, lambda part: stored[part], order=order)


def _scales(scale: Initializer, shape: tuple[int, int]) -> np.ndarray:
    """Scales of this shape, or flat."""
    if not scale.floats:
        raise CheckpointError(f"has scales of {scale.kind}. Legal: FLOAT, FLOAT16, BFLOAT16.")
    if scale.shape not in (shape, (shape[0] * shape[1],)):
        raise CheckpointError(f"has scales {list(scale.shape)[:4]}. Legal: {list(shape)}.")
    return scale.array().reshape(shape)


def _nibbles(packed: np.ndarray) -> np.ndarray:
    """uint8 (..., 2 n) of bytes (..., n), the low half first."""
    return np.stack([packed & 15, packed >> 4], -1).reshape(*packed.shape[:-1], -1)
