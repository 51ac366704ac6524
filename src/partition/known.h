// partition/known.h -- finds the spec of a binding in the memo, or adds it.
// Internal to this module.
#ifndef LB_PARTITION_KNOWN_H
#define LB_PARTITION_KNOWN_H

#include "partition/specgen.h"
#include "partition/partition.h"

// Clears everything except operands, whose number becomes 0, and spec.
void lb_bind_begin(lb_binding *b);

// Takes spec and scalars from the memo; `number` is the value of the scalar
// that depends on sizes. False if the memo has no entry.
bool lb_bind_known(const lb_partition *p, const lb_memo_key *key, double number,
                   lb_binding *b);
// Finishes the generated spec and adds it to the memo. A spec that exceeds a
// limit is not an error: *ok is false, and the nodes run one by one.
lb_status lb_bind_new(const lb_partition *p, const lb_memo_key *key,
                      lb_specgen *e, lb_binding *b, bool *ok);

#endif
