// partition/memo.h -- specs that were finished before.
//
// Finishing a spec (canonical form, verifying) costs more than all else that a
// plan does for a partition, and a partition has few specs, whatever shapes
// come: what was built is compared, and what it became is used again. Any
// thread may call.
#ifndef LB_PARTITION_MEMO_H
#define LB_PARTITION_MEMO_H

#include <stdatomic.h>

#include "spec/spec.h"

typedef struct lb_memo {  // {0} is empty
  _Atomic(struct lb_memo_entry *) first;
} lb_memo;

// As lb_spec_finish; `m` may be NULL: nothing is remembered.
lb_status lb_memo_finish(lb_memo *m, lb_spec_builder *b, lb_spec *out);
void lb_memo_fini(lb_memo *m);  // NULL is fine

#endif
