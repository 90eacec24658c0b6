// The binary interface between kernels, the run loop and Python. C headers only.
//
// A run list is an array of iron_step. Before a step runs, the loop patches the slots its bindings
// name (pointers by an element offset, integers by value), then calls the kernel once per thread.
#pragma once
#include <stdint.h>
#include <stddef.h>

#define IRON_MAX_P 8   // pointer slots of a kernel
#define IRON_MAX_N 24  // integer slots of a kernel
#define IRON_MAX_F 4   // float slots of a kernel

typedef struct iron_args {
  void* p[IRON_MAX_P];
  int64_t n[IRON_MAX_N];
  double f[IRON_MAX_F];
  void* scratch;          // per-thread scratch, at least the bytes the step asked for, 64-byte aligned
  void* shared;           // one area for all threads, 64-byte aligned; the next step finds it as this one left it
} iron_args;

// Called once for every part of the step, part tid of nt, on any thread and in any order; all return before the next
// step starts. A step has a few parts for each thread, IRON_PARTS unless it says how many, so that one that lost its core
// holds up little; nt is 1 for a step of one thread. A kernel that works in phases is several steps, which hand over through `shared`.
#define IRON_PARTS 8
#define IRON_TOGETHER 8
typedef void (*iron_kernel)(const iron_args* args, int32_t tid, int32_t nt);

// A row of iron_core: (((v[index] * scale + bias) // divisor >> down) * mul + add) << shift, divisions rounding down; a
// divisor of 0 or 1 divides nothing. The host has one plane, the values a call starts from.
typedef struct iron_row { int64_t plane, index, scale, bias, divisor, down, mul, add, shift; } iron_row;

// slot < IRON_MAX_P: p[slot] = base[slot] + row * unit bytes. Else n[slot - IRON_MAX_P] = row * unit.
typedef struct iron_binding { int64_t slot, unit; iron_row row; } iron_binding;

typedef struct iron_step {
  iron_kernel kernel;      // NULL: the caller computes this step
  iron_args args;
  void* base[IRON_MAX_P];
  int64_t first_binding, n_bindings;   // into the run's bindings
  int64_t scratch_bytes, shared_bytes;
  int64_t threads;         // at most this many threads do work (1 for tiny steps); 0 = all
  int64_t together;        // this step and those after it that run as one, at most IRON_TOGETHER: none needs another
  int64_t work;            // how large it is beside those it goes together with
  int64_t parts;           // for each thread, 0 = IRON_PARTS; of steps that go together each has its share of as many
} iron_step;

// Next number of a carried value: source 0 = a row of this call's values; 1 = *(int32_t*)pointer, 2 = *(uint32_t*)pointer.
// A pass begins only where it is `low` to `high`.
#define IRON_MAX_CARRIES 64  // of a run; runlist.py refuses more
typedef struct iron_carry { int64_t value; int64_t source; iron_row row; const void* pointer; int64_t low, high; } iron_carry;

typedef struct iron_run {
  iron_step* steps; int64_t n_steps;
  iron_binding* bindings;
  int64_t* values; int64_t n_values;   // per-call values, written by Python, advanced by the loop
  iron_carry* carries; int64_t n_carries;
  // Where the run stands between two native calls: `made` of `passes` passes over the steps, the next one `step`.
  int64_t passes, each, pause_ns, made, step;
  int64_t began;           // when this pass did, about
  int64_t called, row, begun;  // the step that the caller was asked for, and, while times are recorded, this pass's row and the step's begin
} iron_run;

// Why the native loop came back.
enum {
  IRON_DONE,    // every pass is made
  IRON_ASKS,    // step `called` has no kernel: compute it, then go on
  IRON_PASSED,  // a pass is made, and the caller asked to see each
  IRON_PAUSES,  // some time has gone by: the caller may want to end it, else go on
  IRON_UNFIT,   // a carried value is outside its range: the next pass does not begin
};
