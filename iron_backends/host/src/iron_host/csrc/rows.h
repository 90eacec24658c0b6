// Rows computed alone.
//
// rms_norm<T, W>  p: x, weight or NULL, y   n: rows, cols                    f: epsilon
// softmax<T>      p: x, y                   n: rows, cols, valid_cols
// rope<T, A>      p: x, angles, y           n: rows, cols, rows per angle row, method (0 halves, 1 neighbours)
#pragma once
#include "common.h"

template <class T, class W> void rms_norm(const iron_args* g, int32_t tid, int32_t nt) {
  int64_t cols = g->n[1];
  const W* w = (const W*)g->p[1];
  Share s = share(g->n[0], tid, nt);
  for (int64_t r = s.begin; r < s.end; r++) {
    const T* x = (const T*)g->p[0] + r * cols;
    T* y = (T*)g->p[2] + r * cols;
    double sums[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= cols; i += 8)
      for (int64_t l = 0; l < 8; l++) { double v = load(x + i + l); sums[l] += v * v; }
    for (int64_t l = 0; i < cols; i++, l++) { double v = load(x + i); sums[l] += v * v; }
    double total = ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
    float scale = (float)(1.0 / sqrt(total / (double)cols + g->f[0]));
    if (w) for (i = 0; i < cols; i++) store(y + i, rounded<T>(load(x + i) * scale) * load(w + i));
    else for (i = 0; i < cols; i++) store(y + i, load(x + i) * scale);
  }
}

template <class T> void softmax(const iron_args* g, int32_t tid, int32_t nt) {
  int64_t cols = g->n[1], valid = g->n[2];
  Share s = share(g->n[0], tid, nt);
  for (int64_t r = s.begin; r < s.end; r++) {
    const T* x = (const T*)g->p[0] + r * cols;
    T* y = (T*)g->p[1] + r * cols;
    float top = -INFINITY;
    for (int64_t i = 0; i < valid; i++) { float v = load(x + i); top = v > top ? v : top; }
    double sum = 0;
    for (int64_t i = 0; i < valid; i += 8) {
      f32x8 v = splat(-INFINITY);
      for (int64_t l = 0; l < 8 && i + l < valid; l++) v[l] = load(x + i + l) - top;
      v = exp8(v);
      for (int64_t l = 0; l < 8; l++) sum += v[l];
    }
    double inverse = 1.0 / sum;
    for (int64_t i = 0; i < valid; i += 8) {
      f32x8 v = splat(-INFINITY);
      for (int64_t l = 0; l < 8 && i + l < valid; l++) v[l] = load(x + i + l) - top;
      v = exp8(v);
      for (int64_t l = 0; l < 8 && i + l < valid; l++) store(y + i + l, (float)(v[l] * inverse));
    }
    for (int64_t i = valid; i < cols; i++) store(y + i, 0.0f);
  }
}

template <class T, class A> void rope(const iron_args* g, int32_t tid, int32_t nt) {
  int64_t cols = g->n[1], per = g->n[2], half = cols / 2;
  bool halves = g->n[3] == 0;
  Share s = share(g->n[0], tid, nt);
  for (int64_t r = s.begin; r < s.end; r++) {
    const T* x = (const T*)g->p[0] + r * cols;
    const A* a = (const A*)g->p[1] + r / per * cols;
    T* y = (T*)g->p[2] + r * cols;
    for (int64_t i = 0; i < half; i++) {
      int64_t i1 = halves ? i : 2 * i, i2 = halves ? i + half : 2 * i + 1;
      float x1 = load(x + i1), x2 = load(x + i2), c = load(a + 2 * i), t = load(a + 2 * i + 1);
      store(y + i1, x1 * c - x2 * t);
      store(y + i2, x1 * t + x2 * c);
    }
  }
}
