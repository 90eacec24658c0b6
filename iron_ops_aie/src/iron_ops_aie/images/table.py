"""The filter of an antialiased bicubic resize as a table: what `ResampleTaps` makes and `Resample` reads.

A table is chunks of int32 words. A chunk has a header (precision, window, first, outputs) and a slot for each of its outputs, `first`
the lowest of them: (start, count, weights), that many weights for the inputs from `start` on, int16, two to a word, the lower half
first, zeros after them. All slots of a table have room for `window` weights. An output is the sum of inputs times weights, divided by
2^precision. The arithmetic is that of `torch.nn.functional.interpolate(mode="bicubic", antialias=True)` on uint8.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

#: Words of a chunk's header, and of a slot before its weights.
HEADER, SLOT = 4, 2
#: Bits that a weight is shifted by at most; and what the largest of them stays below.
BITS, LIMIT = 22, 1 << 15


class Filter(NamedTuple):
    """Where each output's inputs begin, how many they are, and their weights: float64 (outputs, window), zeros past the count."""

    starts: np.ndarray
    counts: np.ndarray
    weights: np.ndarray


class Slots(NamedTuple):
    """A chunk read: its precision, and per slot start, count and int32 weights (slots, count at most)."""

    precision: int
    starts: np.ndarray
    counts: np.ndarray
    weights: np.ndarray


def window(inputs: int, outputs: int) -> int:
    """Inputs that an output has at most."""
    return 2 * math.ceil(2 * max(inputs / outputs, 1.0)) + 1


def slot_words(taps: int) -> int:
    """Words of a slot with room for so many weights."""
    return SLOT + (taps + 1) // 2


def slots_of(words: int, taps: int, slots: int | None) -> int:
    """Outputs that a chunk of `words` has: `slots`, or where that is None as many as fit; 0 where they do not."""
    fit = (words - HEADER) // slot_words(taps)
    return fit if slots is None else slots if slots <= fit else 0


def make_filter(inputs: int, outputs: int) -> Filter:
    """The normalised weights, each operation in float64 and in one order, as every kernel computes them."""
    scale = inputs / outputs
    support, inverse = (2 * scale, 1 / scale) if scale >= 1 else (2.0, 1.0)
    taps = window(inputs, outputs)
    centers = scale * (np.arange(outputs) + 0.5)
    starts = np.maximum((centers - support + 0.5).astype(np.int64), 0)
    counts = np.clip(np.minimum((centers + support + 0.5).astype(np.int64), inputs) - starts, 0, taps)
    each = np.arange(taps)
    weights = _bicubic(np.abs((each + starts[:, None] - centers[:, None] + 0.5) * inverse))
    weights[each >= counts[:, None]] = 0
    total = np.zeros(outputs)
    for column in weights.T:  # in order: np.sum adds pairwise
        total += column
    return Filter(starts, counts, weights / np.where(total == 0, 1, total)[:, None])


def _bicubic(x: np.ndarray) -> np.ndarray:
    """Keys' cubic with a = -0.5 at distances x."""
    near = (1.5 * x - 2.5) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * -0.5
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def precision(peak: float) -> int:
    """The first at which one bit more would take the largest weight out of int16."""
    return next((p for p in range(BITS) if int(0.5 + peak * (1 << (p + 1))) >= LIMIT), BITS)


def quantized(weights: np.ndarray, bits: int) -> np.ndarray:
    """weights times 2^bits, rounded half away from zero, int64."""
    scaled = weights * (1 << bits)
    return (scaled + np.where(scaled < 0, -0.5, 0.5)).astype(np.int64)


def make_table(inputs: int, outputs: int, words: int, slots: int | None, chunks: int) -> np.ndarray:
    """The table of a resize from `inputs` to `outputs` numbers: (chunks, words) int32.

    Where a chunk or all of them are too small for it, or there is nothing to resize, every header is (-1, window, 0, 0).
    """
    taps = window(inputs, outputs) if inputs > 0 and outputs > 0 else 0
    held = slots_of(words, taps, slots) if taps else 0
    if held * chunks < outputs or not held:
        return unfit(words, taps, chunks)
    made = make_filter(inputs, outputs)
    bits = precision(float(made.weights.max()))
    return np.stack([chunk_of(made, bits, words, held, at) for at in range(chunks)])


def unfit(words: int, taps: int, chunks: int) -> np.ndarray:
    """The table that says there is none."""
    table = np.zeros((chunks, words), np.int32)
    table[:, :2] = -1, taps
    return table


def chunk_of(made: Filter, bits: int, words: int, slots: int, at: int) -> np.ndarray:
    """Chunk `at` of a table: (words,) int32."""
    taps = made.weights.shape[1]
    first = at * slots
    own = slice(first, max(first, min(first + slots, len(made.starts))))
    outputs = len(made.starts[own])
    chunk = np.zeros(words, np.int32)
    chunk[:HEADER] = bits, taps, first, outputs
    size = slot_words(taps)
    rows = chunk[HEADER : HEADER + slots * size].reshape(slots, size)[:outputs]
    rows[:, 0], rows[:, 1] = made.starts[own], made.counts[own]
    halves = np.zeros((outputs, 2 * (size - SLOT)), np.int16)
    halves[:, :taps] = quantized(made.weights[own], bits)
    rows[:, SLOT:] = halves.view("<i4")
    return chunk


def read_chunk(chunk: np.ndarray, slots: int) -> Slots:
    """The first `slots` slots of a chunk; those of an unfit table are zeros."""
    size = min(slot_words(int(chunk[1])), (len(chunk) - HEADER) // slots)
    rows = chunk[HEADER : HEADER + slots * size].reshape(slots, size)
    weights = np.ascontiguousarray(rows[:, SLOT:]).view("<i2").astype(np.int32)
    return Slots(int(chunk[0]), rows[:, 0], rows[:, 1], weights)
