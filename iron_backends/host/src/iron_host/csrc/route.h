// The k largest logits of each of `valid` rows and their shares of a softmax; see iron_ops_aie's Route for the rule.
#pragma once
#include "exp64.h"

namespace iron {

template <class T> void route(const slots::Route<T>& g, int32_t tid, int32_t nt) {
  int64_t n = g.experts, k = g.k;
  Share s = share(g.valid, tid, nt);
  for (int64_t r = s.begin; r < s.end; r++) {
    const T* x = g.logits + r * n;
    int32_t* ids = g.ids + r * k;
    float* kept = g.weights + r * k;  // the logits of those that are kept, until the weights are known
    int64_t held = 0;
    bool lost = false;
    for (int64_t i = 0; i < n; i++) {
      float v = load(x + i);
      lost |= v != v || v == INFINITY;
      if (held == k && !(v > kept[k - 1])) continue;
      int64_t at = held < k ? held++ : k - 1;
      for (; at > 0 && v > kept[at - 1]; at--) kept[at] = kept[at - 1], ids[at] = ids[at - 1];
      kept[at] = v;
      ids[at] = (int32_t)i;
    }
    if (lost || kept[0] == -INFINITY) {
      for (int64_t i = 0; i < k; i++) ids[i] = (int32_t)i, kept[i] = NAN;
      continue;
    }
    double top = kept[0], total = 0;
    if (g.renormalise) for (int64_t i = 0; i < k; i++) total += exp64((double)kept[i] - top);
    else for (int64_t i = 0; i < n; i++) total += exp64((double)load(x + i) - top);
    for (int64_t i = 0; i < k; i++) kept[i] = (float)product(exp64((double)kept[i] - top) / total, (double)(float)g.scale);
  }
}

}  // namespace iron
