// Sums that tell whether memory holds what was written, as fast as it is read. Against damage, not against design.
//
// Eight lanes take 64-bit words in turn, lane = rotate(lane ^ word) * odd. Each round is a bijection of the lane and of the
// word: a change of one word always changes the sum, others do but for one case in 2^64.
#pragma once
#include "slots.h"

#include <string.h>

namespace iron {

static inline uint64_t checksum_round(uint64_t lane, uint64_t word) {
  lane ^= word;
  return ((lane << 29) | (lane >> 35)) * 0x9e3779b97f4a7c15ULL;
}

static uint64_t checksum(const uint8_t* data, int64_t bytes) {
  enum { LANES = 8 };
  uint64_t lane[LANES], word[LANES];
  for (int i = 0; i < LANES; i++) lane[i] = 0x243f6a8885a308d3ULL * (i + 1);
  int64_t at = 0;
  for (; at + (int64_t)sizeof(word) <= bytes; at += sizeof(word)) {
    memcpy(word, data + at, sizeof(word));
    for (int i = 0; i < LANES; i++) lane[i] = checksum_round(lane[i], word[i]);
  }
  memset(word, 0, sizeof(word));
  memcpy(word, data + at, bytes - at);
  for (int i = 0; i < LANES; i++) lane[i] = checksum_round(lane[i], word[i]);
  uint64_t sum = bytes;
  for (int i = 0; i < LANES; i++) sum = checksum_round(sum, lane[i]);
  return sum ^ (sum >> 32);
}

// The sum of each `piece` bytes; the last piece may be shorter.
inline void checksums(const slots::Checksum& g, int32_t tid, int32_t nt) {
  int64_t count = (g.bytes + g.piece - 1) / g.piece;
  for (int64_t i = count * tid / nt; i < count * (tid + 1) / nt; i++) {
    int64_t left = g.bytes - i * g.piece;
    g.sums[i] = checksum(g.data + i * g.piece, left < g.piece ? left : g.piece);
  }
}

}  // namespace iron
