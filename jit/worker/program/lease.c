// worker/program/lease.c -- pauses in the handler of a timer.
//
// Handlers do not interrupt each other, nor does any other: what leaves code
// that is being checked (fault.c) never leaves a pause. All they call is safe
// in handlers.
#include "worker/program/lease.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)  // ns

enum { LEASE = 0 };  // the descriptor

static timer_t timer;
static volatile sig_atomic_t pausing;

static int64_t read_lease(void) {
  int64_t ns;
  bool told = pread(LEASE, &ns, sizeof ns, 0) == sizeof ns;
  return told && ns > 0 ? ns : 0;
}

static void go_on(int sig) {
  int err = errno;
  int64_t ns = read_lease();
  struct itimerspec t = {
      .it_value = {.tv_sec = ns / SECOND, .tv_nsec = ns % SECOND}};
  (void)sig;
  timer_settime(timer, 0, &t, NULL);  // 0: never
  pausing = false;
  errno = err;
}

// The lease may have been lifted since the timer ran out. Whoever lifts it
// later, or begins another, wakes us.
static void pause_here(int sig) {
  int err = errno;
  sigset_t others;
  (void)sig;
  sigfillset(&others);
  sigdelset(&others, SIGCONT);
  pausing = read_lease() != 0;
  while (pausing) sigsuspend(&others);
  errno = err;
}

void lb_lease_init(void) {
  struct sigaction on = {.sa_handler = go_on, .sa_flags = SA_RESTART};
  struct sigaction out = {.sa_handler = pause_here, .sa_flags = SA_RESTART};
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL,
                           .sigev_signo = SIGALRM};
  sigfillset(&on.sa_mask);
  sigfillset(&out.sa_mask);
  if (timer_create(CLOCK_MONOTONIC, &event, &timer)) return;
  sigaction(SIGALRM, &out, NULL);
  sigaction(SIGCONT, &on, NULL);
}
