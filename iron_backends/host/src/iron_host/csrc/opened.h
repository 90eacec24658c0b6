// Tiles of superblocks.h taken apart, for so many rows of X that doing it once pays: a byte a code, scales and minima as float32 (AVX-512).
//
// Of every 32 columns: for each of their GROUPS the 16 scales, each as a product has it, then for each the 16 minima where there are any, then
// the codes as unsigned bytes, BIAS more than what is multiplied: 8 vectors, of four columns each. It is made in scratch, where the next
// rows of X find it in a cache, and one output is what superblocks.h makes it, bit for bit. Nibbles and bytes that a scale follows every
// 32 numbers are taken apart each time: they gain nothing.
#pragma once
#include "tile.h"

namespace iron {

#if defined(IRON_AVX512)
template <class F> struct Opened {
  enum {
    FROM = 32,  // so many rows pay for it
    GROUPS = 32 / F::group, BIAS = F::table != 0 ? 128 : F::zero, HEADS = GROUPS * (F::minimum != 0 ? 2 : 1), STRIDE = 64 * (HEADS + 8),
  };

  INLINE int64_t bytes(int64_t K) { return K / 32 * STRIDE; }

  // A tile of K columns into bytes(K) bytes.
  INLINE void open(const uint8_t* tile, int64_t K, uint8_t* to) {
    typedef Super<F> From;
    for (int64_t k = 0; k < K; k += F::columns) {
      f32xw d = From::d_at(tile, 0), less = From::low_at(tile, 0);
      tile += TILE * From::HEAD;
      for (int g = 0; g < F::columns / 32; g++, tile += TILE * From::PART, to += STRIDE) {
        for (int h = 0; h < GROUPS; h++) {
          const uint8_t* beside = tile + TILE * From::EACH * h;
          storew((float*)to + TILE * h, From::scale_of(d, beside));
          if (F::minimum != 0) storew((float*)to + TILE * (GROUPS + h), From::minimum_of_group(less, beside));
        }
        for (int c = 0; c < 8; c++) *(i32x16_at*)(to + 64 * (HEADS + c)) = From::biased(tile + TILE * GROUPS * From::EACH, c);
      }
    }
  }

  INLINE Ints four_of(const int8_t* q) { int32_t x; memcpy(&x, q, 4); return Ints{} + x; }

  // Two opened tiles, the second `apart` bytes behind the first, against MT rows of X, as tile_rows().
  template <int MT, class R, class Out> INLINE void meet(const uint8_t* at, int64_t apart, R rows, int64_t groups, Out out) {
    enum { NT = 2, CHUNKS = 8 / GROUPS };
    f32xw total[NT][MT], low[NT][MT];
    for (int t = 0; t < NT; t++)
      for (int i = 0; i < MT; i++) total[t][i] = low[t][i] = f32xw{};
    for (int64_t b = 0; b < groups; b++, at += STRIDE) {
      auto x = rows.at(b);
      for (int h = 0; h < GROUPS; h++) {
        auto codes = [&](int t, int c) { return *(const i32x16_at*)(at + t * apart + 64 * (HEADS + CHUNKS * h + c)); };
        auto head = [&](int t, int n) { return loadw((const float*)(at + t * apart) + TILE * n); };
        Ints p[NT][MT];
        for (int i = 0; i < MT; i++) p[0][i] = p[1][i] = BIAS != 0 ? Ints{} - BIAS * Super<F>::sum(x.scale(i), h) : Ints{};
        if constexpr (GROUPS == 1) {  // a vector of codes meets all rows: their sums are in registers
          for (int c = 0; c < CHUNKS; c++) {
            Ints w[NT] = {codes(0, c), codes(1, c)};
            for (int i = 0; i < MT; i++) {
              Ints four = four_of(x.q(i) + 4 * c);
              for (int t = 0; t < NT; t++) p[t][i] = x86::add_dots(p[t][i], w[t], four);
            }
          }
        } else {  // a row meets all codes: so few are in registers
          Ints w[NT][CHUNKS];
          for (int c = 0; c < CHUNKS; c++) w[0][c] = codes(0, c), w[1][c] = codes(1, c);
          for (int i = 0; i < MT; i++)
            for (int c = 0; c < CHUNKS; c++) {
              Ints four = four_of(x.q(i) + 4 * (CHUNKS * h + c));
              for (int t = 0; t < NT; t++) p[t][i] = x86::add_dots(p[t][i], w[t][c], four);
            }
        }
        for (int i = 0; i < MT; i++) {
          f32xw d = splatw(x.scale(i).d), s = F::minimum != 0 ? splatw(Super<F>::scaled_sum(x.scale(i), h)) : f32xw{};
          for (int t = 0; t < NT; t++) {
            total[t][i] = maddw(__builtin_convertvector(p[t][i], f32xw), head(t, h) * d, total[t][i]);
            if (F::minimum != 0) low[t][i] = maddw(head(t, GROUPS + h), s, low[t][i]);
          }
        }
      }
    }
    for (int t = 0; t < NT && (t == 0 || out.apart != 0); t++)
      for (int i = 0; i < MT; i++) {
        f32x8 half[2];
        f32xw all = F::minimum != 0 ? total[t][i] + low[t][i] : total[t][i];
        memcpy(half, &all, 64);
        out.tile(t).put(i, half[0], half[1]);
      }
  }
};
#endif

}  // namespace iron
