// cache/retire_test.c -- the order of publishing and retiring: a kernel is
// removed from its slot before the epoch is stamped after which it may be
// freed. Runs that enter or load the slot in between must never hold released
// code.
//
// The linker replaces lb_lru_remove, which takes the stamp, by the functions
// below (see CMakeLists.txt), so that a test can read the slot at exactly that
// moment. Runs under TSan in scripts/test.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "cache/slots.h"

#define BYTES 1000

// -- a run before and after the stamp ----------------------------------------

// Never called. Static in tests, because it is released when the slots are
// freed.
typedef struct code {
  lb_exec base;
  atomic_bool released;
} code;

typedef struct reader {
  lb_epoch_reader epoch;
  const code *seen;
} reader;

static struct {
  lb_slots slots;
  lb_lru lru;
  lb_slot *slot;
  bool watch;  // readers enter before and after the stamp
  reader before, after;
  bool yield;  // yield to other threads after it
} all;

static void enter(reader *r) {
  lb_lru_enter(&all.lru, &r->epoch);
  r->seen = (const code *)lb_slot_kernel(all.slot);
}

static void leave(reader *r) { lb_lru_leave(&all.lru, &r->epoch); }

void __real_lb_lru_remove(lb_lru *s, lb_lru_item *item);
void __wrap_lb_lru_remove(lb_lru *s, lb_lru_item *item);
void __wrap_lb_lru_remove(lb_lru *s, lb_lru_item *item) {
  if (all.watch) enter(&all.before);
  __real_lb_lru_remove(s, item);
  if (all.watch) enter(&all.after);
  for (int i = 0; all.yield && i < 8; i++) sched_yield();
}

// -- slots -------------------------------------------------------------------

static void release(lb_exec *c) { atomic_store(&((code *)c)->released, true); }

static void release_and_free(lb_exec *c) {
  release(c);
  free(c);  // TSan and ASan detect a run that still uses it
}

static bool publish(code *c, void (*how)(lb_exec *exec)) {
  bool kept;
  c->base = (lb_exec){.bytes = BYTES, .unload = how};
  lb_slot_code x = {.exec = &c->base, .tier = LB_TIER_REUSABLE};
  return !lb_failed(lb_slots_publish(&all.slots, all.slot, &x, &kept)) && kept;
}

static int setup(void **state) {
  lb_spec_builder b;
  lb_spec spec;
  (void)state;
  memset(&all, 0, sizeof all);
  lb_spec_begin(&b, LB_FORM_ELTWISE);
  uint8_t x = lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  lb_spec_output(&b, lb_spec_node(&b, LB_S_EXP, LB_F32, &x, 1), LB_LAYOUT_FULL);
  assert_false(lb_failed(lb_spec_finish(&b, &spec)));
  assert_false(lb_failed(lb_slots_init(&all.slots, 16, lb_device_none())));
  assert_false(lb_failed(lb_lru_init(&all.lru, 10 * BYTES)));
  all.slots.lru = &all.lru;
  assert_false(lb_failed(lb_slots_intern(&all.slots, (lb_slot_user){0}, &spec,
                                         &(lb_facts){0}, &all.slot)));
  return 0;
}

static int teardown(void **state) {
  (void)state;
  lb_slots_fini(&all.slots);
  lb_lru_fini(&all.lru);
  return 0;
}

// Code that a run has loaded is not released before the run leaves.
static void expect_alive(const reader *r) {
  if (r->seen) assert_false(atomic_load(&r->seen->released));
}

static void a_kernel_is_replaced_before_it_is_retired(void **state) {
  (void)state;
  static code previous, current;
  assert_true(publish(&previous, release));
  all.watch = true;
  assert_true(publish(&current, release));
  all.watch = false;
  lb_lru_collect(&all.lru);
  assert_ptr_equal(all.before.seen, &current);
  assert_ptr_equal(all.after.seen, &current);
  leave(&all.before);  // keeps the previous one alive, as it entered before the
                       // stamp
  expect_alive(&all.after);
  assert_true(atomic_load(&previous.released));
  leave(&all.after);
  assert_false(atomic_load(&current.released));
}

static void a_kernel_is_withdrawn_before_it_is_retired(void **state) {
  (void)state;
  static code previous;
  assert_true(publish(&previous, release));
  all.watch = true;
  lb_slots_withdraw(&all.slots, all.slot);
  all.watch = false;
  lb_lru_collect(&all.lru);
  assert_null(all.before.seen);
  assert_null(all.after.seen);
  assert_false(atomic_load(&previous.released));
  leave(&all.before);
  assert_true(atomic_load(&previous.released));
  leave(&all.after);
}

// A run that entered before keeps alive what it may have loaded, and a run that
// entered after keeps nothing alive.
static void a_run_keeps_alive_what_it_may_have_loaded(void **state) {
  (void)state;
  static code codes[3];
  reader early = {.seen = NULL}, late = {.seen = NULL};
  assert_true(publish(&codes[0], release));
  enter(&early);
  assert_true(publish(&codes[1], release));
  enter(&late);
  assert_true(publish(&codes[2], release));
  assert_ptr_equal(early.seen, &codes[0]);
  assert_ptr_equal(late.seen, &codes[1]);
  assert_false(atomic_load(&codes[0].released));
  leave(&early);
  assert_true(atomic_load(&codes[0].released));
  assert_false(atomic_load(&codes[1].released));
  leave(&late);
  assert_true(atomic_load(&codes[1].released));
  assert_false(atomic_load(&codes[2].released));
}

// -- many at once ------------------------------------------------------------

#define READERS 6
#define PUBLISHED 2000

static atomic_bool ended;

static void *read_often(void *user) {
  atomic_int *bad = user;
  reader r = {.seen = NULL};
  while (!atomic_load(&ended)) {
    enter(&r);
    for (int i = 0; r.seen && i < 4; i++) {
      if (atomic_load(&r.seen->released)) atomic_fetch_add(bad, 1);
      sched_yield();
    }
    leave(&r);
  }
  return NULL;
}

static void no_run_holds_released_code(void **state) {
  (void)state;
  pthread_t threads[READERS];
  atomic_int bad = 0;
  atomic_store(&ended, false);
  all.yield = true;
  for (int i = 0; i < READERS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, read_often, &bad), 0);
  for (int i = 0; i < PUBLISHED; i++) {
    code *c = calloc(1, sizeof *c);
    assert_non_null(c);
    assert_true(publish(c, release_and_free));
    if (i % 8 == 7) lb_slots_withdraw(&all.slots, all.slot);
  }
  atomic_store(&ended, true);
  for (int i = 0; i < READERS; i++) pthread_join(threads[i], NULL);
  all.yield = false;
  assert_int_equal(atomic_load(&bad), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_kernel_is_replaced_before_it_is_retired),
      TEST(a_kernel_is_withdrawn_before_it_is_retired),
      TEST(a_run_keeps_alive_what_it_may_have_loaded),
      TEST(no_run_holds_released_code),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
