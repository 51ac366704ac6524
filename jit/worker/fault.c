// worker/fault.c -- signals that machine code raises become a status.
//
// The code holds no lock and owns nothing, so it may be left at any
// instruction.
#include "worker/fault.h"

#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>

static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGVTALRM};
enum { N_SIGNALS = sizeof signals / sizeof *signals };

static sigjmp_buf back;  // set while code runs, which is when signals are ours

static void jump_back(int sig) { siglongjmp(back, sig); }

static void catch_signals(struct sigaction *old) {
  struct sigaction ours = {.sa_handler = jump_back};
  sigemptyset(&ours.sa_mask);
  for (int i = 0; i < N_SIGNALS; i++) sigaction(signals[i], &ours, &old[i]);
}

static void release_signals(const struct sigaction *old) {
  for (int i = 0; i < N_SIGNALS; i++) sigaction(signals[i], &old[i], NULL);
}

// Of processor time: the process may be stopped for long.
static void set_timer(int ms) {
  struct itimerval t = {
      .it_value = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000}};
  setitimer(ITIMER_VIRTUAL, &t, NULL);
}

lb_status lb_fault_run(lb_kernel_fn *fn, const uint64_t *args, int limit_ms) {
  struct sigaction old[N_SIGNALS];
  volatile int caught = 0;
  catch_signals(old);
  int sig = sigsetjmp(back, 1);
  if (sig == 0) {
    set_timer(limit_ms);
    fn(args);
  } else {
    caught = sig;
  }
  set_timer(0);
  release_signals(old);
  if (caught == SIGVTALRM)
    return lb_error(LB_INTERNAL, "the code runs for more than %d ms", limit_ms);
  if (caught)
    return lb_error(LB_INTERNAL, "the code faults: %s", strsignal(caught));
  return LB_OK;
}
