// api/found.h -- the environment that the process detected, as text, for
// limber_runtime_describe.
#ifndef LB_API_FOUND_H
#define LB_API_FOUND_H

#include "api/jit.h"

typedef struct lb_found {
  lb_strbuf isa;     // the instruction set that kernels may use
  lb_strbuf worker;  // path of limber-jit; empty: LIMBER_JIT=off
  lb_strbuf store;   // directory of the kernel store; empty: none
} lb_found;

// The caller calls lb_found_fini even if this fails.
lb_status lb_found_init(lb_found *f, const lb_kernels *k);
void lb_found_fini(lb_found *f);

#endif
