// base/pool_test.c -- every item is processed once, whichever threads help.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/pool.h"
#include "base/undertsan.h"

#define ITEMS 1000

typedef struct tally {
  atomic_int seen[ITEMS];
  atomic_int calls, bad;
  int64_t n, grain;
  int threads;
} tally;

static void tally_init(tally *t, int64_t n, int64_t grain, int threads) {
  memset(t, 0, sizeof *t);
  t->n = n;
  t->grain = grain;
  t->threads = threads;
}

static void count_items(void *user, int64_t begin, int64_t end, int worker) {
  tally *t = user;
  int64_t want = t->n - begin > t->grain ? begin + t->grain : t->n;
  if (begin % t->grain != 0 || end != want) atomic_fetch_add(&t->bad, 1);
  if (worker < 0 || worker >= t->threads) atomic_fetch_add(&t->bad, 1);
  atomic_fetch_add(&t->calls, 1);
  for (int64_t i = begin; i < end; i++) atomic_fetch_add(&t->seen[i], 1);
}

static bool tally_is_right(const tally *t) {
  bool right =
      t->bad == 0 && t->calls == t->n / t->grain + (t->n % t->grain != 0);
  for (int64_t i = 0; i < t->n; i++) right = right && t->seen[i] == 1;
  return right;
}

static bool counts_right(lb_pool *p, int64_t n, int64_t grain) {
  tally t;
  tally_init(&t, n, grain, lb_pool_threads(p));
  lb_pool_for(p, n, grain, count_items, &t);
  return tally_is_right(&t);
}

static lb_pool *pool_of(int threads) {
  lb_pool *p = NULL;
  lb_status st = lb_pool_new(threads, &p);
  assert_false(lb_failed(st));
  return p;
}

static void every_item_runs_once_in_fixed_chunks(void **state) {
  (void)state;
  for (int threads = 0; threads <= 5; threads++) {
    lb_pool *p = threads ? pool_of(threads) : NULL;
    assert_int_equal(lb_pool_threads(p), threads ? threads : 1);
    for (int64_t n = 0; n < 40; n++)
      for (int64_t grain = 1; grain < 12; grain++)
        assert_true(counts_right(p, n, grain));
    assert_true(counts_right(p, ITEMS, INT64_MAX));
    lb_pool_free(p);
  }
}

static void invalid_thread_counts_are_refused(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++) {
    lb_pool *p = NULL;
    lb_status st = lb_pool_new((int[]){0, -1, 1000000}[i], &p);
    assert_int_equal(lb_status_code(st), LB_INVALID);
    assert_null(p);
    lb_status_drop(st);
  }
}

// Plain stores, so that TSan sees whether the end of a job orders them.
static void fill(void *user, int64_t begin, int64_t end, int worker) {
  (void)worker;
  for (int64_t i = begin; i < end; i++) ((int64_t *)user)[i] += i;
}

static void writes_of_a_job_are_visible_after_it(void **state) {
  (void)state;
  lb_pool *p = pool_of(4);
  int64_t data[ITEMS] = {0};
  lb_pool_enter(p);
  for (int round = 0; round < 300; round++)
    lb_pool_for(p, ITEMS, 50, fill, data);
  lb_pool_leave(p);
  for (int64_t i = 0; i < ITEMS; i++) assert_int_equal(data[i], 300 * i);
  lb_pool_free(p);
}

// The first task waits until another thread has arrived: only a helper can end
// it.
static void meet(void *user, int64_t begin, int64_t end, int worker) {
  (void)begin, (void)end, (void)worker;
  atomic_int *here = user;
  atomic_fetch_add(here, 1);
  while (atomic_load(here) < 2) sched_yield();
}

// A test that waits for another thread needs a processor for each.
static void needs_two_processors(void) {
  if (lb_cpu_allowed() < 2) skip();
}

static void workers_do_help(void **state) {
  (void)state;
  needs_two_processors();
  lb_pool *p = pool_of(2);
  for (int round = 0; round < 50; round++) {
    atomic_int here = 0;
    lb_pool_for(p, 2, 1, meet, &here);
    assert_int_equal(here, 2);
  }
  lb_pool_free(p);
}

typedef struct caller {
  lb_pool *pool;
  bool right;
} caller;

static void *call_often(void *arg) {
  caller *c = arg;
  c->right = true;
  for (int i = 0; i < 100; i++) {
    lb_pool_enter(c->pool);
    c->right = counts_right(c->pool, 1 + i * 7, 5) && c->right;
    lb_pool_leave(c->pool);
  }
  return NULL;
}

static void many_callers_share_one_pool(void **state) {
  (void)state;
  lb_pool *p = pool_of(3);
  caller callers[24];  // more than there are slots
  pthread_t threads[24];
  for (int i = 0; i < 24; i++) {
    callers[i] = (caller){.pool = p};
    pthread_create(&threads[i], NULL, call_often, &callers[i]);
  }
  for (int i = 0; i < 24; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < 24; i++) assert_true(callers[i].right);
  lb_pool_free(p);
}

typedef struct gate {
  lb_pool *pool;
  atomic_int held, open;
} gate;

static void hold(void *user, int64_t begin, int64_t end, int worker) {
  (void)begin, (void)end, (void)worker;
  gate *g = user;
  atomic_fetch_add(&g->held, 1);
  while (!atomic_load(&g->open)) sched_yield();
}

static void *hold_all(void *arg) {
  gate *g = arg;
  lb_pool_for(g->pool, 2, 1, hold, g);
  return NULL;
}

static void a_caller_needs_no_worker(void **state) {
  (void)state;
  needs_two_processors();
  gate g = {.pool = pool_of(2)};
  pthread_t other;
  pthread_create(&other, NULL, hold_all, &g);
  while (atomic_load(&g.held) < 2) sched_yield();
  assert_true(counts_right(g.pool, ITEMS, 3));  // the only worker is held
  atomic_store(&g.open, 1);
  pthread_join(other, NULL);
  lb_pool_free(g.pool);
}

typedef struct nest {
  lb_pool *pool;
  atomic_int items, strays;
} nest;

typedef struct inner {
  nest *nest;
  pthread_t thread;
  int worker;
} inner;

static void inner_task(void *user, int64_t begin, int64_t end, int worker) {
  inner *in = user;
  if (!pthread_equal(in->thread, pthread_self()) || worker != in->worker)
    atomic_fetch_add(&in->nest->strays, 1);
  atomic_fetch_add(&in->nest->items, (int)(end - begin));
}

static void outer_task(void *user, int64_t begin, int64_t end, int worker) {
  (void)begin, (void)end;
  inner in = {user, pthread_self(), worker};
  lb_pool_for(in.nest->pool, 10, 3, inner_task, &in);
}

static void a_nested_job_runs_on_its_own_thread(void **state) {
  (void)state;
  nest n = {.pool = pool_of(4)};
  for (int round = 0; round < 50; round++)
    lb_pool_for(n.pool, 16, 1, outer_task, &n);
  assert_int_equal(n.items, 50 * 160);
  assert_int_equal(n.strays, 0);
  lb_pool_free(n.pool);
}

static double cpu_ms(void) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 +
         (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e3;
}

static void note_worker(void *user, int64_t begin, int64_t end, int worker) {
  (void)begin, (void)end;
  if (worker) atomic_fetch_add((atomic_int *)user, 1);
}

static void a_full_pool_leaves_jobs_to_their_callers(void **state) {
  (void)state;
  lb_pool *p = pool_of(2);
  atomic_int helped = 0;
  lb_pool_enter(p);
  lb_pool_enter(p);
  for (int i = 0; i < 1000; i++) lb_pool_for(p, 100, 1, note_worker, &helped);
  assert_int_equal(helped, 0);
  lb_pool_leave(p);
  lb_pool_leave(p);
  lb_pool_free(p);
}

// Yields the processor to other threads.
static void doze(void *user, int64_t begin, int64_t end, int worker) {
  note_worker(user, begin, end, worker);
  if (begin == 0) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

// The scheduler alternates threads on one processor every few milliseconds: one
// thread does the whole job in less.
static void on_one_processor_a_run_works_alone(void **state) {
  (void)state;
  lb_cpu_mask all = lb_cpu_allowed_mask(0);
  lb_cpu_place(0, &all, lb_cpu_here());  // workers inherit the affinity
  lb_pool *p = pool_of(3);
  atomic_int helped = 0;
  lb_pool_enter(p);
  for (int i = 0; i < 50; i++) lb_pool_for(p, 100, 1, doze, &helped);
  lb_pool_leave(p);
  lb_cpu_place(0, &all, -1);
  lb_pool_free(p);
  assert_int_equal(helped, 0);
}

// Lets all other threads run, and records which of them do.
static void note_who(void *user, int64_t begin, int64_t end, int worker) {
  (void)begin, (void)end;
  atomic_fetch_or((atomic_uint *)user, 1u << worker);
  nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

// The threads that had a part in a run of many jobs, as a mask.
static unsigned who_comes(lb_pool *p) {
  atomic_uint who = 0;
  lb_pool_enter(p);
  for (int i = 0; i < 20; i++) lb_pool_for(p, 32, 1, note_who, &who);
  lb_pool_leave(p);
  return who;
}

static void no_more_threads_take_part_than_processors(void **state) {
  (void)state;
  int most = lb_cpu_allowed(), threads = most < 12 ? most + 4 : 16;
  lb_pool *p = pool_of(threads);
  int width = most < threads ? most : threads;
  assert_int_equal(lb_pool_width(p), width);
  assert_int_equal(lb_pool_threads(p), threads);
  assert_int_equal(who_comes(p) >> width, 0);
  assert_true(counts_right(p, ITEMS, 7));
  lb_pool_free(p);
}

// All threads of this process.
static void place_all(const lb_cpu_mask *all, int cpu) {
  DIR *tasks = opendir("/proc/self/task");
  assert_non_null(tasks);
  for (struct dirent *e; (e = readdir(tasks));)
    if (e->d_name[0] != '.') lb_cpu_place(atoi(e->d_name), all, cpu);
  closedir(tasks);
}

// Waits until the pool has updated its width, which it does periodically.
static int width_after_a_while(lb_pool *p) {
  nanosleep(&(struct timespec){.tv_nsec = 150000000}, NULL);
  lb_pool_enter(p);
  lb_pool_leave(p);
  return lb_pool_width(p);
}

static void the_width_follows_the_allowed_processors(void **state) {
  (void)state;
  needs_two_processors();
  lb_cpu_mask all = lb_cpu_allowed_mask(0);
  lb_pool *p = pool_of(2);
  for (int round = 0; round < 3; round++) {
    place_all(&all, lb_cpu_here());
    int one = width_after_a_while(p);
    unsigned who = who_comes(p);
    place_all(&all, -1);
    assert_int_equal(one, 1);
    assert_int_equal(who, 1);
    assert_int_equal(width_after_a_while(p), 2);
    atomic_int here = 0;
    lb_pool_for(p, 2, 1, meet, &here);  // only a helper can end it
  }
  // A caller with an affinity to one processor has workers on the others.
  lb_cpu_place(0, &all, lb_cpu_here());
  int width = width_after_a_while(p);
  lb_cpu_place(0, &all, -1);
  assert_int_equal(width, 2);
  lb_pool_free(p);
}

// Workers that sleep on the run's processor are moved; their affinity is kept.
static void parked_workers_are_moved_off_the_callers_processor(void **state) {
  (void)state;
  needs_two_processors();
  lb_cpu_mask all = lb_cpu_allowed_mask(0);
  lb_pool *p = pool_of(2);
  lb_pool_enter(p);
  for (int round = 0; round < 50; round++) {
    atomic_int here = 0;
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);  // they park
    lb_cpu_place(0, &all, lb_cpu_here());
    for (int i = 0; i < 100; i++) assert_true(counts_right(p, ITEMS, 10));
    lb_pool_for(p, 2, 1, meet, &here);
    lb_cpu_place(0, &all, -1);
    assert_int_equal(here, 2);
  }
  lb_pool_leave(p);
  lb_pool_free(p);
}

// The workers of a pool without jobs park, inside and outside of a run.
static void idle_workers_park(void **state) {
  (void)state;
  lb_pool *p = pool_of(4);
  for (int inside = 0; inside < 2; inside++) {
    if (inside) lb_pool_enter(p);
    assert_true(counts_right(p, ITEMS, 10));
    double before = cpu_ms();
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    assert_true(cpu_ms() - before < 50);  // three spinning would use 300
    if (inside) lb_pool_leave(p);
  }
  lb_pool_free(p);
}

#ifndef UNDER_TSAN  // it does not follow threads that a forked child starts

// Runs `check` in a child, which must succeed and not hang.
static void in_child(bool (*check)(lb_pool *p), lb_pool *p) {
#ifdef UNDER_ASAN
  usleep(20000);  // threads that start hold its malloc, which a child inherits
#endif
  pid_t pid = fork();
  if (pid == 0) {
    alarm(120);
    _exit(check(p) ? 0 : 1);
  }
  int status = -1;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
}

static bool still_meets(lb_pool *p) {
  atomic_int here = 0;
  lb_pool_leave(p);  // as if the fork had happened inside a run
  lb_pool_for(p, 2, 1, meet, &here);
  return here == 2 && counts_right(p, ITEMS, 7);
}

static bool grandchild_meets(lb_pool *p) {
  if (!still_meets(p)) return false;
  in_child(still_meets, p);
  return true;
}

static bool frees(lb_pool *p) {
  lb_pool_free(p);
  return true;
}

static void a_forked_child_starts_its_own_workers(void **state) {
  (void)state;
  needs_two_processors();
  lb_pool *p = pool_of(3);
  assert_true(counts_right(p, ITEMS, 7));
  in_child(still_meets, p);
  in_child(grandchild_meets, p);
  in_child(frees, p);
  assert_true(still_meets(p));
  lb_pool_free(p);
}

static void a_child_forked_during_a_job_does_not_wait_for_it(void **state) {
  (void)state;
  needs_two_processors();
  gate g = {.pool = pool_of(2)};
  pthread_t other;
  pthread_create(&other, NULL, hold_all, &g);
  while (atomic_load(&g.held) < 2) sched_yield();
  in_child(still_meets, g.pool);
  in_child(frees, g.pool);
  atomic_store(&g.open, 1);
  pthread_join(other, NULL);
  lb_pool_free(g.pool);
}

typedef struct forking {
  atomic_int arrived, children;
  pthread_t caller;
} forking;

// Forks from the caller's task while a worker runs the other one.
static void fork_in_task(void *user, int64_t begin, int64_t end, int worker) {
  (void)begin, (void)end, (void)worker;
  forking *f = user;
  atomic_fetch_add(&f->arrived, 1);
  while (atomic_load(&f->arrived) < 2) sched_yield();
  if (!pthread_equal(pthread_self(), f->caller)) {
    while (!atomic_load(&f->children)) sched_yield();
    return;
  }
  pid_t pid = fork();
  if (pid == 0) alarm(120);
  atomic_store(&f->children, pid == 0 ? -1 : (int)pid);
}

static void a_child_forked_inside_a_task_returns(void **state) {
  (void)state;
  needs_two_processors();
  lb_pool *p = pool_of(2);
  forking f = {.caller = pthread_self()};
  lb_pool_for(p, 2, 1, fork_in_task, &f);
  if (f.children == -1) _exit(still_meets(p) ? 0 : 1);
  int status = -1;
  assert_int_equal(waitpid(f.children, &status, 0), f.children);
  assert_int_equal(status, 0);
  lb_pool_free(p);
}

#endif

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_item_runs_once_in_fixed_chunks),
      cmocka_unit_test(invalid_thread_counts_are_refused),
      cmocka_unit_test(writes_of_a_job_are_visible_after_it),
      cmocka_unit_test(workers_do_help),
      cmocka_unit_test(many_callers_share_one_pool),
      cmocka_unit_test(a_caller_needs_no_worker),
      cmocka_unit_test(a_nested_job_runs_on_its_own_thread),
      cmocka_unit_test(a_full_pool_leaves_jobs_to_their_callers),
      cmocka_unit_test(on_one_processor_a_run_works_alone),
      cmocka_unit_test(no_more_threads_take_part_than_processors),
      cmocka_unit_test(the_width_follows_the_allowed_processors),
      cmocka_unit_test(parked_workers_are_moved_off_the_callers_processor),
      cmocka_unit_test(idle_workers_park),
#ifndef UNDER_TSAN
      cmocka_unit_test(a_forked_child_starts_its_own_workers),
      cmocka_unit_test(a_child_forked_during_a_job_does_not_wait_for_it),
      cmocka_unit_test(a_child_forked_inside_a_task_returns),
#endif
  };
  return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
