// base/ref.h -- atomic reference counts for objects shared between threads.
#ifndef LB_BASE_REF_H
#define LB_BASE_REF_H

#include <stdatomic.h>
#include <stdbool.h>

typedef struct lb_ref {
  atomic_int count;
} lb_ref;

static inline void lb_ref_init(lb_ref *r) { atomic_init(&r->count, 1); }

static inline void lb_ref_retain(lb_ref *r) {
  atomic_fetch_add_explicit(&r->count, 1, memory_order_relaxed);
}

// True if this was the last reference: the caller destroys the object.
static inline bool lb_ref_release(lb_ref *r) {
  return atomic_fetch_sub_explicit(&r->count, 1, memory_order_acq_rel) == 1;
}

#endif
