"""The kernels that make a resize's table in float64, a chunk at a time.

Cores compute float64 in software, where nothing is contracted; the same text on a processor must not contract either, so what is
added to is no product the compiler sees.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import In, InOut, Kernel, KernelContract, ObjectType, Out, Param, Tolerance
from iron_ops_aie.images.table import BITS, HEADER, LIMIT, SLOT, chunk_of, make_filter, precision, slots_of, unfit, window

# `taps`, `slots` and `held` are the window, its slots' words and a chunk's outputs. A slot's bounds and distances as torch has them.
_FILTER = """
#include <stdint.h>
#include <string.h>
static double product(double a, double b) {
  volatile double alone = a * b;
  return alone;
}
static double bicubic(double x) {
  if (x < 0) x = -x;
  if (x < 1) return product(product(product(1.5, x) - 2.5, x), x) + 1;
  if (x < 2) return (product(product(x - 5, x) + 8, x) - 4) * -0.5;
  return 0;
}
struct Filter {
  double scale, support, inverse;
  int32_t inputs, taps, size, held;
  Filter(int32_t inputs, int32_t outputs, int32_t chunks) : inputs(inputs), taps(0), size(0), held(0) {
    if (inputs < 1 || outputs < 1) return;
    scale = (double)inputs / (double)outputs;
    support = scale >= 1 ? 2 * scale : 2;
    inverse = scale >= 1 ? 1 / scale : 1;
    int32_t whole = (int32_t)support;
    taps = 2 * (whole < support ? whole + 1 : whole) + 1;
    size = SLOT + (taps + 1) / 2;
    int32_t fit = (WORDS - HEADER) / size;
    held = SLOTS == 0 ? fit : SLOTS <= fit ? SLOTS : 0;
    if ((int64_t)held * chunks < outputs) held = 0;
  }
};
struct Output {
  double middle;
  int32_t start, count;
  Output(const Filter &f, int32_t at) {
    middle = product(f.scale, at + 0.5);
    start = (int32_t)(middle - f.support + 0.5);
    if (start < 0) start = 0;
    int32_t end = (int32_t)(middle + f.support + 0.5);
    if (end > f.inputs) end = f.inputs;
    count = end - start < 0 ? 0 : end - start > f.taps ? f.taps : end - start;
  }
  double weight(const Filter &f, int32_t tap) const { return bicubic((tap + start - middle + 0.5) * f.inverse); }
  double total(const Filter &f) const {
    double sum = 0;
    for (int32_t tap = 0; tap < count; tap++) sum += weight(f, tap);
    return sum == 0 ? 1 : sum;
  }
};
"""

_PEAK = (
    _FILTER
    + """
extern "C" void KERNEL(int32_t inputs, int32_t outputs, int32_t chunks, int32_t chunk, int32_t *peak) {
  const Filter f(inputs, outputs, chunks);
  double most;
  memcpy(&most, peak, sizeof most);
  for (int32_t at = chunk * f.held; at < outputs && at < (chunk + 1) * f.held; at++) {
    const Output o(f, at);
    const double total = o.total(f);
    for (int32_t tap = 0; tap < o.count; tap++) {
      const double weight = o.weight(f, tap) / total;
      if (weight > most) most = weight;
    }
  }
  memcpy(peak, &most, sizeof most);
}
"""
)

_LARGER = """
#include <stdint.h>
#include <string.h>
extern "C" void KERNEL(const int32_t *other, int32_t *peak) {
  double a, b;
  memcpy(&a, other, sizeof a);
  memcpy(&b, peak, sizeof b);
  if (a > b) memcpy(peak, &a, sizeof a);
}
"""

_CHUNK = (
    _FILTER
    + """
extern "C" void KERNEL(int32_t inputs, int32_t outputs, int32_t chunks, int32_t chunk, const int32_t *peak, int32_t *words) {
  const Filter f(inputs, outputs, chunks);
  for (int32_t i = 0; i < WORDS; i++) words[i] = 0;
  words[1] = f.taps;
  if (f.held == 0) {
    words[0] = -1;
    return;
  }
  double most;
  memcpy(&most, peak, sizeof most);
  int32_t bits = 0;
  while (bits < BITS && (int32_t)(0.5 + most * (double)(1 << (bits + 1))) < LIMIT) bits++;
  const int32_t first = chunk * f.held, left = outputs - first;
  const int32_t made = left < 0 ? 0 : left < f.held ? left : f.held;
  words[0] = bits;
  words[2] = first;
  words[3] = made;
  for (int32_t slot = 0; slot < made; slot++) {
    const Output o(f, first + slot);
    const double total = o.total(f);
    int32_t *to = words + HEADER + slot * f.size;
    to[0] = o.start;
    to[1] = o.count;
    for (int32_t tap = 0; tap < o.count; tap++) {
      const double scaled = o.weight(f, tap) / total * (double)(1 << bits);
      const uint32_t half = (uint16_t)(int32_t)(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
      to[SLOT + tap / 2] |= (int32_t)(half << 16 * (tap % 2));
    }
  }
}
"""
)

#: A float64 as two words of int32.
PEAK = ObjectType.of(2, np.int32)


class TapKernels:
    """The three of a table whose chunks have `words` words and `slots` outputs, None for as many as fit."""

    def __init__(self, words: int, slots: int | None) -> None:
        self.words, self.slots = words, slots
        self.defines = dict(WORDS=words, SLOTS=slots or 0, HEADER=HEADER, SLOT=SLOT, BITS=BITS, LIMIT=LIMIT)

    def held(self, inputs: int, outputs: int, chunks: int) -> int:
        """Outputs of a chunk; 0 where the table does not fit."""
        if inputs < 1 or outputs < 1:
            return 0
        held = slots_of(self.words, window(inputs, outputs), self.slots)
        return held if held * chunks >= outputs else 0

    def peak(self) -> Kernel:
        """(inputs, outputs, chunks, chunk, peak): the larger of peak and the chunk's weights."""

        def reference(inputs: int, outputs: int, chunks: int, chunk: int, peak: Any) -> np.ndarray:
            held = self.held(inputs, outputs, chunks)
            most = float(np.asarray(peak).view(np.float64)[0])
            if held * chunk < outputs and held:
                most = max(most, float(make_filter(inputs, outputs).weights[held * chunk :][:held].max()))
            return np.array([most]).view(np.int32)

        contract = KernelContract(roles=(Param,) * 4 + (InOut,), reference=reference, tolerance=Tolerance(exact=True))
        return Kernel.inline("taps_peak", _PEAK, (np.int32,) * 4 + (PEAK,), contract, self.defines)

    def larger(self) -> Kernel:
        """(other, peak): peak becomes the larger of both."""

        def reference(other: Any, peak: Any) -> np.ndarray:
            return np.maximum(np.asarray(other).view(np.float64), np.asarray(peak).view(np.float64)).view(np.int32)

        contract = KernelContract(roles=(In, InOut), reference=reference, tolerance=Tolerance(exact=True))
        return Kernel.inline("taps_larger", _LARGER, (PEAK, PEAK), contract)

    def chunk(self) -> Kernel:
        """(inputs, outputs, chunks, chunk, peak, words): the chunk of the table whose largest weight is peak."""

        def reference(inputs: int, outputs: int, chunks: int, chunk: int, peak: Any) -> np.ndarray:
            held = self.held(inputs, outputs, chunks)
            if not held:
                return unfit(self.words, window(inputs, outputs) if inputs > 0 and outputs > 0 else 0, 1)[0]
            bits = precision(float(np.asarray(peak).view(np.float64)[0]))
            return chunk_of(make_filter(inputs, outputs), bits, self.words, held, chunk)

        contract = KernelContract(roles=(Param,) * 4 + (In, Out), reference=reference, tolerance=Tolerance(exact=True))
        types = (np.int32,) * 4 + (PEAK, ObjectType.of(self.words, np.int32))
        return Kernel.inline("taps_chunk", _CHUNK, types, contract, self.defines)
