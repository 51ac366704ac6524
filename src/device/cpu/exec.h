// device/cpu/exec.h -- loads an object as an executable kernel.
//
// An object holds one kernel: the function `limber_kernel` and, optionally, the
// constant `limber_header`, data of the code generator that is not interpreted
// here. Any thread may call.
#ifndef LB_DEVICE_CPU_EXEC_H
#define LB_DEVICE_CPU_EXEC_H

#include "base/file.h"
#include "device/cpu/code.h"
#include "device/cpu/perf.h"
#include "device/launch.h"

#define LB_CPU_HEADER "limber_header"

// The entry point of a kernel of the CPU device.
static inline lb_kernel_fn *lb_cpu_function(const lb_exec *exec) {
  return (lb_kernel_fn *)exec->entry;
}

// Releasing it (lb_exec_release) frees the code.
typedef struct lb_cpu_exec {
  lb_exec base;    // its entry is an lb_kernel_fn
  lb_span header;  // inside the block, aligned as in the object; may be empty
  lb_cpu_code *code;    // retained
  lb_cpu_block *block;  // owned
} lb_cpu_exec;

// Loads `object`, which is borrowed for the call. `name` is shown by perf;
// `perf` may be NULL. Errors: those of elf.h; LB_INVALID if the object has no
// kernel; LB_OOM, see lb_cpu_code_add.
lb_status lb_cpu_exec_create(lb_cpu_code *code, lb_perf *perf, lb_span object,
                             const char *name, lb_cpu_exec **out);

#endif
