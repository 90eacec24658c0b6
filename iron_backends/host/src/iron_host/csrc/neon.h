// The Arm instructions that no operation on vectors stands for, a function each, as x86.h has those of x86.
#pragma once
#include "vectors.h"

#if defined(__ARM_NEON)
#include <arm_neon.h>
#include <string.h>
#endif

#if defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)
// Products of int8 four at a time.
#define IRON_SDOT 1

namespace iron {
namespace neon {

// Four products of signed bytes, added to each int32.
INLINE i32x4 add_dots(i32x4 sums, i32x4 a, i32x4 b) { return (i32x4)vdotq_s32((int32x4_t)sums, (int8x16_t)a, (int8x16_t)b); }
// Of bytes 0 to 15 at `at`, those of a table.
INLINE i32x4 looked_up(i32x4 table, i32x4 at) { return (i32x4)vqtbl1q_s8((int8x16_t)table, (uint8x16_t)at); }
// Four signed bytes as int32.
INLINE i32x4 signed_bytes(int32_t four) {
  return (i32x4)vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8((uint32_t)four))));
}
INLINE f32x4 widened(const void* four) {
  float16x4_t v;
  memcpy(&v, four, sizeof v);
  return (f32x4)vcvt_f32_f16(v);
}
INLINE f32x4 madd(f32x4 a, f32x4 b, f32x4 c) { return (f32x4)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }

}  // namespace neon
}  // namespace iron
#endif
