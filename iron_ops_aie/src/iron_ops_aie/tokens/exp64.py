"""`exp64`: exponentials that every device computes to the same bits.

Products and sums of float64 in one order: no library's exp, whose last bit differs from machine to machine, and no step fused
with the next.
"""

from __future__ import annotations

import math

LOG2E = 1 / math.log(2)
#: log 2 in two parts: a whole number below 2**20 times the first is exact.
LN2_HIGH, LN2_LOW = float.fromhex("0x1.62e42feep-1"), float.fromhex("0x1.a39ef35793c76p-33")
#: Taylor's coefficients, of the 13th power down to that of the 0th.
TERMS = tuple(1 / math.factorial(n) for n in range(13, -1, -1))
#: Below it the result is 0; above, it is a normal number.
LEAST = -700.0


def exp64(x: float) -> float:
    """e**x of a number x <= 0, within 2 ulp; 0.0 for x < -700."""
    if not x >= LEAST:
        return 0.0
    n = int(x * LOG2E - 0.5)
    r = x - n * LN2_HIGH
    r = r - n * LN2_LOW
    power = 0.0
    for term in TERMS:
        power = power * r + term
    return power * 2.0**n


#: The same in C++. A product is stored before it is used, so that no compiler fuses it with a sum.
SOURCE = f"""
#include <stdint.h>
#include <string.h>
static double product(double a, double b) {{
  volatile double made = a * b;
  return made;
}}
static double exp64(double x) {{
  static const double terms[] = {{{", ".join(term.hex() for term in TERMS)}}};
  if (!(x >= {LEAST}))
    return 0;
  int32_t n = (int32_t)(product(x, {LOG2E.hex()}) - 0.5);
  double r = x - product(n, {LN2_HIGH.hex()});
  r = r - product(n, {LN2_LOW.hex()});
  double power = 0;
  for (int i = 0; i < {len(TERMS)}; i++)
    power = product(power, r) + terms[i];
  uint64_t bits = (uint64_t)(1023 + n) << 52;
  double scale;
  memcpy(&scale, &bits, 8);
  return product(power, scale);
}}
"""
