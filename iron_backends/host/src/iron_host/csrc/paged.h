// Attention of rows of many sequences, whose keys and values lie in pages.
//
// paged_attention: `rows` rows of q and o, (heads, d) each. Row r is of sequence owner[r] at position at[r]: it sees keys 0 to at[r], of
// `window` those before it, of which i * page to (i + 1) * page lie in page tables[owner][i] of k and v, (pages, page, kv_heads, d). An
// index counts from the end when negative and is clipped. page: whole runs. block, ahead, scale, soft_cap: as in attention.h.
//
// Consecutive rows of one sequence at consecutive positions are a company, `block` at most, and meet each block of keys together. Work is
// counted in rows times runs of keys. A row without company that is an eighth of it all or more is shared out run by run: its runs are
// kept in `shared`, which has room for SPLIT such rows, and paged_join makes its row of o. All is done in attention.h's order.
#pragma once
#include "attention.h"

namespace iron {

enum { SPLIT = 8 };

// Where key j of a sequence begins.
struct InPages {
  const int32_t* table;
  int64_t pages, page, row;
  MEMBER int64_t operator()(int64_t j) const { return (clipped(table[j / page], pages) * page + j % page) * row; }
};

struct Company {
  int64_t row, many, owner, at;
  int64_t runs;   // of keys that one of them sees
  int64_t begun;  // rows times runs of those before
  int64_t kept;   // which of the rows that are shared out run by run, or -1
};

template <class T, class C> INLINE Company company(const slots::Paged<T, C>& g, int64_t row) {
  int64_t most = g.most * g.page;
  Company c = {row, 1, clipped(g.owner[row], g.sequences), clipped(g.at[row], most), 0, 0, -1};
  for (int64_t r = row + 1; r < g.rows && c.many < g.block; r++, c.many++)
    if (clipped(g.owner[r], g.sequences) != c.owner || clipped(g.at[r], most) != c.at + c.many) break;
  int64_t first = g.window >= 0 && c.at > g.window ? c.at - g.window : 0;
  c.runs = (c.at + c.many + RUN - 1) / RUN - first / RUN;
  return c;
}

// Rows times runs of all companies.
template <class T, class C> INLINE int64_t all_of(const slots::Paged<T, C>& g) {
  int64_t sum = 0;
  for (int64_t r = 0; r < g.rows;) {
    Company c = company(g, r);
    sum += c.many * c.runs;
    r += c.many;
  }
  return sum;
}

template <class T, class C, class Visit> INLINE void each_company(const slots::Paged<T, C>& g, int64_t all, Visit visit) {
  int64_t begun = 0, kept = 0;
  for (int64_t r = 0; r < g.rows;) {
    Company c = company(g, r);
    c.begun = begun;
    if (c.many == 1 && c.runs > 1 && c.runs * SPLIT >= all) c.kept = kept++;
    visit(c);
    begun += c.many * c.runs;
    r += c.many;
  }
}

// A company as queries over keys of their own.
template <class T, class C> INLINE slots::Attention<T, C> queries_of(const slots::Paged<T, C>& g, const Company& c) {
  iron_args none = {};
  slots::Attention<T, C> a(&none);
  int64_t row = g.heads * g.d, runs = g.most * g.page / RUN;
  a.q = g.q + c.row * row;
  a.k = g.k;
  a.v = g.v;
  a.o = g.o + c.row * row;
  a.heads = g.heads;
  a.kv_heads = g.kv_heads;
  a.queries = c.many;
  a.keys = c.at + c.many;
  a.d = g.d;
  a.q_row = row;
  a.q_head = g.d;
  a.kv_row = g.kv_heads * g.d;
  a.kv_head = g.d;
  a.causal = 1;
  a.window = g.window;
  a.block = g.block;
  a.ahead = g.ahead;
  a.scale = g.scale;
  a.soft_cap = g.soft_cap;
  a.scratch = g.scratch;
  if (c.kept >= 0) a.shared = (float*)g.shared + c.kept * runs * g.heads * (padded(g.d) + 2);
  return a;
}

template <class T, class C> INLINE InPages pages_of(const slots::Paged<T, C>& g, const Company& c) {
  return {g.tables + c.owner * g.most, g.pages, g.page, g.kv_heads * g.d};
}

template <class T, class C, int MANY = TOGETHER> void paged_attention(const slots::Paged<T, C>& g, int32_t tid, int32_t nt) {
  int64_t all = all_of(g), kv_heads = g.kv_heads, pad = padded(g.d);
  // What begins in this share is this part's: the block of a KV head, a run, or a row.
  Share s = share(all * kv_heads, tid, nt);
  each_company(g, all, [&](const Company& c) {
    int64_t each = c.many * c.runs, begin = c.begun * kv_heads;
    if (begin >= s.end || begin + each * kv_heads <= s.begin) return;
    slots::Attention<T, C> a = queries_of(g, c);
    InPages where = pages_of(g, c);
    if (c.many > 1) {
      for (int64_t kv = 0; kv < kv_heads; kv++)
        if (begin + kv * each >= s.begin && begin + kv * each < s.end) attend_block<MANY>(a, kv, 0, c.many, where);
      return;
    }
    if (c.kept < 0 && begin < s.begin) return;
    Query<T, C> query(a);
    Rows& rows = query.rows;
    if (c.kept >= 0) {
      for (int64_t run = 0; run < c.runs; run++) {
        if (begin + run * kv_heads < s.begin || begin + run * kv_heads >= s.end) continue;
        query.template pass<MANY>(run, where);
        query.keep(run);
      }
      return;
    }
    memset(rows.whole, 0, g.heads * pad * sizeof(float));
    for (int64_t h = 0; h < g.heads; h++) {
      rows.peak[h] = -INFINITY;
      rows.sum[h] = 0.0f;
    }
    for (int64_t run = 0; run < c.runs; run++) {
      query.template pass<MANY>(run, where);
      join(rows, pad);
    }
    for (int64_t h = 0; h < g.heads; h++) finish(a.o + h * g.d, rows.whole + h * pad, rows.sum[h], g.d);
  });
}

template <class T> void paged_join(const slots::Paged<T, T>& g, int32_t tid, int32_t nt) {
  int64_t all = all_of(g), heads = g.heads, kept = 0;
  each_company(g, all, [&](const Company& c) { kept += c.kept >= 0; });
  Share s = share(kept * heads, tid, nt);
  each_company(g, all, [&](const Company& c) {
    if (c.kept < 0) return;
    slots::Attention<T, T> a = queries_of(g, c);
    for (int64_t h = 0; h < heads; h++)
      if (c.kept * heads + h >= s.begin && c.kept * heads + h < s.end) join_kept(a, c.runs, h, (float*)g.scratch);
  });
}

// The twin: row by row.
template <class T, class C> void paged_attention_naive(const slots::Paged<T, C>& g, int32_t tid, int32_t) {
  if (tid) return;
  for (int64_t r = 0; r < g.rows; r++) {
    Company c = {r, 1, clipped(g.owner[r], g.sequences), clipped(g.at[r], g.most * g.page), 0, 0, -1};
    attend_naive(queries_of(g, c), pages_of(g, c));
  }
}

}  // namespace iron
