// base/thread.h -- the library's own threads, and futex waits.
#ifndef LB_BASE_THREAD_H
#define LB_BASE_THREAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

// Starts a thread with all signals blocked, because signals are for the
// application's threads. Returns 0 or an error number.
int lb_thread_start(void *(*fn)(void *), void *user, pthread_t *out);
// Names the calling thread, in at most 15 characters. A thread names itself,
// because naming another one opens a file, and its creator may be a request.
void lb_thread_name(const char *name);

int lb_thread_id(void);  // the calling thread's kernel thread id (gettid)

// Sleeps while *word == seen, until woken, for at most `ns` (negative: for
// ever). May wake spuriously.
void lb_word_wait(atomic_uint *word, unsigned seen, int64_t ns);
// Wakes at most `count` threads that sleep on the word.
void lb_word_wake(atomic_uint *word, int count);

#endif
