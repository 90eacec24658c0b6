// Products with block-quantised weights: blocks of 32 numbers, each with a scale (and a minimum) in front.
//
// quantize_rows (rounded.h) rounds M rows of X into `shared`; block_matmul, the next step, multiplies them from there. Its W is
// in tiles or, not in_tiles, as the file has it; then its scratch is one tile. block_exact takes X as it is and has K floats of
// scratch. All three have the slots' meaning in matmul.h. block_integers, for tests: the int32 product of each block with int8 q.
//
// A tile is 16 rows of W side by side: for every block of 32 columns, the 16 scales, the 16 minima, and then the rows' bytes
// four at a time, so that a vector holds the same four columns of all rows and a lane is an output. As many bytes as
// before, where no more than 32 numbers share a scale; rows of zeros fill the last tile of a matrix.
//
// One output: blocks in order; a block's integer product is exact, and sum = fma(product, scale of W * scale of X, sum);
// minima in a sum of their own, low = fma(minimum, scale of X * sum of X, low); sum + low at the end. Every path keeps
// this order, so GEMV, GEMM and the twin agree bit for bit.
#pragma once
#include "rounded.h"

namespace iron {

// A format is a struct F, which iron_host/view.py writes from the format's planes. Numbers say what a block of a tile is: `bytes` of
// it, `head` of them before the integers, `bits` of one (4 or 8); the stored integer less `zero` is the number, and 8-bit ones are
// stored signed; `minimum`: have they one (1), or in its place a zero point z that is no integer (2), which is a minimum of -scale * z?
// Scale is the type of both. Functions say where a matrix of M x K has its own: F::size(M, K) bytes, in which F::scale and
// F::lowest(w, K, m, k) are for the 32 numbers of row m from column k on, and F::integer(w, K, m, k) is one less its zero. `plain`: the
// rows lie block after block, in each the head and then the integers; of nibbles byte i has number i in its low half, i + 16 in its high.

// Rows of a tile, and bytes of one column of four times the rows.
enum { TILE = 16, CHUNK = 4 * TILE };

template <class F> INLINE const typename F::Scale* scales_at(const uint8_t* p) { return (const typename F::Scale*)p; }
template <class F> INLINE float scale_at(const uint8_t* p, int64_t i = 0) { return at<typename F::Scale>(p, i); }

// The minimum of a block with scale d and this behind it.
template <class F, class V> INLINE V minimum_of(V d, V behind) { return F::minimum == 2 ? -(d * behind) : behind; }

// The block at column k of `rows` rows of a matrix, from row m on, a multiple of TILE, as one of a tile.
template <class F> INLINE void pack_block(const uint8_t* w, int64_t K, int64_t m, int64_t k, int64_t rows, uint8_t* tile) {
  uint8_t* body = tile + TILE * F::head;
  if (F::plain) {
    for (int64_t r = 0; r < rows; r++) {
      const uint8_t* from = w + ((m + r) * K + k) / 32 * F::bytes;
      for (int i = 0; i < F::head; i += 2) memcpy(tile + TILE * i + 2 * r, from + i, 2);
      for (int c = 0; c < F::bits; c++) memcpy(body + CHUNK * c + 4 * r, from + F::head + 4 * c, 4);
    }
    return;
  }
  enum { WIDE = sizeof(typename F::Scale) };
  for (int64_t r = 0; r < rows; r++) {
    memcpy(tile + WIDE * r, F::scale(w, K, m + r, k), WIDE);
    if (F::minimum != 0) memcpy(tile + WIDE * (TILE + r), F::lowest(w, K, m + r, k), WIDE);
  }
  m = m / TILE * TILE, k = k / 32 * 32;  // which they are: with the rows unrolled, most of a place is then known beforehand
  for (int64_t i = 0; i < 4 * F::bits; i++) {
#pragma GCC unroll 16
    for (int64_t r = 0; r < TILE; r++) {
      if (r >= rows) break;
      int32_t v = F::integer(w, K, m + r, k + i) + F::zero;
      if (F::bits == 4) v |= (F::integer(w, K, m + r, k + i + 16) + F::zero) << 4;
      body[CHUNK * (i / 4) + 4 * r + i % 4] = (uint8_t)v;
    }
  }
}

// Rows of a matrix from row m on as one tile; `rows` of them, zeros for the others.
template <class F> INLINE void pack_tile(const uint8_t* w, int64_t K, int64_t m, int64_t rows, uint8_t* tile) {
  if (rows < TILE) memset(tile, 0, TILE * (K / 32) * F::bytes);
  for (int64_t k = 0; k < K; k += 32, tile += TILE * F::bytes) pack_block<F>(w, K, m, k, rows, tile);
}

template <class F> void pack_blocks(const slots::PackBlocks& g, int32_t tid, int32_t nt) {
  int64_t N = g.N, K = g.K, tiles = (N + TILE - 1) / TILE;
  Share s = share(tiles * g.matrices, tid, nt);
  for (int64_t t = s.begin; t < s.end; t++) {
    int64_t m = t % tiles * TILE, rows = N - m < TILE ? N - m : TILE;
    pack_tile<F>(g.w + t / tiles * F::size(N, K), K, m, rows, g.tiles + t * TILE * (K / 32) * F::bytes);
  }
}

// Rows of X that meet a tile: an object of which at(b) has, for row i, the integers of block b and their scale.
struct InOrder {  // one behind another, from row m on
  const int8_t* integers;
  const GroupScale* scales;
  int64_t K;
  MEMBER InOrder at(int64_t b) const { return InOrder{integers + 32 * b, scales + b, K}; }
  MEMBER const int8_t* q(int i) const { return integers + i * K; }
  MEMBER const GroupScale& scale(int i) const { return scales[i * (K / 32)]; }
};
struct One {  // one block of one row
  const int8_t* integers;
  const GroupScale* s;
  MEMBER const int8_t* q(int) const { return integers; }
  MEMBER const GroupScale& scale(int) const { return *s; }
};
INLINE InOrder in_order(Rounded x, int64_t m) { return InOrder{x.q + m * x.K, x.scales + m * (x.K / 32), x.K}; }

// Integer products of one block of a tile with MT rows of X; the integers of a Q4_0 less 8.
#if defined(IRON_AVX512)
typedef i32x16 Ints;  // 16 int32, a lane for each row of the tile

template <class F, int MT, class R> INLINE void products(const uint8_t* body, R rows, Ints* p) {
  enum { BIAS = F::bits == 8 ? 128 : F::zero };  // makes the integers unsigned bytes
  Ints w[8];
  for (int c = 0; c < F::bits; c++) {
    Ints v = *(const i32x16_at*)(body + CHUNK * c);
    if (F::bits == 8) {
      w[c] = v ^ (int32_t)0x80808080;
    } else {
      w[c] = v & 0x0f0f0f0f;
      w[c + 4] = (Ints)((u16x32)v >> 4) & 0x0f0f0f0f;
    }
  }
  for (int i = 0; i < MT; i++) {
    Ints none = {}, sum = BIAS != 0 ? none - BIAS * rows.scale(i).sum : none, other = none;
    for (int c = 0; c < 8; c += 2) {
      int32_t x[2];
      memcpy(x, rows.q(i) + 4 * c, 8);
      sum = x86::add_dots(sum, w[c], none + x[0]);
      other = x86::add_dots(other, w[c + 1], none + x[1]);
    }
    p[i] = sum + other;
  }
}
#elif defined(__AVX2__)
INLINE i32x8 four_of(const int8_t* q) { int32_t x; memcpy(&x, q, 4); return i32x8{} + x; }

template <class F, int MT, class R> INLINE void half_products(const uint8_t* body, R rows, i32x8* p) {
  for (int i = 0; i < MT; i++) p[i] = i32x8{};
  for (int c = 0; c < F::bits; c++) {
    i32x8 v = *(const i32x8_at*)(body + CHUNK * c);
    if (F::bits == 8) {
      i32x8 size = x86::sizes(v);
      for (int i = 0; i < MT; i++)
        p[i] += x86::halves_added(x86::bytes_by(size, x86::signed_as(four_of(rows.q(i) + 4 * c), v)));
    } else {  // 32 products of at most 15 * 127 in two int16: they fit
      i32x8 low = v & 0x0f0f0f0f, high = (i32x8)((u16x16)v >> 4) & 0x0f0f0f0f;
      for (int i = 0; i < MT; i++) {
        p[i] = (i32x8)((u16x16)p[i] + (u16x16)x86::bytes_by(low, four_of(rows.q(i) + 4 * c)));
        p[i] = (i32x8)((u16x16)p[i] + (u16x16)x86::bytes_by(high, four_of(rows.q(i) + 16 + 4 * c)));
      }
    }
  }
  if (F::bits == 4)
    for (int i = 0; i < MT; i++) {
      p[i] = x86::halves_added(p[i]);
      if (F::zero != 0) p[i] = p[i] - F::zero * rows.scale(i).sum;
    }
}
#else
struct Ints { int32_t lane[TILE]; };

template <class F, int MT, class R> INLINE void products(const uint8_t* body, R rows, Ints* p) {
  for (int i = 0; i < MT; i++) {
    for (int r = 0; r < TILE; r++) p[i].lane[r] = -F::zero * rows.scale(i).sum;
    for (int c = 0; c < F::bits; c++) {
      const int8_t *low = rows.q(i) + 4 * c, *high = low + 16;
      for (int r = 0; r < TILE; r++)
        for (int e = 0; e < 4; e++) {
          uint8_t v = body[CHUNK * c + 4 * r + e];
          p[i].lane[r] += F::bits == 8 ? (int8_t)v * low[e] : (v & 15) * low[e] + (v >> 4) * high[e];
        }
    }
  }
}
#endif

// The 16 outputs of a tile for one row of X, as floats in two halves; `n` of them exist.
template <class O> INLINE void put(O* c, int64_t cn, int64_t n, f32x8 first, f32x8 second) {
  if (cn == 1 && n == TILE) {
    store8(c, first);
    store8(c + 8, second);
    return;
  }
  for (int64_t j = 0; j < n; j++) store(c + j * cn, j < 8 ? first[j] : second[j - 8]);
}

// Where the outputs of a tile go: `n` of them for each row of X, `cm` from one row's to the next's.
template <class O> struct Outputs {
  O* c;
  int64_t cm, cn, n;
  MEMBER void put(int i, f32x8 first, f32x8 second) const { iron::put(c + i * cm, cn, n, first, second); }
};

// One tile against MT rows of X: out.put(i, first, second) takes what row i gives.
// `ahead`: how many bytes from here on are asked for while one row of X is multiplied, 0 for none: more rows pass over tiles that
// are in the caches.
template <class F> INLINE void ask(const uint8_t* tile, int64_t ahead) {
  if (ahead)
    for (int64_t i = 0; i < TILE * F::bytes; i += 64) __builtin_prefetch(tile + ahead + i, 0, 2);
}

template <class F, int MT, class R, class Out> INLINE void tile_rows(const uint8_t* tile, R rows, int64_t groups, Out out, int64_t ahead) {
#if defined(IRON_AVX512)
  f32xw sum[MT], low[MT];
  for (int i = 0; i < MT; i++) sum[i] = low[i] = f32xw{};
  for (int64_t b = 0; b < groups; b++, tile += TILE * F::bytes) {
    Ints p[MT];
    if (MT == 1) ask<F>(tile, ahead);
    products<F, MT>(tile + TILE * F::head, rows.at(b), p);
    f32xw d = loadw(scales_at<F>(tile));
    for (int i = 0; i < MT; i++) {
      sum[i] = maddw(__builtin_convertvector(p[i], f32xw), d * splatw(rows.at(b).scale(i).d), sum[i]);
    }
    if (F::minimum != 0) {
      f32xw minimum = minimum_of<F>(d, loadw(scales_at<F>(tile) + TILE));
      for (int i = 0; i < MT; i++) low[i] = maddw(minimum, splatw(rows.at(b).scale(i).s), low[i]);
    }
  }
  for (int i = 0; i < MT; i++) {
    f32x8 half[2];
    f32xw all = F::minimum != 0 ? sum[i] + low[i] : sum[i];
    memcpy(half, &all, 64);
    out.put(i, half[0], half[1]);
  }
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
  // A row of X passes both halves of the tile at once, so that memory is read in order; more rows leave no registers for it.
  enum { HALVES = MT == 1 ? 2 : 1 };
  f32x8 all[MT][2];
  for (int h0 = 0; h0 < 2; h0 += HALVES) {
    const uint8_t* at = tile;
    f32x8 sum[HALVES][MT], low[HALVES][MT];
    for (int h = 0; h < HALVES; h++)
      for (int i = 0; i < MT; i++) sum[h][i] = low[h][i] = f32x8{};
    for (int64_t b = 0; b < groups; b++, at += TILE * F::bytes) {
      if (MT == 1) ask<F>(at, ahead);
      for (int h = 0; h < HALVES; h++) {
        i32x8 p[MT];
        half_products<F, MT>(at + TILE * F::head + 32 * (h0 + h), rows.at(b), p);
        f32x8 d = load8(scales_at<F>(at) + 8 * (h0 + h));
        for (int i = 0; i < MT; i++) {
          f32x8 scale = d * splat(rows.at(b).scale(i).d);
          sum[h][i] = x86::madd(__builtin_convertvector(p[i], f32x8), scale, sum[h][i]);
        }
        if (F::minimum != 0) {
          f32x8 minimum = minimum_of<F>(d, load8(scales_at<F>(at) + TILE + 8 * (h0 + h)));
          for (int i = 0; i < MT; i++) low[h][i] = x86::madd(minimum, splat(rows.at(b).scale(i).s), low[h][i]);
        }
      }
    }
    for (int h = 0; h < HALVES; h++)
      for (int i = 0; i < MT; i++) all[i][h0 + h] = F::minimum != 0 ? sum[h][i] + low[h][i] : sum[h][i];
  }
  for (int i = 0; i < MT; i++) out.put(i, all[i][0], all[i][1]);
#else
  for (int i = 0; i < MT; i++) {
    float sum[TILE] = {0}, low[TILE] = {0};
    const uint8_t* at = tile;
    for (int64_t b = 0; b < groups; b++, at += TILE * F::bytes) {
      One row = {rows.at(b).q(i), &rows.at(b).scale(i)};
      const GroupScale* s = row.s;
      Ints p[1];
      products<F, 1>(at + TILE * F::head, row, p);
      for (int r = 0; r < TILE; r++) {
        float d = scale_at<F>(at, r);
        sum[r] = madd((float)p[0].lane[r], d * s->d, sum[r]);
        if (F::minimum != 0) low[r] = madd(minimum_of<F>(d, scale_at<F>(at, TILE + r)), s->s, low[r]);
      }
    }
    f32x8 half[2];
    for (int r = 0; r < TILE; r++) half[r / 8][r % 8] = F::minimum != 0 ? sum[r] + low[r] : sum[r];
    out.put(i, half[0], half[1]);
  }
#endif
}

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define IRON_FOUR_ROWS 1
INLINE f32x4 splat4(float v) { return f32x4{v, v, v, v}; }

// Four rows of plain blocks as the file has them against one row of X: for so few rows of X, making a tile takes longer.
template <class F, class O>
INLINE void four_rows(const uint8_t* w, int64_t ldw, const int8_t* q, const GroupScale* scales, int64_t groups, O* c, int64_t cn) {
  f32x4 sum = {}, low = {};
  for (int64_t b = 0; b < groups; b++, w += F::bytes) {
    i32x8 x = *(const i32x8_at*)(q + 32 * b), p[4];
    int32_t head[4];
    if (b & 1) for (int j = 4; j < 8; j++) __builtin_prefetch(w + j * ldw);
    for (int j = 0; j < 4; j++) {
      const uint8_t* body = w + j * ldw + F::head;
      memcpy(head + j, w + j * ldw, 4);
      if (F::bits == 8) {
        i32x8 v = *(const i32x8_at*)body;
        p[j] = x86::bytes_by(x86::sizes(v), x86::signed_as(x, v));
      } else {
        i32x4 packed = *(const i32x4_at*)body;
        p[j] = x86::bytes_by(x86::joined(packed, (i32x4)((u16x8)packed >> 4)) & 0x0f0f0f0f, x);
      }
      p[j] = x86::halves_added(p[j]);
    }
    i32x8 all = x86::add_neighbours(x86::add_neighbours(p[0], p[1]), x86::add_neighbours(p[2], p[3]));
    i32x4 product = x86::low(all) + x86::high(all);
    if (F::zero != 0) product = product - F::zero * scales[b].sum;
    // GroupScale and minimum (or something else) of each row in turn.
    f32x8 heads = load8((const typename F::Scale*)head);
    f32x4 scale = x86::evens(x86::low(heads), x86::high(heads)) * splat4(scales[b].d);
    sum = x86::madd(__builtin_convertvector(product, f32x4), scale, sum);
    if (F::minimum != 0) low = x86::madd(x86::odds(x86::low(heads), x86::high(heads)), splat4(scales[b].s), low);
  }
  if (F::minimum != 0) sum = sum + low;
  for (int j = 0; j < 4; j++) store(c + j * cn, sum[j]);
}
#endif

#if defined(IRON_AVX512)
enum { MOST = 8 };
#else
enum { MOST = 4 };
#endif

enum { FEW = 2 };  // rows of X

// ROWS of X meet a tile at once, of what is left four, and then one by one; `x_rows`: so many meet all tiles of a part before the next ones do, 0 for all.
template <class F, class O, int ROWS = MOST> void block_matmul(const slots::BlockProduct<O>& g, int32_t tid, int32_t nt) {
  int64_t M = g.M, N = g.N, K = g.K, cm = g.c_row, cn = g.c_column, ldw = K / 32 * F::bytes, batches = g.batches;
  int64_t tiles = (N + TILE - 1) / TILE, pass = g.x_rows && g.in_tiles ? g.x_rows : M;
  Rounded x = rounded_at(g.shared, M * batches, K);
  Share s = share(tiles * batches, tid, nt);
  for (int64_t first = 0; first < M; first += pass) {
    int64_t end = first + pass < M ? first + pass : M;
    for (int64_t t = s.begin; t < s.end; t++) {
      int64_t b = t / tiles, j = t % tiles * TILE, outputs = N - j < TILE ? N - j : TILE, matrix = b / g.repeat, m = first;
      const uint8_t* w = g.w;
      O* c = g.c + b * g.c_batch + j * cn;
      if (g.in_tiles) {
        w += (matrix * tiles * TILE + j) * ldw;
#if defined(IRON_FOUR_ROWS)
      } else if (F::plain && M <= FEW && outputs == TILE) {
        for (int64_t r = 0; r < TILE; r += 4)
          for (m = 0; m < M; m++) {
            int64_t at = b * M + m;
            four_rows<F>(w + (matrix * N + j + r) * ldw, ldw, x.q + at * K, x.scales + at * (K / 32), K / 32, c + m * cm + r * cn, cn);
          }
        continue;
#endif
      } else {
        pack_tile<F>(w + matrix * F::size(N, K), K, j, outputs, (uint8_t*)g.scratch);
        w = (const uint8_t*)g.scratch;
      }
      auto out = [&] { return Outputs<O>{c + m * cm, cm, cn, outputs}; };
      for (; m + ROWS <= end; m += ROWS) tile_rows<F, ROWS>(w, in_order(x, b * M + m), K / 32, out(), 0);
      if (ROWS > 4)
        for (; m + 4 <= end; m += 4) tile_rows<F, 4>(w, in_order(x, b * M + m), K / 32, out(), 0);
      for (; m < end; m++) tile_rows<F, 1>(w, in_order(x, b * M + m), K / 32, out(), g.ahead);
    }
  }
}

// Row j of W, as the file has it, times a row of X, in the order all keep.
template <class F> INLINE float block_dot_naive(const uint8_t* w, int64_t K, int64_t j, const int8_t* q, const GroupScale* scales) {
  float sum = 0, low = 0;
  for (int64_t b = 0; b < K / 32; b++) {
    int32_t product = 0;
    for (int e = 0; e < 32; e++) {
      int32_t v = F::integer(w, K, j, b * 32 + e);
      __asm__("" : "+r"(v));  // GCC 12 would make unsigned bytes of negative integers here (vpdpbusd)
      product += v * q[b * 32 + e];
    }
    float d = scale_at<F>(F::scale(w, K, j, b * 32));
    sum = madd((float)product, d * scales[b].d, sum);
    if (F::minimum != 0) low = madd(minimum_of<F>(d, scale_at<F>(F::lowest(w, K, j, b * 32))), scales[b].s, low);
  }
  return F::minimum != 0 ? sum + low : sum;
}

// The twin: one output at a time.
template <class F, class O> void block_matmul_naive(const slots::BlockProduct<O>& g, int32_t tid, int32_t) {
  int64_t M = g.M, N = g.N, K = g.K;
  if (tid) return;
  Rounded x = rounded_at(g.shared, M * g.batches, K);
  for (int64_t t = 0; t < g.batches * M; t++)
    for (int64_t j = 0; j < N; j++) {
      const uint8_t* w = g.w + t / M / g.repeat * F::size(N, K);
      float sum = block_dot_naive<F>(w, K, j, x.q + t * K, x.scales + t * (K / 32));
      store(g.c + t / M * g.c_batch + t % M * g.c_row + j * g.c_column, sum);
    }
}

// What an integer stands for, less its zero.
template <class F> INLINE float number(float d, int32_t v, float lowest) {
  if (F::minimum == 2) return d * ((float)v - lowest);
  return F::minimum != 0 ? madd(d, (float)v, lowest) : d * (float)v;
}

// The 32 numbers of row m from column k on, as floats.
template <class F> INLINE void widen_block(const uint8_t* w, int64_t K, int64_t m, int64_t k, float* y) {
  float d = scale_at<F>(F::scale(w, K, m, k)), lowest = F::minimum != 0 ? scale_at<F>(F::lowest(w, K, m, k)) : 0.0f;
  if (F::plain && F::bits == 4) {
    const uint8_t* body = w + (m * K + k) / 32 * F::bytes + F::head;
    for (int i = 0; i < 16; i++) {
      y[i] = number<F>(d, (body[i] & 15) - F::zero, lowest);
      y[i + 16] = number<F>(d, (body[i] >> 4) - F::zero, lowest);
    }
  } else {
    for (int i = 0; i < 32; i++) y[i] = number<F>(d, F::integer(w, K, m, k + i), lowest);
  }
}

template <class F, class X, class O> void block_exact(const slots::Product<X, uint8_t, O>& g, int32_t tid, int32_t nt) {
  int64_t N = g.N, K = g.K;
  float* row = (float*)g.scratch;
  Share s = share(N * g.batches, tid, nt);
  for (int64_t at = s.begin; at < s.end; at++) {
    int64_t b = at / N, j = at % N;
    const uint8_t* w = g.w + b / g.repeat * F::size(N, K);
    for (int64_t k = 0; k < K; k += 32) widen_block<F>(w, K, j, k, row + k);
    dot_rows<1>(g.x + b * g.x_batch, g.x_row, row, K, K, g.c + b * g.c_batch + j * g.c_column, g.c_row, g.c_column, g.M);
  }
}

template <class F, class T> void dequantize(const slots::Dequantize<T>& g, int32_t tid, int32_t nt) {
  int64_t cols = g.cols;
  Share s = share(g.valid, tid, nt);
  for (int64_t r = s.begin; r < s.end; r++)
    for (int64_t k = 0; k < cols; k += 32) {
      float part[32];
      widen_block<F>(g.x, cols, r, k, part);
      T* y = g.y + r * cols + k;
      for (int i = 0; i < 32; i += 8) store8(y + i, load8(part + i));
    }
}

// Integer products alone, through the tiles of the fast paths.
template <class F> void block_integers(const slots::BlockIntegers& g, int32_t tid, int32_t) {
  int64_t N = g.N, K = g.K, groups = K / 32;
  const int8_t* q = g.q;
  if (tid) return;
  for (int64_t j = 0; j < N; j += TILE)
    for (int64_t b = 0; b < groups; b++) {
      uint8_t tile[TILE * F::bytes];
      int64_t rows = N - j < TILE ? N - j : TILE;
      pack_block<F>(g.w, K, j, 32 * b, rows, tile);
      GroupScale s = {0, 0, 0};
      for (int i = 0; i < 32; i++) s.sum += q[32 * b + i];
      int32_t lanes[TILE];
#if defined(__AVX2__) && !defined(IRON_AVX512)
      i32x8 half[2];
      for (int h = 0; h < 2; h++) half_products<F, 1>(tile + TILE * F::head + 32 * h, One{q + 32 * b, &s}, half + h);
      memcpy(lanes, half, sizeof lanes);
#else
      Ints p[1];
      products<F, 1>(tile + TILE * F::head, One{q + 32 * b, &s}, p);
      memcpy(lanes, p, sizeof lanes);
#endif
      for (int64_t r = 0; r < rows; r++) g.products[(j + r) * groups + b] = lanes[r];
    }
}

}  // namespace iron
