// Exponentials that every device computes to the same bits.
#pragma once
#include "common.h"

namespace iron {

// e**x of x <= 0 to the bits of iron_ops_aie's exp64, which no library's exp has on every machine.
INLINE double exp64(double x) {
  static const double terms[] = {  // of Taylor's series, the 13th power first
    0x1.6124613a86d09p-33, 0x1.1eed8eff8d898p-29, 0x1.ae64567f544e4p-26, 0x1.27e4fb7789f5cp-22, 0x1.71de3a556c734p-19,
    0x1.a01a01a01a01ap-16, 0x1.a01a01a01a01ap-13, 0x1.6c16c16c16c17p-10, 0x1.1111111111111p-7, 0x1.5555555555555p-5,
    0x1.5555555555555p-3, 0x1p-1, 0x1p+0, 0x1p+0};
  if (!(x >= -700)) return 0;
  int32_t n = (int32_t)(product(x, 0x1.71547652b82fep+0) - 0.5);
  double r = x - product(n, 0x1.62e42fee00000p-1);
  r = r - product(n, 0x1.a39ef35793c76p-33);
  double power = 0;
  for (int i = 0; i < 14; i++) power = product(power, r) + terms[i];
  uint64_t bits = (uint64_t)(1023 + n) << 52;
  double scale;
  memcpy(&scale, &bits, 8);
  return product(power, scale);
}

}  // namespace iron
