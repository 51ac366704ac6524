// cache/lru_test.c -- which items are evicted, and when evicted items are
// dropped.
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

static bool put_item(lb_lru *s, thing *t, uint64_t bytes, bool refcounted) {
  *t = (thing){.item = {.bytes = bytes,
                        .hide = hide,
                        .drop = drop,
                        .refcounted = refcounted}};
  t->item.used = &t->used;
  lb_lock_take(&s->lock);
  bool put = lb_lru_try_put(s, &t->item);
  lb_lock_give(&s->lock);
  lb_lru_collect(s);
  return put;
}

static bool put(lb_lru *s, thing *t, uint64_t bytes) {
  return put_item(s, t, bytes, false);
}

static void use(lb_lru *s, thing *t) {
  lb_epoch_reader reader = {0};
  lb_lru_enter(s, &reader);
  lb_lru_use(&t->used, reader.at);
  lb_lru_leave(s, &reader);
}

static void init(lb_lru *s, uint64_t capacity) {
  assert_false(lb_failed(lb_lru_init(s, capacity)));
}

static lb_lru_stats count(lb_lru *s) {
  lb_lru_stats stats;
  lb_lru_count(s, &stats);
  return stats;
}

static void the_least_recently_used_is_evicted(void **state) {
  (void)state;
  lb_lru s;
  thing t[5];
  init(&s, 40);
  for (int i = 0; i < 4; i++) assert_true(put(&s, &t[i], 10));
  use(&s, &t[0]);
  use(&s, &t[2]);
  assert_true(put(&s, &t[4], 20));
  const int evicted[] = {0, 1, 0, 1, 0};
  for (int i = 0; i < 5; i++) {
    assert_int_equal(t[i].hidden, evicted[i]);
    assert_int_equal(t[i].dropped, evicted[i]);
  }
  assert_int_equal(count(&s).bytes, 40);
  assert_int_equal(count(&s).items, 3);
  assert_int_equal(count(&s).evictions, 2);
  assert_int_equal(count(&s).insertions, 5);
  lb_lru_fini(&s);
  for (int i = 0; i < 5; i++) assert_int_equal(t[i].dropped, 1);
}

// All four were used, but item 2 first.
static void the_oldest_use_is_evicted_first(void **state) {
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

static void growing_evicts_others_or_the_item_itself(void **state) {
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

typedef struct seen_thing {  // found by a run that enters while it is hidden
  thing t;
  lb_lru *lru;
  lb_epoch_reader reader;
} seen_thing;

static void hide_after_enter(lb_lru_item *x) {
  seen_thing *t = (seen_thing *)x;
  lb_lru_enter(t->lru, &t->reader);
  t->t.hidden++;
}

// A run that entered before the item was hidden may have found it.
static void evicted_items_are_hidden_before_they_are_retired(void **state) {
  (void)state;
  lb_lru s;
  seen_thing seen = {.lru = &s};
  thing other;
  init(&s, 10);
  put(&s, &seen.t, 10);
  seen.t.item.hide = hide_after_enter;
  put(&s, &other, 10);
  assert_int_equal(seen.t.hidden, 1);
  assert_int_equal(seen.t.dropped, 0);
  lb_lru_leave(&s, &seen.reader);
  assert_int_equal(seen.t.dropped, 1);
  lb_lru_fini(&s);
}

// Readers without a cell count like all others, whichever leaves last.
static void readers_without_a_cell_keep_items_alive(void **state) {
  (void)state;
  enum { ALL = LB_EPOCH_CELLS + 3 };
  for (int last = 0; last < ALL; last++) {
    lb_lru s;
    thing t[2];
    lb_epoch_reader readers[ALL] = {{0}};
    init(&s, 10);
    put(&s, &t[0], 10);
    for (int i = 0; i < ALL; i++) lb_lru_enter(&s, &readers[i]);
    put(&s, &t[1], 10);
    for (int i = 0; i < ALL; i++)
      if (i != last) lb_lru_leave(&s, &readers[i]);
    assert_int_equal(t[0].dropped, 0);
    lb_lru_leave(&s, &readers[last]);
    assert_int_equal(t[0].dropped, 1);
    lb_lru_fini(&s);
  }
}

static void items_in_use_are_not_dropped(void **state) {
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
  assert_int_equal(t[0].dropped, 1);  // `late` entered after it was hidden
  assert_int_equal(t[1].dropped, 0);
  lb_lru_refresh(&s, &late);
  assert_int_equal(t[1].dropped, 1);
  assert_int_equal(count(&s).retired, 0);
  lb_lru_leave(&s, &late);
  lb_lru_fini(&s);
}

static void refcounted_items_are_dropped_immediately(void **state) {
  (void)state;
  lb_lru s;
  thing t[3];
  lb_epoch_reader reader = {0};
  init(&s, 10);
  put_item(&s, &t[0], 10, true);
  lb_lru_enter(&s, &reader);
  put(&s, &t[1], 10);
  assert_int_equal(t[0].hidden, 1);
  assert_int_equal(t[0].dropped, 1);
  put_item(&s, &t[2], 10, true);
  assert_int_equal(t[1].dropped, 0);
  lb_lru_set_capacity(&s, 5);
  assert_int_equal(t[2].dropped, 1);
  assert_int_equal(t[1].dropped, 0);
  lb_lru_leave(&s, &reader);
  assert_int_equal(t[1].dropped, 1);
  lb_lru_fini(&s);
}

static void any_number_of_runs_may_be_inside(void **state) {
  (void)state;
  lb_lru s;
  thing t[2];
  static lb_epoch_reader readers[3 * LB_EPOCH_CELLS];
  memset(readers, 0, sizeof readers);
  init(&s, 10);
  put(&s, &t[0], 10);
  for (int i = 0; i < 3 * LB_EPOCH_CELLS; i++) lb_lru_enter(&s, &readers[i]);
  put(&s, &t[1], 10);
  for (int i = 3 * LB_EPOCH_CELLS; i-- > 0;) {
    assert_int_equal(t[0].dropped, 0);
    lb_lru_leave(&s, &readers[i]);
  }
  assert_int_equal(t[0].dropped, 1);
  lb_lru_fini(&s);
}

// Readers of the parent keep nothing alive in the child, and neither does the
// one that forked, until it refreshes.
static void runs_of_the_parent_keep_nothing_alive_in_a_child(void **state) {
  (void)state;
  lb_lru s;
  thing t[3];
  static lb_epoch_reader readers[2 * LB_EPOCH_CELLS];
  memset(readers, 0, sizeof readers);
  init(&s, 10);
  put(&s, &t[0], 10);
  for (int i = 0; i < 2 * LB_EPOCH_CELLS; i++) lb_lru_enter(&s, &readers[i]);
  pid_t pid = fork();
  if (pid == 0) {
    put(&s, &t[1], 10);
    bool fine = t[0].dropped == 1;
    lb_lru_refresh(&s, &readers[0]);
    put(&s, &t[2], 10);
    fine = fine && t[1].dropped == 0;
    lb_lru_leave(&s, &readers[0]);
    lb_lru_leave(&s, &readers[2 * LB_EPOCH_CELLS - 1]);
    _exit(fine && t[1].dropped == 1 ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  put(&s, &t[1], 10);
  assert_int_equal(t[0].dropped, 0);
  for (int i = 0; i < 2 * LB_EPOCH_CELLS; i++) lb_lru_leave(&s, &readers[i]);
  assert_int_equal(t[0].dropped, 1);
  lb_lru_fini(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_least_recently_used_is_evicted),
      cmocka_unit_test(the_oldest_use_is_evicted_first),
      cmocka_unit_test(shrinking_evicts_just_enough),
      cmocka_unit_test(growing_evicts_others_or_the_item_itself),
      cmocka_unit_test(items_in_use_are_not_dropped),
      cmocka_unit_test(evicted_items_are_hidden_before_they_are_retired),
      cmocka_unit_test(readers_without_a_cell_keep_items_alive),
      cmocka_unit_test(refcounted_items_are_dropped_immediately),
      cmocka_unit_test(any_number_of_runs_may_be_inside),
      cmocka_unit_test(runs_of_the_parent_keep_nothing_alive_in_a_child),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
