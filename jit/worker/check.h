// worker/check.h -- Checks machine code against the interpreter before it is
// handed out.
//
// Both run the same kernel IR at shapes where kernels tend to fail: one
// element, tails of vectors and tiles, empty dimensions. Exact results are
// compared bit for bit; results of mathematical functions, which may be off by
// some ulps, with a tolerance. Guard pages surround the operands, and gaps
// between their rows must stay unchanged. Only one thread of a process may run
// a check at a time.
#ifndef LB_WORKER_CHECK_H
#define LB_WORKER_CHECK_H

#include "base/file.h"
#include "kir/kir.h"
#include "spec/spec.h"
#include "worker/fault.h"

// How objects are loaded in this process.
typedef struct lb_loader {
  void *user;
  // Borrows `object` for the call. *out may be called until *handle is
  // unloaded.
  lb_status (*load)(void *user, lb_span object, lb_kernel_fn **out,
                    void **handle);
  void (*unload)(void *user, void *handle);
} lb_loader;

// `code` was compiled from `kernel`. LB_INTERNAL names the shape, the output
// and both values. *shapes is the number of shapes checked; 0 if the facts hold
// at no shape that is small enough.
lb_status lb_check_code(const lb_spec *spec, const lb_facts *facts,
                        const lb_kernel *kernel, lb_kernel_fn *code,
                        uint32_t *shapes);

#endif
