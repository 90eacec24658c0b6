// max(x, 0)^2.
#pragma once
#include "elementwise.h"

namespace iron_acme {
using namespace iron;

struct SquaredReLU {
  INLINE f32x8 of(f32x8 x) {
    f32x8 y = x < 0 ? splat(0.0f) : x;
    return y * y;
  }
};

}  // namespace iron_acme
