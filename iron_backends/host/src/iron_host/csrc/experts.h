// Products of rows of X with matrices that ids pick, for GEMV, GEMM, GatedExperts and CombineExperts of iron_ops_aie.
//
// `rows` rows have `k` ids each; an id is one of `experts` matrices of M rows, of which N are multiplied, by K numbers. A pair is a
// row and one of its ids, number row * k + column. Pairs are taken expert by expert, so each matrix is read once, and a row of X is
// read where it lies. An element has the additions of matmul.h, packed.h or blocks.h, whatever the other rows are.
//
// picked_*: y of pair p, y_row apart, is W of its expert times its row of X, or, GATED, silu of that times the same of `up`.
// combined_*: X has a row for each pair; y of a row is the sum of its pairs' products times their weights, in order, and then what
// is shared, times the logistic function of its gate where there is one.
// *_rows read weights as P says, with numbers of their own (DenseRow), blocks (BlockRow) or any packed format (PackedRow);
// *_blocks multiply tiles with X as quantize_rows left it in `shared`. Scratch: picks_bytes(), then what a kernel says.
#pragma once
#include "blocks.h"
#include "elementwise.h"
#include "packed.h"

namespace iron {

struct Picks {
  const int32_t* begin;   // of each expert its first pair among `pairs`, and behind the last one's the end
  const int32_t* active;  // experts that have any
  const int32_t* pairs;
  int64_t count;  // of active ones
};

INLINE int64_t picks_bytes(int64_t pairs, int64_t experts) { return (4 * (2 * experts + 2 + pairs) + 63) & ~63LL; }

// Pairs by expert, in order.
INLINE Picks picks(const int32_t* ids, int64_t n, int64_t experts, void* scratch) {
  int32_t *begin = (int32_t*)scratch, *active = begin + experts + 2, *pairs = active + experts;
  auto expert = [&](int64_t p) { return clipped(ids[p], experts); };
  memset(begin, 0, (experts + 2) * 4);
  for (int64_t p = 0; p < n; p++) begin[expert(p) + 2]++;
  for (int64_t e = 2; e < experts + 2; e++) begin[e] += begin[e - 1];
  for (int64_t p = 0; p < n; p++) pairs[begin[expert(p) + 1]++] = (int32_t)p;
  int64_t count = 0;
  for (int64_t e = 0; e < experts; e++)
    if (begin[e + 1] > begin[e]) active[count++] = (int32_t)e;
  return Picks{begin, active, pairs, count};
}

INLINE void silu_times(const float* gate, const float* up, float* y, int64_t n) {
  for (int64_t i = 0; i < n; i += 8) {
    int64_t few = n - i < 8 ? n - i : 8;
    store_part(y + i, op::SiLU::of(load_part(gate + i, few)) * load_part(up + i, few), few);
  }
}

// Where weights are rows of K numbers: n of them from row j of matrix e on, as they lie or widened into `y`.
template <class W> struct DenseRow {
  typedef W Number;
  INLINE const W* rows(const uint8_t* w, int64_t M, int64_t K, int64_t e, int64_t j, int64_t, float*) { return (const W*)w + (e * M + j) * K; }
};
template <class F> struct BlockRow {
  typedef float Number;
  INLINE const float* rows(const uint8_t* w, int64_t M, int64_t K, int64_t e, int64_t j, int64_t n, float* y) {
    for (int64_t i = 0; i < n; i++)
      for (int64_t k = 0; k < K; k += 32) widen_block<F>(w + e * F::size(M, K), K, j + i, k, y + i * K + k);
    return y;
  }
};
template <class F> struct PackedRow {
  typedef float Number;
  INLINE const float* rows(const uint8_t* w, int64_t M, int64_t K, int64_t e, int64_t j, int64_t n, float* y) {
    for (int64_t i = 0; i < n; i++) F::row(w + e * F::bytes(M, K), M, K, j + i, y + i * K);
    return y;
  }
};

enum { BESIDE_ROWS = 4 };  // rows of W that meet a row of X at once

template <class X, class W> INLINE void few_dots(const X* x, const W* w, int64_t K, int64_t n, float* y) {
  if (n == BESIDE_ROWS) dots<1, BESIDE_ROWS>(x, 0, w, K, K, y, 0, 1, BESIDE_ROWS * K * (int64_t)sizeof(W));
  else for (int64_t j = 0; j < n; j++) dots<1, 1>(x, 0, w + j * K, K, K, y + j, 0, 1, 0);
}

// 2 * BESIDE_ROWS rows of K floats of scratch.
template <class P, class X, class O, bool GATED> void picked_rows(const slots::Picked<X, O>& g, int32_t tid, int32_t nt) {
  int64_t N = g.N, K = g.K, k = g.k, pairs = g.rows * k;
  Picks p = picks(g.ids, pairs, g.experts, g.scratch);
  float* wide = (float*)((char*)g.scratch + picks_bytes(pairs, g.experts));
  Share s = share(p.count * N, tid, nt, BESIDE_ROWS);
  for (int64_t at = s.begin; at < s.end;) {
    int64_t e = p.active[at / N], j = at % N, n = N - j < BESIDE_ROWS ? N - j : BESIDE_ROWS;
    if (s.end - at < n) n = s.end - at;
    at += n;
    const typename P::Number* w = P::rows(g.w, g.M, K, e, j, n, wide);
    const typename P::Number* up = GATED ? P::rows(g.up, g.M, K, e, j, n, wide + BESIDE_ROWS * K) : w;
    for (int64_t i = p.begin[e]; i < p.begin[e + 1]; i++) {
      int64_t pair = p.pairs[i];
      const X* x = g.x + pair / k * K;
      float y[BESIDE_ROWS], more[BESIDE_ROWS];
      few_dots(x, w, K, n, y);
      if (GATED) few_dots(x, up, K, n, more), silu_times(y, more, y, n);
      for (int64_t c = 0; c < n; c++) store(g.y + pair * g.y_row + (j + c) * g.y_column, y[c]);
    }
  }
}

// Rows of X that pairs pick, and where what a tile makes of them goes.
template <int MT> struct AtPairs {
  const int8_t* integers[MT];
  const GroupScale* scales[MT];
  struct Block {
    const AtPairs& of;
    int64_t b;
    MEMBER const int8_t* q(int i) const { return of.integers[i] + 32 * b; }
    MEMBER const GroupScale& scale(int i) const { return of.scales[i][b]; }
  };
  MEMBER Block at(int64_t b) const { return Block{*this, b}; }
};
template <int MT> INLINE AtPairs<MT> at_pairs(Rounded x, const int32_t* pairs, int64_t k) {
  AtPairs<MT> found;
  for (int i = 0; i < MT; i++) {
    int64_t row = pairs[i] / k;
    found.integers[i] = x.q + row * x.K;
    found.scales[i] = x.scales + row * (x.K / 32);
  }
  return found;
}
// TILE floats for each pair, of tiles `apart` behind one another; of pair `pairs[i]`, or of pair i.
struct Kept {
  float* y;
  int64_t apart;
  const int32_t* pairs;
  MEMBER Kept tile(int t) const { return Kept{y + t * apart, apart, pairs}; }
  MEMBER void put(int i, f32x8 first, f32x8 second) const {
    float* to = y + TILE * (int64_t)(pairs ? pairs[i] : i);
    store8(to, first), store8(to + 8, second);
  }
};

// The tile of matrix e from row j on: where it lies, or made in `tile`.
template <class F> INLINE const uint8_t* tile_of(const uint8_t* w, bool in_tiles, int64_t M, int64_t K, int64_t e, int64_t j, uint8_t* tile) {
  if (in_tiles) return w + (e * ((M + TILE - 1) / TILE * TILE) + j) * row_bytes<F>(K);
  return made<F>(w + e * F::size(M, K), M, K, j, tile);
}

// What MT pairs get of a tile of w and, GATED, one of up, of `n` rows from row j on.
template <class F, int MT, class O, bool GATED>
INLINE void picked_tile(const slots::Picked<float, O>& g, Rounded x, const uint8_t* w, const uint8_t* up, const int32_t* pairs, int64_t j, int64_t n, Ahead ahead) {
  enum { SIZE = MT * TILE };
  float y[2 * SIZE];
  AtPairs<MT> rows = at_pairs<MT>(x, pairs, g.k);
  const uint8_t* both[2] = {w, up};
  tiles_rows<F, MT>(both, rows, g.K / 32, Kept{y, GATED || up != w ? SIZE : 0, 0}, ahead);
  if (GATED) silu_times(y, y + SIZE, y, SIZE);
  for (int i = 0; i < MT; i++) {
    O* to = g.y + pairs[i] * g.y_row + j * g.y_column;
    put(to, g.y_column, n, load8(y + TILE * i), load8(y + TILE * i + 8));
    if (!GATED && up != w) put(to + TILE * g.y_column, g.y_column, n - TILE, load8(y + SIZE + TILE * i), load8(y + SIZE + TILE * i + 8));
  }
}

// Two tiles of scratch, where weights are not in tiles.
template <class F, class O, bool GATED> void picked_blocks(const slots::Picked<float, O>& g, int32_t tid, int32_t nt) {
  int64_t N = g.N, K = g.K, pairs = g.rows * g.k, tiles = (N + TILE - 1) / TILE;
  Picks p = picks(g.ids, pairs, g.experts, g.scratch);
  int64_t size = TILE * row_bytes<F>(K);
  uint8_t *first = (uint8_t*)g.scratch + picks_bytes(pairs, g.experts), *second = first + size;
  Rounded x = rounded_at(g.shared, g.rows, K);
  enum { STEP = GATED ? 1 : TILES };
  Share s = share(p.count * tiles, tid, nt, pairs > 1 ? STEP : 1);
  for (int64_t at = s.begin, many; at < s.end; at += many) {
    int64_t e = p.active[at / tiles], j = at % tiles * TILE, n = N - j;
    many = at + 1 < s.end && n > TILE ? STEP : 1;
    const uint8_t *w = tile_of<F>(g.w, g.w_in_tiles, g.M, K, e, j, first), *up = w;
    if (GATED) up = tile_of<F>(g.up, g.up_in_tiles, g.M, K, e, j, second);
    else if (many > 1) up = tile_of<F>(g.w, g.w_in_tiles, g.M, K, e, j + TILE, second);
    int64_t begin = p.begin[e], end = p.begin[e + 1];
    by_rows<MOST>(begin, end, [&](auto count, int64_t i) {
      enum { MT = decltype(count)::rows };
      Ahead ahead = end - begin == 1 ? ahead_of(g.ahead, K / 32) : ahead_of(many * size, K / 32, begin, end, i, MT);
      picked_tile<F, MT, O, GATED>(g, x, w, up, p.pairs + i, j, n, ahead);
    });
  }
}

// Row r of the result from column j on, n of them: sums have `width` numbers for each pair.
template <class X, class O> INLINE void combine(const slots::Combined<X, O>& g, int64_t r, int64_t j, int64_t n, const float* sums, int64_t width) {
  float gate = g.common_gate ? op::Sigmoid::of(splat(g.common_gate[r]))[0] : 1.0f;
  const float* weights = g.weights + r * g.k;
  sums += r * g.k * width;
  int64_t c = 0;
  for (; c + WIDE <= n; c += WIDE) {
    f32xw y = splatw(0.0f);
    for (int64_t i = 0; i < g.k; i++) y = maddw(splatw(weights[i]), loadw(sums + i * width + c), y);
    if (g.common) y = maddw(splatw(gate), loadw(g.common + r * g.N + j + c), y);
    storew(g.y + r * g.N + j + c, y);
  }
  for (; c < n; c++) {
    float y = 0;
    for (int64_t i = 0; i < g.k; i++) y = madd(weights[i], sums[i * width + c], y);
    if (g.common) y = madd(gate, load(g.common + r * g.N + j + c), y);
    store(g.y + r * g.N + j + c, y);
  }
}

// BESIDE_ROWS rows of K floats of scratch, and as many floats for each pair.
template <class P, class X, class O> void combined_rows(const slots::Combined<X, O>& g, int32_t tid, int32_t nt) {
  int64_t N = g.N, K = g.K, pairs = g.rows * g.k;
  Picks p = picks(g.ids, pairs, g.experts, g.scratch);
  float* wide = (float*)((char*)g.scratch + picks_bytes(pairs, g.experts));
  float* sums = wide + BESIDE_ROWS * K;
  Share s = share(N, tid, nt, BESIDE_ROWS);
  for (int64_t j = s.begin; j < s.end; j += BESIDE_ROWS) {
    int64_t n = s.end - j < BESIDE_ROWS ? s.end - j : BESIDE_ROWS;
    for (int64_t a = 0; a < p.count; a++) {
      int64_t e = p.active[a];
      const typename P::Number* w = P::rows(g.w, N, K, e, j, n, wide);
      for (int64_t i = p.begin[e]; i < p.begin[e + 1]; i++) few_dots(g.x + p.pairs[i] * K, w, K, n, sums + p.pairs[i] * BESIDE_ROWS);
    }
    for (int64_t r = 0; r < g.rows; r++) combine(g, r, j, n, sums, BESIDE_ROWS);
  }
}

// Tiles that are computed before their rows are combined, so that an expert's rows of X meet many while they are in a cache: their sums are at most so many floats, unless those of TILES are more.
enum { SUMS = 1 << 18 };
INLINE int64_t tiles_together(int64_t pairs) {
  int64_t each = TILES * TILE * (pairs ? pairs : 1);
  return TILES * (SUMS > each ? SUMS / each : 1);
}

// TILES tiles of scratch, and TILE floats for each pair of tiles_together().
template <class F, class X, class O> void combined_blocks(const slots::Combined<X, O>& g, int32_t tid, int32_t nt) {
  int64_t N = g.N, K = g.K, pairs = g.rows * g.k, tiles = (N + TILE - 1) / TILE, most = tiles_together(pairs), size = TILE * row_bytes<F>(K);
  Picks p = picks(g.ids, pairs, g.experts, g.scratch);
  uint8_t* scratch = (uint8_t*)g.scratch + picks_bytes(pairs, g.experts);
  float* sums = (float*)(scratch + TILES * size);
  Rounded x = rounded_at(g.shared, pairs, K);
  Share s = share(tiles, tid, nt, g.rows > 1 ? TILES : 1);
  for (int64_t first = s.begin; first < s.end; first += most) {
    int64_t end = first + most < s.end ? first + most : s.end;
    for (int64_t a = 0; a < p.count; a++)
      for (int64_t t = first, e = p.active[a]; t < end; t += TILES) {
        const uint8_t* w[TILES];
        int64_t many = end - t < TILES ? end - t : TILES;
        for (int64_t i = 0; i < TILES; i++)
          w[i] = i < many ? tile_of<F>(g.w, g.w_in_tiles, N, K, e, (t + i) * TILE, scratch + i * size) : w[0];
        float* to = sums + (t - first) * pairs * TILE;
        int64_t begin = p.begin[e], last = p.begin[e + 1];
        by_rows<MOST>(begin, last, [&](auto count, int64_t i) {
          enum { MT = decltype(count)::rows };
          Ahead ahead = last - begin == 1 ? ahead_of(g.ahead, K / 32) : ahead_of(many * size, K / 32, begin, last, i, MT);
          Kept kept{to, many > 1 ? pairs * TILE : 0, p.pairs + i};
          tiles_rows<F, MT>(w, at_pairs<MT>(x, p.pairs + i, 1), K / 32, kept, ahead);
        });
      }
    for (int64_t t = first; t < end; t++)
      for (int64_t r = 0; r < g.rows; r++) combine(g, r, t * TILE, N - t * TILE < TILE ? N - t * TILE : TILE, sums + (t - first) * pairs * TILE, TILE);
  }
}

// The twins: one number at a time, pair by pair.
template <class P, class X> INLINE float row_dot_naive(const uint8_t* w, int64_t M, int64_t K, int64_t e, int64_t j, const X* x, float* wide) {
  const typename P::Number* row = P::rows(w, M, K, e, j, 1, wide);
  double sum = 0;
  for (int64_t i = 0; i < K; i++) sum += (double)load(x + i) * load(row + i);
  return (float)sum;
}

// K floats of scratch.
template <class P, class X, class O, bool GATED> void picked_rows_naive(const slots::Picked<X, O>& g, int32_t tid, int32_t) {
  if (tid) return;
  for (int64_t p = 0; p < g.rows * g.k; p++)
    for (int64_t j = 0; j < g.N; j++) {
      int64_t e = clipped(g.ids[p], g.experts);
      const X* x = g.x + p / g.k * g.K;
      float y = row_dot_naive<P>(g.w, g.M, g.K, e, j, x, (float*)g.scratch), up = 0;
      if (GATED) up = row_dot_naive<P>(g.up, g.M, g.K, e, j, x, (float*)g.scratch), silu_times(&y, &up, &y, 1);
      store(g.y + p * g.y_row + j * g.y_column, y);
    }
}
template <class F, class O, bool GATED> void picked_blocks_naive(const slots::Picked<float, O>& g, int32_t tid, int32_t) {
  if (tid) return;
  Rounded x = rounded_at(g.shared, g.rows, g.K);
  for (int64_t p = 0; p < g.rows * g.k; p++)
    for (int64_t j = 0; j < g.N; j++) {
      int64_t at = clipped(g.ids[p], g.experts) * F::size(g.M, g.K), r = p / g.k;
      float y = block_dot_naive<F>(g.w + at, g.K, j, x.q + r * g.K, x.scales + r * (g.K / 32)), up = 0;
      if (GATED) up = block_dot_naive<F>(g.up + at, g.K, j, x.q + r * g.K, x.scales + r * (g.K / 32)), silu_times(&y, &up, &y, 1);
      store(g.y + p * g.y_row + j * g.y_column, y);
    }
}
// K + k floats of scratch.
template <class P, class X, class O> void combined_rows_naive(const slots::Combined<X, O>& g, int32_t tid, int32_t) {
  if (tid) return;
  float* sums = (float*)g.scratch + g.K;
  for (int64_t r = 0; r < g.rows; r++)
    for (int64_t j = 0; j < g.N; j++) {
      for (int64_t i = r * g.k; i < (r + 1) * g.k; i++)
        sums[i - r * g.k] = row_dot_naive<P>(g.w, g.N, g.K, clipped(g.ids[i], g.experts), j, g.x + i * g.K, (float*)g.scratch);
      combine(g, r, j, 1, sums - r * g.k, 1);
    }
}
// k floats of scratch.
template <class F, class X, class O> void combined_blocks_naive(const slots::Combined<X, O>& g, int32_t tid, int32_t) {
  if (tid) return;
  float* sums = (float*)g.scratch;
  Rounded x = rounded_at(g.shared, g.rows * g.k, g.K);
  for (int64_t r = 0; r < g.rows; r++)
    for (int64_t j = 0; j < g.N; j++) {
      for (int64_t i = r * g.k; i < (r + 1) * g.k; i++) {
        const uint8_t* w = g.w + clipped(g.ids[i], g.experts) * F::size(g.N, g.K);
        sums[i - r * g.k] = block_dot_naive<F>(w, g.K, j, x.q + i * g.K, x.scales + i * (g.K / 32));
      }
      combine(g, r, j, 1, sums - r * g.k, 1);
    }
}

}  // namespace iron
