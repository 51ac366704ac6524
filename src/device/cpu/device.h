// device/cpu/device.h -- the CPU that the process runs on, as a device.
//
// Objects are loaded as machine code into the process, launches run on the
// threads of the stream's pool, and device memory is host memory. A submit
// returns when all of it has run, so lb_device_wait has nothing to wait for.
#ifndef LB_DEVICE_CPU_DEVICE_H
#define LB_DEVICE_CPU_DEVICE_H

#include "device/cpu/pack.h"
#include "device/cpu/perf.h"
#include "device/device.h"

typedef struct lb_cpu_device {
  lb_device base;
  const lb_pack *pack;  // borrowed; may be NULL
  lb_perf *perf;        // owned; NULL: no profiler support
  // Executable memory, created when the first object is loaded; owned, or NULL.
  _Atomic(struct lb_cpu_code *) code;
} lb_cpu_device;

// Allocates nothing until an object is loaded, unless `perf` is set. `pack` may
// be NULL. With `perf`, kernel names are written for the profiler; if that
// fails, a warning is logged.
void lb_cpu_device_init(lb_cpu_device *d, const lb_pack *pack, bool perf,
                        const lb_log *log);
void lb_cpu_device_fini(lb_cpu_device *d);  // loaded kernels may outlive it

#endif
