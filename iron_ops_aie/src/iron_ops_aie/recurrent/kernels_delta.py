"""The kernels of the delta rule's array: float32 in portable C++, which sums over the key's numbers in order.

A core keeps `block` tokens as float32 numbers, queries, then keys, then values, in `tokens`; in `gates` g, then beta, of all heads; and
of one head's state some columns, row by row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import In, InOut, Kernel, KernelContract, Loop, ObjectType, Out, Param, Tolerance, bfloat16
from iron_core.array.numbers import BFLOAT16, POWER, float32, power

#: Instructions of a product or a sum of two float32 by functions, about.
FLOAT = 25

_PUT = (
    BFLOAT16
    + """
#if WIDE
typedef float given;
static inline float number_of(float x) { return x; }
#else
typedef uint16_t given;
static inline float number_of(uint16_t x) { return widen(x); }
#endif
extern "C" void KERNEL(const given *x, float *y, int32_t at, int32_t count) {
  for (int32_t i = 0; i < MANY; i++)
    y[at + i] = count ? number_of(x[i]) : 0;
}
"""
)

_TAKE = """
#include <stdint.h>
extern "C" void KERNEL(const float *x, float *y, int32_t at) {
  for (int32_t i = 0; i < MANY; i++)
    y[i] = x[at + i];
}
"""

_STEP = (
    BFLOAT16
    + POWER
    + """
extern "C" void KERNEL(const float *tokens, const float *gates, float *state, uint16_t *o, int32_t t, int32_t head, int32_t live,
                       float scale) {
  if (!live) {
    for (int32_t j = 0; j < WIDTH; j++)
      o[j] = 0;
    return;
  }
  const float *q = tokens + t * DEEP, *k = tokens + (BLOCK + t) * DEEP, *v = tokens + 2 * BLOCK * DEEP + t * WIDTH;
  float decay = power(gates[t * HEADS + head]), beta = gates[(BLOCK + t) * HEADS + head];
  float u[WIDTH], out[WIDTH];
  for (int32_t i = 0; i < DEEP; i++)
    for (int32_t j = 0; j < WIDTH; j++) {
      float *S = state + i * WIDTH + j;
      *S = *S * decay;
      float met = *S * k[i];
      u[j] = i ? u[j] + met : met;
    }
  for (int32_t j = 0; j < WIDTH; j++)
    u[j] = beta * (v[j] - u[j]);
  for (int32_t i = 0; i < DEEP; i++)
    for (int32_t j = 0; j < WIDTH; j++) {
      float *S = state + i * WIDTH + j;
      *S = *S + k[i] * u[j];
      float read = *S * q[i];
      out[j] = i ? out[j] + read : read;
    }
  for (int32_t j = 0; j < WIDTH; j++)
    o[j] = narrow(out[j] * scale);
}
"""
)


def put(many: int, into: int, dtype: Any) -> Kernel:
    """`many` numbers, widened, at element `at` of a buffer of `into` float32; zeros where `count` is 0."""

    def reference(x: Any, y: Any, at: int, count: int) -> np.ndarray:
        made = np.array(y, np.float32)
        made[int(at) : int(at) + many] = float32(x) if count else 0
        return made

    contract = KernelContract(
        roles=(In, InOut, Param, Param),
        reference=reference,
        tolerance=Tolerance(exact=True),
        loops=(Loop(times=many, reads=1, writes=1, chain=0, scalar=2),),
    )
    types = (ObjectType.of(many, dtype), ObjectType.of(into, np.float32), np.int32, np.int32)
    return Kernel.inline("delta_put", _PUT, types, contract, dict(MANY=many, WIDE=int(dtype != bfloat16)))


def take(many: int, out_of: int) -> Kernel:
    """`many` numbers from element `at` of a buffer of `out_of` float32."""
    contract = KernelContract(
        roles=(In, Out, Param),
        reference=lambda x, at: np.array(x[int(at) : int(at) + many], np.float32),
        tolerance=Tolerance(exact=True),
        loops=(Loop(times=many, reads=1, writes=1, chain=0, scalar=2),),
    )
    types = (ObjectType.of(out_of, np.float32), ObjectType.of(many, np.float32), np.int32)
    return Kernel.inline("delta_take", _TAKE, types, contract, dict(MANY=many))


def step(block: int, deep: int, width: int, heads: int, scale: float) -> Kernel:
    """One token of one head, `width` columns of its state: what it corrects, and what is read. `t` is its number in the block; where it
    is not `live` the state stays, and zeros are read."""

    def reference(tokens: Any, gates: Any, state: Any, t: int, head: int, live: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
        t, head = int(t), int(head)
        if not live:
            return np.array(state, np.float32), np.zeros(width, np.float32)
        q, k = tokens[t * deep : (t + 1) * deep], tokens[(block + t) * deep : (block + t + 1) * deep]
        v = tokens[2 * block * deep + t * width :][:width]
        with np.errstate(over="ignore", invalid="ignore"):
            S = np.asarray(state, np.float32).reshape(deep, width) * power(gates[t * heads + head])
            met = np.add.accumulate(S * k[:, None], axis=0)[-1]  # in order, which np.sum is not
            S = S + k[:, None] * (gates[(block + t) * heads + head] * (v - met))
            return S.reshape(-1), np.add.accumulate(S * q[:, None], axis=0)[-1] * np.float32(scale)

    many = deep * width
    contract = KernelContract(
        roles=(In, In, InOut, Out, Param, Param, Param, Param),
        bindings=((7, scale),),
        reference=reference,
        tolerance=Tolerance(terms=deep),
        ops=7 * many,
        stack=1024 + 8 * width,
        # Cores have no scalar unit for floats: each operation is a function's tens of instructions.
        loops=(Loop(times=many, reads=2, writes=1, chain=0, scalar=7 * FLOAT),),
    )
    types = (
        ObjectType.of(block * (2 * deep + width), np.float32),
        ObjectType.of(2 * block * heads, np.float32),
        ObjectType.of(many, np.float32),
        ObjectType.of(width, bfloat16),
        *(np.int32, np.int32, np.int32, np.float32),
    )
    return Kernel.inline("delta_step", _STEP, types, contract, dict(BLOCK=block, DEEP=deep, WIDTH=width, HEADS=heads))
