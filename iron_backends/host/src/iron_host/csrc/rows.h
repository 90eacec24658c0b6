// Rows computed alone: `valid` of them, `cols` numbers apart. A softmax is over the first valid_cols numbers of a row, zeros
// after them. Of rope, rows_per_angle rows turn by one row of angles, by halves (method_type 0) or neighbours (1).
#pragma once
#include "common.h"

namespace iron {

// The sum of f(x[i]) in double: eight lanes over the columns, then the lanes in one order.
template <class T, class F> INLINE double row_sum(const T* x, int64_t cols, F f) {
  double sums[8] = {0};
  int64_t i = 0;
  for (; i + 8 <= cols; i += 8)
    for (int64_t l = 0; l < 8; l++) sums[l] += f(load(x + i + l));
  for (int64_t l = 0; i < cols; i++, l++) sums[l] += f(load(x + i));
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

template <class T, class W> void rms_norm(const slots::RMSNorm<T, W>& g, int32_t tid, int32_t nt) {
  int64_t cols = g.cols;
  const W* w = g.weight;
  Share s = share(g.valid, tid, nt);
  for (int64_t r = s.begin; r < s.end; r++) {
    const T* x = g.x + r * cols;
    T* y = g.y + r * cols;
    double total = row_sum(x, cols, [](double v) { return v * v; });
    float scale = (float)(1.0 / sqrt(total / (double)cols + g.epsilon));
    if (w) for (int64_t i = 0; i < cols; i++) store(y + i, load(x + i) * scale * load(w + i));
    else for (int64_t i = 0; i < cols; i++) store(y + i, load(x + i) * scale);
  }
}

template <class T> void l2_norm(const slots::L2Norm<T>& g, int32_t tid, int32_t nt) {
  int64_t cols = g.cols;
  Share s = share(g.valid, tid, nt);
  for (int64_t r = s.begin; r < s.end; r++) {
    const T* x = g.x + r * cols;
    T* y = g.y + r * cols;
    float scale = (float)(1.0 / sqrt(row_sum(x, cols, [](double v) { return v * v; }) + g.epsilon));
    for (int64_t i = 0; i < cols; i++) store(y + i, load(x + i) * scale);
  }
}

template <class T, class W> void layer_norm(const slots::LayerNorm<T, W>& g, int32_t tid, int32_t nt) {
  int64_t cols = g.cols;
  const W *w = g.weight, *b = g.bias;
  Share s = share(g.valid, tid, nt);
  for (int64_t r = s.begin; r < s.end; r++) {
    const T* x = g.x + r * cols;
    T* y = g.y + r * cols;
    double mean = row_sum(x, cols, [](double v) { return v; }) / (double)cols;
    double total = row_sum(x, cols, [mean](double v) { return (v - mean) * (v - mean); });
    double scale = 1.0 / sqrt(total / (double)cols + g.epsilon);
    for (int64_t i = 0; i < cols; i++) {
      float v = (float)((load(x + i) - mean) * scale);  // in double: what is large cancels
      if (w) v *= load(w + i);
      if (b) v += load(b + i);
      store(y + i, v);
    }
  }
}

template <class T> void softmax(const slots::Softmax<T>& g, int32_t tid, int32_t nt) {
  int64_t cols = g.cols, valid = g.valid_cols;
  Share s = share(g.valid, tid, nt);
  for (int64_t r = s.begin; r < s.end; r++) {
    const T* x = g.x + r * cols;
    T* y = g.y + r * cols;
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

template <class T, class A> void rope(const slots::RoPE<T, A>& g, int32_t tid, int32_t nt) {
  int64_t cols = g.cols, per = g.rows_per_angle, half = cols / 2;
  bool halves = g.method_type == 0;
  Share s = share(g.valid, tid, nt);
  for (int64_t r = s.begin; r < s.end; r++) {
    const T* x = g.x + r * cols;
    const A* a = g.angles + r / per * cols;
    T* y = g.y + r * cols;
    for (int64_t i = 0; i < half; i++) {
      int64_t i1 = halves ? i : 2 * i, i2 = halves ? i + half : 2 * i + 1;
      float x1 = load(x + i1), x2 = load(x + i2), c = load(a + 2 * i), t = load(a + 2 * i + 1);
      store(y + i1, x1 * c - x2 * t);
      store(y + i2, x1 * t + x2 * c);
    }
  }
}

// The planes hi, mid, hi, lo, mid, hi of each row: x is hi + mid + lo.
template <class T, class L> void limbs(const slots::Limbs<T, L>& g, int32_t tid, int32_t nt) {
  int64_t cols = g.cols;
  Share s = share(g.valid, tid, nt);
  for (int64_t r = s.begin; r < s.end; r++) {
    const T* x = g.x + r * cols;
    L* y = g.y + r * 6 * cols;
    for (int64_t i = 0; i < cols; i++) {
      float rest = load(x + i);
      L limb[3];
      for (int l = 0; l < 3; l++) {
        store(limb + l, rest);
        rest -= load(limb + l);
      }
      y[i] = y[2 * cols + i] = y[5 * cols + i] = limb[0];
      y[cols + i] = y[4 * cols + i] = limb[1];
      y[3 * cols + i] = limb[2];
    }
  }
}

// Of rows that hold half re, half im. In double, where no square overflows.
template <class T> void magnitude(const slots::Magnitude<T>& g, int32_t tid, int32_t nt) {
  int64_t half = g.cols / 2;
  Share s = share(g.valid, tid, nt);
  for (int64_t r = s.begin; r < s.end; r++) {
    const T* x = g.x + r * 2 * half;
    T* y = g.y + r * half;
    for (int64_t i = 0; i < half; i++) {
      double re = load(x + i), im = load(x + half + i);
      store(y + i, (float)sqrt(re * re + im * im));
    }
  }
}

}  // namespace iron
