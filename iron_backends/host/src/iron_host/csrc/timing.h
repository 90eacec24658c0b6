// What a run took, kept while a pool records: passes over a run list, their steps, and each thread's share of a step.
#pragma once
#include "iron_host.h"

#include <stdlib.h>
#include <string.h>

namespace iron {

// A growing table of int64_t. What does not fit into memory is left out.
struct TimeRows {
  int64_t* data;
  int64_t n, room;

  int64_t* add(int64_t words) {
    if (n + words > room) {
      int64_t more = room ? 2 * room : 1 << 12;
      while (more < n + words) more *= 2;
      void* moved = realloc(data, more * sizeof(int64_t));
      if (!moved) return NULL;
      data = (int64_t*)moved;
      room = more;
    }
    int64_t* row = data + n;
    n += words;
    return row;
  }
};

// Tables: passes (run, first value, begin, end), steps (pass, index, begin, end), values, and for every thread (step
// row, begin, end, busy). Times are nanoseconds of CLOCK_MONOTONIC.
#define IRON_PASS_WORDS 4
#define IRON_STEP_WORDS 4
#define IRON_LANE_WORDS 4

struct Timing {
  TimeRows passes, steps, values;
  int32_t threads;
  TimeRows* lanes;

  // One part, by its thread, of step `which` of those last begun together; parts of the same step are one row, unless another's
  // were between.
  void part(int32_t tid, int32_t which, int64_t begin, int64_t end) {
    if (tid >= threads) return;
    TimeRows* lane = lanes + tid;
    int64_t serial = steps.n / IRON_STEP_WORDS + which;
    int64_t* last = lane->n ? lane->data + lane->n - IRON_LANE_WORDS : NULL;
    if (!last || last[0] != serial) {
      last = lane->add(IRON_LANE_WORDS);
      if (!last) return;
      last[0] = serial;
      last[1] = begin;
      last[3] = 0;
    }
    last[2] = end;
    last[3] += end - begin;
  }

  // How long threads were busy, all together, with each of the `count` steps last begun together; their sum.
  int64_t busy(int32_t count, int64_t* each) const {
    int64_t first = steps.n / IRON_STEP_WORDS, sum = 0;
    for (int32_t i = 0; i < count; i++) each[i] = 0;
    for (int32_t t = 0; t < threads; t++) {
      const TimeRows* lane = lanes + t;
      for (int64_t at = lane->n - IRON_LANE_WORDS; at >= 0 && lane->data[at] >= first; at -= IRON_LANE_WORDS) {
        int64_t which = lane->data[at] - first;
        if (which >= count) continue;
        each[which] += lane->data[at + 3];
        sum += lane->data[at + 3];
      }
    }
    return sum;
  }
};

}  // namespace iron
