// Attention over keys and values as they are stored, block by block of 32 keys.
//
// q_row, q_head (of Q and O), kv_row, kv_head (of K and V): numbers between rows and between heads; d: numbers of a head;
// window: keys seen before a query besides its own (after it too, if not causal), or -1; block: queries of a task, at most QUERIES; ahead:
// blocks of keys from here to the one that is asked for, 0 for none; bias: what is added to scaled scores, rows
// of bias_row and heads of bias_head numbers, or NULL; soft_cap: scores are bent to within it, or 0. Scratch, floats that
// lowerings/mha.py counts: keys and values of a block, then per row its query, its sum of values in this run and in those before,
// and maximum and sum of either. in_runs, for one query: its runs of keys stay in `shared`, runs * heads * (padded(d) + 2) floats,
// and attention_join, of the same slots, makes O of them.
//
// The queries are the last of the keys. A query passes the blocks that hold a key it sees, from the first on, each
// with a running maximum and sum; every RUN keys these start anew, and runs are joined in order. What a query does in
// a run depends on nothing but that run's keys, so its result is the same whatever other queries run with it, whoever
// passes the runs, and however long the cache is.
#pragma once
#include "common.h"

namespace iron {

enum { KEYS = 32, RUN = 64, QUERIES = 64, TOGETHER = WIDE / 4 };

INLINE int64_t padded(int64_t d) { return (d + 15) & ~15LL; }

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
  f32x8 t = x86::add_neighbours(x86::add_neighbours(a[0], a[1]), x86::add_neighbours(a[2], a[3]));
  *(f32x4_at*)s = x86::low(t) + x86::high(t);
#else
  for (int i = 0; i < 4; i++) s[i] = sum8(a[i]);
#endif
}

// What is read next, asked for in order, a few lines at every step of a block: all heads' numbers of a key lie together,
// which the heads' own order hides from the processor.
struct Stream {
  const char *at, *end;
  int64_t lines;

  void ask() {
    const char* stop = at + 64 * lines < end ? at + 64 * lines : end;
    for (; at < stop; at += 64) __builtin_prefetch(at, 0, 2);
  }
};

// Products of R queries with the n keys of a block.
template <int R, class C>
INLINE void scores(Stream* streams, const float* q, const C* k, int64_t row, int64_t n, int64_t d, float (*s)[KEYS]) {
  int64_t pad = padded(d);
  for (int64_t j = 0; j < n; j += 4) {
    const C* key[4];
    for (int t = 0; t < 4; t++) key[t] = k + (j + t < n ? j + t : n - 1) * row;
    streams[0].ask();
    streams[1].ask();
    f32xw acc[R][4];
    for (int r = 0; r < R; r++)
      for (int t = 0; t < 4; t++) acc[r][t] = splatw(0.0f);
    for (int64_t i = 0; i < d; i += WIDE) {
      f32xw b[4];
      for (int t = 0; t < 4; t++) b[t] = i + WIDE <= d ? loadw(key[t] + i) : loadw_part(key[t] + i, d - i);
      for (int r = 0; r < R; r++) {
        f32xw a = loadw(q + r * pad + i);
        for (int t = 0; t < 4; t++) acc[r][t] = maddw(a, b[t], acc[r][t]);
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
        for (int u = 0; u < V; u++) sum[r][u] = maddw(splatw(p[r][j]), b[u], sum[r][u]);
    }
    for (int r = 0; r < R; r++)
      for (int u = 0; u < V; u++) storew(acc + r * pad + i + u * WIDE, sum[r][u]);
  }
  for (; i < d; i += WIDE)
    for (int r = 0; r < R; r++) {
      f32xw sum = loadw(acc + r * pad + i) * splatw(shrink[r]);
      for (int64_t j = 0; j < n; j++)
        sum = maddw(splatw(p[r][j]), i + WIDE <= d ? loadw(v + j * row + i) : loadw_part(v + j * row + i, d - i), sum);
      storew(acc + r * pad + i, sum);
    }
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

// R rows from r0 on meet the block of n keys from k0 on.
template <int R, class T, class C>
static __attribute__((noinline)) void meet(const Rows& rows, int64_t r0, const C* k, const C* v, int64_t row, int64_t k0, int64_t n,
                                           int64_t d, const Bend<T>& bend) {
  float s[R][KEYS], shrink[R];
  scores<R>(rows.streams, rows.q + r0 * padded(d), k, row, n, d, s);
  for (int r = 0; r < R; r++) {
    int64_t query = (r0 + r) / rows.per, first = rows.first[query] - k0, last = rows.last[query] - k0;
    if (last > n) last = n;
    if (first < 0) first = 0;
    if (last <= 0 || first >= last) {  // it sees none of them
      memset(s[r], 0, sizeof s[r]);
      shrink[r] = 1.0f;
      continue;
    }
    const T* bias = bend.bias ? bend.bias + query * bend.row + (r0 + r) % rows.per * bend.head + k0 : nullptr;
    float *top = rows.top + r0 + r, *total = rows.total + r0 + r;
    f32x8 most = splat(*top);
    for (int64_t j = 0; j < KEYS; j += 8) {
      i32x8 at = i32x8{0, 1, 2, 3, 4, 5, 6, 7} + (int32_t)j, seen = (at >= (int32_t)first) & (at < (int32_t)last);
      f32x8 v = bent(load8(s[r] + j), bend, bias ? bias + j : nullptr, n - j);
      v = (f32x8)(((i32x8)v & seen) | ((i32x8)splat(-INFINITY) & ~seen));
      i32x8 up = v > most;
      most = (f32x8)(((i32x8)v & up) | ((i32x8)most & ~up));
      store8(s[r] + j, v);
    }
    float peak = max8(most);
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

// rows.count rows from r on meet a block, MANY at a time. Where few do, what is left after fours goes together too.
template <bool FEW, int MANY, class T, class C>
INLINE void meet_all(const Rows& rows, int64_t r, const C* k, const C* v, int64_t row, int64_t k0, int64_t n, int64_t d,
                     const Bend<T>& bend) {
  int64_t end = r + rows.count;
  for (; r + MANY <= end; r += MANY) meet<MANY>(rows, r, k, v, row, k0, n, d, bend);
  if (FEW && MANY > 2 && end - r == 3) return meet<FEW ? 3 : 1>(rows, r, k, v, row, k0, n, d, bend);
  for (; r < end; r++) meet<1>(rows, r, k, v, row, k0, n, d, bend);
}

INLINE void begin_run(const Rows& rows, int64_t pad) {
  memset(rows.acc, 0, rows.count * pad * sizeof(float));
  for (int64_t r = 0; r < rows.count; r++) {
    rows.top[r] = -INFINITY;
    rows.total[r] = 0.0f;
  }
}

// A run's sums join those of the runs before it.
INLINE void join(float* whole, float* peak, float* sum, const float* acc, float top, float total, int64_t pad) {
  if (total == 0.0f) return;  // it holds no key that the query sees
  float now = top > *peak ? top : *peak, before = exp1(*peak - now), here = exp1(top - now);
  for (int64_t i = 0; i < pad; i += WIDE)
    storew(whole + i, maddw(loadw(whole + i), splatw(before), loadw(acc + i) * splatw(here)));
  *sum = madd(*sum, before, total * here);
  *peak = now;
}

template <class T> INLINE void finish(T* y, const float* whole, float sum, int64_t d) {
  float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
  int64_t i = 0;
  for (; i + 8 <= d; i += 8) store8(y + i, load8(whole + i) * splat(inverse));
  for (; i < d; i++) store(y + i, whole[i] * inverse);
}

// The keys that some of queries q0 to q1 see, and what each of them does.
struct Span { int64_t low, high; };
template <class T, class C>
INLINE Span span(const slots::Attention<T, C>& g, int64_t q0, int64_t q1, int64_t* firsts, int64_t* lasts) {
  int64_t keys = g.keys, shift = keys - g.queries, window = g.window;
  Span s = {keys, 0};
  for (int64_t i = q0; i < q1; i++) {
    int64_t at = i + shift, first = window >= 0 && at - window > 0 ? at - window : 0;
    int64_t last = g.causal ? at + 1 : window >= 0 ? at + window + 1 : keys;
    firsts[i - q0] = first;
    lasts[i - q0] = last = last < keys ? last : keys;
    s.low = first < s.low ? first : s.low;
    s.high = last > s.high ? last : s.high;
  }
  return s;
}
template <class T, class C> INLINE float* run_at(const slots::Attention<T, C>& g, int64_t runs, int64_t run, int64_t head) {
  return (float*)g.shared + (head * runs + run) * (padded(g.d) + 2);
}

// Where a task's rows are in its scratch.
INLINE Rows rows_at(float* at, int64_t most, int64_t pad, int64_t per) {
  Rows rows;
  rows.q = at;
  rows.acc = rows.q + most * pad;
  rows.whole = rows.acc + most * pad;
  rows.top = rows.whole + most * pad;
  rows.total = rows.top + most;
  rows.peak = rows.total + most;
  rows.sum = rows.peak + most;
  rows.per = per;
  static Stream none[2];
  rows.streams = none;
  return rows;
}

template <class T> INLINE void load_query(const T* x, float* q, int64_t d) {
  int64_t i = 0;
  for (; i + 8 <= d; i += 8) store8(q + i, load8(x + i));
  for (; i < padded(d); i++) q[i] = i < d ? load(x + i) : 0.0f;
}

// One query: a task is a run, whose blocks all heads pass together, so that the cache is read once and in order.
template <class T, class C, int MANY> static void attention_runs(const slots::Attention<T, C>& g, int32_t tid, int32_t nt) {
  int64_t heads = g.heads, kv_heads = g.kv_heads, d = g.d, row = g.kv_row, pad = padded(d), group = heads / kv_heads;
  float *kb = (float*)g.scratch, *vb = kb + KEYS * pad;
  Bend<T> bend = bend_of(g, 0, 0);
  Rows rows = rows_at(vb + KEYS * pad, heads > g.block * group ? heads : g.block * group, pad, heads);
  Span seen = span(g, 0, 1, rows.first, rows.last);
  int64_t first_run = seen.low / RUN, runs = (seen.high + RUN - 1) / RUN - first_run;
  Share s = share(runs, tid, nt);
  if (s.begin == s.end) return;
  for (int64_t h = 0; h < heads; h++) load_query(g.q + h * g.q_head, rows.q + h * pad, d);
  Stream streams[2];
  rows.streams = streams;
  int64_t lines = (KEYS * row * (int64_t)sizeof(C) / 64 + KEYS / 4 * kv_heads - 1) / (KEYS / 4 * kv_heads);
  for (int64_t run = s.begin; run < s.end; run++) {
    int64_t begin = (first_run + run) * RUN, end = begin + RUN < seen.high ? begin + RUN : seen.high;
    rows.count = heads;
    begin_run(rows, pad);
    if (begin < seen.low) begin = seen.low / KEYS * KEYS;
    for (int64_t k0 = begin; k0 < end; k0 += KEYS) {
      int64_t here = end - k0 < KEYS ? end - k0 : KEYS, next = k0 + g.ahead * KEYS;
      int64_t rest = seen.high - next < KEYS ? seen.high - next : KEYS;
      if (!g.ahead || rest < 0) rest = 0;
      const C* read[] = {g.k, g.v};
      for (int i = 0; i < 2; i++) {
        const char* at = (const char*)(read[i] + next * row);
        streams[i] = Stream{at, at + rest * row * (int64_t)sizeof(C), lines};
      }
      for (int64_t kv = 0; kv < kv_heads; kv++) {
        const C *k = g.k + k0 * row + kv * g.kv_head, *v = g.v + k0 * row + kv * g.kv_head;
        rows.count = group;
        if (group <= 4) {
          meet_all<true, MANY>(rows, kv * group, k, v, row, k0, here, d, bend);
        } else {
          widen_keys(k, row, here, d, kb);
          widen_keys(v, row, here, d, vb);
          meet_all<false, MANY>(rows, kv * group, (const float*)kb, (const float*)vb, pad, k0, here, d, bend);
        }
      }
    }
    for (int64_t h = 0; h < heads; h++) {
      float* at = run_at(g, runs, run, h);
      memcpy(at, rows.acc + h * pad, pad * sizeof(float));
      at[pad] = rows.top[h];
      at[pad + 1] = rows.total[h];
    }
  }
}

template <class T, class C, int MANY = TOGETHER> void attention(const slots::Attention<T, C>& g, int32_t tid, int32_t nt) {
  if (g.in_runs) return attention_runs<T, C, MANY>(g, tid, nt);
  int64_t heads = g.heads, kv_heads = g.kv_heads, queries = g.queries, d = g.d, row = g.kv_row, pad = padded(d), group = heads / kv_heads;
  float *kb = (float*)g.scratch, *vb = kb + KEYS * pad;
  int64_t block = g.block, tiles = (queries + block - 1) / block;
  Rows rows = rows_at(vb + KEYS * pad, block * group, pad, group);
  Share s = share(kv_heads * tiles, tid, nt);
  for (int64_t task = s.begin; task < s.end; task++) {
    // The last queries see most keys: they go first.
    int64_t kv = task % kv_heads, h0 = kv * group, q0 = (tiles - 1 - task / kv_heads) * block;
    int64_t q1 = q0 + block < queries ? q0 + block : queries;
    Bend<T> bend = bend_of(g, q0, h0);
    Span seen = span(g, q0, q1, rows.first, rows.last);
    rows.count = (q1 - q0) * group;
    for (int64_t r = 0; r < rows.count; r++) {
      load_query(g.q + (q0 + r / group) * g.q_row + (h0 + r % group) * g.q_head, rows.q + r * pad, d);
      rows.peak[r] = -INFINITY;
      rows.sum[r] = 0.0f;
    }
    memset(rows.whole, 0, rows.count * pad * sizeof(float));
    begin_run(rows, pad);
    for (int64_t k0 = seen.low / KEYS * KEYS; k0 < seen.high; k0 += KEYS) {
      const C *k = g.k + k0 * row + kv * g.kv_head, *v = g.v + k0 * row + kv * g.kv_head;
      int64_t here = seen.high - k0 < KEYS ? seen.high - k0 : KEYS;
      if (rows.count <= 4) {
        meet_all<true, MANY>(rows, 0, k, v, row, k0, here, d, bend);
      } else {
        widen_keys(k, row, here, d, kb);
        widen_keys(v, row, here, d, vb);
        meet_all<false, MANY>(rows, 0, (const float*)kb, (const float*)vb, pad, k0, here, d, bend);
      }
      if (k0 + KEYS < seen.high && (k0 + KEYS) % RUN) continue;
      for (int64_t r = 0; r < rows.count; r++)
        join(rows.whole + r * pad, rows.peak + r, rows.sum + r, rows.acc + r * pad, rows.top[r], rows.total[r], pad);
      begin_run(rows, pad);
    }
    for (int64_t r = 0; r < rows.count; r++)
      finish(g.o + (q0 + r / group) * g.q_row + (h0 + r % group) * g.q_head, rows.whole + r * pad, rows.sum[r], d);
  }
}

template <class T> void attention_join(const slots::Attention<T, T>& g, int32_t tid, int32_t nt) {
  int64_t d = g.d, pad = padded(d), first, last;
  Span all = span(g, 0, 1, &first, &last);
  int64_t runs = (all.high + RUN - 1) / RUN - all.low / RUN;
  float* whole = (float*)g.scratch;
  Share s = share(g.heads, tid, nt);
  for (int64_t h = s.begin; h < s.end; h++) {
    float peak = -INFINITY, sum = 0.0f;
    memset(whole, 0, pad * sizeof(float));
    for (int64_t r = 0; r < runs; r++) {
      const float* run = run_at(g, runs, r, h);
      join(whole, &peak, &sum, run, run[pad], run[pad + 1], pad);
    }
    finish(g.o + h * g.q_head, whole, sum, d);
  }
}

// The twin: one query, all its scores, then the sum.
template <class T, class C> void attention_naive(const slots::Attention<T, C>& g, int32_t tid, int32_t) {
  if (tid) return;
  int64_t group = g.heads / g.kv_heads, d = g.d;
  double cap = g.soft_cap;
  auto score = [cap](double s) { return cap == 0 ? s : cap * tanh(s / cap); };
  auto extra = [&g](int64_t h, int64_t r, int64_t j) { return g.bias ? load(g.bias + h * g.bias_head + r * g.bias_row + j) : 0.0; };
  for (int64_t h = 0; h < g.heads; h++)
    for (int64_t r = 0; r < g.queries; r++) {
      int64_t at = r + g.keys - g.queries;
      const T* x = g.q + r * g.q_row + h * g.q_head;
      T* y = g.o + r * g.q_row + h * g.q_head;
      const C *k = g.k + h / group * g.kv_head, *v = g.v + h / group * g.kv_head;
      double top = -INFINITY, total = 0;
      for (int pass = 0; pass < 2; pass++)
        for (int64_t j = 0; j < g.keys; j++) {
          if ((g.causal && j > at) || (g.window >= 0 && (j > at + g.window || j < at - g.window))) continue;
          double s = 0;
          for (int64_t i = 0; i < d; i++) s += (double)load(x + i) * load(k + j * g.kv_row + i);
          s = score(s * g.scale + extra(h, r, j));
          if (pass == 0) top = s > top ? s : top;
          else total += exp(s - top);
        }
      for (int64_t i = 0; i < d; i++) {
        double sum = 0;
        for (int64_t j = 0; j < g.keys; j++) {
          if ((g.causal && j > at) || (g.window >= 0 && (j > at + g.window || j < at - g.window))) continue;
          double s = 0;
          for (int64_t t = 0; t < d; t++) s += (double)load(x + t) * load(k + j * g.kv_row + t);
          sum += exp(score(s * g.scale + extra(h, r, j)) - top) * load(v + j * g.kv_row + i);
        }
        store(y + i, (float)(total > 0 ? sum / total : 0));
      }
    }
}

}  // namespace iron
