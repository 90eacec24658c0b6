"""The kernels of the sampling array, with what each promises.

Logits are compared as keys: their float32 bits, turned so that unsigned numbers are ordered as they are; -0 is 0. A core that
selects counts its keys by their upper bits, which tells from which of these counts on the k largest are, and then keeps the k
largest of those, the lowest id first among equals. Its summary is int32: how many it kept, whether a logit is not finite,
k ids, k keys.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import In, InOut, Kernel, KernelContract, Loop, ObjectType, Out, Param, Tolerance, bfloat16
from iron_ops_aie.tokens import exp64
from iron_ops_aie.tokens.draw import NO_TOKEN, ROW_WORDS, candidates, pick

#: Keys are counted by their upper bits: a quarter of an octave each.
SHIFT = 21
BINS = 1 << (32 - SHIFT)
#: Where a core's state holds, behind the counts, the first one that counts and whether a logit is not finite.
FLOOR, WRONG = BINS, BINS + 1
STATE = BINS + 2
#: Words of a summary before its ids.
HEAD = 2
#: What the combining core's stack needs beside a weight and an id per candidate; float64 is done by functions.
STACK = 2048

_KEYS = """
#include <stdint.h>
#include <string.h>
#if WIDE
typedef float logit;
static uint32_t bits_of(const logit *x) { uint32_t bits; memcpy(&bits, x, 4); return bits; }
#else
typedef uint16_t logit;  // a bfloat16 is the upper half of a float
static uint32_t bits_of(const logit *x) { return (uint32_t)*x << 16; }
#endif
static uint32_t key_of(uint32_t bits) {
  if (bits == 0x80000000)
    bits = 0;
  return bits >> 31 ? ~bits : bits | 0x80000000;
}
"""

_BEGIN = """
#include <stdint.h>
extern "C" void KERNEL(int32_t *state) {
  for (int32_t i = 0; i < BINS + 2; i++)
    state[i] = 0;
}
"""

_COUNT = """
extern "C" void KERNEL(const logit *x, int32_t *state) {
  for (int32_t i = 0; i < CHUNK; i++) {
    uint32_t bits = bits_of(x + i);
    if ((bits & 0x7F800000) == 0x7F800000)
      state[BINS + 1] = 1;
    state[key_of(bits) >> SHIFT]++;
  }
}
"""

_SETTLE = """
#include <stdint.h>
extern "C" void KERNEL(int32_t *state, int32_t *summary) {
  int32_t floor = BINS - 1;
  for (int32_t seen = state[floor]; floor > 0 && seen < K; seen += state[floor])
    floor--;
  state[BINS] = floor;
  for (int32_t i = 0; i < 2 + 2 * K; i++)
    summary[i] = 0;
  summary[1] = state[BINS + 1];
}
"""

_COLLECT = """
extern "C" void KERNEL(const logit *x, int32_t first, const int32_t *state, int32_t *summary) {
  uint32_t floor = state[BINS];
  int32_t held = summary[0], *ids = summary + 2;
  uint32_t *keys = (uint32_t *)(summary + 2 + K);
  for (int32_t i = 0; i < CHUNK; i++) {
    uint32_t key = key_of(bits_of(x + i));
    if (key >> SHIFT < floor || (held == K && key <= keys[K - 1]))
      continue;
    int32_t at = held < K ? held++ : K - 1;
    for (; at > 0 && key > keys[at - 1]; at--) {
      keys[at] = keys[at - 1];
      ids[at] = ids[at - 1];
    }
    keys[at] = key;
    ids[at] = first + i;
  }
  summary[0] = held;
}
"""

_COMBINE = """
static double value_of(uint32_t key) {
  uint32_t bits = key >> 31 ? key & 0x7FFFFFFF : ~key;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
extern "C" void KERNEL(const int32_t *summaries, const int32_t *row, int32_t *record, int32_t *token) {
  const int32_t words = 2 + 2 * K;
  double weights[K];
  int32_t ids[K], at[CORES], wrong = 0, held = 0;
  for (int32_t c = 0; c < CORES; c++) {
    at[c] = 0;
    wrong |= summaries[c * words + 1];
  }
  float temperature;
  memcpy(&temperature, row, 4);
  int32_t k = !(temperature > 0) || row[1] < 1 ? 1 : row[1] > K ? K : row[1];
  while (held < k) {
    int32_t best = -1;
    uint32_t largest = 0;
    for (int32_t c = 0; c < CORES; c++) {  // the first of equals: its ids are lower
      const int32_t *one = summaries + c * words;
      if (at[c] < one[0] && (best < 0 || (uint32_t)one[2 + K + at[c]] > largest)) {
        best = c;
        largest = one[2 + K + at[c]];
      }
    }
    if (best < 0)
      break;
    ids[held] = summaries[best * words + 2 + at[best]++];
    weights[held++] = value_of(largest);
  }
  int32_t chosen = 0;
  if (temperature > 0) {
    double first = weights[0], total = 0, running = 0;
    for (int32_t i = 0; i < held; i++)
      total += weights[i] = exp64((weights[i] - first) / (double)temperature);
    uint64_t uniform = (uint64_t)(uint32_t)row[3] << 32 | (uint32_t)row[2];
    double target = (double)uniform * 0x1p-53 * total;
    for (chosen = 0; chosen < held - 1; chosen++)
      if ((running += weights[chosen]) > target)
        break;
  }
  *record = *token = wrong ? -1 : ids[chosen];
}
"""


def keys(x: Any) -> np.ndarray:
    """uint32 keys of logits."""
    bits = np.asarray(x).astype(np.float32).reshape(-1).view(np.uint32)
    bits = np.where(bits == 0x80000000, np.uint32(0), bits)
    return np.where(bits >> 31, ~bits, bits | np.uint32(0x80000000))


def values(found: np.ndarray) -> np.ndarray:
    """float64 of keys."""
    bits = np.where(found >> 31, found & np.uint32(0x7FFFFFFF), ~found)
    return bits.view(np.float32).astype(np.float64)


def summary_words(k: int) -> int:
    """int32 of a core's summary."""
    return HEAD + 2 * k


def state() -> ObjectType:
    """What a core that selects keeps between chunks."""
    return ObjectType.of(STATE, np.int32)


def begin() -> Kernel:
    """An empty state."""
    contract = KernelContract(roles=(Out,), reference=lambda: np.zeros(STATE, np.int32), tolerance=Tolerance(exact=True))
    return Kernel.inline("sample_begin", _BEGIN, (state(),), contract, dict(BINS=BINS))


def count(chunk: ObjectType) -> Kernel:
    """Count a chunk's keys."""

    def reference(x: Any, held: Any) -> np.ndarray:
        made = np.array(held)
        made[:BINS] += np.bincount(keys(x) >> SHIFT, minlength=BINS).astype(np.int32)
        made[WRONG] |= not np.isfinite(np.asarray(x).astype(np.float32)).all()
        return made

    # A key is five instructions; the count that it raises is loaded, raised and stored before the next one may be.
    loops = (Loop(times=chunk.elements, reads=1, chain=0, scalar=5 + 6 + 1 + 2),)
    contract = KernelContract(roles=(In, InOut), reference=reference, tolerance=Tolerance(exact=True), loops=loops)
    return Kernel.inline("sample_count", _KEYS + _COUNT, (chunk, state()), contract, _macros(chunk))


def settle(k: int) -> Kernel:
    """From which count on the k largest keys are; and an empty summary."""

    def reference(held: Any) -> tuple[np.ndarray, np.ndarray]:
        made, summary = np.array(held), np.zeros(summary_words(k), np.int32)
        seen = made[:BINS][::-1].cumsum()
        made[FLOOR] = BINS - 1 - int(np.argmax(seen >= k)) if seen[-1] >= k else 0
        summary[1] = made[WRONG]
        return made, summary

    contract = KernelContract(roles=(InOut, Out), reference=reference, tolerance=Tolerance(exact=True))
    kinds = (state(), ObjectType.of(summary_words(k), np.int32))
    return Kernel.inline("sample_settle", _SETTLE, kinds, contract, dict(BINS=BINS, K=k))


def collect(chunk: ObjectType, k: int) -> Kernel:
    """Keep the k largest of a chunk, whose first id is the Param, and of the summary."""

    def reference(x: Any, first: int, held: Any, summary: Any) -> np.ndarray:
        found = keys(x)
        at = np.flatnonzero(found >> SHIFT >= held[FLOOR])
        n = int(summary[0])
        ids = np.concatenate([summary[HEAD : HEAD + n], first + at]).astype(np.int32)
        both = np.concatenate([summary[HEAD + k : HEAD + k + n].view(np.uint32), found[at]])
        order = np.argsort(~both, kind="stable")[:k]
        made = np.array(summary)
        made[0] = order.size
        made[HEAD : HEAD + order.size] = ids[order]
        made[HEAD + k : HEAD + k + order.size] = both[order].view(np.int32)
        return made

    # A key and whether it is large enough, which it seldom is.
    loops = (Loop(times=chunk.elements, reads=1, chain=0, scalar=5 + 2, overlapped=True),)
    contract = KernelContract(roles=(In, Param, In, InOut), reference=reference, tolerance=Tolerance(exact=True), loops=loops)
    kinds = (chunk, np.int32, state(), ObjectType.of(summary_words(k), np.int32))
    return Kernel.inline("sample_collect", _KEYS + _COLLECT, kinds, contract, _macros(chunk) | dict(K=k))


def combine(cores: int, k: int) -> Kernel:
    """The token that a row of draws picks from the cores' summaries, twice."""

    def reference(summaries: Any, row: Any) -> tuple[np.ndarray, np.ndarray]:
        each = np.asarray(summaries).reshape(cores, summary_words(k))
        kept = [(one[HEAD : HEAD + one[0]], one[HEAD + k : HEAD + k + one[0]].view(np.uint32)) for one in each]
        ids, both = (np.concatenate(part) for part in zip(*kept, strict=True))
        order = np.argsort(~both, kind="stable")[: candidates(row, k)]
        chosen = NO_TOKEN if each[:, 1].any() else ids[order[pick(values(both[order]).tolist(), row)]]
        token = np.array([chosen], np.int32)
        return token, token

    word = ObjectType.of(1, np.int32)
    contract = KernelContract(roles=(In, In, Out, Out), reference=reference, tolerance=Tolerance(exact=True), stack=STACK + 12 * k)
    kinds = (ObjectType.of(cores * summary_words(k), np.int32), ObjectType.of(ROW_WORDS, np.int32), word, word)
    return Kernel.inline("sample_combine", exp64.SOURCE + _COMBINE, kinds, contract, dict(CORES=cores, K=k))


def _macros(chunk: ObjectType) -> dict[str, int]:
    return dict(BINS=BINS, SHIFT=SHIFT, CHUNK=chunk.elements, WIDE=int(chunk.dtype_name != np.dtype(bfloat16).name))
