// The run loop. Exported: iron_pool_create, _threads, _reserve, _forked and _free, iron_begin, iron_go_on, and what records times:
// iron_timing_create, iron_timing_free, iron_timing_read, iron_time. And the kernel iron_checksum, see checksum.h.
//
// The loop calls nobody back. It comes back where the caller is wanted, and goes on from there: for a step without a kernel,
// after a pass, and now and then, so that Python runs the handlers of signals, whose exceptions then end it like any other.
#include "checksum.h"
#include "pool.h"

using namespace iron;

namespace {

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

// Steps that went together share their time as threads were busy with each.
void note_all(Timing* timing, int64_t pass, int64_t index, int32_t together, int64_t begin) {
  int64_t end = now(), from = begin, each[IRON_TOGETHER], so_far = 0;
  int64_t sum = timing->busy(together, each);
  double took = (double)(end - begin);
  for (int32_t t = 0; t < together; t++) {
    so_far += each[t];
    int64_t until = so_far < sum ? begin + (int64_t)(took * so_far / sum) : end;
    note(timing, pass, index + t, from, until);
    from = until;
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
    else for (int32_t t = 0; t < together; t++) pool->work(s + t, t, 0, 0, 1);
    if (noted) note_all(timing, run->row / IRON_PASS_WORDS, i, together, begin);
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
  int64_t next[IRON_MAX_CARRIES];
  for (int64_t c = 0; c < run->n_carries; c++) {
    const iron_carry* w = run->carries + c;
    next[c] = w->source == 1   ? *(const int32_t*)w->pointer
              : w->source == 2 ? *(const uint32_t*)w->pointer
                               : number(&w->row, run);
  }
  for (int64_t c = 0; c < run->n_carries; c++) run->values[run->carries[c].value] = next[c];
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
