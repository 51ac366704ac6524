// worker/program/cpu_grant.c -- Pauses in the signal handler of a timer.
//
// The handlers block all signals, so nothing interrupts them: the signal that
// abandons code being checked (fault.c) never abandons a pause. They call only
// async-signal-safe functions.
#include "worker/program/cpu_grant.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)  // ns

enum { GRANT_FD = 0 };

typedef struct grant {
  int64_t slice, gap;  // ns
  int64_t slices;
} grant;

static timer_t timer;
static volatile sig_atomic_t pausing;

// Used in handlers only.
static int64_t slices_left;
static int64_t owed;        // ns of CPU time left in this slice
static int64_t start_time;  // CPU time when the timer was set

static grant read_grant(void) {
  grant l;
  bool is_complete = pread(GRANT_FD, &l, sizeof l, 0) == sizeof l;
  return is_complete && l.slice > 0 && l.gap >= 0 ? l : (grant){0};
}

static struct timespec span_of(int64_t ns) {
  return (struct timespec){.tv_sec = ns / SECOND, .tv_nsec = ns % SECOND};
}

static int64_t cpu_time(void) {
  struct timespec t;
  if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t)) return 0;
  return t.tv_sec * SECOND + t.tv_nsec;
}

// 0: without limit.
static void run_for(int64_t ns) {
  owed = ns;
  start_time = cpu_time();
  timer_settime(timer, 0, &(struct itimerspec){.it_value = span_of(ns)}, NULL);
}

static void on_continue(int sig) {
  int err = errno;
  grant l = read_grant();
  (void)sig;
  run_for(l.slice);
  slices_left = l.slices;
  pausing = false;
  errno = err;
}

static bool run_remaining(const grant *l) {
  int64_t remaining =
      lb_cpu_grant_remaining(l->slice, owed, cpu_time() - start_time);
  if (remaining > 0) run_for(remaining);
  return remaining > 0;
}

// The grant may have been lifted since the timer expired. Lifting it later, or
// granting anew, sends SIGCONT, which wakes the process.
static void on_alarm(int sig) {
  int err = errno;
  sigset_t others;
  grant l = read_grant();
  struct timespec gap = span_of(l.gap);
  (void)sig;
  sigfillset(&others);
  sigdelset(&others, SIGCONT);
  pausing = l.slice > 0 && !run_remaining(&l);
  if (pausing && --slices_left > 0 &&
      pselect(0, NULL, NULL, NULL, &gap, &others) == 0) {
    run_for(l.slice);
    pausing = false;
  }
  while (pausing) sigsuspend(&others);
  errno = err;
}

// Without the file no one reads the state.
static void set_state(int64_t state) {
  ssize_t n = pwrite(GRANT_FD, &state, sizeof state, sizeof(grant));
  (void)n;
}

void lb_cpu_grant_ready(void) { set_state(2); }

void lb_cpu_grant_init(void) {
  struct sigaction on = {.sa_handler = on_continue, .sa_flags = SA_RESTART};
  struct sigaction out = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL,
                           .sigev_signo = SIGALRM};
  sigfillset(&on.sa_mask);
  sigfillset(&out.sa_mask);
  if (timer_create(CLOCK_MONOTONIC, &event, &timer)) return;
  sigaction(SIGALRM, &out, NULL);
  sigaction(SIGCONT, &on, NULL);
  set_state(1);
}
