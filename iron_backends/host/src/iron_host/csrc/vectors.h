// Vectors of the compiler's own (GCC and clang): the types, and functions that leave no call behind.
#pragma once
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))
// The same of what belongs to an object.
#define MEMBER inline __attribute__((always_inline))

namespace iron {

typedef float f32x4 __attribute__((vector_size(16)));
typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32x16 __attribute__((vector_size(64)));
typedef int32_t i32x4 __attribute__((vector_size(16)));
typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef uint32_t u32x4 __attribute__((vector_size(16)));
typedef uint32_t u32x8 __attribute__((vector_size(32)));
typedef uint32_t u32x16 __attribute__((vector_size(64)));
typedef uint16_t u16x8 __attribute__((vector_size(16)));
typedef uint16_t u16x16 __attribute__((vector_size(32)));
typedef uint16_t u16x32 __attribute__((vector_size(64)));

// Where one may lie anywhere, whatever is stored there: GCC keeps a vector that memcpy() reads in two registers.
#define IRON_ANYWHERE __attribute__((aligned(1), may_alias))
typedef f32x4 f32x4_at IRON_ANYWHERE;
typedef f32x16 f32x16_at IRON_ANYWHERE;
typedef i32x4 i32x4_at IRON_ANYWHERE;
typedef i32x8 i32x8_at IRON_ANYWHERE;
typedef i32x16 i32x16_at IRON_ANYWHERE;
typedef u16x8 u16x8_at IRON_ANYWHERE;
typedef u16x16 u16x16_at IRON_ANYWHERE;
#undef IRON_ANYWHERE

}  // namespace iron
