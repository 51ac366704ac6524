// partition/memo.c -- a short list that only grows, in front.
#include "partition/memo.h"

#include <stdlib.h>
#include <string.h>

#define MAX_ENTRIES 64  // of one list; what comes later is finished each time

struct lb_memo_entry {
  struct lb_memo_entry *next;
  int n;  // of this one and those behind it
  lb_spec built, finished;
};

static const struct lb_memo_entry *find(const struct lb_memo_entry *e,
                                        const lb_spec *built) {
  for (; e; e = e->next)
    if (memcmp(&e->built, built, sizeof *built) == 0) return e;
  return NULL;
}

// Best effort: two threads may add the same, or neither where memory is out.
static void add(lb_memo *m, const lb_spec *built, const lb_spec *finished) {
  struct lb_memo_entry *first = atomic_load(&m->first);
  if (first && first->n >= MAX_ENTRIES) return;
  struct lb_memo_entry *e = malloc(sizeof *e);
  if (!e) return;
  e->built = *built;
  e->finished = *finished;
  do {
    e->next = first;
    e->n = first ? first->n + 1 : 1;
  } while (!atomic_compare_exchange_weak(&m->first, &first, e));
}

lb_status lb_memo_finish(lb_memo *m, lb_spec_builder *b, lb_spec *out) {
  if (!m || lb_failed(b->error)) return lb_spec_finish(b, out);
  const struct lb_memo_entry *e =
      find(atomic_load_explicit(&m->first, memory_order_acquire), &b->spec);
  if (e) {
    *out = e->finished;
    return LB_OK;
  }
  lb_spec built = b->spec;
  LB_TRY(lb_spec_finish(b, out));
  add(m, &built, out);
  return LB_OK;
}

void lb_memo_fini(lb_memo *m) {
  struct lb_memo_entry *e = m ? atomic_load(&m->first) : NULL;
  while (e) {
    struct lb_memo_entry *next = e->next;
    free(e);
    e = next;
  }
  if (m) atomic_store(&m->first, NULL);
}
