// api/found.h -- what the process found around it, in words; see
// limber_runtime_describe.
#ifndef LB_API_FOUND_H
#define LB_API_FOUND_H

#include "api/jit.h"

typedef struct lb_found {
  lb_strbuf isa;     // what kernels may use
  lb_strbuf worker;  // path of the compiler; empty: LIMBER_JIT=off
  lb_strbuf store;   // folder of kernels on disk; empty: there is none
} lb_found;

lb_status lb_found_init(lb_found *f, const lb_kernels *k);  // fini in any case
void lb_found_fini(lb_found *f);

#endif
