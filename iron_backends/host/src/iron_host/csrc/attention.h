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

enum { KEYS = 32, QUERIES = 16 };

// Floats: keys and values of a block, then per row its query, its sum of values, and maximum and sum.
INLINE int64_t attention_scratch(int64_t group, int64_t d) { return 4 * (2 * KEYS * d + QUERIES * group * (2 * d + 2)); }

template <class C> INLINE void widen_keys(const C* x, int64_t row, int64_t n, int64_t d, float* y) {
  for (int64_t j = 0; j < KEYS; j++, y += d) {
    if (j >= n) { memset(y, 0, d * 4); continue; }
    int64_t i = 0;
    for (; i + 8 <= d; i += 8) store8(y + i, load8(x + j * row + i));
    for (; i < d; i++) y[i] = load(x + j * row + i);
  }
}

INLINE float dot(const float* a, const float* b, int64_t d) {
  f32x8 acc = splat(0.0f);
  int64_t i = 0;
  for (; i + 8 <= d; i += 8) acc += load8(a + i) * load8(b + i);
  float s = sum8(acc);
  for (; i < d; i++) s = fmaf(a[i], b[i], s);
  return s;
}

// One row meets one block. `first` to `last`: the keys of the block it sees.
INLINE void meet(const float* q, const float* keys, const float* values, float* acc, float* top, float* total,
                 int64_t d, float scale, int64_t first, int64_t last) {
  float s[KEYS], peak = -INFINITY;
  for (int64_t j = 0; j < KEYS; j++) {
    s[j] = j >= first && j < last ? dot(q, keys + j * d, d) * scale : -INFINITY;
    peak = s[j] > peak ? s[j] : peak;
  }
  peak = peak > *top ? peak : *top;
  float shrink = exp1(*top - peak);
  f32x8 sums = splat(0.0f);
  for (int64_t j = 0; j < KEYS; j += 8) {
    f32x8 p = exp8(load8(s + j) - splat(peak));
    store8(s + j, p);
    sums += p;
  }
  *total = *total * shrink + sum8(sums);
  *top = peak;
  int64_t i = 0;
  for (; i + 8 <= d; i += 8) {
    f32x8 a = load8(acc + i) * splat(shrink);
    for (int64_t j = 0; j < KEYS; j++) a += splat(s[j]) * load8(values + j * d + i);
    store8(acc + i, a);
  }
  for (; i < d; i++) {
    float a = acc[i] * shrink;
    for (int64_t j = 0; j < KEYS; j++) a = fmaf(s[j], values[j * d + i], a);
    acc[i] = a;
  }
}

template <class T, class C> void attention(const iron_args* g, int32_t tid, int32_t nt) {
  const int64_t* n = g->n;
  int64_t heads = n[0], kv_heads = n[1], queries = n[2], keys = n[3], d = n[4], window = n[10];
  bool causal = n[9] != 0;
  float scale = (float)g->f[0];
  int64_t group = heads / kv_heads, per = queries == 1 ? 1 : group, tiles = (queries + QUERIES - 1) / QUERIES;
  float* kb = (float*)g->scratch;
  float *vb = kb + KEYS * d, *q = vb + KEYS * d;
  int64_t most = QUERIES * group;
  float *acc = q + most * d, *top = acc + most * d, *total = top + most;
  Share s = share(heads / per * tiles, tid, nt);
  for (int64_t task = s.begin; task < s.end; task++) {
    int64_t h0 = task / tiles * per, q0 = task % tiles * QUERIES, q1 = q0 + QUERIES < queries ? q0 + QUERIES : queries;
    int64_t kv = h0 / group, rows = (q1 - q0) * per, shift = keys - queries;
    for (int64_t r = 0; r < rows; r++) {
      const T* x = (const T*)g->p[0] + (q0 + r / per) * n[5] + (h0 + r % per) * n[6];
      for (int64_t i = 0; i < d; i++) { q[r * d + i] = load(x + i); acc[r * d + i] = 0.0f; }
      top[r] = -INFINITY;
      total[r] = 0.0f;
    }
    int64_t low = window >= 0 && q0 + shift - window > 0 ? q0 + shift - window : 0;
    int64_t high = causal ? q1 + shift : window >= 0 ? q1 + shift + window : keys;
    if (high > keys) high = keys;
    for (int64_t k0 = low / KEYS * KEYS; k0 < high; k0 += KEYS) {
      int64_t here = keys - k0 < KEYS ? keys - k0 : KEYS;
      widen_keys((const C*)g->p[1] + kv * n[8] + k0 * n[7], n[7], here, d, kb);
      widen_keys((const C*)g->p[2] + kv * n[8] + k0 * n[7], n[7], here, d, vb);
      for (int64_t r = 0; r < rows; r++) {
        int64_t at = q0 + r / per + shift;
        int64_t first = window >= 0 && at - window > 0 ? at - window : 0;
        int64_t last = causal ? at + 1 : window >= 0 ? at + window + 1 : keys;
        if (last > keys) last = keys;
        if (first >= k0 + KEYS || last <= k0) continue;
        first = first > k0 ? first - k0 : 0;
        last = last - k0 < KEYS ? last - k0 : KEYS;
        meet(q + r * d, kb, vb, acc + r * d, top + r, total + r, d, scale, first, last);
      }
    }
    for (int64_t r = 0; r < rows; r++) {
      T* y = (T*)g->p[3] + (q0 + r / per) * n[5] + (h0 + r % per) * n[6];
      float inverse = total[r] > 0 ? 1.0f / total[r] : 0.0f;
      for (int64_t i = 0; i < d; i++) store(y + i, acc[r * d + i] * inverse);
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
