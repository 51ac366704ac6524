// compile/queue_test.c -- which slot to compile next.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "compile/queue.h"

static const lb_queue_time BUSY = {.now_ns = 1};

static lb_slot_profile profiles[2 * LB_QUEUE_MAX];  // shared by all tests
static unsigned n_profiles;

static lb_slot_profile *of(const lb_slot *s) { return lb_slot_profile_of(s); }

// A pending slot of this form; the rest of its spec is not used.
static lb_slot slot_of(lb_form form, unsigned uses, uint64_t ns) {
  assert_true(n_profiles < 2 * LB_QUEUE_MAX);
  lb_slot s = {.wanted = true, .profile = &profiles[n_profiles++]};
  s.key.spec.form = (uint8_t)form;
  of(&s)->uses = uses;
  of(&s)->ns = ns;
  of(&s)->queued = true;
  return s;
}

static lb_slot like(const lb_slot *s) {
  return slot_of((lb_form)s->key.spec.form, of(s)->uses, of(s)->ns);
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

static void more_time_spent_raises_the_priority(void **state) {
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

static void recent_time_outweighs_past_time(void **state) {
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
    t.idle = i % 2;  // while idle, times do not decay
    of(&present)->ns += 5000;
    assert_ptr_equal(take(q, t), &first);
  }
  t.idle = false;
  assert_ptr_equal(take(q, t), &present);
  assert_int_equal(of(&past)->ns, 100000 >> 4);
  t.now_ns += INT64_C(3600000000000);
  assert_ptr_equal(take(q, t), &past);
  assert_int_equal(of(&past)->ns, 1);  // 0 would mean not measured
  free(q);
}

static void critical_kinds_come_first_while_unmeasured(void **state) {
  (void)state;
  lb_queue *q = new_queue();
  lb_slot sum = slot_of(LB_FORM_ELTWISE, 2, 0);
  lb_slot matmul = slot_of(LB_FORM_MATMUL, 2, 0);
  lb_slot conv = slot_of(LB_FORM_CONV, 2, 0);
  lb_queue_put(q, &sum);
  lb_queue_put(q, &matmul);
  lb_queue_put(q, &conv);
  assert_true(take(q, BUSY) != &sum);
  assert_true(take(q, BUSY) != &sum);
  of(&sum)->ns = UINT64_C(1) << 40;  // a measured time decides
  lb_queue_put(q, &matmul);
  assert_ptr_equal(take(q, BUSY), &sum);
  free(q);
}

static void slots_without_a_run_have_the_lowest_priority(void **state) {
  (void)state;
  lb_queue *q = new_queue();
  lb_slot used = slot_of(LB_FORM_ELTWISE, 1, 1000);
  lb_slot unused = slot_of(LB_FORM_MATMUL, 0, 0);
  lb_queue_put(q, &unused);
  lb_queue_put(q, &used);
  assert_null(take(q, BUSY));
  assert_ptr_equal(take(q, (lb_queue_time){.idle = true}), &used);
  assert_ptr_equal(take(q, (lb_queue_time){.idle = true}), &unused);
  free(q);
}

static void a_costly_form_has_a_lower_priority(void **state) {
  (void)state;
  lb_queue *q = new_queue();
  lb_slot map = slot_of(LB_FORM_ELTWISE, 2, 100000);
  lb_slot rows = slot_of(LB_FORM_ROW_REDUCE, 2, 110000);
  assert_true(lb_queue_priority(q, &rows) > lb_queue_priority(q, &map));
  for (int i = 0; i < 20; i++) lb_queue_learn_cost(q, &rows, 90000);
  assert_true(lb_queue_priority(q, &rows) < lb_queue_priority(q, &map));
  map.in_pack = true;  // the pack kernel is nearly as good
  assert_true(lb_queue_priority(q, &rows) > lb_queue_priority(q, &map));
  free(q);
}

static void a_form_with_little_gain_has_a_lower_priority(void **state) {
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

static void random_wins_and_losses_average_to_no_gain(void **state) {
  (void)state;
  lb_queue *q = new_queue();
  lb_slot no_gain = slot_of(LB_FORM_ROW_REDUCE, 2, 1000);
  lb_slot slower = slot_of(LB_FORM_ELTWISE, 2, 1000);
  for (int i = 0; i < 40; i++) {
    lb_queue_learn_gain(q, &no_gain, i % 2 ? 1.05 : 0.95);
    lb_queue_learn_gain(q, &slower, 0.01);
  }
  assert_true(lb_queue_priority(q, &slower) > 0);
  assert_true(lb_queue_priority(q, &no_gain) <
              1.5 * lb_queue_priority(q, &slower));
  for (int i = 0; i < 20; i++) lb_queue_learn_gain(q, &slower, 2);
  assert_true(lb_queue_priority(q, &no_gain) <
              0.1 * lb_queue_priority(q, &slower));
  free(q);
}

static void payback_counts_slots_that_could_be_taken(void **state) {
  (void)state;
  lb_queue *q = new_queue();
  lb_queue_time t = BUSY;
  lb_slot often = slot_of(LB_FORM_ELTWISE, 2, 150000000);
  lb_slot once = slot_of(LB_FORM_ELTWISE, 1, 900000000), done = like(&often);
  done.tier = LB_TIER_REUSABLE;
  assert_true(lb_queue_best_payback(q, &t) <= 0);
  lb_queue_put(q, &once);
  lb_queue_put(q, &done);
  assert_true(lb_queue_best_payback(q, &t) <= 0);
  lb_queue_put(q, &often);
  // It saves half of 0.1 s per second, at a cost of 0.02 s.
  assert_true(fabs(lb_queue_best_payback(q, &t) - 2.5) < 1e-9);
  assert_true(fabs(lb_queue_payback(q, &often) - 2.5) < 1e-9);
  assert_int_equal(lb_queue_count(q, &t, 2), 1);
  assert_int_equal(lb_queue_count(q, &t, 3), 0);
  t.now_ns += INT64_C(2000000000);
  assert_true(fabs(lb_queue_best_payback(q, &t) - 0.625) < 1e-9);
  free(q);
}

static void fifo_order_ignores_priority(void **state) {
  (void)state;
  lb_queue *q = new_queue();
  lb_slot cold = slot_of(LB_FORM_ELTWISE, 9, 1000), awaited = like(&cold);
  lb_slot hot = slot_of(LB_FORM_ELTWISE, 2, 900000);
  of(&awaited)->urgent = 1;
  q->fifo = true;
  lb_queue_put(q, &cold);
  lb_queue_put(q, &hot);
  lb_queue_put(q, &awaited);
  assert_ptr_equal(take(q, BUSY), &awaited);
  assert_ptr_equal(take(q, BUSY), &cold);
  assert_ptr_equal(take(q, BUSY), &hot);
  free(q);
}

static void a_slot_used_once_waits_for_idle_requests(void **state) {
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

static void evictions_raise_the_threshold(void **state) {
  (void)state;
  lb_queue *q = new_queue();
  lb_slot s = slot_of(LB_FORM_ELTWISE, 15, 5000);
  s.evicted = 3;
  lb_queue_put(q, &s);
  assert_null(take(q, BUSY));
  of(&s)->uses = 16;
  assert_ptr_equal(take(q, BUSY), &s);
  free(q);
}

static void urgent_slots_come_first(void **state) {
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

static void a_failed_slot_backs_off(void **state) {
  (void)state;
  lb_queue *q = new_queue();
  lb_slot s = slot_of(LB_FORM_ELTWISE, 9, 5000);
  int64_t wait_ns;
  of(&s)->backoff_until = 1001;
  lb_queue_put(q, &s);
  assert_null(lb_queue_take(q, &BUSY, &wait_ns));
  assert_int_equal(wait_ns, 1000);
  lb_queue_time later = BUSY;
  later.now_ns = 1001;
  assert_ptr_equal(take(q, later), &s);
  free(q);
}

static void slots_no_longer_pending_are_released(void **state) {
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
  assert_false(of(&done)->queued || of(&failed)->queued);
  free(q);
}

static void a_full_queue_drops_the_lowest_priority(void **state) {
  (void)state;
  lb_queue *q = new_queue();
  lb_slot *all = calloc(LB_QUEUE_MAX + 2, sizeof *all);
  assert_non_null(all);
  for (unsigned i = 0; i < LB_QUEUE_MAX + 2; i++)
    all[i] = slot_of(LB_FORM_ELTWISE, 2, 1000 + i);
  for (unsigned i = 1; i <= LB_QUEUE_MAX; i++) lb_queue_put(q, &all[i]);
  lb_queue_put(q, &all[0]);  // lower priority than all of them
  assert_false(of(&all[0])->queued);
  lb_queue_put(q, &all[LB_QUEUE_MAX + 1]);
  assert_false(of(&all[1])->queued);
  assert_true(of(&all[2])->queued);
  assert_int_equal(q->n, LB_QUEUE_MAX);
  assert_ptr_equal(take(q, BUSY), &all[LB_QUEUE_MAX + 1]);
  lb_queue_clear(q);
  assert_false(of(&all[2])->queued);
  free(all);
  free(q);
}

static void a_leaving_session_drops_its_slots(void **state) {
  (void)state;
  lb_queue *q = new_queue();
  lb_slot mine = slot_of(LB_FORM_ELTWISE, 2, 1), other = like(&mine),
          awaited = like(&mine);
  of(&mine)->session = of(&awaited)->session = 7;
  of(&other)->session = 8;
  of(&awaited)->urgent = 1;
  lb_queue_put(q, &mine);
  lb_queue_put(q, &other);
  lb_queue_put(q, &awaited);
  lb_queue_drop(q, 7);
  assert_int_equal(q->n, 2);
  assert_false(of(&mine)->queued);
  assert_true(of(&other)->queued && of(&awaited)->queued);
  free(q);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(more_time_spent_raises_the_priority),
      cmocka_unit_test(recent_time_outweighs_past_time),
      cmocka_unit_test(critical_kinds_come_first_while_unmeasured),
      cmocka_unit_test(slots_without_a_run_have_the_lowest_priority),
      cmocka_unit_test(a_costly_form_has_a_lower_priority),
      cmocka_unit_test(a_form_with_little_gain_has_a_lower_priority),
      cmocka_unit_test(random_wins_and_losses_average_to_no_gain),
      cmocka_unit_test(payback_counts_slots_that_could_be_taken),
      cmocka_unit_test(fifo_order_ignores_priority),
      cmocka_unit_test(a_slot_used_once_waits_for_idle_requests),
      cmocka_unit_test(evictions_raise_the_threshold),
      cmocka_unit_test(urgent_slots_come_first),
      cmocka_unit_test(a_failed_slot_backs_off),
      cmocka_unit_test(slots_no_longer_pending_are_released),
      cmocka_unit_test(a_full_queue_drops_the_lowest_priority),
      cmocka_unit_test(a_leaving_session_drops_its_slots),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
