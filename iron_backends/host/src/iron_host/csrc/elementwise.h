// One number in, one out: `valid` numbers, in rowwise as many rows, each of which meets one vector. Operations are in
// namespace op; `number` is for those that take one besides x, or besides a and b.
#pragma once
#include "common.h"

namespace iron {

namespace op {
struct Add { INLINE f32x8 of(f32x8 a, f32x8 b) { return a + b; } };
struct Mul { INLINE f32x8 of(f32x8 a, f32x8 b) { return a * b; } };
struct AXPY { INLINE f32x8 of(f32x8 a, f32x8 b, f32x8 factor) { return factor * a + b; } };
// Where either is a NaN, so is what comes out.
struct Max { INLINE f32x8 of(f32x8 a, f32x8 b) { return (a > b) | (a != a) ? a : b; } };
// A NaN stays one: it is not less than zero.
struct ReLU { INLINE f32x8 of(f32x8 x) { return x < splat(0.0f) ? splat(0.0f) : x; } };
struct LeakyReLU { INLINE f32x8 of(f32x8 x, f32x8 alpha) { return x > splat(0.0f) ? x : x * alpha; } };
struct SiLU { INLINE f32x8 of(f32x8 x) { return x / (splat(1.0f) + exp8(-x)); } };
struct Sigmoid { INLINE f32x8 of(f32x8 x) { return splat(1.0f) / (splat(1.0f) + exp8(-x)); } };
// -2 sqrt(2 / pi) (x + 0.044715 x^3) is what the exponential takes.
struct GELU {
  INLINE f32x8 of(f32x8 x) {
    f32x8 u = x * (splat(-1.5957691216f) + splat(-0.0713548163f) * (x * x));
    return x / (splat(1.0f) + exp8(u));
  }
};
struct Scale { INLINE f32x8 of(f32x8 x, f32x8 factor) { return x * factor; } };
struct Tanh { INLINE f32x8 of(f32x8 x) { return tanh8(x); } };
struct SoftCap { INLINE f32x8 of(f32x8 x, f32x8 cap) { return cap * tanh8(x / cap); } };
}  // namespace op

// An operation of x alone, or of x and a number; of a and b, or of a, b and a number.
template <class Op> INLINE auto apply(f32x8 x, f32x8) -> decltype(Op::of(x)) { return Op::of(x); }
template <class Op> INLINE auto apply(f32x8 x, f32x8 number) -> decltype(Op::of(x, number)) { return Op::of(x, number); }
template <class Op> INLINE auto meet(f32x8 a, f32x8 b, f32x8) -> decltype(Op::of(a, b)) { return Op::of(a, b); }
template <class Op> INLINE auto meet(f32x8 a, f32x8 b, f32x8 number) -> decltype(Op::of(a, b, number)) {
  return Op::of(a, b, number);
}

// The last few numbers go through a full vector, so they get the same bits wherever a run ends.
template <class Op, class T> INLINE void binary_run(const T* a, const T* b, T* y, int64_t n, double given = 0) {
  int64_t i = 0;
  f32x8 number = splat((float)given);
  for (; i + 8 <= n; i += 8) store8(y + i, meet<Op>(load8(a + i), load8(b + i), number));
  if (i < n) store_part(y + i, meet<Op>(load_part(a + i, n - i), load_part(b + i, n - i), number), n - i);
}

template <class Op, class T> void binary(const slots::Binary<T>& g, int32_t tid, int32_t nt) {
  Share s = share(g.valid, tid, nt, 64);
  binary_run<Op, T>(g.a + s.begin, g.b + s.begin, g.y + s.begin, s.end - s.begin, g.number);
}

template <class Op, class T> void unary(const slots::Unary<T>& g, int32_t tid, int32_t nt) {
  Share s = share(g.valid, tid, nt, 64);
  const T* x = g.x + s.begin;
  T* y = g.y + s.begin;
  int64_t n = s.end - s.begin, i = 0;
  f32x8 number = splat((float)g.number);
  for (; i + 8 <= n; i += 8) store8(y + i, apply<Op>(load8(x + i), number));
  if (i < n) store_part(y + i, apply<Op>(load_part(x + i, n - i), number), n - i);
}

// A NaN stays one: it is neither below nor above.
template <class T> void clamp(const slots::Clamp<T>& g, int32_t tid, int32_t nt) {
  Share s = share(g.valid, tid, nt, 64);
  f32x8 low = splat((float)g.low), high = splat((float)g.high);
  for (int64_t i = s.begin; i < s.end; i += 8) {
    int64_t n = s.end - i < 8 ? s.end - i : 8;
    f32x8 x = load_part(g.x + i, n);
    x = x < low ? low : x;
    store_part(g.y + i, x > high ? high : x, n);
  }
}

template <class T> void log_sum(const slots::LogSum<T>& g, int32_t tid, int32_t nt) {
  Share s = share(g.valid, tid, nt, 64);
  f32x8 offset = splat((float)g.offset);
  for (int64_t i = s.begin; i < s.end; i += 8) {
    int64_t n = s.end - i < 8 ? s.end - i : 8;
    store_part(g.y + i, log8(load_part(g.x + i, n) + offset), n);
  }
}

// Numbers that one scale makes int8. Where there is no inverse of it they are 0, as a NaN's is.
INLINE float inverse(float scale) { return scale >= 1.17549435e-38f && scale <= 3.4028234e38f ? 1.0f / scale : 0.0f; }

template <class T> INLINE void quantize_run(const T* x, int8_t* y, int64_t n, float factor) {
  for (int64_t i = 0; i < n; i++) {
    float v = load(x + i) * factor;
    v = v != v ? 0.0f : v < -127.0f ? -127.0f : v > 127.0f ? 127.0f : v;
    y[i] = (int8_t)((v + 12582912.0f) - 12582912.0f);  // to the nearest even number
  }
}

template <class T> void quantize(const slots::Quantize<T>& g, int32_t tid, int32_t nt) {
  Share s = share(g.valid, tid, nt, 64);
  quantize_run(g.x + s.begin, g.y + s.begin, s.end - s.begin, inverse((float)g.scale));
}

// The scale is the one that makes the largest number 127; one thread finds it and goes on.
template <class T> void quantize_fitted(const slots::QuantizeFitted<T>& g, int32_t tid, int32_t) {
  if (tid) return;
  float largest = 0.0f;
  for (int64_t i = 0; i < g.valid; i++) {
    float v = __builtin_fabsf(load(g.x + i));
    largest = v > largest ? v : largest;
  }
  *g.found = largest / 127.0f;
  quantize_run(g.x, g.y, g.valid, inverse(*g.found));
}

template <class Op, class T> void rowwise(const slots::Rowwise<T>& g, int32_t tid, int32_t nt) {
  Share s = share(g.valid, tid, nt);
  for (int64_t r = s.begin; r < s.end; r++) binary_run<Op, T>(g.x + r * g.cols, g.vector, g.y + r * g.cols, g.cols);
}

}  // namespace iron
