// worker/check.h -- machine code against the interpreter, before it is handed
// out.
//
// Both run the same kernel IR at shapes where kernels go wrong: one element,
// tails of vectors and tiles, none at all. What must be the same bits is
// compared as bits; behind mathematical functions, which may be some ulp off,
// with a tolerance. Memory around operands cannot be touched, and gaps between
// their rows must stay as they were. One thread of a process at a time.
#ifndef LB_WORKER_CHECK_H
#define LB_WORKER_CHECK_H

#include "base/file.h"
#include "kir/kir.h"
#include "spec/spec.h"
#include "worker/fault.h"

// How objects are made callable in this process.
typedef struct lb_loader {
  void *user;
  // Borrows `object` for the call. *out runs until *handle is unloaded.
  lb_status (*load)(void *user, lb_span object, lb_kernel_fn **out,
                    void **handle);
  void (*unload)(void *user, void *handle);
} lb_loader;

// `kernel` is what `code` was made from. LB_INTERNAL tells the shape, the
// output, and both values. *shapes: at how many it was checked; 0 where what
// the facts assume holds at no shape small enough to try.
lb_status lb_check_code(const lb_spec *spec, const lb_facts *facts,
                        const lb_kernel *kernel, lb_kernel_fn *code,
                        uint32_t *shapes);

#endif
