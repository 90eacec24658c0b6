// The gated delta rule. Each of value_heads has a state S of key_dim rows of value_dim float32; a token makes of it
//   S = exp(g) S;  u = beta (v - S^T k);  S = S + k u^T;  o = scale S^T q
// with the key head that this value head reads: its number over `repeat`, or, `tiled`, what is left of it over key_heads. Where
// `past` is 0, what the states hold counts as zeros.
#pragma once
#include "elementwise.h"

namespace iron {

namespace delta {
// Columns of a state that one part takes: 128 rows of them lie in the nearest cache. Two vectors of them are computed at once.
enum { COLUMNS = 32, TWO = 2 * WIDE };

INLINE int64_t key_head(int64_t h, int64_t key_heads, int64_t repeat, int64_t tiled) { return tiled ? h % key_heads : h / repeat; }

template <class T> INLINE void widened(const T* x, float* y, int64_t n, float scale) {
  for (int64_t i = 0; i < n; i++) y[i] = load(x + i) * scale;
}

// RowSums over the rows of a state, of two vectors of its columns: over even rows and over odd ones.
struct RowSums {
  f32xw even[2], odd[2];
};
INLINE void sum_row(RowSums& sums, int64_t row, f32xw factor, const f32xw* x) {
  f32xw* to = row & 1 ? sums.odd : sums.even;
  for (int j = 0; j < 2; j++) to[j] = maddw(factor, x[j], to[j]);
}
INLINE void put_sums(const RowSums& sums, float* y) {
  for (int j = 0; j < 2; j++) storew(y + j * WIDE, sums.even[j] + sums.odd[j]);
}
INLINE RowSums no_sums() {
  RowSums sums;
  memset(&sums, 0, sizeof sums);
  return sums;
}
}  // namespace delta

// Heads, and of each COLUMNS numbers of its values, are shared. A state is read once and written once, whatever the tokens: between
// them its columns lie in scratch, faded for the next token already, for which the same pass sums what its key meets.
template <class T> void gated_delta_step(const slots::GatedDelta<T>& g, int32_t tid, int32_t nt) {
  using namespace delta;
  int64_t rows = g.valid, keys = g.key_dim, values = g.value_dim, blocks = (values + COLUMNS - 1) / COLUMNS;
  if (rows < 1) return;
  float *held = (float*)g.scratch, *key = held + keys * COLUMNS, *next = key + keys, *query = next + keys;
  Share s = share(g.value_heads * blocks, tid, nt);
  for (int64_t unit = s.begin; unit < s.end; unit++) {
    int64_t head = unit / blocks, first = unit % blocks * COLUMNS, n = values - first < COLUMNS ? values - first : COLUMNS;
    int64_t read = key_head(head, g.key_heads, g.repeat, g.tiled);
    float *state = g.state + head * keys * values + first, met[COLUMNS], wrong[COLUMNS], made[COLUMNS];
    const float* from = state;
    int64_t from_row = values;
    if (!g.past || n < COLUMNS) {
      memset(held, 0, (size_t)(keys * COLUMNS) * sizeof(float));
      if (g.past) for (int64_t i = 0; i < keys; i++) memcpy(held + i * COLUMNS, state + i * values, (size_t)n * sizeof(float));
      from = held, from_row = COLUMNS;
    }
    widened(g.k + read * keys, key, keys, 1.0f);
    f32xw fade = splatw(exp1(g.g[head]));
    for (int64_t c = 0; c < COLUMNS; c += TWO) {
      RowSums meets = no_sums();
      for (int64_t i = 0; i < keys; i++) {
        f32xw x[2];
        for (int j = 0; j < 2; j++) {
          x[j] = loadw(from + i * from_row + c + j * WIDE) * fade;
          storew(held + i * COLUMNS + c + j * WIDE, x[j]);
        }
        sum_row(meets, i, splatw(key[i]), x);
      }
      put_sums(meets, met + c);
    }
    for (int64_t t = 0; t < rows; t++) {
      int64_t at = t * g.value_heads + head;
      bool last = t + 1 == rows;
      widened(g.q + (t * g.key_heads + read) * keys, query, keys, (float)g.scale);
      memset(wrong, 0, sizeof wrong);
      for (int64_t i = 0; i < n; i++) wrong[i] = g.beta[at] * (load(g.v + at * values + first + i) - met[i]);
      if (!last) {
        widened(g.k + ((t + 1) * g.key_heads + read) * keys, next, keys, 1.0f);
        fade = splatw(exp1(g.g[at + g.value_heads]));
      }
      float* to = last && n == COLUMNS ? state : held;
      int64_t to_row = last && n == COLUMNS ? values : COLUMNS;
      for (int64_t c = 0; c < COLUMNS; c += TWO) {
        RowSums reads = no_sums(), meets = no_sums();
        f32xw u[2] = {loadw(wrong + c), loadw(wrong + c + WIDE)};
        for (int64_t i = 0; i < keys; i++) {
          f32xw x[2];
          for (int j = 0; j < 2; j++) x[j] = maddw(splatw(key[i]), u[j], loadw(held + i * COLUMNS + c + j * WIDE));
          sum_row(reads, i, splatw(query[i]), x);
          if (!last) {
            for (int j = 0; j < 2; j++) x[j] = x[j] * fade;
            sum_row(meets, i, splatw(next[i]), x);
          }
          for (int j = 0; j < 2; j++) storew(to + i * to_row + c + j * WIDE, x[j]);
        }
        put_sums(reads, made + c);
        put_sums(meets, met + c);
      }
      for (int64_t i = 0; i < n; i++) store(g.o + at * values + first + i, made[i]);
      float* behind = key;
      key = next, next = behind;
    }
    if (n < COLUMNS) for (int64_t i = 0; i < keys; i++) memcpy(state + i * values, held + i * COLUMNS, (size_t)n * sizeof(float));
  }
}

// The same bits, a number at a time.
template <class T> void gated_delta_step_naive(const slots::GatedDelta<T>& g, int32_t tid, int32_t nt) {
  int64_t keys = g.key_dim, values = g.value_dim;
  Share s = share(g.value_heads, tid, nt);
  for (int64_t head = s.begin; head < s.end; head++)
    for (int64_t c = 0; c < values; c++)
      for (int64_t t = 0; t < g.valid; t++) {
        int64_t read = delta::key_head(head, g.key_heads, g.repeat, g.tiled);
        const T *key = g.k + (t * g.key_heads + read) * keys, *query = g.q + (t * g.key_heads + read) * keys;
        float* state = g.state + head * keys * values + c;
        float fade = exp1(g.g[t * g.value_heads + head]), met[2] = {0, 0}, out[2] = {0, 0};
        for (int64_t i = 0; i < keys; i++) {
          float& x = state[i * values];
          x = (t == 0 && !g.past ? 0.0f : x) * fade;
          met[i & 1] = madd(load(key + i), x, met[i & 1]);
        }
        int64_t at = (t * g.value_heads + head) * values + c;
        float wrong = g.beta[t * g.value_heads + head] * (load(g.v + at) - (met[0] + met[1]));
        for (int64_t i = 0; i < keys; i++) {
          float& x = state[i * values];
          x = madd(load(key + i), wrong, x);
          out[i & 1] = madd(load(query + i) * (float)g.scale, x, out[i & 1]);
        }
        store(g.o + at, out[0] + out[1]);
      }
}

namespace delta {
// c (rows, cols) = a (rows, depth) b (depth, cols), each number's sum over depth in order: added to what c holds times `held`, or
// written `over` it. a's numbers are a_row and a_deep apart. cols are whole vectors.
INLINE void times(const float* a, int64_t a_row, int64_t a_deep, const float* b, float* c, int64_t rows, int64_t depth, int64_t cols,
                  bool over, float held = 0) {
  for (int64_t j = 0; j < cols; j += WIDE)
    for (int64_t i = 0; i < rows; i += 4) {
      int64_t n = rows - i < 4 ? rows - i : 4;
      f32xw sums[4];
      const float* row[4];
      for (int64_t r = 0; r < 4; r++) {
        int64_t at = i + (r < n ? r : 0);
        row[r] = a + at * a_row;
        sums[r] = over ? splatw(0.0f) : loadw(c + at * cols + j) * splatw(held);
      }
      for (int64_t d = 0; d < depth; d++) {
        f32xw x = loadw(b + d * cols + j);
        for (int r = 0; r < 4; r++) sums[r] = maddw(splatw(row[r][d * a_deep]), x, sums[r]);
      }
      for (int64_t r = 0; r < n; r++) storew(c + (i + r) * cols + j, sums[r]);
    }
}

// The product of two rows of n numbers, whole vectors.
INLINE float dot(const float* a, const float* b, int64_t n) {
  f32xw sum = splatw(0.0f);
  for (int64_t i = 0; i < n; i += WIDE) sum = maddw(loadw(a + i), loadw(b + i), sum);
  return sumw(sum);
}
}  // namespace delta

// Heads are shared. Of a chunk of tokens, b being the sums of their g, scratch holds keys and queries, what the tokens correct (U),
// what is read (O), and the two triangles of keys by keys and queries by keys, each times e^(b_t - b_s).
template <class T> void gated_delta_chunk(const slots::GatedDeltaChunk<T>& g, int32_t tid, int32_t nt) {
  using namespace delta;
  int64_t keys = g.key_dim, values = g.value_dim, chunk = g.chunk;
  int64_t deep = (keys + WIDE - 1) / WIDE * WIDE, wide = (values + WIDE - 1) / WIDE * WIDE;  // whole vectors, zeros behind
  float *key = (float*)g.scratch, *query = key + chunk * deep, *wrong = query + chunk * deep, *out = wrong + chunk * wide;
  float *by_keys = out + chunk * wide, *by_queries = by_keys + chunk * chunk, *state = by_queries + chunk * chunk;
  float *sum = state + keys * wide, *left = sum + chunk;
  Share s = share(g.value_heads, tid, nt);
  for (int64_t head = s.begin; head < s.end; head++) {
    int64_t read = key_head(head, g.key_heads, g.repeat, g.tiled);
    float* kept = g.state + head * keys * values;
    if (g.valid < 1) continue;
    memset(state, 0, (size_t)(keys * wide) * sizeof(float));
    if (g.past) for (int64_t i = 0; i < keys; i++) memcpy(state + i * wide, kept + i * values, (size_t)values * sizeof(float));
    for (int64_t start = 0; start < g.valid; start += chunk) {
      int64_t n = g.valid - start < chunk ? g.valid - start : chunk;
      memset(key, 0, (size_t)(2 * chunk * deep + chunk * wide) * sizeof(float));
      double total = 0;
      for (int64_t t = 0; t < n; t++) {
        int64_t at = start + t;
        widened(g.k + (at * g.key_heads + read) * keys, key + t * deep, keys, 1.0f);
        widened(g.q + (at * g.key_heads + read) * keys, query + t * deep, keys, (float)g.scale);
        total += g.g[at * g.value_heads + head];
        sum[t] = (float)total;
      }
      for (int64_t t = 0; t < n; t++) {
        float beta = g.beta[(start + t) * g.value_heads + head];
        for (int64_t r = 0; r <= t; r++) left[r] = sum[t] - sum[r];
        for (int64_t r = 0; r <= t; r += 8) {
          int64_t m = t + 1 - r < 8 ? t + 1 - r : 8;
          store_part(left + r, exp8(load_part(left + r, m)), m);
        }
        for (int64_t r = 0; r <= t; r++) {
          by_keys[t * chunk + r] = beta * left[r] * dot(key + t * deep, key + r * deep, deep);
          by_queries[t * chunk + r] = left[r] * dot(query + t * deep, key + r * deep, deep);
        }
      }
      times(key, deep, 1, state, wrong, n, keys, wide, true);
      times(query, deep, 1, state, out, n, keys, wide, true);
      for (int64_t t = 0; t < n; t++) {  // the triangular system, a row after those it needs
        float grown = exp1(sum[t]), beta = g.beta[(start + t) * g.value_heads + head];
        const T* value = g.v + ((start + t) * g.value_heads + head) * values;
        float *u = wrong + t * wide, *o = out + t * wide;
        for (int64_t j = 0; j < wide; j += WIDE) {
          int64_t m = values - j < WIDE ? values - j : WIDE;
          f32xw v = m == WIDE ? loadw(value + j) : loadw_part(value + j, m);
          f32xw x = splatw(beta) * (v - splatw(grown) * loadw(u + j)), y = loadw(o + j) * splatw(grown);
          for (int64_t r = 0; r < t; r++) x = maddw(splatw(-by_keys[t * chunk + r]), loadw(wrong + r * wide + j), x);
          storew(u + j, x);
          for (int64_t r = 0; r <= t; r++) y = maddw(splatw(by_queries[t * chunk + r]), loadw(wrong + r * wide + j), y);
          storew(o + j, y);
        }
        T* made = g.o + ((start + t) * g.value_heads + head) * values;
        for (int64_t c = 0; c < values; c++) store(made + c, o[c]);
      }
      for (int64_t t = 0; t < n; t++) {
        float fade = exp1(sum[n - 1] - sum[t]);
        for (int64_t i = 0; i < keys; i++) key[t * deep + i] *= fade;
      }
      times(key, 1, deep, wrong, state, keys, n, wide, false, exp1(sum[n - 1]));
    }
    for (int64_t i = 0; i < keys; i++) memcpy(kept + i * values, state + i * wide, (size_t)values * sizeof(float));
  }
}

// g = rate softplus(a + bias), beta = sigmoid(b): rows of as many numbers as there are heads.
template <class T> void delta_gates(const slots::DeltaGates<T>& g, int32_t tid, int32_t nt) {
  Share s = share(g.valid, tid, nt);
  for (int64_t r = s.begin; r < s.end; r++) {
    const T *a = g.a + r * g.heads, *b = g.b + r * g.heads;
    float *decay = g.g + r * g.heads, *beta = g.beta + r * g.heads;
    for (int64_t i = 0; i < g.heads; i += WIDE) {
      int64_t n = g.heads - i < WIDE ? g.heads - i : WIDE;
      f32xw x = loadw_part(a + i, n) + loadw_part(g.bias + i, n);
      storew_part(decay + i, op::Softplus::of(x) * loadw_part(g.rate + i, n), n);
      storew_part(beta + i, op::Sigmoid::of(loadw_part(b + i, n)), n);
    }
  }
}

}  // namespace iron
