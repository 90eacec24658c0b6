// The next token from logits, -1 where one of them is not finite; see iron_ops_aie's Sample for the rule.
// `draws` is at the step's row, `tokens` at the place of its token.
#pragma once
#include "exp64.h"

namespace iron {

template <class T> INLINE int64_t greedy(const T* x, int64_t n) {
  f32x8 best = splat(-INFINITY), wrong = splat(0);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    f32x8 v = load8(x + i);
    i32x8 up = v > best;
    best = (f32x8)(((i32x8)v & up) | ((i32x8)best & ~up));
    wrong += v - v;  // 0, or NaN where v is not finite
  }
  float top = max8(best), rest = 0;
  for (; i < n; i++) { float v = load(x + i); top = v > top ? v : top; rest += v - v; }
  for (int64_t l = 0; l < 8; l++) rest += wrong[l];
  if (rest != 0) return -1;
  for (i = 0; i < n; i++)
    if (load(x + i) == top) return i;
  return -1;
}

template <class T> INLINE int64_t drawn(const T* x, int64_t n, const int32_t* words, int64_t k_max, double* top, int32_t* ids) {
  float t;
  memcpy(&t, words, 4);
  int64_t k = words[1] < 1 ? 1 : words[1] > k_max ? k_max : words[1], held = 0;
  if (k > n) k = n;
  for (int64_t i = 0; i < n; i++) {  // the k largest, largest first, the lowest id first among equals
    double v = load(x + i);
    if (v - v != 0) return -1;  // not finite
    if (held == k && !(v > top[k - 1])) continue;
    int64_t at = held < k ? held++ : k - 1;
    while (at > 0 && v > top[at - 1]) { top[at] = top[at - 1]; ids[at] = ids[at - 1]; at--; }
    top[at] = v;
    ids[at] = (int32_t)i;
  }
  double first = top[0], total = 0, running = 0;
  for (int64_t i = 0; i < held; i++) total += top[i] = exp64((top[i] - first) / (double)t);
  uint64_t bits = (uint64_t)(uint32_t)words[3] << 32 | (uint32_t)words[2];
  double target = (double)bits * 0x1p-53 * total;
  for (int64_t i = 0; i < held; i++) {
    running += top[i];
    if (running > target) return ids[i];
  }
  return ids[held - 1];
}

template <class T> void sample(const slots::Sample<T>& g, int32_t tid, int32_t nt) {
  if (tid) return;
  float t;
  memcpy(&t, g.draws, 4);
  int64_t n = g.vocab, k = g.k_max < n ? g.k_max : n;
  // scratch: k_max doubles, then k_max ids
  double* top = (double*)g.scratch;
  int64_t token = t > 0 ? drawn(g.logits, n, g.draws, k, top, (int32_t*)(top + k)) : greedy(g.logits, n);
  *g.tokens = (int32_t)token;
  *g.token = (int32_t)token;
}

}  // namespace iron
