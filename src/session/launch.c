// session/launch.c -- a kernel's rows and columns, split over the pool.
//
// Parts are bands of rows, or of columns where rows are few. Bounds depend on
// sizes alone, never on the number of threads. A reduction needs whole rows;
// bands of columns are multiples of 128, so that they begin at a panel
// and keep what facts assume of divisibility.
#include "session/launch.h"

#include <string.h>

#define MIN_WORK 32768  // multiplications worth a chunk of their own
#define COL_STEP 128

typedef struct call {
  const lb_launch *launch;
  lb_kernel_fn *kernel;
  char *base[LB_SPEC_MAX_OUT + LB_SPEC_MAX_IN];
  uint32_t n;
  bool by_cols;
} call;

static void run_part(void *user, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const call *c = user;
  const lb_launch *l = c->launch;
  uint64_t args[LB_SPEC_MAX_ARGS];
  memcpy(args, l->args, l->cells.count * sizeof *args);
  int64_t step = c->by_cols ? COL_STEP : 1;
  int64_t size = l->dims[c->by_cols ? LB_DIM_COLS : LB_DIM_ROWS];
  int64_t from = begin * step, to = end * step < size ? end * step : size;
  for (uint32_t i = 0; i < c->n; i++) {
    int64_t stride = c->by_cols ? l->operands[i].col : l->operands[i].row;
    args[l->cells.out + i] = (uint64_t)(uintptr_t)(c->base[i] + from * stride);
  }
  args[l->cells.dims + (c->by_cols ? LB_DIM_COLS : LB_DIM_ROWS)] =
      (uint64_t)(to - from);
  c->kernel(args);
}

static void run_block(call *c, lb_pool *pool) {
  const lb_launch *l = c->launch;
  int64_t rows = l->dims[LB_DIM_ROWS], cols = l->dims[LB_DIM_COLS];
  bool product = l->slot->key.spec.form == LB_FORM_MATMUL;
  bool reduces = l->slot->key.spec.form == LB_FORM_ROWS;
  int64_t depth = product ? l->dims[LB_DIM_K] : reduces ? 8 : 2;
  c->by_cols = !reduces && rows < 64 && cols > COL_STEP;
  int64_t n = c->by_cols ? (cols + COL_STEP - 1) / COL_STEP : rows;
  int64_t work = depth * (c->by_cols ? rows * COL_STEP : cols);
  int64_t grain = work > 0 && work < MIN_WORK ? MIN_WORK / work : 1;
  // Rows of a product in whole tiles, and few parts: each reads all of b.
  if (product && !c->by_cols) grain = (rows / 8 + 12) / 12 * 12;
  lb_pool_for(pool, n, grain, run_part, c);
}

void lb_launch_run(const lb_launch *l, lb_kernel_fn *kernel, lb_pool *pool,
                   const lb_tensor *out, const lb_tensor *in) {
  const lb_spec *s = &l->slot->key.spec;
  call c = {.launch = l, .kernel = kernel, .n = (uint32_t)s->n_out + s->n_in};
  int64_t at[LB_BIND_LOOPS] = {0};
  for (;;) {
    for (uint32_t i = 0; i < c.n; i++) {
      c.base[i] = i < s->n_out ? out[i].data : in[i - s->n_out].data;
      for (int k = 0; k < l->n_outer; k++)
        c.base[i] += at[k] * l->operands[i].outer[k];
    }
    run_block(&c, pool);
    int k = l->n_outer;
    while (k > 0 && ++at[k - 1] == l->outer[k - 1]) at[--k] = 0;
    if (k == 0) return;
  }
}
