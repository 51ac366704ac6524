// base/thread.c -- the library's own threads, and futex waits.
#include "base/thread.h"

#include <linux/futex.h>
#include <signal.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)

int lb_thread_start(void *(*fn)(void *), void *user, pthread_t *out) {
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int err = pthread_create(out, NULL, fn, user);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return err;
}

void lb_thread_name(const char *name) {
  pthread_setname_np(pthread_self(), name);
}

int lb_thread_id(void) { return (int)syscall(SYS_gettid); }

void lb_word_wait(atomic_uint *word, unsigned seen, int64_t ns) {
  struct timespec t = {.tv_sec = ns / SECOND, .tv_nsec = ns % SECOND};
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, ns < 0 ? NULL : &t, NULL,
          0);
}

void lb_word_wake(atomic_uint *word, int count) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}
