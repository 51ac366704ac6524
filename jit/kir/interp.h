// kir/interp.h -- Runs kernels as kir.h defines them, instruction by
// instruction, on bounds-checked memory: the reference for machine code.
#ifndef LB_KIR_INTERP_H
#define LB_KIR_INTERP_H

#include "kir/kir.h"

// The argument of a PARAM: memory for a pointer, else the bits of a scalar.
typedef struct lb_karg {
  void *data;  // borrowed; may be NULL if size is 0
  size_t size;
  uint64_t bits;
} lb_karg;

static inline lb_karg lb_karg_mem(const void *data, size_t size) {
  return (lb_karg){.data = (void *)(uintptr_t)data, .size = size};
}
static inline lb_karg lb_karg_i64(int64_t x) {
  return (lb_karg){.bits = (uint64_t)x};
}
lb_karg lb_karg_num(lb_dtype t, double x);

typedef struct lb_klaunch {
  const lb_karg *args;  // borrowed; one per PARAM
  uint32_t n_args;
  uint32_t groups[3];
  uint64_t budget;  // instructions, of all work items together
} lb_klaunch;

typedef struct lb_kinterp lb_kinterp;  // a decoded kernel; one thread at a time

// Verifies the kernel first. `k` is borrowed and must outlive the interpreter.
lb_status lb_kinterp_new(const lb_kernel *k, lb_kinterp **out);
void lb_kinterp_free(lb_kinterp *m);  // NULL is fine

// Runs all groups, one after the other. An access out of bounds or less aligned
// than stated, a step that is not positive and a barrier that not all work
// items reach are LB_INVALID, naming the instruction; an exceeded budget is
// LB_CANCELLED. Memory may have been written before the error.
lb_status lb_kinterp_run(lb_kinterp *m, const lb_klaunch *l);

#endif
