// Products with dense weights: C[b][m][n] = sum over k of X[b][m][k] * W[b / repeat][n][k].
//
// matmul<X, W, O>
//   p: X, W, C
//   n: 0 rows M, 1 outputs N, 2 depth K, 3 X row stride, 4 W row stride, 5 W as rows of K (1) or rows of N (0),
//      6 C stride between rows m, 7 C stride between outputs n, 8 batches, 9 X, 10 W, 11 C batch strides, 12 repeat
//
// Rows of K: eight lanes over k, then sum8, then the tail in order. Rows of N: k in order for each output. Either way
// an element's order of additions does not depend on M, N or the threads.
#pragma once
#include "common.h"

// MT rows against NT outputs over the same stretch of k, each with an accumulator of its own.
template <int MT, int NT, class X, class W, class O>
INLINE void dots(const X* x, int64_t ldx, const W* w, int64_t ldw, int64_t K, O* c, int64_t cm, int64_t cn) {
  f32x8 acc[MT][NT];
  for (int i = 0; i < MT; i++)
    for (int j = 0; j < NT; j++) acc[i][j] = splat(0.0f);
  int64_t k = 0;
  for (; k + 8 <= K; k += 8) {
    f32x8 b[NT];
    for (int j = 0; j < NT; j++) b[j] = load8(w + j * ldw + k);
    for (int i = 0; i < MT; i++) {
      f32x8 a = load8(x + i * ldx + k);
      for (int j = 0; j < NT; j++) acc[i][j] += a * b[j];
    }
  }
  for (int i = 0; i < MT; i++)
    for (int j = 0; j < NT; j++) {
      float s = sum8(acc[i][j]);
      for (int64_t t = k; t < K; t++) s = fmaf(load(x + i * ldx + t), load(w + j * ldw + t), s);
      store(c + i * cm + j * cn, s);
    }
}

template <int NT, class X, class W, class O>
INLINE void dot_rows(const X* x, int64_t ldx, const W* w, int64_t ldw, int64_t K, O* c, int64_t cm, int64_t cn, int64_t M) {
  int64_t m = 0;
  for (; m + 4 <= M; m += 4) dots<4, NT>(x + m * ldx, ldx, w, ldw, K, c + m * cm, cm, cn);
  for (; m < M; m++) dots<1, NT>(x + m * ldx, ldx, w, ldw, K, c + m * cm, cm, cn);
}

// Weights as rows of N: V vectors of outputs at once.
template <int V, class X, class W, class O>
INLINE void axpys(const X* x, const W* w, int64_t ldw, int64_t K, O* c, int64_t cn, int64_t n) {
  f32x8 acc[V];
  for (int v = 0; v < V; v++) acc[v] = splat(0.0f);
  for (int64_t k = 0; k < K; k++) {
    f32x8 a = splat(load(x + k));
    for (int v = 0; v < V; v++) {
      f32x8 b;
      if (n >= 8 * V) b = load8(w + k * ldw + 8 * v);
      else for (int l = 0; l < 8; l++) b[l] = 8 * v + l < n ? load(w + k * ldw + 8 * v + l) : 0.0f;
      acc[v] += a * b;
    }
  }
  for (int v = 0; v < V; v++)
    for (int l = 0; l < 8 && 8 * v + l < n; l++) store(c + (8 * v + l) * cn, acc[v][l]);
}

template <class X, class W, class O> void matmul(const iron_args* g, int32_t tid, int32_t nt) {
  const int64_t* n = g->n;
  int64_t M = n[0], N = n[1], K = n[2], ldx = n[3], ldw = n[4], cm = n[6], cn = n[7];
  Share s = share(N * n[8], tid, nt, n[5] ? 4 : 32);
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
      for (; j < end; j += 32) {
        int64_t left = end - j;
        for (int64_t m = 0; m < M; m++)
          if (left >= 32) axpys<4>(x + m * ldx, w + j, ldw, K, c + m * cm + j * cn, cn, 32);
          else for (int64_t t = 0; t < left; t += 8) axpys<1>(x + m * ldx, w + j + t, ldw, K, c + m * cm + (j + t) * cn, cn, left - t);
      }
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
