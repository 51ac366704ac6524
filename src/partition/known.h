// partition/known.h -- the spec of a binding: known from before, or new.
// Internal to the room.
#ifndef LB_PARTITION_KNOWN_H
#define LB_PARTITION_KNOWN_H

#include "partition/specgen.h"
#include "partition/partition.h"

// Clears all of it but its operands, of which there are none, and its spec.
void lb_bind_begin(lb_binding *b);

// Takes spec and scalars that were made for the key before; `number` is the one
// that sizes decide. False if there are none.
bool lb_bind_known(const lb_partition *p, const lb_memo_key *key, double number,
                   lb_binding *b);
// Finishes and remembers what was emitted. A spec past a limit is no error: *ok
// is false, and the nodes run one by one.
lb_status lb_bind_new(const lb_partition *p, const lb_memo_key *key,
                      lb_specgen *e, lb_binding *b, bool *ok);

#endif
