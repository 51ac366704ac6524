// bench/rotate.h -- Runs a launch repeatedly on rotating copies of operands.
//
// A kernel that always runs on the same operands finds them in L1, unlike in a
// model. So every operand has several copies, and each call uses the next one:
// all copies of weights together are as large as the weights of the model,
// those of other operands exceed L2.
#ifndef LB_BENCH_ROTATE_H
#define LB_BENCH_ROTATE_H

#include "plan/plan.h"

#define BENCH_OPERANDS (LB_SPEC_MAX_OUT + LB_SPEC_MAX_IN)

typedef struct bench_operand {
  char *data;  // owned if `owned`; else another operand's memory
  bool owned;
  bool weights;    // packed: only this kernel reads it
  size_t span;     // bytes from one copy to the next
  size_t before;   // bytes of a copy before its first element
  size_t touched;  // bytes that one launch reads or writes
  size_t copies;
} bench_operand;

typedef struct bench_rotation {
  lb_launch launch;  // the plan's, on these operands
  lb_address addresses[BENCH_OPERANDS];
  bench_operand operands[BENCH_OPERANDS];
  int n;
  size_t weight_bytes, other_bytes;  // bytes touched by one launch
  size_t weight_set, other_set;      // bytes of all copies
  size_t copies;                     // the maximum of its operands
} bench_rotation;

typedef struct bench_sets {
  size_t weights, others;  // minimum bytes of all copies
} bench_sets;

lb_status bench_rotation_init(bench_rotation *r, const lb_launch *l,
                              const bench_sets *sets);
void bench_rotation_fini(bench_rotation *r);

// Runs the kernel on `n` successive copies, from number `at` on.
void bench_rotation_run(const bench_rotation *r, const lb_exec *kernel,
                        size_t at, size_t n);

// Floating-point operations of one launch: of its matmul and its epilogue.
double bench_flops(const lb_launch *l);

#endif
