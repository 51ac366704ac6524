// base/lock_test.c -- forks while other threads take and give locks.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/lock.h"

#define LOCKS 3
#define FORKS 100

typedef struct guarded {
  lb_lock lock;
  int a, b;  // equal while the lock is not held
} guarded;

typedef struct busy {
  guarded all[LOCKS];
  atomic_bool stop;
} busy;

static void *take_often(void *user) {
  busy *x = user;
  for (unsigned i = 0; !atomic_load(&x->stop); i++) {
    guarded *g = &x->all[i % LOCKS];
    lb_lock_take(&g->lock);
    g->a++;
    sched_yield();  // most forks find some lock taken
    g->b++;
    lb_lock_give(&g->lock);
  }
  return NULL;
}

static int child(busy *x) {
  alarm(120);
  for (int i = 0; i < LOCKS; i++) {
    lb_lock_take(&x->all[i].lock);
    if (x->all[i].a != x->all[i].b) return 1;
    lb_lock_give(&x->all[i].lock);
    lb_lock_fini(&x->all[i].lock);
  }
  return 0;
}

static void a_forked_child_finds_every_lock_free(void **state) {
  (void)state;
  busy x = {0};
  pthread_t threads[2];
  for (int i = 0; i < LOCKS; i++)
    assert_false(lb_failed(lb_lock_init(&x.all[i].lock)));
  for (int i = 0; i < 2; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, take_often, &x), 0);
  for (int i = 0; i < FORKS; i++) {
    pid_t pid = fork();
    if (pid == 0) _exit(child(&x));
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
  }
  atomic_store(&x.stop, true);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < LOCKS; i++) lb_lock_fini(&x.all[i].lock);
}

typedef struct hooked {
  lb_lock lock;  // first member: hooks cast it
  int before, in_child;
} hooked;

static void count_before(lb_lock *l) { ((hooked *)l)->before++; }
static void count_in_child(lb_lock *l) { ((hooked *)l)->in_child++; }

static void hooks_are_called_on_their_side_of_a_fork(void **state) {
  (void)state;
  hooked h = {0};
  lb_fork_hooks hooks = {count_before, count_in_child};
  assert_false(lb_failed(lb_lock_init_hooked(&h.lock, hooks)));
  pid_t pid = fork();
  if (pid == 0) _exit(h.before == 1 && h.in_child == 1 ? 0 : 1);
  int status = -1;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  assert_int_equal(h.before, 1);
  assert_int_equal(h.in_child, 0);
  lb_lock_fini(&h.lock);
}

static void locks_leave_the_list_in_any_order(void **state) {
  (void)state;
  static const int orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {1, 2, 0}};
  for (size_t k = 0; k < sizeof orders / sizeof *orders; k++) {
    lb_lock locks[3];
    for (int i = 0; i < 3; i++)
      assert_false(lb_failed(lb_lock_init(&locks[i])));
    for (int i = 0; i < 3; i++) lb_lock_fini(&locks[orders[k][i]]);
    pid_t pid = fork();  // visits the remaining locks
    if (pid == 0) _exit(0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_forked_child_finds_every_lock_free),
      cmocka_unit_test(hooks_are_called_on_their_side_of_a_fork),
      cmocka_unit_test(locks_leave_the_list_in_any_order),
  };
  return cmocka_run_group_tests_name("lock", tests, NULL, NULL);
}
