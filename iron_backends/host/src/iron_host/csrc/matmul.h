// Products with dense weights: C[b][m][n] = sum over k of X[b][m][k] * W[b / repeat][n][k], M x N x K of them.
//
// x_row, w_row, c_row, c_column: numbers between rows of X, rows of W as it lies, outputs of a column and of a row;
// x_batch, w_batch, c_batch: between matrices. by_rows: W is rows of K (1) or rows of N (0).
//
// Rows of K: WIDE lanes over k, the last few numbers as a vector filled up with zeros, then sumw. Rows of N: k in
// order for each output. Either way an element's order of additions does not depend on M, N or the threads.
#pragma once
#include "common.h"

namespace iron {

// MT rows against NT outputs over the same stretch of k, each with an accumulator of its own. `ahead`: bytes from here to
// what is read after it, which one row asks for: more of them pass over weights that are in the caches.
template <int MT, int NT, class X, class W, class O>
INLINE void dots(const X* x, int64_t ldx, const W* w, int64_t ldw, int64_t K, O* c, int64_t cm, int64_t cn, int64_t ahead) {
  enum { LINE = 64 / sizeof(W) > WIDE ? 64 / sizeof(W) : WIDE };  // numbers of a cache line
  f32xw acc[MT][NT];
  for (int i = 0; i < MT; i++)
    for (int j = 0; j < NT; j++) acc[i][j] = splatw(0.0f);
  int64_t k = 0;
  for (; k + LINE <= K; k += LINE) {
    if (MT == 1) for (int j = 0; j < NT; j++) __builtin_prefetch((const char*)(w + j * ldw + k) + ahead, 0, 2);
    for (int l = 0; l < LINE; l += WIDE) {
      f32xw b[NT];
      for (int j = 0; j < NT; j++) b[j] = loadw(w + j * ldw + k + l);
      for (int i = 0; i < MT; i++) {
        f32xw a = loadw(x + i * ldx + k + l);
        for (int j = 0; j < NT; j++) acc[i][j] += a * b[j];
      }
    }
  }
  for (; k < K; k += WIDE) {
    bool whole = k + WIDE <= K;
    f32xw b[NT];
    for (int j = 0; j < NT; j++) b[j] = whole ? loadw(w + j * ldw + k) : loadw_part(w + j * ldw + k, K - k);
    for (int i = 0; i < MT; i++) {
      f32xw a = whole ? loadw(x + i * ldx + k) : loadw_part(x + i * ldx + k, K - k);
      for (int j = 0; j < NT; j++) acc[i][j] += a * b[j];
    }
  }
  for (int i = 0; i < MT; i++) {
    float sums[NT];
    if (NT == 4) sums4w(acc[i], sums);
    else for (int j = 0; j < NT; j++) sums[j] = sumw(acc[i][j]);
    for (int j = 0; j < NT; j++) store(c + i * cm + j * cn, sums[j]);
  }
}

template <int NT, class X, class W, class O>
INLINE void dot_rows(const X* x, int64_t ldx, const W* w, int64_t ldw, int64_t K, O* c, int64_t cm, int64_t cn, int64_t M) {
  enum { MT = NT == 1 ? 4 : WIDE / 4 };
  int64_t m = 0;
  const int64_t ahead = NT * ldw * (int64_t)sizeof(W);
  for (; m + MT <= M; m += MT) dots<MT, NT>(x + m * ldx, ldx, w, ldw, K, c + m * cm, cm, cn, ahead);
  for (; m < M; m++) dots<1, NT>(x + m * ldx, ldx, w, ldw, K, c + m * cm, cm, cn, ahead);
}

// Rows of numbers as floats: where they lie, or widened into `y`, `ldy` apart.
INLINE const float* widened(const float* x, int64_t&, int64_t, int64_t, float*, int64_t) { return x; }
template <class T> INLINE const float* widened(const T* x, int64_t& ldx, int64_t rows, int64_t cols, float* y, int64_t ldy) {
  for (int64_t m = 0; m < rows; m++) {
    int64_t k = 0;
    for (; k + 8 <= cols; k += 8) store8(y + m * ldy + k, load8(x + m * ldx + k));
    for (; k < cols; k++) y[m * ldy + k] = load(x + m * ldx + k);
  }
  ldx = ldy;
  return y;
}

// Weights as rows of K. BESIDE rows of X meet all of W before the next ones do, so that they stay in a cache; where there are at
// least SEVERAL, what is no float is widened once. Scratch: BESIDE + 4 rows of K floats, then.
enum { BESIDE = 64, SEVERAL = 8 };

template <class X, class W, class O>
INLINE void rows_of_k(const X* x, int64_t ldx, const W* w, int64_t ldw, int64_t K, O* c, int64_t cm, int64_t cn, int64_t M, int64_t N) {
  int64_t j = 0;
  for (; j + 4 <= N; j += 4) dot_rows<4>(x, ldx, w + j * ldw, ldw, K, c + j * cn, cm, cn, M);
  for (; j < N; j++) dot_rows<1>(x, ldx, w + j * ldw, ldw, K, c + j * cn, cm, cn, M);
}

template <class X, class W, class O>
INLINE void many_rows_of_k(const X* x, int64_t ldx, const W* w, int64_t ldw, int64_t K, O* c, int64_t cm, int64_t cn, int64_t M, int64_t N, float* y) {
  for (int64_t m = 0; m < M; m += BESIDE) {
    int64_t rows = M - m < BESIDE ? M - m : BESIDE, la = ldx;
    const float* a = widened(x + m * ldx, la, rows, K, y, K);
    for (int64_t j = 0; j < N; j += 4) {
      int64_t cols = N - j < 4 ? N - j : 4, lb = ldw;
      const float* b = widened(w + j * ldw, lb, cols, K, y + BESIDE * K, K);
      rows_of_k(a, la, b, lb, K, c + m * cm + j * cn, cm, cn, rows, cols);
    }
  }
}

// Weights as rows of N. A panel of PANEL columns is widened DEPTH rows of k at a time; ROWS rows of X pass over it, HIGH at once,
// their sums in `acc`, each adding its k in order.
#if defined(IRON_AVX512)
enum { PANEL = 48, HIGH = 8, ACROSS = 3 };
#elif defined(__AVX2__) || defined(__aarch64__)
enum { PANEL = 48, HIGH = 4, ACROSS = 3 };
#else
enum { PANEL = 48, HIGH = 4, ACROSS = 1 };
#endif
enum { DEPTH = 128, ROWS = 256 };

template <int MT> INLINE void add_panel(const float* x, int64_t ldx, const float (*w)[PANEL], int64_t depth, float (*acc)[PANEL]) {
  for (int64_t j = 0; j < PANEL; j += ACROSS * WIDE) {
    f32xw sum[MT][ACROSS];
    for (int i = 0; i < MT; i++)
      for (int v = 0; v < ACROSS; v++) sum[i][v] = loadw(acc[i] + j + v * WIDE);
    for (int64_t k = 0; k < depth; k++) {
      f32xw b[ACROSS];
      for (int v = 0; v < ACROSS; v++) b[v] = loadw(w[k] + j + v * WIDE);
      for (int i = 0; i < MT; i++) {
        f32xw a = splatw(x[i * ldx + k]);
        for (int v = 0; v < ACROSS; v++) sum[i][v] = maddw(a, b[v], sum[i][v]);
      }
    }
    for (int i = 0; i < MT; i++)
      for (int v = 0; v < ACROSS; v++) storew(acc[i] + j + v * WIDE, sum[i][v]);
  }
}

INLINE void add_rows(const float* x, int64_t ldx, int64_t rows, const float (*w)[PANEL], int64_t depth, float (*acc)[PANEL]) {
  int64_t m = 0;
  for (; m + HIGH <= rows; m += HIGH) add_panel<HIGH>(x + m * ldx, ldx, w, depth, acc + m);
  if (HIGH > 4)
    for (; m + 4 <= rows; m += 4) add_panel<4>(x + m * ldx, ldx, w, depth, acc + m);
  for (; m < rows; m++) add_panel<1>(x + m * ldx, ldx, w, depth, acc + m);
}

template <class T> INLINE void widen_panel(const T* w, int64_t ld, int64_t depth, int64_t cols, float (*y)[PANEL]) {
  for (int64_t k = 0; k < depth; k++) {
    int64_t j = 0;
    for (; j + 8 <= cols; j += 8) store8(y[k] + j, load8(w + k * ld + j));
    for (; j < cols; j++) y[k][j] = load(w + k * ld + j);
  }
}

// `fill(k, depth, y)` lays out weights, `finish(m, rows, sums)` takes the sums of rows from m on.
template <class X, class Fill, class Finish>
INLINE void panel(const X* x, int64_t ldx, int64_t M, int64_t K, Fill fill, Finish finish) {
  float xs[ROWS * DEPTH], ws[DEPTH][PANEL], acc[ROWS][PANEL];
  memset(ws, 0, sizeof ws);  // columns there are none of
  for (int64_t m0 = 0; m0 < M; m0 += ROWS) {
    int64_t rows = M - m0 < ROWS ? M - m0 : ROWS;
    memset(acc, 0, sizeof acc);
    for (int64_t k0 = 0; k0 < K; k0 += DEPTH) {
      int64_t depth = K - k0 < DEPTH ? K - k0 : DEPTH, ld = ldx;
      fill(k0, depth, ws);
      const float* a = widened(x + m0 * ldx + k0, ld, rows, depth, xs, DEPTH);
      add_rows(a, ld, rows, ws, depth, acc);
    }
    finish(m0, rows, acc);
  }
}

template <class X, class W, class O> void matmul(const slots::Product<X, W, O>& g, int32_t tid, int32_t nt) {
  int64_t N = g.N, ldw = g.w_row, cm = g.c_row, cn = g.c_column;
  Share s = share(N * g.batches, tid, nt, g.by_rows ? 4 : 16);
  for (int64_t at = s.begin; at < s.end;) {
    int64_t b = at / N, j = at % N, end = j + (s.end - at) < N ? j + (s.end - at) : N;
    at += end - j;
    const X* x = g.x + b * g.x_batch;
    const W* w = g.w + b / g.repeat * g.w_batch;
    O* c = g.c + b * g.c_batch + j * cn;
    if (g.by_rows) {
      if (g.M < SEVERAL) rows_of_k(x, g.x_row, w + j * ldw, ldw, g.K, c, cm, cn, g.M, end - j);
      else many_rows_of_k(x, g.x_row, w + j * ldw, ldw, g.K, c, cm, cn, g.M, end - j, (float*)g.scratch);
      continue;
    }
    for (; j < end; j += PANEL, c += PANEL * cn) {
      int64_t cols = end - j < PANEL ? end - j : PANEL;
      auto fill = [&](int64_t k, int64_t depth, float (*y)[PANEL]) { widen_panel(w + k * ldw + j, ldw, depth, cols, y); };
      auto finish = [&](int64_t m, int64_t rows, float (*sums)[PANEL]) {
        for (int64_t i = 0; i < rows; i++)
          for (int64_t l = 0; l < cols; l++) store(c + (m + i) * cm + l * cn, sums[i][l]);
      };
      panel(x, g.x_row, g.M, g.K, fill, finish);
    }
  }
}

// The twin: one number at a time.
template <class X, class W, class O> void matmul_naive(const slots::Product<X, W, O>& g, int32_t tid, int32_t) {
  if (tid) return;
  for (int64_t b = 0; b < g.batches; b++)
    for (int64_t m = 0; m < g.M; m++)
      for (int64_t j = 0; j < g.N; j++) {
        const X* x = g.x + b * g.x_batch + m * g.x_row;
        const W* w = g.w + b / g.repeat * g.w_batch;
        double sum = 0;
        for (int64_t k = 0; k < g.K; k++) sum += (double)load(x + k) * load(g.by_rows ? w + j * g.w_row + k : w + k * g.w_row + j);
        store(g.c + b * g.c_batch + m * g.c_row + j * g.c_column, (float)sum);
      }
}

}  // namespace iron
