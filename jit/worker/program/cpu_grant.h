// worker/program/cpu_grant.h -- Limits how long the process runs at a time.
//
// Descriptor 0 is a file of four 8-byte integers (lb_cpu_grant_file). The
// library writes three: the nanoseconds of a slice for which the process may
// run, the nanoseconds of the pause after it, and the number of slices from
// each SIGCONT on; after these the process pauses until the next SIGCONT. A
// slice of 0, or no such file: no limit. The process writes the fourth: 1 once
// it obeys grants, 2 when it is ready for requests. CPU time of a slice that
// other processes took is returned to it, unless they took nearly all.
//
// The process pauses by itself because this is more exact than being stopped: a
// process that stops another needs a processor, too, and may have to wait for
// it.
#ifndef LB_WORKER_PROGRAM_CPU_GRANT_H
#define LB_WORKER_PROGRAM_CPU_GRANT_H

#include <stdint.h>

// Starts to obey grants. Without timers this does nothing: the library suspends
// a process that does not pause.
void lb_cpu_grant_init(void);
// Reports that the process is ready for requests.
void lb_cpu_grant_ready(void);

// When the timer expired, `owed` ns of the slice had been left and `used` ns of
// CPU time were consumed: returns for how long the process may continue. 0: it
// pauses. A process that used almost nothing waits for something other than a
// processor.
static inline int64_t lb_cpu_grant_remaining(int64_t slice, int64_t owed,
                                             int64_t used) {
  int64_t min_run = slice / 8;  // less does not justify another timer
  return used < min_run || owed - used < min_run ? 0 : owed - used;
}

#endif
