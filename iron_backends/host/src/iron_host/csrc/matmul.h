// Products with dense weights: C[b][m][n] = sum over k of X[b][m][k] * W[b / repeat][n][k].
//
// matmul<X, W, O>
//   p: X, W, C
//   n: 0 rows M, 1 outputs N, 2 depth K, 3 X row stride, 4 W row stride, 5 W as rows of K (1) or rows of N (0),
//      6 C stride between rows m, 7 C stride between outputs n, 8 batches, 9 X, 10 W, 11 C batch strides, 12 repeat
//
// Rows of K: WIDE lanes over k, the last few numbers as a vector filled up with zeros, then sumw. Rows of N: k in
// order for each output. Either way an element's order of additions does not depend on M, N or the threads.
#pragma once
#include "common.h"

// MT rows against NT outputs over the same stretch of k, each with an accumulator of its own. `ahead`: bytes from here to
// what is read after it, if it comes from memory; 0: nothing to ask for.
template <int MT, int NT, class X, class W, class O>
INLINE void dots(const X* x, int64_t ldx, const W* w, int64_t ldw, int64_t K, O* c, int64_t cm, int64_t cn, int64_t ahead) {
  enum { LINE = 64 / sizeof(W) > WIDE ? 64 / sizeof(W) : WIDE };  // numbers of a cache line
  f32xw acc[MT][NT];
  for (int i = 0; i < MT; i++)
    for (int j = 0; j < NT; j++) acc[i][j] = splatw(0.0f);
  int64_t k = 0;
  for (; k + LINE <= K; k += LINE) {
    if (ahead) for (int j = 0; j < NT; j++) __builtin_prefetch((const char*)(w + j * ldw + k) + ahead, 0, 2);
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
  for (; m + MT <= M; m += MT) dots<MT, NT>(x + m * ldx, ldx, w, ldw, K, c + m * cm, cm, cn, 0);
  for (; m < M; m++) dots<1, NT>(x + m * ldx, ldx, w, ldw, K, c + m * cm, cm, cn, NT * ldw * (int64_t)sizeof(W));
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

template <class X, class W, class O> void matmul(const iron_args* g, int32_t tid, int32_t nt) {
  const int64_t* n = g->n;
  int64_t M = n[0], N = n[1], K = n[2], ldx = n[3], ldw = n[4], cm = n[6], cn = n[7];
  Share s = share(N * n[8], tid, nt, n[5] ? 4 : 16);
  for (int64_t at = s.begin; at < s.end;) {
    int64_t b = at / N, begin = at % N, end = begin + (s.end - at);
    if (end > N) end = N;
    at += end - begin;
    const X* x = (const X*)g->p[0] + b * n[9];
    const W* w = (const W*)g->p[1] + b / n[12] * n[10];
    O* c = (O*)g->p[2] + b * n[11];
    int64_t j = begin;
    if (n[5]) {
      for (; j + 4 <= end; j += 4) dot_rows<4>(x, ldx, w + j * ldw, ldw, K, c + j * cn, cm, cn, M);
      for (; j < end; j++) dot_rows<1>(x, ldx, w + j * ldw, ldw, K, c + j * cn, cm, cn, M);
    } else {
      for (; j < end; j += PANEL) panel(x, ldx, w + j, ldw, K, c + j * cn, cm, cn, M, end - j < PANEL ? end - j : PANEL);
    }
  }
}

// The twin: one number at a time.
template <class X, class W, class O> void matmul_naive(const iron_args* g, int32_t tid, int32_t nt) {
  const int64_t* n = g->n;
  if (tid) return;
  for (int64_t b = 0; b < n[8]; b++)
    for (int64_t m = 0; m < n[0]; m++)
      for (int64_t j = 0; j < n[1]; j++) {
        const X* x = (const X*)g->p[0] + b * n[9] + m * n[3];
        const W* w = (const W*)g->p[1] + b / n[12] * n[10];
        double sum = 0;
        for (int64_t k = 0; k < n[2]; k++) sum += (double)load(x + k) * load(n[5] ? w + j * n[4] + k : w + k * n[4] + j);
        store((O*)g->p[2] + b * n[11] + m * n[6] + j * n[7], (float)sum);
      }
}
