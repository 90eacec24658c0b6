// Moving numbers.
//
// copy<S, D>    p: x, y          n: 0 loops (at most 5), 1-5 trips outermost first, 6-10 steps in x, 11-15 steps in y
// gather<S, D>  p: x, ids, y     n: 0 ids, 1 numbers in a row, 2 rows of x, 3 step between rows of y
// repeat<T>     p: x, y          n: rows, cols, times
// transpose<T>  p: x, y          n: batches, M, N
//
// S and D are equal (any type of the right width) or floats, rounded once.
#pragma once
#include "common.h"

template <class S, class D> struct Move {
  INLINE void run(const S* x, int64_t sx, D* y, int64_t sy, int64_t n) {
    int64_t i = 0;
    if (sx == 1 && sy == 1)
      for (; i + 8 <= n; i += 8) store8(y + i, load8(x + i));
    for (; i < n; i++) store(y + i * sy, load(x + i * sx));
  }
};
template <class T> struct Move<T, T> {
  INLINE void run(const T* x, int64_t sx, T* y, int64_t sy, int64_t n) {
    if (sx == 1 && sy == 1) memmove(y, x, n * sizeof(T));
    else for (int64_t i = 0; i < n; i++) y[i * sy] = x[i * sx];
  }
};

template <class S, class D> void copy(const iron_args* g, int32_t tid, int32_t nt) {
  const int64_t *n = g->n + 1, *a = g->n + 6, *b = g->n + 11;
  int64_t loops = g->n[0];
  const S* x = (const S*)g->p[0];
  D* y = (D*)g->p[1];
  if (loops == 1) {
    Share s = share(n[0], tid, nt, 64);
    Move<S, D>::run(x + s.begin * a[0], a[0], y + s.begin * b[0], b[0], s.end - s.begin);
    return;
  }
  int64_t rows = 1;
  for (int64_t i = 0; i < loops - 1; i++) rows *= n[i];
  Share s = share(rows, tid, nt);
  for (int64_t r = s.begin; r < s.end; r++) {
    int64_t left = r, from = 0, to = 0;
    for (int64_t i = loops - 2; i >= 0; i--) {
      from += left % n[i] * a[i];
      to += left % n[i] * b[i];
      left /= n[i];
    }
    Move<S, D>::run(x + from, a[loops - 1], y + to, b[loops - 1], n[loops - 1]);
  }
}

template <class S, class D> void gather(const iron_args* g, int32_t tid, int32_t nt) {
  int64_t row = g->n[1], rows = g->n[2];
  Share s = share(g->n[0], tid, nt);
  for (int64_t r = s.begin; r < s.end; r++) {
    int64_t id = ((const int32_t*)g->p[1])[r];
    id = id < -rows ? -rows : id >= rows ? rows - 1 : id;
    if (id < 0) id += rows;
    Move<S, D>::run((const S*)g->p[0] + id * row, 1, (D*)g->p[2] + r * g->n[3], 1, row);
  }
}

template <class T> void repeat(const iron_args* g, int32_t tid, int32_t nt) {
  int64_t cols = g->n[1], times = g->n[2];
  Share s = share(g->n[0] * times, tid, nt);
  for (int64_t r = s.begin; r < s.end; r++)
    memcpy((T*)g->p[1] + r * cols, (const T*)g->p[0] + r / times * cols, cols * sizeof(T));
}

template <class T> void transpose(const iron_args* g, int32_t tid, int32_t nt) {
  int64_t M = g->n[1], N = g->n[2];
  Share s = share(g->n[0] * N, tid, nt, 16);
  for (int64_t r = s.begin; r < s.end; r++) {
    const T* x = (const T*)g->p[0] + r / N * M * N + r % N;
    T* y = (T*)g->p[1] + r * M;
    for (int64_t i = 0; i < M; i++) y[i] = x[i * N];
  }
}
