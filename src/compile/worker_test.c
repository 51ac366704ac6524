// compile/worker_test.c -- the library survives whatever the worker does.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/testdir.h"
#include "compile/worker.h"

#define LONG 200000  // ms; a timeout that is not reached

static testdir dir;

static int make_directory(void **state) {
  (void)state;
  return testdir_init(&dir);
}

static int drop_directory(void **state) {
  (void)state;
  testdir_fini(&dir);
  return 0;
}

// A handle on the fake worker that behaves like `name`.
static lb_worker *worker_of(const char *name, lb_worker_options options) {
  lb_worker *w;
  symlink(FAKE_WORKER, testdir_at(&dir, name));
  lb_status st = lb_worker_new(testdir_at(&dir, name), &options, &w);
  assert_false(lb_failed(st));
  return w;
}

static lb_request a_request(void) {
  lb_spec_builder b;
  lb_spec spec;
  lb_request r;
  lb_spec_begin(&b, LB_FORM_ELTWISE);
  uint8_t x = lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  lb_spec_output(&b, lb_spec_node(&b, LB_S_EXP, LB_F32, &x, 1), LB_LAYOUT_FULL);
  assert_false(lb_failed(lb_spec_finish(&b, &spec)));
  assert_false(
      lb_failed(lb_request_init(&r, &spec, &(lb_facts){0}, "x86-64-v3")));
  return r;
}

static lb_status compile(lb_worker *w, int timeout_ms) {
  lb_request r = a_request();
  lb_blob object;
  lb_object_info info;
  lb_status st = lb_worker_compile(w, &r, timeout_ms, &object, &info);
  if (lb_failed(st))
    assert_null(object.data);
  else
    assert_memory_equal(object.data, "\177ELF of a kernel", object.size);
  lb_blob_fini(&object);
  return st;
}

static void assert_compiles(lb_worker *w) {
  lb_status st = compile(w, LONG);
  if (lb_failed(st)) print_error("%s\n", lb_status_message(st));
  assert_false(lb_failed(st));
}

static void assert_fails(lb_status st, lb_code code, const char *part) {
  if (lb_status_code(st) != code || !strstr(lb_status_message(st), part)) {
    print_error("wanted %s '%s', got %s '%s'\n", lb_code_name(code), part,
                lb_code_name(lb_status_code(st)), lb_status_message(st));
    fail();
  }
  lb_status_drop(st);
}

static void assert_no_children(void) {
  assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
  assert_int_equal(errno, ECHILD);
}

static void finish(lb_worker *w) {
  lb_worker_free(w);
  assert_no_children();
}

// -- good workers ------------------------------------------------------------

static void the_process_starts_at_the_first_request_and_stays(void **state) {
  (void)state;
  lb_worker *w = worker_of("good", (lb_worker_options){0});
  assert_int_equal(lb_worker_pid(w), 0);
  assert_compiles(w);
  pid_t pid = lb_worker_pid(w);
  assert_int_not_equal(pid, 0);
  assert_compiles(w);
  assert_int_equal(lb_worker_pid(w), pid);
  finish(w);
}

static void a_process_that_was_prepared_gets_the_first_request(void **state) {
  (void)state;
  lb_worker *w = worker_of("good", (lb_worker_options){0});
  lb_worker_prepare(w);
  pid_t pid = lb_worker_pid(w);
  assert_int_not_equal(pid, 0);
  lb_worker_prepare(w);
  assert_int_equal(lb_worker_pid(w), pid);
  assert_compiles(w);
  assert_int_equal(lb_worker_pid(w), pid);
  finish(w);
}

static void information_comes_with_the_object(void **state) {
  (void)state;
  lb_worker *w = worker_of("good", (lb_worker_options){.generator = 42});
  lb_request r = a_request();
  lb_blob object;
  lb_object_info info;
  assert_false(lb_failed(lb_worker_compile(w, &r, LONG, &object, &info)));
  assert_int_equal(object.size, 16);
  assert_int_equal(info.compile_us, 7);
  assert_string_equal(info.entry, "limber_kernel");
  assert_string_equal(info.target, "x86-64-v3");
  lb_blob_fini(&object);
  finish(w);
}

static void a_rejected_request_is_not_a_worker_failure(void **state) {
  (void)state;
  lb_worker *w = worker_of("refuse", (lb_worker_options){0});
  assert_fails(compile(w, LONG), LB_UNSUPPORTED, "limber-jit: not?this");
  pid_t pid = lb_worker_pid(w);
  assert_fails(compile(w, LONG), LB_UNSUPPORTED, "not?this");
  assert_int_equal(lb_worker_pid(w), pid);
  finish(w);
}

static void the_process_inherits_four_descriptors(void **state) {
  (void)state;
  int leaks[2];
  assert_int_equal(pipe(leaks), 0);
  lb_worker *w = worker_of("descriptors", (lb_worker_options){0});
  assert_fails(compile(w, LONG), LB_OOM, "jit: 0 1 2 3 ");
  lb_status st = compile(w, LONG);
  assert_null(strstr(lb_status_message(st), "4"));
  lb_status_drop(st);
  finish(w);
  close(leaks[0]);
  close(leaks[1]);
}

static void the_worker_starts_where_low_descriptors_are_closed(void **state) {
  (void)state;
  pid_t child = fork();
  if (child == 0) {
    lb_worker *w = worker_of("good", (lb_worker_options){0});
    for (int fd = 0; fd < 10; fd++) close(fd);
    lb_worker *late;
    lb_status st =
        lb_worker_new(testdir_at(&dir, "good"), &(lb_worker_options){0}, &late);
    if (lb_failed(st) || lb_failed(compile(late, LONG))) _exit(1);
    (void)w;
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

static void stderr_output_is_bounded(void **state) {
  (void)state;
  lb_worker *w = worker_of("loud", (lb_worker_options){0});
  assert_compiles(w);
  assert_compiles(w);
  finish(w);
}

static void stop_ends_the_process_and_the_next_request_starts_one(
    void **state) {
  (void)state;
  lb_worker *w = worker_of("good", (lb_worker_options){0});
  lb_worker_stop(w);
  assert_compiles(w);
  lb_worker_stop(w);
  assert_int_equal(lb_worker_pid(w), 0);
  assert_no_children();
  assert_compiles(w);
  finish(w);
}

// -- bad workers -------------------------------------------------------------

static void a_missing_program_is_named(void **state) {
  (void)state;
  lb_worker *w;
  assert_false(lb_failed(
      lb_worker_new("/nowhere/limber-jit", &(lb_worker_options){0}, &w)));
  lb_worker_prepare(w);
  for (int i = 0; i < 20; i++)  // without backoff
    assert_fails(compile(w, LONG), LB_IO,
                 "'/nowhere/limber-jit': No such file or directory");
  finish(w);
}

static void a_program_that_cannot_be_run_is_named(void **state) {
  (void)state;
  lb_worker *w;
  testdir_write(&dir, "text", "no program\n");
  assert_false(lb_failed(
      lb_worker_new(testdir_at(&dir, "text"), &(lb_worker_options){0}, &w)));
  assert_fails(compile(w, LONG), LB_IO, "text': Permission denied");
  finish(w);
}

static void bad_workers_fail_with_the_reason(void **state) {
  (void)state;
  static const struct {
    const char *name, *part;
  } cases[] = {
      {"early", "ended with code 3"},
      {"crash", "crashed: Aborted, saying: LLVM ERROR: no such?thing"},
      {"garbage", "invalid response: message: wrong magic number"},
      {"huge", "invalid body size of 4294967295 bytes"},
      {"half", "closed the connection; it ended with code 0"},
      {"id", "responds to another request"},
      {"target", "compiled for x86-64-v4+amx-tile instead of x86-64-v3"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    lb_worker *w = worker_of(cases[i].name, (lb_worker_options){0});
    lb_status st = compile(w, LONG);
    assert_non_null(strstr(lb_status_message(st), dir.path));
    assert_fails(st, LB_IO, cases[i].part);
    assert_int_equal(lb_worker_pid(w), 0);
    assert_no_children();
    finish(w);
  }
}

static void an_object_of_another_generator_is_rejected(void **state) {
  (void)state;
  lb_worker *w = worker_of("good", (lb_worker_options){.generator = 43});
  assert_fails(compile(w, LONG), LB_IO, "of another build");
  finish(w);
}

static void a_worker_that_hangs_is_killed_in_time(void **state) {
  (void)state;
  static const char *const names[] = {"hang", "stuck"};
  for (int i = 0; i < 2; i++) {
    lb_worker *w = worker_of(names[i], (lb_worker_options){0});
    assert_fails(compile(w, 100), LB_CANCELLED,
                 "did not respond in time; it was killed");
    assert_no_children();
    finish(w);
  }
}

static void a_stopped_worker_is_killed_in_time(void **state) {
  (void)state;
  lb_worker *w = worker_of("good", (lb_worker_options){0});
  assert_compiles(w);
  kill(lb_worker_pid(w), SIGSTOP);
  assert_fails(compile(w, 100), LB_CANCELLED, "it was killed");
  assert_compiles(w);
  finish(w);
}

// As a sandbox may do. False: seccomp is not available here.
static bool forbid(unsigned call) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  struct sock_fprog filter = {sizeof code / sizeof *code, code};
  return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
         !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0);
}

static void a_worker_that_hangs_is_killed_in_a_sandbox_too(void **state) {
  (void)state;
  int status;
  lb_worker *w = worker_of("hang", (lb_worker_options){0});
  pid_t pid = fork();
  if (pid == 0) {
    lb_status st = LB_OK;
    if (forbid(SYS_pidfd_send_signal)) st = compile(w, 50);
    lb_status_drop(st);
    lb_worker_free(w);
    _exit(0);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  finish(w);
}

static void a_worker_killed_between_requests_is_replaced(void **state) {
  (void)state;
  lb_worker *w = worker_of("good", (lb_worker_options){0});
  assert_compiles(w);
  pid_t pid = lb_worker_pid(w);
  siginfo_t ended;
  kill(pid, SIGKILL);
  assert_int_equal(waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOWAIT), 0);
  assert_compiles(w);
  assert_int_not_equal(lb_worker_pid(w), pid);
  finish(w);
}

static void an_extra_response_is_not_taken_for_the_next(void **state) {
  (void)state;
  lb_worker *w = worker_of("twice", (lb_worker_options){0});
  for (int i = 0; i < 3; i++) assert_compiles(w);
  finish(w);
}

static void the_worker_is_restarted_after_a_failure(void **state) {
  (void)state;
  lb_worker *w = worker_of("flaky", (lb_worker_options){.backoff_ms = 5});
  assert_fails(compile(w, LONG), LB_IO, "ended with code 4");
  assert_compiles(w);
  assert_compiles(w);
  finish(w);
}

static void backoff_grows_until_requests_fail_at_once(void **state) {
  (void)state;
  lb_worker *w = worker_of("early", (lb_worker_options){.backoff_ms = 20});
  for (int tries = 0;; tries++) {  // 20 ms, 40 ms, ... are waited out
    lb_status st = compile(w, LONG);
    if (strstr(lb_status_message(st), "not restarted for")) {
      assert_in_range(tries, 6, 12);
      lb_status_drop(st);
      break;
    }
    assert_fails(st, LB_IO, "code 3");
  }
  finish(w);
}

// -- cancel, fork ------------------------------------------------------------

static void *cancel_soon(void *w) {
  nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
  lb_worker_cancel(w);
  return NULL;
}

static void cancel_ends_the_current_call(void **state) {
  (void)state;
  lb_worker *w = worker_of("hang", (lb_worker_options){0});
  pthread_t thread;
  pthread_create(&thread, NULL, cancel_soon, w);
  assert_fails(compile(w, LONG), LB_CANCELLED, "cancelled");
  pthread_join(thread, NULL);
  assert_fails(compile(w, LONG), LB_CANCELLED, "cancelled");
  finish(w);
}

static void after_fork_each_side_has_its_own_process(void **state) {
  (void)state;
  lb_worker *w = worker_of("good", (lb_worker_options){0});
  assert_compiles(w);
  pid_t pid = lb_worker_pid(w);
  pid_t child = fork();
  if (child == 0) {
    lb_status st = compile(w, LONG);
    bool own = !lb_failed(st) && lb_worker_pid(w) != pid;
    lb_worker_free(w);
    _exit(own && waitpid(-1, NULL, WNOHANG) == -1 ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  assert_compiles(w);
  assert_int_equal(lb_worker_pid(w), pid);
  finish(w);
}

static void the_worker_ends_although_a_forked_child_holds_the_socket(
    void **state) {
  (void)state;
  lb_worker *w = worker_of("good", (lb_worker_options){0});
  assert_compiles(w);
  pid_t child = fork();
  if (child == 0)
    for (;;) pause();
  lb_worker_free(w);
  kill(child, SIGKILL);
  assert_int_equal(waitpid(-1, NULL, 0), child);
  assert_no_children();
}

static void programs_that_ignore_sigchld_are_supported(void **state) {
  (void)state;
  void (*old)(int) = signal(SIGCHLD, SIG_IGN);
  lb_worker *w = worker_of("crash", (lb_worker_options){0});
  assert_fails(compile(w, LONG), LB_IO, "it ended");
  lb_worker_free(w);
  signal(SIGCHLD, old);
}

// -- the throttle ------------------------------------------------------------

static atomic_int stops;

static void count_stop(int signal, siginfo_t *info, void *context) {
  (void)signal, (void)context;
  if (info->si_code == CLD_STOPPED) atomic_fetch_add(&stops, 1);
}

typedef struct contended {  // a pool with a request running all the time
  lb_pool *pool;
  lb_hub hub;
  lb_seat *seat;
  lb_throttle throttle;
  struct sigaction old;
} contended;

// Grants a twentieth of a processor.
static double payback(void *user) {
  (void)user;
  return 0.05 * 0.05 / (LB_PACE_MAX_SHARE * LB_PACE_MAX_SHARE * LB_PACE_SOON_S);
}

static void contend(contended *p, bool off) {
  struct sigaction a = {.sa_sigaction = count_stop, .sa_flags = SA_SIGINFO};
  assert_int_equal(sigaction(SIGCHLD, &a, &p->old), 0);
  assert_false(lb_failed(lb_pool_new(lb_cpu_allowed(), &p->pool)));
  lb_pool_enter(p->pool);
  p->hub = (lb_hub){0};
  assert_false(
      lb_failed(lb_hub_join(&p->hub, &(lb_member){.pool = p->pool}, &p->seat)));
  lb_throttle_init(
      &p->throttle,
      &(lb_throttle_options){.hub = &p->hub, .off = off, .payback = payback});
  atomic_store(&stops, 0);
}

static void end_contention(contended *p) {
  lb_pool_leave(p->pool);
  lb_hub_leave(&p->hub, p->seat);
  lb_hub_fini(&p->hub);
  lb_pool_free(p->pool);
  sigaction(SIGCHLD, &p->old, NULL);
}

static void overdraw(lb_throttle *b, int ms) {
  int64_t ns;
  lb_throttle_grant(b, &ns);
  lb_throttle_spend(b, ms * INT64_C(1000000));
  lb_throttle_grant(b, &ns);
}

static void the_share_follows_the_payback(void **state) {
  (void)state;
  contended p;
  int64_t ns;
  contend(&p, false);
  lb_throttle_grant(&p.throttle, &ns);
  assert_int_equal(lround(1000 * p.throttle.pace.share), 50);
  p.throttle.options.payback = NULL;
  lb_throttle_grant(&p.throttle, &ns);
  assert_int_equal(lround(1000 * p.throttle.pace.share),
                   1000 * LB_PACE_MIN_SHARE);
  end_contention(&p);
}

static void a_contended_worker_is_suspended_and_responds(void **state) {
  (void)state;
  contended p;
  contend(&p, false);
  overdraw(&p.throttle, 5);
  lb_worker *w =
      worker_of("busy", (lb_worker_options){.throttle = &p.throttle});
  assert_compiles(w);
  assert_int_equal(atomic_load(&stops),
                   0);  // it might not end with this process
  // It may have responded before this thread gets to suspend it; and where
  // other programs leave it less than its share, it does not overdraw by
  // itself.
  for (int i = 0; i < 50 && !atomic_load(&stops); i++) {
    overdraw(&p.throttle, 50);
    assert_compiles(w);
  }
  assert_true(atomic_load(&stops) > 0);
  assert_compiles(w);
  finish(w);
  end_contention(&p);
}

static void unthrottled_or_awaited_workers_are_not_suspended(void **state) {
  (void)state;
  for (int off = 0; off < 2; off++) {
    contended p;
    contend(&p, off);
    if (!off) lb_throttle_add_waiter(&p.throttle, 1);
    lb_worker *w =
        worker_of("busy", (lb_worker_options){.throttle = &p.throttle});
    assert_compiles(w);
    assert_int_equal(atomic_load(&stops), 0);
    finish(w);
    end_contention(&p);
  }
}

// An overdraft of 60 ms is throttled for 1200 ms. The worker is stopped before
// it can respond, and has next to nothing to do once it is resumed. One with a
// grant is woken by the next grant.
static bool responds_held(bool granted) {
  contended p;
  contend(&p, false);
  lb_worker *w =
      worker_of("good", (lb_worker_options){.throttle = &p.throttle});
  assert_compiles(w);
  if (granted) {
    kill(lb_worker_pid(w), SIGSTOP);
    assert_compiles(w);
  }
  overdraw(&p.throttle, 60);
  kill(lb_worker_pid(w), SIGSTOP);
  lb_status st = compile(w, 1000);
  bool responds = !lb_failed(st);
  if (!responds) print_error("%s\n", lb_status_message(st));
  lb_status_drop(st);
  finish(w);
  end_contention(&p);
  return responds;
}

static bool responds_though_held(void) { return responds_held(false); }
static bool responds_between_grants(void) { return responds_held(true); }

// A busy machine may take longer than a second for next to nothing, but not
// repeatedly.
static void assert_eventually(bool (*responds)(void)) {
  bool once = false;
  for (int i = 0; i < 5 && !once; i++) once = responds();
  assert_true(once);
}

static void suspended_time_does_not_count_against_a_request(void **state) {
  (void)state;
  assert_eventually(responds_though_held);
}

// A worker with a grant pauses by itself and uses no CPU time then, but does
// not hang.
static void pauses_between_grants_do_not_count_either(void **state) {
  (void)state;
  assert_eventually(responds_between_grants);
}

// Its 300 ms of work exceed what a twentieth of a processor allows before it is
// considered hanging.
static bool suspends_while_starting(void) {
  contended p;
  int64_t ns;
  contend(&p, false);
  overdraw(&p.throttle, 5);
  lb_worker *w =
      worker_of("late", (lb_worker_options){.throttle = &p.throttle});
  assert_false(lb_worker_is_starting(w, &ns));  // not started yet
  lb_worker_prepare(w);
  while (!atomic_load(&stops) && lb_worker_is_starting(w, &ns)) usleep(1000);
  bool stopped = atomic_load(&stops) > 0;
  lb_pool_leave(p.pool);
  while (lb_worker_is_starting(w, &ns)) usleep(1000);
  assert_compiles(w);
  finish(w);
  lb_pool_enter(p.pool);
  end_contention(&p);
  return stopped;
}

static void a_starting_worker_is_suspended(void **state) {
  (void)state;
  assert_eventually(suspends_while_starting);
}

static void an_unthrottled_start_is_polled_often(void **state) {
  (void)state;
  contended p;
  int64_t ns;
  contend(&p, true);
  lb_worker *w =
      worker_of("late", (lb_worker_options){.throttle = &p.throttle});
  lb_worker_prepare(w);
  assert_true(lb_worker_is_starting(w, &ns));
  assert_true(ns <= 2000000);
  finish(w);
  end_contention(&p);
}

static char state_of(pid_t pid) {
  char path[64], state = 'R';
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  FILE *f = fopen(path, "r");
  if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1) state = 'R';
  if (f) fclose(f);
  return state;
}

static void nap_ms(long ms) {
  nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

// Stops the calling process once it waits, resumes it `ms` later, and then
// resumes `worker`.
static pid_t pause_us(pid_t worker, long ms) {
  pid_t us = getpid(), pid = fork();
  if (pid) return pid;
  while (state_of(us) != 'S') sched_yield();
  kill(us, SIGSTOP);
  nap_ms(ms);
  kill(us, SIGCONT);
  nap_ms(200);
  kill(worker, SIGCONT);
  _exit(0);
}

// In a separate process, so that the parent of this test does not see it
// stopped.
static bool responds_though_all_pause(void) {
  int status = -1;
  lb_worker *w = worker_of("good", (lb_worker_options){0});
  pid_t pid = fork();
  if (pid == 0) {
    assert_compiles(w);
    kill(lb_worker_pid(w), SIGSTOP);
    pid_t other = pause_us(lb_worker_pid(w), 2500);
    lb_status st = compile(w, 1500);
    if (lb_failed(st)) print_error("%s\n", lb_status_message(st));
    waitpid(other, NULL, 0);
    lb_worker_free(w);
    _exit(lb_failed(st));
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  finish(w);
  return status == 0;
}

static void the_worker_is_not_blamed_while_all_processes_are_suspended(
    void **state) {
  (void)state;
  assert_eventually(responds_though_all_pause);
}

static void a_hanging_worker_is_killed_while_contended(void **state) {
  (void)state;
  contended p;
  contend(&p, false);
  lb_worker *w =
      worker_of("hang", (lb_worker_options){.throttle = &p.throttle});
  assert_fails(compile(w, 50), LB_CANCELLED, "did not respond in time");
  finish(w);
  end_contention(&p);
}

static void a_suspended_worker_ends_when_cancelled(void **state) {
  (void)state;
  contended p;
  pthread_t thread;
  contend(&p, false);
  lb_worker *w =
      worker_of("good", (lb_worker_options){.throttle = &p.throttle});
  assert_compiles(w);
  overdraw(&p.throttle, 100);
  p.throttle.pace.quota_factor = 1e-9;  // it stays suspended
  kill(lb_worker_pid(w), SIGSTOP);
  pthread_create(&thread, NULL, cancel_soon, w);
  assert_fails(compile(w, LONG), LB_CANCELLED, "cancelled");
  pthread_join(thread, NULL);
  finish(w);
  end_contention(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_process_starts_at_the_first_request_and_stays),
      cmocka_unit_test(a_process_that_was_prepared_gets_the_first_request),
      cmocka_unit_test(information_comes_with_the_object),
      cmocka_unit_test(a_rejected_request_is_not_a_worker_failure),
      cmocka_unit_test(the_process_inherits_four_descriptors),
      cmocka_unit_test(the_worker_starts_where_low_descriptors_are_closed),
      cmocka_unit_test(stderr_output_is_bounded),
      cmocka_unit_test(stop_ends_the_process_and_the_next_request_starts_one),
      cmocka_unit_test(a_missing_program_is_named),
      cmocka_unit_test(a_program_that_cannot_be_run_is_named),
      cmocka_unit_test(bad_workers_fail_with_the_reason),
      cmocka_unit_test(an_object_of_another_generator_is_rejected),
      cmocka_unit_test(a_worker_that_hangs_is_killed_in_time),
      cmocka_unit_test(a_worker_that_hangs_is_killed_in_a_sandbox_too),
      cmocka_unit_test(a_stopped_worker_is_killed_in_time),
      cmocka_unit_test(a_worker_killed_between_requests_is_replaced),
      cmocka_unit_test(an_extra_response_is_not_taken_for_the_next),
      cmocka_unit_test(the_worker_is_restarted_after_a_failure),
      cmocka_unit_test(backoff_grows_until_requests_fail_at_once),
      cmocka_unit_test(cancel_ends_the_current_call),
      cmocka_unit_test(after_fork_each_side_has_its_own_process),
      cmocka_unit_test(
          the_worker_ends_although_a_forked_child_holds_the_socket),
      cmocka_unit_test(programs_that_ignore_sigchld_are_supported),
      cmocka_unit_test(the_share_follows_the_payback),
      cmocka_unit_test(a_contended_worker_is_suspended_and_responds),
      cmocka_unit_test(a_starting_worker_is_suspended),
      cmocka_unit_test(an_unthrottled_start_is_polled_often),
      cmocka_unit_test(unthrottled_or_awaited_workers_are_not_suspended),
      cmocka_unit_test(suspended_time_does_not_count_against_a_request),
      cmocka_unit_test(pauses_between_grants_do_not_count_either),
      cmocka_unit_test(
          the_worker_is_not_blamed_while_all_processes_are_suspended),
      cmocka_unit_test(a_hanging_worker_is_killed_while_contended),
      cmocka_unit_test(a_suspended_worker_ends_when_cancelled),
  };
  return cmocka_run_group_tests_name("worker", tests, make_directory,
                                     drop_directory);
}
