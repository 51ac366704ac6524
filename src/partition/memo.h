// partition/memo.h -- specs that were made before.
//
// Making a spec (emitting nodes, canonical form, verifying) costs more than all
// else that a plan does for a partition, and a partition has few specs,
// whatever shapes come: layouts of its operands decide which. Any thread may
// call.
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

// All that decides a spec.
typedef struct lb_memo_key {
  const void *nodes;  // of the partition, or of a piece of it
  uint8_t n_nodes, form, n_operands;
  uint8_t layouts[LB_MEMO_OPERANDS + 5];  // lb_layout by operand; then zero
} lb_memo_key;
_Static_assert(sizeof(lb_memo_key) == sizeof(void *) + 24, "compared as bytes");

typedef struct lb_memo_spec {
  lb_spec spec;                           // finished
  uint64_t scalars[LB_SPEC_MAX_SCALARS];  // bits
  uint32_t own;  // bit i: scalar i is a number that sizes decide
} lb_memo_spec;

// NULL if it was not made before, or not remembered; `m` may be NULL.
const lb_memo_spec *lb_memo_find(const lb_memo *m, const lb_memo_key *key);
// Remembers it where there is memory and room, and returns what it has become
// there, or NULL; `m` may be NULL.
const lb_memo_spec *lb_memo_add(lb_memo *m, const lb_memo_key *key,
                                const lb_memo_spec *s);
void lb_memo_fini(lb_memo *m);  // NULL is fine

// A *note* is what others keep with a remembered spec and facts, as bytes: what
// both decide need not be found again. Bytes are aligned as any object.
const void *lb_memo_note(const lb_memo_spec *s, const lb_facts *f);  // or NULL
// Copies the bytes, where there is memory; `s` may be NULL.
void lb_memo_add_note(const lb_memo_spec *s, const lb_facts *f,
                      const void *bytes, size_t size);

#endif
