// Loops that show what the machine can do: reading memory, multiplying float32, multiplying int8. `table`: (address, bytes)
// to read, `entries` of them, `bytes` in all; `made`: a double per part, where it leaves how many bytes it read or operations
// it made.
#pragma once
#include "common.h"

namespace iron {

typedef uint64_t u64x8 __attribute__((vector_size(64)));

// The compiler knows nothing of v from here on, so it neither folds nor hoists what is made of it.
#if defined(__AVX512F__)
#define OPAQUE(v) __asm__ volatile("" : "+v"(v))
#elif defined(__AVX__)
#define OPAQUE(v) __asm__ volatile("" : "+x"(v))
#elif defined(__aarch64__)
#define OPAQUE(v) __asm__ volatile("" : "+w"(v))
#else
#define OPAQUE(v) __asm__ volatile("" : : "r"(&v) : "memory")
#endif

typedef u64x8 u64x8_anywhere __attribute__((aligned(1)));

INLINE uint64_t read_bytes(const char* p, int64_t blocks) {
  u64x8 sum[8];
  memset(sum, 0, sizeof sum);
  for (int64_t i = 0; i < blocks; i++) {
    const u64x8_anywhere* at = (const u64x8_anywhere*)(p + i * 512);
    for (int j = 0; j < 8; j++) sum[j] += at[j];
  }
  uint64_t all = 0;
  for (int j = 0; j < 8; j++)
    for (int k = 0; k < 8; k++) all ^= sum[j][k];
  return all;
}

// Of all the memory in the table, one after another, this part's share: once, in blocks of 512 bytes.
inline void read_memory(const slots::Limits& g, int32_t tid, int32_t nt) {
  const int64_t* table = g.table;
  int64_t first = g.bytes / nt * tid, last = tid == nt - 1 ? g.bytes : g.bytes / nt * (tid + 1), start = 0, count = 0;
  uint64_t all = 0;
  for (int64_t i = 0; i < g.entries; start += table[2 * i++ + 1]) {
    int64_t begin = first > start ? first - start : 0, end = last - start < table[2 * i + 1] ? last - start : table[2 * i + 1];
    if (begin >= end) continue;
    int64_t blocks = (end - begin) / 512;
    all ^= read_bytes((const char*)table[2 * i] + begin, blocks);
    count += blocks * 512;
  }
  g.made[tid] = (double)(count + (all == 1));
}

// CHAINS multiply-adds a round, each waiting for its own last one alone.
#define CHAINS 12

inline void float_rate(const slots::Limits& g, int32_t tid, int32_t) {
  int64_t rounds = g.rounds;
  f32xw x[CHAINS], m = splatw(0.999f), c = splatw(0.001f);
  for (int i = 0; i < CHAINS; i++) x[i] = splatw((float)i);
  for (int64_t r = 0; r < rounds; r++)
    for (int i = 0; i < CHAINS; i++) {
      OPAQUE(m);
      x[i] = x[i] * m + c;
    }
  f32xw sum = x[0];
  for (int i = 1; i < CHAINS; i++) sum += x[i];
  OPAQUE(sum);
  g.made[tid] = (double)(rounds * CHAINS * WIDE * 2);
}

#if defined(IRON_AVX512)
typedef i32x16 i8xw;
INLINE i8xw dot(i8xw s, i8xw x, i8xw y) { return x86::add_dots(s, x, y); }
#elif defined(__AVX2__)
typedef i32x8 i8xw;
INLINE i8xw dot(i8xw s, i8xw x, i8xw y) { return s + x86::halves_added(x86::bytes_by(x, y)); }
#elif defined(__ARM_FEATURE_DOTPROD)
typedef int32x4_t i8xw;
INLINE i8xw dot(i8xw s, i8xw x, i8xw y) { return vdotq_s32(s, vreinterpretq_s8_s32(x), vreinterpretq_s8_s32(y)); }
#else
typedef i32x8 i8xw;
INLINE i8xw dot(i8xw s, i8xw x, i8xw y) {
  for (int j = 0; j < 4; j++) s += (x << (24 - 8 * j) >> 24) * (y << (24 - 8 * j) >> 24);
  return s;
}
#endif

inline void int8_rate(const slots::Limits& g, int32_t tid, int32_t) {
  int64_t rounds = g.rounds;
  i8xw x, y;
  memset(&x, 3, sizeof x);
  memset(&y, 5, sizeof y);
  // Variables of their own: an array of them is written back to memory every round.
  i8xw s0 = x, s1 = x, s2 = x, s3 = x, s4 = x, s5 = x, s6 = x, s7 = x, s8 = x, s9 = x, s10 = x, s11 = x;
#define CHAIN(s) OPAQUE(y); s = dot(s, x, y);
  for (int64_t r = 0; r < rounds; r++) {
    CHAIN(s0) CHAIN(s1) CHAIN(s2) CHAIN(s3) CHAIN(s4) CHAIN(s5)
    CHAIN(s6) CHAIN(s7) CHAIN(s8) CHAIN(s9) CHAIN(s10) CHAIN(s11)
  }
#undef CHAIN
  x = s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7 + s8 + s9 + s10 + s11;
  OPAQUE(x);
  g.made[tid] = (double)(rounds * CHAINS * (int64_t)sizeof(i8xw) * 2);
}

}  // namespace iron
