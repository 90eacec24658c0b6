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

// What row_sum adds, of vectors: eight numbers as doubles, and their sum in its order.
typedef double f64x8 __attribute__((vector_size(64)));
INLINE f64x8 doubles(f32x8 v) { return __builtin_convertvector(v, f64x8); }
INLINE double sum_doubles(f64x8 v) { return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7])); }

// Rows two at a time, so that sums of one do not wait for those of the other; each is computed as alone.
template <int ROWS, class T, class W> INLINE void norm_rows(const T* x, T* y, const W* w, const W* b, int64_t cols, double epsilon) {
  f64x8 sums[ROWS], mean[ROWS], scale[ROWS];
  double zeros[8] = {0};
  for (int r = 0; r < ROWS; r++) memcpy(&sums[r], zeros, 64);
  int64_t rest = cols % 8, whole = cols - rest;
  for (int64_t i = 0; i < whole; i += 8)
    for (int r = 0; r < ROWS; r++) sums[r] += doubles(load8(x + r * cols + i));
  for (int r = 0; r < ROWS; r++) {
    if (rest) sums[r] += doubles(load_part(x + r * cols + whole, rest));
    mean[r] = f64x8{} + sum_doubles(sums[r]) / (double)cols;
    memcpy(&sums[r], zeros, 64);
  }
  for (int64_t i = 0; i < whole; i += 8)
    for (int r = 0; r < ROWS; r++) {
      f64x8 v = doubles(load8(x + r * cols + i)) - mean[r];
      sums[r] += v * v;
    }
  for (int r = 0; r < ROWS; r++) {
    for (int64_t l = 0; l < rest; l++) {
      double v = load(x + r * cols + whole + l) - mean[r][0];
      sums[r][l] += v * v;
    }
    scale[r] = f64x8{} + 1.0 / sqrt(sum_doubles(sums[r]) / (double)cols + epsilon);
  }
  for (int64_t i = 0; i < cols; i += 8) {
    int64_t n = cols - i < 8 ? cols - i : 8;
    f32x8 weight = !w ? splat(1.0f) : n == 8 ? load8(w + i) : load_part(w + i, n);
    f32x8 bias = !b ? splat(0.0f) : n == 8 ? load8(b + i) : load_part(b + i, n);
    for (int r = 0; r < ROWS; r++) {
      f64x8 wide = doubles(n == 8 ? load8(x + r * cols + i) : load_part(x + r * cols + i, n));
      f32x8 v = __builtin_convertvector((wide - mean[r]) * scale[r], f32x8) * weight;  // in double: what is large cancels
      if (b) v = v + bias;  // -0 stays without
      if (n == 8) store8(y + r * cols + i, v);
      else store_part(y + r * cols + i, v, n);
    }
  }
}

template <class T, class W> void layer_norm(const slots::LayerNorm<T, W>& g, int32_t tid, int32_t nt) {
  Share s = share(g.valid, tid, nt);
  int64_t r = s.begin;
  for (; r + 2 <= s.end; r += 2) norm_rows<2>(g.x + r * g.cols, g.y + r * g.cols, g.weight, g.bias, g.cols, g.epsilon);
  if (r < s.end) norm_rows<1>(g.x + r * g.cols, g.y + r * g.cols, g.weight, g.bias, g.cols, g.epsilon);
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
