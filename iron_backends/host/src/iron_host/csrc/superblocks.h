// Products with GGUF's other blocks as they are stored: K-quants, whose scales are integers with a scale, five bits, places in a table.
//
// A format is a struct F that reads one block b, `columns` numbers of a row in `stored` bytes. A number is d * scale * (code - zero), or
// d * scale * table[code] (`table` 1 or 2), and a code has `bits` bits. With `scaled` every `group` numbers (16 or 32) have an integer
// F::scale(b, h), else scale is 1. d is float16 at byte `d`, or of `power` 2^(e - 128), e the byte there. `minimum` 1: and so much more,
// the float16 at byte `low`; 2: less so much times F::lowest(b, h), an integer. F::codes(b, g, c) are the codes of 32 numbers.
//
// A tile is 16 rows of W side by side. For every block: the 16 d, the 16 of `low`; then for every 32 columns the 16 scales and the 16
// lowest of each group, a byte each (`nibbles`: both in one), and the codes, planes of 1, 2 and 4 of their bits, the highest bits first:
// in the order in which they are needed, for memory that is not read in order comes at half the rate.
// A lane of 32 bits is an output. Byte e of it has in the plane of 4 the codes of columns 4 c + e and 16 + 4 c + e, c the number of the
// vector; in that of 2 columns 16 j + e, 4 + 16 j + e and so on, j the number; in that of 1 columns e, 4 + e, 8 + e to 28 + e.
//
// One output: groups in order; a group's integer product is exact, d * scale too, and sum = fma(product, (d * scale) * scale of X, sum);
// low = fma(minimum, scale of X * sum of the group's X, low); sum + low at the end. So every path and the twin agree bit for bit.
#pragma once
#include "blocks.h"

namespace iron {

// 32 codes from nibbles in which number i is in the low half of byte i, i + 16 in the high; from 32 bytes that have them from bit `up` on.
INLINE void halves_codes(const uint8_t* p, uint8_t* c) {
  for (int i = 0; i < 16; i++) c[i] = p[i] & 15, c[i + 16] = p[i] >> 4;
}
INLINE void shifted_codes(const uint8_t* p, int up, int mask, uint8_t* c) {
  for (int i = 0; i < 32; i++) c[i] = p[i] >> up & mask;
}
// One more bit of each, `place` of the code: bit i of 32; bit g of byte i.
INLINE void more_bits(const uint8_t* p, int place, uint8_t* c) {
  uint32_t all;
  memcpy(&all, p, 4);
  for (int i = 0; i < 32; i++) c[i] |= (all >> i & 1) << place;
}
INLINE void more_bits_at(const uint8_t* p, int g, int mask, int place, uint8_t* c) {
  for (int i = 0; i < 32; i++) c[i] |= (p[i] >> g & mask) << place;
}
// Of eight scales and eight lowest of 6 bits in 12 bytes (Q4_K, Q5_K), number h.
INLINE int32_t six_bits(const uint8_t* p, int h) { return h < 4 ? p[h] & 63 : (p[h + 4] & 15) | p[h - 4] >> 6 << 4; }
INLINE int32_t six_bits_low(const uint8_t* p, int h) { return h < 4 ? p[h + 4] & 63 : p[h + 4] >> 4 | p[h] >> 6 << 4; }

// Rows of blocks, one after another: `size` bytes of a matrix.
template <int COLUMNS, int STORED> struct RowsOf {
  enum { columns = COLUMNS, stored = STORED };
  INLINE int64_t size(int64_t M, int64_t K) { return M * (K / COLUMNS) * STORED; }
};

struct Q5_0 : RowsOf<32, 22> {
  enum { d = 0, low = 0, power = 0, group = 32, bits = 5, zero = 16, table = 0, scaled = 0, minimum = 0, nibbles = 0 };
  INLINE void codes(const uint8_t* b, int, uint8_t* c) { halves_codes(b + 6, c), more_bits(b + 2, 4, c); }
  INLINE int32_t scale(const uint8_t*, int) { return 1; }
  INLINE int32_t lowest(const uint8_t*, int) { return 0; }
};
struct Q5_1 : RowsOf<32, 24> {
  enum { d = 0, low = 2, power = 0, group = 32, bits = 5, zero = 0, table = 0, scaled = 0, minimum = 1, nibbles = 0 };
  INLINE void codes(const uint8_t* b, int, uint8_t* c) { halves_codes(b + 8, c), more_bits(b + 4, 4, c); }
  INLINE int32_t scale(const uint8_t*, int) { return 1; }
  INLINE int32_t lowest(const uint8_t*, int) { return 1; }
};
struct Q2_K : RowsOf<256, 84> {
  enum { d = 80, low = 82, power = 0, group = 16, bits = 2, zero = 0, table = 0, scaled = 1, minimum = 2, nibbles = 1 };
  INLINE void codes(const uint8_t* b, int g, uint8_t* c) { shifted_codes(b + 16 + g / 4 * 32, g % 4 * 2, 3, c); }
  INLINE int32_t scale(const uint8_t* b, int h) { return b[h] & 15; }
  INLINE int32_t lowest(const uint8_t* b, int h) { return b[h] >> 4; }
};
struct Q3_K : RowsOf<256, 110> {
  enum { d = 108, low = 0, power = 0, group = 16, bits = 3, zero = 4, table = 0, scaled = 1, minimum = 0, nibbles = 0 };
  INLINE void codes(const uint8_t* b, int g, uint8_t* c) { shifted_codes(b + 32 + g / 4 * 32, g % 4 * 2, 3, c), more_bits_at(b, g, 1, 2, c); }
  INLINE int32_t scale(const uint8_t* b, int h) {
    return (int32_t)((h < 8 ? b[96 + h] & 15 : b[88 + h] >> 4) | (b[104 + h % 4] >> h / 4 * 2 & 3) << 4) - 32;
  }
  INLINE int32_t lowest(const uint8_t*, int) { return 0; }
};
struct Q4_K : RowsOf<256, 144> {
  enum { d = 0, low = 2, power = 0, group = 32, bits = 4, zero = 0, table = 0, scaled = 1, minimum = 2, nibbles = 0 };
  INLINE void codes(const uint8_t* b, int g, uint8_t* c) { shifted_codes(b + 16 + g / 2 * 32, g % 2 * 4, 15, c); }
  INLINE int32_t scale(const uint8_t* b, int h) { return six_bits(b + 4, h); }
  INLINE int32_t lowest(const uint8_t* b, int h) { return six_bits_low(b + 4, h); }
};
struct Q5_K : RowsOf<256, 176> {
  enum { d = 0, low = 2, power = 0, group = 32, bits = 5, zero = 0, table = 0, scaled = 1, minimum = 2, nibbles = 0 };
  INLINE void codes(const uint8_t* b, int g, uint8_t* c) { shifted_codes(b + 48 + g / 2 * 32, g % 2 * 4, 15, c), more_bits_at(b + 16, g, 1, 4, c); }
  INLINE int32_t scale(const uint8_t* b, int h) { return six_bits(b + 4, h); }
  INLINE int32_t lowest(const uint8_t* b, int h) { return six_bits_low(b + 4, h); }
};
struct Q6_K : RowsOf<256, 210> {
  enum { d = 208, low = 0, power = 0, group = 16, bits = 6, zero = 32, table = 0, scaled = 1, minimum = 0, nibbles = 0 };
  INLINE void codes(const uint8_t* b, int g, uint8_t* c) {
    int half = g / 4, part = g % 4;
    shifted_codes(b + 64 * half + part % 2 * 32, part / 2 * 4, 15, c), more_bits_at(b + 128 + 32 * half, 2 * part, 3, 4, c);
  }
  INLINE int32_t scale(const uint8_t* b, int h) { return (int8_t)b[192 + h]; }
  INLINE int32_t lowest(const uint8_t*, int) { return 0; }
};
struct IQ4_NL : RowsOf<32, 18> {
  enum { d = 0, low = 0, power = 0, group = 32, bits = 4, zero = 0, table = 1, scaled = 0, minimum = 0, nibbles = 0 };
  INLINE void codes(const uint8_t* b, int, uint8_t* c) { halves_codes(b + 2, c); }
  INLINE int32_t scale(const uint8_t*, int) { return 1; }
  INLINE int32_t lowest(const uint8_t*, int) { return 0; }
};
struct IQ4_XS : RowsOf<256, 136> {
  enum { d = 0, low = 0, power = 0, group = 32, bits = 4, zero = 0, table = 1, scaled = 1, minimum = 0, nibbles = 0 };
  INLINE void codes(const uint8_t* b, int g, uint8_t* c) { halves_codes(b + 8 + 16 * g, c); }
  INLINE int32_t scale(const uint8_t* b, int h) {
    return (int32_t)((b[4 + h / 2] >> h % 2 * 4 & 15) | (b[2 + h / 4] >> h % 4 * 2 & 3) << 4) - 32;
  }
  INLINE int32_t lowest(const uint8_t*, int) { return 0; }
};
struct MXFP4 : RowsOf<32, 17> {
  enum { d = 0, low = 0, power = 1, group = 32, bits = 4, zero = 0, table = 2, scaled = 0, minimum = 0, nibbles = 0 };
  INLINE void codes(const uint8_t* b, int, uint8_t* c) { halves_codes(b + 1, c); }
  INLINE int32_t scale(const uint8_t*, int) { return 1; }
  INLINE int32_t lowest(const uint8_t*, int) { return 0; }
};

// The numbers of tables 1 (IQ4_NL, IQ4_XS) and 2 (MXFP4, twice each).
INLINE const int8_t* table_of(int which) {
  static const int8_t numbers[2][16] = {
      {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113},
      {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12},
  };
  return numbers[which - 1];
}

// 2^(e - 128) as its bits; down to 2^-127 and 2^-128, which are no normal numbers.
template <class I> INLINE I power_bits(I e) {
  I tiny = e < 2;
  return (tiny & ((e + 1) * 0x00200000)) | (~tiny & ((e - 1) << 23));
}

#if defined(IRON_AVX512)
#define IRON_TILE_LANES 16
typedef i32x16 TileInts;
typedef f32x16 TileFloats;
INLINE TileFloats floats_at(const f16* p) { return loadw(p); }
INLINE TileFloats madd_tile(TileFloats a, TileFloats b, TileFloats c) { return x86::madd(a, b, c); }
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define IRON_TILE_LANES 8
typedef i32x8 TileInts;
typedef f32x8 TileFloats;
INLINE TileFloats floats_at(const f16* p) { return load8(p); }
INLINE TileFloats madd_tile(TileFloats a, TileFloats b, TileFloats c) { return x86::madd(a, b, c); }
#elif defined(IRON_SDOT)
#define IRON_TILE_LANES 4
typedef i32x4 TileInts;
typedef f32x4 TileFloats;
INLINE TileFloats floats_at(const f16* p) { return neon::widened(p); }
INLINE TileFloats madd_tile(TileFloats a, TileFloats b, TileFloats c) { return neon::madd(a, b, c); }
#endif

template <class F> struct Super {
  enum {
    GROUPS = 32 / F::group,                                                       // of 32 columns
    EACH = F::scaled != 0 && F::minimum == 2 && F::nibbles == 0 ? 2 : F::scaled,  // bytes beside the codes of a group
    WIDE = F::power != 0 ? 1 : 2,                                                 // bytes of d
    HEAD = WIDE + (F::minimum != 0 ? 2 : 0),                                      // and of low
    PART = GROUPS * EACH + 4 * F::bits,                                           // bytes of 32 columns of a row
    BYTES = HEAD + F::columns / 32 * PART,                                        // of a block
    PLANE2 = (F::bits & 1) != 0 ? CHUNK : 0, PLANE4 = PLANE2 + ((F::bits & 2) != 0 ? 2 * CHUNK : 0),  // where planes begin, that of 1 at 0
  };

  INLINE const uint8_t* block(const uint8_t* w, int64_t K, int64_t m, int64_t k) { return w + (m * K + k) / F::columns * F::stored; }
  INLINE float d(const uint8_t* b) { return F::power != 0 ? as_float((uint32_t)power_bits(i32x4{b[F::d]})[0]) : at<f16>(b + F::d, 0); }
  INLINE float scale(const uint8_t* b, int h) { return F::scaled != 0 ? d(b) * (float)F::scale(b, h) : d(b); }
  INLINE float minimum(const uint8_t* b, int h) {
    float low = at<f16>(b + F::low, 0);
    return F::minimum == 2 ? -(low * (float)F::lowest(b, h)) : low;
  }
  INLINE int32_t number(int32_t code) { return F::table != 0 ? table_of(F::table != 0 ? F::table : 1)[code] : code - F::zero; }
  // scale * sum of the X of group h of 32.
  INLINE float scaled_sum(const GroupScale& s, int h) { return GROUPS == 1 ? s.s : s.d * (float)sum(s, h); }
  INLINE int32_t sum(const GroupScale& s, int h) { return GROUPS == 1 ? s.sum : h ? s.sum - s.first : s.first; }

  // Rows of a matrix from row m on as one tile; `rows` of them, zeros for the others.
  INLINE void pack_tile(const uint8_t* w, int64_t K, int64_t m, int64_t rows, uint8_t* tile) {
    if (rows < TILE) memset(tile, 0, TILE * (K / F::columns) * BYTES);
    for (int64_t k = 0; k < K; k += F::columns, tile += TILE * BYTES)
      for (int64_t r = 0; r < rows; r++) {
        const uint8_t* b = block(w, K, m + r, k);
        memcpy(tile + WIDE * r, b + F::d, WIDE);
        if (F::minimum != 0) memcpy(tile + WIDE * TILE + 2 * r, b + F::low, 2);
        uint8_t* to = tile + HEAD * TILE;
        for (int g = 0; g < F::columns / 32; g++, to += TILE * PART) {
          for (int h = 0; h < GROUPS; h++) {
            uint8_t* beside = to + TILE * EACH * h + r;
            int32_t scale = F::scale(b, GROUPS * g + h), lowest = F::lowest(b, GROUPS * g + h);
            if (F::scaled != 0) beside[0] = (uint8_t)(F::nibbles != 0 ? scale | lowest << 4 : scale);
            if (EACH == 2) beside[TILE] = (uint8_t)lowest;
          }
          put_codes(b, g, to + TILE * GROUPS * EACH + 4 * r);
        }
      }
  }
  INLINE void put_codes(const uint8_t* b, int g, uint8_t* to) {
    uint32_t c[8], v;
    F::codes(b, g, (uint8_t*)c);
    if ((F::bits & 4) != 0)
      for (int i = 0; i < 4; i++) v = (c[i] & 0x0f0f0f0f) | (c[i + 4] & 0x0f0f0f0f) << 4, memcpy(to + PLANE4 + CHUNK * i, &v, 4);
    if ((F::bits & 2) != 0)
      for (int j = 0; j < 2; j++) {
        v = 0;
        for (int i = 0; i < 4; i++) v |= (c[4 * j + i] >> (F::bits & 4) & 0x03030303) << 2 * i;
        memcpy(to + PLANE2 + CHUNK * j, &v, 4);
      }
    if ((F::bits & 1) != 0) {
      v = 0;
      for (int i = 0; i < 8; i++) v |= (c[i] >> (F::bits & 6) & 0x01010101) << i;
      memcpy(to, &v, 4);
    }
  }

  // The 32 numbers of row m from column k on, as floats.
  INLINE void widen(const uint8_t* w, int64_t K, int64_t m, int64_t k, float* y) {
    const uint8_t* b = block(w, K, m, k);
    uint8_t c[32];
    int g = (int)(k % F::columns / 32);
    F::codes(b, g, c);
    for (int i = 0; i < 32; i++) {
      int h = GROUPS * g + i / F::group;
      float v = scale(b, h) * (float)number(c[i]);
      y[i] = F::minimum != 0 ? v + minimum(b, h) : v;
    }
  }

  // Row j of W, as the file has it, times a row of X, in the order all keep.
  INLINE float dot_naive(const uint8_t* w, int64_t K, int64_t j, const int8_t* q, const GroupScale* scales) {
    float total = 0, low = 0;
    for (int64_t k = 0; k < K; k += 32) {
      const uint8_t* b = block(w, K, j, k);
      const GroupScale& s = scales[k / 32];
      uint8_t c[32];
      int g = (int)(k % F::columns / 32);
      F::codes(b, g, c);
      for (int h = 0; h < GROUPS; h++) {
        int32_t product = 0;
        for (int i = F::group * h; i < F::group * (h + 1); i++) {
          int32_t v = number(c[i]);
          __asm__("" : "+r"(v));  // GCC 12 would make unsigned bytes of negative integers here (vpdpbusd)
          product += v * q[k + i];
        }
        total = madd((float)product, scale(b, GROUPS * g + h) * s.d, total);
        if (F::minimum != 0) low = madd(minimum(b, GROUPS * g + h), scaled_sum(s, h), low);
      }
    }
    return F::minimum != 0 ? total + low : total;
  }

#if defined(IRON_TILE_LANES)
  // Four columns of some rows: their codes. c: columns 4 c on of 32.
  INLINE TileInts codes(const uint8_t* body, int c) {
    TileInts v = {};
    if ((F::bits & 4) != 0) v = plane(body + PLANE4 + CHUNK * (c & 3)) >> (c & 4) & 0x0f0f0f0f;
    if ((F::bits & 2) != 0) v |= moved(plane(body + PLANE2 + CHUNK * (c >> 2)), (F::bits & 4) - 2 * (c & 3)) & 0x03030303 << (F::bits & 4);
    if ((F::bits & 1) != 0) v |= moved(plane(body), (F::bits & 6) - c) & 0x01010101 << (F::bits & 6);
    return v;
  }
  // Up by so many bits, or down: one shift, and what masks it and adds it to the others is one instruction of AVX-512.
  INLINE TileInts moved(TileInts v, int up) { return up < 0 ? v >> -up : v << up; }
#if defined(IRON_AVX512)
  INLINE TileInts plane(const uint8_t* p) { return *(const i32x16_at*)p; }

  // Codes, or numbers of a table, as unsigned bytes.
  INLINE TileInts biased(const uint8_t* body, int c) {
    TileInts v = codes(body, c);
    return F::table != 0 ? x86::looked_up(table(), v) ^ (int32_t)0x80808080 : v;
  }

  // Integer products of group h of 32 columns with MT rows of X.
  template <int MT, class R> INLINE void products(const uint8_t* body, int h, R rows, TileInts* p) {
    enum { CHUNKS = F::group / 4, BIAS = Opened<F>::BIAS };
    TileInts w[CHUNKS], none = {};
    for (int c = 0; c < CHUNKS; c++) w[c] = biased(body, CHUNKS * h + c);
    for (int i = 0; i < MT; i++) {
      TileInts even = BIAS != 0 ? none - BIAS * sum(rows.scale(i), h) : none, odd = none;
      for (int c = 0; c < CHUNKS; c++) {  // four bytes at a time, from memory into all lanes: from a register takes a port that multiplies
        int32_t x;
        memcpy(&x, rows.q(i) + 4 * (CHUNKS * h + c), 4);
        (c % 2 ? odd : even) = x86::add_dots(c % 2 ? odd : even, w[c], none + x);
      }
      p[i] = even + odd;
    }
  }
  INLINE TileInts table() {
    i32x4 four = *(const i32x4_at*)table_of(F::table != 0 ? F::table : 1);
    return __builtin_shufflevector(four, four, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3);
  }
#elif defined(IRON_SDOT)
  INLINE TileInts plane(const uint8_t* p) { return *(const i32x4_at*)p; }

  template <int MT, class R> INLINE void products(const uint8_t* body, int h, R rows, TileInts* p) {
    enum { CHUNKS = F::group / 4 };
    for (int i = 0; i < MT; i++) p[i] = TileInts{} - F::zero * sum(rows.scale(i), h);
    for (int c = CHUNKS * h; c < CHUNKS * (h + 1); c++) {
      TileInts w = codes(body, c);
      if (F::table != 0) w = neon::looked_up(*(const i32x4_at*)table_of(F::table != 0 ? F::table : 1), w);
      for (int i = 0; i < MT; i++) p[i] = neon::add_dots(p[i], w, four_of(rows.q(i) + 4 * c));
    }
  }
#else
  INLINE TileInts plane(const uint8_t* p) { return *(const i32x8_at*)p; }

  template <int MT, class R> INLINE void products(const uint8_t* body, int h, R rows, TileInts* p) {
    // So many products of two codes by int8 fit in an int16.
    enum { CHUNKS = F::group / 4, FIT = F::bits <= 4 ? 8 : F::bits == 5 ? 4 : 2, TOGETHER = F::table != 0 ? 1 : FIT < CHUNKS ? FIT : CHUNKS };
    for (int i = 0; i < MT; i++) p[i] = F::zero != 0 ? TileInts{} - F::zero * sum(rows.scale(i), h) : TileInts{};
#pragma GCC unroll 8
    for (int c0 = CHUNKS * h; c0 < CHUNKS * (h + 1); c0 += TOGETHER) {
      TileInts w[TOGETHER];
      for (int c = 0; c < TOGETHER; c++) {
        w[c] = codes(body, c0 + c);
        if (F::table != 0) w[c] = x86::looked_up(table(), w[c]);
      }
      for (int i = 0; i < MT; i++) {
        u16x16 sums = {};
        for (int c = 0; c < TOGETHER; c++) {
          TileInts x = four_of(rows.q(i) + 4 * (c0 + c));
          sums += (u16x16)(F::table != 0 ? x86::bytes_by(x86::sizes(w[c]), x86::signed_as(x, w[c])) : x86::bytes_by(w[c], x));
        }
        p[i] += x86::halves_added((i32x8)sums);
      }
    }
  }
  INLINE TileInts table() {
    i32x4 four = *(const i32x4_at*)table_of(F::table != 0 ? F::table : 1);
    return x86::joined(four, four);
  }
#endif

  INLINE TileInts bytes_at(const uint8_t* p) {
#if defined(IRON_AVX512)
    return x86::signed_bytes(*(const i32x4_at*)p);
#elif defined(IRON_SDOT)
    int32_t four;
    memcpy(&four, p, 4);
    return neon::signed_bytes(four);
#else
    int64_t eight;
    memcpy(&eight, p, 8);
    return x86::signed_bytes(eight);
#endif
  }
  INLINE TileFloats like(float v) {
#if defined(IRON_AVX512)
    return splatw(v);
#elif defined(IRON_SDOT)
    return TileFloats{v, v, v, v};
#else
    return splat(v);
#endif
  }
  INLINE TileFloats as_floats(TileInts v) { return __builtin_convertvector(v, TileFloats); }

  // Of a block: d and low of rows from `at` on.
  INLINE TileFloats d_at(const uint8_t* tile, int at) {
    return F::power != 0 ? (TileFloats)power_bits(bytes_at(tile + at) & 255) : floats_at((const f16*)tile + at);
  }
  INLINE TileFloats low_at(const uint8_t* tile, int at) {
    return F::minimum != 0 ? floats_at((const f16*)(tile + WIDE * TILE) + at) : TileFloats{};
  }
  // Of a group, from what its block has and the bytes beside its codes.
  INLINE TileFloats scale_of(TileFloats d, const uint8_t* beside) {
    if (F::scaled == 0) return d;
    TileInts by = bytes_at(beside);
    return d * as_floats(F::nibbles != 0 ? by & 15 : by);
  }
  INLINE TileFloats minimum_of_group(TileFloats less, const uint8_t* beside) {
    if (F::minimum != 2) return less;
    return -(less * as_floats(F::nibbles != 0 ? bytes_at(beside) >> 4 & 15 : bytes_at(beside + TILE)));
  }

  // One tile against MT rows of X, as tile_rows() of blocks.h. One row passes all lanes at once, so that memory is read in order; more
  // rows leave no registers for it where vectors are short.
  template <int MT, class R, class Out> INLINE void rows(const uint8_t* tile, R rows, int64_t groups, Out out, int64_t ahead) {
    enum { PARTS = TILE / IRON_TILE_LANES, TOGETHER = MT == 1 ? PARTS : 1 };
    float all[MT][TILE];
    for (int first = 0; first < PARTS; first += TOGETHER) {
      TileFloats found[TOGETHER][MT];
      lanes<MT, TOGETHER>(tile, first * IRON_TILE_LANES, rows, groups, ahead, found);
      for (int t = 0; t < TOGETHER; t++)
        for (int i = 0; i < MT; i++) memcpy(all[i] + (first + t) * IRON_TILE_LANES, &found[t][i], sizeof(TileFloats));
    }
    for (int i = 0; i < MT; i++) out.put(i, load8(all[i]), load8(all[i] + 8));
  }

  // Of `PARTS` vectors of lanes, from lane `first` on.
  template <int MT, int PARTS, class R>
  INLINE void lanes(const uint8_t* tile, int first, R rows, int64_t groups, int64_t ahead, TileFloats (*all)[MT]) {
    TileFloats total[PARTS][MT], low[PARTS][MT], d[PARTS], less[PARTS];
    for (int t = 0; t < PARTS; t++)
      for (int i = 0; i < MT; i++) total[t][i] = low[t][i] = TileFloats{};
    for (int64_t b = 0; b < groups;) {
      if (MT == 1 && ahead)
        for (int i = 0; i < TILE * BYTES; i += 64) __builtin_prefetch(tile + ahead + i, 0, 2);
      for (int t = 0; t < PARTS; t++) {
        int at = first + t * IRON_TILE_LANES;
        d[t] = d_at(tile, at), less[t] = low_at(tile, at);
      }
      tile += HEAD * TILE;
      for (int g = 0; g < F::columns / 32; g++, b++, tile += TILE * PART) {
        auto x = rows.at(b);
#pragma GCC unroll 2  // so that places and shifts are known beforehand
        for (int h = 0; h < GROUPS; h++)
#pragma GCC unroll 4
          for (int t = 0; t < PARTS; t++) {
            int at = first + t * IRON_TILE_LANES;
            TileInts p[MT];
            products<MT>(tile + TILE * GROUPS * EACH + 4 * at, h, x, p);
            const uint8_t* beside = tile + TILE * EACH * h + at;
            TileFloats scale = scale_of(d[t], beside);
            for (int i = 0; i < MT; i++) total[t][i] = madd_tile(as_floats(p[i]), scale * like(x.scale(i).d), total[t][i]);
            if (F::minimum != 0) {
              TileFloats minimum = minimum_of_group(less[t], beside);
              for (int i = 0; i < MT; i++) low[t][i] = madd_tile(minimum, like(scaled_sum(x.scale(i), h)), low[t][i]);
            }
          }
      }
    }
    for (int t = 0; t < PARTS; t++)
      for (int i = 0; i < MT; i++) all[t][i] = F::minimum != 0 ? total[t][i] + low[t][i] : total[t][i];
  }
#else
  INLINE int32_t code(const uint8_t* body, int i) {
    int c = i / 4, e = i % 4, v = 0;
    if ((F::bits & 4) != 0) v = body[PLANE4 + CHUNK * (c & 3) + e] >> (c & 4) & 15;
    if ((F::bits & 2) != 0) v |= (body[PLANE2 + CHUNK * (c >> 2) + e] >> 2 * (c & 3) & 3) << (F::bits & 4);
    if ((F::bits & 1) != 0) v |= (body[e] >> c & 1) << (F::bits & 6);
    return v;
  }

  template <int MT, class R, class Out> INLINE void rows(const uint8_t* tile, R rows, int64_t groups, Out out, int64_t) {
    for (int i = 0; i < MT; i++) {
      f32x8 half[2];
      for (int r = 0; r < TILE; r++) {
        const uint8_t* at_block = tile;
        float total = 0, low = 0;
        for (int64_t b = 0; b < groups;) {
          float d = F::power != 0 ? as_float((uint32_t)power_bits(i32x4{at_block[r]})[0]) : at<f16>(at_block, r);
          float less = F::minimum != 0 ? at<f16>(at_block + WIDE * TILE, r) : 0.0f;
          at_block += HEAD * TILE;
          for (int g = 0; g < F::columns / 32; g++, b++, at_block += TILE * PART) {
            auto x = rows.at(b);
            for (int h = 0; h < GROUPS; h++) {
              const uint8_t *beside = at_block + TILE * EACH * h + r, *body = at_block + TILE * GROUPS * EACH + 4 * r;
              int32_t product = 0;
              for (int k = F::group * h; k < F::group * (h + 1); k++) product += number(code(body, k)) * x.q(i)[k];
              float scale = F::scaled != 0 ? d * (float)(F::nibbles != 0 ? *beside & 15 : (int8_t)*beside) : d;
              total = madd((float)product, scale * x.scale(i).d, total);
              float minimum = F::minimum == 2 ? -(less * (float)(F::nibbles != 0 ? *beside >> 4 : beside[EACH == 2 ? TILE : 0])) : less;
              if (F::minimum != 0) low = madd(minimum, scaled_sum(x.scale(i), h), low);
            }
          }
        }
        half[r / 8][r % 8] = F::minimum != 0 ? total + low : total;
      }
      out.put(i, half[0], half[1]);
    }
  }
#endif
};

}  // namespace iron
