// Products of many rows with dense weights as rows of K: C[m][n] = sum over k of X[m][k] * W[n][k].
//
// Weights lie in panels of COLUMNS of their rows, k outermost, zeros for rows that W has not: panel[k][n]; those of bfloat16
// panel[k / 2][n][k % 2]. in_tiles: W is panels already (1), as pack_panels makes them of a graph's weights, or rows (0), of which each
// panel is made when it is its turn. x_row, c_row: numbers between rows. Scratch: a panel, then TASK rows of K floats.
//
// A sum adds its k in order, whatever M, N and the threads: an order that is not GEMV's. Of bfloat16 by bfloat16 it adds two at a
// time where the processor has an instruction for that.
#pragma once
#include "matmul.h"

namespace iron {
namespace panels {

// TALL rows of X meet 2 * WIDE columns at once; a task is at most TASK rows and a panel.
#if defined(IRON_AVX512)
enum { TALL = 12, MIDDLE = 8 };
#elif defined(__AVX2__) || defined(__aarch64__)
enum { TALL = 6, MIDDLE = 4 };
#else
enum { TALL = 2, MIDDLE = 2 };
#endif
enum { COLUMNS = 32, TASK = 96, LOW = MIDDLE / 2 };

// How a panel of W is read: STEP numbers of each column at once, as floats.
template <class W> struct Columns {
  enum { STEP = 1 };
  INLINE int64_t at(int64_t n, int64_t k) { return k * COLUMNS + n; }
  INLINE void read(const W* w, f32xw (*b)[2]) {
    b[0][0] = loadw(w);
    b[0][1] = loadw(w + WIDE);
  }
};
template <> struct Columns<bf16> {
  enum { STEP = 2 };
  INLINE int64_t at(int64_t n, int64_t k) { return (k / 2 * COLUMNS + n) * 2 + k % 2; }
  INLINE void read(const bf16* w, f32xw (*b)[2]) {
    for (int v = 0; v < 2; v++) {
      i32xw pairs = *(const i32xw_at*)(w + 2 * WIDE * v);
      b[0][v] = (f32xw)(pairs << 16);
      b[1][v] = (f32xw)(pairs & (int32_t)0xffff0000);
    }
  }
};
template <class W> INLINE int64_t depth(int64_t K) { return (K + Columns<W>::STEP - 1) / Columns<W>::STEP * Columns<W>::STEP; }

template <class W> INLINE void pack(const W* w, int64_t K, int64_t rows, W* y) {
  if (rows < COLUMNS || depth<W>(K) > K) memset(y, 0, COLUMNS * depth<W>(K) * sizeof(W));
  for (int64_t n = 0; n < rows; n++)
    for (int64_t k = 0; k < K; k++) y[Columns<W>::at(n, k)] = w[n * K + k];
}

// What is asked for from memory meanwhile: of the next panel, some bytes for each k; 0 for nothing.
struct Ahead {
  const char* at;
  int64_t each;
  __attribute__((always_inline)) void fetch(int64_t k) const { if (each) __builtin_prefetch(at + k * each, 0, 2); }
};

// MT rows meet 2 * WIDE columns; `rows` of them are there, and the last of these stands for the others. Sums go to
// memory, so that what is done with them leaves the loop its registers.
template <int MT, class W> INLINE void meet(const float* x, int64_t ldx, int64_t rows, const W* w, int64_t K, Ahead ahead, float* y, int64_t ldy) {
  enum { STEP = Columns<W>::STEP };
  f32xw sum[MT][2];
  int64_t at[MT];
  for (int i = 0; i < MT; i++) at[i] = (i < rows ? i : rows - 1) * ldx;
  for (int i = 0; i < MT; i++) sum[i][0] = sum[i][1] = splatw(0.0f);
  int64_t k = 0;
  for (; k + STEP <= K; k += STEP) {
    f32xw b[STEP][2];
    ahead.fetch(k);
    Columns<W>::read(w + k * COLUMNS, b);
    for (int s = 0; s < STEP; s++)
      for (int i = 0; i < MT; i++) {
        f32xw a = splatw(x[at[i] + k + s]);
        for (int v = 0; v < 2; v++) sum[i][v] = maddw(a, b[s][v], sum[i][v]);
      }
  }
  if (k < K) {
    f32xw b[STEP][2];
    Columns<W>::read(w + k * COLUMNS, b);
    for (int i = 0; i < MT; i++)
      for (int v = 0; v < 2; v++) sum[i][v] = maddw(splatw(x[at[i] + k]), b[0][v], sum[i][v]);
  }
  for (int i = 0; i < MT; i++)
    for (int v = 0; v < 2; v++) storew(y + i * ldy + v * WIDE, sum[i][v]);
}

#if defined(IRON_BF16)
// The same of bfloat16, two k at a time.
INLINE void add_pair(f32xw* sum, int32_t pair, const i32xw* b) {
  for (int v = 0; v < 2; v++) sum[v] = x86::add_dots(sum[v], i32xw{} + pair, b[v]);
}
template <int MT> INLINE void meet(const bf16* x, int64_t ldx, int64_t rows, const bf16* w, int64_t K, Ahead ahead, float* y, int64_t ldy) {
  f32xw sum[MT][2];
  int64_t at[MT];
  for (int i = 0; i < MT; i++) at[i] = (i < rows ? i : rows - 1) * ldx;
  for (int i = 0; i < MT; i++) sum[i][0] = sum[i][1] = splatw(0.0f);
  int64_t k = 0;
  for (; k + 2 <= K; k += 2) {
    ahead.fetch(k);
    i32xw b[2] = {*(const i32xw_at*)(w + k * COLUMNS), *(const i32xw_at*)(w + k * COLUMNS + 2 * WIDE)};
    for (int i = 0; i < MT; i++) {
      int32_t pair;
      memcpy(&pair, x + at[i] + k, 4);
      add_pair(sum[i], pair, b);
    }
  }
  if (k < K) {
    i32xw b[2] = {*(const i32xw_at*)(w + k * COLUMNS), *(const i32xw_at*)(w + k * COLUMNS + 2 * WIDE)};
    for (int i = 0; i < MT; i++) add_pair(sum[i], x[at[i] + k].bits, b);
  }
  for (int i = 0; i < MT; i++)
    for (int v = 0; v < 2; v++) storew(y + i * ldy + v * WIDE, sum[i][v]);
}
#endif

INLINE float* as_floats(float* c) { return c; }
template <class O> INLINE float* as_floats(O*) { return nullptr; }

template <int MT, class X, class W, class O>
static __attribute__((noinline)) void tile(const X* x, int64_t ldx, const W* w, int64_t K, Ahead ahead, O* c, int64_t ldc, int64_t cols, int64_t rows) {
  for (int64_t j = 0; j < COLUMNS && j < cols; j += 2 * WIDE) {
    const W* here = w + j * Columns<W>::STEP;
    if (as_floats(c) && rows == MT && j + 2 * WIDE <= cols) {
      meet<MT>(x, ldx, MT, here, K, ahead, as_floats(c) + j, ldc);
      continue;
    }
    alignas(64) float y[MT][2 * WIDE];
    meet<MT>(x, ldx, MT > LOW ? MT : rows, here, K, ahead, y[0], 2 * WIDE);
    for (int64_t i = 0; i < rows; i++)
      for (int64_t l = 0; l < 2 * WIDE && j + l < cols; l += WIDE) {
        int64_t n = cols - j - l;
        if (n >= WIDE) storew(c + i * ldc + j + l, loadw(y[i] + l));
        else storew_part(c + i * ldc + j + l, loadw(y[i] + l), n);
      }
  }
}

// A task: as many rows at once as there are. next: the panel behind this one, or NULL.
template <class X, class W, class O>
INLINE void task(const X* x, int64_t ldx, int64_t M, const W* w, int64_t K, const W* next, O* c, int64_t ldc, int64_t cols) {
  // Each of the first two tiles asks for half of it.
  int64_t each = COLUMNS * sizeof(W) / 2;
  for (int64_t m = 0, took = 0, tiles = 0; m < M; m += took, tiles++) {
    int64_t left = M - m;
    const X* a = x + m * ldx;
    O* y = c + m * ldc;
    Ahead ahead = {nullptr, 0};
    if (next && tiles < 2) ahead = {(const char*)next + tiles * K * each, each};
    if (left >= TALL && left != 2 * MIDDLE) tile<TALL>(a, ldx, w, K, ahead, y, ldc, cols, took = TALL);
    else if (left >= MIDDLE) tile<MIDDLE>(a, ldx, w, K, ahead, y, ldc, cols, took = MIDDLE);
    else tile<LOW>(a, ldx, w, K, ahead, y, ldc, cols, took = left < LOW ? left : LOW);
  }
}

template <class X, class W> struct As { typedef float Type; };
#if defined(IRON_BF16)
template <> struct As<bf16, bf16> { typedef bf16 Type; };
#endif
INLINE const bf16* widened(const bf16* x, int64_t&, int64_t, int64_t, bf16*, int64_t) { return x; }

}  // namespace panels

template <class X, class W, class O> void panel_product(const slots::PanelProduct<X, W, O>& g, int32_t tid, int32_t nt) {
  using namespace panels;
  typedef typename As<X, W>::Type A;
  int64_t K = g.K, across = (g.N + COLUMNS - 1) / COLUMNS, down = (g.M + TASK - 1) / TASK, have = -1;
  int64_t most = down ? ((g.M + down - 1) / down + LOW - 1) / LOW * LOW : 0;  // rows of a task: about the same for all
  Share s = share(across * down, tid, nt);
  W* made = (W*)g.scratch;
  A* wide = (A*)(made + COLUMNS * depth<W>(K));
  const A* x = nullptr;
  int64_t ldx = 0;
  for (int64_t at = s.begin; at < s.end; at++) {
    int64_t m = at / across * most, n = at % across * COLUMNS, rows = g.M - m < most ? g.M - m : most, cols = g.N - n < COLUMNS ? g.N - n : COLUMNS;
    if (m != have) ldx = g.x_row, x = widened(g.x + m * g.x_row, ldx, rows, K, wide, K), have = m;
    const W *w = g.w + n * depth<W>(K), *next = nullptr;
    if (!g.in_tiles) pack(g.w + n * K, K, cols, made), w = made;
    else if (at + 1 < across * down) next = g.w + (at + 1) % across * COLUMNS * depth<W>(K);
    task(x, ldx, rows, w, K, next, g.c + m * g.c_row + n, g.c_row, cols);
  }
}

template <class W> void pack_panels(const slots::PackBlocks& g, int32_t tid, int32_t nt) {
  using namespace panels;
  int64_t across = (g.N + COLUMNS - 1) / COLUMNS, deep = depth<W>(g.K);
  Share s = share(g.matrices * across, tid, nt);
  for (int64_t at = s.begin; at < s.end; at++) {
    int64_t b = at / across, n = at % across * COLUMNS;
    pack((const W*)g.w + (b * g.N + n) * g.K, g.K, g.N - n < COLUMNS ? g.N - n : COLUMNS, (W*)g.tiles + (b * across * COLUMNS + n) * deep);
  }
}

// The sum of one element after another; what fast kernels are compared with, bit for bit.
template <class X, class W> INLINE float add_products(const X* x, const W* w, bool in_tiles, int64_t n, int64_t K) {
  using namespace panels;
  enum { STEP = sizeof(typename As<X, W>::Type) == 2 ? 2 : 1 };
  const W* panel = w + n / COLUMNS * COLUMNS * depth<W>(K);
  float sum = 0.0f;
  for (int64_t k = 0; k < K; k += STEP)
    for (int64_t s = STEP - 1; s >= 0; s--)  // of two at a time the second is added first
      if (k + s < K) sum = madd(load(x + k + s), load(in_tiles ? panel + Columns<W>::at(n % COLUMNS, k + s) : w + n * K + k + s), sum);
  return sum;
}
template <class X, class W, class O> void panel_product_naive(const slots::PanelProduct<X, W, O>& g, int32_t tid, int32_t) {
  if (tid) return;
  for (int64_t m = 0; m < g.M; m++)
    for (int64_t n = 0; n < g.N; n++) store(g.c + m * g.c_row + n, add_products(g.x + m * g.x_row, g.w, g.in_tiles != 0, n, (int64_t)g.K));
}

}  // namespace iron
