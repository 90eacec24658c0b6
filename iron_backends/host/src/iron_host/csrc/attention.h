// Attention over keys and values as they are stored, block by block of 32 keys.
//
// attention<T, C>
//   p: Q, K, V, O
//   n: 0 heads, 1 KV heads, 2 queries, 3 keys, 4 numbers per head, 5 Q row, 6 Q head, 7 K row, 8 K head strides,
//      9 causal, 10 window or -1        f: 0 scale
//   scratch: attention_scratch(heads / KV heads, d) bytes
//
// The queries are the last of the keys. A query passes the blocks that hold a key it sees, from the first on, each
// with a running maximum and sum; what it does in a block depends on nothing but that block's keys, so its result
// is the same whatever other queries run with it and however long the cache is.
#pragma once
#include "common.h"

enum { KEYS = 32, QUERIES = 16, TOGETHER = WIDE / 4 };

INLINE int64_t padded(int64_t d) { return (d + 15) & ~15LL; }

// Floats: keys and values of a block, then per row its query, its sum of values, and maximum and sum.
INLINE int64_t attention_scratch(int64_t group, int64_t d) {
  return 4 * (2 * KEYS * padded(d) + QUERIES * group * (2 * padded(d) + 2));
}

template <class C> INLINE void widen_keys(const C* x, int64_t row, int64_t n, int64_t d, float* y) {
  for (int64_t j = 0; j < n; j++, y += padded(d)) {
    int64_t i = 0;
    for (; i + WIDE <= d; i += WIDE) storew(y + i, loadw(x + j * row + i));
    if (i < d) storew(y + i, loadw_part(x + j * row + i, d - i));
  }
}

// The lanes of four vectors added up, each in the one order.
INLINE void sum4(const f32xw* v, float* s) {
  f32x8 a[4];
  for (int i = 0; i < 4; i++) {
#if defined(IRON_AVX512)
    f32x8 half[2];
    memcpy(half, v + i, 64);
    a[i] = half[0] + half[1];
#else
    a[i] = v[i];
#endif
  }
#if defined(__AVX__)
  __m256 t = _mm256_hadd_ps(_mm256_hadd_ps((__m256)a[0], (__m256)a[1]), _mm256_hadd_ps((__m256)a[2], (__m256)a[3]));
  _mm_storeu_ps(s, _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1)));
#else
  for (int i = 0; i < 4; i++) s[i] = sum8(a[i]);
#endif
}

// Products of R queries with the n keys of a block.
template <int R, class C>
INLINE void scores(const float* q, const C* k, int64_t row, int64_t n, int64_t d, float (*s)[KEYS]) {
  int64_t pad = padded(d);
  for (int64_t j = 0; j < n; j += 4) {
    const C* key[4];
    for (int t = 0; t < 4; t++) key[t] = k + (j + t < n ? j + t : n - 1) * row;
    f32xw acc[R][4];
    for (int r = 0; r < R; r++)
      for (int t = 0; t < 4; t++) acc[r][t] = splatw(0.0f);
    for (int64_t i = 0; i < d; i += WIDE) {
      f32xw b[4];
      for (int t = 0; t < 4; t++) b[t] = i + WIDE <= d ? loadw(key[t] + i) : loadw_part(key[t] + i, d - i);
      for (int r = 0; r < R; r++) {
        f32xw a = loadw(q + r * pad + i);
        for (int t = 0; t < 4; t++) acc[r][t] += a * b[t];
      }
    }
    for (int r = 0; r < R; r++) sum4(acc[r], s[r] + j);
  }
}

// acc = acc * shrink + the n values of a block weighted by p, for R queries.
template <int R, class C>
INLINE void add_values(const float (*p)[KEYS], const float* shrink, const C* v, int64_t row, int64_t n, int64_t d, float* acc) {
  enum { V = 2 };
  int64_t pad = padded(d), i = 0;
  for (; i + V * WIDE <= d; i += V * WIDE) {
    f32xw sum[R][V];
    for (int r = 0; r < R; r++)
      for (int u = 0; u < V; u++) sum[r][u] = loadw(acc + r * pad + i + u * WIDE) * splatw(shrink[r]);
    for (int64_t j = 0; j < n; j++) {
      f32xw b[V];
      for (int u = 0; u < V; u++) b[u] = loadw(v + j * row + i + u * WIDE);
      for (int r = 0; r < R; r++)
        for (int u = 0; u < V; u++) sum[r][u] += splatw(p[r][j]) * b[u];
    }
    for (int r = 0; r < R; r++)
      for (int u = 0; u < V; u++) storew(acc + r * pad + i + u * WIDE, sum[r][u]);
  }
  for (; i < d; i += WIDE)
    for (int r = 0; r < R; r++) {
      f32xw sum = loadw(acc + r * pad + i) * splatw(shrink[r]);
      for (int64_t j = 0; j < n; j++)
        sum += splatw(p[r][j]) * (i + WIDE <= d ? loadw(v + j * row + i) : loadw_part(v + j * row + i, d - i));
      storew(acc + r * pad + i, sum);
    }
}

// The rows of one task: `per` heads of a query, then those of the next.
struct Rows {
  float *q, *acc, *top, *total;
  int64_t count, per;
  int64_t first[QUERIES], last[QUERIES];  // the keys each query sees
};

// R rows from r0 on meet the block of n keys from k0 on.
template <int R, class C>
static __attribute__((noinline)) void meet(const Rows& rows, int64_t r0, const C* k, const C* v, int64_t row, int64_t k0, int64_t n, int64_t d, float scale) {
  float s[R][KEYS], shrink[R];
  scores<R>(rows.q + r0 * padded(d), k, row, n, d, s);
  for (int r = 0; r < R; r++) {
    int64_t query = (r0 + r) / rows.per, first = rows.first[query] - k0, last = rows.last[query] - k0;
    if (last > n) last = n;
    if (first >= last) {  // it sees none of them
      memset(s[r], 0, sizeof s[r]);
      shrink[r] = 1.0f;
      continue;
    }
    float *top = rows.top + r0 + r, *total = rows.total + r0 + r, peak = *top;
    for (int64_t j = 0; j < KEYS; j++) {
      s[r][j] = j >= first && j < last ? s[r][j] * scale : -INFINITY;
      peak = s[r][j] > peak ? s[r][j] : peak;
    }
    shrink[r] = exp1(*top - peak);
    f32x8 sums = splat(0.0f);
    for (int64_t j = 0; j < KEYS; j += 8) {
      f32x8 p = exp8(load8(s[r] + j) - splat(peak));
      store8(s[r] + j, p);
      sums += p;
    }
    *total = madd(*total, shrink[r], sum8(sums));
    *top = peak;
  }
  add_values<R>(s, shrink, v, row, n, d, rows.acc + r0 * padded(d));
}

// All rows of a task meet a block. Where few do, what is left after fours goes together too.
template <bool FEW, class C>
INLINE void meet_all(const Rows& rows, const C* k, const C* v, int64_t row, int64_t k0, int64_t n, int64_t d, float scale) {
  int64_t r = 0;
  for (; r + TOGETHER <= rows.count; r += TOGETHER) meet<TOGETHER>(rows, r, k, v, row, k0, n, d, scale);
  if (FEW && TOGETHER > 2 && rows.count - r == 3) return meet<FEW ? 3 : 1>(rows, r, k, v, row, k0, n, d, scale);
  for (; r < rows.count; r++) meet<1>(rows, r, k, v, row, k0, n, d, scale);
}

template <class T, class C> void attention(const iron_args* g, int32_t tid, int32_t nt) {
  const int64_t* n = g->n;
  int64_t heads = n[0], kv_heads = n[1], queries = n[2], keys = n[3], d = n[4], window = n[10], pad = padded(d);
  bool causal = n[9] != 0;
  float scale = (float)g->f[0];
  // The heads of a group read the cache together, unless that leaves threads without work.
  int64_t group = heads / kv_heads, per = queries > 1 || kv_heads * IRON_PARTS >= nt ? group : 1, sets = heads / per;
  int64_t tiles = (queries + QUERIES - 1) / QUERIES, most = QUERIES * group;
  float *kb = (float*)g->scratch, *vb = kb + KEYS * pad;
  Rows rows;
  rows.q = vb + KEYS * pad;
  rows.acc = rows.q + most * pad;
  rows.top = rows.acc + most * pad;
  rows.total = rows.top + most;
  rows.per = per;
  Share s = share(sets * tiles, tid, nt);
  for (int64_t task = s.begin; task < s.end; task++) {
    // The last queries see most keys: they go first.
    int64_t h0 = task % sets * per, kv = h0 / group, q0 = (tiles - 1 - task / sets) * QUERIES;
    int64_t q1 = q0 + QUERIES < queries ? q0 + QUERIES : queries, shift = keys - queries, low = keys, high = 0;
    rows.count = (q1 - q0) * per;
    for (int64_t i = q0; i < q1; i++) {
      int64_t at = i + shift, first = window >= 0 && at - window > 0 ? at - window : 0;
      int64_t last = causal ? at + 1 : window >= 0 ? at + window + 1 : keys;
      rows.first[i - q0] = first;
      rows.last[i - q0] = last = last < keys ? last : keys;
      low = first < low ? first : low;
      high = last > high ? last : high;
    }
    for (int64_t r = 0; r < rows.count; r++) {
      const T* x = (const T*)g->p[0] + (q0 + r / per) * n[5] + (h0 + r % per) * n[6];
      for (int64_t i = 0; i < pad; i++) { rows.q[r * pad + i] = i < d ? load(x + i) : 0.0f; rows.acc[r * pad + i] = 0.0f; }
      rows.top[r] = -INFINITY;
      rows.total[r] = 0.0f;
    }
    const C *k = (const C*)g->p[1] + kv * n[8], *v = (const C*)g->p[2] + kv * n[8];
    for (int64_t k0 = low / KEYS * KEYS; k0 < high; k0 += KEYS) {
      int64_t here = high - k0 < KEYS ? high - k0 : KEYS;
      if (rows.count <= 4) {
        meet_all<true>(rows, k + k0 * n[7], v + k0 * n[7], n[7], k0, here, d, scale);
      } else {
        widen_keys(k + k0 * n[7], n[7], here, d, kb);
        widen_keys(v + k0 * n[7], n[7], here, d, vb);
        meet_all<false>(rows, (const float*)kb, (const float*)vb, pad, k0, here, d, scale);
      }
    }
    for (int64_t r = 0; r < rows.count; r++) {
      T* y = (T*)g->p[3] + (q0 + r / per) * n[5] + (h0 + r % per) * n[6];
      float inverse = rows.total[r] > 0 ? 1.0f / rows.total[r] : 0.0f;
      for (int64_t i = 0; i < d; i++) store(y + i, rows.acc[r * pad + i] * inverse);
    }
  }
}

// The twin: one query, all its scores, then the sum.
template <class T, class C> void attention_naive(const iron_args* g, int32_t tid, int32_t nt) {
  const int64_t* n = g->n;
  if (tid) return;
  int64_t group = n[0] / n[1], d = n[4];
  for (int64_t h = 0; h < n[0]; h++)
    for (int64_t r = 0; r < n[2]; r++) {
      int64_t at = r + n[3] - n[2];
      const T* x = (const T*)g->p[0] + r * n[5] + h * n[6];
      T* y = (T*)g->p[3] + r * n[5] + h * n[6];
      const C *k = (const C*)g->p[1] + h / group * n[8], *v = (const C*)g->p[2] + h / group * n[8];
      double top = -INFINITY, total = 0;
      for (int pass = 0; pass < 2; pass++)
        for (int64_t j = 0; j < n[3]; j++) {
          if ((n[9] && j > at) || (n[10] >= 0 && (j > at + n[10] || j < at - n[10]))) continue;
          double s = 0;
          for (int64_t i = 0; i < d; i++) s += (double)load(x + i) * load(k + j * n[7] + i);
          s *= g->f[0];
          if (pass == 0) top = s > top ? s : top;
          else total += exp(s - top);
        }
      for (int64_t i = 0; i < d; i++) {
        double sum = 0;
        for (int64_t j = 0; j < n[3]; j++) {
          if ((n[9] && j > at) || (n[10] >= 0 && (j > at + n[10] || j < at - n[10]))) continue;
          double s = 0;
          for (int64_t t = 0; t < d; t++) s += (double)load(x + t) * load(k + j * n[7] + t);
          sum += exp(s * g->f[0] - top) * load(v + j * n[7] + i);
        }
        store(y + i, (float)(total > 0 ? sum / total : 0));
      }
    }
}
