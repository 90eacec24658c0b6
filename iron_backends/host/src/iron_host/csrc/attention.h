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
#include "keys.h"

namespace iron {

enum { RUN = 64, TOGETHER = WIDE / 4 };

INLINE void begin_run(const Rows& rows, int64_t pad) {
  memset(rows.acc, 0, rows.count * pad * sizeof(float));
  for (int64_t r = 0; r < rows.count; r++) {
    rows.top[r] = -INFINITY;
    rows.total[r] = 0.0f;
  }
}

// What runs that are over, and the run behind each, weigh in a sum of both: of their maxima, WIDE of either, the exponentials.
INLINE void weigh(float* before, float* here) {
  f32xw a = loadw(before), b = loadw(here), now = a > b ? a : b;
  storew(before, exp_below(a - now));
  storew(here, exp_below(b - now));
}

// The rows' runs join those before them.
INLINE void join(const Rows& rows, int64_t pad) {
  for (int64_t r0 = 0; r0 < rows.count; r0 += WIDE) {
    int64_t end = r0 + WIDE < rows.count ? r0 + WIDE : rows.count;
    float before[WIDE] = {}, here[WIDE] = {};
    for (int64_t r = r0; r < end; r++) {
      before[r - r0] = rows.peak[r];
      here[r - r0] = rows.top[r];
    }
    weigh(before, here);
    for (int64_t r = r0; r < end; r++) {
      if (rows.total[r] == 0.0f) continue;  // it holds no key that the query sees
      const float *acc = rows.acc + r * pad, old = before[r - r0], fresh = here[r - r0];
      float* whole = rows.whole + r * pad;
      for (int64_t i = 0; i < pad; i += WIDE)
        storew(whole + i, maddw(loadw(whole + i), splatw(old), loadw(acc + i) * splatw(fresh)));
      rows.sum[r] = madd(rows.sum[r], old, rows.total[r] * fresh);
      if (rows.top[r] > rows.peak[r]) rows.peak[r] = rows.top[r];
    }
  }
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
  return rows;
}

template <class T> INLINE void load_query(const T* x, float* q, int64_t d) {
  int64_t i = 0;
  for (; i + 8 <= d; i += 8) store8(q + i, load8(x + i));
  for (; i < padded(d); i++) q[i] = i < d ? load(x + i) : 0.0f;
}

// Where key j begins, of keys that lie one behind another.
struct Contiguous {
  int64_t row;
  MEMBER int64_t operator()(int64_t j) const { return j * row; }
};

// All heads of one query, which pass keys together, so that the cache is read once and in order.
template <class T, class C> struct Query {
  const slots::Attention<T, C>& g;
  int64_t pad;
  float *kb, *vb;
  Bend<T> bend;
  Rows rows;
  Span seen;
  Stream streams[2];

  MEMBER Query(const slots::Attention<T, C>& g) : g(g), pad(padded(g.d)), kb((float*)g.scratch), vb(kb + KEYS * pad), bend(bend_of(g, 0, 0)) {
    int64_t heads = g.heads, group = heads / g.kv_heads;
    rows = rows_at(vb + KEYS * pad, heads > g.block * group ? heads : g.block * group, pad, heads);
    rows.streams = streams;
    seen = span(g, 0, 1, rows.first, rows.last);
    for (int64_t h = 0; h < heads; h++) load_query(g.q + h * g.q_head, rows.q + h * pad, g.d);
  }
  MEMBER int64_t first() const { return seen.low / RUN; }
  MEMBER int64_t runs() const { return (seen.high + RUN - 1) / RUN - first(); }

  // The run-th of its runs of keys.
  template <int MANY, class Where> MEMBER void pass(int64_t run, Where where) {
    int64_t heads = g.heads, kv_heads = g.kv_heads, d = g.d, row = g.kv_row, group = heads / kv_heads;
    int64_t steps = KEYS / 4 * kv_heads * ((group + MANY - 1) / MANY), lines = KEYS * row * (int64_t)sizeof(C) / 64;
    // Of keys and of values, lines that are asked for at a step: as many at each.
    int64_t few[] = {(lines + steps - 1) / steps, (lines + steps * columns(d) - 1) / (steps * columns(d))};
    int64_t begin = (first() + run) * RUN, end = begin + RUN < seen.high ? begin + RUN : seen.high;
    rows.count = heads;
    begin_run(rows, pad);
    if (begin < seen.low) begin = seen.low / KEYS * KEYS;
    for (int64_t k0 = begin; k0 < end; k0 += KEYS) {
      int64_t here = end - k0 < KEYS ? end - k0 : KEYS, next = k0 + g.ahead * KEYS, from = where(k0);
      int64_t rest = seen.high - next < KEYS ? seen.high - next : KEYS;
      if (!g.ahead || rest < 0) rest = 0;
      int64_t then = rest ? where(next) : from;
      const C* read[] = {g.k, g.v};
      for (int i = 0; i < 2; i++) {
        const char* at = (const char*)(read[i] + then);
        streams[i] = Stream{at, at + rest * row * (int64_t)sizeof(C), few[i]};
      }
      for (int64_t kv = 0; kv < kv_heads; kv++) {
        const C *k = g.k + from + kv * g.kv_head, *v = g.v + from + kv * g.kv_head;
        rows.count = group;
        if (group <= 2 * MANY) {
          meet_all<MANY>(rows, kv * group, k, v, row, k0, here, d, bend);
        } else {
          widen_keys(k, row, here, d, kb);
          widen_keys(v, row, here, d, vb);
          meet_all<MANY>(rows, kv * group, (const float*)kb, (const float*)vb, pad, k0, here, d, bend);
        }
      }
    }
    rows.count = heads;
  }

  // What of run `run` its join takes.
  MEMBER void keep(int64_t run) const {
    for (int64_t h = 0; h < g.heads; h++) {
      float* at = run_at(g, runs(), run, h);
      memcpy(at, rows.acc + h * pad, pad * sizeof(float));
      at[pad] = rows.top[h];
      at[pad + 1] = rows.total[h];
    }
  }
};

// Queries q0 to q1 and the heads of one KV head: scores of each block of keys for all of them.
template <int MANY, class T, class C, class Where>
INLINE void attend_block(const slots::Attention<T, C>& g, int64_t kv, int64_t q0, int64_t q1, Where where) {
  int64_t d = g.d, row = g.kv_row, pad = padded(d), group = g.heads / g.kv_heads, h0 = kv * group;
  float *kb = (float*)g.scratch, *vb = kb + KEYS * pad;
  Rows rows = rows_at(vb + KEYS * pad, g.block * group, pad, group);
  Stream none[2] = {};
  rows.streams = none;
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
    int64_t from = where(k0) + kv * g.kv_head;
    const C *k = g.k + from, *v = g.v + from;
    int64_t here = seen.high - k0 < KEYS ? seen.high - k0 : KEYS;
    if (rows.count <= 4) {
      meet_all<MANY>(rows, 0, k, v, row, k0, here, d, bend);
    } else {
      widen_keys(k, row, here, d, kb);
      widen_keys(v, row, here, d, vb);
      meet_all<MANY>(rows, 0, (const float*)kb, (const float*)vb, pad, k0, here, d, bend);
    }
    if (k0 + KEYS < seen.high && (k0 + KEYS) % RUN) continue;
    join(rows, pad);
    begin_run(rows, pad);
  }
  for (int64_t r = 0; r < rows.count; r++)
    finish(g.o + (q0 + r / group) * g.q_row + (h0 + r % group) * g.q_head, rows.whole + r * pad, rows.sum[r], d);
}

// One query: a task is a run.
template <class T, class C, int MANY> static void attention_runs(const slots::Attention<T, C>& g, int32_t tid, int32_t nt) {
  int64_t first, last;
  Span seen = span(g, 0, 1, &first, &last);
  Share s = share((seen.high + RUN - 1) / RUN - seen.low / RUN, tid, nt);
  if (s.begin == s.end) return;
  Query<T, C> query(g);
  for (int64_t run = s.begin; run < s.end; run++) {
    query.template pass<MANY>(run, Contiguous{g.kv_row});
    query.keep(run);
  }
}

template <class T, class C, int MANY = TOGETHER> void attention(const slots::Attention<T, C>& g, int32_t tid, int32_t nt) {
  if (g.in_runs) return attention_runs<T, C, MANY>(g, tid, nt);
  int64_t kv_heads = g.kv_heads, queries = g.queries, block = g.block, tiles = (queries + block - 1) / block;
  Share s = share(kv_heads * tiles, tid, nt);
  for (int64_t task = s.begin; task < s.end; task++) {
    // The last queries see most keys: they go first.
    int64_t q0 = (tiles - 1 - task / kv_heads) * block, q1 = q0 + block < queries ? q0 + block : queries;
    attend_block<MANY>(g, task % kv_heads, q0, q1, Contiguous{g.kv_row});
  }
}

// Head h of O of the runs that were kept.
template <class T, class C> INLINE void join_kept(const slots::Attention<T, C>& g, int64_t runs, int64_t h, float* whole) {
  int64_t d = g.d, pad = padded(d);
  float peak = -INFINITY, sum = 0.0f;
  memset(whole, 0, pad * sizeof(float));
  for (int64_t r = 0; r < runs;) {
    const float* held[WIDE];
    float before[WIDE] = {}, here[WIDE] = {};
    int64_t n = 0;
    for (; r < runs && n < WIDE; r++) {
      const float* run = run_at(g, runs, r, h);
      if (run[pad + 1] == 0.0f) continue;  // it holds no key that the query sees
      before[n] = peak;
      here[n] = run[pad];
      peak = here[n] > peak ? here[n] : peak;
      held[n++] = run;
    }
    weigh(before, here);
    for (int64_t i = 0; i < pad; i += WIDE) {
      f32xw all = loadw(whole + i);
      for (int64_t j = 0; j < n; j++) all = maddw(all, splatw(before[j]), loadw(held[j] + i) * splatw(here[j]));
      storew(whole + i, all);
    }
    for (int64_t j = 0; j < n; j++) sum = madd(sum, before[j], held[j][pad + 1] * here[j]);
  }
  finish(g.o + h * g.q_head, whole, sum, d);
}

template <class T> void attention_join(const slots::Attention<T, T>& g, int32_t tid, int32_t nt) {
  int64_t first, last;
  Span all = span(g, 0, 1, &first, &last);
  Share s = share(g.heads, tid, nt);
  for (int64_t h = s.begin; h < s.end; h++) join_kept(g, (all.high + RUN - 1) / RUN - all.low / RUN, h, (float*)g.scratch);
}

// The twin: one query, all its scores, then the sum.
template <class T, class C, class Where> void attend_naive(const slots::Attention<T, C>& g, Where where) {
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
          for (int64_t i = 0; i < d; i++) s += (double)load(x + i) * load(k + where(j) + i);
          s = score(s * g.scale + extra(h, r, j));
          if (pass == 0) top = s > top ? s : top;
          else total += exp(s - top);
        }
      for (int64_t i = 0; i < d; i++) {
        double sum = 0;
        for (int64_t j = 0; j < g.keys; j++) {
          if ((g.causal && j > at) || (g.window >= 0 && (j > at + g.window || j < at - g.window))) continue;
          double s = 0;
          for (int64_t t = 0; t < d; t++) s += (double)load(x + t) * load(k + where(j) + t);
          sum += exp(score(s * g.scale + extra(h, r, j)) - top) * load(v + where(j) + i);
        }
        store(y + i, (float)(total > 0 ? sum / total : 0));
      }
    }
}

template <class T, class C> void attention_naive(const slots::Attention<T, C>& g, int32_t tid, int32_t) {
  if (!tid) attend_naive(g, Contiguous{g.kv_row});
}

}  // namespace iron
