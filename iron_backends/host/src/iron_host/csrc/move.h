// Moving numbers.
//
// copy       `loops` of them (at most 5), outermost first: how often each is passed, and how far it steps in x and in y
// gather     of `count` ids, rows of `cols` numbers out of table_rows, y_step apart in y
// scatter_rows  `valid` rows of `width` numbers to places of a pool of `slots` rows, of a place named twice the last; threads share columns
// repeat     every one of `valid` rows `repeat` times in turn
// transpose  matrices of M rows, N numbers each
//
// S and D are equal (any type of the right width) or floats, rounded once.
#pragma once
#include "common.h"

namespace iron {

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

template <class S, class D> void copy(const slots::Copy<S, D>& g, int32_t tid, int32_t nt) {
  const int64_t *n = g.trips, *a = g.x_steps, *b = g.y_steps;
  int64_t loops = g.loops;
  const S* x = g.x;
  D* y = g.y;
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

template <class S, class D> void gather(const slots::Gather<S, D>& g, int32_t tid, int32_t nt) {
  int64_t row = g.cols, rows = g.table_rows;
  Share s = share(g.count, tid, nt);
  for (int64_t r = s.begin; r < s.end; r++) {
    Move<S, D>::run(g.x + clipped(g.ids[r], rows) * row, 1, g.y + r * g.y_step, 1, row);
  }
}

template <class S, class D> void scatter_rows(const slots::Scatter<S, D>& g, int32_t tid, int32_t nt) {
  int64_t width = g.width;
  Share s = share(width, tid, nt, 64);
  for (int64_t r = 0; r < g.valid; r++)
    Move<S, D>::run(g.x + r * width + s.begin, 1, g.pool + clipped(g.places[r], g.slots) * width + s.begin, 1, s.end - s.begin);
}

template <class T> void repeat(const slots::Repeat<T>& g, int32_t tid, int32_t nt) {
  int64_t cols = g.cols, times = g.repeat;
  Share s = share(g.valid * times, tid, nt);
  for (int64_t r = s.begin; r < s.end; r++)
    memcpy(g.y + r * cols, g.x + r / times * cols, cols * sizeof(T));
}

template <class T> void transpose(const slots::Transpose<T>& g, int32_t tid, int32_t nt) {
  int64_t M = g.M, N = g.N;
  Share s = share(g.num_batches * N, tid, nt, 16);
  for (int64_t r = s.begin; r < s.end; r++) {
    const T* x = g.x + r / N * M * N + r % N;
    T* y = g.y + r * M;
    for (int64_t i = 0; i < M; i++) y[i] = x[i * N];
  }
}

// Row i of the text, but the next row of the soft tokens whose placeholder an id is.
template <class T> void merge(const slots::Merge<T>& g, int32_t tid, int32_t nt) {
  if (tid) return;
  int64_t audio = g.audio_at, vision = g.vision_at;
  for (int64_t i = 0; i < g.valid; i++)
    g.y[i] = (T)(g.ids[i] == g.audio_token ? audio++ : g.ids[i] == g.image_token ? vision++ : i);
}

}  // namespace iron
