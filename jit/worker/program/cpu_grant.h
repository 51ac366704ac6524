// worker/program/cpu_grant.h -- for how long the process may go on, at a time.
//
// Descriptor 0 is a file of four numbers of eight bytes. Three the library
// writes: for how many nanoseconds the process may go on, how many it then
// pauses for, and how often, from each SIGCONT on; after that it pauses until
// the next. 0, or no such file: it is not bounded. The fourth the process sets
// to 1 once all that holds, and to 2 when it is ready for requests. What other
// processes took of a slice, it has back, unless they took nearly all.
//
// The process pauses by itself since nobody else is as exact: who is to stop
// another that has a processor needs one too, and may wait for it.
#ifndef LB_WORKER_PROGRAM_CPU_GRANT_H
#define LB_WORKER_PROGRAM_CPU_GRANT_H

#include <stdint.h>

// From then on. Without timers nothing happens: the library stops what does
// not pause.
void lb_cpu_grant_init(void);
// It is ready for requests.
void lb_cpu_grant_ready(void);

// Of a slice `owed` was left, and so much of it was used when the timer ran
// out, in ns of processor time: for how long the process goes on. 0: it pauses.
// One that used next to nothing waits for something else than a processor.
static inline int64_t lb_cpu_grant_rest(int64_t slice, int64_t owed,
                                        int64_t used) {
  int64_t some = slice / 8;  // less is not worth another timer
  return used < some || owed - used < some ? 0 : owed - used;
}

#endif
