// compile/pace_test.c -- the bucket, by a clock that the tests turn.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "compile/pace.h"

#define MS INT64_C(1000000)
#define SHARE 0.05  // of what returns as much as in these tests

static double returns_for(double share) {
  return share * share / (LB_PACE_MOST * LB_PACE_MOST * LB_PACE_SOON);
}

// Requests and a compiler that always has something to do.
typedef struct world {
  lb_pace pace;
  lb_pace_look seen;
  int64_t late;  // so much longer than its slice it goes on
  int64_t look;  // processor time that a look takes
  int64_t spent;
  int64_t go;  // what it may use until the next look
  unsigned looks, slices;
} world;

static world a_world(double processors, int threads) {
  world w = {.seen = {.now = 1000 * MS, .returns = returns_for(SHARE)}};
  lb_pace_init(&w.pace, processors, threads);
  return w;
}

static int64_t look(world *w, int64_t *ns) {
  w->go = lb_pace_look_at(&w->pace, &w->seen, ns);
  if (w->go < LB_PACE_FREELY) w->slices += (unsigned)(w->go / w->pace.slice);
  w->looks++;
  w->seen.spent = w->look;
  w->spent += w->look;
  assert_in_range(*ns, 1, (w->go ? 40 : 100) * MS);
  return w->go;
}

static void pass(world *w, int64_t ns) {
  int64_t used = ns;
  if (w->go < LB_PACE_FREELY && used > w->go + w->late) used = w->go + w->late;
  w->seen.now += ns;
  if (!w->go) return;
  w->seen.spent += used;
  w->spent += used;
}

static void pass_until(world *w, int64_t end) {
  while (w->seen.now < end) {
    int64_t ns;
    look(w, &ns);
    pass(w, ns);
  }
}

// What compiling took of the next ten seconds, in processors.
static double share_of(world *w) {
  int64_t before = w->spent, start = w->seen.now;
  pass_until(w, start + 10000 * MS);
  return (double)(w->spent - before) / (double)(w->seen.now - start);
}

static void assert_near(double is, double wanted) {
  if (is < 0.9 * wanted || is > 1.1 * wanted) {
    print_error("%g, wanted %g\n", is, wanted);
    fail();
  }
}

static void runs(world *w, int inside) {
  w->seen.runs.inside = inside;
  w->seen.runs.entered += (unsigned)inside;
}

static void without_requests_nothing_is_held_back(void **state) {
  (void)state;
  world w = a_world(2, 2);
  assert_near(share_of(&w), 1);
}

static void the_next_look_after_a_request_began_stops_it(void **state) {
  (void)state;
  world w = a_world(2, 2);
  int64_t ns;
  assert_int_equal(look(&w, &ns), LB_PACE_FREELY);
  assert_true(ns <= 2 * MS);
  pass(&w, ns);
  runs(&w, 1);
  assert_int_equal(look(&w, &ns), 0);
  assert_int_equal(w.pace.state, LB_PACE_CONTENDED);
}

static void pressed_it_takes_its_share(void **state) {
  (void)state;
  world w = a_world(2, 2);
  runs(&w, 1);
  assert_near(share_of(&w), SHARE);
  assert_in_range(w.slices, 110, 140);
}

static void what_pays_soon_gets_more(void **state) {
  (void)state;
  static const struct {
    double seconds, share;
  } cases[] = {{1, LB_PACE_MOST},
               {LB_PACE_SOON, LB_PACE_MOST},
               {4 * LB_PACE_SOON, LB_PACE_MOST / 2},
               {16 * LB_PACE_SOON, LB_PACE_MOST / 4},
               {100 * LB_PACE_SOON, LB_PACE_SOME},
               {0.9 * LB_PACE_EVER, LB_PACE_SOME},
               {1.1 * LB_PACE_EVER, LB_PACE_LEAST},
               {1e9, LB_PACE_LEAST}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    world w = a_world(2, 2);
    runs(&w, 1);
    w.seen.returns = 1 / cases[i].seconds;
    assert_near(share_of(&w), cases[i].share);
    assert_int_equal(lb_pace_hurries(&w.pace), cases[i].share > SHARE);
  }
}

static void what_pays_soon_does_not_wait_for_what_does_not(void **state) {
  (void)state;
  world w = a_world(2, 2);
  runs(&w, 1);
  w.seen.returns = 0;
  pass_until(&w, w.seen.now + 10000 * MS);
  w.seen.returns = 1;
  int64_t before = w.spent, start = w.seen.now;
  pass_until(&w, start + 1000 * MS);
  assert_near((double)(w.spent - before) / (double)(w.seen.now - start),
              LB_PACE_MOST);
}

static void nothing_hurries_while_nobody_presses(void **state) {
  (void)state;
  world w = a_world(2, 2);
  int64_t ns;
  w.seen.returns = 1;
  look(&w, &ns);
  assert_false(lb_pace_hurries(&w.pace));
}

static void pausing_late_is_paid_for(void **state) {
  (void)state;
  world w = a_world(2, 2);
  runs(&w, 1);
  w.late = 7 * MS;
  assert_near(share_of(&w), SHARE);
}

static void looking_is_paid_for_and_does_not_eat_it_all(void **state) {
  (void)state;
  world w = a_world(2, 2);
  runs(&w, 1);
  w.look = MS / 50;
  assert_near(share_of(&w), SHARE);
  assert_in_range(w.looks, 100, 500);
  assert_true(w.looks * (double)w.look < 0.2 * (double)w.spent);
}

static void rest_is_not_saved_up(void **state) {
  (void)state;
  world w = a_world(2, 2);
  int64_t ns;
  runs(&w, 1);
  look(&w, &ns);
  pass(&w, 3600 * 1000 * MS);
  int64_t before = w.spent;
  pass_until(&w, w.seen.now + 100 * MS);
  assert_in_range(w.spent - before, 5 * MS - w.pace.slice,
                  5 * MS + 2 * w.pace.slice);
}

static void moments_between_requests_do_not_free_it(void **state) {
  (void)state;
  world w = a_world(2, 2);
  int64_t ns;
  runs(&w, 1);
  look(&w, &ns);
  runs(&w, 0);
  w.seen.now += LB_PACE_QUIET;
  look(&w, &ns);
  assert_int_equal(w.pace.state, LB_PACE_CONTENDED);
  w.seen.now++;
  assert_int_equal(look(&w, &ns), LB_PACE_FREELY);
  assert_int_equal(w.pace.state, LB_PACE_FREE);
}

static void short_requests_are_seen_by_their_count(void **state) {
  (void)state;
  world w = a_world(2, 2);
  int64_t ns;
  look(&w, &ns);
  w.seen.now += LB_PACE_QUIET * 10;
  w.seen.runs.entered++;
  look(&w, &ns);
  assert_int_equal(w.pace.state, LB_PACE_CONTENDED);
}

static void a_processor_that_requests_leave_free_is_used(void **state) {
  (void)state;
  world w = a_world(2, 1);
  int64_t ns;
  runs(&w, 1);
  assert_int_equal(look(&w, &ns), LB_PACE_FREELY);
  assert_int_equal(w.pace.state, LB_PACE_FREE);
  runs(&w, 2);  // one thread each
  look(&w, &ns);
  assert_int_equal(w.pace.state, LB_PACE_CONTENDED);
  w = a_world(1.5, 1);  // a half is none
  runs(&w, 1);
  look(&w, &ns);
  assert_int_equal(w.pace.state, LB_PACE_CONTENDED);
}

static void each_request_gives_its_share_and_no_quota_more(void **state) {
  (void)state;
  world w = a_world(8, 8);
  runs(&w, 4);
  assert_near(share_of(&w), 4 * SHARE);
  runs(&w, 100);
  assert_near(share_of(&w), 8 * SHARE);
  w = a_world(0.5, 1);
  runs(&w, 1);
  assert_near(share_of(&w), 0.5 * SHARE);
}

static void who_waits_is_not_held_up(void **state) {
  (void)state;
  world w = a_world(1, 1);
  runs(&w, 1);
  w.seen.wanted = true;
  assert_near(share_of(&w), 1);
  assert_int_equal(w.pace.state, LB_PACE_WANTED);
}

// So many ms later it was throttled for so many ms more.
static void hear(world *w, int64_t later, uint64_t more) {
  w->seen.now += later * MS;
  lb_pace_hear(&w->pace, w->seen.now, 1, true,
               w->pace.throttled + more * (uint64_t)MS);
}

static void throttling_halves_the_share_and_its_end_gives_it_back(
    void **state) {
  (void)state;
  world w = a_world(1, 1);
  int64_t ns;
  runs(&w, 1);
  look(&w, &ns);
  hear(&w, 0, 7000);  // before our time
  assert_near(share_of(&w), SHARE);
  hear(&w, 0, 80);  // of ten seconds
  assert_near(share_of(&w), SHARE);
  hear(&w, 0, 120);
  assert_near(share_of(&w), SHARE / 2);
  assert_int_equal(w.pace.state, LB_PACE_THROTTLED);
  for (int i = 0; i < 30; i++) hear(&w, 500, 20);
  assert_near(share_of(&w), SHARE / 2);
  for (int i = 0; i < 5; i++) hear(&w, 500, 4);
  assert_near(share_of(&w), SHARE);
  assert_int_equal(w.pace.state, LB_PACE_CONTENDED);
}

static void throttling_without_requests_is_not_their_trouble(void **state) {
  (void)state;
  world w = a_world(1, 1);
  int64_t ns;
  look(&w, &ns);
  hear(&w, 0, 1);
  hear(&w, 500, 500);
  runs(&w, 1);
  assert_near(share_of(&w), SHARE);
}

static void a_quota_that_changes_is_followed(void **state) {
  (void)state;
  world w = a_world(2, 1);
  int64_t ns;
  runs(&w, 1);
  assert_int_equal(look(&w, &ns), LB_PACE_FREELY);
  assert_false(lb_pace_displaces(&w.pace, &w.seen.runs));
  hear(&w, 0, 0);
  assert_near(share_of(&w), SHARE);
  assert_true(lb_pace_displaces(&w.pace, &w.seen.runs));
}

static void who_takes_the_place_of_requests_looks_where_they_are(void **state) {
  (void)state;
  world beside = a_world(1, 1), instead = a_world(2, 1);
  beside.seen.returns = instead.seen.returns = 1;
  runs(&beside, 1);
  runs(&instead, 1);
  hear(&instead, 0, 0);
  assert_near(share_of(&beside), LB_PACE_MOST);
  assert_near(share_of(&instead), LB_PACE_MOST);
  assert_false(lb_pace_displaces(&beside.pace, &beside.seen.runs));
  assert_true(instead.looks > beside.looks * 3 / 2);
}

static void a_quota_that_is_not_used_up_has_room_for_it(void **state) {
  (void)state;
  world w = a_world(2, 1);
  int64_t ns;
  runs(&w, 1);
  lb_pace_hear(&w.pace, w.seen.now, 1.5, true, 0);
  look(&w, &ns);
  assert_int_equal(w.pace.state, LB_PACE_CONTENDED);
  assert_false(lb_pace_displaces(&w.pace, &w.seen.runs));
}

// Seconds of requests that take so long, back to back; the slice then.
static int64_t slice_beside(world *w, int64_t request, int64_t seconds) {
  int64_t end = w->seen.now + seconds * 1000 * MS, ns, entered = 0;
  w->seen.runs.inside = 1;
  while (w->seen.now < end) {
    look(w, &ns);
    pass(w, ns);
    for (entered += ns; entered >= request; entered -= request)
      w->seen.runs.entered++;
  }
  return w->pace.slice;
}

static void slices_are_short_where_each_request_meets_one(void **state) {
  (void)state;
  static const struct {
    int64_t request, least, most;  // us
  } cases[] = {{50, 4000, 4000},    {4000, 4000, 4000},   {8000, 900, 1100},
               {16000, 1900, 2100}, {100000, 4000, 4000}, {8000, 900, 1100},
               {200, 4000, 4000}};
  world w = a_world(2, 2);
  w.seen.returns = returns_for(0.03);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_in_range(slice_beside(&w, cases[i].request * MS / 1000, 8),
                    cases[i].least * MS / 1000, cases[i].most * MS / 1000);
}

static void slices_are_long_for_what_pays_soon(void **state) {
  (void)state;
  world w = a_world(2, 2);
  w.seen.returns = 1;
  assert_int_equal(slice_beside(&w, 8 * MS, 8), 4 * MS);
  w.seen.returns = 0;
  assert_in_range(slice_beside(&w, 8 * MS, 8), 9 * MS / 10, 11 * MS / 10);
}

static void few_short_requests_meet_what_does_not_pay(void **state) {
  (void)state;
  static const int64_t requests[] = {50, 500, 1500, 3000, 4500};  // us
  for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
    world w = a_world(2, 2);
    w.seen.returns = 0;
    slice_beside(&w, requests[i] * MS / 1000, 8);
    uint64_t before = w.seen.runs.entered;
    int64_t spent = w.spent;
    w.slices = 0;
    slice_beside(&w, requests[i] * MS / 1000, 100);
    uint64_t met = w.seen.runs.entered - before;
    assert_true(w.slices > 20 && w.slices < 0.003 * (double)met);
    assert_true((double)(w.spent - spent) < 1.1e11 * LB_PACE_LEAST);
  }
}

// A service may begin while another session's requests run.
static void who_looks_for_the_first_time_has_saved_nothing(void **state) {
  (void)state;
  world w = a_world(2, 2);
  int64_t ns;
  w.seen.runs = (lb_pool_runs){.inside = 1, .entered = 1};
  assert_int_equal(look(&w, &ns), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(without_requests_nothing_is_held_back),
      cmocka_unit_test(the_next_look_after_a_request_began_stops_it),
      cmocka_unit_test(pressed_it_takes_its_share),
      cmocka_unit_test(what_pays_soon_gets_more),
      cmocka_unit_test(what_pays_soon_does_not_wait_for_what_does_not),
      cmocka_unit_test(nothing_hurries_while_nobody_presses),
      cmocka_unit_test(pausing_late_is_paid_for),
      cmocka_unit_test(looking_is_paid_for_and_does_not_eat_it_all),
      cmocka_unit_test(rest_is_not_saved_up),
      cmocka_unit_test(moments_between_requests_do_not_free_it),
      cmocka_unit_test(short_requests_are_seen_by_their_count),
      cmocka_unit_test(a_processor_that_requests_leave_free_is_used),
      cmocka_unit_test(each_request_gives_its_share_and_no_quota_more),
      cmocka_unit_test(who_waits_is_not_held_up),
      cmocka_unit_test(throttling_halves_the_share_and_its_end_gives_it_back),
      cmocka_unit_test(throttling_without_requests_is_not_their_trouble),
      cmocka_unit_test(a_quota_that_changes_is_followed),
      cmocka_unit_test(who_takes_the_place_of_requests_looks_where_they_are),
      cmocka_unit_test(a_quota_that_is_not_used_up_has_room_for_it),
      cmocka_unit_test(slices_are_short_where_each_request_meets_one),
      cmocka_unit_test(slices_are_long_for_what_pays_soon),
      cmocka_unit_test(few_short_requests_meet_what_does_not_pay),
      cmocka_unit_test(who_looks_for_the_first_time_has_saved_nothing),
  };
  return cmocka_run_group_tests_name("pace", tests, NULL, NULL);
}
