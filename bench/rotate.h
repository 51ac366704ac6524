// bench/rotate.h -- a launch with operands of its own, many times over.
//
// A kernel that is called again and again on the same operands finds them in
// the nearest cache, as in no model. So every operand exists in several copies,
// and each call takes the next: weights go round a set as large as all weights
// of the model, the rest round one that no L2 holds.
#ifndef LB_BENCH_ROTATE_H
#define LB_BENCH_ROTATE_H

#include "plan/plan.h"

#define BENCH_OPERANDS (LB_SPEC_MAX_OUT + LB_SPEC_MAX_IN)

typedef struct bench_operand {
  char *data;  // owned, unless another operand is the same memory
  bool owned;
  bool weights;    // packed: read by this kernel alone
  size_t span;     // bytes from one copy to the next
  size_t before;   // of them in front of the first element
  size_t touched;  // bytes that one launch reads or writes
  size_t copies;
} bench_operand;

typedef struct bench_rotation {
  lb_launch launch;  // the plan's, with these operands
  lb_address addresses[BENCH_OPERANDS];
  bench_operand operands[BENCH_OPERANDS];
  int n;
  size_t weight_bytes, other_bytes;  // touched by one launch
  size_t weight_set, other_set;      // all copies
  size_t copies;                     // of what has the most
} bench_rotation;

typedef struct bench_sets {
  size_t weights, others;  // bytes that all copies together must exceed
} bench_sets;

lb_status bench_rotation_init(bench_rotation *r, const lb_launch *l,
                              const bench_sets *sets);
void bench_rotation_fini(bench_rotation *r);

// Calls the kernel on the next `n` copies, the first being number `at`.
void bench_rotation_run(const bench_rotation *r, const lb_exec *kernel,
                        size_t at, size_t n);

// Operations of one launch: of its products, and of what is made of them.
double bench_flops(const lb_launch *l);

#endif
