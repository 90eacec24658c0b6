// One number in, one out: `valid` numbers, in rowwise as many rows, each of which meets one vector. Operations are in
// namespace op; `number` is for those that take one besides x, or besides a and b.
#pragma once
#include "common.h"

namespace iron {

namespace op {
struct Add { template <class V> INLINE V of(V a, V b) { return a + b; } };
struct Mul { template <class V> INLINE V of(V a, V b) { return a * b; } };
struct AXPY { template <class V> INLINE V of(V a, V b, V factor) { return factor * a + b; } };
// Where either is a NaN, so is what comes out.
struct Max { template <class V> INLINE V of(V a, V b) { return (a > b) | (a != a) ? a : b; } };
// A NaN stays one: it is not less than zero.
struct ReLU { template <class V> INLINE V of(V x) { return x < like(x, 0.0f) ? like(x, 0.0f) : x; } };
struct LeakyReLU { template <class V> INLINE V of(V x, V alpha) { return x > like(x, 0.0f) ? x : x * alpha; } };
struct SiLU { template <class V> INLINE V of(V x) { return x / (like(x, 1.0f) + exp_each(-x)); } };
// log(1 + t) of t = exp(-|x|), the sum's own rounding made good; added to what is over zero. A NaN stays one.
struct Softplus {
  template <class V> INLINE V of(V x) {
    const V one = like(x, 1.0f), zero = like(x, 0.0f);
    V t = exp_each(x < zero ? x : -x), sum = one + t;
    V y = log_each(sum) + (t - (sum - one)) / sum;
    return y + (x < zero ? zero : x);
  }
};
struct Sigmoid { template <class V> INLINE V of(V x) { return like(x, 1.0f) / (like(x, 1.0f) + exp_each(-x)); } };
// -2 sqrt(2 / pi) (x + 0.044715 x^3) is what the exponential takes.
struct GELU {
  template <class V> INLINE V of(V x) {
    V u = x * (like(x, -1.5957691216f) + like(x, -0.0713548163f) * (x * x));
    return x / (like(x, 1.0f) + exp_each(u));
  }
};
// The normal distribution's tail beyond |x| is e^(-x^2 / 2) / 2 times u p(2 u - 1), p a polynomial that leaves 3.3e-8 of it.
struct GELUExact {
  template <class V> INLINE V of(V x) {
    V t = (V)((decltype(x < x))x & 0x7fffffff), u = like(x, 1.0f) / (like(x, 1.0f) + like(x, 0.32f) * t), v = u + u - like(x, 1.0f);
    V p = like(x, -8.26371178845875e-05f);
    p = p * v + like(x, 4.46693866251735e-06f);
    p = p * v + like(x, 0.0007071596919558942f);
    p = p * v + like(x, -5.079199399915524e-05f);
    p = p * v + like(x, -0.00510964822024107f);
    p = p * v + like(x, -0.0034053160343319178f);
    p = p * v + like(x, 0.040847159922122955f);
    p = p * v + like(x, 0.16170282661914825f);
    p = p * v + like(x, 0.33597642183303833f);
    p = p * v + like(x, 0.46941033005714417f);
    V tail = p * u * exp_below(t * t * like(x, -0.5f)) * like(x, 0.5f);
    return x * (x < like(x, 0.0f) ? tail : like(x, 1.0f) - tail);
  }
};
struct Scale { template <class V> INLINE V of(V x, V factor) { return x * factor; } };
struct Tanh { template <class V> INLINE V of(V x) { return tanh_each(x); } };
struct SoftCap { template <class V> INLINE V of(V x, V cap) { return cap * tanh_each(x / cap); } };
}  // namespace op

// An operation of x alone, or of x and a number; of a and b, or of a, b and a number.
template <class Op> INLINE auto apply(f32x8 x, f32x8) -> decltype(Op::of(x)) { return Op::of(x); }
template <class Op> INLINE auto apply(f32x8 x, f32x8 number) -> decltype(Op::of(x, number)) { return Op::of(x, number); }
template <class Op> INLINE auto meet(f32x8 a, f32x8 b, f32x8) -> decltype(Op::of(a, b)) { return Op::of(a, b); }
template <class Op> INLINE auto meet(f32x8 a, f32x8 b, f32x8 number) -> decltype(Op::of(a, b, number)) {
  return Op::of(a, b, number);
}
#if defined(IRON_AVX512)
// The same of sixteen; an operation that takes eight does so twice.
template <class Op> INLINE auto whole(f32x16 x, f32x16, int) -> decltype(Op::of(x)) { return Op::of(x); }
template <class Op> INLINE auto whole(f32x16 x, f32x16 number, int) -> decltype(Op::of(x, number)) { return Op::of(x, number); }
template <class Op> INLINE f32x16 whole(f32x16 x, f32x16 number, long) {
  f32x8 half[2] = {apply<Op>(x86::low(x), x86::low(number)), apply<Op>(x86::high(x), x86::high(number))};
  return loadw((const float*)half);
}
template <class Op> INLINE auto both(f32x16 a, f32x16 b, f32x16, int) -> decltype(Op::of(a, b)) { return Op::of(a, b); }
template <class Op> INLINE auto both(f32x16 a, f32x16 b, f32x16 number, int) -> decltype(Op::of(a, b, number)) {
  return Op::of(a, b, number);
}
template <class Op> INLINE f32x16 both(f32x16 a, f32x16 b, f32x16 number, long) {
  f32x8 half[2] = {meet<Op>(x86::low(a), x86::low(b), x86::low(number)), meet<Op>(x86::high(a), x86::high(b), x86::high(number))};
  return loadw((const float*)half);
}
template <class Op> INLINE f32x16 apply(f32x16 x, f32x16 number) { return whole<Op>(x, number, 0); }
template <class Op> INLINE f32x16 meet(f32x16 a, f32x16 b, f32x16 number) { return both<Op>(a, b, number, 0); }
#endif

// The last few numbers go through a full vector, so they get the same bits wherever a run ends.
template <class Op, class T> INLINE void binary_run(const T* a, const T* b, T* y, int64_t n, double given = 0) {
  int64_t i = 0;
  f32xw number = splatw((float)given);
  for (; i + WIDE <= n; i += WIDE) storew(y + i, meet<Op>(loadw(a + i), loadw(b + i), number));
  if (i < n) storew_part(y + i, meet<Op>(loadw_part(a + i, n - i), loadw_part(b + i, n - i), number), n - i);
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
  f32xw number = splatw((float)g.number);
  for (; i + WIDE <= n; i += WIDE) storew(y + i, apply<Op>(loadw(x + i), number));
  if (i < n) storew_part(y + i, apply<Op>(loadw_part(x + i, n - i), number), n - i);
}

// A NaN stays one: it is neither below nor above.
INLINE f32xw clamped(f32xw x, f32xw low, f32xw high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}
template <class T> void clamp(const slots::Clamp<T>& g, int32_t tid, int32_t nt) {
  Share s = share(g.valid, tid, nt, 64);
  f32xw low = splatw((float)g.low), high = splatw((float)g.high);
  int64_t i = s.begin;
  for (; i + WIDE <= s.end; i += WIDE) storew(g.y + i, clamped(loadw(g.x + i), low, high));
  if (i < s.end) storew_part(g.y + i, clamped(loadw_part(g.x + i, s.end - i), low, high), s.end - i);
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

typedef int8_t i8x8 __attribute__((vector_size(8)));

// Of x times the factor, from -127 to 127: adding 3 * 2^22 leaves the nearest even whole number in the lowest bits.
INLINE i8x8 quantize8(f32x8 x, f32x8 factor) {
  f32x8 v = x * factor, zero = splat(0.0f), most = splat(127.0f);
  v = v != v ? zero : v;
  v = v < -most ? -most : v;
  v = v > most ? most : v;
  return __builtin_convertvector((i32x8)(v + splat(12582912.0f)), i8x8);
}

template <class T> INLINE void quantize_run(const T* x, int8_t* y, int64_t n, float factor) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    i8x8 q = quantize8(load8(x + i), splat(factor));
    memcpy(y + i, &q, 8);
  }
  if (i < n) {
    i8x8 q = quantize8(load_part(x + i, n - i), splat(factor));
    memcpy(y + i, &q, n - i);
  }
}

// The scale that makes the largest of n numbers 127. What is not negative compares as an integer does, and a NaN lies above infinity.
template <class T> INLINE float fitted(const T* x, int64_t n) {
  i32x8 most[4];
  memset(most, 0, sizeof most);
  for (int64_t i = 0; i < n; i += 32)
    for (int64_t j = 0; j < 4 && i + 8 * j < n; j++) {
      int64_t at = i + 8 * j;
      i32x8 v = (i32x8)(at + 8 <= n ? load8(x + at) : load_part(x + at, n - at)) & 0x7fffffff;
      v = v > 0x7f800000 ? v - v : v;
      most[j] = v > most[j] ? v : most[j];
    }
  int32_t top = 0;
  for (int j = 0; j < 4; j++)
    for (int l = 0; l < 8; l++) top = most[j][l] > top ? most[j][l] : top;
  return as_float(top) / 127.0f;
}

template <class T> void quantize(const slots::Quantize<T>& g, int32_t tid, int32_t nt) {
  Share s = share(g.valid, tid, nt, 64);
  quantize_run(g.x + s.begin, g.y + s.begin, s.end - s.begin, inverse((float)g.scale));
}

// By the scale that fits; one thread finds it and goes on.
template <class T> void quantize_fitted(const slots::QuantizeFitted<T>& g, int32_t tid, int32_t) {
  if (tid) return;
  *g.found = fitted(g.x, g.valid);
  quantize_run(g.x, g.y, g.valid, inverse(*g.found));
}

// Rows, each by the scale that fits it.
template <class T> void quantize_each(const slots::QuantizeEach<T>& g, int32_t tid, int32_t nt) {
  Share s = share(g.valid, tid, nt);
  for (int64_t r = s.begin; r < s.end; r++) {
    g.found[r] = fitted(g.x + r * g.cols, g.cols);
    quantize_run(g.x + r * g.cols, g.y + r * g.cols, g.cols, inverse(g.found[r]));
  }
}

template <class Op, class T> void rowwise(const slots::Rowwise<T>& g, int32_t tid, int32_t nt) {
  Share s = share(g.valid, tid, nt);
  for (int64_t r = s.begin; r < s.end; r++) binary_run<Op, T>(g.x + r * g.cols, g.vector, g.y + r * g.cols, g.cols);
}

}  // namespace iron
