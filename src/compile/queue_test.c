// compile/queue_test.c -- which slot is worth compiling next.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "compile/queue.h"

static const lb_queue_time BUSY = {.now_ns = 1};

static lb_slot_profile profiles[2 * LB_QUEUE_MAX];  // of all tests
static unsigned n_profiles;

static lb_slot_profile *of(const lb_slot *s) { return lb_slot_profile_of(s); }

// A slot that lacks, of a form; the rest of its spec is not looked at.
static lb_slot slot_of(lb_form form, unsigned seen, uint64_t ns) {
  assert_true(n_profiles < 2 * LB_QUEUE_MAX);
  lb_slot s = {.wanted = true, .profile = &profiles[n_profiles++]};
  s.key.spec.form = (uint8_t)form;
  of(&s)->seen = seen;
  of(&s)->ns = ns;
  of(&s)->asked = true;
  return s;
}

static lb_slot like(const lb_slot *s) {
  return slot_of((lb_form)s->key.spec.form, of(s)->seen, of(s)->ns);
}

static lb_queue *new_queue(void) {
  lb_queue *q = malloc(sizeof *q);
  assert_non_null(q);
  lb_queue_init(q);
  return q;
}

static lb_slot *take(lb_queue *q, lb_queue_time t) {
  int64_t wait_ns;
  return lb_queue_take(q, &t, &wait_ns);
}

static void more_time_spent_is_worth_more(void **state) {
  (void)state;
  lb_queue *q = new_queue();
  lb_slot cold = slot_of(LB_FORM_ELTWISE, 9, 1000);
  lb_slot hot = slot_of(LB_FORM_ELTWISE, 2, 900000);
  lb_queue_put(q, &cold);
  lb_queue_put(q, &hot);
  assert_ptr_equal(take(q, BUSY), &hot);
  assert_ptr_equal(take(q, BUSY), &cold);
  assert_null(take(q, BUSY));
  free(q);
}

static void what_requests_need_comes_before_what_they_needed(void **state) {
  (void)state;
  lb_queue *q = new_queue();
  lb_queue_time t = BUSY;
  lb_slot past = slot_of(LB_FORM_ELTWISE, 2, 100000);
  lb_slot present = slot_of(LB_FORM_ELTWISE, 2, 0);
  lb_slot first = slot_of(LB_FORM_ELTWISE, 2, UINT64_C(1) << 40);
  lb_queue_put(q, &past);
  lb_queue_put(q, &present);
  for (int i = 0; i < 10; i++) {
    lb_queue_put(q, &first);
    t.now_ns += INT64_C(1000000000);
    t.idle = i % 2;  // then nothing is forgotten
    of(&present)->ns += 5000;
    assert_ptr_equal(take(q, t), &first);
  }
  t.idle = false;
  assert_ptr_equal(take(q, t), &present);
  assert_int_equal(of(&past)->ns, 100000 >> 4);
  t.now_ns += INT64_C(3600000000000);
  assert_ptr_equal(take(q, t), &past);
  assert_int_equal(of(&past)->ns, 1);  // 0 would be one that nobody measured
  free(q);
}

static void the_four_kinds_come_first_while_nothing_is_measured(void **state) {
  (void)state;
  lb_queue *q = new_queue();
  lb_slot sum = slot_of(LB_FORM_ELTWISE, 2, 0);
  lb_slot product = slot_of(LB_FORM_MATMUL, 2, 0);
  lb_slot image = slot_of(LB_FORM_CONV, 2, 0);
  lb_queue_put(q, &sum);
  lb_queue_put(q, &product);
  lb_queue_put(q, &image);
  assert_true(take(q, BUSY) != &sum);
  assert_true(take(q, BUSY) != &sum);
  of(&sum)->ns = UINT64_C(1) << 40;  // measured: that decides
  lb_queue_put(q, &product);
  assert_ptr_equal(take(q, BUSY), &sum);
  free(q);
}

static void what_no_run_has_met_is_worth_least(void **state) {
  (void)state;
  lb_queue *q = new_queue();
  lb_slot met = slot_of(LB_FORM_ELTWISE, 1, 1000);
  lb_slot unmet = slot_of(LB_FORM_MATMUL, 0, 0);
  lb_queue_put(q, &unmet);
  lb_queue_put(q, &met);
  assert_null(take(q, BUSY));
  assert_ptr_equal(take(q, (lb_queue_time){.idle = true}), &met);
  assert_ptr_equal(take(q, (lb_queue_time){.idle = true}), &unmet);
  free(q);
}

static void a_form_that_is_dear_to_make_is_worth_less(void **state) {
  (void)state;
  lb_queue *q = new_queue();
  lb_slot map = slot_of(LB_FORM_ELTWISE, 2, 100000);
  lb_slot rows = slot_of(LB_FORM_ROW_REDUCE, 2, 110000);
  assert_true(lb_queue_priority(q, &rows) > lb_queue_priority(q, &map));
  for (int i = 0; i < 20; i++) lb_queue_learn_cost(q, &rows, 90000);
  assert_true(lb_queue_priority(q, &rows) < lb_queue_priority(q, &map));
  map.in_pack = true;  // what it has is nearly as good
  assert_true(lb_queue_priority(q, &rows) > lb_queue_priority(q, &map));
  free(q);
}

static void a_form_that_gained_little_is_worth_less(void **state) {
  (void)state;
  lb_queue *q = new_queue();
  lb_slot rows = slot_of(LB_FORM_ROW_REDUCE, 2, 2000);
  lb_slot map = slot_of(LB_FORM_ELTWISE, 2, 1000), packed = like(&map);
  packed.in_pack = true;
  assert_true(lb_queue_priority(q, &rows) > lb_queue_priority(q, &map));
  assert_true(lb_queue_priority(q, &map) > lb_queue_priority(q, &packed));
  for (int i = 0; i < 20; i++) {
    lb_queue_learn_gain(q, &rows, 1.01);
    lb_queue_learn_gain(q, &packed, 9);
  }
  assert_true(lb_queue_priority(q, &rows) < lb_queue_priority(q, &map));
  assert_true(lb_queue_priority(q, &map) < lb_queue_priority(q, &packed));
  for (int i = 0; i < 20; i++) lb_queue_learn_gain(q, &rows, 0.5);
  assert_true(lb_queue_priority(q, &rows) > 0);
  free(q);
}

static void what_wins_and_loses_by_chance_gains_nothing(void **state) {
  (void)state;
  lb_queue *q = new_queue();
  lb_slot even = slot_of(LB_FORM_ROW_REDUCE, 2, 1000);
  lb_slot slower = slot_of(LB_FORM_ELTWISE, 2, 1000);
  for (int i = 0; i < 40; i++) {
    lb_queue_learn_gain(q, &even, i % 2 ? 1.05 : 0.95);
    lb_queue_learn_gain(q, &slower, 0.01);
  }
  assert_true(lb_queue_priority(q, &slower) > 0);
  assert_true(lb_queue_priority(q, &even) <
              1.5 * lb_queue_priority(q, &slower));
  for (int i = 0; i < 20; i++) lb_queue_learn_gain(q, &slower, 2);
  assert_true(lb_queue_priority(q, &even) <
              0.1 * lb_queue_priority(q, &slower));
  free(q);
}

static void what_is_returned_is_of_what_could_be_made(void **state) {
  (void)state;
  lb_queue *q = new_queue();
  lb_queue_time t = BUSY;
  lb_slot often = slot_of(LB_FORM_ELTWISE, 2, 150000000);
  lb_slot once = slot_of(LB_FORM_ELTWISE, 1, 900000000), done = like(&often);
  done.tier = LB_TIER_REUSABLE;
  assert_true(lb_queue_best(q, &t) <= 0);
  lb_queue_put(q, &once);
  lb_queue_put(q, &done);
  assert_true(lb_queue_best(q, &t) <= 0);
  lb_queue_put(q, &often);
  // Of 0.1 s in each half is saved, at 0.02 in all.
  assert_true(fabs(lb_queue_best(q, &t) - 2.5) < 1e-9);
  assert_true(fabs(lb_queue_payback(q, &often) - 2.5) < 1e-9);
  assert_int_equal(lb_queue_count(q, &t, 2), 1);
  assert_int_equal(lb_queue_count(q, &t, 3), 0);
  t.now_ns += INT64_C(2000000000);
  assert_true(fabs(lb_queue_best(q, &t) - 0.625) < 1e-9);
  free(q);
}

static void in_turn_the_first_is_the_first(void **state) {
  (void)state;
  lb_queue *q = new_queue();
  lb_slot cold = slot_of(LB_FORM_ELTWISE, 9, 1000), waited = like(&cold);
  lb_slot hot = slot_of(LB_FORM_ELTWISE, 2, 900000);
  of(&waited)->urgent = 1;
  q->in_turn = true;
  lb_queue_put(q, &cold);
  lb_queue_put(q, &hot);
  lb_queue_put(q, &waited);
  assert_ptr_equal(take(q, BUSY), &waited);
  assert_ptr_equal(take(q, BUSY), &cold);
  assert_ptr_equal(take(q, BUSY), &hot);
  free(q);
}

static void a_slot_met_once_waits_until_requests_rest(void **state) {
  (void)state;
  lb_queue *q = new_queue();
  lb_slot once = slot_of(LB_FORM_ELTWISE, 1, 5000);
  int64_t wait_ns;
  lb_queue_put(q, &once);
  assert_null(lb_queue_take(q, &BUSY, &wait_ns));
  assert_true(wait_ns > 0);
  lb_queue_time idle = BUSY;
  idle.idle = true;
  assert_ptr_equal(take(q, idle), &once);
  free(q);
}

static void what_was_evicted_must_be_met_more_often(void **state) {
  (void)state;
  lb_queue *q = new_queue();
  lb_slot s = slot_of(LB_FORM_ELTWISE, 15, 5000);
  s.evicted = 3;
  lb_queue_put(q, &s);
  assert_null(take(q, BUSY));
  of(&s)->seen = 16;
  assert_ptr_equal(take(q, BUSY), &s);
  free(q);
}

static void what_somebody_waits_for_comes_first(void **state) {
  (void)state;
  lb_queue *q = new_queue();
  lb_slot hot = slot_of(LB_FORM_MATMUL, 99, UINT64_C(1) << 50);
  lb_slot mine = slot_of(LB_FORM_ELTWISE, 0, 0), other = like(&mine);
  of(&mine)->urgent = 2;
  of(&other)->urgent = 1;
  lb_queue_put(q, &hot);
  lb_queue_put(q, &other);
  lb_queue_put(q, &mine);
  assert_ptr_equal(take(q, BUSY), &mine);
  assert_ptr_equal(take(q, BUSY), &other);
  lb_queue_time urgent = BUSY;
  urgent.urgent = true;
  assert_null(take(q, urgent));
  free(q);
}

static void a_slot_that_failed_rests(void **state) {
  (void)state;
  lb_queue *q = new_queue();
  lb_slot s = slot_of(LB_FORM_ELTWISE, 9, 5000);
  int64_t wait_ns;
  of(&s)->rest_until = 1001;
  lb_queue_put(q, &s);
  assert_null(lb_queue_take(q, &BUSY, &wait_ns));
  assert_int_equal(wait_ns, 1000);
  lb_queue_time later = BUSY;
  later.now_ns = 1001;
  assert_ptr_equal(take(q, later), &s);
  free(q);
}

static void what_needs_nothing_any_more_is_let_go(void **state) {
  (void)state;
  lb_queue *q = new_queue();
  lb_slot done = slot_of(LB_FORM_ELTWISE, 2, 1), failed = like(&done),
          last = like(&done);
  done.tier = LB_TIER_REUSABLE;
  failed.failed = 1;
  lb_queue_put(q, &done);
  lb_queue_put(q, &failed);
  lb_queue_put(q, &last);
  assert_ptr_equal(take(q, BUSY), &last);
  assert_int_equal(q->n, 0);
  assert_false(of(&done)->asked || of(&failed)->asked);
  free(q);
}

static void the_least_worth_falls_out_of_a_full_queue(void **state) {
  (void)state;
  lb_queue *q = new_queue();
  lb_slot *all = calloc(LB_QUEUE_MAX + 2, sizeof *all);
  assert_non_null(all);
  for (unsigned i = 0; i < LB_QUEUE_MAX + 2; i++)
    all[i] = slot_of(LB_FORM_ELTWISE, 2, 1000 + i);
  for (unsigned i = 1; i <= LB_QUEUE_MAX; i++) lb_queue_put(q, &all[i]);
  lb_queue_put(q, &all[0]);  // worth less than all of them
  assert_false(of(&all[0])->asked);
  lb_queue_put(q, &all[LB_QUEUE_MAX + 1]);
  assert_false(of(&all[1])->asked);
  assert_true(of(&all[2])->asked);
  assert_int_equal(q->n, LB_QUEUE_MAX);
  assert_ptr_equal(take(q, BUSY), &all[LB_QUEUE_MAX + 1]);
  lb_queue_clear(q);
  assert_false(of(&all[2])->asked);
  free(all);
  free(q);
}

static void a_session_takes_its_jobs_along(void **state) {
  (void)state;
  lb_queue *q = new_queue();
  lb_slot mine = slot_of(LB_FORM_ELTWISE, 2, 1), other = like(&mine),
          waited = like(&mine);
  of(&mine)->session = of(&waited)->session = 7;
  of(&other)->session = 8;
  of(&waited)->urgent = 1;
  lb_queue_put(q, &mine);
  lb_queue_put(q, &other);
  lb_queue_put(q, &waited);
  lb_queue_drop(q, 7);
  assert_int_equal(q->n, 2);
  assert_false(of(&mine)->asked);
  assert_true(of(&other)->asked && of(&waited)->asked);
  free(q);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(more_time_spent_is_worth_more),
      cmocka_unit_test(what_requests_need_comes_before_what_they_needed),
      cmocka_unit_test(the_four_kinds_come_first_while_nothing_is_measured),
      cmocka_unit_test(what_no_run_has_met_is_worth_least),
      cmocka_unit_test(a_form_that_is_dear_to_make_is_worth_less),
      cmocka_unit_test(a_form_that_gained_little_is_worth_less),
      cmocka_unit_test(what_wins_and_loses_by_chance_gains_nothing),
      cmocka_unit_test(what_is_returned_is_of_what_could_be_made),
      cmocka_unit_test(in_turn_the_first_is_the_first),
      cmocka_unit_test(a_slot_met_once_waits_until_requests_rest),
      cmocka_unit_test(what_was_evicted_must_be_met_more_often),
      cmocka_unit_test(what_somebody_waits_for_comes_first),
      cmocka_unit_test(a_slot_that_failed_rests),
      cmocka_unit_test(what_needs_nothing_any_more_is_let_go),
      cmocka_unit_test(the_least_worth_falls_out_of_a_full_queue),
      cmocka_unit_test(a_session_takes_its_jobs_along),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
