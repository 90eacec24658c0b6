// The x86 instructions that no operation on vectors stands for, a function each.
//
// GCC takes 0.7 s to read <immintrin.h>, more than all else of a small kernel: these are its builtins where it has them, and the
// intrinsics of any other compiler. EITHER is the one or the other.
#pragma once
#include "vectors.h"

#if defined(__GNUC__) && !defined(__clang__) && defined(__has_builtin)
#if __has_builtin(__builtin_ia32_vextractf128_ps256) && (!defined(__AVX2__) || __has_builtin(__builtin_ia32_pmaddubsw256))
#if !defined(__AVX512F__) || (__has_builtin(__builtin_ia32_vfmaddps512_mask) && __has_builtin(__builtin_ia32_vcvtph2ps512_mask))
#define IRON_BUILTINS 1
#endif
#endif
#endif

#if defined(__AVX__)
#if defined(IRON_BUILTINS)
#define EITHER(builtin, intrinsic) builtin
#else
#include <immintrin.h>
#define EITHER(builtin, intrinsic) intrinsic
#endif

namespace iron {
namespace x86 {

// As the builtins have their operands.
typedef char b16 __attribute__((vector_size(16)));
typedef char b32 __attribute__((vector_size(32)));
typedef char b64 __attribute__((vector_size(64)));
typedef short h8 __attribute__((vector_size(16)));
typedef short h16 __attribute__((vector_size(32)));
typedef long long q2 __attribute__((vector_size(16)));
typedef long long q4 __attribute__((vector_size(32)));
typedef long long q8 __attribute__((vector_size(64)));
typedef double d4 __attribute__((vector_size(32)));
typedef double d8 __attribute__((vector_size(64)));

INLINE f32x4 low(f32x8 v) { return EITHER(__builtin_ia32_ps_ps256(v), (f32x4)_mm256_castps256_ps128((__m256)v)); }
INLINE f32x4 high(f32x8 v) { return EITHER(__builtin_ia32_vextractf128_ps256(v, 1), (f32x4)_mm256_extractf128_ps((__m256)v, 1)); }

// Sums of the neighbours of a and of b, in each half of 128 bits by itself.
INLINE f32x8 add_neighbours(f32x8 a, f32x8 b) {
  return EITHER(__builtin_ia32_haddps256(a, b), (f32x8)_mm256_hadd_ps((__m256)a, (__m256)b));
}
// (0 + 2) + (1 + 3).
INLINE float sum(f32x4 v) {
#if defined(IRON_BUILTINS)
  v = v + __builtin_ia32_movhlps(v, v);
  return __builtin_ia32_addss(v, __builtin_ia32_movshdup(v))[0];
#else
  __m128 a = (__m128)v;
  a = _mm_add_ps(a, _mm_movehl_ps(a, a));
  return _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)));
#endif
}
// Numbers 0 and 1 of a and of b; numbers 2 and 3; 0 and 2; 1 and 3.
INLINE f32x4 firsts(f32x4 a, f32x4 b) { return EITHER(__builtin_ia32_movlhps(a, b), (f32x4)_mm_movelh_ps((__m128)a, (__m128)b)); }
INLINE f32x4 lasts(f32x4 a, f32x4 b) { return EITHER(__builtin_ia32_movhlps(b, a), (f32x4)_mm_movehl_ps((__m128)b, (__m128)a)); }
INLINE f32x4 evens(f32x4 a, f32x4 b) {
  return EITHER(__builtin_ia32_shufps(a, b, 0x88), (f32x4)_mm_shuffle_ps((__m128)a, (__m128)b, 0x88));
}
INLINE f32x4 odds(f32x4 a, f32x4 b) {
  return EITHER(__builtin_ia32_shufps(a, b, 0xdd), (f32x4)_mm_shuffle_ps((__m128)a, (__m128)b, 0xdd));
}

#if defined(__FMA__)
INLINE f32x4 madd(f32x4 a, f32x4 b, f32x4 c) {
  return EITHER(__builtin_ia32_vfmaddps(a, b, c), (f32x4)_mm_fmadd_ps((__m128)a, (__m128)b, (__m128)c));
}
INLINE f32x8 madd(f32x8 a, f32x8 b, f32x8 c) {
  return EITHER(__builtin_ia32_vfmaddps256(a, b, c), (f32x8)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c));
}
#endif

#if defined(__F16C__)
INLINE float widened(uint16_t h) { return EITHER(__builtin_ia32_vcvtph2ps(h8{(short)h, 0, 0, 0, 0, 0, 0, 0})[0], _cvtsh_ss(h)); }
INLINE uint16_t narrowed(float f) { return (uint16_t)EITHER(__builtin_ia32_vcvtps2ph(f32x4{f, 0, 0, 0}, 0)[0], _cvtss_sh(f, 0)); }
INLINE f32x8 widened(u16x8 v) { return EITHER(__builtin_ia32_vcvtph2ps256((h8)v), (f32x8)_mm256_cvtph_ps((__m128i)v)); }
INLINE u16x8 narrowed(f32x8 v) { return (u16x8)EITHER(__builtin_ia32_vcvtps2ph256(v, 0), _mm256_cvtps_ph((__m256)v, 0)); }
#endif

#if defined(__AVX2__)
INLINE i32x4 low(i32x8 v) { return EITHER(__builtin_ia32_si_si256(v), (i32x4)_mm256_castsi256_si128((__m256i)v)); }
INLINE i32x4 high(i32x8 v) { return (i32x4)EITHER(__builtin_ia32_extract128i256((q4)v, 1), _mm256_extracti128_si256((__m256i)v, 1)); }
INLINE i32x8 joined(i32x4 low, i32x4 high) {
  return (i32x8)EITHER(__builtin_ia32_insert128i256((q4)__builtin_ia32_si256_si(low), (q2)high, 1),
                       _mm256_inserti128_si256(_mm256_castsi128_si256((__m128i)low), (__m128i)high, 1));
}
INLINE i32x8 add_neighbours(i32x8 a, i32x8 b) {
  return EITHER(__builtin_ia32_phaddd256(a, b), (i32x8)_mm256_hadd_epi32((__m256i)a, (__m256i)b));
}

// Of signed bytes: their sizes; a, turned over where b is negative, 0 where b is.
INLINE i32x8 sizes(i32x8 a) { return (i32x8)EITHER(__builtin_ia32_pabsb256((b32)a), _mm256_abs_epi8((__m256i)a)); }
INLINE i32x8 signed_as(i32x8 a, i32x8 b) {
  return (i32x8)EITHER(__builtin_ia32_psignb256((b32)a, (b32)b), _mm256_sign_epi8((__m256i)a, (__m256i)b));
}
// Products of neighbours added up: unsigned bytes by signed ones, held to int16; int16, in int32; those alone added up.
INLINE i32x8 bytes_by(i32x8 a, i32x8 b) {
  return (i32x8)EITHER(__builtin_ia32_pmaddubsw256((b32)a, (b32)b), _mm256_maddubs_epi16((__m256i)a, (__m256i)b));
}
INLINE i32x8 halves_by(i32x8 a, i32x8 b) {
  return (i32x8)EITHER(__builtin_ia32_pmaddwd256((h16)a, (h16)b), _mm256_madd_epi16((__m256i)a, (__m256i)b));
}
INLINE i32x8 halves_added(i32x8 a) { return halves_by(a, i32x8{} + 0x00010001); }

// Eight float32 as int32, to even; 32 int32 as int8, held to its range; 16 int8 as int16.
INLINE i32x8 whole(f32x8 v) { return EITHER(__builtin_ia32_cvtps2dq256(v), (i32x8)_mm256_cvtps_epi32((__m256)v)); }
INLINE i32x8 as_bytes(const i32x8* n) {
  const i32x8 order = {0, 4, 1, 5, 2, 6, 3, 7};
#if defined(IRON_BUILTINS)
  b32 all = __builtin_ia32_packsswb256(__builtin_ia32_packssdw256(n[0], n[1]), __builtin_ia32_packssdw256(n[2], n[3]));
  return __builtin_ia32_permvarsi256((i32x8)all, order);
#else
  __m256i first = _mm256_packs_epi32((__m256i)n[0], (__m256i)n[1]), second = _mm256_packs_epi32((__m256i)n[2], (__m256i)n[3]);
  return (i32x8)_mm256_permutevar8x32_epi32(_mm256_packs_epi16(first, second), (__m256i)order);
#endif
}
// Signed bytes as int32. Of bytes 0 to 15 at `at`, in each quarter of 128 bits by itself, those of a table.
INLINE i32x8 signed_bytes(int64_t eight) { return EITHER(__builtin_ia32_pmovsxbd256((b16)q2{eight, 0}), (i32x8)_mm256_cvtepi8_epi32((__m128i)q2{eight, 0})); }
INLINE i32x8 looked_up(i32x8 table, i32x8 at) {
  return (i32x8)EITHER(__builtin_ia32_pshufb256((b32)table, (b32)at), _mm256_shuffle_epi8((__m256i)table, (__m256i)at));
}
INLINE i32x8 widened(i32x4 v) { return (i32x8)EITHER(__builtin_ia32_pmovsxbw256((b16)v), _mm256_cvtepi8_epi16((__m128i)v)); }
#endif

// Four products of an unsigned byte by a signed one, added to each int32.
#if defined(__AVXVNNI__)
INLINE i32x8 add_dots(i32x8 sums, i32x8 a, i32x8 b) {
  return EITHER(__builtin_ia32_vpdpbusd_v8si(sums, a, b), (i32x8)_mm256_dpbusd_avx_epi32((__m256i)sums, (__m256i)a, (__m256i)b));
}
#endif
#if defined(__AVX512VNNI__)
INLINE i32x16 add_dots(i32x16 sums, i32x16 a, i32x16 b) {
  return EITHER(__builtin_ia32_vpdpbusd_v16si(sums, a, b), (i32x16)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)a, (__m512i)b));
}
#endif

// Two products of bfloat16 added to each float32.
#if defined(__AVX512BF16__)
#if __GNUC__ >= 13
typedef __bf16 n32 __attribute__((vector_size(64)));
#else
typedef short n32 __attribute__((vector_size(64)));
#endif
INLINE f32x16 add_dots(f32x16 sums, i32x16 a, i32x16 b) {
  return EITHER(__builtin_ia32_dpbf16ps_v16sf(sums, (n32)a, (n32)b), (f32x16)_mm512_dpbf16_ps((__m512)sums, (__m512bh)a, (__m512bh)b));
}
#endif

#if defined(__AVX512F__)
INLINE f32x8 low(f32x16 v) {
  return (f32x8)EITHER(__builtin_ia32_extractf64x4_mask((d8)v, 0, d4{}, (unsigned char)-1), _mm512_castps512_ps256((__m512)v));
}
INLINE f32x8 high(f32x16 v) {
  return (f32x8)EITHER(__builtin_ia32_extractf64x4_mask((d8)v, 1, d4{}, (unsigned char)-1), _mm512_extractf64x4_pd((__m512d)v, 1));
}
INLINE i32x8 low(i32x16 v) {
  return (i32x8)EITHER(__builtin_ia32_extracti64x4_mask((q8)v, 0, q4{}, (unsigned char)-1), _mm512_castsi512_si256((__m512i)v));
}
INLINE i32x8 high(i32x16 v) {
  return (i32x8)EITHER(__builtin_ia32_extracti64x4_mask((q8)v, 1, q4{}, (unsigned char)-1), _mm512_extracti64x4_epi64((__m512i)v, 1));
}
INLINE f32x16 madd(f32x16 a, f32x16 b, f32x16 c) {
  return EITHER(__builtin_ia32_vfmaddps512_mask(a, b, c, (unsigned short)-1, 4), (f32x16)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c));
}
// In a register from here on: GCC would read it anew at every use.
INLINE f32x16 held(f32x16 v) {
  asm("" : "+v"(v));
  return v;
}
// The second half of a and the first one of b. Of quarters of 128 bits, numbers 0 and 2 of a and of b; 1 and 3. In each quarter, the last
// two numbers of a and the first two of b; neighbours, each in the other's place. Numbers by their places.
#define IRON_SHUFFLE(name, builtin, intrinsic, order) \
  INLINE f32x16 name(f32x16 a, f32x16 b) { \
    return EITHER(builtin(a, b, order, f32x16{}, (unsigned short)-1), (f32x16)intrinsic((__m512)a, (__m512)b, order)); \
  }
IRON_SHUFFLE(crossed, __builtin_ia32_shuf_f32x4_mask, _mm512_shuffle_f32x4, 0x4e)
IRON_SHUFFLE(quarters_even, __builtin_ia32_shuf_f32x4_mask, _mm512_shuffle_f32x4, 0x88)
IRON_SHUFFLE(quarters_odd, __builtin_ia32_shuf_f32x4_mask, _mm512_shuffle_f32x4, 0xdd)
IRON_SHUFFLE(pairs_crossed, __builtin_ia32_shufps512_mask, _mm512_shuffle_ps, 0x4e)
#undef IRON_SHUFFLE
INLINE f32x16 swapped(f32x16 v) {
  return EITHER(__builtin_ia32_vpermilps512_mask(v, 0xb1, f32x16{}, (unsigned short)-1), (f32x16)_mm512_permute_ps((__m512)v, 0xb1));
}
INLINE f32x16 picked(f32x16 v, i32x16 at) {
  return EITHER(__builtin_ia32_permvarsf512_mask(v, at, f32x16{}, (unsigned short)-1),
                (f32x16)_mm512_permutexvar_ps((__m512i)at, (__m512)v));
}
INLINE i32x16 signed_bytes(i32x4 v) {
  return EITHER(__builtin_ia32_pmovsxbd512_mask((b16)v, i32x16{}, (unsigned short)-1), (i32x16)_mm512_cvtepi8_epi32((__m128i)v));
}
#if defined(__AVX512BW__)
INLINE i32x16 looked_up(i32x16 table, i32x16 at) {
  return (i32x16)EITHER(__builtin_ia32_pshufb512_mask((b64)table, (b64)at, b64{}, (unsigned long long)-1), _mm512_shuffle_epi8((__m512i)table, (__m512i)at));
}
#endif
// Integers as wider ones (of __builtin_convertvector GCC makes two halves); float16 as float32.
INLINE u32x16 extended(u16x16 v) {
  return (u32x16)EITHER(__builtin_ia32_pmovzxwd512_mask((h16)v, i32x16{}, (unsigned short)-1), _mm512_cvtepu16_epi32((__m256i)v));
}
// The lower half of each integer; float32 as float16, to even.
INLINE u16x16 narrowed(u32x16 v) {
  return (u16x16)EITHER(__builtin_ia32_pmovdw512_mask((i32x16)v, h16{}, (unsigned short)-1), _mm512_cvtepi32_epi16((__m512i)v));
}
INLINE u16x16 narrowed(f32x16 v) {
  return (u16x16)EITHER(__builtin_ia32_vcvtps2ph512_mask(v, 0, h16{}, (unsigned short)-1), _mm512_cvtps_ph((__m512)v, 0));
}
INLINE f32x16 widened(u16x16 v) {
  return EITHER(__builtin_ia32_vcvtph2ps512_mask((h16)v, f32x16{}, (unsigned short)-1, 4), (f32x16)_mm512_cvtph_ps((__m256i)v));
}
#endif

}  // namespace x86
}  // namespace iron
#endif
