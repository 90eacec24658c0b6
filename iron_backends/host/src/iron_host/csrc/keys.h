// A block of 32 keys and their values, and the rows of queries that meet it: products, what they become, exponentials beside the largest
// so far, and the values they weigh. Of each row the running maximum, the sum of exponentials and the sum of values are kept.
#pragma once
#include "common.h"

namespace iron {

enum { KEYS = 32, QUERIES = 64 };

INLINE int64_t padded(int64_t d) { return (d + 15) & ~15LL; }

template <class C> INLINE void widen_keys(const C* x, int64_t row, int64_t n, int64_t d, float* y) {
  for (int64_t j = 0; j < n; j++, y += padded(d)) {
    int64_t i = 0;
    for (; i + WIDE <= d; i += WIDE) storew(y + i, loadw(x + j * row + i));
    if (i < d) storew(y + i, loadw_part(x + j * row + i, d - i));
  }
}

// The lanes of four vectors added up, each vector's in the one order: its halves, neighbours, neighbours of those, what is left. What
// four such sums have in common is put off until all four are there.
#if defined(IRON_AVX512)
typedef f32xw Sums;
// Numbers of b where n is 1, elsewhere those of a.
INLINE f32xw chosen(i32x16 n, f32xw a, f32xw b) { return n != 0 ? b : a; }
INLINE Sums part_sums(const f32xw* v) {
  const i32x16 upper = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1}, odd = {0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1};
  f32xw a = chosen(upper, v[0], v[2]) + x86::crossed(v[0], v[2]), b = chosen(upper, v[1], v[3]) + x86::crossed(v[1], v[3]);
  return chosen(odd, a, b) + x86::swapped(chosen(odd, b, a));
}
INLINE void whole_sums(const Sums* p, float* s) {
  const i32x16 last = {0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1};
  f32xw a = chosen(last, p[0], p[1]) + x86::pairs_crossed(p[0], p[1]), b = chosen(last, p[2], p[3]) + x86::pairs_crossed(p[2], p[3]);
  f32xw all = x86::quarters_even(a, b) + x86::quarters_odd(a, b);
  storew(s, x86::picked(all, i32x16{0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15}));
}
#else
typedef f32x4 Sums;
INLINE Sums part_sums(const f32xw* v) {
#if defined(__AVX__)
  f32x8 t = x86::add_neighbours(x86::add_neighbours(v[0], v[1]), x86::add_neighbours(v[2], v[3]));
  return x86::low(t) + x86::high(t);
#else
  return Sums{sum8(v[0]), sum8(v[1]), sum8(v[2]), sum8(v[3])};
#endif
}
INLINE void whole_sums(const Sums* p, float* s) { memcpy(s, p, 4 * sizeof *p); }
#endif

// What is read next, asked for in order, a few lines at every step of a block: all heads' numbers of a key lie together,
// which the heads' own order hides from the processor.
struct Stream {
  const char *at, *end;
  int64_t lines;

  void ask() {
    const char* stop = at + 64 * lines < end ? at + 64 * lines : end;
    for (; at < stop; at += 64) __builtin_prefetch(at, 0, 3);
  }
};

template <int R> INLINE void add_products(const float* q, int64_t pad, const f32xw* b, f32xw (*acc)[4]) {
  for (int r = 0; r < R; r++) {
    f32xw a = loadw(q + r * pad);
#if defined(IRON_AVX512)
    a = x86::held(a);
#endif
    for (int t = 0; t < 4; t++) acc[r][t] = maddw(a, b[t], acc[r][t]);
  }
}

// Products of R queries with the n keys of a block.
template <int R, class C>
INLINE void scores(Stream* stream, const float* q, const C* k, int64_t row, int64_t n, int64_t d, float (*s)[KEYS]) {
  Sums sums[R][KEYS / 4];
  Stream ahead = *stream;
  int64_t pad = padded(d), j = 0;
  for (; j < n; j += 4, k += 4 * row) {
    const C* key[] = {k, k + row, k + 2 * row, k + 3 * row};
    if (j + 4 > n)
      for (int t = 1; t < 4; t++) key[t] = j + t < n ? key[t] : key[t - 1];
    ahead.ask();
    f32xw acc[R][4];
    for (int r = 0; r < R; r++)
      for (int t = 0; t < 4; t++) acc[r][t] = splatw(0.0f);
    int64_t i = 0;
    f32xw b[4];
    for (; i + WIDE <= d; i += WIDE) {
      for (int t = 0; t < 4; t++) b[t] = loadw(key[t] + i);
      add_products<R>(q + i, pad, b, acc);
    }
    if (i < d) {
      for (int t = 0; t < 4; t++) b[t] = loadw_part(key[t] + i, d - i);
      add_products<R>(q + i, pad, b, acc);
    }
    for (int r = 0; r < R; r++) sums[r][j / 4] = part_sums(acc[r]);
  }
  *stream = ahead;
  for (int r = 0; r < R; r++) {
    for (int64_t i = j / 4; i < KEYS / 4; i++) sums[r][i] = Sums{};
    for (int64_t i = 0; i < KEYS; i += 16) whole_sums(sums[r] + i / 4, s[r] + i);
  }
}

// acc = acc * shrink + n values weighted by p, for R queries and V vectors of a head's numbers, of which value(j, u) is u of value j.
template <int R, int V, class Value>
INLINE void add_columns(Stream& stream, const float (*p)[KEYS], const float* shrink, int64_t n, float* acc, int64_t pad, Value value) {
  f32xw sum[R][V];
  for (int r = 0; r < R; r++)
    for (int u = 0; u < V; u++) sum[r][u] = loadw(acc + r * pad + u * WIDE) * splatw(shrink[r]);
  for (int64_t j = 0; j < n;) {
    stream.ask();
    for (int64_t stop = j + 4 < n ? j + 4 : n; j < stop; j++) {
      f32xw b[V];
      for (int u = 0; u < V; u++) b[u] = value(j, u);
      for (int r = 0; r < R; r++)
        for (int u = 0; u < V; u++) sum[r][u] = maddw(splatw(p[r][j]), b[u], sum[r][u]);
    }
  }
  for (int r = 0; r < R; r++)
    for (int u = 0; u < V; u++) storew(acc + r * pad + u * WIDE, sum[r][u]);
}

// How often the values of a block are passed, which is once for so many of their numbers.
INLINE int64_t columns(int64_t d) { return (d + 4 * WIDE - 1) / (4 * WIDE); }

// The n values of a block weighted by p, for R queries: as many numbers at once as registers hold.
template <int R, class C>
INLINE void add_values(Stream* stream, const float (*p)[KEYS], const float* shrink, const C* v, int64_t row, int64_t n, int64_t d, float* acc) {
  enum { V = R > 2 && WIDE < 16 ? 2 : 4 };
  int64_t pad = padded(d), i = 0;
  Stream ahead = *stream;
  auto value = [&](int64_t j, int u) { return loadw(v + j * row + u * WIDE); };
  for (; i + V * WIDE <= d; i += V * WIDE, v += V * WIDE) add_columns<R, V>(ahead, p, shrink, n, acc + i, pad, value);
  for (; i + WIDE <= d; i += WIDE, v += WIDE) add_columns<R, 1>(ahead, p, shrink, n, acc + i, pad, value);
  if (i < d) add_columns<R, 1>(ahead, p, shrink, n, acc + i, pad, [&](int64_t j, int) { return loadw_part(v + j * row, d - i); });
  *stream = ahead;
}

// The rows of one task: `per` heads of a query, then those of the next.
struct Rows {
  float *q, *acc, *top, *total;
  float *whole, *peak, *sum;  // of the runs that are over
  int64_t count, per;
  Stream* streams;  // keys and values of the next block
  int64_t first[QUERIES], last[QUERIES];  // the keys each query sees
};

// What products of queries and keys become before they are masked.
template <class T> struct Bend {
  float scale, cap;  // no cap: 0
  const T* bias;     // of the task's first query and head, or NULL
  int64_t row, head;
};
template <class T> INLINE f32x8 bent(f32x8 x, const Bend<T>& b, const T* bias, int64_t n) {
  x = x * splat(b.scale);
  if (bias && n > 0) x += n < 8 ? load_part(bias, n) : load8(bias);
  return b.cap == 0.0f ? x : splat(b.cap) * tanh8(x / splat(b.cap));
}
template <class T, class C> INLINE Bend<T> bend_of(const slots::Attention<T, C>& g, int64_t query, int64_t head) {
  const T* bias = g.bias ? g.bias + query * g.bias_row + head * g.bias_head : nullptr;
  return {(float)g.scale, (float)g.soft_cap, bias, g.bias_row, g.bias_head};
}

// 0, 1, 2 and so on.
INLINE i32xw lanes() {
  i32xw at;
  for (int i = 0; i < WIDE; i++) at[i] = i;
  return at;
}

// R rows from r0 on meet the block of n keys from k0 on.
template <int R, class T, class C>
static __attribute__((noinline)) void meet(const Rows& rows, int64_t r0, const C* k, const C* v, int64_t row, int64_t k0, int64_t n,
                                           int64_t d, const Bend<T>& bend) {
  float s[R][KEYS], peak[R], shrink[WIDE] = {};
  scores<R>(rows.streams, rows.q + r0 * padded(d), k, row, n, d, s);
  int64_t query = r0 / rows.per, head = r0 % rows.per;
  for (int r = 0; r < R; r++) {
    int64_t first = rows.first[query] - k0, last = rows.last[query] - k0;
    if (last > n) last = n;
    float scale = bend.scale;
    if (bend.bias || bend.cap != 0.0f) {
      const T* bias = bend.bias ? bend.bias + query * bend.row + head * bend.head + k0 : nullptr;
      for (int64_t j = 0; j < KEYS; j += 8) store8(s[r] + j, bent(load8(s[r] + j), bend, bias ? bias + j : nullptr, n - j));
      scale = 1.0f;
    }
    float* top = rows.top + r0 + r;
    f32xw most = splatw(*top);
    for (int64_t j = 0; j < KEYS; j += WIDE) {
      i32xw at = lanes() + (int32_t)j, seen = (at >= (int32_t)first) & (at < (int32_t)last);
      f32xw v = seen ? loadw(s[r] + j) * splatw(scale) : splatw(-INFINITY);
      most = v > most ? v : most;
      storew(s[r] + j, v);
    }
    float now = maxw(most);
    peak[r] = now == -INFINITY ? 0.0f : now;  // nothing seen yet: all weigh 0
    shrink[r] = *top - peak[r];
    *top = now;
    if (++head == rows.per) head = 0, query++;
  }
  storew(shrink, exp_below(loadw(shrink)));
  for (int r = 0; r < R; r++) {
    f32x8 sums = splat(0.0f);
    for (int64_t j = 0; j < KEYS; j += WIDE) {
      f32xw p = exp_below(loadw(s[r] + j) - splatw(peak[r]));
      storew(s[r] + j, p);
      for (int64_t i = 0; i < WIDE; i += 8) sums += load8(s[r] + j + i);
    }
    float* total = rows.total + r0 + r;
    *total = madd(*total, shrink[r], sum8(sums));
  }
  add_values<R>(rows.streams + 1, s, shrink, v, row, n, d, rows.acc + r0 * padded(d));
}

// rows.count rows from r on meet a block, MANY at a time, and what is left after these together too.
template <int MANY, class T, class C>
INLINE void meet_all(const Rows& rows, int64_t r, const C* k, const C* v, int64_t row, int64_t k0, int64_t n, int64_t d,
                     const Bend<T>& bend) {
  int64_t end = r + rows.count;
  for (; r + MANY <= end; r += MANY) meet<MANY>(rows, r, k, v, row, k0, n, d, bend);
  if (MANY > 3 && end - r == 3) return meet<(MANY > 3 ? 3 : 1)>(rows, r, k, v, row, k0, n, d, bend);
  if (MANY > 2 && end - r == 2) return meet<(MANY > 2 ? 2 : 1)>(rows, r, k, v, row, k0, n, d, bend);
  for (; r < end; r++) meet<1>(rows, r, k, v, row, k0, n, d, bend);
}

}  // namespace iron
