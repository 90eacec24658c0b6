// Products with block-quantised weights: blocks of 32 numbers, each with a scale (and a minimum) in front.
//
// quantize_rows (rounded.h) rounds M rows of X into `shared`; block_matmul, the next step, multiplies them from there. Its W is
// in tiles or, not in_tiles, as the file has it; then its scratch begins with TILES tiles. Behind them are as many opened ones, for many
// rows (opened.h). block_exact takes X as it is and has K floats of
// scratch. All three have the slots' meaning in matmul.h. block_integers, for tests: the int32 product of each block with int8 q.
//
// Tiles, and the order of additions that all keep: tile.h.
#pragma once
#include "opened.h"

namespace iron {

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
  if constexpr (is_super<F>(0)) {
    Super<F>::pack_tile(w, K, m, rows, tile);
  } else {
    if (rows < TILE) memset(tile, 0, TILE * row_bytes<F>(K));
    for (int64_t k = 0; k < K; k += 32, tile += TILE * F::bytes) pack_block<F>(w, K, m, k, rows, tile);
  }
}

// The tile from row m on of a matrix of M rows, made in `tile`.
template <class F> INLINE const uint8_t* made(const uint8_t* w, int64_t M, int64_t K, int64_t m, uint8_t* tile) {
  pack_tile<F>(w, K, m, M - m < TILE ? M - m : TILE, tile);
  return tile;
}

template <class F> void pack_blocks(const slots::PackBlocks& g, int32_t tid, int32_t nt) {
  int64_t N = g.N, K = g.K, tiles = (N + TILE - 1) / TILE;
  Share s = share(tiles * g.matrices, tid, nt);
  for (int64_t t = s.begin; t < s.end; t++) {
    int64_t m = t % tiles * TILE, rows = N - m < TILE ? N - m : TILE;
    pack_tile<F>(g.w + t / tiles * F::size(N, K), K, m, rows, g.tiles + t * TILE * row_bytes<F>(K));
  }
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

// Rows of X: for whom tiles are not made, and who take longer to read the next tiles than to multiply these.
enum { FEW = 2, SOME = 16 };

// ROWS of X meet tiles at once; `x_rows`: so many meet all tiles of a part before the next ones do, 0 for all.
template <class F, class O, int ROWS = MOST> void block_matmul(const slots::BlockProduct<O>& g, int32_t tid, int32_t nt) {
  int64_t M = g.M, N = g.N, K = g.K, cm = g.c_row, cn = g.c_column, ldw = row_bytes<F>(K), batches = g.batches;
  int64_t tiles = (N + TILE - 1) / TILE, pass = g.x_rows && g.in_tiles ? g.x_rows : M;
  Rounded x = rounded_at(g.shared, M * batches, K);
  Share s = share(tiles * batches, tid, nt, M > 1 ? TILES : 1);
  for (int64_t first = 0; first < M; first += pass) {
    int64_t end = first + pass < M ? first + pass : M;
    for (int64_t t = s.begin, many; t < s.end; t += many) {
      int64_t b = t / tiles, j = t % tiles * TILE, outputs = N - j, matrix = b / g.repeat;
      O* c = g.c + b * g.c_batch + j * cn;
      many = t + 1 < s.end && outputs > TILE ? TILES : 1;
      const uint8_t* w[TILES];
#if defined(IRON_FOUR_ROWS)
      if (!g.in_tiles && is_plain<F>() && M <= FEW && outputs >= TILE) {
        many = 1;
        for (int64_t r = 0; r < TILE; r += 4)
          for (int64_t m = 0; m < M; m++) {
            int64_t at = b * M + m;
            if constexpr (is_plain<F>())
              four_rows<F>(g.w + (matrix * N + j + r) * ldw, ldw, x.q + at * K, x.scales + at * (K / 32), K / 32, c + m * cm + r * cn, cn);
          }
        continue;
      }
#endif
      for (int64_t i = 0; i < TILES; i++) {
        int64_t at = i < many ? j + i * TILE : j;
        if (g.in_tiles) w[i] = g.w + (matrix * tiles * TILE + at) * ldw;
        else if (i < many) w[i] = made<F>(g.w + matrix * F::size(N, K), N, K, at, (uint8_t*)g.scratch + i * TILE * ldw);
        else w[i] = w[0];
      }
      int64_t from = first;
#if defined(IRON_AVX512)
      if constexpr (is_super<F>(0)) {
        if (end - first >= Opened<F>::FROM) {
          int64_t size = Opened<F>::bytes(K);
          uint8_t* opened = (uint8_t*)g.scratch + (g.in_tiles ? 0 : (TILES * TILE * ldw + 63) & ~63LL);
          for (int64_t i = 0; i < many; i++) Opened<F>::open(w[i], K, opened + i * size);
          for (; from + ROWS <= end; from += ROWS) {
            Outputs<O> out{c + from * cm, cm, cn, outputs, many > 1 ? TILE : 0};
            Opened<F>::template meet<ROWS>(opened, many > 1 ? size : 0, in_order(x, b * M + from), K / 32, out);
          }
        }
      }
#endif
      int64_t asked = g.in_tiles && M <= SOME ? many * TILE * ldw : 0;  // the tiles that are next
      by_rows<ROWS>(from, end, [&](auto count, int64_t m) {
        Outputs<O> out{c + m * cm, cm, cn, outputs, many > 1 ? TILE : 0};
        enum { MT = decltype(count)::rows };
        Ahead ahead = M == 1 ? ahead_of(g.ahead, K / 32) : ahead_of(asked, K / 32, first, end, m, MT);
        tiles_rows<F, MT>(w, in_order(x, b * M + m), K / 32, out, ahead);
      });
    }
  }
}

// Row j of W, as the file has it, times a row of X, in the order all keep.
template <class F> INLINE float plain_dot_naive(const uint8_t* w, int64_t K, int64_t j, const int8_t* q, const GroupScale* scales) {
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

template <class F> INLINE float block_dot_naive(const uint8_t* w, int64_t K, int64_t j, const int8_t* q, const GroupScale* scales) {
  if constexpr (is_super<F>(0)) return Super<F>::dot_naive(w, K, j, q, scales);
  else return plain_dot_naive<F>(w, K, j, q, scales);
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
template <class F> INLINE void widen_plain(const uint8_t* w, int64_t K, int64_t m, int64_t k, float* y) {
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

template <class F> INLINE void widen_block(const uint8_t* w, int64_t K, int64_t m, int64_t k, float* y) {
  if constexpr (is_super<F>(0)) Super<F>::widen(w, K, m, k, y);
  else widen_plain<F>(w, K, m, k, y);
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
#if defined(IRON_AVX512)
      Ints w[1][8], p[1];
      unpack<F>(tile + TILE * F::head, w[0]);
      products<F, 1>(w, q + 32 * b, s.sum, p);
      memcpy(lanes, p, sizeof lanes);
#elif defined(__AVX2__)
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
