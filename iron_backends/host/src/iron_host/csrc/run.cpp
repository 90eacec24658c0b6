// The run loop and its thread pool. Exported: iron_pool_create, _threads, _reserve, _forked and _free, iron_begin, iron_go_on,
// and what records times: iron_timing_create, iron_timing_free, iron_timing_read, iron_time. And the kernel iron_checksum, see checksum.h.
//
// The loop calls nobody back. It comes back where the caller is wanted, and goes on from there: for a step without a kernel,
// after a pass, and now and then, so that Python runs the handlers of signals, whose exceptions then end it like any other.
//
// A step is cut into a few parts for each thread, and so are several that go together. Every thread has a lane of parts
// that follow one another in memory: it takes them from the front, and when it has none left, others' from the back. A
// worker that sleeps, or whose core another process has taken, takes nothing, so nobody waits for it; whoever finds no
// parts says how many it did, and the caller goes on when all are done. Whoever waits spins for a few microseconds,
// giving way to others, and then sleeps.
#include "checksum.h"
#include "timing.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
static inline void relax() { _mm_pause(); }
#else
static inline void relax() {}
#endif

// Under AddressSanitizer a kernel may touch of an area only the bytes its step asked for.
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
static inline void allow(void* area, int64_t all, int64_t asked) {
  if (!area) return;
  __asan_poison_memory_region(area, all);
  __asan_unpoison_memory_region(area, asked);
}
#else
static inline void allow(void*, int64_t, int64_t) {}
#endif

using namespace iron;

namespace {

const int64_t SPIN_NS = 30000;

int64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

// The time to some milliseconds, cheaply.
int64_t about_now() {
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

  void work(const iron_step* s, int32_t tid, int32_t part, int32_t parts) {
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
    timing->part(tid, begin, now());
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
        work(lane->steps + step, tid, part - begin, lane->ends[step] - begin);
      }
    }
    return made;
  }
};

void* serve(void* item) {
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

void* aligned(int64_t bytes) {
  void* p = NULL;
  return posix_memalign(&p, 64, bytes) ? NULL : p;
}

// Steps that go together, shared among `active` threads: parts for each in proportion to its work, at least one.
void publish(Pool* pool, const iron_step* steps, int32_t together, int32_t active) {
  int64_t wanted = (int64_t)active * IRON_PARTS, work = 0;
  if (wanted > 0xf000) wanted = 0xf000;
  for (int32_t i = 0; i < together; i++) work += steps[i].work > 0 ? steps[i].work : 1;
  int32_t parts = 0, ends[IRON_TOGETHER];
  for (int32_t i = 0; i < together; i++) {
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

int64_t number(const iron_row* r, const iron_run* run) {
  int64_t v = run->n_values ? run->values[r->index] : 0;  // a constant follows none
  int64_t x = v * r->scale + r->bias;
  if (r->divisor > 1) {
    int64_t q = x / r->divisor;
    x = q - (q * r->divisor > x);
  }
  return ((x >> r->down) * r->mul + r->add) * ((int64_t)1 << r->shift);
}

// What a step's bindings name, for this call's values.
void patch(const iron_run* run, iron_step* s) {
  for (int64_t b = s->first_binding; b < s->first_binding + s->n_bindings; b++) {
    const iron_binding* w = run->bindings + b;
    int64_t v = number(&w->row, run) * w->unit;
    if (w->slot < IRON_MAX_P) s->args.p[w->slot] = (char*)s->base[w->slot] + v;
    else s->args.n[w->slot - IRON_MAX_P] = v;
  }
}

void note(Timing* timing, int64_t pass, int64_t index, int64_t begin, int64_t end) {
  int64_t* row = timing->steps.add(IRON_STEP_WORDS);
  if (!row) return;
  row[0] = pass;
  row[1] = index;
  row[2] = begin;
  row[3] = end;
}

// Steps that went together share their time by their work.
void note_all(Timing* timing, int64_t pass, int64_t index, const iron_step* s, int32_t together, int64_t begin) {
  int64_t end = now(), work = 0, so_far = 0;
  for (int32_t t = 0; t < together; t++) work += s[t].work > 0 ? s[t].work : 1;
  for (int32_t t = 0; t < together; t++) {
    int64_t from = begin + (int64_t)((double)(end - begin) * so_far / work);
    so_far += s[t].work > 0 ? s[t].work : 1;
    note(timing, pass, index + t, from, begin + (int64_t)((double)(end - begin) * so_far / work));
  }
}

// The steps from run->step on; IRON_DONE at the end of the pass. It pauses after `until`, but not in a pass of less than
// twice the time between pauses: such a one is made whole or not at all. Recording is a template argument: off, it costs nothing.
template <bool recording> int32_t pass(Pool* pool, iron_run* run, int64_t until) {
  Timing* timing = pool->timing;
  int64_t i = run->step, begin = 0;
  if (!i) {
    run->called = run->row = -1;
    if (recording) {
      int64_t at = timing->passes.n;
      int64_t* values = timing->values.add(run->n_values);
      if (values) memcpy(values, run->values, run->n_values * sizeof(int64_t));
      int64_t* row = timing->passes.add(IRON_PASS_WORDS);
      if (row) {
        row[0] = (int64_t)(intptr_t)run;
        row[1] = timing->values.n - run->n_values;
        row[2] = row[3] = now();
        run->row = at;
      }
    }
  }
  bool noted = recording && run->row >= 0 && run->row < timing->passes.n;  // not a pass that began before the recording
  if (noted && run->called >= 0) note(timing, run->row / IRON_PASS_WORDS, run->called, run->begun, now());
  run->called = -1;
  while (i < run->n_steps) {
    iron_step* s = run->steps + i;
    if (noted) begin = now();
    if (!s->kernel) {
      run->begun = begin;
      run->called = i;
      run->step = i + 1;
      return IRON_ASKS;
    }
    patch(run, s);
    int32_t together = s->together > 1 ? (int32_t)s->together : 1;
    int64_t asked = s->shared_bytes;
    for (int32_t t = 1; t < together; t++) {
      patch(run, s + t);
      if (s[t].shared_bytes > asked) asked = s[t].shared_bytes;
    }
    allow(pool->shared, pool->shared_bytes, asked);
    int32_t active = s->threads > 0 && s->threads < pool->threads ? (int32_t)s->threads : pool->threads;
    if (active > 1) publish(pool, s, together, active);
    else for (int32_t t = 0; t < together; t++) pool->work(s + t, 0, 0, 1);
    if (noted) note_all(timing, run->row / IRON_PASS_WORDS, i, s, together, begin);
    i += together;
    if (until && s->threads != 1 && i < run->n_steps) {
      int64_t t = about_now();
      if (t > until && t > run->began + 2 * run->pause_ns) {
        run->step = i;
        return IRON_PAUSES;
      }
    }
  }
  // All carried values are read before any is written: one may follow another.
  int64_t next[64];
  for (int64_t c = 0; c < run->n_carries && c < 64; c++) {
    const iron_carry* w = run->carries + c;
    next[c] = w->source == 1   ? *(const int32_t*)w->pointer
              : w->source == 2 ? *(const uint32_t*)w->pointer
                               : number(&w->row, run);
  }
  for (int64_t c = 0; c < run->n_carries && c < 64; c++) run->values[run->carries[c].value] = next[c];
  if (noted) timing->passes.data[run->row + 3] = now();
  run->step = 0;
  run->made++;
  return IRON_DONE;
}

bool fits(const iron_run* run) {
  for (int64_t c = 0; c < run->n_carries; c++) {
    const iron_carry* w = run->carries + c;
    if (run->values[w->value] < w->low || run->values[w->value] > w->high) return false;
  }
  return true;
}

}  // namespace

extern "C" {

void iron_checksum(const iron_args* a, int32_t tid, int32_t nt) { checksums(a, tid, nt); }

// NULL: no memory.
void* iron_pool_create(int32_t threads) {
  if (threads < 1) threads = 1;
  Pool* pool = (Pool*)aligned(sizeof(Pool));
  Lane* lanes = (Lane*)aligned(threads * sizeof(Lane));
  Worker* workers = (Worker*)calloc(threads, sizeof(Worker));
  if (!pool || !lanes || !workers) {
    free(pool);
    free(lanes);
    free(workers);
    return NULL;
  }
  memset((void*)pool, 0, sizeof(Pool));
  memset((void*)lanes, 0, threads * sizeof(Lane));
  pool->threads = threads;
  pool->lanes = lanes;
  pool->workers = workers;
  pool->begun.init();
  pool->ended.init();
  for (int32_t t = 1; t < pool->threads; t++) {
    pool->workers[t].pool = pool;
    pool->workers[t].tid = t;
    if (pthread_create(&pool->workers[t].thread, NULL, serve, pool->workers + t)) pool->threads = t;  // no more to be had
  }
  return pool;
}

// Threads it has, the calling one included.
int32_t iron_pool_threads(void* handle) { return ((Pool*)handle)->threads; }

// Bytes, at least, that all threads share and that each has. 0, or the bytes there is no memory for; then there are none.
int64_t iron_pool_reserve(void* handle, int64_t shared, int64_t scratch) {
  Pool* pool = (Pool*)handle;
  scratch = (scratch + 63) & ~63LL;
  if (shared > pool->shared_bytes) {
    free(pool->shared);
    pool->shared = aligned(shared);
    pool->shared_bytes = pool->shared ? shared : 0;
    if (!pool->shared) return shared;
  }
  if (scratch > pool->scratch_bytes) {
    free(pool->scratch);
    pool->scratch = (char*)aligned(scratch * pool->threads);
    pool->scratch_bytes = pool->scratch ? scratch : 0;
    if (!pool->scratch) return scratch * pool->threads;
  }
  return 0;
}

// In a forked child, which has none of the pool's threads: the calling one does everything from now on.
void iron_pool_forked(void* handle) { ((Pool*)handle)->threads = 1; }

void iron_pool_free(void* handle) {
  Pool* pool = (Pool*)handle;
  if (pool->threads > 1) {
    __atomic_store_n(&pool->leave, 1, __ATOMIC_SEQ_CST);
    uint64_t turn = ++pool->turn;
    for (int32_t t = 1; t < pool->threads; t++) __atomic_store_n(&pool->lanes[t].parts, turn << 32, __ATOMIC_SEQ_CST);
    pool->begun.wake();
    for (int32_t t = 1; t < pool->threads; t++) pthread_join(pool->workers[t].thread, NULL);
  }
  free(pool->workers);
  free(pool->lanes);
  free(pool->shared);
  free(pool->scratch);
  free(pool);
}

// Go on with a run that was begun; why it came back. What it needs to go on is in the run: another may come between.
int32_t iron_go_on(void* handle, iron_run* run) {
  Pool* pool = (Pool*)handle;
  int64_t last = run->pause_ns ? about_now() : 0, until = run->pause_ns ? last + run->pause_ns : 0, unseen = 0, left = 0;
  while (run->made < run->passes) {
    if (!run->step) {
      if (run->made && !fits(run)) return IRON_UNFIT;
      run->began = last;
    }
    int32_t why = pool->timing ? pass<true>(pool, run, until) : pass<false>(pool, run, until);
    if (why) return why;
    if (run->each) return IRON_PASSED;
    // Short passes do without the clock, the more of them the longer it stands still.
    if (until && --left < 0 && run->made < run->passes) {
      int64_t t = about_now();
      if (t > until) return IRON_PAUSES;
      left = unseen = t != last ? 0 : unseen < 32 ? 2 * unseen + 1 : unseen;
      last = t;
    }
  }
  return IRON_DONE;
}

// Begin `passes` passes over the steps, each on the values the last one carried. `each`: come back after every one.
// `pause_ns`: come back about so often; 0: never.
int32_t iron_begin(void* handle, iron_run* run, int64_t passes, int32_t each, int64_t pause_ns) {
  run->passes = passes;
  run->each = each;
  run->pause_ns = pause_ns;
  run->made = run->step = 0;
  return iron_go_on(handle, run);
}

// NULL: no memory.
void* iron_timing_create(int32_t threads) {
  Timing* timing = (Timing*)calloc(1, sizeof(Timing));
  TimeRows* lanes = (TimeRows*)calloc(threads, sizeof(TimeRows));
  if (!timing || !lanes) {
    free(timing);
    free(lanes);
    return NULL;
  }
  timing->threads = threads;
  timing->lanes = lanes;
  return timing;
}

void iron_timing_free(void* handle) {
  Timing* timing = (Timing*)handle;
  free(timing->passes.data);
  free(timing->steps.data);
  free(timing->values.data);
  for (int32_t t = 0; t < timing->threads; t++) free(timing->lanes[t].data);
  free(timing->lanes);
  free(timing);
}

// Table 0 passes, 1 steps, 2 values, 3 and on the threads: its words, and where they are until the next run.
int64_t iron_timing_read(void* handle, int32_t table, int64_t** data) {
  Timing* timing = (Timing*)handle;
  TimeRows* rows[] = {&timing->passes, &timing->steps, &timing->values};
  TimeRows* found = table < 3 ? rows[table] : timing->lanes + (table - 3);
  *data = found->data;
  return found->n;
}

// Record the pool's runs from now on; NULL ends it. Not while one runs.
void iron_time(void* handle, void* timing) { ((Pool*)handle)->timing = (Timing*)timing; }
}
