// Attention of many queries over all keys at once, as encoders have it: two products in panels with a softmax between.
//
// whole_keys lays out keys and values of each of kv_heads in `shared`: panels of 32 keys, then of values panels of 32 numbers of a
// head. whole_attention takes TALL rows at a time, a query's heads of one group beside one another: their scores with the keys that
// some of them sees, the largest of each row, exponentials of the differences, their sum, and the values weighted.
// window, on either side, scale, soft_cap and strides are as in attention.h. keys_most: what a head has room for, a multiple of 32.
// spans, of each query the first key and the one behind the last that it sees, besides; or NULL. Scratch: TALL rows of d, then of
// keys_most and sixteen floats: what a query sees ends within a vector.
//
// A query's sums run over its keys in order, so they depend on nothing but these. What it does not see weighs zero.
#pragma once
#include "panels.h"

namespace iron {
namespace attend {

using panels::COLUMNS;
using panels::TALL;

INLINE int64_t padded(int64_t n) { return (n + COLUMNS - 1) / COLUMNS * COLUMNS; }
template <class G> INLINE float* keys_at(const G& g, int64_t head) { return (float*)g.shared + head * g.keys_most * (g.d + padded(g.d)); }
template <class G> INLINE float* values_at(const G& g, int64_t head) { return keys_at(g, head) + g.keys_most * g.d; }

// What a row sees of keys low to high, whose scores are at s: first to last.
struct Seen { int64_t first, last; };
template <class G> INLINE Seen seen(const G& g, int64_t query) {
  int64_t keys = g.keys, at = query + keys - g.queries, window = g.window;
  Seen s = {window >= 0 && at - window > 0 ? at - window : 0, window >= 0 ? at + window + 1 : keys};
  if (g.spans) {
    int64_t first = g.spans[2 * query], last = g.spans[2 * query + 1];
    s.first = first > s.first ? first : s.first;
    s.last = last < s.last ? last : s.last;
  }
  s.first = s.first < keys ? s.first : keys;
  s.last = s.last < keys ? s.last : keys;
  s.last = s.last > s.first ? s.last : s.first;
  return s;
}

// Scores to weights, zeros outside of `of`; what they add up to.
INLINE float soften(float* s, int64_t low, int64_t high, Seen of, float scale, float cap) {
  for (int64_t j = low; j < of.first; j++) s[j - low] = 0.0f;
  float *from = s + (of.first - low), top = -INFINITY;
  int64_t n = of.last - of.first, whole = n / WIDE * WIDE;
  f32xw most = splatw(-INFINITY);
  for (int64_t j = 0; j < n; j += WIDE) {
    f32xw v = loadw(from + j) * splatw(scale);
    if (cap != 0.0f) {
      float part[WIDE];
      storew(part, v);
      for (int i = 0; i < WIDE; i += 8) store8(part + i, splat(cap) * tanh8(load8(part + i) / splat(cap)));
      v = loadw(part);
    }
    if (j >= whole) {
      float part[WIDE];
      storew(part, v);
      for (int64_t i = n - j; i < WIDE; i++) part[i] = -INFINITY;
      v = loadw(part);
    }
    storew(from + j, v);
    i32xw up = v > most;
    most = (f32xw)(((i32xw)v & up) | ((i32xw)most & ~up));
  }
  top = maxw(most);
  f32xw sums = splatw(0.0f);
  for (int64_t j = 0; j < n; j += WIDE) {
    f32xw p = exp_below(loadw(from + j) - splatw(top));
    storew(from + j, p);
    sums += p;
  }
  for (int64_t j = of.last; j < high; j++) s[j - low] = 0.0f;
  return sumw(sums);
}

}  // namespace attend

template <class T, class C> void whole_keys(const slots::Whole<T, C>& g, int32_t tid, int32_t nt) {
  int64_t d = g.d, across = (g.keys + attend::COLUMNS - 1) / attend::COLUMNS;
  Share s = share(g.kv_heads * across, tid, nt);
  for (int64_t at = s.begin; at < s.end; at++) {
    int64_t head = at / across, j0 = at % across * attend::COLUMNS, n = g.keys - j0 < attend::COLUMNS ? g.keys - j0 : attend::COLUMNS;
    float *k = attend::keys_at(g, head) + j0 * d, *v = attend::values_at(g, head) + j0 * attend::COLUMNS;
    if (n < attend::COLUMNS) memset(k, 0, attend::COLUMNS * d * sizeof(float));
    for (int64_t j = 0; j < n; j++) {
      const C* x = g.k + (j0 + j) * g.kv_row + head * g.kv_head;
      for (int64_t i = 0; i < d; i++) k[i * attend::COLUMNS + j] = load(x + i);
    }
    for (int64_t j = 0; j < n; j++) {
      const C* x = g.v + (j0 + j) * g.kv_row + head * g.kv_head;
      for (int64_t i = 0; i < d; i += attend::COLUMNS) {
        float* y = v + i * g.keys_most + j * attend::COLUMNS;
        int64_t there = d - i < attend::COLUMNS ? d - i : attend::COLUMNS, l = 0;
        for (; l + WIDE <= there; l += WIDE) storew(y + l, loadw(x + i + l));
        for (; l < attend::COLUMNS; l++) y[l] = l < there ? load(x + i + l) : 0.0f;
      }
    }
  }
}

template <class T, class C> void whole_attention(const slots::Whole<T, C>& g, int32_t tid, int32_t nt) {
  enum { TALL = attend::TALL, COLUMNS = attend::COLUMNS };
  int64_t d = g.d, group = g.heads / g.kv_heads, rows = g.queries * group, tiles = (rows + TALL - 1) / TALL;
  float *q = (float*)g.scratch, *s = q + TALL * d;
  Share mine = share(g.kv_heads * tiles, tid, nt);
  for (int64_t at = mine.begin; at < mine.end; at++) {
    int64_t head = at / tiles, r0 = at % tiles * TALL, n = rows - r0 < TALL ? rows - r0 : TALL, low = g.keys, high = 0;
    attend::Seen sees[TALL];
    for (int64_t r = 0; r < n; r++) {
      int64_t query = (r0 + r) / group;
      const T* x = g.q + query * g.q_row + (head * group + (r0 + r) % group) * g.q_head;
      int64_t i = 0;
      for (; i + WIDE <= d; i += WIDE) storew(q + r * d + i, loadw(x + i));
      for (; i < d; i++) q[r * d + i] = load(x + i);
      sees[r] = attend::seen(g, query);
      low = sees[r].first < low ? sees[r].first : low;
      high = sees[r].last > high ? sees[r].last : high;
    }
    low = low / COLUMNS * COLUMNS;
    high = attend::padded(high);
    if (high < low) high = low;
    const float *k = attend::keys_at(g, head), *v = attend::values_at(g, head);
    int64_t wide = high - low + WIDE;
    for (int64_t j = low; j < high; j += COLUMNS) panels::task(q, d, n, k + j * d, d, (const float*)nullptr, s + (j - low), wide, (int64_t)COLUMNS);
    float inverse[TALL];
    for (int64_t r = 0; r < n; r++) {
      float sum = attend::soften(s + r * wide, low, high, sees[r], (float)g.scale, (float)g.soft_cap);
      inverse[r] = sum == 0.0f ? 0.0f : 1.0f / sum;
    }
    int64_t depth = (high < g.keys ? high : g.keys) - low;
    for (int64_t i = 0; i < d; i += COLUMNS) {
      float o[TALL][COLUMNS];
      panels::task(s, wide, n, v + i * g.keys_most + low * COLUMNS, depth, (const float*)nullptr, o[0], (int64_t)COLUMNS, (int64_t)COLUMNS);
      int64_t there = d - i < COLUMNS ? d - i : COLUMNS;
      for (int64_t r = 0; r < n; r++) {
        T* y = g.o + (r0 + r) / group * g.q_row + (head * group + (r0 + r) % group) * g.q_head + i;
        int64_t l = 0;
        for (; l + WIDE <= there; l += WIDE) storew(y + l, loadw(o[r] + l) * splatw(inverse[r]));
        for (; l < there; l++) store(y + l, o[r][l] * inverse[r]);
      }
    }
  }
}

// A query and a head at a time, key after key, of what whole_keys is made from. Scratch: a float for each key, and eight.
template <class T, class C> void whole_attention_naive(const slots::Whole<T, C>& g, int32_t tid, int32_t) {
  float* p = (float*)g.scratch;
  for (int64_t at = 0; at < g.queries * g.heads && !tid; at++) {
    int64_t query = at / g.heads, head = at % g.heads, kv = head / (g.heads / g.kv_heads) * g.kv_head;
    attend::Seen of = attend::seen(g, query);
    const T* q = g.q + query * g.q_row + head * g.q_head;
    float top = -INFINITY, sums[WIDE] = {0};
    for (int64_t j = of.first; j < of.last; j++) {
      float s = 0.0f;
      for (int64_t i = 0; i < g.d; i++) s = madd(load(q + i), load(g.k + j * g.kv_row + kv + i), s);
      p[j] = s * (float)g.scale;
    }
    f32x8 cap = splat((float)g.soft_cap);
    for (int64_t j = of.first; j < of.last && g.soft_cap != 0.0; j += 8) store8(p + j, cap * tanh8(load8(p + j) / cap));
    for (int64_t j = of.first; j < of.last; j++) top = p[j] > top ? p[j] : top;
    for (int64_t j = of.first; j < of.last; j++) {
      p[j] = exp_below(splat(p[j] - top))[0];
      sums[(j - of.first) % WIDE] += p[j];
    }
    float sum = sumw(loadw(sums)), inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
    for (int64_t i = 0; i < g.d; i++) {
      float o = 0.0f;
      for (int64_t j = of.first; j < of.last; j++) o = madd(p[j], load(g.v + j * g.kv_row + kv + i), o);
      store(g.o + query * g.q_row + head * g.q_head + i, o * inverse);
    }
  }
}

}  // namespace iron
