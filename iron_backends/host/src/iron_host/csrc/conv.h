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

}  // namespace iron
