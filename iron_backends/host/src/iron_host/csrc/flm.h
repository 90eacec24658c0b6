// flm.GEMM: C[m][n] = clamp(act(sum over k of X[m][k] * B[k][n])), in bfloat16, with what is made of a sum in the same kernel.
//
// B as stored is rows of K, added up as matmul.h adds rows of K. A packed B is walked tile by tile: (column of tiles, tile of K,
// share of a core, eights of n, eights of k, and in the eight by eight k then n, or n then k where blocks of bfp16 are along k);
// k in order for each output. mode: the activation; steps: a GELU that rounds as it goes; down: rounds down, else to even.
// Scratch: 4 * M floats with B as stored.
#pragma once
#include "elementwise.h"
#include "matmul.h"

namespace iron {

namespace flm {

enum { NONE, GELU, SILU, SIGMOID };
typedef slots::FlmGemm<bf16> Slots;

// Rounded to bfloat16, and widened again.
INLINE f32x8 narrowed(f32x8 v, bool down) {
  if (!down) {
    bf16 t[8];
    store8(t, v);
    return load8(t);
  }
  u32x8 u = (u32x8)v, nan = (u32x8)(v != v), below = (u32x8)((i32x8)u < 0);
  u = ((u + (below & 0xffff)) & 0xffff0000) & ~nan;
  return (f32x8)(u | (((u32x8)v | 0x400000) & 0xffff0000 & nan));
}

INLINE f32x8 finished(f32x8 x, const Slots& g) {
  const f32x8 one = splat(1.0f), low = splat((float)g.low), high = splat((float)g.high), factor = splat(1.702f);
  bool down = g.down;
  if (g.mode == GELU && !g.steps) {
    x = x / (one + exp8(-(factor * x)));
  } else {
    x = narrowed(x, down);
    if (g.mode == SILU) x = op::SiLU::of(x);
    if (g.mode == SIGMOID) x = op::Sigmoid::of(x);
    if (g.mode == GELU) x = x * narrowed(op::Sigmoid::of(narrowed(factor * x, down)), down);
  }
  x = narrowed(x, down);
  x = x < low ? low : x;  // a NaN stays one
  return x > high ? high : x;
}

// Of a packed B, rows k0 to k0 + depth of the PANEL columns from n0 on (fewer at the end), as floats.
struct Dense {
  INLINE void widen(const Slots& g, int64_t k0, int64_t depth, int64_t n0, int64_t cols, float (*y)[PANEL]) {
    const bf16* w = (const bf16*)g.w;
    for (int64_t k = 0; k < depth; k++)
      for (int64_t j = 0; j < cols; j += 8) store8(y[k] + j, load8(w + place(g, k0 + k, n0 + j)));
  }
  // The first of eight numbers that lie together, along n: element number.
  INLINE int64_t place(const Slots& g, int64_t k, int64_t n) {
    int64_t slice = g.ct_k * g.tile_n;
    return n / g.tile_n * g.K * g.tile_n + k / g.ct_k * slice + n % g.tile_n / 8 * g.ct_k * 8 + k % g.ct_k / 8 * 64 + k % 8 * 8;
  }
};

struct Blocks {
  INLINE void widen(const Slots& g, int64_t k0, int64_t depth, int64_t n0, int64_t cols, float (*y)[PANEL]) {
    for (int64_t k = 0; k < depth; k += 8)
      for (int64_t j = 0; j < cols; j++) {
        const uint8_t* p = g.w + Dense::place(g, k0 + k, n0 + j / 8 * 8) / 8 * 9 + j % 8 * 9;
        int32_t e = (int32_t)*p - 133;  // of a byte's lowest bit
        float high = power(e / 2), low = power(e - e / 2);
        for (int i = 0; i < 8; i++) y[k + i][j] = (float)(int8_t)p[1 + i] * high * low;
      }
  }
  INLINE float power(int32_t n) { return as_float((uint32_t)(n + 127) << 23); }
};

}  // namespace flm

// Sums as in matmul.h's panels. `Right`: flm::Dense or flm::Blocks.
template <class Right> void flm_gemm_packed(const flm::Slots& g, int32_t tid, int32_t nt) {
  Share s = share(g.N, tid, nt, 16);
  for (int64_t n = s.begin; n < s.end; n += PANEL) {
    int64_t cols = s.end - n < PANEL ? s.end - n : PANEL;
    auto fill = [&](int64_t k, int64_t depth, float (*y)[PANEL]) { Right::widen(g, k, depth, n, cols, y); };
    auto finish = [&](int64_t m, int64_t rows, float (*sums)[PANEL]) {
      for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j += 8) store8(g.c + (m + i) * g.N + n + j, flm::finished(load8(sums[i] + j), g));
    };
    panel(g.x, g.K, g.M, g.K, fill, finish);
  }
}

// B as stored: four columns of every row at a time.
static inline void flm_gemm(const flm::Slots& g, int32_t tid, int32_t nt) {
  const bf16* w = (const bf16*)g.w;
  float* sums = (float*)g.scratch;
  Share s = share(g.N, tid, nt, 4);
  for (int64_t n = s.begin; n < s.end;) {
    int64_t cols = s.end - n < 4 ? 1 : 4;
    if (cols == 4) dot_rows<4>(g.x, g.K, w + n * g.K, g.K, g.K, sums, 1, g.M, g.M);
    else dot_rows<1>(g.x, g.K, w + n * g.K, g.K, g.K, sums, 1, g.M, g.M);
    for (int64_t j = 0; j < cols; j++)
      for (int64_t m = 0; m < g.M; m += 8) {
        int64_t rows = g.M - m < 8 ? g.M - m : 8;
        bf16 made[8];
        store8(made, flm::finished(load_part(sums + j * g.M + m, rows), g));
        for (int64_t i = 0; i < rows; i++) g.c[(m + i) * g.N + n + j] = made[i];
      }
    n += cols;
  }
}

// The twins: one number at a time, by the formulas.
namespace flm {

INLINE double narrowed(double v, bool down) {
  bf16 t;
  store(&t, (float)v);
  double near = load(&t);
  if (down && near > v) {
    t.bits = t.bits & 0x8000 ? t.bits + 1 : t.bits - 1;
    near = load(&t);
  }
  return near;
}

INLINE double finished(double x, const Slots& g) {
  bool down = g.down;
  if (g.mode == GELU && !g.steps) {
    x = x / (1 + exp(-1.702 * x));
  } else {
    x = narrowed(x, down);
    if (g.mode == SILU) x = x / (1 + exp(-x));
    if (g.mode == SIGMOID) x = 1 / (1 + exp(-x));
    if (g.mode == GELU) x = x * narrowed(1 / (1 + exp(-narrowed(1.702 * x, down))), down);
  }
  x = narrowed(x, down);
  return x < g.low ? g.low : x > g.high ? g.high : x;
}

// B as stored, and the packings: number (k, n).
struct Stored {
  INLINE float at(const Slots& g, int64_t k, int64_t n) { return load((const bf16*)g.w + n * g.K + k); }
};
struct DenseAt {
  INLINE float at(const Slots& g, int64_t k, int64_t n) { return load((const bf16*)g.w + Dense::place(g, k, n) + n % 8); }
};
struct BlocksAt {
  INLINE float at(const Slots& g, int64_t k, int64_t n) {
    const uint8_t* p = g.w + (Dense::place(g, k / 8 * 8, n) / 8 + n % 8) * 9;
    return (float)ldexp((double)(int8_t)p[1 + k % 8], (int)p[0] - 133);
  }
};

}  // namespace flm

template <class Right> void flm_gemm_naive(const flm::Slots& g, int32_t tid, int32_t) {
  if (tid) return;
  for (int64_t m = 0; m < g.M; m++)
    for (int64_t n = 0; n < g.N; n++) {
      double sum = 0;
      for (int64_t k = 0; k < g.K; k++) sum += (double)load(g.x + m * g.K + k) * Right::at(g, k, n);
      store(g.c + m * g.N + n, (float)flm::finished((double)(float)sum, g));
    }
}

}  // namespace iron
