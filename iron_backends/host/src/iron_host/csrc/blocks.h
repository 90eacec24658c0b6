// Products with block-quantised weights, read as the file has them: blocks of 32 numbers, scale (and minimum) first.
//
// quantize_rows<X>        p: X                n: rows, depth K, X row stride. Writes `shared`: see Rounded.
// block_matmul<F, O>      p: -, W, C          n: as matmul, X from `shared` (int8_block; the step before rounded it)
// block_exact<F, X, O>    p: X, W, C          n: as matmul; scratch: K floats
// dequantize<F, T>        p: X, Y             n: rows, cols
// block_integers<F>       p: W, Q, R          n: rows N, depth K: the int32 product of each block with int8 Q, for tests
//
// One row of W against one row of X: blocks in order, eight float lanes (integer lanes times both scales), sum8 at the
// end; minima in a sum of their own, in order, added last. GEMV and GEMM are this one loop, so they agree bit for bit.
#pragma once
#include "matmul.h"

struct Q4_0 { enum { bytes = 18, head = 2, bits = 4, zero = 8, minimum = 0 }; };
struct Q4_1 { enum { bytes = 20, head = 4, bits = 4, zero = 0, minimum = 1 }; };
struct Q8_0 { enum { bytes = 34, head = 2, bits = 8, zero = 0, minimum = 0 }; };

// Activations rounded to int8, a scale for each 32: q [rows][K], d [rows][K/32], s = d * sum(q) [rows][K/32].
struct Rounded {
  int8_t* q;
  float *d, *s;
  int64_t K;
};
INLINE Rounded rounded_at(void* shared, int64_t rows, int64_t K) {
  char* p = (char*)shared;
  int64_t ints = (rows * K + 63) & ~63LL, floats = (rows * (K / 32) * 4 + 63) & ~63LL;
  return Rounded{(int8_t*)p, (float*)(p + ints), (float*)(p + ints + floats), K};
}

template <class X> void quantize_rows(const iron_args* g, int32_t tid, int32_t nt) {
  int64_t M = g->n[0], K = g->n[1], groups = K / 32;
  Rounded r = rounded_at(g->shared, M, K);
  Share s = share(M * groups, tid, nt, 4);
  for (int64_t t = s.begin; t < s.end; t++) {
    const X* x = (const X*)g->p[0] + t / groups * g->n[2] + t % groups * 32;
    float v[32], top = 0;
    for (int i = 0; i < 32; i += 8) store8(v + i, load8(x + i));
    for (int i = 0; i < 32; i++) { float a = fabsf(v[i]); top = a > top ? a : top; }
    float d = top / 127.0f, inverse = d > 0 ? 1.0f / d : 0.0f;
    int8_t* q = r.q + t * 32;
    int32_t sum = 0;
    for (int i = 0; i < 32; i++) {
      int32_t n = (int32_t)__builtin_rintf(v[i] * inverse);
      q[i] = (int8_t)n;
      sum += n;
    }
    r.d[t] = d;
    r.s[t] = d * (float)sum;
  }
}

INLINE float scale_at(const uint8_t* p) { uint16_t h; memcpy(&h, p, 2); return half_to_float(h); }

#if defined(__AVX2__)
struct Ints { __m256i value, magnitude; };  // signed bytes, and |bytes| for the unsigned side of the product

template <class F> INLINE Ints unpack(const uint8_t* body) {
  Ints w;
  if (F::bits == 8) {
    w.value = _mm256_loadu_si256((const __m256i*)body);
  } else {
    __m128i packed = _mm_loadu_si128((const __m128i*)body);
    __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(packed), _mm_srli_epi16(packed, 4), 1);
    w.value = _mm256_and_si256(both, _mm256_set1_epi8(15));
    if (F::zero) w.value = _mm256_sub_epi8(w.value, _mm256_set1_epi8(F::zero));
  }
  w.magnitude = F::bits == 4 && !F::zero ? w.value : _mm256_sign_epi8(w.value, w.value);
  return w;
}

// Eight int32 partial sums; together they are the block's product.
template <class F> INLINE i32x8 product(Ints w, const int8_t* q) {
  __m256i x = _mm256_loadu_si256((const __m256i*)q);
  if (F::bits == 8 || F::zero) x = _mm256_sign_epi8(x, w.value);
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
  return (i32x8)_mm256_dpbusd_epi32(_mm256_setzero_si256(), w.magnitude, x);
#else
  return (i32x8)_mm256_madd_epi16(_mm256_maddubs_epi16(w.magnitude, x), _mm256_set1_epi16(1));
#endif
}
#else
struct Ints { int8_t value[32]; };

template <class F> INLINE Ints unpack(const uint8_t* body) {
  Ints w;
  if (F::bits == 8) memcpy(w.value, body, 32);
  else for (int i = 0; i < 16; i++) {
    w.value[i] = (int8_t)((body[i] & 15) - F::zero);
    w.value[i + 16] = (int8_t)((body[i] >> 4) - F::zero);
  }
  return w;
}

template <class F> INLINE i32x8 product(Ints w, const int8_t* q) {
  i32x8 sums;
  for (int l = 0; l < 8; l++) {
    int32_t s = 0;
    for (int i = 0; i < 4; i++) s += (int32_t)w.value[4 * l + i] * q[4 * l + i];
    sums[l] = s;
  }
  return sums;
}
#endif

// NT rows of W against MT rows of X.
template <class F, int MT, int NT, class O>
INLINE void block_dots(const uint8_t* w, int64_t ldw, Rounded x, int64_t m, O* c, int64_t cm, int64_t cn) {
  int64_t groups = x.K / 32;
  f32x8 acc[MT][NT];
  float low[MT][NT];
  for (int i = 0; i < MT; i++)
    for (int j = 0; j < NT; j++) { acc[i][j] = splat(0.0f); low[i][j] = 0.0f; }
  for (int64_t b = 0; b < groups; b++) {
    for (int j = 0; j < NT; j++) {
      const uint8_t* block = w + j * ldw + b * F::bytes;
      float d = scale_at(block), lowest = F::minimum ? scale_at(block + 2) : 0.0f;
      Ints ints = unpack<F>(block + F::head);
      for (int i = 0; i < MT; i++) {
        int64_t t = (m + i) * groups + b;
        f32x8 p = __builtin_convertvector(product<F>(ints, x.q + t * 32), f32x8);
        acc[i][j] += p * splat(d * x.d[t]);
        if (F::minimum) low[i][j] = fmaf(lowest, x.s[t], low[i][j]);
      }
    }
  }
  for (int i = 0; i < MT; i++)
    for (int j = 0; j < NT; j++) store(c + i * cm + j * cn, sum8(acc[i][j]) + low[i][j]);
}

template <class F, class O> void block_matmul(const iron_args* g, int32_t tid, int32_t nt) {
  const int64_t* n = g->n;
  int64_t M = n[0], N = n[1], K = n[2], cm = n[6], cn = n[7], ldw = K / 32 * F::bytes, batches = n[8];
  Rounded x = rounded_at(g->shared, M * batches, K);
  Share s = share(N * batches, tid, nt, 8);
  for (int64_t at = s.begin; at < s.end;) {
    int64_t b = at / N, begin = at % N, end = begin + (s.end - at);
    if (end > N) end = N;
    at += end - begin;
    const uint8_t* w = (const uint8_t*)g->p[1] + b / n[12] * N * ldw;
    O* c = (O*)g->p[2] + b * n[11];
    // A few output rows stay in the nearest cache while every row of X passes.
    for (int64_t j0 = begin; j0 < end; j0 += 16) {
      int64_t j1 = j0 + 16 < end ? j0 + 16 : end, m = 0;
      for (; m + 4 <= M; m += 4) {
        int64_t j = j0;
        for (; j + 2 <= j1; j += 2) block_dots<F, 4, 2>(w + j * ldw, ldw, x, b * M + m, c + m * cm + j * cn, cm, cn);
        for (; j < j1; j++) block_dots<F, 4, 1>(w + j * ldw, ldw, x, b * M + m, c + m * cm + j * cn, cm, cn);
      }
      for (; m < M; m++) {
        int64_t j = j0;
        for (; j + 4 <= j1; j += 4) block_dots<F, 1, 4>(w + j * ldw, ldw, x, b * M + m, c + m * cm + j * cn, cm, cn);
        for (; j < j1; j++) block_dots<F, 1, 1>(w + j * ldw, ldw, x, b * M + m, c + m * cm + j * cn, cm, cn);
      }
    }
  }
}

// One row of blocks as floats.
template <class F> INLINE void widen_row(const uint8_t* w, int64_t K, float* y) {
  for (int64_t b = 0; b < K / 32; b++, w += F::bytes, y += 32) {
    float d = scale_at(w), lowest = F::minimum ? scale_at(w + 2) : 0.0f;
    const uint8_t* body = w + F::head;
    if (F::bits == 8) {
      for (int i = 0; i < 32; i++) y[i] = d * (float)(int8_t)body[i];
    } else {
      for (int i = 0; i < 16; i++) {
        y[i] = fmaf(d, (float)((body[i] & 15) - F::zero), lowest);
        y[i + 16] = fmaf(d, (float)((body[i] >> 4) - F::zero), lowest);
      }
    }
  }
}

template <class F, class X, class O> void block_exact(const iron_args* g, int32_t tid, int32_t nt) {
  const int64_t* n = g->n;
  int64_t M = n[0], N = n[1], K = n[2], cm = n[6], cn = n[7], ldw = K / 32 * F::bytes;
  float* row = (float*)g->scratch;
  Share s = share(N * n[8], tid, nt);
  for (int64_t at = s.begin; at < s.end; at++) {
    int64_t b = at / N, j = at % N;
    widen_row<F>((const uint8_t*)g->p[1] + (b / n[12] * N + j) * ldw, K, row);
    dot_rows<1>((const X*)g->p[0] + b * n[9], n[3], row, K, K, (O*)g->p[2] + b * n[11] + j * cn, cm, cn, M);
  }
}

template <class F, class T> void dequantize(const iron_args* g, int32_t tid, int32_t nt) {
  int64_t cols = g->n[1], ldw = cols / 32 * F::bytes;
  Share s = share(g->n[0], tid, nt);
  for (int64_t r = s.begin; r < s.end; r++)
    for (int64_t b = 0; b < cols / 32; b++) {
      float part[32];
      widen_row<F>((const uint8_t*)g->p[0] + r * ldw + b * F::bytes, 32, part);
      T* y = (T*)g->p[1] + r * cols + b * 32;
      for (int i = 0; i < 32; i++) store(y + i, part[i]);
    }
}

template <class F> void block_integers(const iron_args* g, int32_t tid, int32_t nt) {
  int64_t K = g->n[1], groups = K / 32;
  if (tid) return;
  for (int64_t j = 0; j < g->n[0]; j++)
    for (int64_t b = 0; b < groups; b++) {
      i32x8 p = product<F>(unpack<F>((const uint8_t*)g->p[0] + (j * groups + b) * F::bytes + F::head), (const int8_t*)g->p[1] + b * 32);
      int32_t sum = 0;
      for (int l = 0; l < 8; l++) sum += p[l];
      ((int32_t*)g->p[2])[j * groups + b] = sum;
    }
}
