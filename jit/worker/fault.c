// worker/fault.c -- Converts signals that machine code raises to a status.
//
// The code holds no lock and owns nothing, so it may be abandoned at any
// instruction.
#include "worker/fault.h"

#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>

static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGVTALRM};
enum { N_SIGNALS = sizeof signals / sizeof *signals };

// Valid while code runs, when the handlers are ours.
static sigjmp_buf resume_point;

static void jump_back(int sig) { siglongjmp(resume_point, sig); }

static void catch_signals(struct sigaction *old) {
  struct sigaction ours = {.sa_handler = jump_back};
  sigemptyset(&ours.sa_mask);
  for (int i = 0; i < N_SIGNALS; i++) sigaction(signals[i], &ours, &old[i]);
}

static void restore_signals(const struct sigaction *old) {
  for (int i = 0; i < N_SIGNALS; i++) sigaction(signals[i], &old[i], NULL);
}

// CPU time, because the process may be suspended for long.
static void set_timer(int ms) {
  struct itimerval t = {
      .it_value = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000}};
  setitimer(ITIMER_VIRTUAL, &t, NULL);
}

lb_status lb_fault_run(lb_kernel_fn *fn, const uint64_t *args, int limit_ms) {
  struct sigaction old[N_SIGNALS];
  volatile int caught = 0;
  catch_signals(old);
  int sig = sigsetjmp(resume_point, 1);
  if (sig == 0) {
    set_timer(limit_ms);
    fn(args);
  } else {
    caught = sig;
  }
  set_timer(0);
  restore_signals(old);
  if (caught == SIGVTALRM)
    return lb_error(LB_INTERNAL, "the code took more than %d ms of CPU time",
                    limit_ms);
  if (caught)
    return lb_error(LB_INTERNAL, "the code faults: %s", strsignal(caught));
  return LB_OK;
}
