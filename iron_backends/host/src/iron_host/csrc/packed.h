// Products with weights of any packed format, read row by row as floats.
//
// A format is a struct F: F::row(w, M, K, m, y) reads row m of the matrix of M x K numbers whose bytes begin at w, and
// F::bytes(M, K) is how many they are. Slots as in matmul.h; w_rows: rows of a matrix of W, of which N are multiplied.
// packed_product has K floats of scratch, packed_dequantize `cols`.
#pragma once
#include "matmul.h"

namespace iron {

// Stored number i of those at p: integers of 1, 2, 4, 8 or 32 bits, the first of a byte in its
// lowest ones, and floats.
template <int BITS> INLINE int32_t unsigned_at(const uint8_t* p, int64_t i) {
  if (BITS == 8) return p[i];
  if (BITS < 8) return p[i * BITS >> 3] >> (i * BITS & 7) & ((1 << (BITS & 7)) - 1);
  int32_t whole;
  memcpy(&whole, p + 4 * i, 4);
  return whole;
}
template <int BITS> INLINE int32_t signed_at(const uint8_t* p, int64_t i) {
  uint32_t up = (uint32_t)unsigned_at<BITS>(p, i) << (32 - BITS);
  return (int32_t)up >> (32 - BITS);
}
template <class T> INLINE float at(const uint8_t* p, int64_t i) { T v; memcpy(&v, p + i * (int64_t)sizeof v, sizeof v); return load(&v); }

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

}  // namespace iron
