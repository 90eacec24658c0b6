// The threads that share a step. A step is cut into a few parts for each thread, and so are several that go together. Every
// thread has a lane of parts that follow one another in memory: it takes them from the front, and when it has none left, others'
// from the back. A worker that sleeps, or whose core another process has taken, takes nothing, so nobody waits for it; whoever
// finds no parts says how many it did, and the caller goes on when all are done. Whoever waits spins for a few microseconds,
// giving way to others, and then sleeps.
#pragma once
#include "timing.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace iron {

#if defined(__x86_64__) || defined(__i386__)
inline void relax() { __builtin_ia32_pause(); }
#else
inline void relax() {}
#endif

// Under AddressSanitizer a kernel may touch of an area only the bytes its step asked for.
#if defined(__SANITIZE_ADDRESS__)
inline void allow(void* area, int64_t all, int64_t asked) {
  if (!area) return;
  __asan_poison_memory_region(area, all);
  __asan_unpoison_memory_region(area, asked);
}
#else
inline void allow(void*, int64_t, int64_t) {}
#endif

const int64_t SPIN_NS = 30000;

inline int64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

// The time to some milliseconds, cheaply.
inline int64_t about_now() {
#ifdef CLOCK_MONOTONIC_COARSE
  timespec t;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
#else
  return now();
#endif
}

// Where threads wait for something another one does: they spin, then sleep until they are told to look again.
struct alignas(64) Gate {
  int32_t sleepers;
  pthread_mutex_t mutex;
  pthread_cond_t cond;

  void init() {
    sleepers = 0;
    pthread_mutex_init(&mutex, NULL);
    pthread_cond_init(&cond, NULL);
  }
  // After what they wait for was done.
  void wake() {
    if (__atomic_load_n(&sleepers, __ATOMIC_SEQ_CST)) {
      pthread_mutex_lock(&mutex);
      pthread_cond_broadcast(&cond);
      pthread_mutex_unlock(&mutex);
    }
  }
  template <class Done> void wait(Done done) {
    int64_t until = 0;
    for (int64_t i = 0;; i++) {
      if (done()) return;
      relax();
      if ((i & 63) == 63) {
        sched_yield();
        int64_t t = now();
        if (!until) until = t + SPIN_NS;
        else if (t > until) break;
      }
    }
    pthread_mutex_lock(&mutex);
    __atomic_add_fetch(&sleepers, 1, __ATOMIC_SEQ_CST);
    while (!done()) pthread_cond_wait(&cond, &mutex);
    __atomic_sub_fetch(&sleepers, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&mutex);
  }
};

struct Pool;
struct Worker {
  Pool* pool;
  int32_t tid;
  pthread_t thread;
};

// What a thread has to do, all in one cache line: its parts, turn << 32 | first << 16 | end; and the steps they are of,
// of which step i has the parts up to ends[i]. The rest is written before the parts, and stays while one of them is
// not done.
struct alignas(64) Lane {
  uint64_t parts;
  const iron_step* steps;
  int32_t ends[IRON_TOGETHER];

  uint64_t get() { return __atomic_load_n(&parts, __ATOMIC_SEQ_CST); }
  // The next part, from the front or the back; -1 where there is none.
  int32_t take(bool front) {
    uint64_t was = get();
    for (;;) {
      int32_t first = was >> 16 & 0xffff, end = was & 0xffff;
      if (first >= end) return -1;
      if (__atomic_compare_exchange_n(&parts, &was, front ? was + 0x10000 : was - 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        return front ? first : end - 1;
    }
  }
};

struct Pool {
  Gate begun, ended;
  alignas(64) int32_t done;  // parts that workers have done, ever
  alignas(64) Lane* lanes;
  int32_t threads, leave;
  uint32_t turn, expected;  // expected: `done` once every turn so far is over
  void* shared;
  int64_t shared_bytes, scratch_bytes;
  char* scratch;
  Worker* workers;
  Timing* timing;  // NULL: nothing is recorded

  // A part of step `which` of those that go together.
  void work(const iron_step* s, int32_t which, int32_t tid, int32_t part, int32_t parts) {
    iron_args args = s->args;
    args.scratch = scratch + tid * scratch_bytes;
    args.shared = shared;
    allow(args.scratch, scratch_bytes, s->scratch_bytes);
    if (!timing) {
      s->kernel(&args, part, parts);
      return;
    }
    int64_t begin = now();
    s->kernel(&args, part, parts);
    timing->part(tid, which, begin, now());
  }

  // Parts of this turn until none is left; how many it were. A part once taken keeps the turn in place: the next one's
  // are there only when every part of this one was said to be done.
  int32_t claim(int32_t tid) {
    int32_t made = 0;
    for (int32_t i = 0; i < threads; i++) {
      Lane* lane = lanes + (tid + i < threads ? tid + i : tid + i - threads);
      for (int32_t part; (part = lane->take(i == 0)) >= 0; made++) {
        int32_t step = 0, begin = 0;
        while (part >= lane->ends[step]) begin = lane->ends[step++];
        work(lane->steps + step, step, tid, part - begin, lane->ends[step] - begin);
      }
    }
    return made;
  }
};

inline void* serve(void* item) {
  Worker* me = (Worker*)item;
  Pool* pool = me->pool;
  Lane* lane = pool->lanes + me->tid;
  uint32_t seen = 0;
  for (;;) {
    pool->begun.wait([&] { return lane->get() >> 32 != seen; });
    seen = (uint32_t)(lane->get() >> 32);
    if (__atomic_load_n(&pool->leave, __ATOMIC_SEQ_CST)) return NULL;
    int32_t made = pool->claim(me->tid);
    if (made) {
      __atomic_add_fetch(&pool->done, made, __ATOMIC_SEQ_CST);
      pool->ended.wake();
    }
  }
}

inline void* aligned(int64_t bytes) {
  void* p = NULL;
  return posix_memalign(&p, 64, bytes) ? NULL : p;
}

// Steps that go together, shared among `active` threads: parts for each in proportion to its work, at least one.
inline void publish(Pool* pool, const iron_step* steps, int32_t together, int32_t active) {
  int64_t work = 0;
  for (int32_t i = 0; i < together; i++) work += steps[i].work > 0 ? steps[i].work : 1;
  int32_t parts = 0, ends[IRON_TOGETHER];
  for (int32_t i = 0; i < together; i++) {
    int64_t wanted = active * (steps[i].parts > 0 ? steps[i].parts : IRON_PARTS);
    if (wanted > 0xf000) wanted = 0xf000;
    int64_t mine = wanted * (steps[i].work > 0 ? steps[i].work : 1) / work;
    ends[i] = parts += mine > 1 ? (int32_t)mine : 1;
  }
  uint64_t turn = ++pool->turn;
  for (int32_t t = active - 1; t >= 0; t--) {
    Lane* lane = pool->lanes + t;
    lane->steps = steps;
    memcpy(lane->ends, ends, sizeof ends);
    uint64_t first = (int64_t)parts * t / active, end = (int64_t)parts * (t + 1) / active;
    __atomic_store_n(&lane->parts, turn << 32 | first << 16 | end, __ATOMIC_SEQ_CST);
  }
  pool->begun.wake();
  int32_t made = pool->claim(0);
  pool->expected += parts - made;
  if (made < parts) pool->ended.wait([&] { return (uint32_t)__atomic_load_n(&pool->done, __ATOMIC_SEQ_CST) == pool->expected; });
}

}  // namespace iron
