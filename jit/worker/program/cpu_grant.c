// worker/program/cpu_grant.c -- pauses in the handler of a timer.
//
// Handlers do not interrupt each other, nor does any other: what leaves code
// that is being checked (fault.c) never leaves a pause. All they call is safe
// in handlers.
#include "worker/program/cpu_grant.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)  // ns

enum { LEASE = 0 };  // the descriptor

typedef struct lease {
  int64_t slice, gap;  // ns
  int64_t slices;
} lease;

static timer_t timer;
static volatile sig_atomic_t pausing;

// Of handlers.
static int64_t left;  // slices
static int64_t owed;  // ns of processor time, of this one
static int64_t seen;  // of it, when the timer was set

static lease read_lease(void) {
  lease l;
  bool told = pread(LEASE, &l, sizeof l, 0) == sizeof l;
  return told && l.slice > 0 && l.gap >= 0 ? l : (lease){0};
}

static struct timespec span_of(int64_t ns) {
  return (struct timespec){.tv_sec = ns / SECOND, .tv_nsec = ns % SECOND};
}

static int64_t processor_time(void) {
  struct timespec t;
  if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t)) return 0;
  return t.tv_sec * SECOND + t.tv_nsec;
}

// 0: for ever.
static void go_on_for(int64_t ns) {
  owed = ns;
  seen = processor_time();
  timer_settime(timer, 0, &(struct itimerspec){.it_value = span_of(ns)}, NULL);
}

static void begin(int sig) {
  int err = errno;
  lease l = read_lease();
  (void)sig;
  go_on_for(l.slice);
  left = l.slices;
  pausing = false;
  errno = err;
}

static bool goes_on(const lease *l) {
  int64_t rest = lb_cpu_grant_rest(l->slice, owed, processor_time() - seen);
  if (rest > 0) go_on_for(rest);
  return rest > 0;
}

// The lease may have been lifted since the timer ran out. Whoever lifts it
// later, or begins another, wakes us.
static void pause_here(int sig) {
  int err = errno;
  sigset_t others;
  lease l = read_lease();
  struct timespec gap = span_of(l.gap);
  (void)sig;
  sigfillset(&others);
  sigdelset(&others, SIGCONT);
  pausing = l.slice > 0 && !goes_on(&l);
  if (pausing && --left > 0 &&
      pselect(0, NULL, NULL, NULL, &gap, &others) == 0) {
    go_on_for(l.slice);
    pausing = false;
  }
  while (pausing) sigsuspend(&others);
  errno = err;
}

// No such file: nobody looks.
static void set_stage(int64_t stage) {
  ssize_t n = pwrite(LEASE, &stage, sizeof stage, sizeof(lease));
  (void)n;
}

void lb_cpu_grant_ready(void) { set_stage(2); }

void lb_cpu_grant_init(void) {
  struct sigaction on = {.sa_handler = begin, .sa_flags = SA_RESTART};
  struct sigaction out = {.sa_handler = pause_here, .sa_flags = SA_RESTART};
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL,
                           .sigev_signo = SIGALRM};
  sigfillset(&on.sa_mask);
  sigfillset(&out.sa_mask);
  if (timer_create(CLOCK_MONOTONIC, &event, &timer)) return;
  sigaction(SIGALRM, &out, NULL);
  sigaction(SIGCONT, &on, NULL);
  set_stage(1);
}
