// Products with weights of any packed format, read row by row as floats.
//
// A format is a struct F: F::row(w, M, K, m, y) reads row m of the matrix of M x K numbers whose bytes begin at w, and
// F::bytes(M, K) is how many they are. Slots as in matmul.h; w_rows: rows of a matrix of W, of which N are multiplied.
// packed_product and packed_to_bfp16 have K floats of scratch, packed_dequantize `cols`.
#pragma once
#include "matmul.h"

namespace iron {

// 2^n for n from -252 to 254; below 2^-149 it is 0, above 2^127 infinite.
INLINE float power_of_two(int32_t n) {
  int32_t half = n / 2;
  return as_float((uint32_t)(half + 127) << 23) * as_float((uint32_t)(n - half + 127) << 23);
}

template <class F, class X, class O> void packed_product(const slots::PackedProduct<X, O>& g, int32_t tid, int32_t nt) {
  float* row = (float*)g.scratch;
  Share s = share(g.N * g.batches, tid, nt);
  for (int64_t at = s.begin; at < s.end; at++) {
    int64_t b = at / g.N, j = at % g.N;
    F::row(g.w + b / g.repeat * F::bytes(g.w_rows, g.K), g.w_rows, g.K, j, row);
    dot_rows<1>(g.x + b * g.x_batch, g.x_row, row, g.K, g.K, g.c + b * g.c_batch + j * g.c_column, g.c_row, g.c_column, g.M);
  }
}

template <class F, class T> void packed_dequantize(const slots::PackedDequantize<T>& g, int32_t tid, int32_t nt) {
  float* row = (float*)g.scratch;
  Share s = share(g.valid, tid, nt);
  for (int64_t r = s.begin; r < s.end; r++) {
    F::row(g.x, g.rows, g.cols, r, row);
    int64_t i = 0;
    for (; i + 8 <= g.cols; i += 8) store8(g.y + r * g.cols + i, load8(row + i));
    for (; i < g.cols; i++) store(g.y + r * g.cols + i, row[i]);
  }
}

// The numbers of x, N x K, rounded down to bfloat16 and then, eight along K at a time, to bfp16ebs8: the largest one's exponent, then
// a byte of each. The eights lie as iron_ops_flm's packing has them. K floats of scratch.
template <class F> void packed_to_bfp16(const slots::PackedToBfp16& g, int32_t tid, int32_t nt) {
  float* row = (float*)g.scratch;
  int64_t per = g.ct_k / 8 * 8, wide = g.tile_n / 8 * per;  // eights of eight n, and of a core's share of a tile
  Share s = share(g.N, tid, nt);
  for (int64_t n = s.begin; n < s.end; n++) {
    F::row(g.x, g.N, g.K, n, row);
    int64_t tile = n / g.tile_n * (g.K / g.ct_k), in_tile = n % g.tile_n / 8 * per + n % 8;
    for (int64_t k = 0; k < g.K; k += 8) {
      uint8_t* y = g.y + ((tile + k / g.ct_k) * wide + in_tile + k % g.ct_k / 8 * 8) * 9;
      int32_t sizes[8], exponents[8], largest = 0;
      for (int i = 0; i < 8; i++) {
        uint32_t u = as_bits(row[k + i]);
        u = (u + (u >> 31 ? 0xffff : 0)) >> 16;  // below zero its size is rounded up
        int32_t e = u >> 7 & 255, size = (int32_t)(u & 127) | (e ? 128 : 0);
        sizes[i] = u >> 15 ? -size : size;
        exponents[i] = e ? e : 1;
        largest = e > largest ? e : largest;
      }
      y[0] = (uint8_t)largest;
      for (int i = 0; i < 8; i++) {
        int32_t shift = largest ? 1 + largest - exponents[i] : 0;
        y[1 + i] = (uint8_t)(sizes[i] >> (shift < 31 ? shift : 31));
      }
    }
  }
}

}  // namespace iron
