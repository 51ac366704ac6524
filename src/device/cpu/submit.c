// device/cpu/submit.c -- runs the parts of a launch on the threads of the pool.
//
// All parts of a launch, or of all zones of a feature map, are one job of the
// pool, the loops around the kernel included. Adjacent parts that a thread
// takes at once are one kernel call.
#include "device/cpu/submit.h"

#include <string.h>

#include "device/cpu/exec.h"

typedef struct kernel_call {
  const lb_launch *launch;
  lb_kernel_fn *kernel;
  uint64_t args[LB_SPEC_MAX_ARGS];  // pointers are for the first part
} kernel_call;

typedef struct part_block {  // a rectangle of adjacent parts
  int64_t iteration;         // linear index over all loops around the kernel
  int64_t row, col, rows, cols;
  int64_t parts;
} part_block;

static int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }

// Part number `at` in band-major order.
static part_block block_band_major(const lb_launch *l, int64_t at) {
  const lb_split *s = &l->split;
  int64_t rows = (int64_t)l->args[l->n_operands];
  int64_t cols = (int64_t)l->args[l->n_operands + 1];
  int64_t band = at / s->outer;
  part_block b = {.iteration = at % s->outer,
                  .row = band % s->row_bands * s->row_band,
                  .col = band / s->row_bands * s->col_band,
                  .parts = 1};
  b.rows = min(s->row_band, rows - b.row);
  b.cols = min(s->col_band, cols - b.col);
  return b;
}

// The largest block that starts at part `at` and has at most `n` parts.
static part_block block_at(const lb_launch *l, int64_t at, int64_t n) {
  const lb_split *s = &l->split;
  int64_t rows = (int64_t)l->args[l->n_operands];
  int64_t cols = (int64_t)l->args[l->n_operands + 1];
  if (s->band_major) return block_band_major(l, at);
  int64_t row = at % s->row_bands, over = at / s->row_bands;
  int64_t col = over % s->col_bands;
  int64_t n_rows = min(s->row_bands - row, n), n_cols = 1;
  if (n_rows == s->row_bands) n_cols = min(s->col_bands - col, n / n_rows);
  part_block b = {.iteration = over / s->col_bands,
                  .row = row * s->row_band,
                  .col = col * s->col_band,
                  .parts = n_rows * n_cols};
  b.rows = min(n_rows * s->row_band, rows - b.row);
  b.cols = min(n_cols * s->col_band, cols - b.col);
  return b;
}

static void run_block(const kernel_call *c, const part_block *b,
                      uint64_t *args) {
  const lb_launch *l = c->launch;
  int64_t at[2 + LB_LAUNCH_LOOPS] = {b->row, b->col}, iteration = b->iteration;
  int n = 2 + l->n_loops;
  for (int k = l->n_loops; k-- > 0; iteration /= l->loops[k])
    at[2 + k] = iteration % l->loops[k];
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
  const kernel_call *c = user;
  uint64_t args[LB_SPEC_MAX_ARGS];
  memcpy(args, c->args, c->launch->n_args * sizeof *args);
  while (begin < end) {
    part_block b = block_at(c->launch, begin, end - begin);
    run_block(c, &b, args);
    begin += b.parts;
  }
}

static void prepare(kernel_call *c, const lb_launch *l, lb_kernel_fn *kernel,
                    const uintptr_t *bases) {
  c->launch = l;
  c->kernel = kernel;
  memcpy(c->args, l->args, l->n_args * sizeof *c->args);
  for (int i = 0; i < l->n_operands; i++)
    c->args[i] = bases[l->addresses[i].base] + (uint64_t)l->addresses[i].offset;
}

static void run_call(kernel_call *c, lb_pool *pool) {
  const lb_split *s = &c->launch->split;
  if (s->parts == 1) {
    c->kernel(c->args);
  } else if (s->grain == s->parts || lb_pool_alone(pool)) {
    run_parts(c, 0, s->parts, 0);
  } else {
    lb_pool_for(pool, s->parts, s->grain, run_parts, c);
  }
}

// -- segments ----------------------------------------------------------------

// Rows of a segment that are one kernel call: the keys of a head stay in L1 and
// L2, and every tile of attention divides it.
#define SEGMENT_BAND 120
#define SEGMENT_PARTS 32  // chunks of a launch

typedef struct segment_parts {
  const kernel_call *call;  // pointers are for the first row of all segments
  const int64_t *offsets;
} segment_parts;

// Iteration number `at` of the loops; `c` is a copy of the call, whose pointers
// are changed.
static void run_segment(const segment_parts *s, int64_t at, kernel_call *c,
                        uint64_t *args) {
  const lb_launch *l = c->launch;
  const int64_t *offset = s->offsets + at / (l->split.outer / l->loops[0]);
  int64_t rows = offset[1] - offset[0];
  for (int i = 0; i < l->n_operands; i++)
    c->args[i] =
        s->call->args[i] + (uint64_t)(offset[0] * l->segments->steps[i]);
  args[l->n_operands + LB_DIM_KEYS] = (uint64_t)rows;
  part_block b = {.iteration = at,
                  .cols = (int64_t)l->args[l->n_operands + LB_DIM_COLS]};
  for (; b.row < rows; b.row += SEGMENT_BAND) {
    b.rows = min(SEGMENT_BAND, rows - b.row);
    run_block(c, &b, args);
  }
}

static void run_segments(void *user, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const segment_parts *s = user;
  kernel_call c = *s->call;
  uint64_t args[LB_SPEC_MAX_ARGS];
  memcpy(args, c.args, c.launch->n_args * sizeof *args);
  for (; begin < end; begin++) run_segment(s, begin, &c, args);
}

static void run_all_segments(const kernel_call *call, const uintptr_t *bases,
                             lb_pool *pool) {
  const lb_launch *l = call->launch;
  const lb_address *at = &l->segments->offsets;
  segment_parts s = {
      call, (const int64_t *)(bases[at->base] + (uintptr_t)at->offset)};
  int64_t n = l->split.outer;
  bool alone = l->split.grain == l->split.parts || lb_pool_alone(pool);
  int64_t grain = n / SEGMENT_PARTS + (n % SEGMENT_PARTS != 0);
  lb_pool_for(pool, n, alone ? n : grain, run_segments, &s);
}

// -- zones -------------------------------------------------------------------

typedef struct zones {
  const lb_launch *first;
  lb_kernel_fn *kernel;
  const uintptr_t *bases;
  int64_t bands;  // column bands, each of which runs through all zones; or 1
  int64_t band_parts;  // parts of a band in all zones
} zones;

static void run_zone(const zones *z, const lb_launch *l, int64_t begin,
                     int64_t end, int worker) {
  kernel_call c;
  prepare(&c, l, z->kernel, z->bases);
  if (l->split.parts == 1)
    z->kernel(c.args);
  else
    run_parts(&c, begin, end, worker);
}

// Parts are numbered band by band, and zone by zone within a band.
static void run_zones(void *user, int64_t begin, int64_t end, int worker) {
  const zones *z = user;
  for (int64_t band = begin / z->band_parts; band * z->band_parts < end;
       band++) {
    int64_t at = band * z->band_parts;
    for (const lb_launch *l = z->first; l && at < end; l = l->next) {
      int64_t n = l->split.parts / z->bands, skip = band * n - at;
      int64_t from = begin > at ? begin : at, to = min(end, at + n);
      if (from < to) run_zone(z, l, from + skip, to + skip, worker);
      at += n;
    }
  }
}

// Returns whether any zone is worth a second thread.
static bool is_any_parallel(const lb_launch *l) {
  for (; l; l = l->next)
    if (l->split.grain < l->split.parts) return true;
  return false;
}

static void run_all_zones(zones *z, lb_pool *pool) {
  const lb_split *s = &z->first->split;
  z->bands = s->across_zones ? s->col_bands : 1;
  z->band_parts = 0;
  for (const lb_launch *l = z->first; l; l = l->next)
    z->band_parts += l->split.parts / z->bands;
  int64_t all = z->bands * z->band_parts;
  bool shared = is_any_parallel(z->first) && !lb_pool_alone(pool);
  lb_pool_for(pool, all, shared ? s->grain : all, run_zones, z);
}

lb_status lb_cpu_submit(lb_stream *q, const lb_exec *exec, const lb_launch *l) {
  lb_kernel_fn *kernel = lb_cpu_function(exec);
  if (l->next) {
    run_all_zones(&(zones){.first = l, .kernel = kernel, .bases = q->bases},
                  q->pool);
    return LB_OK;
  }
  kernel_call c;
  prepare(&c, l, kernel, q->bases);
  if (l->segments)
    run_all_segments(&c, q->bases, q->pool);
  else
    run_call(&c, q->pool);
  return LB_OK;
}

// -- sequences ---------------------------------------------------------------

static void advance(kernel_call *c) {
  const lb_launch *l = c->launch;
  for (int i = 0; i < l->n_operands; i++) c->args[i] += (uint64_t)l->steps[i];
}

static void run_group(kernel_call *calls, const lb_sequence *s, lb_pool *pool,
                      lb_run_limits *limits) {
  for (int64_t t = 0;
       t < s->iterations && !(limits && lb_run_limits_exceeded(limits)); t++)
    for (uint32_t i = 0; i < s->group_size; i++) {
      run_call(&calls[i], pool);
      advance(&calls[i]);
    }
}

typedef struct sequence_groups {  // independent of each other
  kernel_call *calls;
  const lb_sequence *sequence;
  lb_run_limits *group_limits;  // one per group, or NULL
} sequence_groups;

static void run_groups(void *user, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const sequence_groups *g = user;
  for (int64_t i = begin; i < end; i++)
    run_group(g->calls + i * g->sequence->group_size, g->sequence, NULL,
              g->group_limits ? &g->group_limits[i] : NULL);
}

// Runs each group on its own thread. If a group exceeds the limits, the run has
// exceeded them.
static void run_on_threads(kernel_call *calls, const lb_sequence *s,
                           lb_pool *pool, lb_run_limits *limits) {
  lb_run_limits group_limits[LB_MAX_SEQUENCE];
  uint32_t count = s->n / s->group_size;
  sequence_groups all = {calls, s, limits ? group_limits : NULL};
  for (uint32_t g = 0; limits && g < count; g++) group_limits[g] = *limits;
  lb_pool_for(pool, count, 1, run_groups, &all);
  for (uint32_t g = 0; limits && g < count; g++)
    if (group_limits[g].found) limits->found = group_limits[g].found;
}

lb_status lb_cpu_submit_sequence(lb_stream *q, const lb_sequence *s) {
  kernel_call calls[LB_MAX_SEQUENCE];
  const lb_launch *l = s->first;
  for (uint32_t i = 0; i < s->n; i++, l = l->next)
    prepare(&calls[i], l, lb_cpu_function(s->execs[i]), q->bases);
  if (lb_pool_width(q->pool) <= s->max_parallel_threads &&
      !lb_pool_alone(q->pool)) {
    run_on_threads(calls, s, q->pool, q->limits);
    return LB_OK;
  }
  for (uint32_t i = 0; i < s->n; i += s->group_size)
    run_group(calls + i, s, q->pool, q->limits);
  return LB_OK;
}
