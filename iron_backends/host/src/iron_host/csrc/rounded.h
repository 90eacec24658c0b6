// Activations rounded to int8, a scale for each 32 numbers of a row: what blocks.h multiplies.
#pragma once
#include "matmul.h"

namespace iron {

// q [rows][K], then [rows][K/32] of the scale, scale * sum(q), sum(q), the sum of the first 16.
struct GroupScale { float d, s; int32_t sum, first; };
struct Rounded {
  int8_t* q;
  GroupScale* scales;
  int64_t K;
};
INLINE Rounded rounded_at(void* shared, int64_t rows, int64_t K) {
  char* p = (char*)shared;
  return Rounded{(int8_t*)p, (GroupScale*)(p + ((rows * K + 63) & ~63LL)), K};
}

// One group: its largest magnitude decides the scale; rint of x * (1 / scale). Magnitudes compare as integers, where NaN
// is the largest: a NaN makes the scale NaN, and so whatever is computed from it.
INLINE GroupScale quantize_group(const f32x8* v, int8_t* q) {
  i32x8 most = (i32x8)v[0] & 0x7fffffff;
  for (int i = 1; i < 4; i++) {
    i32x8 a = (i32x8)v[i] & 0x7fffffff, up = a > most;
    most = (a & up) | (most & ~up);
  }
  int32_t top = most[0];
  for (int i = 1; i < 8; i++) top = most[i] > top ? most[i] : top;
  float largest;
  memcpy(&largest, &top, 4);
  float d = largest / 127.0f, inverse = d >= 0x1p-126f ? 1.0f / d : 0.0f;
  if (inverse == 0) {  // next to nothing, or not finite: NaN times zero is no integer
    memset(q, 0, 32);
    return GroupScale{d, d * 0, 0, 0};
  }
  int32_t half[2] = {0, 0};
#if defined(__AVX2__)
  i32x8 n[4];
  for (int i = 0; i < 4; i++) n[i] = x86::whole(v[i] * splat(inverse));
  i32x8 sums = x86::add_neighbours(n[0] + n[1], n[2] + n[3]);
  half[0] = (sums[0] + sums[1]) + (sums[4] + sums[5]);
  half[1] = (sums[2] + sums[3]) + (sums[6] + sums[7]);
  *(i32x8_at*)q = x86::as_bytes(n);
#else
  for (int i = 0; i < 4; i++) {
    f32x8 scaled = v[i] * splat(inverse);
    for (int l = 0; l < 8; l++) {
      int32_t n = (int32_t)__builtin_rintf(scaled[l]);
      q[8 * i + l] = (int8_t)n;
      half[i / 2] += n;
    }
  }
#endif
  int32_t sum = half[0] + half[1];
  return GroupScale{d, d * (float)sum, sum, half[0]};
}

template <class X> void quantize_rows(const slots::QuantizeRows<X>& g, int32_t tid, int32_t nt) {
  int64_t M = g.M, K = g.K, groups = K / 32;
  Rounded r = rounded_at(g.shared, M, K);
  Share s = share(M * groups, tid, nt, 8);
  int64_t row = s.begin / groups, group = s.begin % groups;
  for (int64_t t = s.begin; t < s.end; t++) {
    const X* x = g.x + row * g.x_row + group * 32;
    f32x8 v[4];
    for (int i = 0; i < 4; i++) v[i] = load8(x + 8 * i);
    r.scales[t] = quantize_group(v, r.q + t * 32);
    if (++group == groups) group = 0, row++;
  }
}

}  // namespace iron
