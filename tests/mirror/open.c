// tests/mirror/open.c -- a program that is linked with this file uses the
// device `mirror`: the linker then omits the lb_device_open of the library.
#include <stdlib.h>

#include "device/cpu/device.h"
#include "mirror/mirror.h"

lb_status lb_device_open(const lb_pack *pack, bool perf, const lb_log *log,
                         lb_device **out) {
  lb_cpu_device *cpu = calloc(1, sizeof *cpu);
  *out = NULL;
  if (!cpu) return lb_oom();
  lb_cpu_device_init(cpu, pack, perf, log);
  lb_status st = mirror_open(&cpu->base, out);
  if (lb_failed(st)) lb_device_close(&cpu->base);
  return st;
}
