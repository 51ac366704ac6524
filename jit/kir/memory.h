// kir/memory.h -- The interpreter's checked memory accesses.
#ifndef LB_KIR_MEMORY_H
#define LB_KIR_MEMORY_H

#include "kir/eval.h"

typedef struct lb_kmemory {
  char *base;  // borrowed
  size_t size;
} lb_kmemory;

// Error text that follows the instruction's text.
typedef struct lb_kfault {
  char text[160];
} lb_kfault;

typedef bool lb_kaccess_fn(const lb_kstep *s, char *frame,
                           const lb_kmemory *memories, lb_kfault *fault);

// Each returns false and fills in *fault on an error. For operands see kir.h;
// an omitted operand has the offset LB_K_NONE. STORE and SCATTER are decoded
// with the lanes of their value.
lb_kaccess_fn lb_kaccess_load, lb_kaccess_store, lb_kaccess_gather,
    lb_kaccess_scatter;

#endif
