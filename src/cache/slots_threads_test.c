// cache/slots_threads_test.c -- threads concurrently call kernels, publish
// others in their place and change the capacity. A released kernel must not be
// in use: its memory is poisoned. Runs under TSan in scripts/test.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "cache/slots.h"

#define THREADS 16
#define ROUNDS 10000
#define SLOTS 12
#define BYTES 1000

// Stands for code in memory.
typedef struct code {
  lb_exec base;
  lb_slot *slot;
  atomic_int live;
} code;

typedef struct shared {
  lb_slots slots;
  lb_lru lru;
  lb_slot *slot[SLOTS];
  atomic_int created, released;
} shared;

typedef struct job {
  shared *s;
  unsigned seed;
  const char *bad;
} job;

static shared *all;

static void release(lb_exec *base) {
  code *c = (code *)base;
  atomic_store_explicit(&c->live, 0, memory_order_relaxed);
  free(c);  // TSan or ASan detect a thread that still uses it
  atomic_fetch_add(&all->released, 1);
}

static const char *publish(job *j) {
  lb_slot *slot = j->s->slot[(unsigned)rand_r(&j->seed) % SLOTS];
  code *c = malloc(sizeof *c);
  bool kept;
  if (!c) return "memory";
  c->base = (lb_exec){.bytes = BYTES, .unload = release};
  c->slot = slot;
  atomic_init(&c->live, 1);
  atomic_fetch_add(&j->s->created, 1);
  lb_slot_code x = {.exec = &c->base, .tier = LB_TIER_REUSABLE};
  return lb_failed(lb_slots_publish(&j->s->slots, slot, &x, &kept)) ? "publish"
                                                                    : NULL;
}

static const char *run(job *j, lb_epoch_reader *reader) {
  const char *bad = NULL;
  lb_lru_enter(&j->s->lru, reader);
  for (int i = 0; i < SLOTS && !bad; i++) {
    lb_slot *slot = j->s->slot[(unsigned)rand_r(&j->seed) % SLOTS];
    const code *c = (const code *)lb_slot_kernel(slot);
    if (!c) continue;
    lb_slot_use(slot, reader);
    if (c->slot != slot) bad = "a kernel of another slot";
    if (!atomic_load_explicit(&c->live, memory_order_relaxed))
      bad = "a kernel that was released";
    if (rand_r(&j->seed) % 4 == 0) lb_lru_refresh(&j->s->lru, reader);
  }
  lb_lru_leave(&j->s->lru, reader);
  return bad;
}

// The first thread allocates the block, and all see the same one.
static const char *attach(const job *j, lb_slot *slot) {
  atomic_int *mine =
      lb_slots_attach(&j->s->slots, &slot->profile, sizeof *mine);
  if (!mine) return "no memory";
  atomic_fetch_add(mine, 1);
  return atomic_load(&slot->profile) == mine ? NULL : "two blocks";
}

static void *work(void *user) {
  job *j = user;
  lb_epoch_reader reader = {0};
  for (int i = 0; i < ROUNDS && !j->bad; i++) {
    int what = rand_r(&j->seed) % 64;
    if (what == 0)
      lb_lru_set_capacity(&j->s->lru,
                          (uint64_t)(rand_r(&j->seed) % 8) * BYTES * 3 / 2);
    else if (what == 1)
      lb_slots_withdraw(&j->s->slots,
                        j->s->slot[(unsigned)rand_r(&j->seed) % SLOTS]);
    else if (what == 2)
      j->bad = attach(j, j->s->slot[(unsigned)rand_r(&j->seed) % SLOTS]);
    else if (what < 16)
      j->bad = publish(j);
    else
      j->bad = run(j, &reader);
  }
  return NULL;
}

static void open_slots(shared *s) {
  assert_false(lb_failed(lb_slots_init(&s->slots, 16, lb_device_none())));
  assert_false(lb_failed(lb_lru_init(&s->lru, 5 * BYTES)));
  s->slots.lru = &s->lru;
  for (int i = 0; i < SLOTS; i++) {
    lb_spec_builder b;
    lb_spec spec;
    lb_facts facts = {0};
    lb_spec_begin(&b, LB_FORM_ELTWISE);
    uint8_t x = lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
    lb_spec_output(&b, lb_spec_node(&b, LB_S_EXP, LB_F32, &x, 1),
                   LB_LAYOUT_FULL);
    assert_false(lb_failed(lb_spec_finish(&b, &spec)));
    lb_facts_add(&facts, LB_ASSUME_MULTIPLE, LB_DIM_COLS, (uint16_t)(i + 1));
    assert_false(lb_failed(lb_slots_intern(&s->slots, (lb_slot_user){0}, &spec,
                                           &facts, &s->slot[i])));
  }
}

static void kernels_are_freed_after_their_last_run(void **state) {
  (void)state;
  static shared s;
  pthread_t threads[THREADS];
  job jobs[THREADS];
  all = &s;
  open_slots(&s);
  for (unsigned i = 0; i < THREADS; i++) {
    jobs[i] = (job){.s = &s, .seed = i};
    assert_int_equal(pthread_create(&threads[i], NULL, work, &jobs[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < THREADS; i++)
    if (jobs[i].bad) fail_msg("thread %d: %s", i, jobs[i].bad);
  lb_lru_stats stats;
  lb_lru_count(&s.lru, &stats);
  assert_true(stats.bytes <= stats.capacity);
  assert_int_equal(stats.retired, 0);  // the last run that left dropped them
  assert_int_equal(atomic_load(&s.created) - atomic_load(&s.released),
                   (int)stats.items);
  assert_true(stats.evictions > 0);
  lb_slots_fini(&s.slots);
  lb_lru_fini(&s.lru);
  assert_int_equal(atomic_load(&s.created), atomic_load(&s.released));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(kernels_are_freed_after_their_last_run),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
