// observe/analyzer_test.c -- samples of many threads reach the snapshot.
#include "observe/analyzer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/undertsan.h"

#define THREADS 8
#define SAMPLES 20000

static atomic_int calls, inside, overlaps;
static _Atomic uint64_t seen;

static void own(void *user, const lb_snapshot *s) {
  (void)user;
  if (atomic_fetch_add(&inside, 1)) overlaps++;
  calls++;
  seen = s->samples;
  atomic_fetch_sub(&inside, 1);
}

static void no_op(void *user, const lb_snapshot *s) {
  (void)user;
  (void)s;
}

static void *observe(void *user) {
  for (int i = 0; i < SAMPLES; i++)
    lb_analyzer_sample(user, (uint64_t)pthread_self() >> 12, (uint32_t)i % 2,
                       i % 2 ? 3.0F : 1.0F);
  return NULL;
}

static void every_sample_is_read_or_counted_as_dropped(void **state) {
  (void)state;
  lb_analyzer *a;
  pthread_t threads[THREADS];
  lb_snapshot s;
  assert_false(lb_failed(lb_analyzer_new(100, own, NULL, &a)));
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, observe, a), 0);
  for (int i = 0; i < 50; i++) lb_analyzer_update(a);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  lb_analyzer_update(a);
  lb_analyzer_snapshot(a, &s);
  assert_int_equal(s.samples + s.dropped, THREADS * SAMPLES);
  assert_true(s.points[0].mean == 1 && s.points[1].mean == 3);
  assert_int_equal(overlaps, 0);
  lb_analyzer_free(a);
}

static void the_thread_reads_samples_by_itself(void **state) {
  (void)state;
  lb_analyzer *a;
  assert_false(lb_failed(lb_analyzer_new(100, own, NULL, &a)));
  seen = 0;
  lb_analyzer_sample(a, 0, 2, 1);
  for (int64_t end = lb_clock_ns() + 5000000000; !seen;)
    assert_true(lb_clock_ns() < end);
  assert_int_equal(seen, 1);
  lb_analyzer_free(a);
}

static void what_has_changed_is_forgotten(void **state) {
  (void)state;
  lb_analyzer *a;
  lb_snapshot s;
  assert_false(lb_failed(lb_analyzer_new(100, no_op, NULL, &a)));
  for (int i = 0; i < 5; i++) lb_analyzer_sample(a, 0, 3, 7);
  lb_analyzer_update(a);
  lb_analyzer_forget(a, 3);
  lb_analyzer_sample(a, 0, 3, 9);
  lb_analyzer_update(a);
  lb_analyzer_snapshot(a, &s);
  assert_true(s.points[3].mean == 9);
  lb_analyzer_free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_sample_is_read_or_counted_as_dropped),
      cmocka_unit_test(the_thread_reads_samples_by_itself),
      cmocka_unit_test(what_has_changed_is_forgotten),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
