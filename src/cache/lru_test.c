// cache/lru_test.c -- who is evicted, and when what was evicted goes.
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/lru.h"

#define MANY 100

typedef struct thing {
  lb_lru_item item;
  _Atomic uint64_t used;
  int hidden, dropped;
} thing;

static void hide(lb_lru_item *x) { ((thing *)x)->hidden++; }
static void drop(lb_lru_item *x) { ((thing *)x)->dropped++; }

static bool put_so(lb_lru *s, thing *t, uint64_t bytes, bool counted) {
  *t = (thing){
      .item = {.bytes = bytes, .hide = hide, .drop = drop, .counted = counted}};
  t->item.used = &t->used;
  lb_lock_take(&s->lock);
  bool put = lb_lru_try_put(s, &t->item);
  lb_lock_give(&s->lock);
  lb_lru_collect(s);
  return put;
}

static bool put(lb_lru *s, thing *t, uint64_t bytes) {
  return put_so(s, t, bytes, false);
}

static void use(lb_lru *s, thing *t) {
  lb_epoch_reader stay = {0};
  lb_lru_enter(s, &stay);
  lb_lru_use(&t->used, stay.at);
  lb_lru_leave(s, &stay);
}

static void init(lb_lru *s, uint64_t capacity) {
  assert_false(lb_failed(lb_lru_init(s, capacity)));
}

static lb_lru_stats count(lb_lru *s) {
  lb_lru_stats stats;
  lb_lru_count(s, &stats);
  return stats;
}

static void the_least_recently_used_goes(void **state) {
  (void)state;
  lb_lru s;
  thing t[5];
  init(&s, 40);
  for (int i = 0; i < 4; i++) assert_true(put(&s, &t[i], 10));
  use(&s, &t[0]);
  use(&s, &t[2]);
  assert_true(put(&s, &t[4], 20));
  const int gone[] = {0, 1, 0, 1, 0};
  for (int i = 0; i < 5; i++) {
    assert_int_equal(t[i].hidden, gone[i]);
    assert_int_equal(t[i].dropped, gone[i]);
  }
  assert_int_equal(count(&s).bytes, 40);
  assert_int_equal(count(&s).items, 3);
  assert_int_equal(count(&s).evictions, 2);
  assert_int_equal(count(&s).insertions, 5);
  lb_lru_fini(&s);
  for (int i = 0; i < 5; i++) assert_int_equal(t[i].dropped, 1);
}

// The use of 0 is older than that of the others, though all were used.
static void among_used_ones_the_oldest_use_decides(void **state) {
  (void)state;
  lb_lru s;
  thing t[6];
  init(&s, 40);
  for (int i = 0; i < 4; i++) put(&s, &t[i], 10);
  use(&s, &t[2]);
  lb_epochs_next(&s.epochs);
  use(&s, &t[0]);
  use(&s, &t[1]);
  use(&s, &t[3]);
  put(&s, &t[4], 10);
  assert_int_equal(t[2].dropped, 1);
  assert_int_equal(t[0].hidden + t[1].hidden + t[3].hidden, 0);
  lb_lru_fini(&s);
}

static void shrinking_evicts_just_enough(void **state) {
  (void)state;
  lb_lru s;
  thing t[MANY];
  init(&s, 1000);
  for (int i = 0; i < MANY; i++) put(&s, &t[i], 10);
  lb_lru_set_capacity(&s, 505);
  assert_int_equal(count(&s).items, 50);
  for (int i = 0; i < MANY; i++) assert_int_equal(t[i].dropped, i < 50);
  lb_lru_set_capacity(&s, 0);
  assert_int_equal(count(&s).items, 0);
  assert_false(put(&s, &t[0], 10));
  assert_int_equal(t[0].hidden, 0);
  assert_int_equal(lb_lru_capacity(&s), 0);
  lb_lru_fini(&s);
}

static void what_grows_evicts_others_or_itself(void **state) {
  (void)state;
  lb_lru s;
  thing t[2];
  init(&s, 40);
  for (int i = 0; i < 2; i++) put(&s, &t[i], 10);
  const uint64_t sizes[] = {30, 31, 5, 41};
  const uint64_t kept[] = {40, 31, 5, 0};
  for (int i = 0; i < 4; i++) {
    lb_lock_take(&s.lock);
    lb_lru_resize(&s, &t[1].item, sizes[i]);
    lb_lock_give(&s.lock);
    assert_int_equal(count(&s).bytes, kept[i]);
    assert_int_equal(t[0].hidden, i > 0);
    assert_int_equal(t[1].hidden, i == 3);
  }
  lb_lru_fini(&s);
}

typedef struct seen_thing {  // by a run that comes while it is hidden
  thing t;
  lb_lru *lru;
  lb_epoch_reader stay;
} seen_thing;

static void hide_late(lb_lru_item *x) {
  seen_thing *t = (seen_thing *)x;
  lb_lru_enter(t->lru, &t->stay);
  t->t.hidden++;
}

// A run that entered before it was hidden may have found it.
static void what_is_evicted_is_hidden_before_it_is_retired(void **state) {
  (void)state;
  lb_lru s;
  seen_thing seen = {.lru = &s};
  thing other;
  init(&s, 10);
  put(&s, &seen.t, 10);
  seen.t.item.hide = hide_late;
  put(&s, &other, 10);
  assert_int_equal(seen.t.hidden, 1);
  assert_int_equal(seen.t.dropped, 0);
  lb_lru_leave(&s, &seen.stay);
  assert_int_equal(seen.t.dropped, 1);
  lb_lru_fini(&s);
}

// Those for which there is no cell count as all others do, whichever it is.
static void runs_without_a_cell_hold_what_they_use(void **state) {
  (void)state;
  enum { ALL = LB_EPOCH_CELLS + 3 };
  for (int last = 0; last < ALL; last++) {
    lb_lru s;
    thing t[2];
    lb_epoch_reader stays[ALL] = {{0}};
    init(&s, 10);
    put(&s, &t[0], 10);
    for (int i = 0; i < ALL; i++) lb_lru_enter(&s, &stays[i]);
    put(&s, &t[1], 10);
    for (int i = 0; i < ALL; i++)
      if (i != last) lb_lru_leave(&s, &stays[i]);
    assert_int_equal(t[0].dropped, 0);
    lb_lru_leave(&s, &stays[last]);
    assert_int_equal(t[0].dropped, 1);
    lb_lru_fini(&s);
  }
}

static void nothing_in_use_is_dropped(void **state) {
  (void)state;
  lb_lru s;
  thing t[3];
  lb_epoch_reader early = {0}, late = {0};
  init(&s, 10);
  put(&s, &t[0], 10);
  lb_lru_enter(&s, &early);
  put(&s, &t[1], 10);
  assert_int_equal(t[0].hidden, 1);
  assert_int_equal(t[0].dropped, 0);
  assert_int_equal(count(&s).retired_bytes, 10);
  lb_lru_enter(&s, &late);
  put(&s, &t[2], 10);
  lb_lru_leave(&s, &early);
  assert_int_equal(t[0].dropped, 1);  // late entered when it was hidden
  assert_int_equal(t[1].dropped, 0);
  lb_lru_refresh(&s, &late);
  assert_int_equal(t[1].dropped, 1);
  assert_int_equal(count(&s).retired, 0);
  lb_lru_leave(&s, &late);
  lb_lru_fini(&s);
}

static void what_is_counted_waits_for_no_run(void **state) {
  (void)state;
  lb_lru s;
  thing t[3];
  lb_epoch_reader stay = {0};
  init(&s, 10);
  put_so(&s, &t[0], 10, true);
  lb_lru_enter(&s, &stay);
  put(&s, &t[1], 10);
  assert_int_equal(t[0].hidden, 1);
  assert_int_equal(t[0].dropped, 1);
  put_so(&s, &t[2], 10, true);
  assert_int_equal(t[1].dropped, 0);
  lb_lru_set_capacity(&s, 5);
  assert_int_equal(t[2].dropped, 1);
  assert_int_equal(t[1].dropped, 0);
  lb_lru_leave(&s, &stay);
  assert_int_equal(t[1].dropped, 1);
  lb_lru_fini(&s);
}

static void any_number_of_runs_is_inside(void **state) {
  (void)state;
  lb_lru s;
  thing t[2];
  static lb_epoch_reader stays[3 * LB_EPOCH_CELLS];
  memset(stays, 0, sizeof stays);
  init(&s, 10);
  put(&s, &t[0], 10);
  for (int i = 0; i < 3 * LB_EPOCH_CELLS; i++) lb_lru_enter(&s, &stays[i]);
  put(&s, &t[1], 10);
  for (int i = 3 * LB_EPOCH_CELLS; i-- > 0;) {
    assert_int_equal(t[0].dropped, 0);
    lb_lru_leave(&s, &stays[i]);
  }
  assert_int_equal(t[0].dropped, 1);
  lb_lru_fini(&s);
}

// Stays that a fork left behind hold nothing up in the child, and neither
// does the one that forked, until it refreshes.
static void a_child_is_not_held_up_by_runs_of_its_parent(void **state) {
  (void)state;
  lb_lru s;
  thing t[3];
  static lb_epoch_reader stays[2 * LB_EPOCH_CELLS];
  memset(stays, 0, sizeof stays);
  init(&s, 10);
  put(&s, &t[0], 10);
  for (int i = 0; i < 2 * LB_EPOCH_CELLS; i++) lb_lru_enter(&s, &stays[i]);
  pid_t pid = fork();
  if (pid == 0) {
    put(&s, &t[1], 10);
    bool fine = t[0].dropped == 1;
    lb_lru_refresh(&s, &stays[0]);
    put(&s, &t[2], 10);
    fine = fine && t[1].dropped == 0;
    lb_lru_leave(&s, &stays[0]);
    lb_lru_leave(&s, &stays[2 * LB_EPOCH_CELLS - 1]);
    _exit(fine && t[1].dropped == 1 ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  put(&s, &t[1], 10);
  assert_int_equal(t[0].dropped, 0);
  for (int i = 0; i < 2 * LB_EPOCH_CELLS; i++) lb_lru_leave(&s, &stays[i]);
  assert_int_equal(t[0].dropped, 1);
  lb_lru_fini(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_least_recently_used_goes),
      cmocka_unit_test(among_used_ones_the_oldest_use_decides),
      cmocka_unit_test(shrinking_evicts_just_enough),
      cmocka_unit_test(what_grows_evicts_others_or_itself),
      cmocka_unit_test(nothing_in_use_is_dropped),
      cmocka_unit_test(what_is_evicted_is_hidden_before_it_is_retired),
      cmocka_unit_test(runs_without_a_cell_hold_what_they_use),
      cmocka_unit_test(what_is_counted_waits_for_no_run),
      cmocka_unit_test(any_number_of_runs_is_inside),
      cmocka_unit_test(a_child_is_not_held_up_by_runs_of_its_parent),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
