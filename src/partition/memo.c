// partition/memo.c -- a short lock-free list that only grows, at its front.
#include "partition/memo.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ENTRIES 64  // per list; further specs are built each time

typedef struct note {
  struct note *next;
  int n;  // length of the list from here on
  lb_facts facts;
  max_align_t bytes[];
} note;

struct lb_memo_entry {
  lb_memo_spec value;
  struct lb_memo_entry *next;
  int n;  // likewise
  lb_memo_key key;
  _Atomic(note *) notes;
};

const lb_memo_spec *lb_memo_find(const lb_memo *m, const lb_memo_key *key) {
  if (!m) return NULL;
  const struct lb_memo_entry *e =
      atomic_load_explicit(&m->first, memory_order_acquire);
  while (e && memcmp(&e->key, key, sizeof *key) != 0) e = e->next;
  return e ? &e->value : NULL;
}

// Two threads may add equal entries.
const lb_memo_spec *lb_memo_add(lb_memo *m, const lb_memo_key *key,
                                const lb_memo_spec *s) {
  struct lb_memo_entry *first = m ? atomic_load(&m->first) : NULL;
  if (!m || (first && first->n >= MAX_ENTRIES)) return NULL;
  struct lb_memo_entry *e = malloc(sizeof *e);
  if (!e) return NULL;
  e->key = *key;
  e->value = *s;
  atomic_init(&e->notes, NULL);
  do {
    e->next = first;
    e->n = first ? first->n + 1 : 1;
  } while (!atomic_compare_exchange_weak(&m->first, &first, e));
  return &e->value;
}

// An lb_memo_spec in a memo is the first member of its entry.
static struct lb_memo_entry *entry_of(const lb_memo_spec *s) {
  return (struct lb_memo_entry *)(uintptr_t)s;
}

const void *lb_memo_note(const lb_memo_spec *s, const lb_facts *f) {
  if (!s) return NULL;
  const note *n =
      atomic_load_explicit(&entry_of(s)->notes, memory_order_acquire);
  while (n && memcmp(&n->facts, f, sizeof *f) != 0) n = n->next;
  return n ? n->bytes : NULL;
}

void lb_memo_add_note(const lb_memo_spec *s, const lb_facts *f,
                      const void *bytes, size_t size) {
  note *first = s ? atomic_load(&entry_of(s)->notes) : NULL;
  if (!s || (first && first->n >= MAX_ENTRIES)) return;
  note *n = malloc(sizeof *n + size);
  if (!n) return;
  n->facts = *f;
  memcpy(n->bytes, bytes, size);
  do {
    n->next = first;
    n->n = first ? first->n + 1 : 1;
  } while (!atomic_compare_exchange_weak(&entry_of(s)->notes, &first, n));
}

static void free_notes(struct lb_memo_entry *e) {
  for (note *n = atomic_load(&e->notes), *next; n; n = next) {
    next = n->next;
    free(n);
  }
}

void lb_memo_fini(lb_memo *m) {
  struct lb_memo_entry *e = m ? atomic_load(&m->first) : NULL;
  while (e) {
    struct lb_memo_entry *next = e->next;
    free_notes(e);
    free(e);
    e = next;
  }
  if (m) atomic_store(&m->first, NULL);
}
