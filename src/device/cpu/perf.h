// device/cpu/perf.h -- tells `perf` the names of loaded kernels.
//
// perf reads them from FOLDER/perf-PID.map, where FOLDER is /tmp, after the
// process has ended; so the file stays. It looks there for code in private
// memory alone: load with LB_CPU_SEALED. A child of fork gets a file of its
// own. Any thread may call.
#ifndef LB_DEVICE_CPU_PERF_H
#define LB_DEVICE_CPU_PERF_H

#include "base/status.h"

typedef struct lb_perf lb_perf;

// LB_IO: the file cannot be written, or belongs to somebody else.
lb_status lb_perf_open(const char *folder, lb_perf **out);
void lb_perf_close(lb_perf *perf);  // NULL is fine

// `size` bytes at `run` are the code of `name`. A line that cannot be written
// is left out. `perf` may be NULL: nobody asked.
void lb_perf_add(lb_perf *perf, const void *run, size_t size, const char *name);

#endif
