// partition/memo.c -- a short list that only grows, in front.
#include "partition/memo.h"

#include <stdlib.h>
#include <string.h>

#define MAX_ENTRIES 64  // of one list; what comes later is made each time

struct lb_memo_entry {
  struct lb_memo_entry *next;
  int n;  // of this one and those behind it
  lb_memo_key key;
  lb_memo_spec made;
};

const lb_memo_spec *lb_memo_find(const lb_memo *m, const lb_memo_key *key) {
  if (!m) return NULL;
  const struct lb_memo_entry *e =
      atomic_load_explicit(&m->first, memory_order_acquire);
  while (e && memcmp(&e->key, key, sizeof *key) != 0) e = e->next;
  return e ? &e->made : NULL;
}

// Two threads may add the same.
void lb_memo_add(lb_memo *m, const lb_memo_key *key, const lb_memo_spec *s) {
  struct lb_memo_entry *first = m ? atomic_load(&m->first) : NULL;
  if (!m || (first && first->n >= MAX_ENTRIES)) return;
  struct lb_memo_entry *e = malloc(sizeof *e);
  if (!e) return;
  e->key = *key;
  e->made = *s;
  do {
    e->next = first;
    e->n = first ? first->n + 1 : 1;
  } while (!atomic_compare_exchange_weak(&m->first, &first, e));
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
