// device/cpu/exec.h -- an object made callable.
//
// An object holds one kernel: the function `limber_kernel`, and, where the
// generator has more to say about it, the constant `limber_header`, whose
// bytes mean nothing here. Any thread may call.
#ifndef LB_DEVICE_CPU_EXEC_H
#define LB_DEVICE_CPU_EXEC_H

#include "base/file.h"
#include "base/ref.h"
#include "device/cpu/code.h"
#include "device/cpu/perf.h"
#include "spec/abi.h"

#define LB_CPU_HEADER "limber_header"

typedef void lb_cpu_entry(void);  // cast to the kernel's own type to call it

// Refcounted; the last release frees the code, so whoever calls `entry` holds
// a reference, or knows that somebody does.
typedef struct lb_cpu_exec {
  lb_ref ref;
  lb_cpu_entry *entry;
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
void lb_cpu_exec_retain(lb_cpu_exec *exec);
void lb_cpu_exec_release(lb_cpu_exec *exec);  // NULL is fine

#endif
