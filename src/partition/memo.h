// partition/memo.h -- a cache of specs.
//
// Building a spec (generating nodes, canonical form, verification) costs more
// than everything else that planning does for a partition, and a partition has
// few specs over all shapes: the layouts of its operands determine which. Any
// thread may call.
#ifndef LB_PARTITION_MEMO_H
#define LB_PARTITION_MEMO_H

#include <stdatomic.h>

#include "spec/spec.h"

#define LB_MEMO_OPERANDS 16
_Static_assert(LB_SPEC_MAX_OUT + LB_SPEC_MAX_IN <= LB_MEMO_OPERANDS,
               "a layout for each");

typedef struct lb_memo {  // {0} is empty
  _Atomic(struct lb_memo_entry *) first;
} lb_memo;

// Everything that determines a spec.
typedef struct lb_memo_key {
  const void *nodes;  // of the partition, or of a piece of it
  uint8_t n_nodes, form, n_operands;
  uint8_t layouts[LB_MEMO_OPERANDS + 5];  // lb_layout by operand; then zero
} lb_memo_key;
_Static_assert(sizeof(lb_memo_key) == sizeof(void *) + 24, "compared as bytes");

typedef struct lb_memo_spec {
  lb_spec spec;                           // finished
  uint64_t scalars[LB_SPEC_MAX_SCALARS];  // bits
  uint32_t size_scalars;  // bit i: the value of scalar i depends on sizes
} lb_memo_spec;

// NULL if the memo has no entry; `m` may be NULL.
const lb_memo_spec *lb_memo_find(const lb_memo *m, const lb_memo_key *key);
// Adds the spec and returns the copy in the memo; NULL if the memo is full or
// out of memory. `m` may be NULL.
const lb_memo_spec *lb_memo_add(lb_memo *m, const lb_memo_key *key,
                                const lb_memo_spec *s);
void lb_memo_fini(lb_memo *m);  // NULL is fine

// A *note* is an object, as bytes, that callers store with a spec in a memo and
// facts, so that whatever these determine is computed once. The bytes are
// aligned for any type.
const void *lb_memo_note(const lb_memo_spec *s,
                         const lb_facts *f);  // NULL: none
// Copies the bytes, unless out of memory; `s` may be NULL.
void lb_memo_add_note(const lb_memo_spec *s, const lb_facts *f,
                      const void *bytes, size_t size);

#endif
