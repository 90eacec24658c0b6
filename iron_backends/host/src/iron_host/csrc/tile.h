// A tile of a matrix against rows of X: what all products with block-quantised weights are made of (blocks.h, experts.h).
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

// One with `columns` reads blocks otherwise: Super<F> of superblocks.h has its tiles and what is done with them.
template <class F> struct Super;
template <class> constexpr bool is_super(...) { return false; }
template <class F, int = F::columns> constexpr bool is_super(int) { return true; }

template <class F> constexpr bool is_plain() {
  if constexpr (is_super<F>(0)) return false;
  else return F::plain != 0;
}

// Bytes of a row of K numbers in a tile.
template <class F> INLINE int64_t row_bytes(int64_t K) {
  if constexpr (is_super<F>(0)) return K / F::columns * Super<F>::BYTES;
  else return K / 32 * F::bytes;
}

// Rows of a tile, and bytes of one column of four times the rows.
enum { TILE = 16, CHUNK = 4 * TILE };

template <class F> INLINE const typename F::Scale* scales_at(const uint8_t* p) { return (const typename F::Scale*)p; }
template <class F> INLINE float scale_at(const uint8_t* p, int64_t i = 0) { return at<typename F::Scale>(p, i); }

// The minimum of a block with scale d and this behind it.
template <class F, class V> INLINE V minimum_of(V d, V behind) { return F::minimum == 2 ? -(d * behind) : behind; }

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

// Integer products of one block of a tile; the integers of a Q4_0 less 8.
#if defined(IRON_AVX512)
typedef i32x16 Ints;  // 16 int32, a lane for each row of the tile
enum { TILES = 2 };  // tiles that rows meet at once

// The integers as unsigned bytes: four columns a vector.
template <class F> INLINE void unpack(const uint8_t* body, Ints* w) {
  for (int c = 0; c < F::bits; c++) {
    Ints v = *(const i32x16_at*)(body + CHUNK * c);
    if (F::bits == 8) {
      w[c] = v ^ (int32_t)0x80808080;
    } else {
      w[c] = v & 0x0f0f0f0f;
      w[c + 4] = (Ints)((u16x32)v >> 4) & 0x0f0f0f0f;
    }
  }
}

// Of NT tiles with one row of X, which is read once. Four bytes go from memory into all lanes; from a register takes a port that
// multiplies.
template <class F, int NT> INLINE void products(const Ints (*w)[8], const int8_t* q, int32_t sum, Ints* p) {
  enum { BIAS = F::bits == 8 ? 128 : F::zero };  // what unpack() has added
  Ints none = {}, even[NT], odd[NT];
  for (int t = 0; t < NT; t++) even[t] = BIAS != 0 ? none - BIAS * sum : none, odd[t] = none;
  for (int c = 0; c < 8; c++) {
    int32_t x;
    memcpy(&x, q + 4 * c, 4);
    Ints four = none + x;
    for (int t = 0; t < NT; t++) (c % 2 ? odd : even)[t] = x86::add_dots((c % 2 ? odd : even)[t], w[t][c], four);
  }
  for (int t = 0; t < NT; t++) p[t] = even[t] + odd[t];
}
#elif defined(__AVX2__)
enum { TILES = 1 };
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
enum { TILES = 1 };
struct Ints { int32_t lane[TILE]; };

#if defined(IRON_SDOT)
INLINE i32x4 four_of(const int8_t* q) { int32_t x; memcpy(&x, q, 4); return i32x4{} + x; }

template <class F, int MT, class R> INLINE void products(const uint8_t* body, R rows, Ints* p) {
  for (int i = 0; i < MT; i++) {
    i32x4 sums[TILE / 4];
    for (int r = 0; r < TILE / 4; r++) sums[r] = i32x4{} - F::zero * rows.scale(i).sum;
    for (int c = 0; c < F::bits; c++) {
      i32x4 low = four_of(rows.q(i) + 4 * c), high = F::bits == 4 ? four_of(rows.q(i) + 16 + 4 * c) : low;
      for (int r = 0; r < TILE / 4; r++) {
        i32x4 v = *(const i32x4_at*)(body + CHUNK * c + 16 * r);
        if (F::bits == 8) sums[r] = neon::add_dots(sums[r], v, low);
        else sums[r] = neon::add_dots(neon::add_dots(sums[r], v & 0x0f0f0f0f, low), v >> 4 & 0x0f0f0f0f, high);
      }
    }
    memcpy(p[i].lane, sums, sizeof sums);
  }
}
#else
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
#endif

// The 16 outputs of a tile for one row of X, as floats in two halves; `n` of them, or more, exist.
template <class O> INLINE void put(O* c, int64_t cn, int64_t n, f32x8 first, f32x8 second) {
  if (cn == 1 && n >= TILE) {
    store8(c, first);
    store8(c + 8, second);
    return;
  }
  for (int64_t j = 0; j < n && j < TILE; j++) store(c + j * cn, j < 8 ? first[j] : second[j - 8]);
}

// Where the outputs of tiles go, each an `apart` behind the one before: `n` of them for each row of X, `cm` from one row's to the next's.
template <class O> struct Outputs {
  O* c;
  int64_t cm, cn, n, apart;
  MEMBER Outputs tile(int t) const { return Outputs{c + t * apart * cn, cm, cn, n - t * apart, apart}; }
  MEMBER void put(int i, f32x8 first, f32x8 second) const { iron::put(c + i * cm, cn, n, first, second); }
};

// What is asked for meanwhile: as much as a block of a tile, `bytes` from it on, at blocks `begin` to `end`.
struct Ahead {
  int64_t bytes, begin, end;
};
template <class F> INLINE void ask(const uint8_t* tile, int64_t b, Ahead ahead) {
  if (b >= ahead.begin && b < ahead.end)
    for (int64_t i = 0; i < TILE * F::bytes; i += 64) __builtin_prefetch(tile + ahead.bytes + i, 0, 2);
}

// NT tiles, one where there is no AVX-512, against MT rows of X: out.tile(t).put(i, first, second) takes what row i gives.
template <class F, int MT, int NT, class R, class Out>
INLINE void tile_rows(const uint8_t* const* tiles, R rows, int64_t groups, Out out, Ahead ahead) {
#if defined(IRON_AVX512)
  enum { SIZE = TILE * F::bytes, AFTER = MT * NT > 4 };  // so many sums leave no registers for minima: they pass after the integers
  f32xw sum[NT][MT], low[NT][MT];
  for (int t = 0; t < NT; t++)
    for (int i = 0; i < MT; i++) sum[t][i] = low[t][i] = f32xw{};
  auto minima = [&](int64_t b) {
    f32xw minimum[NT];
    for (int t = 0; t < NT; t++) {
      const typename F::Scale* head = scales_at<F>(tiles[t] + b * SIZE);
      minimum[t] = minimum_of<F>(loadw(head), loadw(head + TILE));
    }
    for (int i = 0; i < MT; i++)
      for (int t = 0; t < NT; t++) low[t][i] = maddw(minimum[t], splatw(rows.at(b).scale(i).s), low[t][i]);
  };
  for (int64_t b = 0; b < groups; b++) {
    Ints w[NT][8], p[NT];
    f32xw d[NT];
    for (int t = 0; t < NT; t++) {
      const uint8_t* tile = tiles[t] + b * SIZE;
      ask<F>(tile, b, ahead);
      unpack<F>(tile + TILE * F::head, w[t]);
      d[t] = loadw(scales_at<F>(tile));
    }
    for (int i = 0; i < MT; i++) {
      auto row = rows.at(b);
      products<F, NT>(w, row.q(i), row.scale(i).sum, p);
      for (int t = 0; t < NT; t++)
        sum[t][i] = maddw(__builtin_convertvector(p[t], f32xw), d[t] * splatw(row.scale(i).d), sum[t][i]);
    }
    if (F::minimum != 0 && !AFTER) minima(b);
  }
  if (F::minimum != 0 && AFTER)
    for (int64_t b = 0; b < groups; b++) minima(b);
  for (int t = 0; t < NT; t++)
    for (int i = 0; i < MT; i++) {
      f32x8 half[2];
      f32xw all = F::minimum != 0 ? sum[t][i] + low[t][i] : sum[t][i];
      memcpy(half, &all, 64);
      out.tile(t).put(i, half[0], half[1]);
    }
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
  // A row of X passes both halves of the tile at once, so that memory is read in order; more rows leave no registers for it.
  enum { HALVES = MT == 1 ? 2 : 1 };
  f32x8 all[MT][2];
  for (int h0 = 0; h0 < 2; h0 += HALVES) {
    const uint8_t* at = tiles[0];
    f32x8 sum[HALVES][MT], low[HALVES][MT];
    for (int h = 0; h < HALVES; h++)
      for (int i = 0; i < MT; i++) sum[h][i] = low[h][i] = f32x8{};
    for (int64_t b = 0; b < groups; b++, at += TILE * F::bytes) {
      ask<F>(at, b, ahead);
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
    const uint8_t* at = tiles[0];
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

// Tiles against MT rows of X, as many together as rows meet at once. Outputs that are not `apart`: of the first tile, whatever the others.
template <class F, int MT, int NT, class R, class Out>
INLINE void tiles_rows(const uint8_t* const (&tiles)[NT], R rows, int64_t groups, Out out, Ahead ahead) {
  if constexpr (is_super<F>(0)) {
    for (int t = 0; t < NT && (t == 0 || out.apart != 0); t++) Super<F>::template rows<MT>(tiles[t], rows, groups, out.tile(t), MT == 1 && ahead.end ? ahead.bytes : 0);
  } else if constexpr (MT > 1 && NT == TILES) {
    tile_rows<F, MT, NT>(tiles, rows, groups, out, ahead);
  } else {
    for (int t = 0; t < NT && (t == 0 || out.apart != 0); t++) tile_rows<F, MT, 1>(tiles + t, rows, groups, out.tile(t), ahead);
  }
}

// So many rows meet a tile at once.
enum { MOST = 4 };

// One row of X passes a tile of so many `groups` as memory gives it, `bytes` ahead, 0 for none.
INLINE Ahead ahead_of(int64_t bytes, int64_t groups) { return Ahead{bytes, 0, bytes ? groups : 0}; }
// Of rows from `first` to `end`, MT from row m on have their part of a tile asked for that is `next` bytes from theirs.
INLINE Ahead ahead_of(int64_t next, int64_t groups, int64_t first, int64_t end, int64_t m, int MT) {
  return Ahead{next, groups * (m - first) / (end - first), groups * (m - first + MT) / (end - first)};
}

// call(Count<n>, m) for rows m to `end`: ROWS at once, of what is left four, and then few or one by one.
template <int N> struct Count { enum { rows = N }; };
template <int ROWS, class Call> INLINE void by_rows(int64_t m, int64_t end, Call call) {
  for (; m + ROWS <= end; m += ROWS) call(Count<ROWS>{}, m);
  if constexpr (ROWS > 4)
    for (; m + 4 <= end; m += 4) call(Count<4>{}, m);
  if constexpr (TILES > 1) {
    if (end - m == 3) return call(Count<3>{}, m);
    if (end - m == 2) return call(Count<2>{}, m);
  }
  for (; m < end; m++) call(Count<1>{}, m);
}

}  // namespace iron
