// worker/target.h -- what to compile for, from its text.
#ifndef LB_WORKER_TARGET_H
#define LB_WORKER_TARGET_H

#include "lower/lower.h"
#include "render/target.h"

typedef struct lb_jit_target {
  lb_target render;
  const lb_lower_target *lower;  // static
} lb_jit_target;

// "x86-64-v4+avx512vnni": a level, then features. Features that no generator
// knows are left unused. LB_UNSUPPORTED: a level there are no kernels for;
// LB_INVALID: no such text.
lb_status lb_jit_target_parse(const char *text, lb_jit_target *out);

// True if code for `t` runs on this machine.
bool lb_jit_target_runs(const lb_jit_target *t);

#endif
