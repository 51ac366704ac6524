// base/events_test.c -- delivery of events to a listener.
#include "base/events.h"

// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, EACH = 3000 };

typedef struct heard {
  lb_events *events;
  int64_t n, lost;
  int64_t next[THREADS];  // value that a thread emits next
  bool in_order;
  lb_event last;
  char text[LB_EVENT_TEXT];
  sem_t *gate;  // NULL: open
} heard;

static void hear(void *user, const lb_event *e, const char *text) {
  heard *h = user;
  if (h->gate) sem_wait(h->gate);
  if (e->kind == LB_EVENT_EVENTS_LOST) {
    h->lost += e->value;
    return;
  }
  h->n++;
  h->last = *e;
  snprintf(h->text, sizeof h->text, "%s", text);
  int t = text[0] - '0';
  if (t < 0 || t >= THREADS) return;
  if (e->value < h->next[t]) h->in_order = false;
  h->next[t] = e->value + 1;
}

static lb_events *open_events(heard *h) {
  lb_status st = lb_events_new(hear, h, &h->events);
  assert_false(lb_failed(st));
  return h->events;
}

static void every_event_and_reason_has_its_own_name(void **state) {
  (void)state;
  for (int i = 0; i < LB_EVENT_COUNT; i++) {
    assert_true(*lb_event_name((lb_event_kind)i));
    assert_true(*lb_event_text((lb_event_kind)i));
    for (int k = 0; k < i; k++)
      assert_string_not_equal(lb_event_name((lb_event_kind)i),
                              lb_event_name((lb_event_kind)k));
  }
  for (int i = 0; i < LB_REASON_COUNT; i++) {
    assert_true(*lb_reason_text((lb_reason)i));
    for (int k = 0; k < i; k++)
      assert_string_not_equal(lb_reason_name((lb_reason)i),
                              lb_reason_name((lb_reason)k));
  }
}

static int evaluated;
static int count(void) { return ++evaluated; }

static void without_a_listener_nothing_is_evaluated(void **state) {
  (void)state;
  lb_events *none = NULL;
  lb_event_emit(none, PLAN_BUILT, NEW_SHAPES, "%d", count());
  assert_int_equal(evaluated, 0);
  assert_true(lb_event_start(none) == 0);
  lb_events_flush(none);
  lb_events_free(none);
}

static void an_event_arrives_as_it_was_emitted(void **state) {
  (void)state;
  heard h = {0};
  lb_events *e = open_events(&h);
  int64_t start = lb_event_start(e);
  lb_event_emit_since(e, KERNEL_COMPILED, THRESHOLD_REACHED, start, 42,
                      "mul %d", 7);
  lb_events_flush(e);
  assert_int_equal(h.n, 1);
  assert_int_equal(h.last.kind, LB_EVENT_KERNEL_COMPILED);
  assert_int_equal(h.last.reason, LB_REASON_THRESHOLD_REACHED);
  assert_true(h.last.start_ns == start && h.last.end_ns >= start);
  assert_int_equal(h.last.value, 42);
  assert_int_equal(h.last.thread, getpid());
  assert_string_equal(h.text, "mul 7");
  char large[2 * LB_EVENT_TEXT];
  memset(large, 'x', sizeof large);
  large[sizeof large - 1] = 0;
  lb_event_emit(e, PLAN_BUILT, NEW_SHAPES, "%s", large);
  lb_events_free(e);  // delivers the rest
  assert_int_equal(h.n, 2);
  assert_int_equal(strlen(h.text), LB_EVENT_TEXT - 1);
  assert_true(h.last.start_ns == h.last.end_ns);
}

typedef struct teller {
  heard *h;
  int id;
} teller;

static void *tell_many(void *user) {
  const teller *t = user;
  for (int i = 0; i < EACH; i++)
    lb_event_emit_since(t->h->events, PLAN_BUILT, NEW_SHAPES, 0, i, "%d",
                        t->id);
  return NULL;
}

static void events_of_a_thread_arrive_in_order(void **state) {
  (void)state;
  heard h = {.in_order = true};
  open_events(&h);
  pthread_t threads[THREADS];
  teller tellers[THREADS];
  for (int i = 0; i < THREADS; i++) {
    tellers[i] = (teller){&h, i};
    assert_false(pthread_create(&threads[i], NULL, tell_many, &tellers[i]));
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  lb_events_free(h.events);
  assert_int_equal(h.n + h.lost, THREADS * EACH);
  assert_true(h.in_order);
}

static void a_hung_listener_blocks_no_thread(void **state) {
  (void)state;
  sem_t gate;
  sem_init(&gate, 0, 0);
  heard h = {.gate = &gate, .in_order = true};
  lb_events *e = open_events(&h);
  for (int i = 0; i < EACH; i++)
    lb_event_emit_since(e, PLAN_BUILT, NEW_SHAPES, 0, i, "0");
  for (int i = 0; i < 2 * EACH; i++) sem_post(&gate);
  lb_events_free(e);
  assert_int_equal(h.n + h.lost, EACH);
  assert_true(h.lost > 0 && h.n >= 1024 && h.in_order);
  sem_destroy(&gate);
}

static void a_forked_child_emits_nothing_and_exits(void **state) {
  (void)state;
  heard h = {0};
  lb_events *e = open_events(&h);
  pid_t child = fork();
  if (child == 0) {
    lb_event_emit(e, PLAN_BUILT, NEW_SHAPES, "child");
    lb_events_flush(e);
    lb_events_free(e);
    _exit(h.n == 0 ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  lb_event_emit(e, PLAN_BUILT, NEW_SHAPES, "parent");
  lb_events_free(e);
  assert_int_equal(h.n, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_event_and_reason_has_its_own_name),
      cmocka_unit_test(without_a_listener_nothing_is_evaluated),
      cmocka_unit_test(an_event_arrives_as_it_was_emitted),
      cmocka_unit_test(events_of_a_thread_arrive_in_order),
      cmocka_unit_test(a_hung_listener_blocks_no_thread),
      cmocka_unit_test(a_forked_child_emits_nothing_and_exits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
