// base/thread.h -- threads of the library's own, and sleeping on a word.
#ifndef LB_BASE_THREAD_H
#define LB_BASE_THREAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

// Starts a thread that takes no signals: those are for the program's own. 0, or
// an error number.
int lb_thread_start(void *(*fn)(void *), void *user, pthread_t *out);
// Names the calling thread, in at most 15 characters. Who starts a thread may
// be a request, and would have to open a file to name it.
void lb_thread_name(const char *name);

int lb_thread_id(void);  // of the calling thread, as the system counts them

// Sleeps while *word is `seen`, until woken, at most `ns` (negative: for ever).
// May return for no reason.
void lb_word_wait(atomic_uint *word, unsigned seen, int64_t ns);
// Wakes at most `count` of those who sleep on it.
void lb_word_wake(atomic_uint *word, int count);

#endif
