"""The kernels of experts' arrays: float32 in portable C++.

A core keeps a block of rows, `k` places of each; a line is a row of an expert's matrix, and what it makes of a place is kept beside.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import In, InOut, Kernel, KernelContract, Loop, ObjectType, Out, Param, Tolerance, bfloat16
from iron_core.array.numbers import BFLOAT16, POWER, power
from iron_ops_aie.products.kernels_mv import lane_products
from iron_ops_aie.recurrent.kernels_delta import FLOAT

_KEEP = """
#include <stdint.h>
extern "C" void KERNEL(const uint16_t *line, uint16_t *kept, int32_t at) {
  for (int32_t i = 0; i < COUNT; i++)
    kept[at + i] = line[i];
}
"""

_PICK = (
    BFLOAT16
    + """
extern "C" void KERNEL(const uint16_t *kept, const int32_t *ids, const uint16_t *line, float *made, int32_t e, int32_t at, int32_t live) {
  for (int32_t p = 0; p < PLACES && p / K < live; p++) {
    int32_t id = ids[p] < -EXPERTS ? -EXPERTS : ids[p] >= EXPERTS ? EXPERTS - 1 : ids[p];
    if ((id < 0 ? id + EXPERTS : id) != e)
      continue;
    const uint16_t *x = kept + p / SHARE * LEN;
    float sums[VECTOR] = {};
    for (int32_t i = 0; i < LEN; i += VECTOR)
      for (int32_t lane = 0; lane < VECTOR; lane++)
        sums[lane] += widen(line[i + lane]) * widen(x[i + lane]);
    for (int32_t half = VECTOR / 2; half; half /= 2)
      for (int32_t lane = 0; lane < half; lane++)
        sums[lane] += sums[lane + half];
    made[p * WIDTH + at] = sums[0];
  }
}
"""
)

_OPEN = (
    BFLOAT16
    + POWER
    + """
extern "C" void KERNEL(const float *gate, const float *up, uint16_t *y, int32_t live) {
  for (int32_t i = 0; i < MANY; i++)
    y[i] = i < live * EACH ? narrow(gate[i] / (1 + power(-gate[i])) * up[i]) : 0;
}
"""
)

_GATE = (
    BFLOAT16
    + POWER
    + """
extern "C" void KERNEL(const int32_t *gates, float *opened) {
  for (int32_t r = 0; r < BLOCK; r++)
    opened[r] = 1 / (1 + power(-number((uint32_t)gates[r])));
}
"""
)

# With what is shared and with its gate it is another source, not another macro: each is compiled by itself where kernels are tested.
_ADD = (
    BFLOAT16
    + """
extern "C" void KERNEL(const float *made, const int32_t *weights, BESIDES uint16_t *y, int32_t live) {
  for (int32_t r = 0; r < BLOCK; r++)
    for (int32_t i = 0; i < WIDTH; i++) {
      float sum = 0;
      for (int32_t s = 0; s < K && r < live; s++) {
        float term = number((uint32_t)weights[r * K + s]) * made[(r * K + s) * WIDTH + i];
        sum = s ? sum + term : term;
      }
      LAST
      y[r * WIDTH + i] = narrow(sum);
    }
}
"""
)
_ADDED = _ADD.replace("BESIDES ", "").replace("      LAST\n", "")
_ADDED_SHARED = _ADD.replace("BESIDES", "const uint16_t *shared,").replace(
    "LAST", "sum = r < live ? sum + widen(shared[r * WIDTH + i]) : 0;"
)
_ADDED_GATED = _ADD.replace("BESIDES", "const uint16_t *shared, const float *opened,").replace(
    "LAST", "float term = opened[r] * widen(shared[r * WIDTH + i]);\n      sum = r < live ? sum + term : 0;"
)


def vector(length: int) -> int:
    """Sums that go side by side over a line."""
    return next((v for v in (32, 16, 8, 4) if length % v == 0), 2)


def keep(length: int, count: int, kept: int) -> Kernel:
    """The first `count` numbers of a line are those of `kept` from `at` on."""

    def reference(line: Any, held: Any, at: int) -> np.ndarray:
        made = np.array(held)
        made[int(at) : int(at) + count] = line[:count]
        return made

    contract = KernelContract(
        roles=(In, InOut, Param),
        reference=reference,
        tolerance=Tolerance(exact=True),
        loops=(Loop(times=count, reads=1, writes=1, chain=0, scalar=2),),
    )
    types = (ObjectType.of(length, bfloat16), ObjectType.of(kept, bfloat16), np.int32)
    return Kernel.inline("experts_keep", _KEEP, types, contract, dict(COUNT=count))


def pick(length: int, block: int, k: int, width: int, experts: int, share: int) -> Kernel:
    """Number `at` of what each place makes whose id is `e`: a line times its row, `share` places to a row. Of `live` rows."""
    places = block * k

    def reference(kept: Any, ids: Any, line: Any, made: Any, e: int, at: int, live: int) -> np.ndarray:
        result = np.array(made, np.float32)
        picked = np.clip(np.asarray(ids).astype(np.int64).reshape(-1), -experts, experts - 1) % experts == int(e)
        here = np.nonzero(picked & (np.arange(places) // k < int(live)))[0]
        if not len(here):
            return result
        rows = np.reshape(kept, (-1, length))[here // share]
        with np.errstate(over="ignore", invalid="ignore"):
            result.reshape(places, width)[here, int(at)] = lane_products(rows, line, vector(length))
        return result

    contract = KernelContract(
        roles=(In, In, In, InOut, Param, Param, Param),
        reference=reference,
        tolerance=Tolerance(terms=length),
        ops=2 * length,
        stack=1024,
        # Of an expert's lines one place or so is multiplied; ids are compared with for every place.
        loops=(Loop(times=places, reads=1, chain=0, scalar=8), Loop(times=length, reads=2, chain=0, scalar=2 * FLOAT)),
    )
    types = (
        ObjectType.of(places // share * length, bfloat16),
        ObjectType.of((block, k), np.int32),
        ObjectType.of(length, bfloat16),
        ObjectType.of(places * width, np.float32),
        np.int32,
        np.int32,
        np.int32,
    )
    macros = dict(LEN=length, PLACES=places, K=k, WIDTH=width, EXPERTS=experts, SHARE=share, VECTOR=vector(length))
    return Kernel.inline("experts_pick", _PICK, types, contract, macros)


def opened(block: int, k: int, width: int) -> Kernel:
    """y = silu(gate) * up of `live` rows, zeros of the others."""
    many, each = block * k * width, k * width

    def reference(gate: Any, up: Any, live: int) -> np.ndarray:
        count = max(0, min(many, int(live) * each))
        result = np.zeros(many, np.float32)
        g, u = np.asarray(gate, np.float32)[:count], np.asarray(up, np.float32)[:count]
        with np.errstate(over="ignore", invalid="ignore"):
            result[:count] = g / (np.float32(1) + power(-g)) * u
        return result

    contract = KernelContract(
        roles=(In, In, Out, Param),
        reference=reference,
        tolerance=Tolerance(terms=8),
        stack=1024,
        loops=(Loop(times=many, reads=2, writes=1, chain=0, scalar=20 * FLOAT),),
    )
    types = (ObjectType.of(many, np.float32), ObjectType.of(many, np.float32), ObjectType.of((block, k, width), bfloat16), np.int32)
    return Kernel.inline("experts_open", _OPEN, types, contract, dict(MANY=many, EACH=each))


def opening(block: int, k: int) -> Kernel:
    """The logistic function of a float32 per row, whose bits the first `block` words are."""

    def reference(gates: Any) -> np.ndarray:
        numbers = np.ascontiguousarray(gates, np.int32).reshape(-1)[:block].view(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(np.float32(1) / (np.float32(1) + power(-numbers)))

    contract = KernelContract(
        roles=(In, Out),
        reference=reference,
        tolerance=Tolerance(terms=8),
        stack=1024,
        loops=(Loop(times=block, reads=1, writes=1, chain=0, scalar=20 * FLOAT),),
    )
    types = (ObjectType.of((block, k), np.int32), ObjectType.of(block, np.float32))
    return Kernel.inline("experts_gate", _GATE, types, contract, dict(BLOCK=block))


def added(block: int, k: int, width: int, shares: bool = False, gates: bool = False) -> Kernel:
    """Sums over the places of each of `live` rows, times their float32 weights, whose bits `weights` are; zeros of the others.

    `shares`: then what is shared of the rows, (block, width), is added; `gates`: times a number of each row.
    """

    def reference(made: Any, weights: Any, *rest: Any) -> np.ndarray:
        *besides, live = rest
        count = max(0, min(block, int(live)))
        result = np.zeros((block, width), np.float32)
        parts = np.ascontiguousarray(weights, np.int32).view(np.float32).reshape(block, k)[:count]
        with np.errstate(over="ignore", invalid="ignore"):
            terms = parts[..., None] * np.asarray(made, np.float32).reshape(block, k, width)[:count]
            result[:count] = np.add.accumulate(terms, axis=1)[:, -1]  # in order
            if shares:
                shared = np.asarray(besides[0]).astype(np.float32).reshape(block, width)[:count]
                result[:count] += shared * np.asarray(besides[1], np.float32)[:count, None] if gates else shared
        return result

    besides = [ObjectType.of(block * width, bfloat16)] * shares + [ObjectType.of(block, np.float32)] * gates
    contract = KernelContract(
        roles=(In, In, *[In for _ in besides], Out, Param),
        reference=reference,
        tolerance=Tolerance(terms=k + shares),
        stack=1024,
        loops=(Loop(times=block * (k + shares) * width, reads=2, chain=0, scalar=2 * FLOAT),),
    )
    types = (
        ObjectType.of(block * k * width, np.float32),
        ObjectType.of((block, k), np.int32),
        *besides,
        ObjectType.of((block, width), bfloat16),
        np.int32,
    )
    source = _ADDED_GATED if gates else _ADDED_SHARED if shares else _ADDED
    return Kernel.inline("experts_add", source, types, contract, dict(BLOCK=block, K=k, WIDTH=width))
