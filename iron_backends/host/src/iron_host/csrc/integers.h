// Products of integers: slots as of matmul.h, sums in int32, which must hold them (K up to 131071 for int8). Where C is floats, a
// sum is rounded to float32 and multiplied by `scale`, or by scale * row_scale of its row of X, if row_scale is not NULL.
//
// Sums are the same in whatever order they are made, so every road has the same bits. Of int8 by rows, scratch is M int32.
#pragma once
#include "common.h"

namespace iron {

enum { STRIP = 64 };  // columns that are added up side by side
enum { BLOCK = 16 };  // rows of weights that rows of X pass over while they are in the nearest cache

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

// Outputs `begin` to `end` of batch b where weights are rows of K.
template <class X, class W, class O> INLINE void by_rows(const slots::IntegerProduct<X, W, O>& g, int64_t b, int64_t begin, int64_t end) {
  const W* w = g.w + b / g.repeat * g.w_batch;
  for (int64_t m = 0; m < g.M; m++) {
    O* c = g.c + b * g.c_batch + m * g.c_row;
    const X* x = g.x + b * g.x_batch + m * g.x_row;
    float scale = scale_of(g, b, m);
    for (int64_t j = begin; j < end; j++) put(c + j * g.c_column, dot(x, w + j * g.w_row, g.K), scale);
  }
}

#if defined(__AVX2__)
// int8, STEP numbers at once. VNNI multiplies unsigned by signed bytes: there weights are 128 more than they are (OVER), and what
// that adds, 128 times the sum of a row of X, is taken off. Without it bytes are widened, since sums of their products pass int16.
#if defined(IRON_AVX512)
enum { STEP = 64, OVER = 1, TALL = 4 };  // TALL: rows of X that meet four of weights at once
typedef i32x16 Step;
INLINE Step numbers(const int8_t* p) { return *(const i32x16_at*)p; }
INLINE Step weights(const int8_t* p) { return numbers(p) ^ (int32_t)0x80808080; }
INLINE Step add_products(Step sums, Step w, Step x) { return x86::add_dots(sums, w, x); }
INLINE i32x8 halved(Step v) { return (i32x8)((u32x8)x86::low(v) + (u32x8)x86::high(v)); }
#else
enum { TALL = 2 };
typedef i32x8 Step;
INLINE i32x8 halved(Step v) { return v; }
#if defined(__AVXVNNI__)
enum { STEP = 32, OVER = 1 };
INLINE Step numbers(const int8_t* p) { return *(const i32x8_at*)p; }
INLINE Step weights(const int8_t* p) { return numbers(p) ^ (int32_t)0x80808080; }
INLINE Step add_products(Step sums, Step w, Step x) { return x86::add_dots(sums, w, x); }
#else
enum { STEP = 16, OVER = 0 };
INLINE Step numbers(const int8_t* p) { return x86::widened(*(const i32x4_at*)p); }
INLINE Step weights(const int8_t* p) { return numbers(p); }
INLINE Step add_products(Step sums, Step w, Step x) { return sums + x86::halves_by(w, x); }
#endif
#endif

// The last n numbers, zeros after them.
struct Part { int8_t held[STEP]; };
INLINE Part part(const int8_t* p, int64_t n) {
  Part last;
  memset(last.held, 0, STEP);
  memcpy(last.held, p, n);
  return last;
}

// Each of four steps added up.
INLINE void totals(const Step* s, int32_t* sums) {
  i32x8 pairs = x86::add_neighbours(halved(s[0]), halved(s[1])), others = x86::add_neighbours(halved(s[2]), halved(s[3]));
  i32x8 all = x86::add_neighbours(pairs, others);
  *(i32x4_at*)sums = (i32x4)((u32x4)x86::low(all) + (u32x4)x86::high(all));
}

// MT rows of X against four of weights; `over`: what is too much in each row's sums. One row asks for the weights after these:
// more of them pass over weights that are in the caches.
template <int MT, class O>
INLINE void int8_dots(const int8_t* x, int64_t ldx, const int8_t* w, int64_t ldw, int64_t K, const int32_t* over, const float* scale, O* c,
                      int64_t cm, int64_t cn) {
  Step acc[MT][4];
  for (int i = 0; i < MT; i++)
    for (int j = 0; j < 4; j++) acc[i][j] = Step{};
  int64_t k = 0;
  for (; k + STEP <= K; k += STEP) {
    Step b[4];
    for (int j = 0; j < 4; j++) {
      if (MT == 1 && k % 64 == 0) __builtin_prefetch(w + (4 + j) * ldw + k, 0, 2);
      b[j] = weights(w + j * ldw + k);
    }
    for (int i = 0; i < MT; i++) {
      Step a = numbers(x + i * ldx + k);
      for (int j = 0; j < 4; j++) acc[i][j] = add_products(acc[i][j], b[j], a);
    }
  }
  if (k < K)
    for (int i = 0; i < MT; i++) {
      Step a = numbers(part(x + i * ldx + k, K - k).held);
      for (int j = 0; j < 4; j++) acc[i][j] = add_products(acc[i][j], weights(part(w + j * ldw + k, K - k).held), a);
    }
  for (int i = 0; i < MT; i++) {
    int32_t sums[4];
    totals(acc[i], sums);
    for (int j = 0; j < 4; j++) put(c + i * cm + j * cn, (int32_t)((uint32_t)sums[j] - (uint32_t)over[i]), scale[i]);
  }
}

// What weights of zero would give a row of X.
INLINE int32_t over_of(const int8_t* x, int64_t K) {
  const int8_t none[STEP] = {0};
  Step sums[4] = {};
  int64_t k = 0;
  for (; k + STEP <= K; k += STEP) sums[0] = add_products(sums[0], weights(none), numbers(x + k));
  if (k < K) sums[0] = add_products(sums[0], weights(none), numbers(part(x + k, K - k).held));
  int32_t all[4];
  totals(sums, all);
  return all[0];
}

template <class O>
INLINE void by_rows(const slots::IntegerProduct<int8_t, int8_t, O>& g, int64_t b, int64_t begin, int64_t end) {
  int64_t M = g.M, K = g.K, ldx = g.x_row, ldw = g.w_row, cm = g.c_row, cn = g.c_column;
  const int8_t *xs = g.x + b * g.x_batch, *ws = g.w + b / g.repeat * g.w_batch;
  O* cs = g.c + b * g.c_batch;
  int32_t* over = (int32_t*)g.scratch;
  for (int64_t m = 0; m < M; m++) over[m] = OVER ? over_of(xs + m * ldx, K) : 0;
  for (int64_t at = begin; at < end; at += BLOCK) {
    int64_t until = end - at < BLOCK ? end : at + BLOCK;
    for (int64_t m = 0; m < M;) {
      int64_t tall = M - m < TALL ? 1 : TALL, j = at;
      const int8_t* x = xs + m * ldx;
      float scale[TALL];
      for (int64_t i = 0; i < tall; i++) scale[i] = scale_of(g, b, m + i);
      for (; j + 4 <= until; j += 4) {
        O* c = cs + m * cm + j * cn;
        if (tall == 1) int8_dots<1>(x, ldx, ws + j * ldw, ldw, K, over + m, scale, c, cm, cn);
        else int8_dots<TALL>(x, ldx, ws + j * ldw, ldw, K, over + m, scale, c, cm, cn);
      }
      for (; j < until; j++)
        for (int64_t i = 0; i < tall; i++) put(cs + (m + i) * cm + j * cn, dot(x + i * ldx, ws + j * ldw, K), scale[i]);
      m += tall;
    }
  }
}
#endif

template <class X, class W, class O> void matmul_integers(const slots::IntegerProduct<X, W, O>& g, int32_t tid, int32_t nt) {
  Share s = share(g.N * g.batches, tid, nt, BLOCK);
  for (int64_t at = s.begin; at < s.end;) {
    int64_t b = at / g.N, begin = at % g.N, end = begin + (s.end - at);
    if (end > g.N) end = g.N;
    at += end - begin;
    if (g.by_rows) {
      by_rows(g, b, begin, end);
      continue;
    }
    const W* w = g.w + b / g.repeat * g.w_batch;
    for (int64_t m = 0; m < g.M; m++) {
      O* c = g.c + b * g.c_batch + m * g.c_row;
      for (int64_t j = begin; j < end; j += STRIP) {
        int32_t sums[STRIP];
        int64_t columns = end - j < STRIP ? end - j : STRIP;
        add_strip(g.x + b * g.x_batch + m * g.x_row, w + j, g.w_row, g.K, columns, sums);
        for (int64_t i = 0; i < columns; i++) put(c + (j + i) * g.c_column, sums[i], scale_of(g, b, m));
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
