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
  for (int i = 0; i < MT; i++)
    for (int j = 0; j < NT; j++) store(c + i * cm + j * cn, sumw(acc[i][j]));
}

template <int NT, class X, class W, class O>
INLINE void dot_rows(const X* x, int64_t ldx, const W* w, int64_t ldw, int64_t K, O* c, int64_t cm, int64_t cn, int64_t M) {
  enum { MT = NT == 1 ? 4 : WIDE / 4 };
  int64_t m = 0;
  const int64_t ahead = NT * ldw * (int64_t)sizeof(W);
  for (; m + MT <= M; m += MT) dots<MT, NT>(x + m * ldx, ldx, w, ldw, K, c + m * cm, cm, cn, ahead);
  for (; m < M; m++) dots<1, NT>(x + m * ldx, ldx, w, ldw, K, c + m * cm, cm, cn, ahead);
}

// Weights as rows of N. A panel of N columns is widened PANEL rows of k at a time; ROWS rows of X pass over it, their
// sums in `acc`, each adding its k in order.
enum { PANEL = 64, ROWS = 16 };

template <int MT> INLINE void add_panel(const float (*x)[PANEL], const float (*w)[PANEL], int64_t depth, float (*acc)[PANEL]) {
  enum { V = 2 };
  for (int64_t j = 0; j < PANEL; j += V * WIDE) {
    f32xw sum[MT][V];
    for (int i = 0; i < MT; i++)
      for (int v = 0; v < V; v++) sum[i][v] = loadw(acc[i] + j + v * WIDE);
    for (int64_t k = 0; k < depth; k++) {
      f32xw b[V];
      for (int v = 0; v < V; v++) b[v] = loadw(w[k] + j + v * WIDE);
      for (int i = 0; i < MT; i++)
        for (int v = 0; v < V; v++) sum[i][v] += splatw(x[i][k]) * b[v];
    }
    for (int i = 0; i < MT; i++)
      for (int v = 0; v < V; v++) storew(acc[i] + j + v * WIDE, sum[i][v]);
  }
}

template <class T> INLINE void widen_panel(const T* x, int64_t ld, int64_t rows, int64_t cols, float (*y)[PANEL]) {
  for (int64_t r = 0; r < rows; r++) {
    int64_t i = 0;
    for (; i + 8 <= cols; i += 8) store8(y[r] + i, load8(x + r * ld + i));
    for (; i < PANEL; i++) y[r][i] = i < cols ? load(x + r * ld + i) : 0.0f;
  }
}

template <class X, class W, class O>
INLINE void panel(const X* x, int64_t ldx, const W* w, int64_t ldw, int64_t K, O* c, int64_t cm, int64_t cn, int64_t M, int64_t cols) {
  float xs[ROWS][PANEL], ws[PANEL][PANEL], acc[ROWS][PANEL];
  for (int64_t m0 = 0; m0 < M; m0 += ROWS) {
    int64_t rows = M - m0 < ROWS ? M - m0 : ROWS;
    memset(acc, 0, sizeof acc);
    for (int64_t k0 = 0; k0 < K; k0 += PANEL) {
      int64_t depth = K - k0 < PANEL ? K - k0 : PANEL, m = 0;
      widen_panel(w + k0 * ldw, ldw, depth, cols, ws);
      widen_panel(x + m0 * ldx + k0, ldx, rows, depth, xs);
      for (; m + 4 <= rows; m += 4) add_panel<4>(xs + m, ws, depth, acc + m);
      for (; m < rows; m++) add_panel<1>(xs + m, ws, depth, acc + m);
    }
    for (int64_t m = 0; m < rows; m++)
      for (int64_t j = 0; j < cols; j++) store(c + (m0 + m) * cm + j * cn, acc[m][j]);
  }
}

template <class X, class W, class O> void matmul(const slots::Product<X, W, O>& g, int32_t tid, int32_t nt) {
  int64_t M = g.M, N = g.N, K = g.K, ldx = g.x_row, ldw = g.w_row, cm = g.c_row, cn = g.c_column;
  Share s = share(N * g.batches, tid, nt, g.by_rows ? 4 : 16);
  for (int64_t at = s.begin; at < s.end;) {
    int64_t b = at / N, begin = at % N, end = begin + (s.end - at);
    if (end > N) end = N;
    at += end - begin;
    const X* x = g.x + b * g.x_batch;
    const W* w = g.w + b / g.repeat * g.w_batch;
    O* c = g.c + b * g.c_batch;
    int64_t j = begin;
    if (g.by_rows) {
      for (; j + 4 <= end; j += 4) dot_rows<4>(x, ldx, w + j * ldw, ldw, K, c + j * cn, cm, cn, M);
      for (; j < end; j++) dot_rows<1>(x, ldx, w + j * ldw, ldw, K, c + j * cn, cm, cn, M);
    } else {
      for (; j < end; j += PANEL) panel(x, ldx, w + j, ldw, K, c + j * cn, cm, cn, M, end - j < PANEL ? end - j : PANEL);
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
