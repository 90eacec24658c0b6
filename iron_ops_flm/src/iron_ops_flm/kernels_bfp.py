"""The kernel that makes block floating point of Q4NX, with what it promises."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Q4NX, In, Kernel, KernelContract, ObjectType, Out, Tolerance
from iron_core.declare.rounding import floored
from iron_ops_flm.packed import Packed
from iron_ops_flm.packing import BFP16, Packing

#: What is made: tiles of 512 x 64. A core's part is as many rows as one of `flm.GEMM` takes at a time.
PACKED = Packed(Packing(BFP16))
PART = Packed(Packing(BFP16, k_tile=PACKED.packing.ct_k))
#: Chunks that a core reads: side by side along N, as wide as a tile; it makes numbers of half of their columns.
CHUNKS = PACKED.block[1] // Q4NX.block[0]
HALVES = Q4NX.block[1] // PART.block[0]
#: Bytes of the chunks of a tile, of those that a core reads, of what it makes, and of a tile.
IN_BYTES = PACKED.block[0] // Q4NX.block[1] * CHUNKS * Q4NX.block_bytes
READ_BYTES = CHUNKS * Q4NX.block_bytes
MADE_BYTES, OUT_BYTES = PART.block_bytes, PACKED.block_bytes

# A number's bits without its sign count its size, so one below zero is rounded down by rounding its size up. Of a block each is
# shifted by how much smaller its exponent is than the largest; numbers below bfloat16's normal ones have the least exponent and
# no first bit.
_SOURCE = """
#include <stdint.h>
#include <string.h>

static float bfloat16_at(const uint8_t *p) {
  uint32_t bits = (uint32_t)(p[0] | p[1] << 8) << 16;
  float number;
  memcpy(&number, &bits, 4);
  return number;
}

extern "C" void KERNEL(const uint8_t *chunks, uint8_t *blocks) {
  for (int32_t step = 0; step < 64 / 8; step++)
    for (int32_t k = HALF * 128; k < HALF * 128 + 128; k += 8)
      for (int32_t n = step * 8; n < step * 8 + 8; n++, blocks += 9) {
        const uint8_t *chunk = chunks + n / 32 * 5120, *shared = chunk + (k / 32 * 32 + n % 32) * 2;
        const uint8_t *codes = chunk + 1024 + n % 32 / 16 * 2048 + k * 8 + n % 16 / 2;
        float scale = bfloat16_at(shared), least = bfloat16_at(shared + 512);
        int32_t sizes[8], exponents[8], largest = 0;
        for (int32_t i = 0; i < 8; i++) {
          float number = least + scale * (float)(codes[i * 8] >> n % 2 * 4 & 15);
          uint32_t bits;
          memcpy(&bits, &number, 4);
          bits = (bits + (bits >> 31 ? 0xffff : 0)) >> 16;
          int32_t exponent = bits >> 7 & 255, size = bits & 127;
          if (exponent)
            size |= 128;
          sizes[i] = bits >> 15 ? -size : size;
          exponents[i] = exponent ? exponent : 1;
          if (exponent > largest)
            largest = exponent;
        }
        blocks[0] = (uint8_t)largest;
        for (int32_t i = 0; i < 8; i++) {
          int32_t shift = largest ? 1 + largest - exponents[i] : 0;
          blocks[1 + i] = (uint8_t)(sizes[i] >> (shift < 31 ? shift : 31));
        }
      }
}
"""


def dequant_bfp(half: int) -> Kernel:
    """A half of the columns of two chunks, rounded down twice, as `flm.GEMM` reads them."""

    def reference(chunks: Any) -> np.ndarray:
        x = Q4NX.tensor(np.ascontiguousarray(chunks, np.uint8).reshape(-1), (CHUNKS * Q4NX.block[0], Q4NX.block[1])).dequantize()
        mine = x[:, half * PART.block[0] : (half + 1) * PART.block[0]]
        return PART.quantize(floored(mine).T, "floor").data.reshape(-1)

    numbers = PART.block[0] * PART.block[1]
    contract = KernelContract(
        roles=(In, Out), reference=reference, tolerance=Tolerance(exact=True), ops=2 * numbers, unsupported=("AIE2",)
    )
    types = (ObjectType.of(READ_BYTES, np.uint8), ObjectType.of(MADE_BYTES, np.uint8))
    return Kernel.inline("dequant_bfp", _SOURCE, types, contract, dict(HALF=half))
