// What every kernel uses: storage types, eight-lane float vectors, sharing rows among threads.
//
// Vectors are the compiler's own (GCC and clang), so the same text is AVX2, AVX-512VL, NEON or scalar code. A sum
// over k always runs in the same lanes in the same order, whatever the number of rows, so results do not depend on
// how work is cut up.
//
// Everything is in namespace iron; the structs of slots.h, in iron::slots, are made of the tables of kernels.py, and name what a
// kernel is given.
#pragma once
#include "neon.h"
#include "slots.h"
#include "vectors.h"
#include "x86.h"

// libstdc++ would make all of <cmath> of it, which takes longer to read than everything else here.
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include <math.h>
#undef _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include <string.h>
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512VNNI__)
#define IRON_AVX512 1
#if defined(__AVX512BF16__)
#define IRON_BF16 1
#endif
#endif

namespace iron {

struct bf16 { uint16_t bits; };
struct f16 { uint16_t bits; };

INLINE float as_float(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }
INLINE uint32_t as_bits(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }

INLINE float half_to_float(uint16_t h) {
#if defined(__F16C__)
  return x86::widened(h);
#elif defined(__aarch64__)
  __fp16 f;
  memcpy(&f, &h, 2);
  return f;
#else
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = (h >> 10) & 31, m = h & 1023;
  if (e == 31) return as_float(sign | 0x7f800000 | m << 13);
  if (e) return as_float(sign | (e + 112) << 23 | m << 13);
  float tiny = (float)m * 5.9604644775390625e-8f;
  return sign ? -tiny : tiny;
#endif
}

INLINE uint16_t float_to_half(float f) {
#if defined(__F16C__)
  return x86::narrowed(f);
#elif defined(__aarch64__)
  __fp16 t = (__fp16)f;
  uint16_t h;
  memcpy(&h, &t, 2);
  return h;
#else
  uint32_t u = as_bits(f), sign = u >> 16 & 0x8000;
  u &= 0x7fffffff;
  if (u > 0x7f800000) return (uint16_t)(sign | 0x7e00);
  if (u >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
  if (u < 0x38800000) {  // subnormal: adding 0.5 lines the bits up and rounds them
    float shifted = as_float(u) + 0.5f;
    return (uint16_t)(sign | (as_bits(shifted) - 0x3f000000));
  }
  u += 0xc8000fff + (u >> 13 & 1);
  return (uint16_t)(sign | u >> 13);
#endif
}

INLINE float load(const float* p) { return *p; }
INLINE float load(const bf16* p) { return as_float((uint32_t)p->bits << 16); }
INLINE float load(const f16* p) { return half_to_float(p->bits); }
INLINE float load(const int32_t* p) { return (float)*p; }

// Stored number i of those at p: integers of 1, 2, 4, 8 or 32 bits, the first of a byte in its
// lowest ones, and floats.
template <int BITS> INLINE int32_t unsigned_at(const uint8_t* p, int64_t i) {
  if (BITS == 8) return p[i];
  if (BITS < 8) return p[i * BITS >> 3] >> (i * BITS & 7) & ((1 << (BITS & 7)) - 1);
  int32_t whole;
  memcpy(&whole, p + 4 * i, 4);
  return whole;
}
template <int BITS> INLINE int32_t signed_at(const uint8_t* p, int64_t i) {
  uint32_t up = (uint32_t)unsigned_at<BITS>(p, i) << (32 - BITS);
  return (int32_t)up >> (32 - BITS);
}
template <class T> INLINE float at(const uint8_t* p, int64_t i) { T v; memcpy(&v, p + i * (int64_t)sizeof v, sizeof v); return load(&v); }

INLINE void store(float* p, float v) { *p = v; }
INLINE void store(bf16* p, float v) {
  uint32_t u = as_bits(v);
  p->bits = v != v ? (uint16_t)(u >> 16 | 64) : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
INLINE void store(f16* p, float v) { p->bits = float_to_half(v); }

// A number rounded to T and back: what a step hands on inside a kernel that fuses two.
template <class T> inline float rounded(float v) { T t; store(&t, v); return load(&t); }
template <> inline float rounded<float>(float v) { return v; }

INLINE f32x8 load8(const float* p) { f32x8 v; memcpy(&v, p, 32); return v; }
INLINE f32x8 load8(const bf16* p) {
  u16x8 h;
  memcpy(&h, p, 16);
  u32x8 w = __builtin_convertvector(h, u32x8) << 16;
  return (f32x8)w;
}
INLINE f32x8 load8(const f16* p) {
#if defined(__F16C__)
  return x86::widened(*(const u16x8_at*)p);
#elif defined(__aarch64__)
  float32x4_t part[2] = {vcvt_f32_f16(vld1_f16((const __fp16*)p)), vcvt_f32_f16(vld1_f16((const __fp16*)p + 4))};
  f32x8 v;
  memcpy(&v, part, 32);
  return v;
#else
  f32x8 v;
  for (int i = 0; i < 8; i++) v[i] = half_to_float(p[i].bits);
  return v;
#endif
}
INLINE void store8(float* p, f32x8 v) { memcpy(p, &v, 32); }
INLINE void store8(bf16* p, f32x8 v) {
  u32x8 u = (u32x8)v, nan = (u32x8)(v != v);
  u = ((u >> 16 | 64) & nan) | ((u + 0x7fff + (u >> 16 & 1)) >> 16 & ~nan);
  u16x8 h = __builtin_convertvector(u, u16x8);
  memcpy(p, &h, 16);
}
INLINE void store8(f16* p, f32x8 v) {
#if defined(__F16C__)
  *(u16x8_at*)p = x86::narrowed(v);
#else
  for (int i = 0; i < 8; i++) store(p + i, v[i]);
#endif
}

// The first n numbers of a vector, zeros after them.
template <class T> INLINE f32x8 load_part(const T* p, int64_t n) {
  T part[8];
  memset(part, 0, sizeof part);
  memcpy(part, p, n * sizeof(T));
  return load8(part);
}
template <class T> INLINE void store_part(T* p, f32x8 v, int64_t n) {
  T part[8];
  store8(part, v);
  memcpy(p, part, n * sizeof(T));
}

INLINE f32x8 splat(float v) { return f32x8{v, v, v, v, v, v, v, v}; }

// a * b + c: rounded once where the machine can.
INLINE float madd(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

// a * b, rounded: no compiler fuses it with the sum it goes into.
INLINE double product(double a, double b) {
  volatile double made = a * b;
  return made;
}

// The machine's widest float vectors, for products: WIDE lanes.
#if defined(IRON_AVX512)
typedef f32x16 f32xw;
typedef i32x16 i32xw;
typedef i32x16_at i32xw_at;
enum { WIDE = 16 };
INLINE f32xw loadw(const float* p) { return *(const f32x16_at*)p; }
INLINE f32xw loadw(const bf16* p) { return (f32xw)(x86::extended(*(const u16x16_at*)p) << 16); }
INLINE f32xw loadw(const f16* p) { return x86::widened(*(const u16x16_at*)p); }
INLINE void storew(float* p, f32xw v) { memcpy(p, &v, 64); }
INLINE void storew(bf16* p, f32xw v) {
  u32x16 u = (u32x16)v, nan = (u32x16)(v != v);
  u = ((u >> 16 | 64) & nan) | ((u + 0x7fff + (u >> 16 & 1)) >> 16 & ~nan);
  *(u16x16_at*)p = x86::narrowed(u);
}
INLINE void storew(f16* p, f32xw v) { *(u16x16_at*)p = x86::narrowed(v); }
INLINE f32xw splatw(float v) { return f32xw{v, v, v, v, v, v, v, v, v, v, v, v, v, v, v, v}; }
#else
typedef f32x8 f32xw;
typedef i32x8 i32xw;
typedef i32x8_at i32xw_at;
enum { WIDE = 8 };
template <class T> INLINE f32xw loadw(const T* p) { return load8(p); }
template <class T> INLINE void storew(T* p, f32xw v) { store8(p, v); }
INLINE f32xw splatw(float v) { return splat(v); }
#endif
template <class T> INLINE f32xw loadw_part(const T* p, int64_t n) {
  T part[WIDE];
  memset(part, 0, sizeof part);
  memcpy(part, p, n * sizeof(T));
  return loadw(part);
}

template <class T> INLINE void storew_part(T* p, f32xw v, int64_t n) {
  T part[WIDE];
  storew(part, v);
  memcpy(p, part, n * sizeof(T));
}

// a * b + c in every lane, as madd() rounds it.
INLINE f32xw maddw(f32xw a, f32xw b, f32xw c) {
#if defined(__AVX__) && defined(__FMA__)
  return x86::madd(a, b, c);
#else
  for (int i = 0; i < WIDE; i++) c[i] = madd(a[i], b[i], c[i]);
  return c;
#endif
}

#if defined(IRON_AVX512)
INLINE f32x8 maddw(f32x8 a, f32x8 b, f32x8 c) { return x86::madd(a, b, c); }
#endif

// The one order in which eight lanes become a number.
INLINE float sum8(f32x8 v) {
#if defined(__AVX__)
  return x86::sum(x86::low(v) + x86::high(v));
#else
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
#endif
}
INLINE float sumw(f32xw v) {
#if defined(IRON_AVX512)
  f32x8 half[2];
  memcpy(half, &v, 64);
  return sum8(half[0] + half[1]);
#else
  return sum8(v);
#endif
}
// Four such sums.
INLINE void sums4w(const f32xw* v, float* y) {
#if defined(__AVX__)
  f32x4 a[4];
  for (int i = 0; i < 4; i++) {
#if defined(IRON_AVX512)
    f32x8 w = x86::low(v[i]) + x86::high(v[i]);
#else
    f32x8 w = v[i];
#endif
    a[i] = x86::low(w) + x86::high(w);
  }
  f32x4 l = x86::firsts(a[0], a[1]) + x86::lasts(a[0], a[1]), h = x86::firsts(a[2], a[3]) + x86::lasts(a[2], a[3]);
  *(f32x4_at*)y = x86::evens(l, h) + x86::odds(l, h);
#else
  for (int i = 0; i < 4; i++) y[i] = sumw(v[i]);
#endif
}
INLINE float max8(f32x8 v) {
#if defined(__AVX__)
  f32x4 a = x86::low(v), b = x86::high(v);
  a = a > b ? a : b;
  b = x86::lasts(a, a);
  a = a > b ? a : b;
  return a[0] > a[1] ? a[0] : a[1];
#else
  float m = v[0];
  for (int i = 1; i < 8; i++) m = v[i] > m ? v[i] : m;
  return m;
#endif
}
INLINE float maxw(f32xw v) {
#if defined(IRON_AVX512)
  f32x8 a = x86::low(v), b = x86::high(v);
  return max8(a > b ? a : b);
#else
  return max8(v);
#endif
}

// A number in every lane of what is like x.
INLINE f32x8 like(f32x8, float v) { return splat(v); }
#if defined(IRON_AVX512)
INLINE f32x16 like(f32x16, float v) { return splatw(v); }
#endif

// exp to about one unit in the last place; the same bits in a vector of any width and alone.
template <class V> INLINE V exp_each(V x) {
  typedef decltype(x < x) I;
  const V low = like(x, -87.3f), high = like(x, 88.722839f), magic = like(x, 12582912.0f);
  I under = x < low, over = x > high;
  V c = (V)(((I)low & under) | ((I)x & ~under));
  c = (V)(((I)high & over) | ((I)c & ~over));
  V n = c * like(x, 1.44269504088896341f) + magic;
  I k = (I)n - (I)magic;
  n = n - magic;
  V r = c - n * like(x, 0.693359375f);
  r = r - n * like(x, -2.12194440e-4f);
  V p = like(x, 1.9875691500e-4f);
  p = p * r + like(x, 1.3981999507e-3f);
  p = p * r + like(x, 8.3334519073e-3f);
  p = p * r + like(x, 4.1665795894e-2f);
  p = p * r + like(x, 1.6666665459e-1f);
  p = p * r + like(x, 5.0000001201e-1f);
  p = p * (r * r) + r + like(x, 1.0f);
  I half = k >> 1;  // in two steps: 2^k itself may leave the range where the product does not
  V y = p * (V)((half + 127) << 23) * (V)((k - half + 127) << 23);
  y = (V)((I)y & ~under);
  I inf = (I)like(x, INFINITY), nan = x != x;
  y = (V)((inf & over) | ((I)y & ~over));
  return (V)(((I)x & nan) | ((I)y & ~nan));
}
// tanh to a few units in the last place: a polynomial near zero, where the exponential would cancel.
template <class V> INLINE V tanh_each(V x) {
  typedef decltype(x < x) I;
  V z = x * x, p = like(x, -5.70498872745e-3f);
  p = p * z + like(x, 2.06390887954e-2f);
  p = p * z + like(x, -5.37397155531e-2f);
  p = p * z + like(x, 1.33314422036e-1f);
  p = p * z + like(x, -3.33332819422e-1f);
  p = p * z * x + x;
  V y = like(x, 1.0f) - like(x, 2.0f) / (exp_each(x + x) + like(x, 1.0f));
  I near = z < like(x, 0.390625f);
  return (V)(((I)p & near) | ((I)y & ~near));
}
INLINE f32x8 exp8(f32x8 x) { return exp_each(x); }
INLINE f32x8 tanh8(f32x8 x) { return tanh_each(x); }
INLINE float exp1(float x) { return exp8(splat(x))[0]; }
// The natural logarithm to about one unit in the last place: x is 2^e m, m from sqrt(1/2) to sqrt(2), and log m is f q(f)
// with f = m - 1, so what is near one keeps its digits.
template <class V> INLINE V log_each(V x) {
  typedef decltype(x < x) I;
  I tiny = x < like(x, 1.17549435e-38f);  // below the normal numbers
  I held = (I)(tiny ? x * like(x, 8388608.0f) : x);
  I e = (held - 0x3f3504f3) >> 23;
  V f = (V)(held - (e << 23)) - like(x, 1.0f);
  const V magic = like(x, 12582912.0f);
  V whole = (V)(e - (tiny & 23) + (I)magic) - magic;
  V q = like(x, -0.07451186329126358f);
  q = q * f + like(x, 0.12806610763072968f);
  q = q * f + like(x, -0.13266031444072723f);
  q = q * f + like(x, 0.14199650287628174f);
  q = q * f + like(x, -0.1660836935043335f);
  q = q * f + like(x, 0.20000939071178436f);
  q = q * f + like(x, -0.2500157952308655f);
  q = q * f + like(x, 0.33333346247673035f);
  q = q * f + like(x, -0.49999988079071045f);
  q = q * f + like(x, 1.0f);
  V y = q * f + whole * like(x, -2.12194440e-4f) + whole * like(x, 0.693359375f);
  const V inf = like(x, INFINITY), zero = like(x, 0.0f);
  y = x == zero ? -inf : x < zero ? like(x, NAN) : y;
  return (x == inf) | (x != x) ? x : y;
}
INLINE f32x8 log8(f32x8 x) { return log_each(x); }

// exp of what is at most 0, or NaN, with the bits of exp8: where it is not 0, a power of two is added to the exponent.
template <class V> INLINE V exp_below(V x) {
  typedef decltype(x < x) I;
  const V magic = like(x, 12582912.0f);
  V n = maddw(x, like(x, 1.44269504088896341f), magic);
  I k = (I)n << 23;  // nothing of magic is left
  n = n - magic;
  V r = maddw(n, like(x, -0.693359375f), x);
  r = maddw(n, like(x, 2.12194440e-4f), r);
  V p = like(x, 1.9875691500e-4f);
  p = maddw(p, r, like(x, 1.3981999507e-3f));
  p = maddw(p, r, like(x, 8.3334519073e-3f));
  p = maddw(p, r, like(x, 4.1665795894e-2f));
  p = maddw(p, r, like(x, 1.6666665459e-1f));
  p = maddw(p, r, like(x, 5.0000001201e-1f));
  p = maddw(p, r * r, r) + like(x, 1.0f);
  typedef uint32_t U __attribute__((vector_size(sizeof(V))));
  V y = (V)((U)p + (U)k);  // far below, where it is 0, the sum wraps
  y = x < like(x, -87.3f) ? like(x, 0.0f) : y;
  return x != x ? x : y;
}

// This part's share of n items, in runs of `unit`; parts without any are spread among the others.
struct Share { int64_t begin, end; };
INLINE Share share(int64_t n, int32_t tid, int32_t nt, int64_t unit = 1) {
  int64_t units = (n + unit - 1) / unit, begin = units * tid / nt * unit, end = units * (tid + 1) / nt * unit;
  return Share{begin < n ? begin : n, end < n ? end : n};
}

// Which of n an index picks: a negative one counts from the end, and all are clipped.
INLINE int64_t clipped(int64_t i, int64_t n) {
  i = i < -n ? -n : i >= n ? n - 1 : i;
  return i < 0 ? i + n : i;
}

}  // namespace iron
