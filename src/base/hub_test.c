// base/hub_test.c -- members that join and leave while other threads call them.
#include "base/hub.h"

// clang-format off
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
#include <sys/wait.h>
#include <unistd.h>

#include "base/lock.h"

static void ok(lb_status st) {
  if (lb_failed(st)) fail_msg("%s", lb_status_message(st));
}

typedef struct member {  // and the events it has received
  lb_hub *hub;
  lb_log log;
  lb_events *events;
  lb_pool *pool;
  lb_seat *seat;
  atomic_int heard, lines;
} member;

static void hear(void *user, const lb_event *e, const char *text) {
  member *m = user;
  bool right = e->kind == LB_EVENT_KERNEL_REQUESTED && !strcmp(text, "it 7");
  if (right) atomic_fetch_add(&m->heard, 1);  // else: events_lost
}

static void note_line(void *user, int level, const char *line) {
  member *m = user;
  if (level <= LB_LOG_INFO && *line) atomic_fetch_add(&m->lines, 1);
}

static void join(member *m, lb_hub *hub) {
  *m = (member){.hub = hub, .log = {note_line, m, LB_LOG_INFO}};
  ok(lb_events_new(hear, m, &m->events));
  ok(lb_pool_new(1, &m->pool));
  ok(lb_hub_join(hub, &(lb_member){&m->log, m->events, m->pool}, &m->seat));
}

static void leave(member *m) {
  lb_hub_leave(m->hub, m->seat);
  lb_events_free(m->events);
  lb_pool_free(m->pool);
}

static void put(lb_hub *hub, uint64_t to) {
  lb_event e = {.kind = LB_EVENT_KERNEL_REQUESTED};
  lb_hub_put(hub, to, &e, "it %d", 7);
}

static int heard(member *m) {
  lb_events_flush(m->events);
  return atomic_load(&m->heard);
}

static void events_reach_the_addressed_members(void **state) {
  (void)state;
  lb_hub hub = {0};
  member a, b;
  assert_false(lb_hub_listens(&hub));
  put(&hub, LB_HUB_ALL);
  join(&a, &hub);
  join(&b, &hub);
  assert_true(lb_hub_listens(&hub) && !lb_hub_is_empty(&hub));
  assert_true(lb_seat_bit(a.seat) != lb_seat_bit(b.seat));
  put(&hub, lb_seat_bit(b.seat));
  put(&hub, LB_HUB_ALL);
  assert_int_equal(heard(&a), 1);
  assert_int_equal(heard(&b), 2);
  leave(&a);
  put(&hub, LB_HUB_ALL);
  assert_int_equal(heard(&b), 3);
  leave(&b);
  assert_true(!lb_hub_listens(&hub) && lb_hub_is_empty(&hub));
  lb_hub_fini(&hub);
}

static void a_bit_is_reused_once_its_member_has_left(void **state) {
  (void)state;
  lb_hub hub = {0};
  member a, b, c;
  join(&a, &hub);
  join(&b, &hub);
  uint64_t bit = lb_seat_bit(a.seat);
  lb_hub_close(&hub, a.seat);
  put(&hub, bit);
  assert_int_equal(heard(&a), 0);
  join(&c, &hub);
  assert_true(lb_seat_bit(c.seat) != bit);
  leave(&c);
  leave(&a);
  join(&c, &hub);
  join(&a, &hub);
  assert_true(lb_seat_bit(a.seat) == bit || lb_seat_bit(c.seat) == bit);
  leave(&a);
  leave(&b);
  leave(&c);
  lb_hub_fini(&hub);
}

static void members_beyond_the_62nd_share_a_bit(void **state) {
  (void)state;
  enum { MANY = 66 };
  lb_hub hub = {0};
  lb_seat *seats[MANY];
  uint64_t seen = 0;
  for (int i = 0; i < MANY; i++) {
    ok(lb_hub_join(&hub, &(lb_member){0}, &seats[i]));
    uint64_t bit = lb_seat_bit(seats[i]);
    assert_int_equal(lb_seat_is_shared(seats[i]), i >= 62);
    assert_true(bit && (i > 62 || !(seen & bit)));
    seen |= bit;
  }
  assert_true(seen == UINT64_MAX >> 1);  // one bit is unused
  for (int i = 0; i < MANY; i++) lb_hub_leave(&hub, seats[i]);
  lb_hub_fini(&hub);
}

// How many bytes the hub's log writes to standard error.
static long written(lb_hub *hub, lb_log_level level) {
  char name[] = "/tmp/limber_hub_XXXXXX";
  int file = mkstemp(name), own = dup(STDERR_FILENO);
  lb_log log = lb_hub_log(hub);
  assert_true(file >= 0 && own >= 0);
  dup2(file, STDERR_FILENO);
  lb_log_line(&log, level, "%s", "line");
  dup2(own, STDERR_FILENO);
  long n = (long)lseek(file, 0, SEEK_END);
  close(file);
  close(own);
  unlink(name);
  return n;
}

static void a_line_goes_to_every_log_and_to_stderr_once(void **state) {
  (void)state;
  lb_hub hub = {0};
  member a, b;
  lb_log quiet = {.level = LB_LOG_ERROR}, plain = {.level = LB_LOG_WARN};
  lb_seat *seats[4];
  long once = written(&hub, LB_LOG_WARN);  // no members
  assert_true(once > 0);
  assert_int_equal(written(&hub, LB_LOG_INFO), 0);
  join(&a, &hub);
  join(&b, &hub);
  assert_int_equal(written(&hub, LB_LOG_WARN), 0);
  ok(lb_hub_join(&hub, &(lb_member){.log = &quiet}, &seats[0]));
  ok(lb_hub_join(&hub, &(lb_member){0}, &seats[1]));
  assert_int_equal(written(&hub, LB_LOG_WARN), 0);
  ok(lb_hub_join(&hub, &(lb_member){.log = &plain}, &seats[2]));
  ok(lb_hub_join(&hub, &(lb_member){.log = &plain}, &seats[3]));
  assert_int_equal(written(&hub, LB_LOG_WARN), once);
  assert_int_equal(written(&hub, LB_LOG_DEBUG), 0);
  assert_int_equal(atomic_load(&a.lines), 3);
  assert_int_equal(atomic_load(&b.lines), 3);
  for (int i = 0; i < 4; i++) lb_hub_leave(&hub, seats[i]);
  leave(&a);
  leave(&b);
  lb_hub_fini(&hub);
}

static void runs_of_all_members_are_counted_and_never_decrease(void **state) {
  (void)state;
  lb_hub hub = {0};
  lb_pool *pools[2];
  lb_seat *seats[2];
  assert_int_equal(lb_hub_count(NULL).threads, 1);
  for (int i = 0; i < 2; i++) {
    ok(lb_pool_new(2 + i, &pools[i]));
    ok(lb_hub_join(&hub, &(lb_member){.pool = pools[i]}, &seats[i]));
  }
  assert_int_equal(lb_hub_count(&hub).threads, 3);
  lb_pool_enter(pools[0]);
  lb_hub_runs n = lb_hub_count(&hub);
  assert_int_equal(n.runs.inside, 1);
  assert_int_equal(n.threads, 2);
  lb_pool_enter(pools[1]);
  n = lb_hub_count(&hub);
  assert_int_equal(n.runs.inside, 2);
  assert_int_equal(n.runs.entered, 2);
  assert_int_equal(n.threads, 5);
  assert_true(n.runs.cpu >= 0);
  lb_pool_leave(pools[0]);
  lb_pool_leave(pools[1]);
  for (int i = 0; i < 2; i++) {
    lb_hub_leave(&hub, seats[i]);
    lb_pool_free(pools[i]);
    assert_int_equal(lb_hub_count(&hub).runs.entered, 2);
  }
  lb_hub_fini(&hub);
}

typedef struct crowd {
  lb_hub hub;
  atomic_bool stop;
} crowd;

static void *call_often(void *user) {
  crowd *c = user;
  lb_log log = lb_hub_log(&c->hub);
  while (!atomic_load(&c->stop)) {
    put(&c->hub, LB_HUB_ALL);
    lb_log_line(&log, LB_LOG_INFO, "line");
    (void)lb_hub_count(&c->hub);
  }
  return NULL;
}

static void *come_and_go(void *user) {
  crowd *c = user;
  for (int i = 0; i < 200; i++) {
    member m;
    join(&m, &c->hub);
    while (!heard(&m)) sched_yield();
    leave(&m);
  }
  return NULL;
}

static void members_leave_while_others_call(void **state) {
  (void)state;
  static crowd c;
  pthread_t callers[2], members[2];
  for (int i = 0; i < 2; i++) {
    assert_false(pthread_create(&callers[i], NULL, call_often, &c));
    assert_false(pthread_create(&members[i], NULL, come_and_go, &c));
  }
  for (int i = 0; i < 2; i++) pthread_join(members[i], NULL);
  atomic_store(&c.stop, true);
  for (int i = 0; i < 2; i++) pthread_join(callers[i], NULL);
  assert_true(lb_hub_is_empty(&c.hub));
  lb_hub_fini(&c.hub);
}

typedef struct forker {
  lb_hub hub;
  lb_seat *seat;
} forker;

// In the child the forking call is not counted, so the member can leave.
static void fork_inside(void *user, int level, const char *line) {
  forker *f = user;
  (void)level;
  (void)line;
  pid_t child = fork();
  if (child == 0) {
    lb_hub_leave(&f->hub, f->seat);
    _exit(!lb_hub_is_empty(&f->hub));
  }
  int status = 1;
  assert_true(child > 0 && waitpid(child, &status, 0) == child);
  assert_int_equal(status, 0);
}

static void a_member_can_leave_in_a_forked_child(void **state) {
  (void)state;
  forker f = {0};
  lb_log own = {fork_inside, &f, LB_LOG_INFO}, log = lb_hub_log(&f.hub);
  lb_lock lock;
  ok(lb_lock_init(&lock));  // counts forks
  ok(lb_hub_join(&f.hub, &(lb_member){.log = &own}, &f.seat));
  lb_log_line(&log, LB_LOG_INFO, "line");
  lb_hub_leave(&f.hub, f.seat);
  lb_lock_fini(&lock);
  lb_hub_fini(&f.hub);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(events_reach_the_addressed_members),
      cmocka_unit_test(a_bit_is_reused_once_its_member_has_left),
      cmocka_unit_test(members_beyond_the_62nd_share_a_bit),
      cmocka_unit_test(a_line_goes_to_every_log_and_to_stderr_once),
      cmocka_unit_test(runs_of_all_members_are_counted_and_never_decrease),
      cmocka_unit_test(members_leave_while_others_call),
      cmocka_unit_test(a_member_can_leave_in_a_forked_child),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
