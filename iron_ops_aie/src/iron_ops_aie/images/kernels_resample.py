"""The kernels of a resize: what the cores of `Resample` do to slices of a picture, lines of pixels and patches."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import In, InOut, Kernel, KernelContract, ObjectType, Out, Param, Tolerance, bfloat16
from iron_core.array.numbers import BFLOAT16
from iron_ops_aie.images.table import HEADER, SLOT, read_chunk, slot_words

#: Pixels of a patch's side, bytes of a pixel, numbers in a patch's line; bytes of a picture's slice.
SIDE, CHANNELS, SLICE = 16, 3, 4096
LINE = SIDE * CHANNELS
#: Words of a chunk with 16 slots of up to 39 weights: a picture shrinks to 2/19 of its size at most.
WORDS = HEADER + SIDE * slot_words(39)
#: Patch columns that a core makes at most.
MOST = 8

# Of a chunk of a table: `weight` is an input's, packed two to a word. The window of an unfit table is larger than a chunk has room
# for, KEPT; its words are zeros.
_TABLE = """
#include <stdint.h>
static int32_t slot_of(const int32_t *chunk, int32_t slot) {
  const int32_t taps = chunk[1] < KEPT ? chunk[1] : KEPT;
  return HEADER + slot * (SLOT + (taps + 1) / 2);
}
static int32_t weight(const int32_t *slot, int32_t tap) {
  return (int16_t)((uint32_t)slot[SLOT + tap / 2] >> 16 * (tap % 2));
}
static uint8_t rounded(int32_t sum, int32_t precision) {
  if (precision < 1) return 0;  // no table
  const int32_t whole = (sum + (1 << (precision - 1))) >> precision;
  return whole < 0 ? 0 : whole > 255 ? 255 : whole;
}
"""

_KEEP = """
#include <stdint.h>
extern "C" void KERNEL(const int32_t *__restrict from, int32_t *__restrict to) {
  for (int i = 0; i < WORDS; i++) to[i] = from[i];
}
"""

_ACROSS = (
    _TABLE
    + """
extern "C" void KERNEL(int32_t from, const uint8_t *bytes, const int32_t *tables, int32_t *sums) {
  if (from == 0)
    for (int i = 0; i < COLUMNS * SIDE * CHANNELS; i++) sums[i] = 0;
  for (int column = 0; column < COLUMNS; column++) {
    const int32_t *chunk = tables + column * WORDS;
    if (chunk[0] < 1) continue;
    for (int x = 0; x < SIDE; x++) {
      const int32_t *slot = chunk + slot_of(chunk, x);
      int32_t *to = sums + (column * SIDE + x) * CHANNELS;
      for (int c = 0; c < CHANNELS; c++)
        for (int tap = 0; tap < slot[1]; tap++) {
          const int32_t at = (slot[0] + tap) * CHANNELS + c - from;
          if (0 <= at && at < SLICE) to[c] += bytes[at] * weight(slot, tap);
        }
    }
  }
}
"""
)

_SETTLE = (
    _TABLE
    + """
extern "C" void KERNEL(const int32_t *tables, const int32_t *sums, uint8_t *line) {
  for (int i = 0; i < COLUMNS * SIDE * CHANNELS; i++)
    line[i] = rounded(sums[i], tables[i / (SIDE * CHANNELS) * WORDS]);
}
"""
)

_DOWN = (
    _TABLE
    + """
extern "C" void KERNEL(int32_t y, const int32_t *chunk, const uint8_t *lines, uint8_t *patches) {
  const int32_t *slot = chunk + slot_of(chunk, y);
  for (int i = 0; i < COLUMNS * SIDE * CHANNELS; i++) {
    int32_t sum = 0;
    for (int tap = 0; tap < slot[1]; tap++)
      sum += lines[(slot[0] + tap) % KEPT * COLUMNS * SIDE * CHANNELS + i] * weight(slot, tap);
    const int32_t column = i / (SIDE * CHANNELS), x = i % (SIDE * CHANNELS);
    patches[(column * SIDE + y) * SIDE * CHANNELS + x] = rounded(sum, chunk[0]);
  }
}
"""
)

# The product is the quotient for every byte, once it is rounded to bfloat16.
_GIVE = (
    BFLOAT16
    + """
extern "C" void KERNEL(int32_t left, const uint8_t *patch, uint16_t *out) {
  for (int i = 0; i < SIDE * SIDE * CHANNELS; i++) {
    const float part = left > 0 ? (float)patch[i] * (1.0f / 255.0f) : 0.0f;
    out[i] = narrow(part);
  }
}
"""
)


def fraction(pixels: Any) -> np.ndarray:
    """pixels / 255, rounded to float32."""
    return np.asarray(pixels, np.float32) / np.float32(255)


def _rounded(sums: np.ndarray, precision: int) -> np.ndarray:
    """Sums of weighted bytes as bytes."""
    return np.clip((sums + (1 << (precision - 1))) >> precision, 0, 255) if precision > 0 else np.zeros_like(sums)


class ResampleKernels:
    """Those of a core: `words` of a table's chunk, lines that it keeps at a time."""

    def __init__(self, words: int, kept: int) -> None:
        self.words, self.kept = words, kept
        self.chunk = ObjectType.of(words, np.int32)
        self.tables = ObjectType.of((MOST, words), np.int32)
        self.sums = ObjectType.of((MOST, LINE), np.int32)
        self.line = ObjectType.of((MOST, LINE), np.uint8)
        self.lines = ObjectType.of((kept, MOST, LINE), np.uint8)
        self.bytes = ObjectType.of(SLICE, np.uint8)
        self.patch = ObjectType.of((SIDE, LINE), np.uint8)
        self.pending = ObjectType.of((MOST, SIDE, LINE), np.uint8)
        self.given = ObjectType.of((SIDE, LINE), bfloat16)

    def _kernel(self, name: str, source: str, types: Any, roles: Any, reference: Any) -> Kernel:
        defines = dict(WORDS=self.words, KEPT=self.kept, COLUMNS=MOST, SIDE=SIDE, CHANNELS=CHANNELS, SLICE=SLICE, HEADER=HEADER, SLOT=SLOT)
        used = {key: value for key, value in defines.items() if key in source}
        contract = KernelContract(roles=roles, reference=reference, tolerance=Tolerance(exact=True), rounding="conv_even")
        return Kernel.inline(f"resample_{name}", source, types, contract, used)

    def keep(self) -> Kernel:
        """(chunk, kept): a copy."""
        return self._kernel("keep", _KEEP, (self.chunk, self.chunk), (In, Out), lambda chunk: chunk)

    def across(self) -> Kernel:
        """(from, slice, tables, sums): what a slice that begins at byte `from` of a row adds to the line's pixels."""

        def reference(first: int, bytes: Any, tables: Any, sums: Any) -> np.ndarray:
            out = np.zeros_like(sums) if first == 0 else np.array(sums)
            for column, chunk in enumerate(tables):
                if chunk[0] > 0:
                    slots = read_chunk(chunk, SIDE)
                    taps = np.arange(slots.weights.shape[1])
                    at = ((slots.starts[:, None] + taps) * CHANNELS)[..., None] + np.arange(CHANNELS) - first
                    here = (at >= 0) & (at < SLICE) & (taps < slots.counts[:, None])[..., None]
                    seen = np.where(here, np.asarray(bytes)[np.clip(at, 0, SLICE - 1)], 0).astype(np.int32)
                    out[column] += (seen * slots.weights[..., None]).sum(1, dtype=np.int32).reshape(-1)
            return out

        types = (np.int32, self.bytes, self.tables, self.sums)
        return self._kernel("across", _ACROSS, types, (Param, In, In, InOut), reference)

    def settle(self) -> Kernel:
        """(tables, sums, line): the sums as pixels."""

        def reference(tables: Any, sums: Any) -> np.ndarray:
            return np.stack([_rounded(row, int(chunk[0])) for chunk, row in zip(tables, sums, strict=True)])

        return self._kernel("settle", _SETTLE, (self.tables, self.sums, self.line), (In, In, Out), reference)

    def down(self) -> Kernel:
        """(y, chunk, lines, patches): line y of all patches, from the lines kept; line n is at n % kept."""

        def reference(y: int, chunk: Any, lines: Any, patches: Any) -> np.ndarray:
            slots = read_chunk(chunk, SIDE)
            start, count = int(slots.starts[y]), int(slots.counts[y])
            seen = lines[np.arange(start, start + count) % self.kept].astype(np.int32)
            out = np.array(patches)
            out[:, y] = _rounded(np.tensordot(slots.weights[y, :count], seen, 1).astype(np.int32), slots.precision)
            return out

        types = (np.int32, self.chunk, self.lines, self.pending)
        return self._kernel("down", _DOWN, types, (Param, In, In, InOut), reference)

    def give(self) -> Kernel:
        """(left, patch, out): the patch as fractions, or zeros where no column is left."""

        def reference(left: int, patch: Any) -> np.ndarray:
            return fraction(patch) * np.float32(left > 0)

        return self._kernel("give", _GIVE, (np.int32, self.patch, self.given), (Param, In, Out), reference)
