// compile/pace_test.c -- the token bucket, with a simulated clock.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "compile/pace.h"

#define MS INT64_C(1000000)
#define SHARE 0.05  // the share of the payback used in these tests

static double payback_for(double share) {
  return share * share /
         (LB_PACE_MAX_SHARE * LB_PACE_MAX_SHARE * LB_PACE_SOON_S);
}

// Requests, and a compiler that always has work.
typedef struct world {
  lb_pace pace;
  lb_pace_input in;
  int64_t late;    // ns for which it runs beyond what was granted
  int64_t update;  // CPU time of an update
  int64_t spent;
  int64_t granted;  // CPU time until the next update
  unsigned updates, slices;
} world;

static world new_world(double processors, int threads) {
  world w = {.in = {.now = 1000 * MS, .payback = payback_for(SHARE)}};
  lb_pace_init(&w.pace, processors, threads);
  return w;
}

static int64_t update(world *w, int64_t *ns) {
  w->granted = lb_pace_update(&w->pace, &w->in, ns);
  if (w->granted < LB_PACE_UNLIMITED)
    w->slices += (unsigned)(w->granted / w->pace.slice);
  w->updates++;
  w->in.spent = w->update;
  w->spent += w->update;
  assert_in_range(*ns, 1, (w->granted ? 40 : 100) * MS);
  return w->granted;
}

static void advance(world *w, int64_t ns) {
  int64_t used = ns;
  if (w->granted < LB_PACE_UNLIMITED && used > w->granted + w->late)
    used = w->granted + w->late;
  w->in.now += ns;
  if (!w->granted) return;
  w->in.spent += used;
  w->spent += used;
}

static void advance_until(world *w, int64_t end) {
  while (w->in.now < end) {
    int64_t ns;
    update(w, &ns);
    advance(w, ns);
  }
}

// The CPU time of compiling over the next ten seconds, in processors.
static double share_of(world *w) {
  int64_t before = w->spent, start = w->in.now;
  advance_until(w, start + 10000 * MS);
  return (double)(w->spent - before) / (double)(w->in.now - start);
}

static void assert_near(double is, double awaited) {
  if (is < 0.9 * awaited || is > 1.1 * awaited) {
    print_error("%g, wanted %g\n", is, awaited);
    fail();
  }
}

static void runs(world *w, int inside) {
  w->in.runs.inside = inside;
  w->in.runs.entered += (unsigned)inside;
}

static void without_requests_compiling_is_unlimited(void **state) {
  (void)state;
  world w = new_world(2, 2);
  assert_near(share_of(&w), 1);
}

static void the_update_after_a_request_started_stops_it(void **state) {
  (void)state;
  world w = new_world(2, 2);
  int64_t ns;
  assert_int_equal(update(&w, &ns), LB_PACE_UNLIMITED);
  assert_true(ns <= 2 * MS);
  advance(&w, ns);
  runs(&w, 1);
  assert_int_equal(update(&w, &ns), 0);
  assert_int_equal(w.pace.state, LB_PACE_CONTENDED);
}

static void contended_compiling_takes_its_share(void **state) {
  (void)state;
  world w = new_world(2, 2);
  runs(&w, 1);
  assert_near(share_of(&w), SHARE);
  assert_in_range(w.slices, 110, 140);
}

static void a_higher_payback_gets_a_larger_share(void **state) {
  (void)state;
  static const struct {
    double seconds, share;
  } cases[] = {{1, LB_PACE_MAX_SHARE},
               {LB_PACE_SOON_S, LB_PACE_MAX_SHARE},
               {4 * LB_PACE_SOON_S, LB_PACE_MAX_SHARE / 2},
               {16 * LB_PACE_SOON_S, LB_PACE_MAX_SHARE / 4},
               {100 * LB_PACE_SOON_S, LB_PACE_PAYING_SHARE},
               {0.9 * LB_PACE_NEVER_S, LB_PACE_PAYING_SHARE},
               {1.1 * LB_PACE_NEVER_S, LB_PACE_MIN_SHARE},
               {1e9, LB_PACE_MIN_SHARE}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    world w = new_world(2, 2);
    runs(&w, 1);
    w.in.payback = 1 / cases[i].seconds;
    assert_near(share_of(&w), cases[i].share);
    assert_int_equal(lb_pace_pays_soon(&w.pace), cases[i].share > SHARE);
  }
}

static void a_high_payback_does_not_wait_behind_a_low_one(void **state) {
  (void)state;
  world w = new_world(2, 2);
  runs(&w, 1);
  w.in.payback = 0;
  advance_until(&w, w.in.now + 10000 * MS);
  w.in.payback = 1;
  int64_t before = w.spent, start = w.in.now;
  advance_until(&w, start + 1000 * MS);
  assert_near((double)(w.spent - before) / (double)(w.in.now - start),
              LB_PACE_MAX_SHARE);
}

static void nothing_pays_soon_without_contention(void **state) {
  (void)state;
  world w = new_world(2, 2);
  int64_t ns;
  w.in.payback = 1;
  update(&w, &ns);
  assert_false(lb_pace_pays_soon(&w.pace));
}

static void time_beyond_a_slice_is_charged(void **state) {
  (void)state;
  world w = new_world(2, 2);
  runs(&w, 1);
  w.late = 7 * MS;
  assert_near(share_of(&w), SHARE);
}

static void updates_are_charged_and_cost_little(void **state) {
  (void)state;
  world w = new_world(2, 2);
  runs(&w, 1);
  w.update = MS / 50;
  assert_near(share_of(&w), SHARE);
  assert_in_range(w.updates, 100, 500);
  assert_true(w.updates * (double)w.update < 0.2 * (double)w.spent);
}

static void idle_time_is_not_saved_up(void **state) {
  (void)state;
  world w = new_world(2, 2);
  int64_t ns;
  runs(&w, 1);
  update(&w, &ns);
  advance(&w, 3600 * 1000 * MS);
  int64_t before = w.spent;
  advance_until(&w, w.in.now + 100 * MS);
  assert_in_range(w.spent - before, 5 * MS - w.pace.slice,
                  5 * MS + 2 * w.pace.slice);
}

static void short_gaps_between_requests_stay_contended(void **state) {
  (void)state;
  world w = new_world(2, 2);
  int64_t ns;
  runs(&w, 1);
  update(&w, &ns);
  runs(&w, 0);
  w.in.now += LB_PACE_QUIET_NS;
  update(&w, &ns);
  assert_int_equal(w.pace.state, LB_PACE_CONTENDED);
  w.in.now++;
  assert_int_equal(update(&w, &ns), LB_PACE_UNLIMITED);
  assert_int_equal(w.pace.state, LB_PACE_FREE);
}

static void short_requests_are_detected_by_their_count(void **state) {
  (void)state;
  world w = new_world(2, 2);
  int64_t ns;
  update(&w, &ns);
  w.in.now += LB_PACE_QUIET_NS * 10;
  w.in.runs.entered++;
  update(&w, &ns);
  assert_int_equal(w.pace.state, LB_PACE_CONTENDED);
}

static void a_processor_that_requests_leave_free_is_used(void **state) {
  (void)state;
  world w = new_world(2, 1);
  int64_t ns;
  runs(&w, 1);
  assert_int_equal(update(&w, &ns), LB_PACE_UNLIMITED);
  assert_int_equal(w.pace.state, LB_PACE_FREE);
  runs(&w, 2);  // one thread each
  update(&w, &ns);
  assert_int_equal(w.pace.state, LB_PACE_CONTENDED);
  w = new_world(1.5, 1);  // half a processor is not enough
  runs(&w, 1);
  update(&w, &ns);
  assert_int_equal(w.pace.state, LB_PACE_CONTENDED);
}

static void the_share_grows_with_requests_up_to_the_processors(void **state) {
  (void)state;
  world w = new_world(8, 8);
  runs(&w, 4);
  assert_near(share_of(&w), 4 * SHARE);
  runs(&w, 100);
  assert_near(share_of(&w), 8 * SHARE);
  w = new_world(0.5, 1);
  runs(&w, 1);
  assert_near(share_of(&w), 0.5 * SHARE);
}

static void awaited_compiling_is_unlimited(void **state) {
  (void)state;
  world w = new_world(1, 1);
  runs(&w, 1);
  w.in.awaited = true;
  assert_near(share_of(&w), 1);
  assert_int_equal(w.pace.state, LB_PACE_AWAITED);
}

// `later` ms later, the quota has throttled for `more` ms more.
static void set_quota(world *w, int64_t later, uint64_t more) {
  w->in.now += later * MS;
  lb_pace_set_quota(&w->pace, w->in.now, 1, true,
                    w->pace.throttled + more * (uint64_t)MS);
}

static void quota_throttling_halves_the_share_until_it_ends(void **state) {
  (void)state;
  world w = new_world(1, 1);
  int64_t ns;
  runs(&w, 1);
  update(&w, &ns);
  set_quota(&w, 0, 7000);  // before the first update
  assert_near(share_of(&w), SHARE);
  set_quota(&w, 0, 80);  // of ten seconds
  assert_near(share_of(&w), SHARE);
  set_quota(&w, 0, 120);
  assert_near(share_of(&w), SHARE / 2);
  assert_int_equal(w.pace.state, LB_PACE_THROTTLED);
  for (int i = 0; i < 30; i++) set_quota(&w, 500, 20);
  assert_near(share_of(&w), SHARE / 2);
  for (int i = 0; i < 5; i++) set_quota(&w, 500, 4);
  assert_near(share_of(&w), SHARE);
  assert_int_equal(w.pace.state, LB_PACE_CONTENDED);
}

static void throttling_without_requests_keeps_the_share(void **state) {
  (void)state;
  world w = new_world(1, 1);
  int64_t ns;
  update(&w, &ns);
  set_quota(&w, 0, 1);
  set_quota(&w, 500, 500);
  runs(&w, 1);
  assert_near(share_of(&w), SHARE);
}

static void a_quota_that_changes_is_followed(void **state) {
  (void)state;
  world w = new_world(2, 1);
  int64_t ns;
  runs(&w, 1);
  assert_int_equal(update(&w, &ns), LB_PACE_UNLIMITED);
  assert_false(lb_pace_displaces(&w.pace, &w.in.runs));
  set_quota(&w, 0, 0);
  assert_near(share_of(&w), SHARE);
  assert_true(lb_pace_displaces(&w.pace, &w.in.runs));
}

static void displacing_requests_updates_more_often(void **state) {
  (void)state;
  world beside = new_world(1, 1), instead = new_world(2, 1);
  beside.in.payback = instead.in.payback = 1;
  runs(&beside, 1);
  runs(&instead, 1);
  set_quota(&instead, 0, 0);
  assert_near(share_of(&beside), LB_PACE_MAX_SHARE);
  assert_near(share_of(&instead), LB_PACE_MAX_SHARE);
  assert_false(lb_pace_displaces(&beside.pace, &beside.in.runs));
  assert_true(instead.updates > beside.updates * 3 / 2);
}

static void a_quota_with_time_left_displaces_nothing(void **state) {
  (void)state;
  world w = new_world(2, 1);
  int64_t ns;
  runs(&w, 1);
  lb_pace_set_quota(&w.pace, w.in.now, 1.5, true, 0);
  update(&w, &ns);
  assert_int_equal(w.pace.state, LB_PACE_CONTENDED);
  assert_false(lb_pace_displaces(&w.pace, &w.in.runs));
}

// Simulates back-to-back requests of this duration; returns the slice.
static int64_t slice_beside(world *w, int64_t request, int64_t seconds) {
  int64_t end = w->in.now + seconds * 1000 * MS, ns, entered = 0;
  w->in.runs.inside = 1;
  while (w->in.now < end) {
    update(w, &ns);
    advance(w, ns);
    for (entered += ns; entered >= request; entered -= request)
      w->in.runs.entered++;
  }
  return w->pace.slice;
}

static void slices_are_short_beside_long_requests(void **state) {
  (void)state;
  static const struct {
    int64_t request, least, most;  // us
  } cases[] = {{50, 4000, 4000},    {4000, 4000, 4000},   {8000, 900, 1100},
               {16000, 1900, 2100}, {100000, 4000, 4000}, {8000, 900, 1100},
               {200, 4000, 4000}};
  world w = new_world(2, 2);
  w.in.payback = payback_for(0.03);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_in_range(slice_beside(&w, cases[i].request * MS / 1000, 8),
                    cases[i].least * MS / 1000, cases[i].most * MS / 1000);
}

static void slices_are_long_for_a_high_payback(void **state) {
  (void)state;
  world w = new_world(2, 2);
  w.in.payback = 1;
  assert_int_equal(slice_beside(&w, 8 * MS, 8), 4 * MS);
  w.in.payback = 0;
  assert_in_range(slice_beside(&w, 8 * MS, 8), 9 * MS / 10, 11 * MS / 10);
}

static void few_short_requests_overlap_with_unpaying_slices(void **state) {
  (void)state;
  static const int64_t requests[] = {50, 500, 1500, 3000, 4500};  // us
  for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
    world w = new_world(2, 2);
    w.in.payback = 0;
    slice_beside(&w, requests[i] * MS / 1000, 8);
    uint64_t before = w.in.runs.entered;
    int64_t spent = w.spent;
    w.slices = 0;
    slice_beside(&w, requests[i] * MS / 1000, 100);
    uint64_t requests_run = w.in.runs.entered - before;
    assert_true(w.slices > 20 && w.slices < 0.003 * (double)requests_run);
    assert_true((double)(w.spent - spent) < 1.1e11 * LB_PACE_MIN_SHARE);
  }
}

// A service may start while requests of another session run.
static void the_first_update_grants_nothing_while_contended(void **state) {
  (void)state;
  world w = new_world(2, 2);
  int64_t ns;
  w.in.runs = (lb_pool_runs){.inside = 1, .entered = 1};
  assert_int_equal(update(&w, &ns), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(without_requests_compiling_is_unlimited),
      cmocka_unit_test(the_update_after_a_request_started_stops_it),
      cmocka_unit_test(contended_compiling_takes_its_share),
      cmocka_unit_test(a_higher_payback_gets_a_larger_share),
      cmocka_unit_test(a_high_payback_does_not_wait_behind_a_low_one),
      cmocka_unit_test(nothing_pays_soon_without_contention),
      cmocka_unit_test(time_beyond_a_slice_is_charged),
      cmocka_unit_test(updates_are_charged_and_cost_little),
      cmocka_unit_test(idle_time_is_not_saved_up),
      cmocka_unit_test(short_gaps_between_requests_stay_contended),
      cmocka_unit_test(short_requests_are_detected_by_their_count),
      cmocka_unit_test(a_processor_that_requests_leave_free_is_used),
      cmocka_unit_test(the_share_grows_with_requests_up_to_the_processors),
      cmocka_unit_test(awaited_compiling_is_unlimited),
      cmocka_unit_test(quota_throttling_halves_the_share_until_it_ends),
      cmocka_unit_test(throttling_without_requests_keeps_the_share),
      cmocka_unit_test(a_quota_that_changes_is_followed),
      cmocka_unit_test(displacing_requests_updates_more_often),
      cmocka_unit_test(a_quota_with_time_left_displaces_nothing),
      cmocka_unit_test(slices_are_short_beside_long_requests),
      cmocka_unit_test(slices_are_long_for_a_high_payback),
      cmocka_unit_test(few_short_requests_overlap_with_unpaying_slices),
      cmocka_unit_test(the_first_update_grants_nothing_while_contended),
  };
  return cmocka_run_group_tests_name("pace", tests, NULL, NULL);
}
