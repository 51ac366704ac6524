// device/cpu/device.h -- the processor that the process runs on.
//
// Objects become machine code in memory of the process, launches run on the
// threads of the stream's pool, and memory is the host's. A submit returns when
// all of it has run, so there is never anything to wait for.
#ifndef LB_DEVICE_CPU_DEVICE_H
#define LB_DEVICE_CPU_DEVICE_H

#include "device/cpu/pack.h"
#include "device/cpu/perf.h"
#include "device/device.h"

typedef struct lb_cpu_device {
  lb_device base;
  const lb_pack *pack;  // borrowed; NULL: there is none
  lb_perf *perf;        // owned; NULL: nobody asked
  // Memory for code, made when the first object is loaded; owned, or NULL.
  _Atomic(struct lb_cpu_code *) code;
} lb_cpu_device;

// Owns nothing until something is loaded, or perf is asked for. `pack` may be
// NULL. With `perf`, profilers get the names of kernels; where they cannot have
// them, that is a warning in the log.
void lb_cpu_device_init(lb_cpu_device *d, const lb_pack *pack, bool perf,
                        const lb_log *log);
void lb_cpu_device_fini(lb_cpu_device *d);  // kernels may outlive it

#endif
