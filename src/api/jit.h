// api/jit.h -- the kernels of a runtime, as the environment asks for them.
//
//   LIMBER_JIT=process   kernels are compiled by the program limber-jit, when
//                        limber_session_settle is called: the default
//   LIMBER_JIT=off       no kernels but those that the library contains
//   LIMBER_JIT_PATH      where that program is; else beside the library. Not
//                        looked at in set-user-id programs
//   LIMBER_ISA           what kernels may use, "x86-64-v3"; default: all that
//                        the machine has
//   LIMBER_DUMP_OBJECTS  a folder: every object that is loaded is written there
//   LIMBER_PERF=1        perf gets the names of what is compiled, from
//                        /tmp/perf-PID.map
#ifndef LB_API_JIT_H
#define LB_API_JIT_H

#include "base/log.h"
#include "compile/compiler.h"
#include "device/cpu/isa.h"

typedef struct lb_kernels {
  lb_slots *slots;        // owned; NULL: every node runs by its host kernel
  lb_compiler *compiler;  // owned; NULL: nothing is compiled
} lb_kernels;

// What cannot be had is left out: that is one warning, since everything runs
// without.
void lb_kernels_open(lb_kernels *k, const lb_log *log, lb_events *events);
void lb_kernels_close(lb_kernels *k);  // {0} is fine

// What kernels may use. What is wrong with LIMBER_ISA is a warning.
lb_isa lb_kernels_isa(const lb_log *log);
bool lb_kernels_may_compile(const lb_log *log);  // LIMBER_JIT
void lb_kernels_worker(lb_strbuf *out);          // path of the program
const char *lb_kernels_levels(void);  // of the kernels that the library has

#endif
