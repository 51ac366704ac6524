// device/cpu/open.c -- opens the CPU device.
//
// It is a file of its own so that a test program can link another device in its
// place (tests/mirror).
#include <stdlib.h>

#include "device/cpu/device.h"

lb_status lb_device_open(const lb_pack *pack, bool perf, const lb_log *log,
                         lb_device **out) {
  lb_cpu_device *d = calloc(1, sizeof *d);
  *out = NULL;
  if (!d) return lb_oom();
  lb_cpu_device_init(d, pack, perf, log);
  *out = &d->base;
  return LB_OK;
}
