// device/cpu/perf.h -- writes the names of loaded kernels for the Linux
// profiler `perf`.
//
// perf reads them from DIRECTORY/perf-PID.map, where DIRECTORY is /tmp, after
// the process has ended, so the file is not removed. It uses the file for code
// in private memory only: load with LB_CPU_SEALED. A child of fork gets its own
// file. Any thread may call.
#ifndef LB_DEVICE_CPU_PERF_H
#define LB_DEVICE_CPU_PERF_H

#include "base/status.h"

typedef struct lb_perf lb_perf;

// Fails with LB_IO if the file cannot be written or has another owner.
lb_status lb_perf_open(const char *directory, lb_perf **out);
void lb_perf_close(lb_perf *perf);  // NULL is allowed

// Records that the `size` bytes at `run` are the code of `name`. Write errors
// are ignored. Does nothing if `perf` is NULL.
void lb_perf_add(lb_perf *perf, const void *run, size_t size, const char *name);

#endif
