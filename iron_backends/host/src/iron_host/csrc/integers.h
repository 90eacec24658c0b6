// Products of integers: slots as of matmul.h, sums in int32, which must hold them (K up to 131071 for int8). Where C is floats, a
// sum is rounded to float32 and multiplied by `scale`, and by row_scale of its row of X, if that is not NULL: sum * (scale * row_scale).
#pragma once
#include "common.h"

namespace iron {

enum { STRIP = 64 };  // columns that are added up side by side

template <class O> INLINE void put(O* y, int32_t sum, float scale) { store(y, (float)sum * scale); }
INLINE void put(int32_t* y, int32_t sum, float) { *y = sum; }

// What the sums of row m of batch b are multiplied by.
template <class G> INLINE float scale_of(const G& g, int64_t b, int64_t m) {
  return g.row_scale ? (float)g.scale * g.row_scale[b * g.M + m] : (float)g.scale;
}

template <class X, class W> INLINE int32_t dot(const X* x, const W* w, int64_t K) {
  int32_t sum = 0;
  for (int64_t k = 0; k < K; k++) sum += (int32_t)x[k] * (int32_t)w[k];
  return sum;
}

template <class X, class W> INLINE void add_strip(const X* x, const W* w, int64_t ldw, int64_t K, int64_t columns, int32_t* sums) {
  for (int64_t j = 0; j < columns; j++) sums[j] = 0;
  for (int64_t k = 0; k < K; k++)
    for (int64_t j = 0; j < columns; j++) sums[j] += (int32_t)x[k] * (int32_t)w[k * ldw + j];
}

template <class X, class W, class O> void matmul_integers(const slots::IntegerProduct<X, W, O>& g, int32_t tid, int32_t nt) {
  Share s = share(g.N * g.batches, tid, nt, 16);
  for (int64_t at = s.begin; at < s.end;) {
    int64_t b = at / g.N, begin = at % g.N, end = begin + (s.end - at);
    if (end > g.N) end = g.N;
    at += end - begin;
    const W* w = g.w + b / g.repeat * g.w_batch;
    for (int64_t m = 0; m < g.M; m++) {
      const X* x = g.x + b * g.x_batch + m * g.x_row;
      O* c = g.c + b * g.c_batch + m * g.c_row;
      float scale = scale_of(g, b, m);
      if (g.by_rows) {
        for (int64_t j = begin; j < end; j++) put(c + j * g.c_column, dot(x, w + j * g.w_row, g.K), scale);
        continue;
      }
      for (int64_t j = begin; j < end; j += STRIP) {
        int32_t sums[STRIP];
        int64_t columns = end - j < STRIP ? end - j : STRIP;
        add_strip(x, w + j, g.w_row, g.K, columns, sums);
        for (int64_t i = 0; i < columns; i++) put(c + (j + i) * g.c_column, sums[i], scale);
      }
    }
  }
}

// The twin: one number at a time.
template <class X, class W, class O> void matmul_integers_naive(const slots::IntegerProduct<X, W, O>& g, int32_t tid, int32_t) {
  if (tid) return;
  for (int64_t b = 0; b < g.batches; b++)
    for (int64_t m = 0; m < g.M; m++)
      for (int64_t j = 0; j < g.N; j++) {
        const X* x = g.x + b * g.x_batch + m * g.x_row;
        const W* w = g.w + b / g.repeat * g.w_batch;
        int64_t sum = 0;
        for (int64_t k = 0; k < g.K; k++) sum += (int64_t)x[k] * (g.by_rows ? w[j * g.w_row + k] : w[k * g.w_row + j]);
        put(g.c + b * g.c_batch + m * g.c_row + j * g.c_column, (int32_t)sum, scale_of(g, b, m));
      }
}

}  // namespace iron
