// Products with block-quantised weights, read as the file has them: blocks of 32 numbers, scale (and minimum) first.
//
// quantize_rows<X>        p: X                n: rows, depth K, X row stride. Writes `shared`: see Rounded.
// block_matmul<F, O>      p: -, W, C          n: as matmul, X from `shared` (int8_block; the step before rounded it)
// block_exact<F, X, O>    p: X, W, C          n: as matmul; scratch: K floats
// dequantize<F, T>        p: X, Y             n: rows, cols
// block_integers<F>       p: W, Q, R          n: rows N, depth K: the int32 product of each block with int8 Q, for tests
//
// One row of W against one row of X: blocks in order; a block's product is eight int32, each of four neighbours, which
// times both scales are added to eight float lanes; sum8 at the end; minima in a sum of their own, in order, added
// last. Every path below keeps this order, so GEMV, GEMM and the twin agree bit for bit.
#pragma once
#include "matmul.h"

// `bias` makes the stored integers unsigned bytes: 8-bit ones are stored signed.
struct Q4_0 { enum { bytes = 18, head = 2, bits = 4, zero = 8, minimum = 0, bias = 8 }; };
struct Q4_1 { enum { bytes = 20, head = 4, bits = 4, zero = 0, minimum = 1, bias = 0 }; };
struct Q8_0 { enum { bytes = 34, head = 2, bits = 8, zero = 0, minimum = 0, bias = 128 }; };

// Activations rounded to int8, a scale for each 32: q [rows][K], and [rows][K/32] pairs of the scale and scale * sum(q).
struct Pair { float d, s; };
struct Rounded {
  int8_t* q;
  Pair* pairs;
  int64_t K;
};
INLINE Rounded rounded_at(void* shared, int64_t rows, int64_t K) {
  char* p = (char*)shared;
  return Rounded{(int8_t*)p, (Pair*)(p + ((rows * K + 63) & ~63LL)), K};
}

// One group: its largest magnitude decides the scale; rint of x * (1 / scale). Magnitudes compare as integers, where NaN
// is the largest: a NaN makes the scale NaN, and so whatever is computed from it.
INLINE Pair quantize_group(const f32x8* v, int8_t* q) {
  i32x8 most = (i32x8)v[0] & 0x7fffffff;
  for (int i = 1; i < 4; i++) {
    i32x8 a = (i32x8)v[i] & 0x7fffffff, up = a > most;
    most = (a & up) | (most & ~up);
  }
  int32_t top = most[0];
  for (int i = 1; i < 8; i++) top = most[i] > top ? most[i] : top;
  float largest;
  memcpy(&largest, &top, 4);
  float d = largest / 127.0f, inverse = d >= 0x1p-126f ? 1.0f / d : 0.0f;
  int32_t sum = 0;
#if defined(__AVX2__)
  __m256i n[4];
  for (int i = 0; i < 4; i++) n[i] = _mm256_cvtps_epi32((__m256)(v[i] * splat(inverse)));
  i32x8 sums = ((i32x8)n[0] + (i32x8)n[1]) + ((i32x8)n[2] + (i32x8)n[3]);
  for (int i = 0; i < 8; i++) sum += sums[i];
  __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3]));
  _mm256_storeu_si256((__m256i*)q, _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
#else
  for (int i = 0; i < 4; i++) {
    f32x8 scaled = v[i] * splat(inverse);
    for (int l = 0; l < 8; l++) {
      int32_t n = (int32_t)__builtin_rintf(scaled[l]);
      q[8 * i + l] = (int8_t)n;
      sum += n;
    }
  }
#endif
  return Pair{d, d * (float)sum};
}

template <class X> void quantize_rows(const iron_args* g, int32_t tid, int32_t nt) {
  int64_t M = g->n[0], K = g->n[1], groups = K / 32;
  Rounded r = rounded_at(g->shared, M, K);
  Share s = share(M * groups, tid, nt, 8);
  for (int64_t t = s.begin; t < s.end; t++) {
    const X* x = (const X*)g->p[0] + t / groups * g->n[2] + t % groups * 32;
    f32x8 v[4];
    for (int i = 0; i < 4; i++) v[i] = load8(x + 8 * i);
    r.pairs[t] = quantize_group(v, r.q + t * 32);
  }
}

INLINE float scale_at(const uint8_t* p) { uint16_t h; memcpy(&h, p, 2); return half_to_float(h); }

// The integers of a block and their products with int8 activations, as eight int32.
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

template <class F> INLINE i32x8 product(Ints w, const int8_t* q) {
  __m256i x = _mm256_loadu_si256((const __m256i*)q);
  if (F::bits == 8 || F::zero) x = _mm256_sign_epi8(x, w.value);
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
  return (i32x8)_mm256_dpbusd_epi32(_mm256_setzero_si256(), w.magnitude, x);
#elif defined(__AVXVNNI__)
  return (i32x8)_mm256_dpbusd_avx_epi32(_mm256_setzero_si256(), w.magnitude, x);
#else
  return (i32x8)_mm256_madd_epi16(_mm256_maddubs_epi16(w.magnitude, x), _mm256_set1_epi16(1));
#endif
}
#elif defined(__ARM_FEATURE_DOTPROD)
struct Ints { int8x16_t low, high; };

template <class F> INLINE Ints unpack(const uint8_t* body) {
  if (F::bits == 8) return Ints{vld1q_s8((const int8_t*)body), vld1q_s8((const int8_t*)body + 16)};
  uint8x16_t packed = vld1q_u8(body);
  int8x16_t zero = vdupq_n_s8(F::zero);
  return Ints{vsubq_s8(vreinterpretq_s8_u8(vandq_u8(packed, vdupq_n_u8(15))), zero),
              vsubq_s8(vreinterpretq_s8_u8(vshrq_n_u8(packed, 4)), zero)};
}

template <class F> INLINE i32x8 product(Ints w, const int8_t* q) {
  int32x4_t part[2] = {vdotq_s32(vdupq_n_s32(0), w.low, vld1q_s8(q)), vdotq_s32(vdupq_n_s32(0), w.high, vld1q_s8(q + 16))};
  i32x8 sums;
  memcpy(&sums, part, 32);
  return sums;
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

// One row of W against one row of X.
template <class F> INLINE float block_dot(const uint8_t* w, const int8_t* q, const Pair* pairs, int64_t groups) {
  f32x8 acc = splat(0.0f);
  float low = 0.0f;
  for (int64_t b = 0; b < groups; b++, w += F::bytes) {
    float d = scale_at(w);
    f32x8 p = __builtin_convertvector(product<F>(unpack<F>(w + F::head), q + b * 32), f32x8);
    acc += p * splat(d * pairs[b].d);
    if (F::minimum) low = madd(scale_at(w + 2), pairs[b].s, low);
  }
  return sum8(acc) + low;
}

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define IRON_FOUR_ROWS 1
// Scale and minimum (or something else) of block b of four rows: d0 m0 d1 m1 d2 m2 d3 m3.
INLINE __m256 heads(const uint8_t* w, int64_t ldw) {
  int32_t h[4];
  for (int j = 0; j < 4; j++) memcpy(h + j, w + j * ldw, 4);
  return _mm256_cvtph_ps(_mm_setr_epi32(h[0], h[1], h[2], h[3]));
}
INLINE __m256 both(const Pair* p) { return _mm256_castpd_ps(_mm256_broadcast_sd((const double*)p)); }

// Four rows of W against MT rows of X.
template <class F, int MT, class O>
INLINE void block_dots(const uint8_t* w, int64_t ldw, Rounded x, int64_t m, O* c, int64_t cm, int64_t cn, int64_t ahead) {
  int64_t groups = x.K / 32;
  const int8_t* q = x.q + m * x.K;
  const Pair* pairs = x.pairs + m * groups;
  __m256 low[MT];
  for (int i = 0; i < MT; i++) low[i] = _mm256_setzero_ps();
  f32x8 sums[MT][4];
#if defined(IRON_AVX512)
  // Two rows to a register: lanes 0-7 are the one's, 8-15 the other's.
  __m512 acc[MT][2];
  for (int i = 0; i < MT; i++) acc[i][0] = acc[i][1] = _mm512_setzero_ps();
  const __m512i first = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2);
  const __m512i second = _mm512_setr_epi32(4, 4, 4, 4, 4, 4, 4, 4, 6, 6, 6, 6, 6, 6, 6, 6);
  for (int64_t b = 0; b < groups; b++, w += F::bytes) {
    if (ahead && (b & 1)) for (int j = 0; j < 4; j++) __builtin_prefetch(w + j * ldw + ahead);
    __m256 head = heads(w, ldw);
    __m512i ints[2];
    for (int j = 0; j < 2; j++) {
      const uint8_t *one = w + 2 * j * ldw + F::head, *other = one + ldw;
      if (F::bits == 8) {
        __m256i low = _mm256_loadu_si256((const __m256i*)one), high = _mm256_loadu_si256((const __m256i*)other);
        ints[j] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
        ints[j] = _mm512_xor_si512(ints[j], _mm512_set1_epi8((char)F::bias));
      } else {
        __m256i two = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i*)one));
        two = _mm256_inserti128_si256(two, _mm_loadu_si128((const __m128i*)other), 1);
        __m512i four = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3), _mm512_castsi256_si512(two));
        four = _mm512_srlv_epi64(four, _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4));
        ints[j] = _mm512_and_si512(four, _mm512_set1_epi8(15));
      }
    }
    for (int i = 0; i < MT; i++) {
      __m512i x8 = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i*)(q + i * x.K + b * 32)));
      __m512i start = _mm512_setzero_si512();
      if (F::bias) start = _mm512_sub_epi32(start, _mm512_dpbusd_epi32(start, _mm512_set1_epi8((char)F::bias), x8));
      __m256 pair = both(pairs + i * groups + b);
      __m512 scale = _mm512_castps256_ps512(_mm256_mul_ps(head, pair));
      if (F::minimum) low[i] = _mm256_fmadd_ps(head, pair, low[i]);
      __m512 p0 = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(start, ints[0], x8));
      __m512 p1 = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(start, ints[1], x8));
      acc[i][0] = _mm512_fmadd_ps(p0, _mm512_permutexvar_ps(first, scale), acc[i][0]);
      acc[i][1] = _mm512_fmadd_ps(p1, _mm512_permutexvar_ps(second, scale), acc[i][1]);
    }
  }
  for (int i = 0; i < MT; i++) memcpy(sums[i], acc[i], sizeof sums[i]);
#else
  for (int i = 0; i < MT; i++)
    for (int j = 0; j < 4; j++) sums[i][j] = splat(0.0f);
  for (int64_t b = 0; b < groups; b++, w += F::bytes) {
    if (ahead && (b & 1)) for (int j = 0; j < 4; j++) __builtin_prefetch(w + j * ldw + ahead);
    __m256 head = heads(w, ldw), scale[MT];
    for (int i = 0; i < MT; i++) {
      __m256 pair = both(pairs + i * groups + b);
      scale[i] = _mm256_mul_ps(head, pair);
      if (F::minimum) low[i] = _mm256_fmadd_ps(head, pair, low[i]);
    }
    for (int j = 0; j < 4; j++) {
      Ints ints = unpack<F>(w + j * ldw + F::head);
      for (int i = 0; i < MT; i++) {
        f32x8 p = __builtin_convertvector(product<F>(ints, q + i * x.K + b * 32), f32x8);
        f32x8 s = (f32x8)_mm256_permutevar8x32_ps(scale[i], _mm256_set1_epi32(2 * j));
        sums[i][j] = (f32x8)_mm256_fmadd_ps((__m256)p, (__m256)s, (__m256)sums[i][j]);
      }
    }
  }
#endif
  for (int i = 0; i < MT; i++) {
    f32x8 lows = (f32x8)low[i];
    for (int j = 0; j < 4; j++) store(c + i * cm + j * cn, sum8(sums[i][j]) + (F::minimum ? lows[2 * j + 1] : 0.0f));
  }
}
#endif

template <class F, class O> void block_matmul(const iron_args* g, int32_t tid, int32_t nt) {
  const int64_t* n = g->n;
  int64_t M = n[0], N = n[1], K = n[2], cm = n[6], cn = n[7], ldw = K / 32 * F::bytes, batches = n[8], groups = K / 32;
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
      int64_t j1 = j0 + 16 < end ? j0 + 16 : end, m = 0, four = j0;
#if defined(IRON_FOUR_ROWS)
      four = j0 + (j1 - j0) / 4 * 4;
      enum { MT = WIDE / 4 };
      for (; m + MT <= M; m += MT)
        for (int64_t j = j0; j < four; j += 4)
          block_dots<F, MT, O>(w + j * ldw, ldw, x, b * M + m, c + m * cm + j * cn, cm, cn, 0);
      for (; m < M; m++)
        for (int64_t j = j0; j < four; j += 4)
          block_dots<F, 1, O>(w + j * ldw, ldw, x, b * M + m, c + m * cm + j * cn, cm, cn, 8 * ldw);
#endif
      for (int64_t j = four; j < j1; j++)
        for (m = 0; m < M; m++) {
          int64_t t = b * M + m;
          store(c + m * cm + j * cn, block_dot<F>(w + j * ldw, x.q + t * K, x.pairs + t * groups, groups));
        }
    }
  }
}

// The twin: one output at a time, each in the order all keep.
template <class F, class O> void block_matmul_naive(const iron_args* g, int32_t tid, int32_t nt) {
  const int64_t* n = g->n;
  int64_t M = n[0], N = n[1], K = n[2], groups = K / 32;
  if (tid) return;
  Rounded x = rounded_at(g->shared, M * n[8], K);
  for (int64_t t = 0; t < n[8] * M; t++)
    for (int64_t j = 0; j < N; j++) {
      const uint8_t* w = (const uint8_t*)g->p[1] + (t / M / n[12] * N + j) * groups * F::bytes;
      float lanes[8] = {0}, low = 0;
      for (int64_t b = 0; b < groups; b++, w += F::bytes) {
        Pair pair = x.pairs[t * groups + b];
        for (int i = 0; i < 32; i += 4) {
          int32_t sum = 0;
          for (int e = i; e < i + 4; e++) {
            int32_t v = F::bits == 8 ? (int8_t)w[F::head + e] : e < 16 ? w[F::head + e] & 15 : w[F::head + e - 16] >> 4;
            sum += (v - F::zero) * x.q[t * K + b * 32 + e];
          }
          lanes[i / 4] = madd((float)sum, scale_at(w) * pair.d, lanes[i / 4]);
        }
        if (F::minimum) low = madd(scale_at(w + 2), pair.s, low);
      }
      f32x8 all;
      memcpy(&all, lanes, 32);
      store((O*)g->p[2] + t / M * n[11] + t % M * n[6] + j * n[7], sum8(all) + low);
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
        y[i] = madd(d, (float)((body[i] & 15) - F::zero), lowest);
        y[i + 16] = madd(d, (float)((body[i] >> 4) - F::zero), lowest);
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
      for (int i = 0; i < 32; i += 8) store8(y + i, load8(part + i));
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
