// Channels convolved over time, each by its own `taps` weights: y[t] = w[0] x[t - taps + 1] + ... + w[taps - 1] x[t] of `valid`
// rows of `channels` numbers. Sums are float32, the oldest row first; a row before the first adds nothing.
#pragma once
#include "common.h"

namespace iron {

template <class T, class W> void depthwise_conv1d(const slots::DepthwiseConv1d<T, W>& g, int32_t tid, int32_t nt) {
  int64_t channels = g.channels, taps = g.taps;
  Share s = share(g.valid, tid, nt);
  for (int64_t r = s.begin; r < s.end; r++) {
    int64_t first = r + 1 < taps ? taps - 1 - r : 0;  // of the taps, that meets a row
    const W* w = g.weight + first * channels;
    const T* x = g.x + (r - taps + 1 + first) * channels;
    int64_t met = taps - first;
    T* y = g.y + r * channels;
    int64_t i = 0;
    for (; i + 8 <= channels; i += 8) {
      f32x8 sum = splat(0.0f);
      for (int64_t j = 0; j < met; j++) sum += load8(w + j * channels + i) * load8(x + j * channels + i);
      store8(y + i, sum);
    }
    int64_t n = channels - i;
    if (n) {
      f32x8 sum = splat(0.0f);
      for (int64_t j = 0; j < met; j++) sum += load_part(w + j * channels + i, n) * load_part(x + j * channels + i, n);
      store_part(y + i, sum, n);
    }
  }
}

// The same, where `state` holds the taps - 1 rows before the first, the oldest first, zeros if nothing is `past`; then it is left
// the last rows there are. Channels are shared, for every row of a channel needs what another would write.
template <class T, class W> void causal_conv1d(const slots::CausalConv1d<T, W>& g, int32_t tid, int32_t nt) {
  int64_t channels = g.channels, taps = g.taps, before = taps - 1, rows = g.valid;
  Share s = share(channels, tid, nt, 32);
  for (int64_t i = s.begin; i < s.end; i += 8) {
    int64_t n = s.end - i < 8 ? s.end - i : 8;
    if (!g.past && rows > 0)
      for (int64_t r = 0; r < before; r++) store_part(g.state + r * channels + i, splat(0.0f), n);
    for (int64_t t = 0; t < rows; t++) {
      f32x8 sum = splat(0.0f);
      for (int64_t j = 0; j < taps; j++) {
        int64_t r = t + j - before;
        const T* x = (r < 0 ? g.state + (r + before) * channels : g.x + r * channels) + i;
        const W* w = g.weight + j * channels + i;
        sum += n == 8 ? load8(w) * load8(x) : load_part(w, n) * load_part(x, n);
      }
      if (n == 8) store8(g.y + t * channels + i, sum);
      else store_part(g.y + t * channels + i, sum, n);
    }
    for (int64_t r = 0; r < before; r++) {
      int64_t from = r + rows;  // of the rows before and the call's, in one
      const T* x = (from < before ? g.state + from * channels : g.x + (from - before) * channels) + i;
      memmove(g.state + r * channels + i, x, (size_t)n * sizeof(T));
    }
  }
}

}  // namespace iron
