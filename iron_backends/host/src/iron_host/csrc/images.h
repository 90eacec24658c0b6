// Pictures: antialiased bicubic resizes, patches and their order; see iron_ops_aie's ResampleTaps, Resample and PatchPositions for the
// rules, and its table.py for the table's layout.
#pragma once
#include "common.h"

namespace iron {

namespace image {

enum { HEADER = 4, SLOT = 2, BITS = 22, LIMIT = 1 << 15, SIDE = 16, CHANNELS = 3, LINE = SIDE * CHANNELS };

// Each operation of a weight rounds, as in numpy and torch.
INLINE double bicubic(double x) {
  if (x < 0) x = -x;
  if (x < 1) return product(product(product(1.5, x) - 2.5, x), x) + 1;
  if (x < 2) return (product(product(x - 5, x) + 8, x) - 4) * -0.5;
  return 0;
}

struct Filter {
  double scale, support, inverse;
  int64_t inputs, taps, size;
  Filter(int64_t inputs, int64_t outputs) : inputs(inputs) {
    scale = (double)inputs / (double)outputs;
    support = scale >= 1 ? 2 * scale : 2;
    inverse = scale >= 1 ? 1 / scale : 1;
    taps = 2 * (int64_t)ceil(support) + 1;
    size = SLOT + (taps + 1) / 2;
  }
  // The bounds of an output, its weights, in float64; returns the largest of them, at least 0.
  double weights(int64_t at, int32_t* bounds, double* to) const {
    double middle = product(scale, (double)at + 0.5), total = 0, most = 0;
    int64_t start = (int64_t)(middle - support + 0.5), end = (int64_t)(middle + support + 0.5);
    if (start < 0) start = 0;
    if (end > inputs) end = inputs;
    int64_t count = end < start ? 0 : end - start > taps ? taps : end - start;
    for (int64_t i = 0; i < count; i++) total += to[i] = bicubic(((double)(i + start) - middle + 0.5) * inverse);
    if (total == 0) total = 1;
    for (int64_t i = 0; i < count; i++) {
      to[i] /= total;
      if (to[i] > most) most = to[i];
    }
    bounds[0] = (int32_t)start;
    bounds[1] = (int32_t)count;
    return most;
  }
};

// The inputs of an output, of those that there are, and its weights. `reach`: weights that a slot may have.
struct Slot {
  const int32_t* words;
  int64_t start, end;
  Slot(const int32_t* chunk, int64_t i, int64_t inputs, int64_t reach) {
    int64_t taps = chunk[1] < 0 ? 0 : chunk[1] > reach ? reach : chunk[1];
    words = chunk + HEADER + i * (SLOT + (taps + 1) / 2);
    start = words[0] < 0 ? 0 : words[0];
    end = start + (words[1] < taps ? words[1] : taps);
    if (end > inputs) end = inputs;
  }
  int32_t weight(int64_t input) const {
    int64_t tap = input - start;
    return (int16_t)((uint32_t)words[SLOT + tap / 2] >> 16 * (tap % 2));
  }
};
// Is a chunk that of a table?
INLINE bool whole(const int32_t* chunk) { return chunk[0] >= 1 && chunk[0] <= BITS; }
INLINE uint8_t rounded(int32_t sum, int32_t precision) {
  int32_t whole = (sum + (1 << (precision - 1))) >> precision;
  return (uint8_t)(whole < 0 ? 0 : whole > 255 ? 255 : whole);
}

// One row of the picture, resized by the chunks of a table.
template <class T> INLINE void across(const slots::Resample<T>& g, const uint8_t* row, int64_t chunks, uint8_t* line) {
  for (int64_t c = 0; c < chunks; c++) {
    const int32_t* chunk = g.taps_w + c * g.words;
    for (int64_t x = 0; x < SIDE; x++, line += CHANNELS) {
      Slot slot(chunk, x, g.row_bytes / CHANNELS, g.reach);
      int32_t sums[CHANNELS] = {0, 0, 0};
      for (int64_t n = slot.start; n < slot.end; n++)
        for (int64_t k = 0; k < CHANNELS; k++) sums[k] += row[n * CHANNELS + k] * slot.weight(n);
      for (int64_t k = 0; k < CHANNELS; k++) line[k] = rounded(sums[k], chunk[0]);
    }
  }
}

}  // namespace image

// scratch: a window of weights
inline void resample_taps(const slots::ResampleTaps& g, int32_t tid, int32_t nt) {
  using namespace image;
  if (tid) return;
  memset(g.taps, 0, g.chunks * g.words * 4);
  bool some = g.in_length > 0 && g.out_length > 0;
  Filter filter(some ? g.in_length : 1, some ? g.out_length : 1);
  int64_t fit = (g.words - HEADER) / filter.size, held = g.slots == 0 ? fit : g.slots <= fit ? g.slots : 0;
  bool none = !some || held == 0 || held * g.chunks < g.out_length;
  int32_t bounds[2], bits = none ? -1 : 0;
  double* weights = (double*)g.scratch;
  double most = 0;
  for (int64_t at = 0; !none && at < g.out_length; at++) most = fmax(most, filter.weights(at, bounds, weights));
  while (!none && bits < BITS && (int32_t)(0.5 + most * (double)(1 << (bits + 1))) < LIMIT) bits++;
  for (int64_t c = 0; c < g.chunks; c++) {
    int32_t* chunk = g.taps + c * g.words;
    chunk[0] = bits;
    chunk[1] = some ? (int32_t)filter.taps : 0;
    if (none) continue;
    int64_t first = c * held, left = g.out_length - first, made = left < 0 ? 0 : left < held ? left : held;
    chunk[2] = (int32_t)first;
    chunk[3] = (int32_t)made;
    for (int64_t i = 0; i < made; i++) {
      int32_t* slot = chunk + HEADER + i * filter.size;
      filter.weights(first + i, slot, weights);
      for (int64_t tap = 0; tap < slot[1]; tap++) {
        double scaled = weights[tap] * (double)(1 << bits);
        uint32_t half = (uint16_t)(int32_t)(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
        slot[SLOT + tap / 2] |= (int32_t)(half << 16 * (tap % 2));
      }
    }
  }
}

// Each part makes rows of patches. scratch: `reach` lines of the output's `width` numbers, and sums of one.
template <class T> void resample(const slots::Resample<T>& g, int32_t tid, int32_t nt) {
  using namespace image;
  const int64_t patch = SIDE * LINE;
  int64_t columns = g.out_columns / SIDE, rows = g.out_rows / SIDE, pad = (columns / g.cores + 1) * g.cores, wide = columns * LINE;
  for (int64_t c = 0; c < columns; c++)
    if (!whole(g.taps_w + c * g.words)) rows = 0;
  for (int64_t c = 0; c < rows; c++)
    if (!whole(g.taps_h + c * g.words)) rows = 0;
  uint8_t* lines = (uint8_t*)g.scratch;
  int32_t* sums = (int32_t*)(lines + g.reach * g.width);
  T zero;
  store(&zero, 0.0f);
  Share behind = share(g.patches_out - rows * pad, tid, nt), own = share(rows, tid, nt);
  for (int64_t i = behind.begin * patch; i < behind.end * patch; i++) g.patches[rows * pad * patch + i] = zero;
  int64_t made = 0;  // lines before this one are, those that a filter still reaches
  for (int64_t py = own.begin; py < own.end; py++) {
    T* to = g.patches + py * pad * patch;
    for (int64_t i = columns * patch; i < pad * patch; i++) to[i] = zero;
    const int32_t* chunk = g.taps_h + py * g.words;
    for (int64_t y = 0; y < SIDE; y++) {
      Slot slot(chunk, y, g.rows, g.reach);
      for (made = made < slot.start ? slot.start : made; made < slot.end; made++)
        across(g, g.image + made * g.row_bytes, columns, lines + made % g.reach * wide);
      memset(sums, 0, wide * sizeof(int32_t));
      for (int64_t n = slot.start; n < slot.end; n++) {
        const uint8_t* line = lines + n % g.reach * wide;
        int32_t w = slot.weight(n);
        for (int64_t i = 0; i < wide; i++) sums[i] += line[i] * w;
      }
      for (int64_t px = 0; px < columns; px++)
        for (int64_t x = 0; x < LINE; x++) store(to + (px * SIDE + y) * LINE + x, (float)rounded(sums[px * LINE + x], chunk[0]) / 255.0f);
    }
  }
}

inline void patch_positions(const slots::PatchPositions& g, int32_t tid, int32_t nt) {
  int64_t down = g.valid_rows / g.pool, across = g.valid_columns / g.pool, window = g.pool * g.pool;
  int64_t pad = (g.valid_columns / g.cores + 1) * g.cores, real = down * across * window;
  Share own = share(g.places, tid, nt);
  for (int64_t i = own.begin; i < own.end; i++) {
    int32_t *x = g.positions + i, *y = x + g.places;
    if (i >= real) {
      g.sources[i] = (int32_t)(g.source_rows - 1);
      *x = *y = (int32_t)(g.position_rows - 1);
      continue;
    }
    int64_t at = i / window, patch = i % window;
    *x = (int32_t)(at % across * g.pool + patch % g.pool);
    *y = (int32_t)(at / across * g.pool + patch / g.pool);
    g.sources[i] = (int32_t)(*y * pad + *x);
  }
}

}  // namespace iron
