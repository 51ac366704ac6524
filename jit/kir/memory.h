// kir/memory.h -- the interpreter's accesses to memory, each checked.
#ifndef LB_KIR_MEMORY_H
#define LB_KIR_MEMORY_H

#include "kir/eval.h"

typedef struct lb_kmemory {
  char *base;  // borrowed
  size_t size;
} lb_kmemory;

// What went wrong, in words that follow the instruction's text.
typedef struct lb_kfault {
  char text[160];
} lb_kfault;

typedef bool lb_kaccess_fn(const lb_kstep *s, char *frame,
                           const lb_kmemory *memories, lb_kfault *fault);

// Each is false after filling in *fault. Operands: see kir.h; an operand that
// is left out has the offset LB_K_NONE. STORE and SCATTER decode with the
// lanes of their value.
lb_kaccess_fn lb_kaccess_load, lb_kaccess_store, lb_kaccess_gather,
    lb_kaccess_scatter;

#endif
