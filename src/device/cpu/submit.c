// device/cpu/submit.c -- a kernel's parts, on the threads of the pool.
//
// One job of the pool takes all parts of a launch, or of all zones of an image,
// the loops around the kernel included. Neighbouring parts that one thread
// takes at once are one call.
#include "device/cpu/submit.h"

#include <string.h>

#include "device/cpu/exec.h"

typedef struct call {
  const lb_launch *launch;
  lb_kernel_fn *kernel;
  uint64_t args[LB_SPEC_MAX_ARGS];  // pointers are those of the first part
} call;

typedef struct block {  // of parts that lie side by side
  int64_t turn;         // of the loops around the kernel, all counted as one
  int64_t row, col, rows, cols;
  int64_t parts;
} block;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Part `at` where each band goes through all turns.
static block block_of_turn(const lb_launch *l, int64_t at) {
  const lb_split *s = &l->split;
  int64_t rows = (int64_t)l->args[l->n_operands];
  int64_t cols = (int64_t)l->args[l->n_operands + 1];
  int64_t band = at / s->outer;
  block b = {.turn = at % s->outer,
             .row = band % s->row_bands * s->row_band,
             .col = band / s->row_bands * s->col_band,
             .parts = 1};
  b.rows = least(s->row_band, rows - b.row);
  b.cols = least(s->col_band, cols - b.col);
  return b;
}

// The largest block that begins with part `at` and has no more than `n` parts.
static block block_at(const lb_launch *l, int64_t at, int64_t n) {
  const lb_split *s = &l->split;
  int64_t rows = (int64_t)l->args[l->n_operands];
  int64_t cols = (int64_t)l->args[l->n_operands + 1];
  if (s->cols_first) return block_of_turn(l, at);
  int64_t row = at % s->row_bands, over = at / s->row_bands;
  int64_t col = over % s->col_bands;
  int64_t high = least(s->row_bands - row, n), wide = 1;
  if (high == s->row_bands) wide = least(s->col_bands - col, n / high);
  block b = {.turn = over / s->col_bands,
             .row = row * s->row_band,
             .col = col * s->col_band,
             .parts = high * wide};
  b.rows = least(high * s->row_band, rows - b.row);
  b.cols = least(wide * s->col_band, cols - b.col);
  return b;
}

static void run_block(const call *c, const block *b, uint64_t *args) {
  const lb_launch *l = c->launch;
  int64_t at[2 + LB_LAUNCH_LOOPS] = {b->row, b->col}, turn = b->turn;
  int n = 2 + l->n_loops;
  for (int k = l->n_loops; k-- > 0; turn /= l->loops[k])
    at[2 + k] = turn % l->loops[k];
  const int64_t *stride = l->strides;
  for (int i = 0; i < l->n_operands; i++) {
    int64_t by = 0;
    for (int k = 0; k < n; k++) by += at[k] * *stride++;
    args[i] = c->args[i] + (uint64_t)by;
  }
  args[l->n_operands] = (uint64_t)b->rows;
  args[l->n_operands + 1] = (uint64_t)b->cols;
  c->kernel(args);
}

static void run_parts(void *user, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const call *c = user;
  uint64_t args[LB_SPEC_MAX_ARGS];
  memcpy(args, c->args, c->launch->n_args * sizeof *args);
  while (begin < end) {
    block b = block_at(c->launch, begin, end - begin);
    run_block(c, &b, args);
    begin += b.parts;
  }
}

static void prepare(call *c, const lb_launch *l, lb_kernel_fn *kernel,
                    const uintptr_t *bases) {
  c->launch = l;
  c->kernel = kernel;
  memcpy(c->args, l->args, l->n_args * sizeof *c->args);
  for (int i = 0; i < l->n_operands; i++)
    c->args[i] = bases[l->addresses[i].base] + (uint64_t)l->addresses[i].offset;
}

static void run_call(call *c, lb_pool *pool) {
  const lb_split *s = &c->launch->split;
  if (s->parts == 1) {
    c->kernel(c->args);
  } else if (s->grain == s->parts || lb_pool_alone(pool)) {
    run_parts(c, 0, s->parts, 0);
  } else {
    lb_pool_for(pool, s->parts, s->grain, run_parts, c);
  }
}

// -- zones -------------------------------------------------------------------

typedef struct zones {
  const lb_launch *first;
  lb_kernel_fn *kernel;
  const uintptr_t *bases;
  int64_t bands;  // of columns, each of which goes through all zones; or 1
  int64_t each;   // parts of a band, or of all
} zones;

static void run_zone(const zones *z, const lb_launch *l, int64_t begin,
                     int64_t end, int worker) {
  call c;
  prepare(&c, l, z->kernel, z->bases);
  if (l->split.parts == 1)
    z->kernel(c.args);
  else
    run_parts(&c, begin, end, worker);
}

// Parts are counted band by band, and in each of them zone by zone.
static void run_zones(void *user, int64_t begin, int64_t end, int worker) {
  const zones *z = user;
  for (int64_t band = begin / z->each; band * z->each < end; band++) {
    int64_t at = band * z->each;
    for (const lb_launch *l = z->first; l && at < end; l = l->next) {
      int64_t n = l->split.parts / z->bands, skip = band * n - at;
      int64_t from = begin > at ? begin : at, to = least(end, at + n);
      if (from < to) run_zone(z, l, from + skip, to + skip, worker);
      at += n;
    }
  }
}

// Is any of them worth a thread?
static bool are_wide(const lb_launch *l) {
  for (; l; l = l->next)
    if (l->split.grain < l->split.parts) return true;
  return false;
}

static void run_all_zones(zones *z, lb_pool *pool) {
  const lb_split *s = &z->first->split;
  z->bands = s->together ? s->col_bands : 1;
  z->each = 0;
  for (const lb_launch *l = z->first; l; l = l->next)
    z->each += l->split.parts / z->bands;
  int64_t all = z->bands * z->each;
  bool shared = are_wide(z->first) && !lb_pool_alone(pool);
  lb_pool_for(pool, all, shared ? s->grain : all, run_zones, z);
}

lb_status lb_cpu_submit(lb_stream *q, const lb_exec *exec, const lb_launch *l) {
  lb_kernel_fn *kernel = lb_cpu_function(exec);
  if (l->next) {
    run_all_zones(&(zones){.first = l, .kernel = kernel, .bases = q->bases},
                  q->pool);
    return LB_OK;
  }
  call c;
  prepare(&c, l, kernel, q->bases);
  run_call(&c, q->pool);
  return LB_OK;
}

// -- sequences ----------------------------------------------------------------

static void move_on(call *c) {
  const lb_launch *l = c->launch;
  for (int i = 0; i < l->n_operands; i++) c->args[i] += (uint64_t)l->steps[i];
}

static void run_group(call *calls, const lb_sequence *s, lb_pool *pool,
                      lb_run_limits *bound) {
  for (int64_t t = 0; t < s->turns && !(bound && lb_run_limits_exceeded(bound));
       t++)
    for (uint32_t i = 0; i < s->each; i++) {
      run_call(&calls[i], pool);
      move_on(&calls[i]);
    }
}

typedef struct groups {  // which do not read what another writes
  call *calls;
  const lb_sequence *sequence;
  lb_run_limits *bounds;  // one a group, or NULL
} groups;

static void run_groups(void *user, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const groups *g = user;
  for (int64_t i = begin; i < end; i++)
    run_group(g->calls + i * g->sequence->each, g->sequence, NULL,
              g->bounds ? &g->bounds[i] : NULL);
}

// A thread for each group. What one of them found of the bound, the run has
// found.
static void run_on_threads(call *calls, const lb_sequence *s, lb_pool *pool,
                           lb_run_limits *bound) {
  lb_run_limits bounds[LB_MAX_SEQUENCE];
  uint32_t count = s->n / s->each;
  groups all = {calls, s, bound ? bounds : NULL};
  for (uint32_t g = 0; bound && g < count; g++) bounds[g] = *bound;
  lb_pool_for(pool, count, 1, run_groups, &all);
  for (uint32_t g = 0; bound && g < count; g++)
    if (bounds[g].found) bound->found = bounds[g].found;
}

lb_status lb_cpu_submit_sequence(lb_stream *q, const lb_sequence *s) {
  call calls[LB_MAX_SEQUENCE];
  const lb_launch *l = s->first;
  for (uint32_t i = 0; i < s->n; i++, l = l->next)
    prepare(&calls[i], l, lb_cpu_function(s->execs[i]), q->bases);
  if (lb_pool_width(q->pool) <= s->apart && !lb_pool_alone(q->pool)) {
    run_on_threads(calls, s, q->pool, q->bound);
    return LB_OK;
  }
  for (uint32_t i = 0; i < s->n; i += s->each)
    run_group(calls + i, s, q->pool, q->bound);
  return LB_OK;
}
