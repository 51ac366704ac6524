// device/cpu/exec.h -- an object made callable.
//
// An object holds one kernel: the function `limber_kernel`, and, where the
// generator has more to say about it, the constant `limber_header`, whose
// bytes mean nothing here. Any thread may call.
#ifndef LB_DEVICE_CPU_EXEC_H
#define LB_DEVICE_CPU_EXEC_H

#include "base/file.h"
#include "device/cpu/code.h"
#include "device/cpu/perf.h"
#include "device/launch.h"

#define LB_CPU_HEADER "limber_header"

// The function of a kernel that cpu runs.
static inline lb_kernel_fn *lb_cpu_function(const lb_exec *exec) {
  return (lb_kernel_fn *)exec->entry;
}

// Releasing it (lb_exec_release) frees the code.
typedef struct lb_cpu_exec {
  lb_exec base;    // its entry is a lb_kernel_fn
  lb_span header;  // in the block, 64-byte aligned if the object says so; may
                   // be empty
  lb_cpu_code *code;    // retained
  lb_cpu_block *block;  // owned
} lb_cpu_exec;

// Loads `object`, which is borrowed for the call. `name` is what perf shows;
// `perf` may be NULL. LB_INVALID, LB_UNSUPPORTED: see elf.h, or the object has
// no kernel; LB_OOM: see lb_cpu_code_add.
lb_status lb_cpu_exec_create(lb_cpu_code *code, lb_perf *perf, lb_span object,
                             const char *name, lb_cpu_exec **out);

#endif
